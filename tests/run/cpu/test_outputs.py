"""Outputs: new arrays, arrays of the caller, in place, beside the inputs."""

import numpy as np
import pytest
import torch
from oracles.some import same_bits
from run.cpu.running import BFLOAT16, H, I, N, flat, inputs, rnn_of, same, small
from sources.awkward import Loud

import rnnlayout as rl

OUTS = {
    "plain": lambda a: np.empty_like(a),
    "in a wider array": lambda a: np.empty((*a.shape[:-1], 2 * a.shape[-1]), a.dtype)[..., 3:10],
    "backwards": lambda a: np.empty_like(a)[::-1],
    "swapped": lambda a: np.empty(a.shape[1::-1] + a.shape[2:], a.dtype).swapaxes(0, 1),
    "a subclass": lambda a: np.empty_like(a).view(Loud),
    "torch": lambda a: torch.empty(a.shape),
}


@pytest.mark.parametrize("kind", OUTS)
def test_outputs_of_the_caller(kind):
    rnn, x, h, c = small()
    wanted = rnn(x, (h, c))
    outs = [OUTS[kind](a) for a in flat(wanted)]
    y, (hn, cn) = rnn(x, (h, c), out=outs[0], h_out=outs[1], c_out=outs[2])
    assert y is outs[0] and hn is outs[1] and cn is outs[2]
    assert same((np.asarray(y), (np.asarray(hn), np.asarray(cn))), wanted)
    y, (hn, cn) = rnn(x, (h, c), h_out=outs[1])  # and only some
    assert hn is outs[1] and same((y, (np.asarray(hn), cn)), wanted)


def test_outputs_of_bfloat16():
    rnn, x, h, c = small(BFLOAT16)
    wanted = rnn(x, (h, c))
    outs = [np.empty_like(a) for a in flat(wanted)]
    y, (hn, cn) = rnn(x, (h, c), out=outs[0], h_out=outs[1], c_out=outs[2])
    assert y is outs[0] and hn is outs[1] and cn is outs[2] and same((y, (hn, cn)), wanted)


def test_in_place_in_a_call():
    """The last state over the first; x is only read."""
    rnn, x, h, c = small()
    wanted, before = rnn(x, (h, c)), x.copy()
    h2, c2 = h.copy(), c.copy()
    assert same(rnn(x, (h2, c2), h_out=h2, c_out=c2), wanted)
    assert same_bits(h2, wanted[1][0]) and same_bits(x, before)
    h2, c2 = h.copy(), c.copy()  # exchanged: what is still to be read is copied
    assert same(rnn(x, (h2, c2), h_out=c2, c_out=h2), wanted)


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
    x2, h2, c2 = x.copy(), *(a.copy() for a in state)
    y, last = rnn.step(x2, (h2, c2), out=x2, h_out=h2, c_out=c2)
    assert y is x2 and last[0] is h2 and last[1] is c2 and same((y, last), wanted)
    # the strangest case: the outputs overlap each input, shifted
    room = np.zeros(1000, "f4")
    h3, y3, x3 = (room[k : k + 21] for k in (0, 30, 7))
    y3, x3, h3 = y3.reshape(3, 7), x3.reshape(3, 7), h3.reshape(1, 3, 7)
    x3[...] = x
    assert same(rnn.step(x3, state, out=y3, h_out=h3), wanted)
    x3[...] = x
    over = room[10:31].reshape(3, 7)
    assert same(rnn.step(x3, state, out=over), wanted)
    wide = np.zeros((3, 14), "f4")
    wide[:, :7] = x
    assert same(rnn.step(wide[:, :7], state, out=wide[:, 7:]), wanted)
    assert same_bits(wide[:, :7], x)


def test_outputs_between_the_columns_of_x():
    """They share a block of memory, but no element."""
    rnn, x, h, c = small()
    wide = np.zeros((4, 3, 12), "f4")
    wide[..., :5] = x
    assert same(rnn(wide[..., :5], (h, c), out=wide[..., 5:]), rnn(x, (h, c)))
