"""Keras 3 layers compute the same on both sides of a conversion."""

import os
import subprocess
import sys

import pytest
from convert.meaning import Framework, check_both_ways
from marks import sample
from oracles import frameworks
from oracles.frameworks import KERAS_NOISE, H, I, seeded, stacks
from oracles.reference import distance_between

import rnnlayout as rl

ANSWERS_FOR = ("keras",)

pytestmark = KERAS_NOISE


def arrays(layers):
    return [array for layer in layers for array in layer.get_weights()]


# What cuDNN cannot represent: reset before, Keras 3's hard sigmoid x / 6 + 0.5, and relu.
HARD = "hard_sigmoid"
OTHERS = stacks(["gru"], reset="before") + stacks(["lstm", "gru"], recurrent_activation=HARD)
OTHERS += stacks(["gru"], reset="before", recurrent_activation=HARD)
OTHERS += stacks(["lstm", "gru"], activation="relu")
OTHERS += stacks(["lstm"], recurrent_activation=HARD, activation="relu")


def filled(spec, rng=None):
    layers = frameworks.keras_layers(spec)
    return frameworks.fill_keras(layers, rng) if rng else layers


KERAS = Framework("keras", filled, frameworks.run_keras, arrays)


@pytest.mark.parametrize("spec", sample(stacks(), 5), ids=str)
def test_to_torch_and_back(spec):
    layers, there, given, expected = check_both_ways(KERAS, spec, "torch")
    module = frameworks.torch_module(spec)
    rl.assign(module, there)
    run = frameworks.run_keras(layers, *given)
    assert distance_between(run, frameworks.run_torch(module, *given), expected) <= 1


@pytest.mark.parametrize("spec", sample(OTHERS, 7), ids=str)
def test_to_onnx_and_back(spec):
    check_both_ways(KERAS, spec, "onnx")


def test_weights_as_users_have_them():
    """get_weights() of all layers in one list, a list of lists, and Keras's own paths; a layer that
    is not built yet is built."""
    spec = rl.Spec("gru", I, H, bidirectional=True)
    [layer] = layers = filled(spec, seeded("forms", spec))
    flat = rl.pack(layers).tobytes()
    assert rl.pack(layer).tobytes() == flat
    assert rl.pack(layer.get_weights(), spec, layout="keras").tobytes() == flat
    assert rl.pack([layer.get_weights()], spec, layout="keras").tobytes() == flat
    by_path = {w.path: frameworks.keras.ops.convert_to_numpy(w) for w in layer.weights}
    assert all("/backward_" in path or "/forward_" in path for path in by_path)
    assert rl.pack(by_path, spec).tobytes() == flat
    other = frameworks.keras.layers.Bidirectional(frameworks.keras.layers.GRU(H))
    rl.assign(other, layer)
    assert KERAS.bits([other]) == KERAS.bits(layers)


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
