"""The curves are as accurate as they should be, on every tier of kernels.

An RNN shows each: rnn_tanh, whose x is added to nothing, and an LSTM whose cell state is its
input gate, because its candidate is 1. Compared with NumPy's double, and double with long double.

    python -m run.cpu.test_curves STRIDE

takes every STRIDE-th float32 up to where a curve is flat; 1 takes minutes.
"""

import os
import sys

import numpy as np
import pytest
from commands import TESTS, run
from marks import long

import rnnlayout as rl

H, BLOCK = 16, 1 << 18
# The largest error allowed, in units in the last place (ulp) of the true value; u is half a unit of
# 1. The bound is the sum of these errors:
#
# sigmoid, a power of two divided by d: the division adds at most 1/2. If d is a power of two times
# m, 1 <= m < 2, the rounding of d is u / m of d, and the quotient has the mantissa 2 / m: this adds
# 1 / m^2, at most 1. The terms of d have three errors of u / 4, from the roundings of r, of its
# first terms and of e^r - 1. If m is near 1, e^r is near 3/4 or 7/8, and the latter two are half as
# large: at most 1/2.
#
# A result below the smallest normal number is zero.
#
# tanh, 1 - 2 / d from 1/2 on: the subtraction adds at most 1/2. The quotient is at most 1/2: its
# rounding adds at most 1/4, that of d 1/2, and three errors of e^r - 1, as above, less than 1/2.
# Below 1/2, x + x^3 s: the sum adds at most 1/2; the second term is less than a tenth of the first,
# so that its five roundings, each of at most one unit, add less than 1/2.
MOST_ULP = 2
FLAT = {"tanh": 10.0, "sigmoid": 104.0}


def curve(name, dtype):
    """Return a function that applies a curve to an array of BLOCK numbers, by an RNN."""
    if name == "tanh":
        spec = rl.Spec("rnn_tanh", H, H, bias="none", skip_input=True, dtype=dtype)
        rnn = rl.RNN(np.zeros(spec.num_params, dtype), spec)
        return lambda x: rnn(x.reshape(1, -1, H))[0].ravel()
    spec = rl.Spec("lstm", H, H, activation="relu", recurrent_activation=name, dtype=dtype)
    tensors = {n: np.zeros(s, dtype) for n, s in rl.describe(spec, "onnx").items()}
    tensors["W"][0, :H] = np.eye(H)  # ONNX's gates: i, o, f, c
    tensors["B"][0, 3 * H : 4 * H] = 1
    rnn = rl.RNN(tensors, spec, layout="onnx")
    return lambda x: rnn(x.reshape(1, -1, H))[1][1].ravel()


def errors(name, y, x):
    """Return the errors of y in ulp of the true values."""
    x = x.astype(np.float64 if y.dtype == np.float32 else np.longdouble)
    e = np.exp(-np.abs(x))
    right = np.tanh(x) if name == "tanh" else np.where(x < 0, e, 1) / (1 + e)
    limits = np.finfo(y.dtype)
    power = np.maximum(np.frexp(np.abs(right))[1] - 1, limits.minexp)
    found = np.abs(y - right) / np.ldexp(np.ones_like(right), power - limits.nmant)
    flushed = (y == 0) & (np.abs(right) < limits.tiny * (1 + MOST_ULP * limits.eps))
    return np.where(flushed, 0, found)


def check_floats(name, stride):
    do, flat = curve(name, "float32"), np.float32(FLAT[name]).view("u4")
    infinity = np.float32(np.inf).view("u4")
    patterns = np.r_[0:flat:stride, flat:infinity:4001].astype("u4")
    patterns = np.resize(patterns, -(-patterns.size // BLOCK) * BLOCK)
    for x in patterns.view("f4").reshape(-1, BLOCK):
        y, mirrored = do(x), do(-x)
        assert errors(name, y, x).max() <= MOST_ULP
        assert errors(name, mirrored, -x).max() <= MOST_ULP
        assert abs(y).max() <= 1 and abs(mirrored).max() <= 1
        if name == "tanh":
            assert (y == -mirrored).all()
        else:
            assert y.min() >= 0 and mirrored.min() >= 0


def check_doubles(name):
    rng, do = np.random.default_rng(1), curve(name, "float64")
    for reach in (1, 24, 760):
        x = rng.uniform(-reach, reach, BLOCK)
        assert errors(name, do(x), x).max() <= MOST_ULP
    x = np.ldexp(rng.uniform(-1, 1, BLOCK), rng.integers(-1074, 9, BLOCK))
    y = do(x)
    assert errors(name, y, x).max() <= MOST_ULP
    assert abs(y).max() <= 1 and (name == "tanh" or y.min() >= 0)


def check_hard(dtype):
    """Keras 3's has the same bits. In the older one 0.2, its product and the sum are each rounded
    by at most a quarter of epsilon for results near 1."""
    x = np.random.default_rng(2).uniform(-4, 4, BLOCK).astype(dtype)
    x[:6] = 0, -0.0, 3, -3, 2.5, -2.5
    three, six = np.array([3, 6], dtype)
    right = np.minimum(np.maximum(x + three, 0), six) / six
    assert (curve("hard_sigmoid", dtype)(x) == right).all()
    old = curve("hard_sigmoid_keras2", dtype)(x)
    right = np.clip(x.astype(np.longdouble) / 5 + 0.5, 0, 1)
    assert (abs(old - right) <= 0.75 * np.finfo(dtype).eps).all()
    assert old.min() >= 0 and old.max() <= 1


def main(stride):
    for name in FLAT:
        check_floats(name, stride)
        check_doubles(name)
    check_hard("float32")
    check_hard("float64")
    print(rl.cpu_tier())


# A machine that lacks a tier runs its best one.
@pytest.mark.parametrize("tier, stride", [("best", 4001), long("best", 37), long("avx2", 307),
                                          long("plain", 307)])  # fmt: skip
def test_accuracy(tier, stride):
    env = os.environ | ({} if tier == "best" else {"RNNLAYOUT_CPU": tier})
    run([sys.executable, "-m", "run.cpu.test_curves", stride], cwd=TESTS, env=env)


if __name__ == "__main__":
    main(int(sys.argv[1]))
