"""The same bits step by step and for any strides; a NaN stays in its sequence.

Threads and batches: c/check_forward.c."""

import numpy as np
import pytest
from run.cpu.running import (
    LENGTHS,
    SMALL,
    H,
    N,
    T,
    every_kind,
    inputs,
    one_direction,
    rnn_of,
    rows,
    same,
    small,
)

import rnnlayout as rl


@one_direction
def test_steps_are_one_call(spec):
    """States in float16 or bfloat16 are rounded at each step, so the steps use float32 states."""
    dtype = "float64" if spec.dtype == "float64" else "float32"
    rnn, (x, state) = rnn_of(spec), inputs(spec, dtype=dtype)
    wanted = rnn(x, state)
    ys = []
    for step in x:
        y, state = rnn.step(step, state)
        ys.append(y)
    assert same((np.stack(ys), state), wanted)
    zero = rnn(x[:1])
    y, state = rnn.step(x[0])
    assert same((y[None], state), zero)
    y, state = rnn.step(x[0, 3])
    assert y.shape == (spec.proj_size or H,)
    assert same((y[None], state), (zero[0][:, 3], rows(zero[1], 3)))


@every_kind
@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_a_sequence_keeps_its_nans_to_itself(spec, poison):
    """And what is past its end is not looked at."""
    rnn, (x, state) = rnn_of(spec), inputs(spec)
    wanted = rnn(x, state, lengths=LENGTHS)
    bad = x.copy()
    bad[2, 5, 3] = poison
    bad[np.arange(T)[:, None] >= LENGTHS] = poison
    y, last = rnn(bad, state, lengths=LENGTHS)
    others = np.arange(N) != 5
    assert same((y[:, others], rows(last, others)), (wanted[0][:, others], rows(wanted[1], others)))
    if np.isnan(poison):
        assert np.isnan(y[2, 5].astype("f8")).any()


def test_a_nan_is_not_clipped():
    rnn, x, h, c = small()
    rnn = rl.RNN(rnn._native.weights(), SMALL, cell_clip=(-1, 1))
    c[0, 1, 2] = np.nan
    _, (_, cn) = rnn(x, (h, c))
    assert np.isnan(cn[0, 1]).any() and not np.isnan(cn[0, [0, 2]]).any()
