"""Keras 3 layers compute the same on both sides of a conversion."""

import os
import subprocess
import sys

import numpy as np
import pytest
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
    torch_module,
)
from oracles.reference import GATES, distance, distance_between, forward, from_cudnn, from_onnx

import rnnlayout as rl

ANSWERS_FOR = ("keras",)

pytestmark = KERAS_NOISE


def specs(cells=GATES, **options):
    return [
        rl.Spec(cell, I, H, layers, both, bias=bias, **options)
        for cell in cells
        for layers in (1, 2, 3)
        for both in (False, True)
        for bias in ("double", "none")
    ]


with_cudnn_form = pytest.mark.parametrize("spec", sample(specs(), 5), ids=str)
# What cuDNN cannot represent: reset before, Keras 3's hard sigmoid x / 6 + 0.5, and relu.
without_cudnn_form = pytest.mark.parametrize(
    "spec",
    sample(
        specs(["gru"], reset="before")
        + specs(["lstm", "gru"], recurrent_activation="hard_sigmoid")
        + specs(["gru"], reset="before", recurrent_activation="hard_sigmoid")
        + specs(["lstm", "gru"], activation="relu")
        + specs(["lstm"], recurrent_activation="hard_sigmoid", activation="relu"),
        5,
    ),
    ids=str,
)
every_spec = pytest.mark.parametrize(
    "spec", sample(specs() + specs(["gru"], reset="before"), 5), ids=str
)


def filled(spec, rng):
    return fill_keras(keras_layers(spec), rng)


def same_weights(a, b):
    a, b = ([w for layer in layers for w in layer.get_weights()] for layers in (a, b))
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@with_cudnn_form
def test_the_weight_space_runs_as_the_layers_do(spec):
    rng = seeded("keras", spec)
    layers = filled(spec, rng)
    given = inputs(rng, spec)
    expected = forward(from_cudnn(rl.pack(layers), spec), spec, *given)
    # 1 is all that float32's rounding explains: reference.Rounded
    assert distance(run_keras(layers, *given), expected) <= 1


@with_cudnn_form
def test_from_torch_to_keras(spec):
    rng = seeded("torch to keras", spec)
    module = torch_module(spec, rng)
    given = inputs(rng, spec)
    layers = keras_layers(spec)
    rl.assign(layers, rl.convert(module, to="keras"))
    expected = forward(from_cudnn(rl.pack(module), spec), spec, *given)
    # Each may differ from the exact result by the bound, so the two may differ by twice that. If
    # Keras has one bias, its rounded sum is one of the additions that reference.Rounded counts.
    assert distance_between(run_keras(layers, *given), run_torch(module, *given), expected) <= 1


@with_cudnn_form
def test_from_keras_to_torch(spec):
    rng = seeded("keras to torch", spec)
    layers = filled(spec, rng)
    given = inputs(rng, spec)
    module = torch_module(spec)
    rl.assign(module, rl.convert(layers, to="torch"))
    expected = forward(from_cudnn(rl.pack(module), spec), spec, *given)
    assert distance_between(run_keras(layers, *given), run_torch(module, *given), expected) <= 1


@without_cudnn_form
def test_what_only_onnx_can_hold_too(spec):
    rng = seeded("keras to onnx", spec)
    layers = filled(spec, rng)
    given = inputs(rng, spec)
    expected = forward(from_onnx(rl.convert(layers, to="onnx"), spec), spec, *given)
    assert distance(run_keras(layers, *given), expected) <= 1  # reference.Rounded


@without_cudnn_form
@pytest.mark.parametrize("dst", ["cudnn", "torch"])
def test_what_torch_and_cudnn_have_no_form_of(spec, dst):
    hard = spec.recurrent_activation == "hard_sigmoid"
    why = "reset" if spec.reset == "before" else "hard_sigmoid" if hard else "activation 'relu'"
    with pytest.raises(rl.LossyError, match=why):
        rl.convert(filled(spec, seeded("no form", spec)), to=dst)


@every_spec
def test_assigned_in_place_by_way_of_onnx(spec):
    rng = seeded("assign", spec)
    layers, fresh = filled(spec, rng), keras_layers(spec)
    given = inputs(rng, spec)
    assert not same_weights(fresh, layers)
    rl.assign(fresh, rl.convert(rl.convert(layers, to="onnx"), spec, to="keras"))
    # every bit came back: equal, not only close
    assert same_weights(fresh, layers)
    for a, b in zip(vars(run_keras(fresh, *given)).values(),
                    vars(run_keras(layers, *given)).values(), strict=True):  # fmt: skip
        assert np.array_equal(a, b)


@with_cudnn_form
def test_through_the_weight_space_and_back(spec):
    layers, fresh = filled(spec, seeded("round trip", spec)), keras_layers(spec)
    rl.assign(fresh, rl.unpack(rl.pack(layers), spec, to="keras"))
    assert same_weights(fresh, layers)


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
    expected = forward(from_cudnn(rl.pack(module), spec), spec, *given)
    assert distance(run_keras([layer], *given), expected) <= 1  # reference.Rounded


@pytest.mark.long
@pytest.mark.parametrize("backend", ["torch", "jax", "tensorflow"])
def test_every_backend_of_keras(backend):
    """One layer of each cell and direction, to torch and back, in a process of its own: Keras
    chooses its backend at import. With torch, every Keras layer is a torch module."""
    command = [sys.executable, "-m", "pytest", "-m", "", __file__, "-k",
               "(from_torch or from_keras) and not num_layers and not none"]  # fmt: skip
    done = subprocess.run(command, env=os.environ | {"KERAS_BACKEND": backend}, text=True,
                          capture_output=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
