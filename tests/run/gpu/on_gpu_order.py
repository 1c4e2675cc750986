"""Programs for test_forward.py: in which stream a call runs, which stream waits for which, and what
is captured into a graph. The fakes end a process in which nothing orders two uses of the same
memory, or in which a capture is broken."""

import gc
import itertools
import threading
from ctypes import byref, c_int, c_ulonglong, c_void_p
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from run.gpu.calls import NAMES, TIME_FIRST, Call, assert_right, run_on_gpu
from run.gpu.exporters import CPU, Exporter
from run.gpu.fake_gpu import (
    GLOBAL,
    LSTM,
    Device,
    N,
    assert_near,
    both,
    flat,
    gpu_rnn,
    inputs,
    weights_of,
)
from run.gpu.played import played

import rnnlayout as rl


def the_stream_of_the_library():
    """That in which PyTorch or CuPy work now, which may change from call to call."""
    device, home = Device(), [0]
    side, other, (x, state) = Device().stream(), Device().stream(), inputs(LSTM)
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
    side, other, (x, state) = Device().stream(), Device().stream(), inputs(LSTM)
    streams = (0, side), (side, 1), (side, other), (side, 2)
    for exchange, (home[0], stream), outs in itertools.product(
        (False, True), streams, ((), NAMES[3:])
    ):
        with played("torch", home, exchange) as Array:
            call = Call(LSTM, TIME_FIRST, x, state, Array, outs)
            for stream_ in (stream, SimpleNamespace(cuda_stream=stream)):
                made = assert_right(device, call, stream_, stream, waits_for=home[0])
                events = [line for line in made if line.startswith(("cuEventR", "cuStreamW"))]
                of, then = (hex(s) if s > 1 else "(nil)" for s in (stream, home[0]))
                assert events[-2:] == [f"cuEventRecord stream={of}",
                                       f"cuStreamWaitEvent stream={then} flags=0"]  # fmt: skip
    assert device.live("event") == 0


def no_race():
    """Somebody's work on the array before the call, and after it, each in his own stream."""
    device, home = Device(), [Device().stream()]
    x, state = inputs(LSTM)
    choices = (False, True), NAMES, (None, 1), (None, [0] * N)
    for exchange, name, stream, lengths in itertools.product(*choices):
        with played("torch", home, exchange) as Array:
            call = Call(LSTM, TIME_FIRST, x, state, Array, NAMES[3:], lengths=lengths)
            arrays = call.arrays(device)
            at, nbytes = arrays[name].address, call.all[name].nbytes
            device.fill(at, nbytes, home[0])
            run_on_gpu(call, arrays, stream)
            device.fill(at, nbytes, home[0])
            device.sync(home[0])


def unknown_streams():
    """If an array does not tell its stream, its work and the call's are done at the end."""
    device, side = Device(), Device().stream()
    x, state = inputs(LSTM)
    with played("torch") as Array:
        for name, stream, lengths in itertools.product(NAMES, (None, side, 2), (None, [0] * N)):
            call = Call(LSTM, TIME_FIRST, x, state, Array, NAMES[3:], lengths=lengths)
            call.kinds[name] = Exporter
            made = assert_right(device, call, stream, stream or 1)
            assert any(line.startswith("cuStreamSynchronize") for line in made)


WAITS = {"cuMemAlloc_v2", "cuMemFree_v2", "cuStreamSynchronize", "cuEventSynchronize"}


def memory_of_results():
    """Results and workspaces of torch and CuPy come from their own pools: nothing waits. JAX's
    arrays cannot be written: they are DeviceArrays before, each with its own memory."""
    gpu, d, (x, _) = gpu_rnn(), Device(), inputs(LSTM)
    for package in ("torch", "cupy", "jaxlib"):
        with played(package) as Array:
            given = d.copy(x, Array)

            def loop(given=given):
                for _ in range(3):
                    gpu(given)  # results that are dropped at once
                    gc.collect()

            loop()
            made = d.calls(loop)
        d.sync()
        if package == "jaxlib":
            assert made.count("cuMemAlloc_v2") == made.count("cuMemFree_v2") == 9
        else:
            assert not WAITS.intersection(made) and d.live("memory") == 1  # the weights
    given, before = d.copy(x), d.live("memory")
    kept = flat(gpu(given))
    for count in (3, 2, 1, 0):
        assert d.live("memory") == before + count
        del kept[-1:]


def a_library_that_makes_another_array():
    """It is refused before the call writes past its end."""
    gpu, d, (x, (h, _)) = gpu_rnn(), Device(), inputs(LSTM)
    with played("torch") as Array:
        given = d.copy(x, Array)
        for made in (d.copy(h, Array), Array(1 << 40, x.shape, device=(CPU, 0)), h):
            Array.new_empty = lambda self, shape, made=made: made
            with pytest.raises(rl.LayoutError, match=r"out is a .* in another shape or not on a G"):
                gpu(given)


# -------------------------------------------------------------------------------------- captures


def handles():
    """A handle is made once: to destroy one waits for the device and breaks every capture, even if
    the last RNN of the device ends."""
    d = Device()
    x, _ = inputs(LSTM)

    def five():
        for _ in range(5):
            rl.forward(x, weights_of(LSTM), LSTM, device="cuda")

    made = d.calls(five)
    assert (made.count("cudnnCreate"), made.count("cudnnDestroy")) == (1, 0)
    gpu = gpu_rnn()
    with d.capture():
        del gpu
        gc.collect()
    assert d.live("memory") == 0  # none is kept for RNNs to come


def another_thread():
    """Another thread captures in the mode that forbids every thread to allocate and to wait."""
    cpu, _, x, state = both()
    d, begun, end = Device(), threading.Event(), threading.Event()
    given = d.copy(x)

    def captures():
        with d.capture(mode=GLOBAL):
            begun.set()
            end.wait()

    thread = threading.Thread(target=captures)
    thread.start()
    begun.wait()
    gpu = gpu_rnn()
    assert_near(gpu(x, state), cpu(x, state))
    assert_near(gpu(given), cpu(x))
    gpu.update(weights_of(LSTM))
    del gpu
    gc.collect()
    mode = c_int(GLOBAL)
    d.cuda("cuThreadExchangeStreamCaptureMode", byref(mode))
    assert mode.value == GLOBAL  # as we found it
    end.set()
    thread.join()


def a_blocking_stream():
    """Beside the capture of a stream that waits for the legacy default one, that one is refused."""
    cpu, gpu, x, state = both()
    d = Device()
    here, side = d.copy(x), d.stream()
    gpu(here)
    with d.capture(d.stream(flags=0)):
        with pytest.raises(rl.SpecError, match="legacy default stream"):
            gpu(here)
        with pytest.raises(rl.SpecError, match="legacy default stream"):
            gpu(here, stream=1)
        assert_near(gpu(x, state), cpu(x, state))
        z = gpu(here, stream=side)
        assert_near(z, cpu(x))
        del z
        gc.collect()


def handles_of_captures():
    """cuDNN may fork onto streams of its handle, which stay in a capture until that ends: until
    then no call in another stream has the handle."""
    cpu, gpu, x, state = both()
    d, now = Device(), [0]
    with played("torch", now) as Array:
        given = d.copy(x, Array)

        def handle_in(stream):
            now[0] = stream
            (call,) = (one for one in d.log(lambda: gpu(given)) if one.startswith("cudnnRNNForw"))
            return call.split()[1]

        handle_in(0)
        with d.capture() as (first, _):
            used = handle_in(first)  # the only one
            with d.capture() as (second, _), pytest.raises(rl.SpecError, match="open captures use"):
                handle_in(second)
            assert handle_in(0) != used == handle_in(first)
            assert_near(gpu(x, state), cpu(x, state))
        assert handle_in(0) == used and d.live("handle") == 2


def arrays_that_cannot_be_captured():
    """An RNN's own memory would not live as long as the graph. The capture goes on. Torch's memory
    is torch's matter, as in any of its operations."""
    cpu, gpu, x, _ = both()
    d, now = Device(), [0]
    outs = dict(zip(NAMES[3:], (d.copy(a * 0) for a in flat(cpu(x))), strict=True))
    given = d.copy(x)
    gpu(given)
    for named in ({}, outs):
        with d.capture() as (side, _), pytest.raises(rl.SpecError, match="not the graph's"):
            gpu(given, stream=side, **named)
    with played("torch", now) as Array:
        given = d.copy(x, Array)
        with d.capture() as (side, _):
            now[0] = side
            assert type(gpu(given)[0]) is Array
            gpu(given, lengths=[0, 0, 0])
            with pytest.raises(rl.SpecError, match="own memory is not the graph's"):
                gpu(given, h_out=outs["h_out"])  # which does not tell its stream
            # the fakes model no fork of a capture, which torch makes before this is refused
            with mock.patch.object(Array, "__dlpack__", Exporter.__dlpack__):
                for now[0], stream in ((side, d.stream()), (0, side)):
                    with pytest.raises(rl.SpecError, match="capturing, the other is not"):
                        gpu(given, stream=stream)


def two_graphs():
    """Each has memory of its own: nothing orders two launches, and new lengths change neither."""
    cpu, gpu, x, state = both()
    d, calls, now = Device(), [], [0]
    with played("torch", now) as Array:
        for k in range(2):
            own = np.random.default_rng(k).normal(size=x.shape).astype("f4")
            lengths, now[0] = [4, 2 - k, 3], d.stream()
            right = cpu(own, lengths=lengths)
            results = [d.copy(a * 0, Array) for a in flat(right)]
            outs = dict(zip(NAMES[3:], results, strict=True))
            given, old = d.copy(own, Array), gpu(d.copy(own))
            gpu(given, lengths=lengths, **outs)
            d.sync(now[0])
            launched = c_void_p()
            with d.capture(now[0]) as (_, graph):
                gpu(given, lengths=lengths, **outs)
                del old
                gc.collect()
            d.cuda("cuGraphInstantiateWithFlags", byref(launched), graph, c_ulonglong(0))
            calls.append((right, now[0], results, launched))
    for _, stream, _, launched in calls * 2:
        d.cuda("cuGraphLaunch", launched, c_void_p(stream))
    assert_near(gpu(x, state, lengths=[1, 0, 2]), cpu(x, state, lengths=[1, 0, 2]))
    for right, stream, (y, *last), _ in calls:
        d.sync(stream)
        assert_near((y, tuple(last)), right)
