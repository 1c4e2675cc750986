"""Modules of Flax and Equinox: what they record, and what is refused. More repairs: tests/hints."""

import re

import equinox as eqx
import jax
import numpy as np
import pytest
import torch
from flax import nnx
from oracles.jax_cells import equinox_cell, nnx_cell

import rnnlayout as rl

I, H = 3, 4  # noqa: E741


def gru(**options):
    return nnx_cell(nnx.GRUCell, I, H, **options)


def error_of(source, *args, **more):
    with pytest.raises(rl.Error) as caught:
        rl.Weights(source, *args, **more)
    return caught.value


class NnxModel(nnx.Module):
    def __init__(self):
        self.rnns = nnx.List([nnx.RNN(gru())])
        self.head = nnx.Linear(I, H, rngs=nnx.Rngs(0))


class EquinoxModel(eqx.Module):
    rnns: dict

    def __init__(self):
        self.rnns = {"a": equinox_cell(eqx.nn.GRUCell, I, H)}


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
    found = nnx_cell(cell, I, H, **options)
    error = error_of(found)
    assert isinstance(error, rl.LossyError) and text in str(error)
    if "gate_fn" in text or text.endswith("relu"):
        repair = re.search(r"pass (nnx\.state\(.*?\))", str(error))[1]
        assert rl.Weights(eval(repair, {"nnx": nnx, "cell": found})).spec == rl.Spec("gru", I, H)


def test_cells_in_a_dict_keep_what_they_record():
    """Their functions and directions were lost: only their arrays were read."""
    own = gru(gate_fn=lambda a: a)
    for source in ({"a": {"cell": own}}, {"0": {"forward": gru(), "backward": own}}):
        assert "gate_fn is <lambda>" in str(error_of(source))
    turned = nnx.RNN(gru(), reverse=True)
    for source, prefix in (({"rnn": turned}, ""), ({"b": turned, "head": np.ones(2)}, "b")):
        found = rl.Weights(source, prefix=prefix)
        assert found == rl.Weights(turned) and found.config == {"go_backwards": True}
    upper = nnx.RNN(nnx_cell(nnx.GRUCell, H, H))
    text = str(error_of({"0": turned, "1": upper}))
    assert "go_backwards=True" in text and text.endswith("pass the layers in a list, bottom first")
    assert rl.Weights([turned, upper]).config == {"go_backwards": True}


def test_two_directions_that_differ_and_another_spec():
    relu = nnx_cell(nnx.SimpleCell, I, H, activation_fn=jax.nn.relu)
    layer = nnx.Bidirectional(nnx.RNN(gru()), nnx.RNN(relu))
    assert "the two directions differ" in str(error_of(layer))
    assert rl.Weights(relu).spec.cell == "rnn_relu"
    assert "the spec and the source differ" in str(error_of(relu, rl.Spec("rnn_tanh", I, H)))


def test_nothing_is_assigned_to_a_dict_of_tensors():
    """It would not change the module that the dict came from."""
    module = torch.nn.LSTM(I, H)
    with pytest.raises(rl.LayoutError, match=r"values of Tensor.* pass the module itself"):
        rl.assign(module.state_dict(), module)


def test_a_state_of_nnx_is_a_target():
    """The result is a new State, which nnx.update() takes; the old one stays."""
    cell, other = gru(), rl.Weights(nnx_cell(nnx.GRUCell, I, H, "other"))
    state = nnx.state(cell, nnx.Param)
    new = rl.assign(state, other)
    assert type(new) is nnx.State and rl.Weights(new) == other
    assert rl.Weights(state) == rl.Weights(cell) != other
    nnx.update(cell, new)
    assert rl.Weights(cell) == other


def test_parameters_of_nnx_that_orbax_restored_without_a_target_had_no_rnn():
    """They are {"value": array}, beside the state of a random number generator."""
    cell, other = gru(), nnx_cell(nnx.GRUCell, I, H, "other")
    state = nnx.to_pure_dict(nnx.state(cell, nnx.Param))
    boxed = jax.tree.map(lambda array: {"value": np.asarray(array)}, state)
    boxed |= {"rngs": {"count": {"value": np.uint32(3)}}}
    assert rl.Weights({"enc": boxed}, prefix="enc") == rl.Weights(cell)
    new = rl.assign(boxed, rl.Weights(other))
    assert rl.Weights(new) == rl.Weights(other) and new["rngs"] == boxed["rngs"]
    assert jax.tree.structure(new) == jax.tree.structure(boxed)
