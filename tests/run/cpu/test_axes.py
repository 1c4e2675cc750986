"""The order of x's axes is that of the source, if batch_first is not passed. What each live source
says: sources/test_batch_first.py."""

import numpy as np
import pytest
import torch
from oracles.frameworks import H, I, fill_torch, normal, seeded
from oracles.some import same_bits

import rnnlayout as rl

T = N = 5  # equal, so that the shapes do not show a wrong order


def module(batch_first=False):
    return fill_torch(torch.nn.GRU(I, H, batch_first=batch_first), seeded("axes", batch_first))


def test_an_argument_overrides_the_source():
    first, other = module(True), module()
    x, h0 = normal(seeded("x"), T, N, I), normal(seeded("h"), 1, N, H)
    y, _ = rl.RNN(first, batch_first=False)(x, h0)
    turned = np.ascontiguousarray(x.swapaxes(0, 1))
    assert same_bits(y.swapaxes(0, 1), rl.RNN(first)(turned, h0)[0])
    assert same_bits(y.swapaxes(0, 1), rl.forward(turned, first, state=h0)[0])
    assert same_bits(y, rl.forward(x, first, batch_first=False, state=h0)[0])
    assert not rl.RNN(first, batch_first=False).batch_first
    assert rl.RNN(other, batch_first=True).batch_first and not rl.RNN(other).batch_first
    alone = rl.RNN(first)(x[:, 2], h0[:, 2])  # without a batch the axis does not matter
    assert same_bits(alone[0], y[:, 2]) and alone[1].shape == (1, H)


def test_an_update_does_not_change_the_axis():
    first, other = module(True), module()
    for rnn, source in ((rl.RNN(first), other), (rl.RNN(other), first),
                        (rl.RNN(other.state_dict()), first)):  # fmt: skip
        before = rnn._native.weights()
        with pytest.raises(
            rl.LayoutError, match=r"the source has batch_first=(True|False), this RN"
        ):
            rnn.update(source)
        assert same_bits(rnn._native.weights(), before)
        rnn.update(rl.Weights(source).tensors)  # as the error says
        assert same_bits(rnn._native.weights(), rl.pack(source))
    for axis in (False, True):
        rnn = rl.RNN(other, batch_first=axis)
        rnn.update(first)
        assert rnn.batch_first is axis
        assert same_bits(rnn._native.weights(), rl.pack(first))
