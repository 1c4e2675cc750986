"""Programs for fake_gpu.py: the memory of results, and when it is free again."""

import gc

import pytest
from run.gpu.calls import Tensor
from run.gpu.exporters import CPU, exchanging
from run.gpu.fake_gpu import LSTM, Device, flat, inputs, on_device, weights_of
from run.gpu.on_gpu_captures import capture
from run.gpu.played import played

import rnnlayout as rl


def calls_of_a_loop(gpu, d, package):
    """Results that are dropped at once."""
    with played(package, Tensor) as Array:
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


def in_the_librarys_memory():
    """Results and workspaces of torch and CuPy come from their own pools: nothing waits."""
    gpu, d = rl.RNN(weights_of(LSTM), LSTM, device="cuda"), Device()
    for package in ("torch", "cupy"):
        made = calls_of_a_loop(gpu, d, package)
        assert not WAITS.intersection(made), made
    gc.collect()
    assert d.live("memory") == 1  # the weights


def in_the_drivers_memory():
    """JAX's arrays cannot be written: they are DeviceArrays before, which wait to be freed."""
    gpu, d = rl.RNN(weights_of(LSTM), LSTM, device="cuda"), Device()
    made = calls_of_a_loop(gpu, d, "jaxlib")
    assert made.count("cuMemAlloc_v2") == made.count("cuMemFree_v2") == 9


def one_call_of_torch():
    """With outputs given, a workspace of torch and one call of cuDNN."""
    gpu, d = rl.RNN(weights_of(LSTM), LSTM, device="cuda"), Device()
    x, (h, c) = inputs(LSTM)
    with played("torch", Tensor) as Array:
        x, h, c, y = (on_device(d, a, Array) for a in (x[0], h[:, :], c, h[0]))

        def again():
            gpu.step(x, (h, c), out=y, h_out=h, c_out=c)

        again()
        assert d.calls(again) == [
            "cuCtxPushCurrent_v2", "cuThreadExchangeStreamCaptureMode", "cuStreamIsCapturing",
            "cuMemcpyDtoDAsync_v2", "cuMemcpyDtoDAsync_v2",  # cuDNN may not overwrite the states
            "cudnnRNNForward", "cuThreadExchangeStreamCaptureMode", "cuCtxPopCurrent_v2",
        ]  # fmt: skip


def each_has_its_own_memory():
    """A state that is kept does not keep the outputs of all steps."""
    gpu, d = rl.RNN(weights_of(LSTM), LSTM, device="cuda"), Device()
    x = on_device(d, inputs(LSTM)[0])
    gpu(x)
    gc.collect()
    before = d.live("memory")
    y, (h, c) = gpu(x)
    assert d.live("memory") == before + 3
    del y, h
    gc.collect()
    assert d.live("memory") == before + 1
    del c
    gc.collect()
    assert d.live("memory") == before


def in_another_stream():
    """A new array of a library is used in its current stream, which waits for the call."""
    gpu, d = rl.RNN(weights_of(LSTM), LSTM, device="cuda"), Device()
    side, now = d.stream(), [0]
    with played("torch", exchanging(lambda: now[0])) as Array:
        x = on_device(d, inputs(LSTM)[0], Array)
        for now[0], stream in ((0, side), (side, 1), (side, None)):
            gpu(x, stream=stream)
            made = d.calls(lambda stream=stream: gpu(x, stream=stream))
            assert made.count("cuStreamWaitEvent") == (3 if stream else 0), made
            y, _ = gpu(x, stream=stream)
            d.fill(y.address, 4, now[0])  # the fakes end the process after a race
            d.sync(now[0])
            d.sync(side)
            d.sync()


def new_results_in_a_capture():
    """DeviceArrays would not live as long as the graph: outputs are asked for, and the capture goes
    on. Torch's are torch's matter, as in any of its operations."""
    cpu, gpu = (rl.RNN(weights_of(LSTM), LSTM, device=d) for d in ("cpu", "cuda"))
    d = Device()
    x, _ = inputs(LSTM)
    outs = dict(zip(("out", "h_out", "c_out"), (on_device(d, a * 0) for a in flat(cpu(x))),
                    strict=True))  # fmt: skip
    given = on_device(d, x)
    gpu(given)
    with capture(d) as side:
        for lengths in (None, range(4, 1, -1)):
            with pytest.raises(rl.SpecError, match="pass all outputs: out=, h_out= and"):
                gpu(given, lengths=lengths, stream=side)
    with capture(d) as side:
        with pytest.raises(rl.SpecError, match="pass all outputs"):
            gpu(given, stream=side, out=outs["out"])
        with pytest.raises(rl.SpecError, match="the RNN's own memory is not the graph's: a work"):
            gpu(given, stream=side, **outs)
    now = [0]
    with played("torch", exchanging(lambda: now[0])) as Array:
        given = on_device(d, x, Array)
        with capture(d) as now[0]:
            assert type(gpu(given)[0]) is Array
        with capture(d) as side, pytest.raises(rl.SpecError, match="own memory is not the graph's"):
            gpu(given, stream=side)  # in which torch does not work now


def a_library_that_makes_another_array():
    """It is refused before the call writes past its end."""
    gpu, d = rl.RNN(weights_of(LSTM), LSTM, device="cuda"), Device()
    x, (h, _) = inputs(LSTM)
    with played("torch", Tensor) as Array:
        given = on_device(d, x, Array)
        for made in (on_device(d, h, Array), Array(1 << 40, x.shape, device=(CPU, 0)), h):
            Array.new_empty = lambda self, shape, made=made: made
            with pytest.raises(
                rl.LayoutError, match=r"out is a .* in another shape or not on a GPU"
            ):
                gpu(given)
