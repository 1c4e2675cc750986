"""JAX's own reference of cuDNN's LSTM, run on the flat weights that JAX's lstm() passes to cuDNN.

With lengths lstm_ref agrees in everything: y is zero past the end; the last state is that of each
sequence's last step, where the backward direction begins. It does not support empty sequences: it
would return the state of the last step of all, where rl.RNN returns the first state.
"""

import numpy as np
import pytest
from jax.experimental.rnn import get_num_params_in_lstm, lstm_ref, unpack_lstm_weights
from oracles.frameworks import seeded
from oracles.reference import Run, distance, forward, from_cudnn

import rnnlayout as rl

# All different, also from L, D and L * D.
T, N, I, H = 9, 7, 11, 40  # noqa: E741
LENGTHS = [9, 1, 4, 9, 2, 8, 5]


def run_jax(flat, spec, x, h0, c0):
    sizes = spec.input_size, spec.hidden_size, spec.num_layers
    both = spec.bidirectional
    assert get_num_params_in_lstm(*sizes, both) == flat.size
    y, h, c = lstm_ref(x.swapaxes(0, 1), h0, c0, *unpack_lstm_weights(flat, *sizes, both),
                       np.array(LENGTHS, np.int32), *sizes, 0.0, both)  # fmt: skip
    return Run(np.asarray(y).swapaxes(0, 1), np.asarray(h), np.asarray(c))


@pytest.mark.parametrize("layers, both", [(1, False), (3, True)])
def test_lstm_ref(layers, both):
    """Each may be off by what float32's rounding explains (reference.Rounded)."""
    spec, rng = rl.Spec("lstm", I, H, layers, both), seeded("lstm_ref", layers, both)
    # the magnitudes of a row of R sum to less than 1: no rounding error grows
    flat = rng.uniform(-1, 1, spec.num_params).astype("f4") / np.float32(H)
    rows = (layers * spec.num_directions, N, H)
    x, h0, c0 = (rng.standard_normal(shape, np.float32) for shape in ((T, N, I), rows, rows))
    expected = forward(from_cudnn(flat, spec), spec, x, h0, c0, LENGTHS)
    y, last = rl.forward(x, flat, spec, state=(h0, c0), lengths=LENGTHS)
    assert distance(Run(y, *last), expected) <= 1
    assert distance(run_jax(flat, spec, x, h0, c0), expected) <= 1
