"""ONNX operators as onnxruntime runs them: both resets, reverse, sequence_lens."""

import numpy as np
import pytest
from marks import each_pair
from oracles.frameworks import FORMS, RELU_FORMS, H, I, N, T, inputs, run_onnx, seeded, weight
from oracles.reference import GATES, Run, distance_between, forward, from_onnx

import rnnlayout as rl

LENGTHS = [3, 5, 2, 1, 4, 5, 2, 5, 1]
PEEPHOLES = {"peepholes": True}
ALL_FORMS = [
    *FORMS,
    *RELU_FORMS,
    ("lstm", PEEPHOLES),
    ("lstm", {**PEEPHOLES, "activation": "relu"}),
]
CASES = each_pair([
    (rl.Spec(cell, I, H, layers, both, bias=bias, recurrent_activation=squash, **options),
     has_lengths)
    for cell, options in ALL_FORMS
    for squash in ("sigmoid", "hard_sigmoid", "hard_sigmoid_keras2")
    if squash == "sigmoid" or not cell.startswith("rnn")
    for layers in (1, 2)
    for both in (False, True)
    for bias in ("double", "none")
    for has_lengths in (False, True)
], lambda case: (*case[0].to_dict().values(), case[1]))  # fmt: skip


def tensors_of(spec, rng):
    """Return random tensors; both halves of B are random."""
    return {name: np.stack([weight(rng, shape[1:]) for _ in range(shape[0])])
            for name, shape in rl.describe(spec, "onnx").items()}  # fmt: skip


def run_ours(tensors, spec, x, h0, c0, lengths=None):
    state = h0 if c0 is None else (h0, c0)
    y, last = rl.forward(x, tensors, spec, layout="onnx", state=state, lengths=lengths)
    return Run(y, *([last] if c0 is None else last))


@pytest.mark.parametrize("spec, has_lengths", CASES, ids=str)
def test_operators(spec, has_lengths):
    lengths = LENGTHS if has_lengths else None
    rng = seeded("forward", spec)
    tensors, given = tensors_of(spec, rng), inputs(rng, spec)
    expected = forward(from_onnx(tensors, spec), spec, *given, lengths)
    theirs = run_onnx(tensors, spec, *given, lengths)
    # Each may be off by what float32's rounding explains, so the two by twice that
    ours = run_ours(tensors, spec, *given, lengths)
    assert distance_between(theirs, ours, expected) <= 1  # reference.Rounded


@pytest.mark.parametrize(("cell", "options"), ALL_FORMS)
def test_reverse(cell, options):
    """An operator that runs backward equals a forward one over the reversed x."""
    spec = rl.Spec(cell, I, H, **options)
    rng = seeded("reverse", spec)
    tensors, (x, h0, c0) = tensors_of(spec, rng), inputs(rng, spec)
    theirs = run_onnx(tensors, spec, x, h0, c0, direction="reverse")
    ours = run_ours(tensors, spec, x[::-1], h0, c0)
    expected = forward(from_onnx(tensors, spec), spec, x[::-1], h0, c0)
    theirs = Run(theirs.y[::-1], theirs.h, theirs.c)
    assert distance_between(theirs, ours, expected) <= 1  # reference.Rounded


def test_the_batch_has_all_lengths():
    assert len(LENGTHS) == N and max(LENGTHS) == T and set(GATES) == {cell for cell, _ in FORMS}
