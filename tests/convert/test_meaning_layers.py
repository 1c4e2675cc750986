"""Modules of PyTorch, layers of Keras 3, of Keras 2 and of Keras 1, and ONNX operators: their
weights mean after a conversion what they compute, and come back bit for bit.

One other layout for each is enough: test_laws.py has that a -> b -> c is a -> c.
"""

import os
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import tf_keras
import torch
from convert.meaning import Framework, check_both_ways, check_meaning, expected_of
from marks import sample
from oracles import frameworks
from oracles.frameworks import (
    KERAS_NOISE,
    H,
    I,
    P,
    fill_keras,
    inputs,
    keras_layers,
    seeded,
    stacks,
)
from oracles.reference import GATES, distance
from tf_keras.src.layers.rnn.cudnn_gru import CuDNNGRU
from tf_keras.src.layers.rnn.cudnn_lstm import CuDNNLSTM
from tf_keras.src.saving.legacy.hdf5_format import preprocess_weights_for_loading

import rnnlayout as rl

ANSWERS_FOR = ("cudnn", "torch", "torch-cell", "keras", "keras-cudnn", "keras1", "onnx")

# oneDNN has no projection: torch warns and takes another path
pytestmark = [KERAS_NOISE, pytest.mark.filterwarnings("ignore:LSTM with projections is not")]


def parameters(module):
    return [parameter.detach().numpy() for parameter in module.parameters()]


def arrays(layers):
    return [array for layer in layers for array in layer.get_weights()]


def filled(spec, rng=None):
    return fill_keras(keras_layers(spec), rng or seeded("another", spec))


CUDNN = {"lstm": CuDNNLSTM, "gru": CuDNNGRU}


def cudnn_layers(spec, rng=None):
    layers = []
    for k in range(spec.num_layers):
        layer = CUDNN[spec.cell](spec.hidden_size, return_sequences=True)
        if spec.bidirectional:
            layer = tf_keras.layers.Bidirectional(layer)
        layer.build((None, None, spec.num_directions * H if k else I))
        layers.append(layer)
    return fill_keras(layers, rng or seeded("another", spec))


def run_plain(layers, *given):
    """Run the plain layers into which tf_keras's own loader puts the weights of cuDNN's, which need
    a GPU."""
    plain = keras_layers(rl.Weights(layers).spec, tf_keras)
    for layer, source in zip(plain, layers, strict=True):
        layer.set_weights(preprocess_weights_for_loading(layer, source.get_weights(), "2"))
    return frameworks.run_keras(plain, *given)


TORCH = Framework("torch", frameworks.torch_module, frameworks.run_torch, parameters)
CELL = Framework("torch-cell", frameworks.torch_cell, frameworks.run_torch_cell, parameters)
KERAS = Framework("keras", filled, frameworks.run_keras, arrays)
KERAS_2 = Framework("keras-cudnn", cudnn_layers, run_plain, arrays)


def others(layers=(1, 2, 3), *hard):
    """Return what cuDNN cannot represent: reset before, hard sigmoids, relu."""
    found = stacks(["gru"], layers, reset="before")
    found += stacks(["lstm", "gru"], layers, activation="relu")
    for one in hard:
        found += stacks(["lstm", "gru"], layers, recurrent_activation=one)
        found += stacks(["gru"], layers, reset="before", recurrent_activation=one)
        found += stacks(["lstm"], layers, recurrent_activation=one, activation="relu")
    return found


CASES = [
    *sample([(TORCH, spec) for spec in stacks() + stacks(["lstm"], proj_size=P)], 7),
    *((CELL, rl.Spec(cell, I, H, bias=bias)) for cell in GATES for bias in ("double", "none")),
    *sample([(KERAS, spec) for spec in stacks() + others((1, 2, 3), "hard_sigmoid")], 7),
    *sample([(KERAS_2, spec) for spec in stacks(CUDNN) if spec.bias == "double"], 5),
]


@pytest.mark.parametrize("framework, spec", CASES, ids=str)
def test_both_ways(framework, spec):
    check_both_ways(framework, spec)


# Those of Keras 2's hard sigmoid too.
OPERATORS = stacks() + others((1, 2), "hard_sigmoid", "hard_sigmoid_keras2")


@pytest.mark.parametrize("spec", sample(OPERATORS, 5), ids=str)
def test_operators_of_onnx(spec):
    tensors = frameworks.onnx_tensors(spec, seeded("onnx", spec))
    check_meaning("onnx", tensors, spec, partial(frameworks.run_onnx, tensors, spec))


@pytest.mark.parametrize("cell", GATES)
def test_an_operator_without_B_has_biases_of_zero(cell):
    spec = rl.Spec(cell, I, H, 2, bidirectional=True)
    rng = seeded("no B", spec)
    tensors, given = frameworks.onnx_tensors(spec.replace(bias="none"), rng), inputs(rng, spec)
    # run without B, against a weight space that has biases; 1: reference.Rounded
    expected = expected_of(tensors, spec, given, "onnx")
    assert distance(frameworks.run_onnx(tensors, spec, *given), expected) <= 1


# ---------------------------------------------------------------------------------------- torch

# cuDNN's modes with one bias: outside r (R h + bR) in mode "input", inside it in "recurrent".
ONE_BIAS = {"input": ("bW", "bias_hh"), "recurrent": ("bR", "bias_ih")}


@pytest.mark.parametrize("cell", GATES)
@pytest.mark.parametrize("mode", ONE_BIAS)
def test_two_biases_of_torch_as_one(cell, mode):
    kept, absent = ONE_BIAS[mode]
    spec = rl.Spec(cell, I, H, 2, bidirectional=True, bias=mode)
    rng = seeded("one bias", spec)
    module = frameworks.torch_module(spec, rng)
    if cell == "gru":
        with pytest.raises(rl.LossyError, match=absent):
            rl.pack(module, spec)
        with torch.no_grad():  # the candidate's rows are the last third
            for name, parameter in module.named_parameters():
                if name.startswith(absent):
                    parameter[2 * H :] = 0
    assert set(rl.regions(spec)["role"]) == {"W", "R", kept}
    given = inputs(rng, spec)
    expected = expected_of(module, spec, given)
    fresh = frameworks.torch_module(spec)
    rl.assign(fresh, rl.unpack(rl.pack(module, spec), spec, to="torch"))
    # bW + bR is rounded once, as in any float32 sum of the two: reference.Rounded
    assert distance(frameworks.run_torch(module, *given), expected) <= 1
    assert distance(frameworks.run_torch(fresh, *given), expected) <= 1


# ---------------------------------------------------------------------------------------- Keras


def test_weights_of_keras_as_users_have_them():
    """get_weights() of all layers in one list, a list of lists, and Keras's own paths; a layer that
    is not built yet is built."""
    spec = rl.Spec("gru", I, H, bidirectional=True)
    (layer,) = layers = filled(spec)
    flat = rl.pack(layers).tobytes()
    by_path = {w.path: frameworks.keras.ops.convert_to_numpy(w) for w in layer.weights}
    assert all("/backward_" in path or "/forward_" in path for path in by_path)
    for source, options in [
        (layer, {}), (layer.get_weights(), {"layout": "keras"}),
        ([layer.get_weights()], {"layout": "keras"}), (by_path, {}),
    ]:  # fmt: skip
        assert rl.pack(source, spec, **options).tobytes() == flat
    other = frameworks.keras.layers.Bidirectional(frameworks.keras.layers.GRU(H))
    rl.assign(other, layer)
    assert all(map(np.array_equal, arrays([other]), arrays(layers)))


@pytest.mark.long
@pytest.mark.parametrize("backend", ["jax", "tensorflow"])
def test_other_backends_of_keras(backend):
    """One layer of each cell and direction, in a process of its own: Keras chooses its backend at
    import. These tests themselves use torch, where every Keras layer is a torch module."""
    command = [sys.executable, "-m", "pytest", "-m", "", __file__, "-k",
               "both_ways and keras and not cudnn and not num_layers and not none"]  # fmt: skip
    done = subprocess.run(command, env=os.environ | {"KERAS_BACKEND": backend}, text=True,
                          capture_output=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_first_half_of_the_biases_of_a_CuDNNLSTM_is_the_inputs():
    """Only their sum shows in outputs."""
    (layer,) = cudnn_layers(rl.Spec("lstm", I, H))
    first_half, _ = np.split(layer.get_weights()[2], 2)
    assert np.array_equal(rl.convert(layer, to="torch")["bias_ih_l0"], first_half)


# cell, its gates in the order of Keras 1, whose list has W, U and b of one gate after the other
KERAS_1 = {"lstm": ["_i", "_c", "_f", "_o"], "gru": ["_z", "_r", "_h"], "rnn_tanh": [""]}


@pytest.mark.parametrize("cell", KERAS_1)
def test_weights_of_keras_1_are_read_as_keras_2_reads_them(cell):
    rng, shapes = seeded("keras 1", cell), {"W": (I, H), "U": (H, H), "b": (H,)}
    old = {f"{name}{gate}": frameworks.weight(rng, shape)
           for gate in KERAS_1[cell] for name, shape in shapes.items()}  # fmt: skip
    spec = rl.Spec(cell, I, H, reset="before" if cell == "gru" else "after")
    (layer,) = layers = keras_layers(spec, tf_keras)
    layer.set_weights(preprocess_weights_for_loading(layer, list(old.values()), "1", "tensorflow"))
    check_meaning("keras1", old, spec, partial(frameworks.run_keras, layers))
    if cell == "lstm":  # the layout has all W, then all U, then all b: a list would be read wrongly
        with pytest.raises(rl.LayoutError):
            rl.infer_spec([*old.values()], "keras1")
