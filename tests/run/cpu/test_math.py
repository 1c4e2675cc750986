"""Arithmetic in bfloat16 and int8, if it is asked for; RNNs for one call: the same bits."""

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


@pytest.mark.parametrize("math, own", [("bfloat16", "bfloat16"), ("int8", "float32")])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_coarse_math_has_weights_of_its_own_dtype(dtype, math, own):
    spec = rl.Spec("gru", I, H, dtype=dtype)
    first, second = (weight_space(spec, seed).astype(DTYPES[dtype][0]) for seed in (1, 2))
    x, state = inputs(spec.replace(dtype="float32"))

    def of(weights):
        converted = weights.astype("f4").astype(DTYPES[own][0])
        return rl.RNN(converted, spec.replace(dtype=own), math=math)(x, state)

    rnn = rl.RNN(first, spec, math=math)
    assert (rnn.math, rnn.spec) == (math, spec.replace(dtype=own))
    assert repr(rnn) == f"<RNN of {rnn.spec}, math {math}, on cpu>"
    assert same(rnn(x, state), of(first))
    other = pickle.loads(pickle.dumps(rnn))
    assert other.math == math and same(other(x, state), of(first))
    other.update(second)
    assert same(other(x, state), of(second)) and same(rnn(x, state), of(first))
    assert same(rl.forward(x, first, spec, state=state, math=math), of(first))


def test_what_bfloat16_cannot_hold_is_refused():
    spec = rl.Spec("rnn_tanh", 1, 1, bias=False)
    with pytest.raises(rl.LossyError):
        rl.RNN(np.array([3.4e38, 1], "f4"), spec, math="bfloat16")


# -------------------------------------------------------------------------------- in one byte


def in_bytes(weights, spec):
    """Return the weights as int8 arithmetic rounds them: a scale of 16 bits per row of a matrix."""
    result = weights.copy()
    for *_, role, _, offset, rows, cols in rl.regions(spec).tolist():
        if role not in ("W", "R", "P"):
            continue
        at = slice(offset // 4, offset // 4 + rows * cols)
        matrix = weights[at].reshape(rows, cols)
        mantissa, exponent = np.frexp(np.abs(matrix).max(1, keepdims=True) / np.float32(127))
        scale = np.ldexp(np.ceil(mantissa * 2**16), exponent - 16)
        result[at] = (np.rint(matrix / scale) * scale).ravel() + np.float32(0)  # no -0
    return result


def assert_recurrence_in_bytes(spec, weights, x, state, found, monkeypatch):
    layers = from_cudnn(in_bytes(weights, spec), spec)
    h0, c0 = state if isinstance(state, tuple) else (state, None)
    exact = [None if a is None else a.astype("f8") for a in (x, h0, c0)]
    with monkeypatch.context() as patch:
        patch.setattr(reference, "OPERAND_OF_ROW", reference.INT16)
        expected = forward(layers, spec, *exact)
    for ours, wanted in zip(flat(found), (expected.y, expected.h, expected.c), strict=False):
        # a product has two scales, which are multiplied, and its sum is a rounded integer
        bound = wanted.error + 3 * FLOAT32 * np.abs(wanted.value)
        assert (np.abs(ours - wanted.value) <= bound * (1 + FLOAT32)).all()


@every_spec
def test_int8_is_the_recurrence_of_weights_of_one_byte(spec, monkeypatch):
    weights = weight_space(spec)
    x, state = inputs(spec)
    rnn = rl.RNN(weights, spec, math="int8")
    assert_recurrence_in_bytes(spec, weights, x, state, rnn(x, state), monkeypatch)
    assert same_bits(rnn._native.weights(), in_bytes(weights, spec))
    assert not same(rnn(x, state), rl.RNN(weights, spec)(x, state))
    # what was rounded once is not rounded again
    assert same(rl.RNN(in_bytes(weights, spec), spec, math="int8")(x, state), rnn(x, state))


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_int8_sums_of_long_rows_do_not_overflow(cell, monkeypatch):
    """All products have the largest magnitude: 1,100 of them are more than an int32."""
    spec = rl.Spec(cell, 1100, 3)
    weights = np.full(spec.num_params, 2.0**-11, "f4")
    x, zeros = np.ones((2, 4, 1100), "f4"), np.zeros((1, 4, 3), "f4")
    state = (zeros, zeros) if cell == "lstm" else zeros
    rnn = rl.RNN(weights, spec, math="int8")
    assert_recurrence_in_bytes(spec, weights, x, state, rnn(x, state), monkeypatch)


def test_int8_gives_the_same_bits_for_any_batch_and_step():
    spec = rl.Spec("lstm", 600, 40, 2)
    x, _ = inputs(spec, steps=3, batch=60)
    rnn = rl.RNN(weight_space(spec), spec, math="int8")
    y, (h_n, c_n) = rnn(x)
    for n in (0, 47, 48, 59):  # rows are rounded 48 at a time
        assert same_bits(rnn(x[:, n : n + 1])[0], y[:, n : n + 1])
    state = None
    for t in range(3):
        y_t, state = rnn.step(x[t], state)
        assert same_bits(y_t, y[t])
    assert same(state, (h_n, c_n))
    stepper = rnn.stepper()
    assert all(same_bits(stepper(x[t, 5]), y[t, 5]) for t in range(3))


def test_int8_refuses_float64():
    spec = rl.Spec("gru", I, H, dtype="float64")
    with pytest.raises(rl.SpecError, match=r"math='int8' would discard.*dtype='float32'"):
        rl.RNN(weight_space(spec).astype("f8"), spec, math="int8")


def test_int8_gives_nan_for_rows_that_are_not_finite():
    spec = rl.Spec("rnn_relu", 2, 3, bias=False)
    weights = np.ones(spec.num_params, "f4")
    weights[3] = np.inf  # W of unit 1
    x = np.array([[[1, 2], [1, np.nan], [np.inf, 1], [0, 0]]], "f4")
    y, _ = rl.RNN(weights, spec, math="int8")(x)
    assert np.isnan(y[0]).tolist() == [[False, True, False], [True] * 3, [True] * 3,
                                       [False, True, False]]  # fmt: skip
    assert np.allclose(y[0, 0, [0, 2]], 3, rtol=1e-4) and (y[0, 3, [0, 2]] == 0).all()


def test_int8_counts_rows_of_the_smallest_magnitudes_as_zeros():
    spec = rl.Spec("rnn_relu", 2, 3, bias=False)
    rnn = rl.RNN(np.ones(spec.num_params, "f4"), spec, math="int8")
    small = np.float32(2.0**-101)
    assert not rnn(np.full((1, 1, 2), small))[0].any()
    assert rnn(np.full((1, 1, 2), 4 * small))[0].all()
    tiny = rl.RNN(np.full(spec.num_params, small), spec, math="int8")
    assert not tiny(np.ones((1, 1, 2), "f4"))[0].any()


# -------------------------------------------------------------------------------- for one call


@some_kinds
@pytest.mark.parametrize("steps, batch", [(1, 1), (1, 2), (4, 3)])
def test_an_rnn_for_one_call_gives_the_same_bits(spec, steps, batch):
    x, state = inputs(spec, steps, batch)
    assert same(rl.forward(x, **source_of(spec), state=state), rnn_of(spec)(x, state))
