"""Subclasses of a framework's layers that compute something else: they were run as their base.

What an error advises is done as it is printed, and compared with what the framework computes.
"""

import re
from functools import cache

import equinox as eqx
import jax
import keras
import numpy as np
import pytest
import tf_keras
import torch
import torch.ao.nn.quantized.reference as reference
from flax import nnx
from oracles.frameworks import KERAS_NOISE, seeded, torch_cell, torch_module
from oracles.jax_cells import equinox_cell, nnx_cell
from oracles.some import same_bits
from torch.nn.utils import parametrizations

import rnnlayout as rl

pytestmark = KERAS_NOISE

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

    def forward(self, x, state=None):
        y, state = super().forward(x, state)
        return self.ln(y), state


class Peephole(torch.nn.LSTMCell):
    def __init__(self, *args):
        super().__init__(*args)
        self.peephole = torch.nn.Parameter(torch.zeros(3, self.hidden_size))


class Scaled(torch.nn.GRU):
    """Its parameter has a name like those of a computed weight."""

    def __init__(self, *args):
        super().__init__(*args)
        self.weight_hh_l0_scale = torch.nn.Parameter(torch.ones(()))


@pytest.mark.parametrize(
    "make, names",
    [(Normed, ("'ln.weight'", "'ln.bias'")), (Peephole, ("'peephole'",)),
     (Scaled, ("'weight_hh_l0_scale'",))],
)  # fmt: skip
def test_parameters_of_a_subclass_were_left_out(make, names):
    module = make(I, H)
    for call in (rl.Weights, rl.pack, rl.RNN, lambda m: rl.convert(m, to="onnx")):
        refused(module, make.__name__, *names, call=call)
    with pytest.raises(rl.LayoutError, match=names[0]):
        rl.assign(module, rl.Weights(make.__base__(I, H)))


class Residual(torch.nn.GRU):
    def forward(self, x, state=None):
        y, state = super().forward(x, state)
        return y + x[..., :H], state


class Packed(torch.nn.RNN):
    """Its forward() changes nothing."""

    def forward(self, x, state=None):
        self.flatten_parameters()
        return super().forward(x, state)


class Leaky(torch.nn.GRUCell):
    def forward(self, x, state):
        return 0.5 * (state + super().forward(x, state))


class Called(torch.nn.LSTM):
    def __call__(self, *args):
        y, state = super().__call__(*args)
        return -y, state


@pytest.mark.parametrize(
    "make, method", [(Residual, "forward"), (Leaky, "forward"), (Called, "__call__")]
)
def test_the_forward_of_a_subclass_was_not_run(make, method):
    refused(make(I, H), f"{make.__name__} overrides {method}() of {make.__base__.__name__}")


def test_a_forward_set_on_the_module():
    module = torch.nn.GRU(I, H)
    module.forward = lambda x: x
    refused(module, "GRU overrides forward() of GRU")


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
@pytest.mark.parametrize("buffer", [False, True])
def test_the_state_dict_of_a_torch_subclass(nonlinearity, buffer):
    module = Packed(I, H, nonlinearity=nonlinearity, batch_first=True, bidirectional=True)
    if buffer:
        module.register_buffer("calls", torch.zeros(2))
    weights, axes = advised(refused(module), module=module)
    y = rl.forward(X, weights, **axes)[0]
    np.testing.assert_allclose(y, module(torch.tensor(X))[0].detach(), atol=ATOL)


def test_modules_that_torch_itself_changes_are_read_as_before():
    spec = rl.Spec("lstm", I, H)
    for make in (torch_module, torch_cell):
        module = make(spec, seeded("changed"))
        name = "weight_hh_l0" if make is torch_module else "weight_hh"
        parametrizations.orthogonal(module, name)
        assert type(module).__name__.startswith("Parametrized")
        assert same_bits(rl.Weights(module)[name], getattr(module, name).detach().numpy())
    module = torch_module(spec, seeded("compiled"))
    module.compile()
    module.register_forward_hook(lambda *args: None)
    assert rl.pack(module).size == spec.num_params


class Plain(torch.nn.LSTM):
    """Nothing that it computes is different."""

    def reset(self):
        pass


def test_a_subclass_that_adds_no_parameters_and_overrides_no_call():
    module = Plain(I, H)
    assert same_bits(rl.pack(module), rl.pack(module.state_dict()))


def test_the_forward_of_a_target_is_its_own_affair():
    target, source = Packed(I, H), torch_module(rl.Spec("rnn_tanh", I, H), seeded("target"))
    rl.assign(target, source)
    x = torch.tensor(X)
    assert torch.equal(target(x)[0], source(x)[0])


@pytest.mark.parametrize("name", ["LSTM", "LSTMCell"])
def test_a_reference_quantized_module(name):
    """It rounds its weights in each call. The cell was a KeyError."""
    given = {"qscheme": torch.per_tensor_affine, "dtype": torch.qint8, "scale": 0.1,
             "zero_point": 0, "is_decomposed": False}  # fmt: skip
    qparams = {"weight_ih": given, "weight_hh": given}
    if name == "LSTM":
        qparams = {f"{weight}_l0": given for weight in qparams}
    qparams |= {"is_decomposed": False}
    module = getattr(reference, name)(I, H, weight_qparams_dict=qparams)
    refused(module, f"{name} stores rounded weights")


def test_a_cell_of_the_users_own_was_a_key_error():
    class Own(torch.nn.RNNCellBase):
        pass

    refused(Own(I, H, bias=True, num_chunks=4), "Own is not an nn.LSTM")


# -------------------------------------------------------------------------------------------- Keras


@cache
def keras_classes(kit):
    @kit.saving.register_keras_serializable()
    class Doubled(kit.layers.LSTM):
        def call(self, *args, **options):
            return 2 * super().call(*args, **options)

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

    return Doubled, DoubledCell, Gained, Same


def called(layer):
    y = layer(X)
    return (y.detach() if hasattr(y, "detach") else y).numpy()


KITS = pytest.mark.parametrize("kit", [keras, tf_keras], ids=["keras", "tf_keras"])


@KITS
def test_the_call_of_a_keras_subclass_was_not_run(kit):
    doubled, cell, _, _ = keras_classes(kit)
    layers = kit.layers
    for layer, name in [
        (doubled(H), "Doubled overrides call() of LSTM"),
        (layers.Bidirectional(doubled(H)), "Doubled overrides call() of LSTM"),
        (cell(H), "DoubledCell overrides call() of GRUCell"),
        (layers.RNN(cell(H)), "DoubledCell overrides call() of GRUCell"),
        (layers.RNN([layers.GRUCell(H), cell(H)]), "DoubledCell overrides call() of GRUCell"),
    ]:
        layer.build((N, I) if layer.__class__ is cell else (N, T, I))
        refused(layer, name)


def test_a_cell_that_was_replaced():
    """The layer's own class is Keras's."""
    layer = keras.layers.GRU(H)
    layer.cell = keras_classes(keras)[1](H)
    layer.build((N, T, I))
    refused(layer, "DoubledCell overrides call() of GRUCell")


@KITS
def test_weights_of_a_keras_subclass_are_named(kit):
    layer = keras_classes(kit)[2](H, name="gained")
    layer.build((N, T, I))
    refused(layer, "Gained", "gained/gain" if kit is keras else "gain")
    both = kit.layers.Bidirectional(keras_classes(kit)[2](H))
    both.build((N, T, I))
    refused(both, "gain")
    before = dict(enumerate(layer.get_weights()))
    with pytest.raises(rl.LayoutError):
        rl.assign(layer, rl.Weights(torch.nn.GRU(I, H)))
    assert same_bits(dict(enumerate(layer.get_weights())), before)


@KITS
@pytest.mark.parametrize(
    "options, both",
    [({}, True), ({"recurrent_activation": "hard_sigmoid"}, False), ({"go_backwards": True}, True),
     ({"use_bias": False, "reset_after": False, "go_backwards": True}, False)],
    ids=str,
)  # fmt: skip
def test_the_weights_of_a_keras_subclass(kit, options, both):
    layer = keras_classes(kit)[3](H, return_sequences=True, **options)
    if both:
        back = {**options, "go_backwards": not options.get("go_backwards")}
        layer = kit.layers.Bidirectional(
            layer, backward_layer=keras_classes(kit)[3](H, return_sequences=True, **back)
        )
    layer.build((N, T, I))
    rng = seeded("keras", str(options))
    layer.set_weights([0.2 * rng.standard_normal(w.shape) for w in layer.get_weights()])
    weights, axes = advised(refused(layer, "Same overrides call() of GRU"), layer=layer)
    y = rl.forward(X, weights, **axes)[0]
    np.testing.assert_allclose(y, called(layer), atol=ATOL)


def test_a_keras_subclass_is_a_target():
    layer = keras_classes(keras)[3](H, return_sequences=True)
    source = torch_module(rl.Spec("gru", I, H), seeded("keras target"))
    rl.assign(layer, source)
    y = source(torch.tensor(X).transpose(0, 1))[0].transpose(0, 1).detach()
    np.testing.assert_allclose(called(layer), y, atol=ATOL)


# -------------------------------------------------------------------------------- Flax and Equinox


class NnxCell(nnx.GRUCell):
    def __call__(self, carry, inputs):
        return super().__call__(0.5 * carry, inputs)


class NnxSame(nnx.OptimizedLSTMCell):
    def __call__(self, carry, inputs):
        return super().__call__(carry, inputs)


class NnxNormed(nnx.LSTMCell):
    def __init__(self, *args, rngs, **options):
        super().__init__(*args, rngs=rngs, **options)
        self.ln = nnx.LayerNorm(H, rngs=rngs)


class NnxLayer(nnx.RNN):
    def __init__(self, *args):
        super().__init__(*args)
        self.gain = nnx.Param(jax.numpy.ones(2))


@pytest.mark.parametrize(
    "around",
    [lambda cell: cell(), lambda cell: nnx.RNN(cell()), lambda cell: {"a": {"cell": cell()}},
     lambda cell: nnx.Bidirectional(nnx.RNN(cell()), nnx.RNN(cell()))],
    ids=["cell", "RNN", "dict", "Bidirectional"],
)  # fmt: skip
def test_cells_of_nnx(around):
    refused(around(lambda: nnx_cell(NnxCell, I, H)), "NnxCell overrides __call__() of GRUCell")
    refused(around(lambda: nnx_cell(NnxNormed, I, H)), "ln/scale")


def test_a_parameter_of_a_layer_of_nnx():
    layer = NnxLayer(nnx_cell(nnx.GRUCell, I, H))
    refused(layer, "NnxLayer", "'gain'")
    with pytest.raises(rl.LayoutError, match="'gain'"):
        rl.assign(layer, rl.Weights(torch.nn.GRU(I, H)))


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


def test_a_cell_of_a_subclass_in_a_dict_of_several():
    plain, own = equinox_cell(eqx.nn.GRUCell, I, H), equinox_cell(EquinoxCell, I, H)
    error = refused({"0": {"forward": plain, "backward": own}}, "EquinoxCell overrides __call__()")
    arrays = eval(re.search(r"put (.*) in the place", error)[1], {"module": own})
    found = rl.Weights({"0": {"forward": plain, "backward": arrays}}, layout="equinox")
    wanted = rl.Weights({"0": {"forward": plain, "backward": plain}})
    assert same_bits(found.tensors, wanted.tensors)


def test_a_subclass_in_a_checkpoint():
    module = Packed(I, H)
    error = refused({"epoch": 7, "model": module})
    repair = re.search(r"pass its (\['model'\]\S*)", error)[1]
    found = rl.Weights(eval(f"source{repair}", {"source": {"model": module}}), cell="rnn_tanh")
    assert same_bits(found.tensors, rl.Weights(module.state_dict(), cell="rnn_tanh").tensors)


class EquinoxNormed(eqx.nn.LSTMCell):
    ln: eqx.nn.LayerNorm

    def __init__(self, *args, key):
        super().__init__(*args, key=key)
        self.ln = eqx.nn.LayerNorm(H)


def test_cells_of_equinox():
    cell = equinox_cell(EquinoxCell, I, H)
    error = refused(cell, "EquinoxCell overrides __call__() of GRUCell")
    refused({"cell": cell}, "EquinoxCell overrides __call__() of GRUCell")
    weights, _ = advised(error, module=cell)
    assert same_bits(weights.tensors, rl.Weights(equinox_cell(eqx.nn.GRUCell, I, H)).tensors)
    normed = equinox_cell(EquinoxNormed, I, H)
    refused(normed, "EquinoxNormed", "'ln.weight', 'ln.bias'")
    with pytest.raises(rl.LayoutError, match=r"ln\.weight"):
        rl.assign(normed, torch.nn.LSTMCell(I, H))


@pytest.mark.parametrize("make", [eqx.nn.GRUCell, eqx.nn.LSTMCell])
def test_a_cell_of_equinox_whose_bias_was_taken_was_a_key_error(make):
    cell = equinox_cell(make, I, H)
    for part in (eqx.tree_at(lambda c: c.bias, cell, None), eqx.partition(cell, eqx.is_array)[1]):
        refused(part, make.__name__, "'bias'", "use_bias=True")
        with pytest.raises(rl.LayoutError, match="'bias'"):
            rl.assign(part, rl.Weights(cell))
    if make is eqx.nn.GRUCell:
        refused(eqx.tree_at(lambda c: c.bias_n, cell, None), "'bias_n'")
    state = (cell.bias[:H],) * 2 if make is eqx.nn.LSTMCell else cell.bias[:H]
    with pytest.raises(TypeError):  # Equinox cannot run it either
        eqx.tree_at(lambda c: c.bias, cell, None)(X[0, 0], state)
    without = equinox_cell(make, I, H, use_bias=False)
    assert rl.Weights(without).spec.bias == "none"
