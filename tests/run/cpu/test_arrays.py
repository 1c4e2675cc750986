"""Arrays of every kind, dtype and size as x, states, lengths and outputs; outputs in place."""

import numpy as np
import pytest
import torch
from oracles.some import same_bits
from run.cpu.running import (
    BFLOAT16,
    SMALL,
    H,
    I,
    N,
    every_kind,
    flat,
    inputs,
    rnn_of,
    rows,
    same,
    small,
)
from sources.awkward import NOT_BFLOAT16, SAME, Loud

import rnnlayout as rl


@torch.no_grad()
@pytest.mark.parametrize("spec, kind", [
    *((SMALL, kind) for kind in SAME | NOT_BFLOAT16 if kind != "a buffer"),  # of anything
    *((BFLOAT16, kind) for kind in SAME if kind != "__array__"),
])  # fmt: skip
def test_awkward_arrays(spec, kind):
    def change(a):
        if spec is BFLOAT16:
            return SAME[kind](a.view("u2")).view(a.dtype)
        return (SAME | NOT_BFLOAT16)[kind](a)

    rnn, x, h, c = small(spec)
    assert same(rnn(change(x), (change(h), change(c))), rnn(x, (h, c)))
    assert same(rnn(change(x), (h, change(c)), lengths=[4, 4, 4]), rnn(x, (h, c)))
    step = rnn.step(x[0], (h, c))
    assert same(rnn.step(change(x[0]), (change(h), change(c))), step)


@pytest.mark.parametrize("shape", [(0, 3), (4, 0), (0, 0)], ids=str)
@pytest.mark.parametrize("batch_first", [False, True])
def test_nothing_to_run(shape, batch_first):
    rnn, _, h, c = small()
    rnn = rl.RNN(rnn._native.weights(), SMALL, batch_first=batch_first)
    steps, batch = shape
    h, c = (np.resize(a, (1, batch, 7)) for a in (h, c))
    axes = shape[::-1] if batch_first else shape
    x, out = np.empty((*axes, 5), "f4"), np.empty((*axes, 7), "f4")
    for lengths in (None, np.full(batch, steps), [steps] * batch):
        y, (hn, cn) = rnn(x, (h, c), lengths=lengths)
        assert y.shape == (*axes, 7) and same_bits(hn, h) and same_bits(cn, c)
        assert hn is not h
    assert rnn(x, (h, c), out=out)[0] is out


@pytest.mark.parametrize(
    "lengths",
    [[4, 0, 2], (4, 0, 2), np.array([4, 0, 2], "i1"), np.array([4, 0, 2], ">u8"),
     np.array([9, 4, 9, 0, 9, 2])[1::2], torch.tensor([4, 0, 2])],
    ids=["list", "tuple", "int8", "big-endian", "strided", "torch"],
)  # fmt: skip
def test_lengths_of_any_kind(lengths):
    rnn, x, h, c = small()
    assert same(rnn(x, (h, c), lengths=lengths), rnn(x, (h, c), lengths=np.array([4, 0, 2])))


# ----------------------------------------------------------------------------------------- outputs

OUTS = {
    "plain": lambda a: np.empty_like(a),
    "in a wider array": lambda a: np.empty((*a.shape[:-1], 2 * a.shape[-1]), a.dtype)[..., 3:10],
    "backwards": lambda a: np.empty_like(a)[::-1],
    "swapped": lambda a: np.empty(a.shape[1::-1] + a.shape[2:], a.dtype).swapaxes(0, 1),
    "a subclass": lambda a: np.empty_like(a).view(Loud),
    "torch": lambda a: torch.empty(a.shape),
}


@pytest.mark.parametrize("spec, kind", [*((SMALL, kind) for kind in OUTS), (BFLOAT16, "plain")])
def test_outputs_of_the_caller(spec, kind):
    rnn, x, h, c = small(spec)
    wanted = rnn(x, (h, c))
    outs = [OUTS[kind](a) for a in flat(wanted)]
    y, (hn, cn) = rnn(x, (h, c), out=outs[0], h_out=outs[1], c_out=outs[2])
    assert y is outs[0] and hn is outs[1] and cn is outs[2]
    assert same((np.asarray(y), (np.asarray(hn), np.asarray(cn))), wanted)
    y, (hn, cn) = rnn(x, (h, c), h_out=outs[1])  # and only some
    assert hn is outs[1] and same((y, (np.asarray(hn), cn)), wanted)


def test_in_place_in_a_call():
    """The last state over the first; x is only read, outputs may lie between its columns."""
    rnn, x, h, c = small()
    wanted, before = rnn(x, (h, c)), x.copy()
    h2, c2 = h.copy(), c.copy()
    assert same(rnn(x, (h2, c2), h_out=h2, c_out=c2), wanted)
    assert same_bits(h2, wanted[1][0]) and same_bits(x, before)
    h2, c2 = h.copy(), c.copy()  # exchanged: what is still to be read is copied
    assert same(rnn(x, (h2, c2), h_out=c2, c_out=h2), wanted)
    wide = np.zeros((4, 3, 12), "f4")
    wide[..., :5] = x
    assert same(rnn(wide[..., :5], (h, c), out=wide[..., 5:]), wanted)


@pytest.mark.parametrize("shift", [-1, 1])
def test_the_last_state_of_a_layer_over_the_first_of_the_next(shift):
    spec = rl.Spec("gru", I, H, 3)
    rnn, (x, h0) = rnn_of(spec), inputs(spec)
    room = np.zeros((5, N, H), "f4")
    room[1:4] = h0
    first, last = room[1:4], room[1 + shift : 4 + shift]
    assert same(rnn(x, first, h_out=last), rnn(x, h0))


def test_in_place_in_a_step():
    spec = rl.Spec("lstm", 7, 9, proj_size=7)
    rng = np.random.default_rng(5)
    rnn = rl.RNN(rng.normal(size=spec.num_params).astype("f4"), spec)
    x = rng.normal(size=(3, 7)).astype("f4")
    state = rng.normal(size=(1, 3, 7)).astype("f4"), rng.normal(size=(1, 3, 9)).astype("f4")
    wanted = rnn.step(x, state)
    y, last = rnn(x[None], state)
    assert same(wanted, (y[0], last))
    y, last = rnn.step(x)
    assert same(rnn.step(x[1]), (y[1], rows(last, 1)))
    x2, h2, c2 = x.copy(), *(a.copy() for a in state)
    y, last = rnn.step(x2, (h2, c2), out=x2, h_out=h2, c_out=c2)
    assert y is x2 and last[0] is h2 and last[1] is c2 and same((y, last), wanted)
    room = np.zeros(1000, "f4")  # the strangest case: the outputs overlap x, shifted
    h3, y3, x3 = (room[k : k + 21].reshape(3, 7) for k in (0, 10, 7))
    x3[...] = x
    assert same(rnn.step(x3, state, h_out=h3[None]), wanted)
    x3[...] = x
    assert same(rnn.step(x3, state, out=y3), wanted)


# ------------------------------------------------------------------------------------------- NaNs


@every_kind
def test_a_sequence_keeps_its_nans_to_itself(spec):
    """Past its end nothing is read, and batches and steps have the same bits: c/check_forward.c."""
    rnn, (x, state) = rnn_of(spec), inputs(spec)
    wanted, others = rnn(x, state), np.arange(N) != 5
    for poison in (np.inf, np.nan):
        x[2, 5, 3] = poison
        y, last = rnn(x, state)
        sequences = y[:, others], rows(last, others)
        assert same(sequences, (wanted[0][:, others], rows(wanted[1], others)))
    assert np.isnan(y[2:, 5].astype("f8")).any()


def test_a_nan_is_not_clipped():
    rnn, x, h, c = small()
    rnn = rl.RNN(rnn._native.weights(), SMALL, cell_clip=(-1, 1))
    c[0, 1, 2] = np.nan
    _, (_, cn) = rnn(x, (h, c))
    assert np.isnan(cn[0, 1]).any() and not np.isnan(cn[0, [0, 2]]).any()
