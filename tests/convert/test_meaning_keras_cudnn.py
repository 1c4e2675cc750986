"""CuDNNLSTM and CuDNNGRU of Keras 2, which Keras 3 can no longer load, and the weights of Keras 1.

The layers are tf_keras's own, and what these weights mean is defined by its own loader: it puts
them into a plain LSTM or GRU, which runs on a CPU.
"""

import numpy as np
import pytest
import tf_keras
from convert.meaning import Framework, check_both_ways, check_meaning, expected_of
from marks import sample
from oracles import frameworks
from oracles.frameworks import KERAS_NOISE, H, I, fill_keras, inputs, keras_layers, seeded
from oracles.reference import distance_between
from tf_keras.src.layers.rnn.cudnn_gru import CuDNNGRU
from tf_keras.src.layers.rnn.cudnn_lstm import CuDNNLSTM
from tf_keras.src.saving.legacy.hdf5_format import preprocess_weights_for_loading

import rnnlayout as rl

ANSWERS_FOR = ("keras-cudnn", "keras1")

pytestmark = KERAS_NOISE


def arrays(layers):
    return [array for layer in layers for array in layer.get_weights()]


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
    return fill_keras(layers, rng) if rng else layers


def loaded(layers, source):
    """Fill layers as tf_keras does from a file with layers of the other kind."""
    for layer, other in zip(layers, source, strict=True):
        layer.set_weights(preprocess_weights_for_loading(layer, other.get_weights(), "2"))
    return layers


def plain(layers):
    """Return the plain layers that tf_keras loads these into."""
    return loaded(keras_layers(rl.Weights(layers).spec, tf_keras), layers)


FRAMEWORK = Framework("keras-cudnn", cudnn_layers, lambda layers, *given:
                      frameworks.run_keras(plain(layers), *given), arrays)  # fmt: skip


def same_arrays(a, b):
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@every_spec
def test_to_torch_and_back_and_to_plain_layers(spec):
    source, there, *_ = check_both_ways(FRAMEWORK, spec, "torch")
    if spec.cell == "lstm":  # only the sum shows in outputs: the input's biases are the first half
        first_half, _ = np.split(source[0].get_weights()[2], 2)
        assert np.array_equal(there["bias_ih_l0"], first_half)
    # An LSTM's bias is a sum, rounded once: rnnlayout adds in double, tf_keras in float32. A double
    # has 53 bits, more than 2 * 24 + 2, so rounding its sum to float32 gives the same bits.
    assert same_arrays(list(rl.convert(source, to="keras").values()), arrays(plain(source)))


@every_spec
def test_from_keras_3(spec):
    layers = fill_keras(keras_layers(spec), seeded("keras to keras-cudnn", spec))
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
    layers = fill_keras(keras_layers(spec), rng)
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
    layers = keras_layers(spec, tf_keras)
    read = preprocess_weights_for_loading(layers[0], list(old.values()), "1", "tensorflow")
    assert same_arrays(list(rl.convert(old, spec, layout="keras1", to="keras").values()), read)
    layers[0].set_weights(read)
    check_meaning("keras1", old, spec, lambda *given: frameworks.run_keras(layers, *given))
    if cell == "lstm":  # the layout has all W, then all U, then all b: a list would be read wrongly
        with pytest.raises(rl.LayoutError):
            rl.infer_spec([*old.values()], "keras1")
