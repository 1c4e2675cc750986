"""Gradients that the frameworks compute themselves: after a conversion they are those that the
other framework computes for the same loss."""

import itertools
from functools import partial

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import keras
import mlx.core as mx
import mlx.nn as mlx_nn
import pytest
import tensorflow as tf
import tf_keras
import torch
from flax import nnx
from oracles.frameworks import KERAS_NOISE, TORCH, normal, seeded, weight
from oracles.gradients import LAYOUT, gradients, jacobian, loss_of
from oracles.jax_cells import equinox_cell, nnx_cell
from oracles.reference import FLOAT32
from tf_keras.src.layers.rnn import legacy_cells

import rnnlayout as rl

pytestmark = [pytest.mark.long, KERAS_NOISE, pytest.mark.filterwarnings("ignore:.*rnn_cell")]

T, N, I, H = 4, 3, 5, 2  # noqa: E741
X, COEFFICIENTS = normal(seeded("x"), T, N, I), normal(seeded("loss"), T, N, H)
SPECS = {
    "lstm": rl.Spec("lstm", I, H),
    "gru": rl.Spec("gru", I, H),
    "gru before": rl.Spec("gru", I, H, reset="before"),
    "rnn_tanh": rl.Spec("rnn_tanh", I, H),
    "rnn_relu": rl.Spec("rnn_relu", I, H),
}

# Each function makes an RNN of the framework with these tensors, and returns the gradient as the
# framework returns it.


def by_torch(spec, tensors):
    make, _, options = TORCH[spec.cell]
    module = rl.assign(make(I, H, **options), tensors)
    loss_of(spec, module(torch.tensor(X))[0], torch.tensor(COEFFICIENTS)).backward()
    return {name: parameter.grad for name, parameter in module.named_parameters()}


def by_torch_cell(spec, tensors):
    _, make, options = TORCH[spec.cell]
    cell, state, ys = rl.assign(make(I, H, **options), tensors), None, []
    for x in torch.tensor(X):
        state = cell(x, state)
        ys.append(state[0] if spec.cell == "lstm" else state)
    loss_of(spec, torch.stack(ys), torch.tensor(COEFFICIENTS)).backward()
    return {name: parameter.grad for name, parameter in cell.named_parameters()}


def keras_layer(spec, kit):
    options = {"return_sequences": True}
    if spec.cell.startswith("rnn"):
        layer = kit.layers.SimpleRNN(H, activation=spec.cell.removeprefix("rnn_"), **options)
    elif spec.cell == "lstm":
        layer = kit.layers.LSTM(H, **options)
    else:
        layer = kit.layers.GRU(H, reset_after=spec.reset == "after", **options)
    layer.build((None, T, I))
    return layer


def by_keras(spec, tensors):
    layer = rl.assign(keras_layer(spec, keras), tensors)
    y = layer(torch.tensor(X.swapaxes(0, 1)))
    loss_of(spec, y.swapaxes(0, 1), torch.tensor(COEFFICIENTS)).backward()
    return [variable.value.grad for variable in layer.trainable_weights]


def by_tf_keras(spec, tensors):
    layer = rl.assign(keras_layer(spec, tf_keras), tensors)
    with tf.GradientTape() as tape:
        y = tf.transpose(layer(tf.constant(X.swapaxes(0, 1))), (1, 0, 2))
        loss = tf.reduce_sum(y * COEFFICIENTS)
    return [g.numpy() for g in tape.gradient(loss, layer.trainable_variables)]


def by_tf1(spec, tensors):
    make = {"lstm": legacy_cells.BasicLSTMCell, "gru": legacy_cells.GRUCell}.get(spec.cell)
    cell = make(H) if make else legacy_cells.BasicRNNCell(H, spec.cell.removeprefix("rnn_"))
    cell.build((None, I))
    variables = {v.name.split("/", 1)[1].removesuffix(":0"): v for v in cell.weights}
    for name, variable in variables.items():
        variable.assign(tensors[name])
    state, ys = cell.zero_state(N, tf.float32), []
    with tf.GradientTape() as tape:
        for x in X:
            y, state = cell(tf.constant(x), state)
            ys.append(y)
        loss = tf.reduce_sum(tf.stack(ys) * COEFFICIENTS)
    found = tape.gradient(loss, [*variables.values()])
    return {name: g.numpy() for name, g in zip(variables, found, strict=True)}


def jax_loss(step, state):
    """Return the loss of step(x, state) -> (y, state) over all steps. Nothing is compiled: that
    would take seconds."""
    ys = []
    for x in jnp.asarray(X):
        y, state = step(x, state)
        ys.append(y)
    return (jnp.stack(ys) * COEFFICIENTS).sum()


def zeros(spec):
    h = jnp.zeros((N, H))
    return (h, h) if spec.cell == "lstm" else h


def nested(tensors):
    tree = {}
    for name, array in tensors.items():
        *above, last = name.split("/")
        branch = tree
        for part in above:
            branch = branch.setdefault(part, {})
        branch[last] = jnp.asarray(array)
    return tree


def by_linen(make, spec, tensors):
    cell = make(H)

    def loss(params):
        return jax_loss(
            lambda x, state: cell.apply({"params": params}, state, x)[::-1], zeros(spec)
        )

    return jax.grad(loss)(nested(tensors))


def by_nnx(make, spec, tensors):
    cell = rl.assign(nnx_cell(make, I, H), rl.Weights(tensors))
    graph, state = nnx.split(cell)

    def loss(state):
        return jax_loss(lambda x, h: nnx.merge(graph, state)(h, x)[::-1], zeros(spec))

    return jax.grad(loss)(state)


def by_equinox(make, spec, tensors):
    cell = rl.assign(equinox_cell(make, I, H), rl.Weights(tensors))

    def loss(cell):
        def step(x, state):
            state = jax.vmap(cell)(x, state)
            return (state[0] if spec.cell == "lstm" else state), state

        return jax_loss(step, zeros(spec))

    return eqx.filter_grad(loss)(cell)


def by_haiku(make, spec, tensors):
    def run(x):
        cell = make(H)
        y, _ = hk.static_unroll(cell, x, cell.initial_state(N))
        return (y * COEFFICIENTS).sum()

    loss = hk.without_apply_rng(hk.transform(run))
    names = jax.eval_shape(loss.init, jax.random.key(0), X)
    params = {module: {} for module in names}
    for name, array in tensors.items():
        inner, _, leaf = name.rpartition("/")
        module = next(m for m in names if m.endswith(f"/{inner}" if inner else m))
        params[module][leaf] = jnp.asarray(array)
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(lambda a: a.shape, names)
    return jax.grad(loss.apply)(params, X)


def by_mlx(spec, tensors):
    make = {"lstm": mlx_nn.LSTM, "gru": mlx_nn.GRU}.get(spec.cell, mlx_nn.RNN)
    options = {"nonlinearity": mlx_nn.relu} if spec.cell == "rnn_relu" else {}
    layer = rl.assign(make(I, H, **options), tensors)

    def loss(x):
        y = layer(x)
        y = y[0] if spec.cell == "lstm" else y
        return (y * mx.array(COEFFICIENTS.swapaxes(0, 1))).sum()

    return mlx_nn.value_and_grad(layer, loss)(mx.array(X.swapaxes(0, 1)))[1]


LINEN = {"lstm": nn.OptimizedLSTMCell, "gru": nn.GRUCell, "rnn_tanh": nn.SimpleCell}
NNX = {"lstm": nnx.OptimizedLSTMCell, "gru": nnx.GRUCell, "rnn_tanh": nnx.SimpleCell}
EQUINOX = {"lstm": eqx.nn.LSTMCell, "gru": eqx.nn.GRUCell}
VANILLA = partial(hk.VanillaRNN, double_bias=True)
HAIKU = {"lstm": hk.LSTM, "gru before": hk.GRU, "rnn_relu": VANILLA}
AFTER = ("lstm", "gru", "rnn_tanh", "rnn_relu")
# (layout, cells, function) of each framework; a function with a class per cell has that class first
FRAMEWORKS = [
    ("torch", AFTER, by_torch),
    ("torch-cell", AFTER, by_torch_cell),
    ("keras", SPECS, by_keras),
    ("keras", SPECS, by_tf_keras),
    ("tf1", ("lstm", "gru before", "rnn_tanh", "rnn_relu"), by_tf1),
    ("flax-linen", LINEN, by_linen),
    ("flax-nnx", NNX, by_nnx),
    ("flax-nnx-lstm", {"lstm": nnx.LSTMCell}, by_nnx),
    ("equinox", EQUINOX, by_equinox),
    ("haiku", HAIKU, by_haiku),
    ("mlx", AFTER, by_mlx),
]


def computed(cell, spec):
    """Yield (layout, gradient) of each framework with the cell, all at equal weights."""
    rng = seeded("frameworks", cell)
    weights = {n: weight(rng, shape) for n, shape in rl.describe(spec, LAYOUT).items()}
    if cell == "gru":
        weights["bias"][..., 3, :] = 0  # bR of n, which flax-nnx lacks
    for layout, cells, function in FRAMEWORKS:
        if cell in cells:
            tensors = rl.convert(weights, spec, layout=LAYOUT, to=layout)
            make = (cells[cell],) if isinstance(cells, dict) and cells is not SPECS else ()
            gradient = rl.Weights(function(*make, spec, tensors), spec, layout, kind="gradient")
            yield layout, dict(gradient)
    wide = {name: array.astype("f8") for name, array in weights.items()}
    exact = gradients(spec, wide, X.astype("f8"), COEFFICIENTS.astype("f8"))
    yield LAYOUT, {name: array.astype("f4") for name, array in exact.items()}


@pytest.mark.parametrize("cell", SPECS)
def test_every_pair_of_frameworks(cell):
    """At least one of each pair is not ours: onednn is the recurrence in float64."""
    spec, refused, wrong = SPECS[cell], set(), []
    sides = [*computed(cell, spec)]
    wide = spec.replace(dtype="float64")
    has = {layout: jacobian(wide, layout).any(axis=1) for layout, _ in sides}
    # A gradient is a sum of T N products, each over a chain of at most T steps with I + H products
    # and 8 other operations; none of the terms is above twice the largest gradient of the RNN. Two
    # frameworks are compared, and a square is off by twice as much.
    tolerance = 2 * 2 * 2 * T * N * T * (I + H + 8) * FLOAT32
    for (a, gradient), (b, expected) in itertools.product(sides, sides):
        largest = max(abs(array).max() for array in expected.values())
        for kind, power in ("gradient", 1), ("squared_gradient", 2):
            source = {name: array**power for name, array in gradient.items()}
            report = rl.check(source, spec, layout=a, to=b, kind=kind)
            if report.grade == "unrepresentable":
                refused.add((a, b))
                continue
            result = rl.convert(source, spec, layout=a, to=b, kind=kind)
            off = max(abs(result[name] - expected[name] ** power).max() for name in expected)
            if off > tolerance * largest**power:
                wrong.append((a, b, kind, off))
    assert not wrong
    assert refused == {(a, b) for a, b in itertools.product(has, has) if (has[a] != has[b]).any()}
