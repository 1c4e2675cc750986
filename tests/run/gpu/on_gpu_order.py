"""Programs for test_forward.py: in which stream a call runs, which stream waits for which, and what
is captured into a graph. The fakes end a process in which nothing orders two uses of the same
memory, or in which a capture is broken."""

import functools
import gc
import itertools
import os
import pickle
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
    then only calls in this capture have the handle, in each of its branches."""
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
            with d.capture() as (second, _), pytest.raises(rl.SpecError, match="a capture makes n"):
                handle_in(second)
            with d.fork(first) as branch:
                assert handle_in(branch) == used == handle_in(first)
            assert handle_in(0) != used == handle_in(first)
            assert_near(gpu(x, state), cpu(x, state))
            with d.capture() as (second, _):
                assert handle_in(second) == handle_in(second) != used
        assert handle_in(0) and d.live("handle") == 2


def two_calls_at_the_same_time():
    """Two threads with two RNNs are inside cuDNN at the same time: each has a handle of its own. A
    call of the fake waits there for the other one."""
    os.environ["FAKE_CUDNN_MEET"] = "2"
    d, (x, state) = Device(), inputs(LSTM, 3)
    right = rl.RNN(weights_of(LSTM), LSTM)(x, state)
    results = [None, None]

    def call(k, gpu):
        for _ in range(20):
            results[k] = gpu(x, state)

    threads = [threading.Thread(target=call, args=(k, gpu_rnn())) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        assert_near(result, right)
    assert d.live("handle") == 2


def launched(device, call):
    """Capture a call in PyTorch's current stream, and return the graph."""
    made = c_void_p()
    with device.capture() as (stream, graph):
        call(stream)
    device.cuda("cuGraphInstantiateWithFlags", byref(made), graph, c_ulonglong(0))
    return made


def an_update_under_a_graph():
    """The graph reads the weights at their address: update() replaces them there."""
    cpu, gpu, x, _ = both()
    d, now, side = Device(), [0], Device().stream()
    with played("torch", now) as Array:
        given = d.copy(x, Array)
        outs = dict(zip(NAMES[3:], (d.copy(a * 0, Array) for a in flat(cpu(x))), strict=True))
        gpu(given, **outs)

        def call(stream):
            now[0] = stream
            gpu(given, **outs)

        graph = launched(d, call)
    y, *last = outs.values()
    for factor, stream in ((2, None), (3, None), (4, side), (5, side)):
        new = weights_of(LSTM) * np.float32(factor)
        d.cuda("cuGraphLaunch", graph, c_void_p(stream))  # with the old weights
        gpu.update(new, stream=stream)
        cpu.update(new)
        d.cuda("cuGraphLaunch", graph, c_void_p(stream))
        d.sync(stream)
        assert_near((y, tuple(last)), cpu(x))


def updates_between_calls():
    """On the device, an update waits for calls in flight, and later calls in other streams for the
    update. The host waits for the device at the first update alone."""
    cpu, gpu, x, _ = both()
    d, now = Device(), [0]
    streams = [d.stream(), d.stream(), 0]
    with played("torch", now) as Array:
        given, results = d.copy(x, Array), []
        d.sync()
        for k in range(6):
            now[0] = streams[k % 3]
            results.append((gpu(given), cpu(x), now[0]))
            new = weights_of(LSTM) * np.float32(k + 2)
            made = d.calls(functools.partial(gpu.update, new))
            assert k == 0 or not WAITS.intersection(made) - {"cuEventSynchronize"}
            cpu.update(new)
            now[0] = streams[(k + 1) % 3]
            results.append((gpu(given), cpu(x), now[0]))
        for found, right, stream in results:
            d.sync(stream)
            assert_near(found, right)
    assert_near(pickle.loads(pickle.dumps(gpu))(x), cpu(x))
    del gpu, found, results, made
    gc.collect()
    assert [d.live(kind) for kind in ("memory", "event", "pinned")] == [0, 0, 0]


def an_update_in_a_capture():
    cpu, gpu, x, _ = both()
    d = Device()
    with d.capture() as (side, _):
        with pytest.raises(rl.SpecError, match="the stream of an update is being captured"):
            gpu.update(weights_of(LSTM), stream=side)
        gpu.update(weights_of(LSTM))
    assert_near(gpu(x), cpu(x))


def streams_destroyed_after_their_capture():
    """The driver must not be asked about a stream that its owner has destroyed."""
    cpu, gpu, x, _ = both()
    d, now = Device(), [0]
    with played("torch", now) as Array:
        given = d.copy(x, Array)
        gpu(given)
        for refused in (False, True):
            with d.capture() as (now[0], _):
                if refused:
                    with pytest.raises(rl.SpecError, match="not the graph's"):
                        gpu(d.copy(x), stream=now[0])
                else:
                    gpu(given)
            d.cuda("cuStreamDestroy_v2", c_void_p(now[0]))
            now[0] = 0
            found = gpu(given)
            d.sync()
            assert_near(found, cpu(x))
    assert d.live("handle") == 1


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
            # not torch's __dlpack__, which would fork the capture before this is refused
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
