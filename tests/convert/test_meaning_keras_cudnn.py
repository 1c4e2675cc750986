"""CuDNNLSTM and CuDNNGRU of Keras 2, which Keras 3 can no longer load.

The layers are tf_keras's own. They do not run on a CPU; what their weights mean is defined by
tf_keras's own loader, which puts the weights of a CuDNN layer into a plain LSTM or GRU that does.
"""

import numpy as np
import pytest
import tf_keras
from convert.meaning import Framework, check_both_ways, expected_of
from marks import sample
from oracles.frameworks import (
    KERAS_NOISE,
    H,
    I,
    fill_keras,
    inputs,
    keras_layers,
    run_keras,
    seeded,
)
from oracles.reference import distance, distance_between
from tf_keras.src.layers.rnn.cudnn_gru import CuDNNGRU
from tf_keras.src.layers.rnn.cudnn_lstm import CuDNNLSTM
from tf_keras.src.saving.legacy.hdf5_format import preprocess_weights_for_loading

import rnnlayout as rl

ANSWERS_FOR = ("keras-cudnn",)

pytestmark = KERAS_NOISE

CUDNN = {"lstm": CuDNNLSTM, "gru": CuDNNGRU}
SPECS = [rl.Spec(cell, I, H, layers, both)
         for cell in CUDNN for layers in (1, 2, 3) for both in (False, True)]  # fmt: skip
every_spec = pytest.mark.parametrize("spec", sample(SPECS, 5), ids=str)


def cudnn_layers(spec):
    layers = []
    for k in range(spec.num_layers):
        layer = CUDNN[spec.cell](spec.hidden_size, return_sequences=True)
        if spec.bidirectional:
            layer = tf_keras.layers.Bidirectional(layer)
        layer.build((None, None, spec.num_directions * H if k else I))
        layers.append(layer)
    return layers


def loaded(layers, source):
    """Fill layers as tf_keras does from a file with layers of the other kind."""
    for layer, other in zip(layers, source, strict=True):
        layer.set_weights(preprocess_weights_for_loading(layer, other.get_weights(), "2"))
    return layers


def arrays(layers):
    return [array for layer in layers for array in layer.get_weights()]


def same_arrays(a, b):
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@every_spec
def test_their_loader_gives_the_same_arrays_and_they_compute_the_same(spec):
    rng = seeded("keras-cudnn to keras", spec)
    source, given = filled(spec, rng), inputs(rng, spec)
    theirs = loaded(keras_layers(spec, tf_keras), source)
    ours = list(rl.convert(source, to="keras").values())
    # An LSTM's bias is a sum, rounded once: rnnlayout adds in double, tf_keras in float32. A double
    # has 53 bits, more than 2 * 24 + 2, so rounding its sum to float32 gives the same bits.
    assert same_arrays(ours, arrays(theirs))
    expected = expected_of(source, spec, given)
    # 1 is all that float32's rounding explains: reference.Rounded
    assert distance(run_keras(theirs, *given), expected) <= 1


def filled(spec, rng=None):
    layers = cudnn_layers(spec)
    return fill_keras(layers, rng) if rng else layers


def run_loaded(layers, *given):
    """Run the plain layers that tf_keras loads the weights into."""
    spec = rl.Weights(layers).spec
    return run_keras(loaded(keras_layers(spec, tf_keras), layers), *given)


@every_spec
def test_to_torch_and_back(spec):
    source, there, *_ = check_both_ways(
        Framework("keras-cudnn", filled, run_loaded, arrays), spec, "torch"
    )
    if spec.cell == "lstm":  # only the sum shows in outputs: the input's biases are the first half
        first_half, _ = np.split(source[0].get_weights()[2], 2)
        assert np.array_equal(there["bias_ih_l0"], first_half)


@every_spec
def test_from_keras_3(spec):
    rng = seeded("keras to keras-cudnn", spec)
    layers = fill_keras(keras_layers(spec), rng)
    ours = cudnn_layers(spec)
    rl.assign(ours, rl.convert(layers, to="keras-cudnn"))
    theirs = loaded(cudnn_layers(spec), layers)
    if spec.cell == "gru":
        assert same_arrays(arrays(ours), arrays(theirs))
    # tf_keras halves an LSTM's bias, rnnlayout puts all of it in bW: the sum has the same bits.
    assert same_arrays(*(list(rl.convert(x, to="keras").values()) for x in (ours, theirs)))
    assert same_arrays(arrays(loaded(keras_layers(spec, tf_keras), ours)), arrays(layers))

    given = inputs(rng, spec)
    expected = expected_of(ours, spec, given)
    assert distance(run_keras(layers, *given), expected) <= 1  # reference.Rounded


@pytest.mark.parametrize("cell", CUDNN)
def test_a_layer_without_bias_becomes_one_of_zero_bias(cell):
    """Keras 2's loader passes such weights on unchanged, without transposing them."""
    spec = rl.Spec(cell, I, H, bidirectional=True, bias="none")
    rng = seeded("no bias", spec)
    layers = fill_keras(keras_layers(spec), rng)
    with_bias = spec.replace(bias="double")
    ours = cudnn_layers(with_bias)
    rl.assign(ours, rl.convert(layers, with_bias, to="keras-cudnn"))
    given = inputs(rng, spec)
    theirs = run_keras(loaded(keras_layers(with_bias, tf_keras), ours), *given)
    expected = expected_of(layers, spec, given)
    assert distance_between(run_keras(layers, *given), theirs, expected) <= 1  # reference.Rounded


def test_a_reset_before_gru_has_no_cudnn_layer():
    spec = rl.Spec("gru", I, H, reset="before")
    layers = fill_keras(keras_layers(spec), seeded("before", spec))
    with pytest.raises(rl.LossyError, match="reset"):
        rl.convert(layers, to="keras-cudnn")
    with pytest.raises(ValueError, match="not compatible"):  # nor has it one for tf_keras
        loaded(cudnn_layers(rl.Spec("gru", I, H)), layers)
