"""Keras 3 layers compute the same on both sides of a conversion."""

import os
import subprocess
import sys

import pytest
from convert.meaning import TORCH, Framework, check_both_ways, check_from, expected_of
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
HARD = "hard_sigmoid"
OTHERS = stacks(["gru"], reset="before") + stacks(["lstm", "gru"], recurrent_activation=HARD)
OTHERS += stacks(["gru"], reset="before", recurrent_activation=HARD)
OTHERS += stacks(["lstm", "gru"], activation="relu")
OTHERS += stacks(["lstm"], recurrent_activation=HARD, activation="relu")
without_cudnn_form = pytest.mark.parametrize("spec", sample(OTHERS, 5), ids=str)


def filled(spec, rng=None):
    layers = keras_layers(spec)
    return fill_keras(layers, rng) if rng else layers


def arrays(layers):
    return [array for layer in layers for array in layer.get_weights()]


KERAS = Framework("keras", filled, run_keras, arrays)


@with_cudnn_form
def test_to_torch_and_back(spec):
    layers, there, given, expected = check_both_ways(KERAS, spec, "torch")
    module = torch_module(spec)
    rl.assign(module, there)
    run = run_keras(layers, *given)
    assert distance_between(run, run_torch(module, *given), expected) <= 1


@without_cudnn_form
def test_to_onnx_and_back(spec):
    check_both_ways(KERAS, spec, "onnx")


@with_cudnn_form
def test_from_torch(spec):
    check_from(TORCH, KERAS, spec)


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
