"""assert_same(gradients=True): both frameworks compute the same gradients of one loss."""

import os
import subprocess
import sys

import keras
import pytest
import tf_keras
import torch
from marks import long
from oracles import frameworks
from oracles.frameworks import seeded

import rnnlayout as rl
from rnnlayout._compare import gradients
from rnnlayout.testing import assert_same

pytestmark = [frameworks.KERAS_NOISE, pytest.mark.filterwarnings("ignore:LSTM with projections")]
LSTM, RNN = rl.Spec("lstm", 5, 3, 2, True), rl.Spec("rnn_relu", 5, 3)
GRU = rl.Spec("gru", 5, 3)


def pair(spec, kit=keras):
    """Return a module of torch and layers of Keras with the same weights. Those of Keras have one
    bias per gate of an LSTM, so it is in bias_ih."""
    module = frameworks.torch_module(spec, seeded("pair", spec))
    layers = frameworks.keras_layers(spec, kit)
    rl.assign(layers, rl.convert(module, to="keras"))
    return rl.assign(module, rl.Weights(layers)), layers


def failure(a, b, **options):
    with pytest.raises(AssertionError) as error:
        assert_same(a, b, gradients=True, **options)
    return str(error.value)


@pytest.mark.parametrize(
    "spec, kit", [(LSTM, keras), (GRU, keras), long(RNN, tf_keras), long(LSTM, tf_keras)], ids=str
)
def test_torch_and_keras(spec, kit):
    """Also of one framework alone, and of the cells of torch; nothing is left changed."""
    module, layers = pair(spec, kit)
    module.train()
    before = rl.Weights({name: p.clone() for name, p in module.state_dict().items()}, spec)
    for a, b in (module, layers), (layers, module), (layers, layers):
        assert_same(a, b, gradients=True)
    assert all(p.grad is None for p in module.parameters()) and module.training
    assert_same(module, before)
    if spec.num_layers == 1:
        cell = frameworks.torch_cell(spec)
        rl.assign(cell, rl.convert(module, to="torch-cell"))
        assert_same(cell, layers[0], gradients=True)


def test_a_layer_that_returns_the_last_output_only():
    """Of a bidirectional one: the last of each direction."""
    spec = rl.Spec("gru", 5, 3, bidirectional=True)
    module, _ = pair(spec)
    layer = keras.layers.Bidirectional(keras.layers.GRU(3))
    layer.build((None, None, 5))
    rl.assign(layer, rl.Weights(module))
    assert_same(module, layer, gradients=True)


def test_frozen_parameters_and_changed_gradients_are_named():
    module, layers = pair(GRU)
    twice_z = torch.tensor([[1.0]] * 3 + [[2.0]] * 3 + [[1.0]] * 3)
    module.weight_hh_l0.register_hook(lambda gradient: gradient * twice_z)
    text = failure(module, layers)
    assert text.startswith("the gradients of 1 blocks differ between a and b:\n  layer 0, recurrent"
                           " matrix of gate z: largest difference ")  # fmt: skip
    assert_same(module, layers, gradients=True, rtol=1.01)
    module, layers = pair(GRU)
    layers[0].trainable = False
    assert failure(module, layers).count("\n  layer 0, ") == 12
    module, layers = pair(LSTM)
    module.bias_hh_l1.requires_grad_(False)
    assert "bias_hh_l1[0] is 0: the gradients of both biases of gate i must be equal" in failure(
        module, layers
    )


def test_other_weights_are_reported_before_gradients():
    module, layers = pair(GRU)
    with torch.no_grad():
        module.weight_hh_l0 *= 2
    assert failure(module, layers).startswith("a and b are different: ")


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda m, k: (rl.Weights(m), k), "^a is a Weights, need an RNN that computes gradients"),
        (lambda m, k: (m, m.state_dict()), "^b is a OrderedDict, need an RNN that computes"),
        (lambda m, k: (keras.layers.GRUCell(3), m), "^a is a GRUCell, need"),
    ],
)  # fmt: skip
def test_what_computes_no_gradients(change, words):
    module, layers = pair(GRU)
    a, b = change(module, layers)
    if isinstance(a, keras.layers.GRUCell):
        a.build((None, 5))
        rl.assign(a, rl.Weights(module))
    with pytest.raises(rl.LayoutError, match=words):
        assert_same(a, b, gradients=True)


def test_a_stateful_layer_and_a_merge_mode():
    layer = keras.layers.GRU(3, stateful=True)
    layer.build((2, None, 5))
    with pytest.raises(rl.LayoutError, match="a is stateful"):
        gradients.compare_gradients(layer, layer)
    layer = keras.layers.Bidirectional(keras.layers.GRU(3), merge_mode="sum")
    layer.build((None, None, 5))
    with pytest.raises(rl.LayoutError, match="a has merge_mode 'sum', need 'concat'"):
        gradients.compare_gradients(layer, layer)


def test_the_tolerance_is_neither_loose_nor_tight(monkeypatch):
    """_rounding() derives it. Measured with H from 3 to 256 and L to 6: 0.2 to 2.3 % of it; a gate
    that is swapped or a bias that is counted twice is off by about the largest gradient."""
    module, layers = pair(LSTM)
    allowed = gradients._rounding(LSTM, 2.0**-24)
    assert allowed < 1e-4
    monkeypatch.setattr(gradients, "_rounding", lambda spec, unit: allowed / 4)
    assert_same(module, layers, gradients=True)
    monkeypatch.setattr(gradients, "_rounding", lambda spec, unit: 0)
    assert "differ between a and b" in failure(module, layers)


PROGRAM = """
import keras, torch
import rnnlayout as rl
from rnnlayout.testing import assert_same

module, layer = torch.nn.RNN(5, 3), keras.layers.SimpleRNN(3)
layer.build((None, None, 5))
rl.assign(layer, rl.convert(module, to="keras"))
assert_same(rl.assign(module, layer), layer, gradients=True)
module.weight_hh_l0.requires_grad_(False)
try:
    assert_same(module, layer, gradients=True)
except AssertionError as error:
    print(keras.config.backend(), str(error).splitlines()[0])
"""


@pytest.mark.long
@pytest.mark.parametrize("backend", ["jax", "tensorflow"])
def test_other_backends_of_keras(backend):
    """In a process of its own: Keras chooses its backend at import."""
    environment = os.environ | {"KERAS_BACKEND": backend}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment, text=True, capture_output=True, check=False)
    expected = f"{backend} the gradients of 1 blocks differ between a and b:\n"
    assert done.stdout == expected, done.stderr
