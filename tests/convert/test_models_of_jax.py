"""Models of Flax, Equinox and Haiku as their users write them: scanned over time, in several
layers, bidirectional. Converted to torch, run by rl.RNN, and put back, they compute the same."""

import pickle

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
from oracles.frameworks import KERAS_NOISE, H, I, N, T, normal, seeded
from oracles.jax_cells import KEY, emptied, equinox_cell, filled, nnx_cell
from oracles.reference import LOOSEST, Run, distance

import rnnlayout as rl

pytestmark = KERAS_NOISE

LINEN = {"lstm": nn.OptimizedLSTMCell, "gru": nn.GRUCell}
NNX = {"lstm": nnx.OptimizedLSTMCell, "gru": nnx.GRUCell}
EQUINOX = {"lstm": eqx.nn.LSTMCell, "gru": eqx.nn.GRUCell}
X = normal(seeded("models of JAX"), N, T, I)  # as Flax has it


def made(init, *labels):
    """Return what init(key, X) would, filled: its own random values are not even computed."""
    return filled(jax.eval_shape(init, KEY, X), *labels)


def reference(weights):
    """Return y (N, T, D * H) of the float64 recurrence, as Rounded numbers, from zero states."""
    spec = weights.spec
    zeros = np.zeros((spec.num_layers * spec.num_directions, N, spec.hidden_size), "f4")
    given = X.swapaxes(0, 1), zeros, zeros if spec.cell == "lstm" else None
    return expected_of(weights, spec, given)


def check(y, weights, module=None):
    """Check the y of a framework, of rl.RNN, and of a torch module that gets the weights.

    Each is as near to the recurrence in float64 as the rounding of float32 allows (`distance` is at
    most 1, see oracles.reference), which is below LOOSEST.
    """
    expected = reference(weights)
    assert expected.y.error.max() < LOOSEST
    runs = [np.asarray(y), rl.RNN(weights, batch_first=True)(X)[0]]
    if module is not None:
        rl.assign(module, weights)
        with torch.no_grad():
            runs.append(module(torch.from_numpy(X))[0].numpy())
    for found in runs:
        whole = Run(found.swapaxes(0, 1), expected.h.value, expected.c and expected.c.value)
        assert distance(whole, expected) <= 1


def torch_rnn(weights):
    spec, make = weights.spec, torch.nn.LSTM if weights.spec.cell == "lstm" else torch.nn.GRU
    return make(spec.input_size, spec.hidden_size, spec.num_layers, batch_first=True,
                bidirectional=spec.bidirectional)  # fmt: skip


def same_trees(a, b):
    """Are two trees equal in structure, types and bits?"""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(type(x) is type(y) and np.array_equal(x, y) for x, y in pairs)


# ------------------------------------------------------------------------------------ Flax linen


@pytest.mark.parametrize("cell, kind", [("lstm", dict), ("gru", freeze),
                                        ("lstm", serialization.to_bytes)])  # fmt: skip
def test_linen(cell, kind):
    """One layer; its variables as init() returns them, frozen, and as NumPy arrays from a file."""
    layer = nn.RNN(LINEN[cell](H))
    variables = made(layer.init, "linen", cell)
    own = kind(variables)
    own = serialization.msgpack_restore(own) if isinstance(own, bytes) else own
    weights = rl.Weights(own)
    assert weights.spec == rl.Spec(cell, I, H)
    module = torch_rnn(weights)
    check(jax.jit(layer.apply)(variables, X), weights, module)
    zeros = emptied(own) if kind is not serialization.to_bytes else jax.tree.map(np.zeros_like, own)
    assert same_trees(rl.assign(zeros, module), own)  # the sums add a zero
    assert not any(map(np.any, jax.tree.leaves(zeros)))


class LinenModel(nn.Module):
    """An embedding of the input, two layers, one bidirectional, a head."""

    cell: str

    def setup(self):
        make = LINEN[self.cell]
        self.layers = [nn.RNN(make(H)) for _ in range(2)]
        self.both = nn.Bidirectional(nn.RNN(make(H)), nn.RNN(make(H)))
        self.head = nn.Dense(3)

    def __call__(self, x):
        middle = self.layers[1](self.layers[0](x))
        return middle, self.both(x), self.head(middle)


def test_a_model_of_linen(cell="lstm"):
    model = LinenModel(cell)
    variables = made(model.init, "model of linen", cell)
    deep, wide, _ = jax.jit(model.apply)(variables, X)
    params = variables["params"]
    layers = rl.stack([params["layers_0"], params["layers_1"]])
    assert layers.spec == rl.Spec(cell, I, H, 2)
    check(deep, layers, torch_rnn(layers))
    both = rl.Weights(variables, prefix="params/both")
    assert both.spec == rl.Spec(cell, I, H, bidirectional=True)
    module = torch_rnn(both)
    check(wide, both, module)
    zeros = emptied(params["both"])
    params["both"] = rl.assign(zeros, module)
    assert same_trees(jax.jit(model.apply)({"params": params}, X)[1], wide)


def test_a_bidirectional_whose_rnns_share_a_cell(cell="gru"):
    """Flax then has the parameters of the forward one only, which were read as one direction."""
    shared = LINEN[cell](H)
    layer = nn.Bidirectional(nn.RNN(shared), nn.RNN(shared))
    variables = made(layer.init, "shared", cell)
    params = variables["params"]
    assert [*params] == ["forward_rnn"]
    with pytest.raises(rl.LayoutError, match=r"pass its \['forward_rnn'\]\['cell'\]$"):
        rl.Weights(params)
    own = params["forward_rnn"]["cell"]
    assert not rl.Weights(own).spec.bidirectional
    weights = rl.Weights({"forward_rnn": own, "backward_rnn": own})
    check(jax.jit(layer.apply)(variables, X), weights, torch_rnn(weights))


@pytest.mark.parametrize("name", ["model.npz", "model.pkl", "model.pt"])
def test_paths_of_flax_in_files_are_joined_by_slashes_or_dots(tmp_path, name, cell="gru"):
    """In all but .msgpack and an .npz with slashes no RNN was found."""
    model = LinenModel(cell)
    tree = jax.tree.map(np.asarray, made(model.init, "paths of linen", cell))
    dotted = {".".join(path): array for path, array in flatten_dict(tree).items()}
    path = tmp_path / name
    if path.suffix == ".npz":
        np.savez(path, **dotted)
    elif path.suffix == ".pkl":
        path.write_bytes(pickle.dumps(tree))
    else:
        torch.save({key: torch.tensor(array) for key, array in dotted.items()}, path)
    found = rl.load(path)
    names = {name.replace(".", "/") for name in found}
    assert names == {"params/both", "params/layers_0", "params/layers_1"} and not found.unread
    both = next(weights for name, weights in found.items() if name.endswith("both"))
    assert rl.verify(both, rl.Weights(tree, prefix="params/both"))
    assert rl.verify(both, rl.Weights(dotted, prefix="params.both"))
    assert rl.verify(
        rl.Weights(dotted, prefix="params.layers_0.cell"), rl.Weights(tree["params"]["layers_0"])
    )


# -------------------------------------------------------------------------------------- Flax nnx


@nnx.jit
def called(layer, x):
    return layer(x)


def nnx_layer(cell, size=I, **options):
    return nnx.RNN(nnx_cell(NNX[cell], size, H, cell, size), **options)


@pytest.mark.parametrize(
    "cell, form", [("lstm", "cell"), ("gru", "layer"), ("lstm", "state"), ("gru", "whole state")]
)
def test_nnx(cell, form):
    layer = nnx_layer(cell)
    sources = {"cell": layer.cell, "layer": layer, "state": nnx.state(layer, nnx.Param),
               "whole state": nnx.state(layer)}  # fmt: skip
    weights = rl.Weights(sources[form])
    assert weights.batch_first is (True if form == "layer" else None)
    module = torch_rnn(weights)
    y = called(layer, X)
    check(y, weights, module)
    nnx.update(layer, emptied(nnx.state(layer, nnx.Param)))
    assert not np.array_equal(called(layer, X), y)
    if cell == "lstm":
        assert rl.assign(layer, module) is layer
        assert same_trees(called(layer, X), y)
    else:  # torch's second bias of the candidate is zero, and stays so
        rl.assign(layer.cell, module)
        assert same_trees(called(layer, X), y)


def test_a_bidirectional_of_nnx(cell="lstm"):
    layer = nnx.Bidirectional(nnx_layer(cell), nnx_layer(cell))
    nnx.update(layer, filled(nnx.state(layer, nnx.Param), "both", cell))
    weights = rl.Weights(layer)
    assert weights.spec == rl.Spec(cell, I, H, bidirectional=True)
    module = torch_rnn(weights)
    y = called(layer, X)
    check(y, weights, module)
    assert rl.Weights(nnx.state(layer)).spec == weights.spec
    nnx.update(layer, emptied(nnx.state(layer, nnx.Param)))
    rl.assign(layer, module)
    assert same_trees(called(layer, X), y)


def test_layers_of_nnx(cell="lstm"):
    layers = [nnx_layer(cell), nnx_layer(cell, H)]
    weights = rl.stack(layers)
    check(called(layers[1], called(layers[0], X)), weights, torch_rnn(weights))
    assert rl.Weights(layers) == weights  # a list of layers, as of Keras


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

    zeros = jnp.zeros(cell.hidden_size)
    state = (zeros, zeros) if isinstance(cell, eqx.nn.LSTMCell) else zeros
    return jax.lax.scan(step, state, x, reverse=reverse)[1]


class EquinoxModel(eqx.Module):
    layers: list
    forward: eqx.Module
    backward: eqx.Module

    def __init__(self, cell):
        def made(size, *labels):
            return equinox_cell(EQUINOX[cell], size, H, *labels)

        self.layers = [made(I, 0), made(H, 1)]
        self.forward, self.backward = made(I, "forward"), made(I, "backward")

    def __call__(self, x):
        deep = x
        for layer in self.layers:
            deep = scanned(layer, deep)
        wide = [scanned(self.forward, x), scanned(self.backward, x, reverse=True)]
        return deep, jnp.concatenate(wide, -1)


@eqx.filter_jit
def over_batch(model):
    return jax.vmap(model)(X)


def test_a_model_of_equinox(cell="gru"):
    model = EquinoxModel(cell)
    deep, wide = over_batch(model)
    layers = rl.Weights(model.layers)
    assert layers.spec == rl.Spec(cell, I, H, 2)
    check(deep, layers, torch_rnn(layers))
    both = rl.Weights({"0": {"forward": model.forward, "backward": model.backward}})
    assert both.spec == rl.Spec(cell, I, H, bidirectional=True)
    check(wide, both, torch_rnn(both))

    module = torch_rnn(rl.Weights(model.forward))
    rl.assign(module, model.forward)
    zeros = emptied(model.forward)
    cell = rl.assign(zeros, module)
    assert same_trees(cell, model.forward) and not np.any(zeros.weight_hh)
    again = eqx.tree_at(lambda m: m.forward, model, cell)
    assert same_trees(over_batch(again)[1], wide)


# ----------------------------------------------------------------------------------------- Haiku


def test_a_model_of_haiku():
    """Two layers, run for a sequence; the parameters are below lstm/linear and lstm_1/linear."""

    def network(x):
        for _ in range(2):
            core = hk.LSTM(H)
            x, _ = hk.dynamic_unroll(core, x, core.initial_state(x.shape[1]))
        return x

    run, x = hk.without_apply_rng(hk.transform(network)), X.swapaxes(0, 1)
    params = filled(jax.eval_shape(run.init, KEY, x), "haiku lstm")
    with pytest.raises(rl.LayoutError, match=r"pass prefix='lstm' or prefix='lstm_1'$"):
        rl.Weights(params)
    weights = rl.stack([rl.Weights(params, prefix=name) for name in ("lstm", "lstm_1")])
    assert weights.spec == rl.Spec("lstm", I, H, 2) and weights.layout == rl.layout("haiku")
    y = np.asarray(jax.jit(run.apply)(params, x))
    check(y.swapaxes(0, 1), weights, torch_rnn(weights))
    zeros = {"linear": emptied(params["lstm_1/linear"])}
    assert same_trees(rl.assign(zeros, weights.split()[1])["linear"], params["lstm_1/linear"])
