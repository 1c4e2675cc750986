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
