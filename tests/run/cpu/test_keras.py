"""Layers as Keras runs them, with masks as lengths; Keras 2 for its own hard sigmoid."""

import numpy as np
import pytest
import tf_keras
from marks import each_pair
from oracles.frameworks import (
    FORMS,
    KERAS_NOISE,
    RELU_FORMS,
    H,
    I,
    N,
    T,
    fill_keras,
    inputs,
    keras,
    keras_layers,
    run_keras,
    seeded,
)
from oracles.reference import GATES, Run, distance_between, forward, from_onnx

import rnnlayout as rl

pytestmark = KERAS_NOISE

LENGTHS = [3, 5, 0, 1, 4, 5, 2, 5, 1]
CASES = each_pair([
    (rl.Spec(cell, I, H, layers, both, recurrent_activation=squash, **options), has_lengths)
    for cell, options in [*FORMS, *RELU_FORMS]
    for squash in ("sigmoid", "hard_sigmoid", "hard_sigmoid_keras2")
    if squash == "sigmoid" or not cell.startswith("rnn")
    for layers in (1, 2)
    for both in (False, True)
    for has_lengths in (False, True)
], lambda case: (*case[0].to_dict().values(), case[1]))  # fmt: skip


def filled(spec, rng):
    kit = tf_keras if spec.recurrent_activation == "hard_sigmoid_keras2" else keras
    return fill_keras(keras_layers(spec, kit), rng)


def run_ours(layers, x, h0, c0, lengths=None):
    state = h0 if c0 is None else (h0, c0)
    y, last = rl.forward(x, layers, state=state, lengths=lengths, batch_first=False)
    return Run(y, *([last] if c0 is None else last))


def test_sizes_and_lengths_are_those_of_the_batch():
    assert len(LENGTHS) == N and max(LENGTHS) == T and min(LENGTHS) == 0


@pytest.mark.parametrize("spec, has_lengths", CASES, ids=str)
def test_layers_and_masks(spec, has_lengths):
    lengths = LENGTHS if has_lengths else None
    rng = seeded("forward", spec)
    layers, given = filled(spec, rng), inputs(rng, spec)
    expected = forward(from_onnx(rl.convert(layers, to="onnx"), spec), spec, *given, lengths)
    theirs, run = run_keras(layers, *given, lengths), run_ours(layers, *given, lengths)
    if lengths:
        past = np.arange(T)[:, None] >= np.array(lengths)
        assert not run.y[past].any()
        # past the end rl.RNN returns zeros, Keras repeats the last output (docs/forward.md)
        theirs = Run(np.where(past[..., None], 0, theirs.y), theirs.h, theirs.c)
    # Each may be off by what float32's rounding explains, so the two by twice that
    assert distance_between(theirs, run, expected) <= 1  # reference.Rounded


@pytest.mark.parametrize("cell, options", RELU_FORMS)
def test_relu_passes_nan_on(cell, options):
    """As in Keras; onnxruntime's relu and tanh make numbers of it."""
    spec = rl.Spec(cell, I, H, **options)
    rng = seeded("nan", spec)
    layers, (x, h0, c0) = filled(spec, rng), inputs(rng, spec)
    x[2, 3, 4], x[1, 5], x[1, 6] = np.nan, np.inf, -np.inf
    ours, theirs = (np.isnan(run(layers, x, h0, c0).y) for run in (run_ours, run_keras))
    assert np.array_equal(ours, theirs)
    assert ours[2:, 3].all() and ours.any(0)[[5, 6]].all()
    assert not ours[:2, 3].any() and not np.delete(ours, [3, 5, 6], 1).any()


@pytest.mark.parametrize("cell", GATES)
def test_get_weights_in_a_list(cell):
    spec = rl.Spec(cell, I, H)
    rng = seeded("list", spec)
    [layer], (x, h0, c0) = filled(spec, rng), inputs(rng, spec)
    wanted = run_ours(layer, x, h0, c0)
    rnn = rl.RNN(layer.get_weights(), spec, layout="keras")
    y, _ = rnn(x, h0 if c0 is None else (h0, c0))
    assert y.tobytes() == wanted.y.tobytes()
    rnn.update([2 * w for w in layer.get_weights()])  # in the layout of the first ones
    assert (rnn(x, h0 if c0 is None else (h0, c0))[0] != y).any()
