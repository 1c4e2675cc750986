"""The weights and options of an RNN: updated, pickled, copied."""

import copy
import pickle

import numpy as np
import pytest
from oracles.some import normal_weights
from run.cpu.running import KINDS, H, I, inputs, rnn_of, same, some_kinds, source_of

import rnnlayout as rl


@some_kinds
def test_forward_and_pickles_and_copies(spec):
    rnn, (x, state) = rnn_of(spec), inputs(spec)
    wanted = rnn(x, state)
    for other in (pickle.loads(pickle.dumps(rnn)), copy.copy(rnn), copy.deepcopy(rnn)):
        assert same(other(x, state), wanted)
        assert other.spec == spec and repr(other) == repr(rnn)
    if source_of(spec)["layout"] == "cudnn":
        weights = normal_weights("cudnn", spec)
        weights /= np.array(H, weights.dtype)
        assert same(rl.forward(x, weights, spec, state=state), wanted)


def test_options_are_pickled():
    spec = KINDS[0]
    rnn = rnn_of(spec, batch_first=True, cell_clip=(-0.5, 0.25), device="cpu")
    other = pickle.loads(pickle.dumps(rnn))
    assert (other.batch_first, other.cell_clip, other.device) == (True, (-0.5, 0.25), "cpu")
    assert repr(other) == f"<RNN of {spec}, batch first, cell_clip (-0.5, 0.25), on cpu>"
    x, state = inputs(spec)
    assert same(other(x.swapaxes(0, 1), state), rnn(x.swapaxes(0, 1), state))
    _, (_, c) = other(x[:1].swapaxes(0, 1), state)
    assert c.min() == -0.5 and c.max() == 0.25


def test_update():
    spec = rl.Spec("gru", I, H, 2)
    first, second = (
        {k: np.random.default_rng(s).normal(size=v).astype("f4") / H
         for k, v in rl.describe(spec, "torch").items()}
        for s in (1, 2)
    )  # fmt: skip
    x, state = inputs(spec)
    rnn = rl.RNN(first)
    before, wanted = rnn(x, state), rl.RNN(second)(x, state)
    for wrong in ({k: v[:-1] for k, v in second.items()}, second | {"more": x},
                  {k: v.astype("f8") for k, v in second.items()}):  # fmt: skip
        with pytest.raises(rl.LayoutError):
            rnn.update(wrong)
        assert same(rnn(x, state), before)
    rnn.update(second)
    assert same(rnn(x, state), wanted) and not same(wanted, before)
    rnn.update(rl.pack(first))
    assert same(rnn(x, state), before)
    rnn.update({f"a.{k}": v for k, v in second.items()}, prefix="a")
    assert same(rnn(x, state), wanted)


def test_the_prefix_of_an_update():
    """That of the first source for a dict; an array has no names, so no prefix."""
    spec = rl.Spec("gru", I, H)
    x, state = inputs(spec)
    flats = [normal_weights("cudnn", spec, k) / np.float32(H) for k in range(3)]
    wanted = [rl.forward(x, flat, spec, state=state) for flat in flats]
    a, b, other = (
        {f"{prefix}.{name}": w for name, w in rl.unpack(flat, spec, to="torch").items()}
        for prefix, flat in zip(("a", "b", "a"), flats, strict=True)
    )
    rnn = rl.RNN(a | b, prefix="a")
    rnn.update(other | b)
    assert same(rnn(x, state), wanted[2])
    rnn.update(other | b, prefix="b")
    assert same(rnn(x, state), wanted[1])
    with pytest.raises(rl.LayoutError, match="prefix"):
        rnn.update(flats[0], prefix="a")
    assert same(rnn(x, state), wanted[1])
    rnn.update(flats[0], layout="cudnn", dtype="float32")
    assert same(rnn(x, state), wanted[0])


def test_the_dtype_of_an_update():
    spec = rl.Spec("gru", I, H)
    x, state = inputs(spec)
    flat = normal_weights("cudnn", spec) / np.float32(H)
    rnn = rl.RNN(np.zeros_like(flat), spec)
    before, wanted = rnn(x, state), rl.forward(x, flat, spec, state=state)
    with pytest.raises(rl.LayoutError, match="is float64, the spec says float32: pass dtype="):
        rnn.update(flat.astype("f8"))
    with pytest.raises(rl.SpecError, match="dtype is float64, need float32, that of this RNN"):
        rnn.update(flat, dtype="float64")
    assert same(rnn(x, state), before)
    rnn.update(flat.astype("f8"), dtype="float32")  # what the first error says
    assert same(rnn(x, state), wanted)


def test_weights_are_read_when_they_are_given():
    spec = rl.Spec("rnn_tanh", I, H)
    weights = normal_weights("cudnn", spec) / np.float32(H)
    x, state = inputs(spec)
    rnn = rl.RNN(weights, spec)
    before = rnn(x, state)
    weights[:] = 0
    assert same(rnn(x, state), before)
