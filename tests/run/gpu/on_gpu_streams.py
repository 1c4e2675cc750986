"""Programs for fake_gpu.py: in which stream a call runs, and which stream waits for which."""

import gc
import threading
from ctypes import byref, c_ulonglong, c_void_p

import numpy as np
from run.gpu.exporters import address_of, exchanging
from run.gpu.fake_gpu import LSTM, Device, H, assert_near, inputs, on_device, weights_of
from run.gpu.played import played

import rnnlayout as rl


def streams():
    """The current one of x's owner, as in torch, which may change from call to call."""
    cpu, gpu = (rl.RNN(weights_of(LSTM), LSTM, device=d) for d in ("cpu", "cuda"))
    d = Device()
    x, _ = inputs(LSTM)
    right = cpu(x)
    side, other = d.stream(), d.stream()
    now = [side]
    Tensorlike = exchanging(lambda: now[0])
    tensor = on_device(d, x, Tensorlike)
    y, _ = gpu(tensor)
    assert y.stream == side and tensor.streams == []
    assert_near((y, _), right, LSTM)
    # torch's way: x and out= of one owner, no stream=; then its current stream is another one
    out = on_device(d, right[0] * 0, Tensorlike)
    for now[0] in (side, 0, other):
        y, _ = gpu(tensor, out=out)
        assert y is out and _[0].stream == (now[0] or 1)
        d.sync(now[0])
        np.testing.assert_allclose(d.read(out.address, right[0]), right[0], atol=1e-5)


def capturing():
    """Into a graph, on arrays of ours that were filled elsewhere; others of ours end meanwhile."""
    cpu, gpu = (rl.RNN(weights_of(LSTM), LSTM, device=d) for d in ("cpu", "cuda"))
    d = Device()
    x, state = inputs(LSTM)
    right, side = cpu(x, state), d.stream()
    Tensorlike = exchanging(lambda: side)
    _, first = gpu(on_device(d, x))  # in the legacy default stream, as what follows
    _, last = gpu(on_device(d, x))
    old = gpu(on_device(d, x))
    out = on_device(d, right[0] * 0, Tensorlike)
    named = {"out": out, "h_out": last[0], "c_out": last[1]}
    with played("torch", Tensorlike) as Array:
        captured(cpu, gpu, d, Array(d.put(x), x.shape), first, state, named, side, right, old)


def captured(cpu, gpu, d, given, first, state, named, side, right, old):
    out, last = named["out"], (named["h_out"], named["c_out"])
    gpu(given, first, **named)
    d.sync(side)
    for array, values in zip(first, state, strict=True):
        d.write(address_of(array), values)
    graph, made = c_void_p(), c_void_p()
    with d.context() as cuda:
        assert cuda.cuStreamBeginCapture_v2(c_void_p(side), 1) == 0
        gpu(given, first, **named)
        del old
        gc.collect()
        assert cuda.cuStreamEndCapture(c_void_p(side), byref(graph)) == 0
        assert cuda.cuGraphInstantiateWithFlags(byref(made), graph, c_ulonglong(0)) == 0
        assert cuda.cuGraphLaunch(made, c_void_p(side)) == 0
        d.sync(side)
        assert_near((d.read(out.address, right[0]), last), right, LSTM)
        assert cuda.cuGraphExecDestroy(made) == cuda.cuGraphDestroy(graph) == 0


def threads_streams():
    """Each thread has a stream of its own by the number 2: results are noted in the legacy default
    stream, which waits for all of these."""
    gpu, d = rl.RNN(weights_of(LSTM), LSTM, device="cuda"), Device()
    x, state = inputs(LSTM)
    right = rl.RNN(weights_of(LSTM), LSTM)(x, state)
    given = [on_device(d, a) for a in (x, *state)]
    wide = rl.Spec("rnn_tanh", H, H)
    then, made = rl.RNN(weights_of(wide), wide, device="cuda"), []

    gpu(given[0], stream=2)  # with the handle of the call before

    def work(stream=2, **named):
        y, last = gpu(given[0], (given[1], given[2]), stream=stream, **named)
        assert y.stream == last[0].stream == (1 if stream == 2 else stream)
        made.append((y, last))

    def made_by_another(**named):
        thread = threading.Thread(target=work, kwargs=named)
        thread.start()
        thread.join()
        return made.pop()

    uses = {
        "a call in our stream": lambda y: then(y, stream=2),
        "numpy": lambda y: y.numpy(),
        "a call": lambda y: then(y),
        "DLPack": lambda y: then(Consumed(y, 2), stream=2),
    }
    for use in uses.values():
        for named in ({}, {"out": gpu(given[0])[0]}):
            y, last = made_by_another(**named)
            assert d.calls(lambda y=y: y.__dlpack__(stream=1)) == []
            use(y)
            assert_near((y, last), right, LSTM)
            del y, last  # to free waits for all streams: not after the next call
    side = d.stream()
    assert made_by_another(stream=side)[0].stream == side


class Consumed:
    """As another package takes an array for a stream, and gives it on."""

    def __init__(self, array, stream):
        self.capsule, self.array = array.__dlpack__(stream=stream), array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, stream):
        return self.capsule
