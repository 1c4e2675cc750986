"""JAX's own reference of cuDNN's LSTM, run on the flat weights that JAX's lstm() passes to cuDNN.

With lengths lstm_ref agrees in everything: y is zero past the end; the last state is that of each
sequence's last step, where the backward direction begins. It does not support empty sequences: it
would return the state of the last step of all, where rl.RNN returns the first state.
"""

import numpy as np
import pytest
from hypothesis import strategies as st
from jax.experimental.rnn import get_num_params_in_lstm, lstm_ref, unpack_lstm_weights
from marks import examples, more_examples
from oracles.reference import Run, distance, forward, from_cudnn

import rnnlayout as rl


def run_jax(flat, spec, x, h0, c0, lengths):
    sizes = spec.input_size, spec.hidden_size, spec.num_layers, spec.bidirectional
    assert get_num_params_in_lstm(*sizes) == flat.size
    *sizes, both = sizes
    y, h, c = lstm_ref(x.swapaxes(0, 1), h0, c0, *unpack_lstm_weights(flat, *sizes, both),
                       np.array(lengths, np.int32), *sizes, 0.0, both)  # fmt: skip
    return Run(np.asarray(y).swapaxes(0, 1), np.asarray(h), np.asarray(c))


@st.composite
def problems(draw):
    """A spec, T and lengths: no two of I, H, L, D, L * D, T and N are equal, so no two axes can be
    confused; H goes up to several vectors."""
    layers, both = draw(st.integers(1, 3)), draw(st.booleans())
    taken = {layers, 1 + both, layers * (1 + both)}

    def size(low, high):
        found = draw(st.integers(low, high).filter(lambda n: n not in taken))
        taken.add(found)
        return found

    hidden = size(1, 8) if draw(st.booleans()) else size(9, 75)
    spec = rl.Spec("lstm", size(1, 40), hidden, layers, both)
    T, N = size(1, 9), size(1, 14)
    return spec, T, draw(st.lists(st.integers(1, T), min_size=N, max_size=N))


RANDOM = {"problem": problems(), "seed": st.integers(0, 2**32 - 1)}


# XLA compiles the network of each example.
@examples(3, **RANDOM)
def test_lstm_ref(problem, seed):
    """Each may be off by what float32's rounding explains (reference.Rounded)."""
    spec, T, lengths = problem
    rng, LD = np.random.default_rng(seed), spec.num_layers * spec.num_directions
    # the magnitudes of a row of R sum to less than 1: no rounding error grows
    flat = rng.uniform(-1, 1, spec.num_params).astype("f4") / np.float32(spec.hidden_size)
    rows, N = (LD, len(lengths), spec.hidden_size), len(lengths)
    x, h0, c0 = (rng.standard_normal(shape, np.float32)
                 for shape in ((T, N, spec.input_size), rows, rows))  # fmt: skip
    expected = forward(from_cudnn(flat, spec), spec, x, h0, c0, lengths)
    y, last = rl.forward(x, flat, spec, state=(h0, c0), lengths=lengths)
    assert distance(Run(y, *last), expected) <= 1
    assert distance(run_jax(flat, spec, x, h0, c0, lengths), expected) <= 1


@pytest.mark.long
def test_more_of_lstm_ref():
    more_examples(25, test_lstm_ref, **RANDOM)()
