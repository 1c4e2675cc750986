"""Keras 3 layers compute the same on both sides of a conversion."""

import os
import subprocess
import sys

import numpy as np
import pytest
from convert.meaning import expected_of
from marks import sample
from oracles.frameworks import (
    KERAS_NOISE,
    H,
    I,
    fill_keras,
    inputs,
    keras,
    keras_layers,
    run_keras,
    run_torch,
    seeded,
    stacks,
    torch_module,
)
from oracles.reference import GATES, distance, distance_between

import rnnlayout as rl

ANSWERS_FOR = ("keras",)

pytestmark = KERAS_NOISE


with_cudnn_form = pytest.mark.parametrize("spec", sample(stacks(), 5), ids=str)
# What cuDNN cannot represent: reset before, Keras 3's hard sigmoid x / 6 + 0.5, and relu.
without_cudnn_form = pytest.mark.parametrize(
    "spec",
    sample(
        stacks(["gru"], reset="before")
        + stacks(["lstm", "gru"], recurrent_activation="hard_sigmoid")
        + stacks(["gru"], reset="before", recurrent_activation="hard_sigmoid")
        + stacks(["lstm", "gru"], activation="relu")
        + stacks(["lstm"], recurrent_activation="hard_sigmoid", activation="relu"),
        5,
    ),
    ids=str,
)


def filled(spec, rng):
    return fill_keras(keras_layers(spec), rng)


def same_weights(a, b):
    a, b = ([w for layer in layers for w in layer.get_weights()] for layers in (a, b))
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def check_both_ways(spec, to):
    """Convert layers, and back into new ones."""
    rng = seeded("keras", to, spec)
    layers, fresh = filled(spec, rng), keras_layers(spec)
    given = inputs(rng, spec)
    there = rl.convert(layers, to=to)
    expected = expected_of(there, spec, given)
    run = run_keras(layers, *given)
    # 1 is all that float32's rounding explains: reference.Rounded
    assert distance(run, expected) <= 1
    assert not same_weights(fresh, layers)
    rl.assign(fresh, rl.convert(there, spec, to="keras"))
    # every bit came back: equal, not only close
    assert same_weights(fresh, layers)
    for a, b in zip(vars(run_keras(fresh, *given)).values(), vars(run).values(), strict=True):
        assert np.array_equal(a, b)
    return there, given, run, expected


@with_cudnn_form
def test_to_torch_and_back(spec):
    there, given, run, expected = check_both_ways(spec, "torch")
    module = torch_module(spec)
    rl.assign(module, there)
    # each may differ from the exact result by the bound, so the two by twice that
    assert distance_between(run, run_torch(module, *given), expected) <= 1


@without_cudnn_form
def test_to_onnx_and_back(spec):
    check_both_ways(spec, "onnx")


@with_cudnn_form
def test_from_torch(spec):
    rng = seeded("torch to keras", spec)
    module, layers, given = torch_module(spec, rng), keras_layers(spec), inputs(rng, spec)
    rl.assign(layers, rl.convert(module, to="keras"))
    # If Keras has one bias, its rounded sum is one of the additions that reference.Rounded counts.
    expected = expected_of(module, spec, given)
    assert distance_between(run_keras(layers, *given), run_torch(module, *given), expected) <= 1


@pytest.mark.parametrize("cell", GATES)
def test_weights_as_users_have_them(cell):
    """get_weights() of all layers in one list, a list of lists, and Keras's own paths."""
    spec = rl.Spec(cell, I, H, bidirectional=True)
    [layer] = layers = filled(spec, seeded("forms", spec))
    flat = rl.pack(layers).tobytes()
    assert rl.pack(layer).tobytes() == flat
    assert rl.pack(layer.get_weights(), spec, layout="keras").tobytes() == flat
    assert rl.pack([layer.get_weights()], spec, layout="keras").tobytes() == flat
    by_path = {w.path: keras.ops.convert_to_numpy(w) for w in layer.weights}
    assert all("/backward_" in path or "/forward_" in path for path in by_path)
    assert rl.pack(by_path, spec).tobytes() == flat


def test_a_layer_that_is_not_built_yet_is_built():
    spec = rl.Spec("gru", I, H, bidirectional=True)
    rng = seeded("unbuilt", spec)
    module = torch_module(spec, rng)
    layer = keras.layers.Bidirectional(
        keras.layers.GRU(H, return_sequences=True, return_state=True)
    )
    rl.assign(layer, rl.convert(module, to="keras"))
    given = inputs(rng, spec)
    expected = expected_of(module, spec, given)
    assert distance(run_keras([layer], *given), expected) <= 1  # reference.Rounded


@pytest.mark.long
@pytest.mark.parametrize("backend", ["torch", "jax", "tensorflow"])
def test_every_backend_of_keras(backend):
    """One layer of each cell and direction, to torch and back, in a process of its own: Keras
    chooses its backend at import. With torch, every Keras layer is a torch module."""
    command = [sys.executable, "-m", "pytest", "-m", "", __file__, "-k",
               "torch and not num_layers and not none and not backend"]  # fmt: skip
    done = subprocess.run(command, env=os.environ | {"KERAS_BACKEND": backend}, text=True,
                          capture_output=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
