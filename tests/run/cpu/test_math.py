"""Arithmetic in bfloat16, if it is asked for; RNNs for one call, which give the same bits."""

import pickle

import numpy as np
import pytest
from oracles import reference
from oracles.bits import DTYPES
from oracles.frameworks import seeded
from oracles.reference import FLOAT32, forward, from_cudnn
from oracles.some import same_bits
from run.cpu.running import H, I, flat, inputs, rnn_of, same, some_kinds, source_of

import rnnlayout as rl

BFLOAT16 = DTYPES["bfloat16"][0]
SPECS = [
    rl.Spec("lstm", I, H),
    rl.Spec("lstm", I, H, 2, True, 50),
    rl.Spec("gru", I, H, 3),
    rl.Spec("rnn_tanh", I, H, 2, True),
]
every_spec = pytest.mark.parametrize("spec", SPECS, ids=str)


def weight_space(spec, seed=0):
    """Return weights; the magnitudes of a row sum to less than 1."""
    pieces = [seeded("math", spec, seed, k).uniform(-1, 1, rows * cols) / max(cols, 2)
              for k, (*_, rows, cols) in enumerate(rl.regions(spec).tolist())]  # fmt: skip
    return np.concatenate(pieces).astype("f4")


def rounded(a):
    return a.astype(BFLOAT16).astype("f4")


def assert_within_the_bound(spec, x, state, found):
    """Assert the recurrence of the rounded weights, within what float32's roundings explain."""
    layers = from_cudnn(rounded(weight_space(spec)), spec)
    h0, c0 = state if isinstance(state, tuple) else (state, None)
    exact = [None if a is None else a.astype("f8") for a in (x, h0, c0)]
    expected = forward(layers, spec, *exact)
    for ours, wanted in zip(flat(found), (expected.y, expected.h, expected.c), strict=False):
        assert (np.abs(ours - wanted.value) <= wanted.error * (1 + FLOAT32)).all()


@every_spec
def test_whole_sequences_are_as_near_as_operands_rounded_to_bfloat16_can_be(spec, monkeypatch):
    x, state = inputs(spec)
    found = rl.RNN(weight_space(spec), spec, math="bfloat16")(x, state)
    with monkeypatch.context() as patch:
        patch.setattr(reference, "OPERAND", reference.BFLOAT16)
        assert_within_the_bound(spec, x, state, found)
    assert not same(found, rl.RNN(weight_space(spec), spec)(x, state))


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn_tanh", "rnn_relu"])
def test_sums_are_float32s_where_the_operands_are_bfloat16_already(cell):
    spec = rl.Spec(cell, I, H)  # one step of one layer: no result is an operand
    x, state = inputs(spec, steps=1)
    x, state = rounded(x), tuple(map(rounded, state)) if cell == "lstm" else rounded(state)
    found = rl.RNN(weight_space(spec), spec, math="bfloat16")(x, state)
    assert_within_the_bound(spec, x, state, found)


def test_operands_are_rounded_to_nearest_even():
    spec = rl.Spec("rnn_relu", 2, 1, bias=False)
    rnn = rl.RNN(np.array([1, 0, 0], "f4"), spec, math="bfloat16")
    one, unit = 1.0, 2.0**-7
    for x, wanted in ((one + unit / 2, one), (one + 1.5 * unit, one + 2 * unit),
                      (one + 0.51 * unit, one + unit), (np.inf, np.inf)):  # fmt: skip
        y, _ = rnn(np.array([[[x, 0]]], "f4"))
        assert y.item() == wanted
    assert np.isnan(rnn(np.array([[[np.nan, 0]]], "f4"))[0]).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_bfloat16_math_has_bfloat16_weights(dtype):
    spec = rl.Spec("gru", I, H, dtype=dtype)
    first, second = (weight_space(spec, seed).astype(DTYPES[dtype][0]) for seed in (1, 2))
    x, state = inputs(spec.replace(dtype="float32"))

    def of(weights):
        narrow = weights.astype("f4").astype(BFLOAT16)
        return rl.RNN(narrow, spec.replace(dtype="bfloat16"), math="bfloat16")(x, state)

    rnn = rl.RNN(first, spec, math="bfloat16")
    assert (rnn.math, rnn.spec) == ("bfloat16", spec.replace(dtype="bfloat16"))
    assert repr(rnn) == f"<RNN of {rnn.spec}, math bfloat16, on cpu>"
    assert same(rnn(x, state), of(first))
    other = pickle.loads(pickle.dumps(rnn))
    assert other.math == "bfloat16" and same(other(x, state), of(first))
    other.update(second)
    assert same(other(x, state), of(second)) and same(rnn(x, state), of(first))


def test_what_bfloat16_cannot_hold_is_refused():
    spec = rl.Spec("rnn_tanh", 1, 1, bias=False)
    with pytest.raises(rl.LossyError):
        rl.RNN(np.array([3.4e38, 1], "f4"), spec, math="bfloat16")


# -------------------------------------------------------------------------------- for one call


@some_kinds
@pytest.mark.parametrize("steps, batch", [(1, 1), (1, 2), (4, 3)])
def test_an_rnn_for_one_call_gives_the_same_bits(spec, steps, batch):
    x, state = inputs(spec, steps, batch)
    assert same(rl.forward(x, **source_of(spec), state=state), rnn_of(spec)(x, state))


def test_outputs_that_lie_in_the_weights():
    spec = rl.Spec("lstm", I, H, 2)
    weights = weight_space(spec)
    x, state = inputs(spec, 1, 1)
    y, (h_n, c_n) = rl.forward(x, weights, spec, state=state)
    end = len(weights)
    out, h_out, c_out = (weights[end - k * H : end - (k - n) * H].reshape(-1, 1, H)
                         for k, n in ((1, 1), (3, 2), (5, 2)))  # fmt: skip
    given = weights.copy()
    assert same(rl.forward(x, weights, spec, state=state, out=out, h_out=h_out, c_out=c_out),
                (y, (h_n, c_n)))  # fmt: skip
    assert not same_bits(weights, given)
    apart = [np.empty_like(a) for a in (y, h_n, c_n)]
    found = rl.forward(x, given, spec, state=state, out=apart[0], h_out=apart[1], c_out=apart[2])
    assert same(found, (y, (h_n, c_n))) and found[0] is apart[0]
