"""Flax, Equinox and Haiku as their users run them: cells scanned over time, in several layers,
bidirectional. Their weights mean what they compute, and come back by way of ONNX."""

import pickle
from functools import partial

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from convert.meaning import expected_of
from flax import nnx, serialization
from flax.core import freeze
from flax.traverse_util import flatten_dict
from oracles.frameworks import H, I, N, T, normal, seeded
from oracles.jax_cells import KEY, emptied, equinox_cell, filled, nnx_cell
from oracles.reference import LOOSEST, Run, distance

import rnnlayout as rl

ANSWERS_FOR = ("flax-linen", "flax-nnx", "equinox", "haiku", "flax-nnx-lstm")

LINEN = {"lstm": nn.OptimizedLSTMCell, "plain lstm": nn.LSTMCell, "gru": nn.GRUCell,
         "rnn_tanh": nn.SimpleCell}  # fmt: skip
NNX = {"lstm": nnx.OptimizedLSTMCell, "plain lstm": nnx.LSTMCell, "gru": nnx.GRUCell,
       "rnn_relu": partial(nnx.SimpleCell, activation_fn=jax.nn.relu)}  # fmt: skip
X = normal(seeded("models of JAX"), N, T, I)  # as Flax has it


def made(init, *labels):
    """Return what init(key, X) would, filled: its own random values are not even computed."""
    return filled(jax.eval_shape(init, KEY, X), *labels)


def reference(weights):
    """Return the results of the float64 recurrence from zero states, as Rounded numbers."""
    spec = weights.spec
    zeros = np.zeros((spec.num_layers * spec.num_directions, N, H), "f4")
    c0 = zeros if spec.cell == "lstm" else None
    return expected_of(weights, spec, (X.swapaxes(0, 1), zeros, c0))


def check(y, source, spec, **options):
    """Check the spec of what the framework computed y with, and y. Return the weights."""
    weights = rl.Weights(source, **options)
    assert weights.spec == spec
    expected = reference(weights)
    last = expected.h.value, expected.c and expected.c.value
    assert distance(Run(np.swapaxes(y, 0, 1), *last), expected) <= 1  # reference.Rounded
    return weights


def same_trees(a, b):
    """Are two trees equal in structure, types and bits?"""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(type(x) is type(y) and np.array_equal(x, y) for x, y in pairs)


# ------------------------------------------------------------------------------------ Flax linen


@pytest.mark.parametrize("cell, kind", [("gru", freeze), ("lstm", serialization.to_bytes),
                                        ("plain lstm", dict), ("rnn_tanh", dict)])  # fmt: skip
def test_linen(cell, kind):
    """One layer; its variables as a dict, frozen, and as NumPy arrays from a file."""
    layer = nn.RNN(LINEN[cell](H))
    variables = made(layer.init, "linen", cell)
    own = kind(variables)
    own = serialization.msgpack_restore(own) if isinstance(own, bytes) else own
    spec = rl.Spec(cell.split()[-1], I, H)
    weights = check(jax.jit(layer.apply)(variables, X), own, spec, cell=spec.cell)
    zeros = jax.tree.map(np.zeros_like, own) if "bytes" in kind.__name__ else emptied(own)
    assert same_trees(rl.assign(zeros, weights.to("onnx")), own)  # the sums add a zero
    assert not any(map(np.any, jax.tree.leaves(zeros)))


class LinenModel(nn.Module):
    """Two layers, and a bidirectional one."""

    cell: str

    def setup(self):
        make = LINEN[self.cell]
        self.layers = [nn.RNN(make(H)) for _ in range(2)]
        self.both = nn.Bidirectional(nn.RNN(make(H)), nn.RNN(make(H)))

    def __call__(self, x):
        return self.layers[1](self.layers[0](x)), self.both(x)


def test_a_model_of_linen():
    model = LinenModel("lstm")
    variables = made(model.init, "model of linen")
    deep, wide = jax.jit(model.apply)(variables, X)
    params = variables["params"]
    check(deep, rl.stack([params["layers_0"], params["layers_1"]]), rl.Spec("lstm", I, H, 2))
    both = rl.Spec("lstm", I, H, bidirectional=True)
    weights = check(wide, variables, both, prefix="params/both").to("onnx")
    assert same_trees(rl.assign(emptied(params["both"]), weights), params["both"])


def test_a_bidirectional_whose_rnns_share_a_cell():
    """Flax then has the parameters of the forward one only, which were read as one direction."""
    shared = nn.GRUCell(H)
    layer = nn.Bidirectional(nn.RNN(shared), nn.RNN(shared))
    variables = made(layer.init, "shared")
    params = variables["params"]
    assert [*params] == ["forward_rnn"]
    with pytest.raises(rl.LayoutError, match=r"pass its \['forward_rnn'\]\['cell'\]$"):
        rl.Weights(params)
    own = params["forward_rnn"]["cell"]
    assert not rl.Weights(own).spec.bidirectional
    check(jax.jit(layer.apply)(variables, X), {"forward_rnn": own, "backward_rnn": own},
          rl.Spec("gru", I, H, bidirectional=True))  # fmt: skip


@pytest.mark.parametrize("suffix", [".npz", ".pkl", ".pt"])
def test_paths_of_flax_in_files_are_joined_by_slashes_or_dots(tmp_path, suffix):
    """In all but .msgpack and an .npz with slashes no RNN was found."""
    tree = jax.tree.map(np.asarray, made(LinenModel("gru").init, "paths of linen"))
    tree["params"]["head"] = {"kernel": np.ones((H, 2), "f4"), "bias": np.ones(2, "f4")}
    dotted = {".".join(path): array for path, array in flatten_dict(tree).items()}
    path = tmp_path / f"model{suffix}"
    if suffix == ".npz":
        np.savez(path, **dotted)
    elif suffix == ".pkl":
        path.write_bytes(pickle.dumps(tree))
    else:
        torch.save({key: torch.tensor(array) for key, array in dotted.items()}, path)
    found = rl.load(path)
    assert not found.unread
    named = {name.replace(".", "/"): weights for name, weights in found.items()}
    assert named.keys() == {"params/both", "params/layers_0", "params/layers_1"}
    for name, weights in named.items():
        own = name if name == "params/both" else f"{name}/cell"
        assert rl.verify(weights, rl.Weights(tree, prefix=own))
        assert rl.verify(weights, rl.Weights(dotted, prefix=own.replace("/", ".")))


# -------------------------------------------------------------------------------------- Flax nnx


@nnx.jit
def called(layer, x):
    return layer(x)


def nnx_layer(cell, size=I, **options):
    return nnx.RNN(nnx_cell(NNX[cell], size, H, cell, size), **options)


@pytest.mark.parametrize(
    "cell, form",
    [("lstm", "cell"), ("plain lstm", "layer"), ("gru", "layer"), ("gru", "whole state"),
     ("rnn_relu", "layer")],
)  # fmt: skip
def test_nnx(cell, form):
    layer = nnx_layer(cell)
    source = {"cell": layer.cell, "layer": layer, "whole state": nnx.state(layer)}[form]
    y = called(layer, X)
    assert rl.Weights(source).batch_first is (True if form == "layer" else None)
    weights = check(y, source, rl.Spec(cell.split()[-1], I, H)).to("onnx")
    nnx.update(layer, emptied(nnx.state(layer, nnx.Param)))
    assert not np.array_equal(called(layer, X), y)
    target = layer if cell == "lstm" else layer.cell
    assert rl.assign(target, weights) is target
    assert same_trees(called(layer, X), y)


def test_a_bidirectional_of_nnx_and_layers():
    layer = nnx.Bidirectional(nnx_layer("lstm"), nnx_layer("lstm"))
    nnx.update(layer, filled(nnx.state(layer, nnx.Param), "both"))
    y, both = called(layer, X), rl.Spec("lstm", I, H, bidirectional=True)
    weights = check(y, layer, both).to("onnx")
    assert rl.Weights(nnx.state(layer, nnx.Param)).spec == both
    nnx.update(layer, emptied(nnx.state(layer, nnx.Param)))
    rl.assign(layer, weights)
    assert same_trees(called(layer, X), y)

    layers = [nnx_layer("lstm"), nnx_layer("lstm", H)]
    check(called(layers[1], called(layers[0], X)), layers, rl.Spec("lstm", I, H, 2))
    assert rl.stack(layers) == rl.Weights(layers)


@pytest.mark.parametrize(
    "cell, keep_order, time_major", [("lstm", False, True), ("gru", True, False)]
)
def test_an_rnn_of_nnx_that_goes_backwards(cell, keep_order, time_major):
    """Its settings are used, as those of a Keras layer are."""
    layer = nnx_layer(cell, reverse=True, keep_order=keep_order, time_major=time_major)
    x = X.swapaxes(0, 1) if time_major else X
    y = np.asarray(called(layer, x))
    turned = reference(rl.Weights(layer.cell)).y  # of x itself: not what is computed
    assert abs(y - (turned.value if time_major else turned.value.swapaxes(0, 1))).max() > 0.1
    found = rl.RNN(layer)(x)[0]
    # both follow the recurrence on float32: twice the largest rounding that `distance` allows
    assert abs(found - y).max() <= 2 * turned.error.max() < LOOSEST


# --------------------------------------------------------------------------------------- Equinox


def scanned(cell, x, reverse=False):
    """Return y (T, H) of x (T, I)."""

    def step(state, x_t):
        state = cell(x_t, state)
        return state, state[0] if isinstance(state, tuple) else state

    zeros = jnp.zeros(H)
    state = (zeros, zeros) if isinstance(cell, eqx.nn.LSTMCell) else zeros
    return jax.lax.scan(step, state, x, reverse=reverse)[1]


@pytest.mark.parametrize("cell, bias", [("lstm", True), ("lstm", False), ("gru", True)])
def test_equinox(cell, bias):
    make = {"lstm": eqx.nn.LSTMCell, "gru": eqx.nn.GRUCell}[cell]
    own = equinox_cell(make, I, H, use_bias=bias)
    y = jax.jit(jax.vmap(partial(scanned, own)))(X)
    weights = check(y, own, rl.Spec(cell, I, H, bias="double" if bias else "none")).to("onnx")
    assert same_trees(rl.assign(emptied(own), weights), own)


# ----------------------------------------------------------------------------------------- Haiku


def unrolled(make, layers):
    """Return layers that run for a sequence, and their parameters."""

    def network(x):
        for _ in range(layers):
            core = make(H)
            x, _ = hk.dynamic_unroll(core, x, core.initial_state(x.shape[1]))
        return x

    run = hk.without_apply_rng(hk.transform(network))
    shapes = jax.eval_shape(run.init, KEY, X.swapaxes(0, 1))
    return run, filled(shapes, "haiku", make.__name__)


@pytest.mark.parametrize(
    "make, cell, reset", [(hk.GRU, "gru", "before"), (hk.VanillaRNN, "rnn_relu", "after")]
)
def test_haiku(make, cell, reset):
    """The z of its GRU takes the candidate, and the reset acts before the matrix."""
    run, params = unrolled(make, 1)
    y = jax.jit(run.apply)(params, X.swapaxes(0, 1))
    options = {"prefix": next(iter(params)).split("/")[0], "layout": "haiku", "cell": cell}
    spec = rl.Spec(cell, I, H, reset=reset)
    weights = check(np.swapaxes(y, 0, 1), params, spec, **options)
    assert weights.to("onnx", exact=True).to("haiku", exact=True) == weights


def test_a_model_of_haiku():
    """The parameters of its two layers are below lstm/linear and lstm_1/linear."""
    run, params = unrolled(hk.LSTM, 2)
    with pytest.raises(rl.LayoutError, match=r"pass prefix='lstm' or prefix='lstm_1'$"):
        rl.Weights(params)
    weights = rl.stack([rl.Weights(params, prefix=name) for name in ("lstm", "lstm_1")])
    assert weights.layout == rl.layout("haiku")
    y = np.swapaxes(jax.jit(run.apply)(params, X.swapaxes(0, 1)), 0, 1)
    check(y, weights, rl.Spec("lstm", I, H, 2))
    zeros = {"linear": emptied(params["lstm_1/linear"])}
    assert same_trees(rl.assign(zeros, weights.split()[1])["linear"], params["lstm_1/linear"])
