"""The same bits for any threads, batch, lengths, steps and strides; a NaN stays in its sequence."""

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
    some_kinds,
)

import rnnlayout as rl


@some_kinds
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["whole", "lengths"])
def test_threads_change_no_bit(spec, lengths, threads):
    rnn, (x, state) = rnn_of(spec), inputs(spec)
    threads(1)
    wanted = rnn(x, state, lengths=lengths)
    for n in (2, 3, 5):
        threads(n)
        for _ in range(3):
            assert same(rnn(x, state, lengths=lengths), wanted)


@some_kinds
def test_a_sequence_is_what_it_is_alone(spec):
    """In any batch, and if it has a length, cut to that."""
    rnn, (x, state) = rnn_of(spec), inputs(spec)
    y, last = rnn(x, state, lengths=LENGTHS)
    for n, length in enumerate(LENGTHS):
        one = slice(n, n + 1)
        alone = rnn(x[:length, one], rows(state, one))
        assert same(alone, (y[:length, one], rows(last, one))) and not y[length:, n].any()
    whole = rnn(x, state)
    for some in (4, slice(3, 9), slice(None, None, -1)):  # 4: without an axis for the batch
        found = rnn(x[:, some], rows(state, some))
        assert same(found, (whole[0][:, some], rows(whole[1], some)))


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


@some_kinds
def test_batch_first_is_a_matter_of_strides(spec):
    rnn, other, (x, state) = rnn_of(spec), rnn_of(spec, batch_first=True), inputs(spec)
    assert other.batch_first and not rnn.batch_first
    y, last = rnn(x, state, lengths=LENGTHS)
    swapped = np.array(x.swapaxes(0, 1), order="C")
    assert same(other(swapped, state, lengths=LENGTHS), (y.swapaxes(0, 1), last))
    assert same(other(x.swapaxes(0, 1), state, lengths=LENGTHS), (y.swapaxes(0, 1), last))
    assert same(other(x[:, 2], rows(state, 2)), rnn(x[:, 2], rows(state, 2)))


@every_kind
@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_a_sequence_keeps_its_nans_to_itself(spec, poison):
    rnn, (x, state) = rnn_of(spec), inputs(spec)
    wanted = rnn(x, state)
    bad = x.copy()
    bad[2, 5, 3] = poison
    y, last = rnn(bad, state)
    others = np.arange(N) != 5
    assert same((y[:, others], rows(last, others)), (wanted[0][:, others], rows(wanted[1], others)))
    if np.isnan(poison):
        assert np.isnan(y[2, 5].astype("f8")).any()


@every_kind
def test_what_is_past_the_end_is_not_looked_at(spec):
    rnn, (x, state) = rnn_of(spec), inputs(spec)
    wanted = rnn(x, state, lengths=LENGTHS)
    x[np.arange(T)[:, None] >= LENGTHS] = np.nan
    assert same(rnn(x, state, lengths=LENGTHS), wanted)


def test_a_nan_is_not_clipped():
    rnn, x, h, c = small()
    rnn = rl.RNN(rnn._native.weights(), SMALL, cell_clip=(-1, 1))
    c[0, 1, 2] = np.nan
    _, (_, cn) = rnn(x, (h, c))
    assert np.isnan(cn[0, 1]).any() and not np.isnan(cn[0, [0, 2]]).any()


def test_subnormals_are_zero_during_a_call_only():
    """The caller's own arithmetic keeps them."""
    spec, tiny = rl.Spec("rnn_relu", 2, 2, bias=False), np.finfo("f4").tiny
    rnn = rl.RNN([np.eye(2, dtype="f4"), np.eye(2, dtype="f4")], spec, layout="keras")
    x = np.array([[[tiny, tiny / 2]]], "f4")
    for y in (rnn(x)[0], rnn.step(x[0])[0][None], rnn.stepper()(x[0])[None],
              rnn(np.repeat(x, 3, 1))[0][:, :1]):  # fmt: skip
        assert y.tolist() == [[[tiny, 0]]]
    assert (x[0, 0] * np.float32(0.5)).tolist() == [tiny / 2, tiny / 4]
    _, h_n = rnn(x, x, lengths=[0])
    assert same((h_n, h_n), (x, x))
