"""Arrays of every kind, dtype and size as x, states and lengths."""

import ml_dtypes
import numpy as np
import pytest
import torch
from oracles.some import same_bits
from run.cpu.running import BFLOAT16, SMALL, flat, same, small
from sources.awkward import NOT_BFLOAT16, SAME

import rnnlayout as rl


@torch.no_grad()
@pytest.mark.parametrize("kind", [k for k in SAME | NOT_BFLOAT16 if k != "a buffer"])
def test_awkward_arrays(kind):  # a buffer may be anything's: arrays only
    change = (SAME | NOT_BFLOAT16)[kind]
    rnn, x, h, c = small()
    wanted = rnn(x, (h, c))
    assert same(rnn(change(x), (change(h), change(c))), wanted)
    assert same(rnn(change(x), (h, change(c)), lengths=[4, 4, 4]), wanted)
    step = rnn.step(x[0], (h, c))
    assert same(rnn.step(change(x[0]), (change(h), change(c))), step)


@pytest.mark.parametrize("kind", [k for k in SAME if k != "__array__"])
def test_awkward_arrays_of_bfloat16(kind):
    rnn, x, h, c = small(BFLOAT16)

    def change(a):
        return SAME[kind](a.view("u2")).view(a.dtype)

    wanted = rnn(x, (h, c))
    assert wanted[0].dtype == ml_dtypes.bfloat16
    assert same(rnn(change(x), (change(h), change(c))), wanted)
    as_torch = [torch.from_numpy(a.view("i2")).view(torch.bfloat16) for a in (x, h, c)]
    y, (hn, cn) = rnn(as_torch[0], tuple(as_torch[1:]))
    found = [a.view(torch.int16).numpy().view(ml_dtypes.bfloat16) for a in (y, hn, cn)]
    assert same((found[0], tuple(found[1:])), wanted)


def test_numbers_of_16_bits_are_no_bfloat16():
    rnn, x, h, c = small(BFLOAT16)
    with pytest.raises(rl.LayoutError, match="x is uint16, need bfloat16 like the weights, or"):
        rnn(x.view("u2"), (h.view("u2"), c.view("u2")))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_float32_for_narrow_weights(dtype):
    """x in float32 is used unchanged; the result is not rounded to the dtype of the weights."""
    rnn, x, h, c = small(SMALL.replace(dtype=dtype))
    wide = [a.astype("f4") for a in (x, h, c)]
    found = flat(rnn(wide[0], tuple(wide[1:])))
    assert all(a.dtype == np.float32 for a in found)
    narrow = flat(rnn(x, (h, c)))
    assert all(same_bits(a.astype(x.dtype), b) for a, b in zip(found, narrow, strict=True))


@pytest.mark.parametrize("shape", [(0, 3), (4, 0), (0, 0)], ids=str)
@pytest.mark.parametrize("batch_first", [False, True])
def test_nothing_to_run(shape, batch_first):
    rnn, _, h, c = small()
    rnn = rl.RNN(rnn._native.weights(), SMALL, batch_first=batch_first)
    steps, batch = shape
    h, c = (np.resize(a, (1, batch, 7)) for a in (h, c))
    axes = shape[::-1] if batch_first else shape
    for lengths in (None, np.full(batch, steps), [steps] * batch):
        y, (hn, cn) = rnn(np.empty((*axes, 5), "f4"), (h, c), lengths=lengths)
        assert y.shape == (*axes, 7) and same_bits(hn, h) and same_bits(cn, c)
        assert hn is not h
    out = np.empty((*axes, 7), "f4")
    assert rnn(np.empty((*axes, 5), "f4"), (h, c), out=out)[0] is out


@pytest.mark.parametrize(
    "lengths",
    [[4, 0, 2], (4, 0, 2), np.array([4, 0, 2], "i1"), np.array([4, 0, 2], ">u8"),
     np.array([9, 4, 9, 0, 9, 2])[1::2], torch.tensor([4, 0, 2])],
    ids=["list", "tuple", "int8", "big-endian", "strided", "torch"],
)  # fmt: skip
def test_lengths_of_any_kind(lengths):
    rnn, x, h, c = small()
    assert same(rnn(x, (h, c), lengths=lengths), rnn(x, (h, c), lengths=np.array([4, 0, 2])))
