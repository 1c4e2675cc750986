"""Arithmetic in bfloat16 and int8, if it is asked for. c/check_forward.c compares both with a slow
recurrence for random RNNs, and batches with steps; here are their edges."""

import pickle

import numpy as np
import pytest
from oracles.bits import DTYPES
from oracles.some import normal_weights
from run.cpu.running import H, I, inputs, same

import rnnlayout as rl


def test_operands_are_rounded_to_nearest_even():
    """Those that bfloat16 cannot hold are refused."""
    spec = rl.Spec("rnn_relu", 2, 1, bias=False)
    rnn = rl.RNN(np.array([1, 0, 0], "f4"), spec, math="bfloat16")
    one, unit = 1.0, 2.0**-7
    for x, wanted in ((one + unit / 2, one), (one + 1.5 * unit, one + 2 * unit),
                      (one + 0.51 * unit, one + unit), (np.inf, np.inf)):  # fmt: skip
        y, _ = rnn(np.array([[[x, 0]]], "f4"))
        assert y.item() == wanted
    assert np.isnan(rnn(np.array([[[np.nan, 0]]], "f4"))[0]).all()
    with pytest.raises(rl.LossyError):
        rl.RNN(np.array([3.4e38, 1, 1], "f4"), spec, math="bfloat16")


@pytest.mark.parametrize("math, own", [("bfloat16", "bfloat16"), ("int8", "float32")])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_coarse_math_has_weights_of_its_own_dtype(dtype, math, own):
    spec = rl.Spec("gru", I, H, dtype=dtype)
    scale = np.array(H, DTYPES[dtype][0])
    first, second = (normal_weights("cudnn", spec, seed) / scale for seed in (1, 2))
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


@pytest.mark.parametrize("share", [1, -1])
def test_int8_sums_of_long_rows_do_not_overflow(share):
    """All products have the largest magnitude: 1,100 of them are more than an int32."""
    spec = rl.Spec("rnn_tanh", 1100, 3, bias=False)
    weights, x = np.full(spec.num_params, 2.0**-11, "f4"), np.full((2, 4, 1100), share, "f4")
    y, _ = rl.RNN(weights, spec, math="int8")(x[:1])
    # the scale of a row of weights is rounded to 16 bits, and each product in float32
    assert np.allclose(y, np.tanh(share * 1100 * 2.0**-11), rtol=2.0**-15, atol=0)


def test_int8_of_rows_that_are_not_finite_or_tiny():
    """It gives NaN for the first, and counts the second as zeros."""
    spec = rl.Spec("rnn_relu", 2, 3, bias=False)
    weights = np.ones(spec.num_params, "f4")
    weights[3] = np.inf  # W of unit 1
    x = np.array([[[1, 2], [1, np.nan], [np.inf, 1], [0, 0]]], "f4")
    y, _ = rl.RNN(weights, spec, math="int8")(x)
    assert np.isnan(y[0]).tolist() == [[False, True, False], [True] * 3, [True] * 3,
                                       [False, True, False]]  # fmt: skip
    assert np.allclose(y[0, 0, [0, 2]], 3, rtol=1e-4) and (y[0, 3, [0, 2]] == 0).all()
    rnn = rl.RNN(np.ones(spec.num_params, "f4"), spec, math="int8")
    small = np.float32(2.0**-101)
    assert not rnn(np.full((1, 1, 2), small))[0].any()
    assert rnn(np.full((1, 1, 2), 4 * small))[0].all()
    tiny = rl.RNN(np.full(spec.num_params, small), spec, math="int8")
    assert not tiny(np.ones((1, 1, 2), "f4"))[0].any()
