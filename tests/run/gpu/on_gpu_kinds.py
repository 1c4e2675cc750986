"""Programs for fake_gpu.py: results are arrays of the library that x is from. The libraries are
played too: no CUDA build of one is installed."""

import sys
from unittest import mock

import numpy as np
import pytest
import torch
from run.gpu.exporters import Exporter
from run.gpu.fake_gpu import (
    GRU,
    LSTM,
    Device,
    assert_near,
    flat,
    inputs,
    on_device,
    weights_of,
)
from run.gpu.played import LIBRARIES, played

import rnnlayout as rl


def results_of_the_library_of_x():
    """Without lengths and with."""
    device = Device()
    for spec in (LSTM, GRU, LSTM.replace(dtype="bfloat16")):
        cpu, gpu = (rl.RNN(weights_of(spec), spec, device=d) for d in ("cpu", "cuda"))
        x, state = inputs(spec)
        firsts = state if isinstance(state, tuple) else (state,)
        for package in LIBRARIES:
            with played(package) as Array:
                given = [on_device(device, a, Array) for a in (x, *firsts)]
                first = tuple(given[1:]) if len(firsts) == 2 else given[1]
                for lengths in (None, [4, 0, 2], range(4, 1, -1)):
                    found = gpu(given[0], first, lengths=lengths)
                    assert all(type(a) is Array for a in flat(found))
                    # taken from a DeviceArray, or made by the library and written
                    takes = package == "jaxlib"
                    assert all(hasattr(a, "of") == takes for a in flat(found))
                    device.sync()
                    assert_near(found, cpu(x, state, lengths=lengths), spec)
                if not spec.bidirectional:
                    y, _ = gpu.step(on_device(device, x[0], Array), first)
                    assert type(y) is Array


def outputs_of_the_caller():
    """They are returned as they are, whatever x is; x alone decides what new arrays become."""
    device = Device()
    rnn = rl.RNN(weights_of(LSTM), LSTM, device="cuda")
    x, (h, c) = inputs(LSTM)
    y = rnn(x, (h, c))[0]
    with played("cupy") as Array:
        for lengths in (None, range(4, 1, -1)):
            theirs, plain = (on_device(device, x, kind) for kind in (Array, Exporter))
            mine = on_device(device, y * 0, Array), on_device(device, h * 0, Exporter)
            found = flat(rnn(theirs, lengths=lengths, out=mine[0], h_out=mine[1]))
            assert found[0] is mine[0] and found[1] is mine[1] and type(found[2]) is Array
            state = tuple(on_device(device, a, Array) for a in (h, c))
            found = flat(rnn(plain, state, lengths=lengths, h_out=state[0]))
            assert found[1] is state[0]
            assert type(found[0]) is type(found[2]) is rl.DeviceArray
    with mock.patch.dict(sys.modules):
        sys.modules.pop("cupy", None)  # not imported: it cannot make arrays
        assert type(rnn(on_device(device, x, Array))[0]) is rl.DeviceArray


def outputs_that_cannot_be_written():
    """JAX's arrays never change, and others may still read a DeviceArray."""
    device = Device()
    rnn = rl.RNN(weights_of(LSTM), LSTM, device="cuda")
    x, (h, _) = inputs(LSTM)
    given = on_device(device, x)
    with played("jaxlib") as Array:
        for name in ("out", "h_out", "c_out"):
            with pytest.raises(rl.LayoutError, match=f"{name} is an array of JAX, which cannot"):
                rnn(given, **{name: on_device(device, h, Array)})
    y, (h, c) = rnn(given)
    for name, array in (("out", y), ("h_out", h), ("c_out", c)):
        with pytest.raises(rl.LayoutError, match=f"{name} is a DeviceArray which is not to be wr"):
            rnn(given, **{name: array})


def tensors_that_require_grad():
    """torch's table of functions exports them; the call must refuse them itself."""
    device = Device()
    rnn = rl.RNN(weights_of(LSTM), LSTM, device="cuda")
    x, state = inputs(LSTM)
    right = rl.RNN(weights_of(LSTM), LSTM)(x, state)

    class Parameter(Exporter):
        requires_grad = True

    for name in ("x", "h_0", "c_0"):
        kinds = dict.fromkeys(("x", "h_0", "c_0"), Exporter) | {name: Parameter}
        there = [
            on_device(device, a, kind) for a, kind in zip((x, *state), kinds.values(), strict=True)
        ]
        for call in (lambda a=there: rnn(a[0], tuple(a[1:])),
                     lambda a=there: rnn(a[0], tuple(a[1:]), lengths=range(4, 1, -1))):  # fmt: skip
            try:
                call()
            except rl.LayoutError as error:
                assert f"{name} requires grad" in str(error), error
            else:
                raise AssertionError(name)
        with torch.no_grad():
            assert_near(rnn(there[0], tuple(there[1:])), right, LSTM)
    plain = on_device(device, x)
    for name, like in zip(("out", "h_out", "c_out"), flat(right), strict=True):
        with pytest.raises(rl.LayoutError, match=f"{name} requires grad"):
            rnn(plain, **{name: on_device(device, like, Parameter)})


def compiled():
    """torch.compile does not look into a call, and makes a graph before it and one after it."""
    device, seen = Device(), []
    rnn = rl.RNN(weights_of(LSTM), LSTM, device="cuda")
    x, _ = inputs(LSTM)
    right = rl.RNN(weights_of(LSTM), LSTM)(x)

    def backend(graph, _):
        seen.append(graph)
        return graph.forward

    torch.compile(lambda: 0, backend="eager")  # imports what asks torch itself about GPUs
    with played("torch") as Array, torch.no_grad():
        given = on_device(device, x, Array)

        @torch.compile(backend=backend)
        def calls(before):
            y, state = rnn(given)
            return before + 1, y, state, before * 2

        for _ in range(2):
            one, y, _, two = calls(torch.ones(3))
            assert one.tolist() == [2, 2, 2] and two.tolist() == [2, 2, 2]
            device.sync()
            np.testing.assert_allclose(device.read(y.address, right[0]), right[0], atol=5e-6)
    assert seen
