"""Modules of Flax and Equinox that are refused: each error contains a repair that works."""

import re

import equinox as eqx
import flax
import flax.linen as nn
import jax
import numpy as np
import optax
import pytest
import torch
from flax import nnx
from flax.training.train_state import TrainState

import rnnlayout as rl

I, H = 3, 4  # noqa: E741
KEY = jax.random.key(0)


def nnx_cell(make=nnx.GRUCell, **options):
    zeros = nnx.initializers.zeros
    options = {"kernel_init": zeros, "recurrent_kernel_init": zeros, **options}
    return make(I, H, rngs=nnx.Rngs(0), **options)


def error_of(source, *args, **more):
    with pytest.raises(rl.Error) as caught:
        rl.Weights(source, *args, **more)
    return caught.value


class NnxModel(nnx.Module):
    def __init__(self):
        self.rnns = nnx.List([nnx.RNN(nnx_cell())])
        self.head = nnx.Linear(I, H, rngs=nnx.Rngs(0))


class EquinoxModel(eqx.Module):
    rnns: dict

    def __init__(self):
        shapes = eqx.filter_eval_shape(eqx.nn.GRUCell, I, H, key=KEY)
        self.rnns = {"a": jax.tree.map(lambda a: jax.numpy.ones(a.shape, a.dtype), shapes)}


@pytest.mark.parametrize(
    "make, inside",
    [(NnxModel, lambda model: model.rnns[0]), (EquinoxModel, lambda model: model.rnns["a"])],
)
def test_a_model(make, inside):
    model = make()
    assert (rl.pack(model) == rl.pack(inside(model))).all()
    assert (rl.pack(model, prefix="rnns") == rl.pack(inside(model))).all()
    for prefix, names in (("b", r"'rnns/(0|a)'"), ("rnns/0/cell/x", r"'rnns/(0|a)'")):
        with pytest.raises(rl.LayoutError, match=f"with prefix= these would work: {names}"):
            rl.pack(model, prefix=prefix)


def test_a_module_of_linen():
    text = str(error_of(nn.LSTMCell(H)))
    assert "no weights of its own" in text and "variables['params']" in text


@pytest.mark.parametrize(
    "cell, options, text",
    [
        (nnx.GRUCell, {"gate_fn": lambda a: a}, "gate_fn is <lambda>"),
        (nnx.GRUCell, {"activation_fn": jax.nn.relu}, "activation_fn is relu"),
        (nnx.SimpleCell, {"activation_fn": jax.nn.gelu}, "activation_fn is gelu"),
        (nnx.SimpleCell, {"residual": True}, "residual=True"),
        (nnx.GRUCell, {"gate_fn": jax.nn.hard_sigmoid}, "hard_sigmoid"),
    ],
)
def test_cells_that_no_layout_can_represent(cell, options, text):
    found = nnx_cell(cell, **options)
    error = error_of(found)
    assert isinstance(error, rl.LossyError) and text in str(error)
    if "gate_fn" in text or text.endswith("relu"):
        repair = re.search(r"pass (nnx\.state\(.*?\))", str(error))[1]
        assert rl.Weights(eval(repair, {"nnx": nnx, "cell": found})).spec == rl.Spec("gru", I, H)


def test_cells_in_a_dict_keep_what_they_record():
    """Their functions and directions were lost: only their arrays were read."""
    own = nnx_cell(gate_fn=lambda a: a)
    for source in ({"a": {"cell": own}}, {"0": {"forward": nnx_cell(), "backward": own}}):
        assert "gate_fn is <lambda>" in str(error_of(source))
    turned = nnx.RNN(nnx_cell(), reverse=True)
    for source, prefix in (({"rnn": turned}, ""), ({"b": turned, "head": np.ones(2)}, "b")):
        found = rl.Weights(source, prefix=prefix)
        assert found == rl.Weights(turned) and found.config == {"go_backwards": True}
    upper = nnx.RNN(nnx.GRUCell(H, H, rngs=nnx.Rngs(0)))
    text = str(error_of({"0": turned, "1": upper}))
    assert "go_backwards=True" in text and text.endswith("pass the layers in a list, bottom first")
    assert rl.Weights([turned, upper]).config == {"go_backwards": True}


def test_an_lstm_cell_of_nnx_that_is_not_the_optimized_one():
    weights = rl.Weights(nnx_cell(nnx.LSTMCell))
    assert (weights.layout.name, weights.spec) == ("flax-nnx-lstm", rl.Spec("lstm", I, H))


def test_a_bidirectional_that_merges_in_its_own_way():
    layer = nnx.Bidirectional(nnx.RNN(nnx_cell()), nnx.RNN(nnx_cell()), merge_fn=lambda a, b: a + b)
    repair = re.search(r"pass (nnx\.state\(.*?\))", str(error_of(layer)))[1]
    weights = rl.Weights(eval(repair, {"nnx": nnx, "layer": layer}))
    assert weights.spec == rl.Spec("gru", I, H, bidirectional=True)


def test_two_directions_that_differ():
    other = nnx_cell(nnx.SimpleCell)
    layer = nnx.Bidirectional(nnx.RNN(nnx_cell()), nnx.RNN(other))
    assert "the two directions differ" in str(error_of(layer))


def test_a_spec_that_contradicts_a_cell():
    cell = nnx_cell(nnx.SimpleCell, activation_fn=jax.nn.relu)
    assert rl.Weights(cell).spec.cell == "rnn_relu"
    text = str(error_of(cell, rl.Spec("rnn_tanh", I, H)))
    assert "the spec and the source differ" in text and "rnn_tanh" in text


def test_a_model_of_several():
    params = {"params": {name: nnx.to_pure_dict(nnx.state(nnx_cell())) for name in ("a", "b")}}
    text = str(error_of(params))
    paths = re.findall(r"its (\[.*?\]) ", text + " ")
    assert paths == ["['params']['a']", "['params']['b']"]
    for path in paths:
        assert rl.Weights(eval(f"params{path}", {"params": params})).spec == rl.Spec("gru", I, H)
    assert rl.Weights(params, prefix="params/b").spec == rl.Spec("gru", I, H)


def test_nothing_is_assigned_to_a_dict_of_tensors():
    """It would not change the module that the dict came from."""
    module = torch.nn.LSTM(I, H)
    with pytest.raises(rl.LayoutError, match=r"values of Tensor.* pass the module itself"):
        rl.assign(module.state_dict(), module)


def test_weights_that_do_not_fit_parameters():
    params = {name: np.zeros(shape, "f4") for name, shape in
              rl.describe(rl.Spec("lstm", I, H), "flax-linen").items()}  # fmt: skip
    with pytest.raises(rl.LayoutError, match="hidden_size 5, the target 4"):
        rl.assign(params, torch.nn.LSTM(I, 5))
    with pytest.raises(rl.LayoutError, match="float32 cannot represent every float64"):
        rl.assign(params, torch.nn.LSTM(I, H).double())


def test_a_state_of_nnx_is_a_target():
    """The result is a new State, which nnx.update() takes; the old one stays."""
    cell, other = nnx_cell(), rl.Weights(nnx.GRUCell(I, H, rngs=nnx.Rngs(0)))
    state = nnx.state(cell, nnx.Param)
    new = rl.assign(state, other)
    assert type(new) is nnx.State and rl.Weights(new) == other
    assert rl.Weights(state) == rl.Weights(cell) != other
    nnx.update(cell, new)
    assert rl.Weights(cell) == other


def test_what_contains_parameters_says_how_to_pass_them():
    params = {"i" + gate: {"kernel": np.ones((I, H), "f4")} for gate in "ifgo"} | {
        "h" + gate: {"kernel": np.ones((H, H), "f4"), "bias": np.ones(H, "f4")} for gate in "ifgo"
    }
    state = TrainState.create(apply_fn=None, params=params, tx=optax.identity())
    with pytest.raises(
        rl.LayoutError, match=r"a TrainState is more than weights: pass its \.params"
    ):
        rl.Weights(state)
    other = rl.Weights(jax.tree.map(lambda a: a + 1, params))
    with pytest.raises(rl.LayoutError) as caught:
        rl.assign(state, other)
    repair = str(caught.value).split(" is ")[-1]
    found = eval(repair, {"rl": rl, "target": state, "tensors": other})
    assert rl.Weights(found.params) == other

    boxed = jax.tree.map(lambda a: nn.Partitioned(a, names=(None,) * a.ndim), params)
    for call in (rl.Weights, lambda boxed: rl.assign(boxed, other)):
        with pytest.raises(rl.LayoutError) as caught:
            call(boxed)
        repair = re.search(r"pass (flax\.linen\.meta\.unbox\(params\))", str(caught.value))[1]
        unboxed = eval(repair, {"flax": flax, "params": boxed})
        assert rl.Weights(unboxed) == rl.Weights(params)


class Tensor:
    """As tinygrad's: it has no array interface."""

    def __init__(self, array):
        self.numpy = lambda: array


def test_tensors_that_numpy_does_not_know():
    tensors = {name: Tensor(np.ones(shape, "f4")) for name, shape in
               rl.describe(rl.Spec("lstm", I, H), "torch").items()}  # fmt: skip
    with pytest.raises(rl.LayoutError, match=r"weight_ih_l0 is a Tensor, .*: pass its \.numpy\(\)"):
        rl.Weights(tensors)
    assert rl.Weights({name: t.numpy() for name, t in tensors.items()}).spec.cell == "lstm"
