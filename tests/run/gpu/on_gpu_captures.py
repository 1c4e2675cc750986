"""Programs for fake_gpu.py: what the process does while a stream of it is captured into a graph."""

import contextlib
import gc
import threading
from ctypes import byref, c_int, c_void_p

import pytest
from run.gpu.exporters import exchanging
from run.gpu.fake_gpu import LSTM, Device, H, assert_near, inputs, on_device, weights_of
from run.gpu.played import played

import rnnlayout as rl

GLOBAL, THREAD_LOCAL = 0, 1


@contextlib.contextmanager
def capture(device, mode=THREAD_LOCAL, flags=1):
    """Capture a new stream with these flags; the capture must not be broken by what happens."""
    stream, graph = c_void_p(), c_void_p()
    with device.context() as cuda:
        assert cuda.cuStreamCreate(byref(stream), flags) == 0
        assert cuda.cuStreamBeginCapture_v2(stream, mode) == 0
    yield stream.value
    with device.context() as cuda:
        assert cuda.cuStreamEndCapture(stream, byref(graph)) == 0
        assert cuda.cuGraphDestroy(graph) == 0


@contextlib.contextmanager
def anothers_capture(device, mode):
    """The same in another thread."""
    begun, end = threading.Event(), threading.Event()

    def work():
        with capture(device, mode):
            begun.set()
            end.wait()

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    yield
    end.set()
    thread.join()


def handles():
    """A handle is made once: to destroy one waits for the device and breaks every capture."""
    d = Device()
    x, _ = inputs(LSTM)

    def five():
        for _ in range(5):
            rl.forward(x, weights_of(LSTM), LSTM, device="cuda")

    made = d.calls(five)
    assert (made.count("cudnnCreate"), made.count("cudnnDestroy")) == (1, 0)
    gc.collect()
    assert d.live("memory") == 0  # none is kept for RNNs to come


def an_rnn_ends():
    """The last RNN of the device ends while a stream is captured."""
    gpu, d = rl.RNN(weights_of(LSTM), LSTM, device="cuda"), Device()
    gpu(inputs(LSTM)[0])
    with capture(d):
        del gpu
        gc.collect()


def another_thread():
    """Another thread captures in the mode that forbids every thread to allocate and to wait."""
    cpu, d = rl.RNN(weights_of(LSTM), LSTM), Device()
    x, state = inputs(LSTM)
    rl.RNN(weights_of(LSTM), LSTM, device="cuda")
    given = on_device(d, x)
    with anothers_capture(d, GLOBAL):
        gpu = rl.RNN(weights_of(LSTM), LSTM, device="cuda")
        assert_near(gpu(x, state), cpu(x, state), LSTM)
        assert_near(gpu(given), cpu(x), LSTM)
        gpu.update(weights_of(LSTM))
        del gpu
        gc.collect()
        mode = c_int(GLOBAL)
        assert d.driver.cuThreadExchangeStreamCaptureMode(byref(mode)) == 0
        assert mode.value == GLOBAL  # as we found it


def a_blocking_stream():
    """Beside the capture of a stream that waits for the legacy default one, that one is refused."""
    cpu, gpu = (rl.RNN(weights_of(LSTM), LSTM, device=d) for d in ("cpu", "cuda"))
    d = Device()
    x, state = inputs(LSTM)
    here, side, wide = on_device(d, x), d.stream(), rl.Spec("rnn_relu", H, H)
    then = rl.RNN(weights_of(wide), wide, device="cuda")
    y, _ = gpu(here)
    with capture(d, flags=0) as stream:
        for wrong in (
            lambda: gpu(here),
            lambda: y.numpy(),
            lambda: y.__dlpack__(stream=side),
            lambda: then(y, stream=side),
            lambda: gpu(here, stream=1, out=y),
        ):
            with pytest.raises((rl.SpecError, rl.LayoutError), match="legacy default stream"):
                wrong()
        y.__dlpack__(stream=stream)  # the launch of the graph orders it
        assert_near(gpu(x, state), cpu(x, state), LSTM)
        z = gpu(here, stream=side)
        assert_near(z, cpu(x), LSTM)
        del z
        gc.collect()
    assert_near((y, _), cpu(x), LSTM)


def handles_of_captures():
    """cuDNN may fork onto streams of its handle, which stay in a capture until that ends: until
    then no call in another stream has the handle."""
    cpu, gpu = (rl.RNN(weights_of(LSTM), LSTM, device=d) for d in ("cpu", "cuda"))
    d = Device()
    x, state = inputs(LSTM)
    now = [0]
    with played("torch", exchanging(lambda: now[0])) as Array:
        given = on_device(d, x, Array)

        def handle_in(stream):
            now[0] = stream
            return handle_of(d.log(lambda: gpu(given)))

        handle_in(0)
        with capture(d) as first:
            used = handle_in(first)  # the only one
            with (
                capture(d) as second,
                pytest.raises(rl.SpecError, match=r"1 open captures use all of cuDNN's handles"),
            ):
                handle_in(second)
            assert handle_in(0) != used == handle_in(first)
            assert_near(gpu(x, state), cpu(x, state), LSTM)
        assert handle_in(0) == used and d.live("handle") == 2


def handle_of(lines):
    (line,) = (line for line in lines if line.startswith("cudnnRNNForward"))
    return line.split()[1]
