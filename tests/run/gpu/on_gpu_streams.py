"""Programs for fake_gpu.py: in which stream a call runs, and which stream waits for which. The
fakes end a process in which nothing orders two uses of the same memory."""

import gc
import itertools

import pytest
from run.gpu.calls import NAMES, TIME_FIRST, Call, assert_right, on_gpu, run_on_gpu
from run.gpu.exporters import CPU, Exporter
from run.gpu.fake_gpu import LSTM, Device, flat, inputs, on_device, weights_of
from run.gpu.played import played

import rnnlayout as rl


class Stream:
    def __init__(self, number):
        self.cuda_stream = number


def new_stream():
    on_gpu(LSTM)  # which opens the driver
    return Device().stream()


def the_stream_of_the_library():
    """That in which PyTorch or CuPy work now, which may change from call to call."""
    device, home = Device(), [0]
    side, other, (x, state) = new_stream(), new_stream(), inputs(LSTM)
    for package, exchange in (("torch", False), ("torch", True), ("cupy", False)):
        with played(package, home, exchange) as Array:
            for home[0], outs in itertools.product((side, 0, other), ((), NAMES[3:])):
                call = Call(LSTM, TIME_FIRST, x, state, Array, outs)
                made = assert_right(device, call, None, home[0] or 1, waits_for=home[0])
                assert not any(name.startswith("cuEvent") for name in made)


def another_stream():
    """The call waits for the library's stream by DLPack, and that for the call, with and without
    new arrays, of which the workspace is one."""
    device, home = Device(), [0]
    side, other, (x, state) = new_stream(), new_stream(), inputs(LSTM)
    streams = (0, side), (side, 1), (side, other), (side, 2)
    for exchange, (home[0], stream), outs in itertools.product(
        (False, True), streams, ((), NAMES[3:])
    ):
        with played("torch", home, exchange) as Array:
            call = Call(LSTM, TIME_FIRST, x, state, Array, outs)
            for stream_ in (stream, Stream(stream)):
                made = assert_right(device, call, stream_, stream, waits_for=home[0])
                events = [name for name in made if name.startswith(("cuEventR", "cuStreamW"))]
                of, then = (hex(s) if s > 1 else "(nil)" for s in (stream, home[0]))
                assert events[-2:] == [f"cuEventRecord stream={of}",
                                       f"cuStreamWaitEvent stream={then}"]  # fmt: skip


def no_race():
    """Somebody's work on the array before the call, and after it, each in his own stream."""
    device, home = Device(), [new_stream()]
    x, state = inputs(LSTM)
    for exchange, name, stream in itertools.product((False, True), NAMES, (None, 1)):
        with played("torch", home, exchange) as Array:
            call = Call(LSTM, TIME_FIRST, x, state, Array, NAMES[3:])
            arrays = call.arrays(device)
            at, nbytes = arrays[name].address, call.all[name].nbytes
            device.fill(at, nbytes, home[0])
            run_on_gpu(call, arrays, stream)
            device.fill(at, nbytes, home[0])
            device.sync(home[0])


def unknown_streams():
    """If an array does not tell its stream, its work and the call's are done at the end."""
    device, side = Device(), new_stream()
    x, state = inputs(LSTM)
    with played("torch") as Array:
        for name, stream in itertools.product(NAMES, (None, side, 2)):
            call = Call(LSTM, TIME_FIRST, x, state, Array, NAMES[3:])
            call.kinds[name] = Exporter
            made = assert_right(device, call, stream, stream or 1)
            assert any(line.startswith("cuStreamSynchronize") for line in made)


def calls_of_a_loop(gpu, d, package):
    """Results that are dropped at once."""
    with played(package) as Array:
        x = on_device(d, inputs(LSTM)[0], Array)

        def loop():
            for _ in range(3):
                y, (h, c) = gpu(x)
                del y, h, c
                gc.collect()

        loop()
        made = d.calls(loop)
    d.sync()
    return made


WAITS = {"cuMemAlloc_v2", "cuMemFree_v2", "cuStreamSynchronize", "cuEventSynchronize"}


def memory_of_results():
    """Results and workspaces of torch and CuPy come from their own pools: nothing waits. JAX's
    arrays cannot be written: they are DeviceArrays before, each with its own memory."""
    gpu, d = rl.RNN(weights_of(LSTM), LSTM, device="cuda"), Device()
    for package in ("torch", "cupy"):
        made = calls_of_a_loop(gpu, d, package)
        assert not WAITS.intersection(made), made
    gc.collect()
    assert d.live("memory") == 1  # the weights
    made = calls_of_a_loop(gpu, d, "jaxlib")
    assert made.count("cuMemAlloc_v2") == made.count("cuMemFree_v2") == 9
    x = on_device(d, inputs(LSTM)[0])
    before = d.live("memory")
    kept = list(flat(gpu(x)))
    for count in (3, 2, 1):
        assert d.live("memory") == before + count
        kept.pop()
    assert d.live("memory") == before


def a_library_that_makes_another_array():
    """It is refused before the call writes past its end."""
    gpu, d = rl.RNN(weights_of(LSTM), LSTM, device="cuda"), Device()
    x, (h, _) = inputs(LSTM)
    with played("torch") as Array:
        given = on_device(d, x, Array)
        for made in (on_device(d, h, Array), Array(1 << 40, x.shape, device=(CPU, 0)), h):
            Array.new_empty = lambda self, shape, made=made: made
            with pytest.raises(
                rl.LayoutError, match=r"out is a .* in another shape or not on a GPU"
            ):
                gpu(given)
