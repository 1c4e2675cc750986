"""The order of x's axes is that of the source, if batch_first is not passed: torch's modules. For
others see sources/test_batch_first.py."""

import pickle

import numpy as np
import pytest
import torch
from oracles.frameworks import TORCH, H, I, fill_torch, normal, seeded
from oracles.reference import GATES, Run, distance_between, forward, from_onnx
from oracles.some import same_bits

import rnnlayout as rl

T = N = 5  # equal, so that the shapes do not show a wrong order


def inputs(rng, spec):
    rows = spec.num_layers * spec.num_directions
    c0 = normal(rng, rows, N, H) if spec.cell == "lstm" else None
    return normal(rng, T, N, I), normal(rng, rows, N, H), c0


def turned(x):
    return np.ascontiguousarray(x.swapaxes(0, 1))


def run_first(rnn, x, h0, c0):
    """Run an RNN whose x is (N, T, I)."""
    y, last = rnn(turned(x), h0 if c0 is None else (h0, c0))
    return Run(y.swapaxes(0, 1), *([last] if c0 is None else last))


def module_of(spec, rng, **options):
    make, _, more = TORCH[spec.cell]
    return fill_torch(
        make(I, H, spec.num_layers, bidirectional=spec.bidirectional, **more, **options), rng
    )


def run_module(module, x, h0, c0):
    state = [torch.from_numpy(a) for a in (h0, c0) if a is not None]
    with torch.no_grad():
        y, last = module(torch.from_numpy(turned(x)), state[0] if c0 is None else tuple(state))
    return Run(y.numpy().swapaxes(0, 1), *(a.numpy() for a in ([last] if c0 is None else last)))


@pytest.mark.parametrize("cell", GATES)
def test_a_torch_module_with_its_batch_first(cell):
    spec = rl.Spec(cell, I, H, 2, True)
    rng = seeded("axes", spec)
    module, given = module_of(spec, rng, batch_first=True), inputs(rng, spec)
    expected = forward(from_onnx(rl.convert(module, to="onnx"), spec), spec, *given)
    theirs = run_module(module, *given)
    for source in (module, rl.Weights(module)):
        rnn = rl.RNN(source)
        assert rnn.batch_first and "batch first" in repr(rnn)
        ours = run_first(rnn, *given)
        assert distance_between(theirs, ours, expected) <= 1  # reference.Rounded
        assert run_first(pickle.loads(pickle.dumps(rnn)), *given).y.tobytes() == ours.y.tobytes()
        x, h0, c0 = given
        y, _ = rl.forward(turned(x), source, state=h0 if c0 is None else (h0, c0))
        assert same_bits(y.swapaxes(0, 1), ours.y)


def test_an_argument_overrides_the_source():
    spec = rl.Spec("gru", I, H)
    rng = seeded("override", spec)
    first, other = module_of(spec, rng, batch_first=True), module_of(spec, rng)
    x, h0, _ = inputs(rng, spec)
    y, _ = rl.RNN(first, batch_first=False)(x, h0)
    assert same_bits(y.swapaxes(0, 1), rl.RNN(first)(turned(x), h0)[0])
    assert same_bits(y, rl.forward(x, first, batch_first=False, state=h0)[0])
    assert not rl.RNN(first, batch_first=False).batch_first
    assert rl.RNN(other, batch_first=True).batch_first and not rl.RNN(other).batch_first


def test_without_a_batch_the_axis_does_not_matter():
    """As in torch: x is (T, I) and y (T, D * P)."""
    spec = rl.Spec("lstm", I, H, 2, True)
    rng = seeded("alone", spec)
    module = module_of(spec, rng, batch_first=True)
    x, h0, c0 = inputs(rng, spec)
    x, h0, c0 = x[:, 2], h0[:, 2], c0[:, 2]
    with torch.no_grad():
        y, (h, c) = module(*(torch.tensor(x), (torch.tensor(h0), torch.tensor(c0))))
    expected = forward(from_onnx(rl.convert(module, to="onnx"), spec), spec,
                       x[:, None], h0[:, None], c0[:, None])  # fmt: skip
    for found_y, (found_h, found_c) in (
        rl.RNN(module)(x, (h0, c0)),
        rl.forward(x, module, state=(h0, c0)),
    ):
        assert found_y.shape == y.shape and found_h.shape == h.shape and found_c.shape == c.shape
        runs = (Run(*(np.asarray(a)[:, None] for a in run))
                for run in ((y, h, c), (found_y, found_h, found_c)))  # fmt: skip
        assert distance_between(*runs, expected) <= 1  # reference.Rounded


def test_an_update_does_not_change_the_axis():
    spec = rl.Spec("gru", I, H)
    rng = seeded("update", spec)
    first, other = module_of(spec, rng, batch_first=True), module_of(spec, rng)
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
