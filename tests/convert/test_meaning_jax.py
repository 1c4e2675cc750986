"""The cells of Flax, Equinox and Haiku compute the same on both sides of a conversion."""

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.experimental.rnn
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from flax.traverse_util import flatten_dict, unflatten_dict
from oracles.frameworks import (
    KERAS_NOISE,
    H,
    I,
    inputs,
    keras_layers,
    run_keras,
    run_torch,
    seeded,
    torch_module,
    weight,
)
from oracles.reference import (
    Run,
    distance,
    distance_between,
    forward,
    from_cudnn,
    from_onnx,
    run_steps,
)

import rnnlayout as rl

ANSWERS_FOR = ("flax-linen", "flax-nnx", "equinox", "haiku", "flax-nnx-lstm")

pytestmark = KERAS_NOISE

KEY = jax.random.key(0)
CURVES = {"rnn_tanh": jnp.tanh, "rnn_relu": jax.nn.relu}


def zeros(shapes):
    """Return arrays of these shapes; to compile a framework's own initializers takes seconds."""
    return jax.tree.map(lambda a: jnp.asarray(np.zeros(a.shape, a.dtype)), shapes)


NO_INITIALIZERS = dict.fromkeys(
    ("kernel_init", "recurrent_kernel_init"), nnx.initializers.zeros_init()
)


class Linen:
    """params: nested dicts, as cell.init() returns them."""

    def __init__(self, cell, lstm=nn.LSTMCell):
        make = {"lstm": lstm, "gru": nn.GRUCell}.get(cell, nn.SimpleCell)
        self.cell = make(H, **({"activation_fn": CURVES[cell]} if cell in CURVES else {}))
        carry = self.cell.initialize_carry(KEY, (1, I))
        shapes = jax.eval_shape(self.cell.init, KEY, carry, np.zeros((1, I), "f4"))
        self.params = zeros(shapes["params"])

    def step(self, x, h, c):
        carry, y = self.cell.apply({"params": self.params}, h if c is None else (c, h), x)
        return (carry, None) if c is None else (y, carry[0])


class OptimizedLinen(Linen):
    def __init__(self, cell):
        super().__init__(cell, nn.OptimizedLSTMCell)


class Nnx:
    """params: nested dicts, as nnx.to_pure_dict() returns them."""

    def __init__(self, cell):
        make = {"lstm": nnx.OptimizedLSTMCell, "gru": nnx.GRUCell}.get(cell, nnx.SimpleCell)
        options = {"activation_fn": CURVES[cell]} if cell in CURVES else {}
        self.cell = make(I, H, **options, **NO_INITIALIZERS, rngs=nnx.Rngs(0))
        self.state = nnx.state(self.cell, nnx.Param)

    @property
    def params(self):
        return nnx.to_pure_dict(self.state)

    @params.setter
    def params(self, params):
        nnx.replace_by_pure_dict(self.state, params)
        nnx.update(self.cell, self.state)

    def step(self, x, h, c):
        carry, y = self.cell(h if c is None else (c, h), x)
        return (carry, None) if c is None else (y, carry[0])


class NnxLstm(Nnx):
    def __init__(self, cell):
        assert cell == "lstm"
        self.cell = nnx.LSTMCell(I, H, **NO_INITIALIZERS, rngs=nnx.Rngs(0))
        self.state = nnx.state(self.cell, nnx.Param)


class Equinox:
    """params: the cell's arrays by the names of its fields."""

    def __init__(self, cell, **options):
        make = {"lstm": eqx.nn.LSTMCell, "gru": eqx.nn.GRUCell}[cell]
        self.cell = zeros(eqx.filter_eval_shape(make, I, H, key=KEY, **options))

    @property
    def params(self):
        return {name: array for name, array in vars(self.cell).items() if eqx.is_array(array)}

    @params.setter
    def params(self, params):
        names = list(params)
        self.cell = eqx.tree_at(
            lambda cell: [getattr(cell, name) for name in names],
            self.cell,
            [params[name] for name in names],
        )

    def step(self, x, h, c):
        out = jax.vmap(self.cell)(x, h if c is None else (h, c))
        return (out, None) if c is None else out


class Haiku:
    """params: the parameters of one module, without the module's name."""

    def __init__(self, cell):
        make = {"gru": hk.GRU, "rnn_relu": hk.VanillaRNN}[cell]
        self.run = hk.without_apply_rng(hk.transform(lambda x, h: make(H)(x, h)))
        x, h = np.zeros((1, I), "f4"), np.zeros((1, H), "f4")
        leaves = flat(zeros(jax.eval_shape(self.run.init, KEY, x, h)))
        self.module = next(iter(leaves)).split("/")[0]
        self.params = {name.removeprefix(f"{self.module}/"): a for name, a in leaves.items()}

    def step(self, x, h, c):
        params = {}
        for name, array in flat(self.params).items():
            module, leaf = f"{self.module}/{name}".rsplit("/", 1)
            params.setdefault(module, {})[leaf] = array
        return self.run.apply(params, x, h)[0], None


def filled(framework, rng):
    """Fill a cell at random, in the shapes that the framework itself made. Return the cell."""
    framework.params = jax.tree.map(lambda a: jnp.asarray(weight(rng, a.shape)), framework.params)
    return framework


def run(framework, x, h0, c0=None):
    return run_steps(framework.step, x, h0, c0)


def flat(params):
    return flatten_dict(params, sep="/")


# layout, the framework's cell, its cells
CELLS = [
    (layout, make, cell)
    for layout, make, cells in [
        ("flax-linen", Linen, ["lstm", "gru", "rnn_tanh", "rnn_relu"]),
        ("flax-linen", OptimizedLinen, ["lstm"]),
        ("flax-nnx", Nnx, ["lstm", "gru", "rnn_tanh", "rnn_relu"]),
        ("flax-nnx-lstm", NnxLstm, ["lstm"]),
        ("equinox", Equinox, ["lstm", "gru"]),
        ("haiku", Haiku, ["rnn_relu"]),
    ]
    for cell in cells
]
every_cell = pytest.mark.parametrize("layout, make, cell", CELLS)


@every_cell
def test_from_the_framework_to_torch(layout, make, cell):
    rng = seeded("to torch", layout, make, cell)
    framework = filled(make(cell), rng)
    spec = rl.infer_spec(framework.params, layout, cell=cell)
    assert spec == rl.Spec(cell, I, H)
    given = inputs(rng, spec)
    module = torch_module(spec)
    rl.assign(module, rl.convert(framework.params, spec, layout=layout, to="torch", exact=True))
    expected = forward(from_cudnn(rl.pack(module), spec), spec, *given)
    assert distance(run(framework, *given), expected) <= 1  # reference.Rounded
    assert distance_between(run(framework, *given), run_torch(module, *given), expected) <= 1
    back = rl.convert(module, to=layout)
    for name, array in flat(framework.params).items():
        assert back[name].tobytes() == np.asarray(array).tobytes(), name


@every_cell
def test_from_torch_to_the_framework(layout, make, cell):
    spec = rl.Spec(cell, I, H)
    rng = seeded("from torch", layout, make, cell)
    module = torch_module(spec, rng)
    if (layout, cell) == ("flax-nnx", "gru"):  # it has no bias inside r * (R h + bR)
        with pytest.raises(rl.LossyError, match=r"bias_hh_l0\[16\].* must be zero for flax-nnx"):
            rl.convert(module, to=layout)
        module.bias_hh_l0.data[2 * H :] = 0
    given = inputs(rng, spec)
    framework = make(cell)
    weights = rl.convert(module, to=layout)
    assert flat(framework.params).keys() == weights.keys()
    framework.params = unflatten_dict(
        {name: jnp.asarray(a) for name, a in weights.items()}, sep="/"
    )
    expected = forward(from_cudnn(rl.pack(module), spec), spec, *given)
    # a sum of two biases is rounded, one of the additions that reference.Rounded counts
    assert distance(run(framework, *given), expected) <= 1


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_equinox_without_biases(cell):
    """The tensors are those of torch-cell too, which means the same network."""
    rng = seeded("no biases", cell)
    framework = filled(Equinox(cell, use_bias=False), rng)
    weights = rl.convert(framework.params, to="torch", exact=True)
    assert weights.spec == rl.Spec(cell, I, H, bias="none")
    given = inputs(rng, weights.spec)
    expected = forward(from_cudnn(rl.pack(weights), weights.spec), weights.spec, *given)
    assert distance(run(framework, *given), expected) <= 1  # reference.Rounded


def test_a_gru_of_haiku():
    """Its z takes the candidate, and its reset acts before the matrix: what Keras can represent
    after z is negated, and cuDNN not at all."""
    spec = rl.Spec("gru", I, H, reset="before")
    rng = seeded("haiku")
    framework = filled(Haiku("gru"), rng)
    assert rl.infer_spec(framework.params) == spec  # only this layout has these names
    given = inputs(rng, spec)
    expected = forward(
        from_onnx(rl.convert(framework.params, to="onnx", exact=True), spec), spec, *given
    )
    assert distance(run(framework, *given), expected) <= 1  # reference.Rounded
    layers = keras_layers(spec)
    rl.assign(layers, rl.convert(framework.params, to="keras", exact=True))
    assert distance(run_keras(layers, *given), expected) <= 1
    with pytest.raises(rl.LossyError, match="cudnn has no reset-before GRU"):
        rl.pack(framework.params)

    other = Haiku("gru")
    other.params = {
        name: jnp.asarray(array)
        for name, array in rl.convert(layers, to="haiku", exact=True).items()
    }
    for name, array in framework.params.items():
        assert np.asarray(other.params[name]).tobytes() == np.asarray(array).tobytes()


@pytest.mark.parametrize("layout, make, cell", [*CELLS, ("haiku", Haiku, "gru")])
def test_the_names_and_shapes_are_those_of_the_framework(layout, make, cell):
    """Also for an RNN without biases: all but Equinox always have them."""
    own = {name: array.shape for name, array in flat(make(cell).params).items()}
    spec = rl.Spec(cell, I, H, reset="before" if (layout, cell) == ("haiku", "gru") else "after")
    assert rl.describe(spec, layout) == own
    without = rl.describe(spec.replace(bias="none"), layout)
    assert without == own if layout != "equinox" else list(without) == ["weight_ih", "weight_hh"]


@pytest.mark.parametrize("layout, make, cell", CELLS)
def test_parameters_as_users_have_them(layout, make, cell):
    """Nested in a model's, under the module's name."""
    framework = filled(make(cell), seeded("nested", layout, make, cell))
    model = {"params": {"encoder": {"cell": framework.params}, "head": {"kernel": np.ones((3, 2))}}}
    hints = {"cell": cell} if cell.startswith("rnn") else {}
    named = hints | {"layout": layout}
    direct = rl.convert(framework.params, to="torch", **named)
    if (layout, cell) == ("equinox", "lstm"):  # without its class it may be one of Core ML
        hints = named
    found = rl.convert(model, prefix="params/encoder/cell", to="torch", **hints)
    assert all(found[name].tobytes() == direct[name].tobytes() for name in direct)
    with pytest.raises(rl.LayoutError, match=r"pass its \['params'\]\['encoder'\]\['cell'\]"):
        rl.convert(model, to="torch", **named)


def test_the_weights_of_jax_itself(both=True):
    """jax.experimental.rnn has cuDNN's weight space; jax-cudnn is another name of that layout."""
    spec = rl.Spec("lstm", I, H, 2, both)
    rng = seeded("jax", spec)
    module = torch_module(spec, rng)
    weights = rl.convert(module, to="jax-cudnn")
    assert weights.shape == (jax.experimental.rnn.get_num_params_in_lstm(I, H, 2, both),)
    x, h0, c0 = inputs(rng, spec)
    sizes = I, H, 2
    parts = jax.experimental.rnn.unpack_lstm_weights(jnp.asarray(weights), *sizes, both)
    lengths = jnp.full(x.shape[1], len(x), jnp.int32)
    y, h, c = jax.experimental.rnn.lstm_ref(
        jnp.asarray(x.swapaxes(0, 1)), h0, c0, *parts, lengths, *sizes, 0.0, both
    )
    found = Run(np.asarray(y).swapaxes(0, 1), np.asarray(h), np.asarray(c))
    expected = forward(from_cudnn(weights, spec), spec, x, h0, c0)
    assert distance(found, expected) <= 1  # reference.Rounded
    back = rl.convert(jnp.asarray(weights), spec, layout="jax-cudnn", to="torch")
    assert back["weight_hh_l1"].tobytes() == module.weight_hh_l1.detach().numpy().tobytes()
    assert rl.layout("jax-cudnn") == rl.layout("cudnn")


def test_a_model_of_haiku():
    """Haiku's own module names contain slashes."""
    framework = filled(Haiku("gru"), seeded("haiku model"))
    model = {"net/~/gru": framework.params, "net/~/linear": {"w": np.ones((3, 2)), "b": np.ones(2)}}
    found = rl.convert(model, prefix="net/~/gru", to="keras")
    direct = rl.convert(framework.params, to="keras")
    assert all(found[name].tobytes() == direct[name].tobytes() for name in direct)
