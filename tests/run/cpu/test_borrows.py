"""An RNN for a single call reads the caller's weights in place."""

import pickle

import numpy as np
import pytest
from oracles.bits import DTYPES
from oracles.some import same_bits

import rnnlayout as rl
from rnnlayout import _native
from rnnlayout._run.rnn import _OneCallRNN


@pytest.mark.parametrize("dtype", DTYPES)
def test_it_returns_its_weights(dtype):
    spec = rl.Spec("lstm", 5, 7, dtype=dtype)
    bits = np.random.default_rng(1).integers(0, 256, spec.nbytes, "u1")
    flat = bits.view("u2" if dtype == "bfloat16" else dtype)
    rnn = _native.Rnn(spec, flat, borrows=True)
    assert same_bits(rnn.weights(), flat) and not np.shares_memory(rnn.weights(), flat)


def test_it_can_be_pickled():
    spec, x = rl.Spec("gru", 5, 7), np.ones((4, 3, 5), "f4")
    rnn = _OneCallRNN(np.linspace(-1, 1, spec.num_params, dtype="f4"), spec)
    assert same_bits(pickle.loads(pickle.dumps(rnn))(x)[0], rnn(x)[0])


@pytest.mark.parametrize("name", ["out", "h_out", "c_out"])
def test_an_output_may_be_memory_of_the_weights(name):
    """A step that reads the weights in place would read what it has written."""
    spec = rl.Spec("lstm", 5, 7, 2)
    rng = np.random.default_rng(0)
    weights, x = rng.normal(size=spec.num_params).astype("f4"), rng.normal(size=(1, 1, 5))
    x = x.astype("f4")
    y, (h, c) = rl.forward(x, weights, spec)
    size = {"out": y, "h_out": h, "c_out": c}[name].size
    for at in range(0, weights.size - size, 7):
        flat = weights.copy()
        out = flat[at : at + size].reshape(-1, 1, 7)
        found, state = rl.forward(x, flat, spec, **{name: out})
        assert all(map(same_bits, (found, *state), (y, h, c))), at
