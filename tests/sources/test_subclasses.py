"""Subclasses of a framework's layers that compute something else: they were run as their base.

What an error advises is done as it is printed, and compared with what the framework computes.
"""

import re
from functools import cache
from types import SimpleNamespace

import equinox as eqx
import jax
import keras
import numpy as np
import pytest
import tf_keras
import torch
import torch.ao.nn.quantized.reference as reference
from flax import nnx
from oracles.frameworks import KERAS_NOISE, seeded, torch_module
from oracles.jax_cells import equinox_cell, nnx_cell
from oracles.some import same_bits

import rnnlayout as rl

pytestmark = KERAS_NOISE
KITS = pytest.mark.parametrize("kit", [keras, tf_keras], ids=["keras", "tf_keras"])
T, N, I, H = 3, 2, 5, 4  # noqa: E741
X = seeded("subclasses").standard_normal((N, T, I)).astype(np.float32)
# sums of at most I + H + 2 numbers below 1 in each of T steps, in either
ATOL = 2 * T * (I + H + 2) * 2.0**-24


def refused(source, *parts, call=rl.Weights):
    with pytest.raises(rl.LayoutError) as caught:
        call(source)
    for part in parts:
        assert part in str(caught.value)
    return str(caught.value)


def assign_to(target):
    return rl.assign(target, torch_module(rl.Spec("gru", I, H), seeded("source")))


def advised(error, **names):
    """Return the weights that an error says how to read, and the batch axis that it names."""
    call = re.search(r"computes the same, pass (rl\.Weights\(.*\))", error)[1]
    call = call.split("; ")[0]
    weights = eval(call, {"rl": rl, "nnx": nnx, **names})
    if config := re.search(r"\.config = (\{.*?\})", error):
        weights.config = eval(config[1])
    return weights, {"batch_first": True} if "batch_first=True" in error else {}


# -------------------------------------------------------------------------------------------- torch


class Normed(torch.nn.LSTM):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.ln = torch.nn.LayerNorm(self.hidden_size)


class Scaled(torch.nn.GRU):
    """Its parameter has a name like those of a computed weight."""

    def __init__(self, *args):
        super().__init__(*args)
        self.weight_hh_l0_scale = torch.nn.Parameter(torch.ones(()))


class Packed(torch.nn.RNN):
    """Its forward() changes nothing."""

    def forward(self, x, state=None):
        self.flatten_parameters()
        return super().forward(x, state)


class Called(torch.nn.LSTMCell):
    def __call__(self, *args):
        h, c = super().__call__(*args)
        return -h, c


def double(module, *args):
    raise AssertionError("a refused module is not called")


def with_hook(*args):
    module = torch.nn.LSTM(*args)
    module.register_forward_hook(double)
    return module


def with_pre_hook(*args):
    module = torch.nn.LSTM(*args)
    module.register_forward_pre_hook(double)
    return module


def with_own_forward(*args):
    module = torch.nn.GRU(*args)
    module.forward = lambda x: x
    return module


def own(*args):
    """It was a KeyError, and so was the next one."""
    return torch.nn.RNNCellBase(*args, bias=True, num_chunks=4)


def quantized(*args):
    """Return a cell that rounds its weights in each call."""
    given = {"qscheme": torch.per_tensor_affine, "dtype": torch.qint8, "scale": 0.1,
             "zero_point": 0, "is_decomposed": False}  # fmt: skip
    parts = {"weight_ih": given, "weight_hh": given, "is_decomposed": False}
    return reference.LSTMCell(*args, weight_qparams_dict=parts)


@pytest.mark.parametrize("make, parts", [
    (Normed, ("Normed", "'ln.weight'", "'ln.bias'")),
    (Scaled, ("Scaled", "'weight_hh_l0_scale'")),
    (Packed, ("Packed overrides forward() of RNN",)),
    (Called, ("Called overrides __call__() of LSTMCell",)),
    (with_own_forward, ("GRU overrides forward() of GRU",)),
    (with_hook, ("LSTM has the forward hook double",)),
    (with_pre_hook, ("LSTM has the forward hook double",)),
    (quantized, ("LSTMCell stores rounded weights",)),
    (own, ("RNNCellBase is not an nn.LSTM",)),
])  # fmt: skip
def test_what_a_torch_module_has_beside_its_base_is_not_left_out(make, parts):
    module = make(I, H)
    refused(module, *parts)
    if make in (Normed, Scaled):
        refused(module, parts[1], call=lambda m: rl.assign(m, rl.Weights(make.__base__(I, H))))


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_the_state_dict_of_a_torch_subclass(nonlinearity):
    module = Packed(I, H, nonlinearity=nonlinearity, batch_first=True, bidirectional=True)
    error = refused({"epoch": 7, "model": module})
    repair = re.search(r"pass its (\['model'\]\S*)", error)[1]
    state = eval(f"source{repair}", {"source": {"model": module}})
    found = rl.Weights(state, cell=f"rnn_{nonlinearity}")
    module.register_buffer("calls", torch.zeros(2))
    weights, axes = advised(refused(module), module=module)
    assert weights == found
    y = rl.forward(X, weights, **axes)[0]
    np.testing.assert_allclose(y, module(torch.tensor(X))[0].detach(), atol=ATOL)


@pytest.mark.parametrize("register", [
    torch.nn.modules.module.register_module_forward_hook,
    torch.nn.modules.module.register_module_forward_pre_hook,
])  # fmt: skip
def test_a_hook_on_all_modules(register):
    handle = register(double)
    try:
        refused(torch.nn.LSTM(I, H), "LSTM has the forward hook double")
    finally:
        handle.remove()
    rl.pack(torch.nn.LSTM(I, H))


class PeepholeLSTM(torch.nn.LSTM):
    """A known name, with a forward() of its own."""

    def forward(self, x):
        raise AssertionError("a refused module is not called")


class LayerNormLSTMCell(torch.nn.LSTMCell):
    """A known name, with further parameters."""

    def __init__(self, *args):
        super().__init__(*args)
        self.ln = torch.nn.LayerNorm(self.hidden_size)


@pytest.mark.parametrize("make, difference", [
    (PeepholeLSTM, "its tensors look like those of LSTM, but its gates also read"),
    (LayerNormLSTMCell, "it normalizes the sums"),
])  # fmt: skip
def test_a_class_that_is_known_to_compute_something_else(make, difference):
    """ "if it computes the same, pass ..." was said of it."""
    with pytest.raises(rl.LayoutError, match=f"is not supported: {difference}"):
        rl.pack(make(I, H))


def test_what_changes_no_output_is_allowed():
    """A class that torch makes: test_computed_weights.py."""
    module = type("Plain", (torch.nn.LSTM,), {"reset": lambda self: None})(I, H)
    module.compile()
    assert same_bits(rl.pack(module), rl.pack(module.state_dict()))
    target, source = Packed(I, H), torch_module(rl.Spec("rnn_tanh", I, H), seeded("target"))
    rl.assign(target, source)
    assert torch.equal(target(torch.tensor(X))[0], source(torch.tensor(X))[0])


# -------------------------------------------------------------------------------------------- Keras


@cache
def keras_classes(kit):
    @kit.saving.register_keras_serializable()
    class DoubledCell(kit.layers.GRUCell):
        def call(self, x, states, **options):
            y, states = super().call(x, states, **options)
            return 2 * y, states

    @kit.saving.register_keras_serializable()
    class Gained(kit.layers.GRU):
        def build(self, shape):
            super().build(shape)
            self.gain = self.add_weight(name="gain", shape=(2,))

    @kit.saving.register_keras_serializable()
    class Same(kit.layers.GRU):
        def call(self, *args, **options):
            return super().call(*args, **options)

    @kit.saving.register_keras_serializable()
    class Called(kit.layers.GRU):
        def __call__(self, *args, **options):
            return -super().__call__(*args, **options)

    return SimpleNamespace(DoubledCell=DoubledCell, Gained=Gained, Same=Same, Called=Called)


CELL = "DoubledCell overrides call() of GRUCell"


@KITS
@pytest.mark.parametrize("make, text", [
    (lambda L, own: L.Bidirectional(own.Same(H)), "Same overrides call() of GRU"),
    (lambda L, own: own.Called(H), "Called overrides __call__() of GRU"),
    (lambda L, own: own.DoubledCell(H), CELL),
    (lambda L, own: L.RNN([L.GRUCell(H), own.DoubledCell(H)]), CELL),
    (lambda L, own: own.Gained(H), "gain"),
    (lambda L, own: L.Bidirectional(own.Gained(H)), "gain"),
])  # fmt: skip
def test_what_a_keras_layer_has_beside_its_base_is_not_left_out(kit, make, text):
    layer = make(kit.layers, keras_classes(kit))
    layer.build((N, T, I))
    refused(layer, text)
    if text == "gain":
        before = layer.get_weights()
        refused(layer, call=assign_to)
        assert all(map(np.array_equal, layer.get_weights(), before))
    plain = kit.layers.GRU(H)
    plain.cell = keras_classes(kit).DoubledCell(H)
    plain.build((N, T, I))
    refused(plain, CELL)


@KITS
@pytest.mark.parametrize(
    "options, both",
    [({}, True), ({"recurrent_activation": "hard_sigmoid"}, False), ({"go_backwards": True}, True),
     ({"use_bias": False, "reset_after": False, "go_backwards": True}, False)],
    ids=str,
)  # fmt: skip
def test_the_weights_of_a_keras_subclass(kit, options, both):
    same = keras_classes(kit).Same
    layer = same(H, return_sequences=True, **options)
    if both:
        back = {**options, "go_backwards": not options.get("go_backwards")}
        layer = kit.layers.Bidirectional(
            layer, backward_layer=same(H, return_sequences=True, **back)
        )
    layer.build((N, T, I))
    rng = seeded("keras", str(options))
    layer.set_weights([0.2 * rng.standard_normal(w.shape) for w in layer.get_weights()])
    weights, axes = advised(refused(layer, "Same overrides call() of GRU"), layer=layer)
    y = rl.forward(X, weights, **axes)[0]
    np.testing.assert_allclose(y, keras.ops.convert_to_numpy(layer(X)), atol=ATOL)


def test_a_keras_subclass_is_a_target():
    same, plain = (assign_to(make(H)) for make in (keras_classes(keras).Same, keras.layers.GRU))
    assert all(map(np.array_equal, same.get_weights(), plain.get_weights()))


# -------------------------------------------------------------------------------- Flax and Equinox


class NnxSame(nnx.OptimizedLSTMCell):
    def __call__(self, carry, inputs):
        return super().__call__(carry, inputs)


class NnxNormed(nnx.LSTMCell):
    def __init__(self, *args, rngs, **options):
        super().__init__(*args, rngs=rngs, **options)
        self.ln = nnx.LayerNorm(H, rngs=rngs)


def test_cells_of_nnx():
    for make, text in ((NnxSame, "NnxSame overrides __call__()"), (NnxNormed, "ln/scale")):
        one, other = (nnx_cell(make, I, H) for _ in range(2))
        for around in (one, nnx.RNN(one), {"a": {"cell": one}},
                       nnx.Bidirectional(nnx.RNN(one), nnx.RNN(other))):  # fmt: skip
            refused(around, text)
    layer = type("NnxLayer", (nnx.RNN,), {})(nnx_cell(nnx.GRUCell, I, H))
    layer.gain = nnx.Param(jax.numpy.ones(2))
    refused(layer, "NnxLayer", "'gain'")
    refused(layer, "'gain'", call=assign_to)


@pytest.mark.parametrize(
    "around", [lambda c: c, nnx.RNN, lambda c: nnx.RNN(c, reverse=True, keep_order=True)]
)
def test_the_state_of_a_subclass_of_nnx(around):
    cell = nnx_cell(NnxSame, I, H)
    error = refused(around(cell), "NnxSame overrides __call__() of OptimizedLSTMCell")
    weights, axes = advised(error, module=around(cell))
    wanted = around(nnx_cell(nnx.OptimizedLSTMCell, I, H))
    nnx.update(wanted, nnx.state(around(cell), nnx.Param))
    y, found = (rl.forward(X, one, **more)[0] for one, more in ((wanted, {}), (weights, axes)))
    assert same_bits(y, found)


class EquinoxCell(eqx.nn.GRUCell):
    def __call__(self, x, h, *, key=None):
        return -super().__call__(x, h)


class EquinoxNormed(eqx.nn.LSTMCell):
    ln: eqx.nn.LayerNorm

    def __init__(self, *args, key):
        super().__init__(*args, key=key)
        self.ln = eqx.nn.LayerNorm(H)


def test_cells_of_equinox():
    cell, plain = (equinox_cell(make, I, H) for make in (EquinoxCell, eqx.nn.GRUCell))
    for source in (cell, {"cell": cell}):
        refused(source, "EquinoxCell overrides __call__() of GRUCell")
    assert advised(refused(cell), module=cell)[0] == rl.Weights(plain)
    error = refused({"0": {"forward": plain, "backward": cell}}, "EquinoxCell overrides __call__()")
    arrays = eval(re.search(r"put (.*) in the place", error)[1], {"module": cell})
    found = rl.Weights({"0": {"forward": plain, "backward": arrays}}, layout="equinox")
    assert found == rl.Weights({"0": {"forward": plain, "backward": plain}})
    normed = equinox_cell(EquinoxNormed, I, H)
    refused(normed, "EquinoxNormed", "'ln.weight', 'ln.bias'")
    refused(normed, "ln.weight", call=lambda m: rl.assign(m, torch.nn.LSTMCell(I, H)))
