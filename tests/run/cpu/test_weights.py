"""The weights and options of an RNN: updated, pickled, copied; read in place for a single call."""

import copy
import pickle

import numpy as np
import pytest
import torch
from oracles.frameworks import fill_torch, normal, seeded
from oracles.some import normal_weights, prefixed, same_bits
from run.cpu.running import H, I, every_kind, inputs, rnn_of, same, source_of

import rnnlayout as rl
from rnnlayout._run.forward import _OneCallRNN


@every_kind
def test_forward_and_pickles_and_copies(spec):
    rnn, (x, state) = rnn_of(spec), inputs(spec)
    wanted = rnn(x, state)
    for other in (pickle.loads(pickle.dumps(rnn)), copy.copy(rnn), copy.deepcopy(rnn)):
        assert same(other(x, state), wanted)
        assert other.spec == spec and repr(other) == repr(rnn)
    if source_of(spec)["layout"] == "cudnn":
        weights = rnn._native.weights()
        assert same(rl.forward(x, weights, spec, state=state), wanted)
        once = pickle.loads(pickle.dumps(_OneCallRNN(weights, spec)))
        assert same(once(x, state), wanted)


def test_options_are_pickled():
    spec = rl.Spec("lstm", I, H)
    rnn = rnn_of(spec, batch_first=True, cell_clip=(-0.5, 0.25), device="cpu")
    other = pickle.loads(pickle.dumps(rnn))
    assert (other.batch_first, other.cell_clip, other.device) == (True, (-0.5, 0.25), "cpu")
    assert repr(other) == f"<RNN of {spec}, batch first, cell_clip (-0.5, 0.25), on cpu>"
    for shown in (f"RNN of {spec}", "cpu", "(N, T, I)", "(-0.5, 0.25)"):
        assert f">{shown}<" in other._repr_html_()
    x, state = inputs(spec)
    assert same(other(x.swapaxes(0, 1), state), rnn(x.swapaxes(0, 1), state))
    _, (_, c) = other(x[:1].swapaxes(0, 1), state)
    assert c.min() == -0.5 and c.max() == 0.25


def test_update():
    """What does not fit changes nothing. The prefix is that of the first source for a dict; an
    array has no names, so no prefix."""
    spec = rl.Spec("gru", I, H, 2)
    x, state = inputs(spec)
    flats = [normal_weights("cudnn", spec, k) / np.float32(H) for k in range(3)]
    wanted = [rl.forward(x, flat, spec, state=state) for flat in flats]
    plain = [rl.unpack(flat, spec, to="torch") for flat in flats]
    a, b = prefixed("a", plain[0]), prefixed("b", plain[1])
    rnn = rl.RNN(flats[2], spec)
    for wrong, more, error in [
        ({name: w[:-1] for name, w in plain[0].items()}, {}, "shape"),
        (plain[0] | {"more": x}, {}, "more"),
        ({name: w.astype("f8") for name, w in plain[0].items()}, {}, "float64"),
        (flats[0].astype("f8"), {}, "is float64, the spec says float32: pass dtype="),
        (flats[0], {"dtype": "float64"}, "dtype is float64, need float32, that of this RNN"),
        (flats[0], {"prefix": "a"}, "prefix"),
    ]:
        with pytest.raises((rl.LayoutError, rl.SpecError), match=error):
            rnn.update(wrong, **more)
        assert same(rnn(x, state), wanted[2])
    for source, more, k in [
        (plain[0], {}, 0),
        (flats[1], {}, 1),
        (flats[0].astype("f8"), {"dtype": "float32"}, 0),
        (a | b, {"prefix": "b"}, 1),
        (flats[2], {"layout": "cudnn", "dtype": "float32"}, 2),
    ]:
        rnn.update(source, **more)
        assert same(rnn(x, state), wanted[k])
    rnn = rl.RNN(a | b, prefix="a")
    rnn.update(prefixed("a", plain[2]) | b)
    assert same(rnn(x, state), wanted[2])


def test_weights_are_read_when_they_are_given():
    spec = rl.Spec("rnn_tanh", I, H)
    weights, (x, state) = normal_weights("cudnn", spec) / np.float32(H), inputs(spec)
    rnn, wanted = rl.RNN(weights, spec), rl.forward(x, weights, spec, state=state)
    weights[:] = 0
    assert same(rnn(x, state), wanted)


def module(batch_first=False):
    return fill_torch(torch.nn.GRU(I, H, batch_first=batch_first), seeded("axes", batch_first))


def test_batch_first_overrides_the_source():
    """What each live source says: sources/test_batch_first.py. T and N are equal: the shapes do not
    show a wrong order."""
    first, other = module(True), module()
    x, h0 = normal(seeded("x"), 5, 5, I), normal(seeded("h"), 1, 5, H)
    y, _ = rl.RNN(first, batch_first=False)(x, h0)
    turned = np.ascontiguousarray(x.swapaxes(0, 1))
    assert same_bits(y.swapaxes(0, 1), rl.RNN(first)(turned, h0)[0])
    assert same_bits(y.swapaxes(0, 1), rl.forward(turned, first, state=h0)[0])
    assert same_bits(y, rl.forward(x, first, batch_first=False, state=h0)[0])
    assert not rl.RNN(first, batch_first=False).batch_first
    assert rl.RNN(other, batch_first=True).batch_first and not rl.RNN(other).batch_first
    alone = rl.RNN(first)(x[:, 2], h0[:, 2])  # without a batch the axis does not matter
    assert same_bits(alone[0], y[:, 2]) and alone[1].shape == (1, H)


def test_an_update_does_not_change_the_axis():
    first, other = module(True), module()
    for rnn, source in ((rl.RNN(first), other), (rl.RNN(other), first),
                        (rl.RNN(other.state_dict()), first)):  # fmt: skip
        before = rnn._native.weights()
        with pytest.raises(
            rl.LayoutError, match=r"the source has batch_first=(True|False), this RN"
        ):
            rnn.update(source)
        assert same_bits(rnn._native.weights(), before)
        rnn.update(rl.Weights(source).tensors)  # as the error says
        assert same_bits(rnn._native.weights(), rl.pack(source))
    for axis in (False, True):
        rnn = rl.RNN(other, batch_first=axis)
        rnn.update(first)
        assert rnn.batch_first is axis
        assert same_bits(rnn._native.weights(), rl.pack(first))


@pytest.mark.parametrize("name", ["out", "h_out", "c_out"])
def test_an_output_may_be_memory_of_the_weights(name):
    """A step that reads the weights in place would read what it has written."""
    spec = rl.Spec("lstm", 5, 7, 2)
    rng = np.random.default_rng(0)
    weights = rng.normal(size=spec.num_params).astype("f4")
    x = rng.normal(size=(1, 1, 5)).astype("f4")
    y, (h, c) = rl.forward(x, weights, spec)
    size = {"out": y, "h_out": h, "c_out": c}[name].size
    for at in range(0, weights.size - size, 7):
        flat = weights.copy()
        out = flat[at : at + size].reshape(-1, 1, 7)
        found, state = rl.forward(x, flat, spec, **{name: out})
        assert all(map(same_bits, (found, *state), (y, h, c))), at
