"""Layers of Keras 3, of Keras 2 for cuDNN, and the weights of Keras 1: what they compute.

CuDNNLSTM and CuDNNGRU, which Keras 3 can no longer load, are tf_keras's own. What their weights and
those of Keras 1 mean is defined by its loader: it puts them into a plain LSTM or GRU, which runs on
a CPU.
"""

import os
import subprocess
import sys

import numpy as np
import pytest
import tf_keras
from convert.meaning import Framework, check_both_ways, check_meaning, expected_of
from marks import sample
from oracles import frameworks
from oracles.frameworks import KERAS_NOISE, H, I, inputs, seeded, stacks
from oracles.reference import distance_between
from tf_keras.src.layers.rnn.cudnn_gru import CuDNNGRU
from tf_keras.src.layers.rnn.cudnn_lstm import CuDNNLSTM
from tf_keras.src.saving.legacy.hdf5_format import preprocess_weights_for_loading

import rnnlayout as rl

ANSWERS_FOR = ("keras", "keras-cudnn", "keras1")

pytestmark = KERAS_NOISE


def arrays(layers):
    return [array for layer in layers for array in layer.get_weights()]


# --------------------------------------------------------------------------------------- Keras 3

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


# ------------------------------------------------------------ Keras 2: CuDNNLSTM and CuDNNGRU

CUDNN = {"lstm": CuDNNLSTM, "gru": CuDNNGRU}
SPECS = [rl.Spec(cell, I, H, layers, both)
         for cell in CUDNN for layers in (1, 2, 3) for both in (False, True)]  # fmt: skip
every_spec = pytest.mark.parametrize("spec", sample(SPECS, 5), ids=str)


def cudnn_layers(spec, rng=None):
    layers = []
    for k in range(spec.num_layers):
        layer = CUDNN[spec.cell](spec.hidden_size, return_sequences=True)
        if spec.bidirectional:
            layer = tf_keras.layers.Bidirectional(layer)
        layer.build((None, None, spec.num_directions * H if k else I))
        layers.append(layer)
    return frameworks.fill_keras(layers, rng) if rng else layers


def loaded(layers, source):
    """Fill layers as tf_keras does from a file with layers of the other kind."""
    for layer, other in zip(layers, source, strict=True):
        layer.set_weights(preprocess_weights_for_loading(layer, other.get_weights(), "2"))
    return layers


def plain(layers):
    """Return the plain layers that tf_keras loads these into."""
    return loaded(frameworks.keras_layers(rl.Weights(layers).spec, tf_keras), layers)


FRAMEWORK = Framework("keras-cudnn", cudnn_layers, lambda layers, *given:
                      frameworks.run_keras(plain(layers), *given), arrays)  # fmt: skip


def same_arrays(a, b):
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@every_spec
def test_cudnn_to_torch_and_back_and_to_plain_layers(spec):
    source, there, *_ = check_both_ways(FRAMEWORK, spec, "torch")
    if spec.cell == "lstm":  # only the sum shows in outputs: the input's biases are the first half
        first_half, _ = np.split(source[0].get_weights()[2], 2)
        assert np.array_equal(there["bias_ih_l0"], first_half)
    # An LSTM's bias is a sum, rounded once: rnnlayout adds in double, tf_keras in float32. A double
    # has 53 bits, more than 2 * 24 + 2, so rounding its sum to float32 gives the same bits.
    assert same_arrays(list(rl.convert(source, to="keras").values()), arrays(plain(source)))


@every_spec
def test_cudnn_from_keras_3(spec):
    layers = filled(spec, seeded("keras to keras-cudnn", spec))
    ours = cudnn_layers(spec)
    rl.assign(ours, rl.convert(layers, to="keras-cudnn"))
    theirs = loaded(cudnn_layers(spec), layers)
    if spec.cell == "gru":
        assert same_arrays(arrays(ours), arrays(theirs))
    # tf_keras halves an LSTM's bias, rnnlayout puts all of it in bW: the sum has the same bits.
    assert same_arrays(*(list(rl.convert(x, to="keras").values()) for x in (ours, theirs)))
    assert same_arrays(arrays(plain(ours)), arrays(layers))


@pytest.mark.parametrize("cell", CUDNN)
def test_a_layer_without_bias_becomes_one_of_zero_bias(cell):
    """Keras 2's loader passes such weights on unchanged, without transposing them."""
    spec = rl.Spec(cell, I, H, bidirectional=True, bias="none")
    rng = seeded("no bias", spec)
    layers = filled(spec, rng)
    ours = cudnn_layers(spec)
    rl.assign(ours, rl.convert(layers, spec.replace(bias="double"), to="keras-cudnn"))
    given = inputs(rng, spec)
    run, theirs = (frameworks.run_keras(one, *given) for one in (layers, plain(ours)))
    # reference.Rounded
    assert distance_between(run, theirs, expected_of(layers, spec, given)) <= 1


# --------------------------------------------------------------------------------------- Keras 1

# cell, its gates in the order of Keras 1, whose list has W, U and b of one gate after the other
KERAS1 = {"lstm": ["_i", "_c", "_f", "_o"], "gru": ["_z", "_r", "_h"], "rnn_tanh": [""]}


@pytest.mark.parametrize("cell", KERAS1)
def test_weights_of_keras_1_are_read_as_keras_2_reads_them(cell):
    rng, shapes = seeded("keras 1", cell), {"W": (I, H), "U": (H, H), "b": (H,)}
    old = {f"{name}{gate}": frameworks.weight(rng, shape)
           for gate in KERAS1[cell] for name, shape in shapes.items()}  # fmt: skip
    spec = rl.Spec(cell, I, H, reset="before" if cell == "gru" else "after")
    layers = frameworks.keras_layers(spec, tf_keras)
    read = preprocess_weights_for_loading(layers[0], list(old.values()), "1", "tensorflow")
    assert same_arrays(list(rl.convert(old, spec, layout="keras1", to="keras").values()), read)
    layers[0].set_weights(read)
    check_meaning("keras1", old, spec, lambda *given: frameworks.run_keras(layers, *given))
    if cell == "lstm":  # the layout has all W, then all U, then all b: a list would be read wrongly
        with pytest.raises(rl.LayoutError):
            rl.infer_spec([*old.values()], "keras1")
