"""Cells that run step by step: those of TF1, Flax, Equinox and Haiku mean the same after a
conversion. Some of TF1 and Haiku's LSTM add a forget bias to f whenever they run."""

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from convert.meaning import check_meaning
from flax import nnx
from flax.traverse_util import flatten_dict
from oracles.frameworks import KERAS_NOISE, H, I, inputs, run_torch, seeded, torch_module
from oracles.jax_cells import KEY, emptied, equinox_cell, filled, nnx_cell
from oracles.reference import distance, distance_between, forward, from_cudnn, run_steps
from tf_keras.src.layers.rnn import legacy_cells

import rnnlayout as rl

ANSWERS_FOR = ("flax-linen", "flax-nnx", "equinox", "haiku", "flax-nnx-lstm", "tf1", "tf1-block-v2")

pytestmark = [KERAS_NOISE, pytest.mark.filterwarnings("ignore:.*rnn_cell:UserWarning")]

CURVES = {"rnn_tanh": jnp.tanh, "rnn_relu": jax.nn.relu}
FORGET_BIAS = 0.5  # which is not the default
P = 2


class Linen:
    """params: nested dicts, as cell.init() returns them."""

    def __init__(self, cell, lstm=nn.LSTMCell):
        make = {"lstm": lstm, "gru": nn.GRUCell}.get(cell, nn.SimpleCell)
        self.cell = make(H, **({"activation_fn": CURVES[cell]} if cell in CURVES else {}))
        carry = self.cell.initialize_carry(KEY, (1, I))
        shapes = jax.eval_shape(self.cell.init, KEY, carry, np.zeros((1, I), "f4"))
        self.params = emptied(shapes["params"])

    def step(self, x, h, c):
        carry, y = self.cell.apply({"params": self.params}, h if c is None else (c, h), x)
        return (carry, None) if c is None else (y, carry[0])


class Nnx:
    """params: nested dicts, as nnx.to_pure_dict() returns them."""

    def __init__(self, cell, lstm=nnx.OptimizedLSTMCell):
        make = {"lstm": lstm, "gru": nnx.GRUCell}.get(cell, nnx.SimpleCell)
        options = {"activation_fn": CURVES[cell]} if cell in CURVES else {}
        self.cell = nnx_cell(make, I, H, **options)
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


class Equinox:
    """params: the cell's arrays by the names of its fields."""

    def __init__(self, cell, **options):
        make = {"lstm": eqx.nn.LSTMCell, "gru": eqx.nn.GRUCell}[cell]
        self.cell = equinox_cell(make, I, H, **options)

    @property
    def params(self):
        return {name: array for name, array in vars(self.cell).items() if eqx.is_array(array)}

    @params.setter
    def params(self, params):
        self.cell = eqx.tree_at(
            lambda cell: [getattr(cell, name) for name in params], self.cell, [*params.values()]
        )

    def step(self, x, h, c):
        out = jax.vmap(self.cell)(x, h if c is None else (h, c))
        return (out, None) if c is None else out


class Haiku:
    """params: the parameters of one module, without the module's name."""

    def __init__(self, cell):
        make = {"lstm": hk.LSTM, "gru": hk.GRU, "rnn_relu": hk.VanillaRNN}[cell]
        self.is_lstm = cell == "lstm"
        self.run = hk.without_apply_rng(hk.transform(lambda x, state: make(H)(x, state)))
        x, h = np.zeros((1, I), "f4"), np.zeros((1, H), "f4")
        leaves = flat(emptied(jax.eval_shape(self.run.init, KEY, x, self._state(h, h))))
        self.module = next(iter(leaves)).split("/")[0]
        self.params = {name.removeprefix(f"{self.module}/"): a for name, a in leaves.items()}

    def _state(self, h, c):
        return hk.LSTMState(h, c) if self.is_lstm else h

    def step(self, x, h, c):
        params = {}
        for name, array in flat(self.params).items():
            module, leaf = f"{self.module}/{name}".rsplit("/", 1)
            params.setdefault(module, {})[leaf] = array
        y, state = self.run.apply(params, x, self._state(h, c))
        return y, state.cell if self.is_lstm else None


class Tf1:
    """params: the variables by their names below the cell's."""

    def __init__(self, make, *args, **options):
        self.cell = make(*args, **options)
        self.cell.build((None, I))
        names = [v.name.split("/", 1)[1].removesuffix(":0") for v in self.cell.weights]
        self.variables = dict(zip(names, self.cell.weights, strict=True))

    @property
    def params(self):
        return {name: variable.numpy() for name, variable in self.variables.items()}

    @params.setter
    def params(self, params):
        for name, variable in self.variables.items():
            variable.assign(np.asarray(params[name]))

    def step(self, x, h, c):
        y, state = self.cell(tf.constant(x), h if c is None else (c, h))
        return (y, None) if c is None else (y, state[0])


class Block:
    """An op of TensorFlow. BlockLSTMV2 has no forget bias, BlockLSTM has one; LSTMBlockCell, for a
    class of tf.contrib, has names of its own."""

    def __init__(self, op="BlockLSTMV2", peeps=False, names=("w", "b"), **options):
        self.op, self.options, self.names = getattr(tf.raw_ops, op), options, names
        self.options |= {"cell_clip": -1.0} if "forget_bias" in options else {}
        self.peeps = ("wci", "wcf", "wco")
        peepholes = {name: np.zeros(H, "f4") for name in self.peeps if peeps}
        matrix, bias = np.zeros((I + H, 4 * H), "f4"), np.zeros(4 * H, "f4")
        self.params = {names[0]: matrix, **peepholes, names[1]: bias}

    def step(self, x, h, c):
        params = {name: np.asarray(array) for name, array in self.params.items()}
        w, b = (params[name] for name in self.names)
        peeps = {name: params.get(name, np.zeros(H, "f4")) for name in self.peeps}
        given = dict(cs_prev=c, h_prev=h, w=w, b=b, **peeps, **self.options)
        if self.op is tf.raw_ops.LSTMBlockCell:
            result = self.op(x=tf.constant(x), **given)
            return result.h, result.cs
        use = "wci" in params
        result = self.op(seq_len_max=1, x=tf.constant(x)[None], use_peephole=use, **given)
        return result.h[0], result.cs[0]


def basic(**options):
    return Tf1(legacy_cells.BasicLSTMCell, H, **options)


def lstm(**options):
    return Tf1(legacy_cells.LSTMCell, H, **options)


def flat(params):
    return flatten_dict(params, sep="/")


def fill(framework, *labels):
    """Fill a cell at random, in the shapes that the framework itself made. Return the cell."""
    framework.params = filled(framework.params, *labels)
    return framework


def run(framework, x, h0, c0=None):
    return run_steps(framework.step, x, h0, c0)


NO_FORGET_BIAS = rl.layout("tf1", forget_bias=0)
LSTM, PEEPING = rl.Spec("lstm", I, H), rl.Spec("lstm", I, H, peepholes=True)
BEFORE = rl.Spec("gru", I, H, reset="before")
# name: a function that makes the framework's cell, its layout, the RNN
CELLS = {
    f"{layout} {cell}": (lambda make=make, cell=cell: make(cell), layout, rl.Spec(cell, I, H))
    for layout, make, cells in [
        ("flax-linen", Linen, ["lstm", "gru", "rnn_tanh", "rnn_relu"]),
        ("flax-nnx", Nnx, ["lstm", "gru", "rnn_tanh", "rnn_relu"]),
        ("equinox", Equinox, ["lstm", "gru"]),
        ("haiku", Haiku, ["rnn_relu"]),
    ]
    for cell in cells
} | {
    "optimized": (lambda: Linen("lstm", nn.OptimizedLSTMCell), "flax-linen", LSTM),
    "not optimized": (lambda: Nnx("lstm", nnx.LSTMCell), "flax-nnx-lstm", LSTM),
    "equinox lstm without biases": (lambda: Equinox("lstm", use_bias=False), "equinox",
                                    LSTM.replace(bias="none")),
    "equinox gru without biases": (lambda: Equinox("gru", use_bias=False), "equinox",
                                   rl.Spec("gru", I, H, bias="none")),
    # its z takes the candidate, and its reset acts before the matrix
    "haiku gru": (lambda: Haiku("gru"), "haiku", BEFORE),
    "tf1 gru": (lambda: Tf1(legacy_cells.GRUCell, H), "tf1", BEFORE),
    "tf1 rnn_tanh": (lambda: Tf1(legacy_cells.BasicRNNCell, H), "tf1", rl.Spec("rnn_tanh", I, H)),
    "tf1 rnn_relu": (lambda: Tf1(legacy_cells.BasicRNNCell, H, activation="relu"), "tf1",
                     rl.Spec("rnn_relu", I, H)),
    "tf1 lstm": (lambda: basic(forget_bias=0.0), NO_FORGET_BIAS, LSTM),
    "tf1 peepholes": (lambda: lstm(use_peepholes=True, forget_bias=0.0), NO_FORGET_BIAS, PEEPING),
    # the cell that TensorFlow 1 reads the canonical tensors of a CudnnLSTM into
    "canonical": (lambda: Block("LSTMBlockCell", names=("kernel", "bias"), forget_bias=0.0),
                  "tf1-cudnn-canonical", LSTM),
    "block": (Block, "tf1-block-v2", LSTM),
    "block peepholes": (lambda: Block(peeps=True), "tf1-block-v2", PEEPING),
}  # fmt: skip


@pytest.mark.parametrize("name", CELLS)
def test_both_ways(name):
    make, layout, spec = CELLS[name]
    framework = fill(make(), "cell", name)
    check_meaning(layout, flat(framework.params), spec, lambda *given: run(framework, *given))
    assert rl.infer_spec(framework.params, layout, cell=spec.cell, reset=spec.reset) == spec
    if layout != "equinox":  # all others always have biases
        assert rl.describe(spec.replace(bias="none"), layout) == rl.describe(spec, layout)
    if spec.peepholes:
        assert list(make().params) == list(rl.describe(spec, layout))  # the order in a list
        with pytest.raises(rl.LossyError, match=r"the peephole of gate . must be zero for"):
            rl.convert(framework.params, layout=layout, to="torch")


# ------------------------------------------------------------------------------- the forget bias

# name: the cell, its layout, what the cell adds to the bias of f
LSTMS = {
    "basic": (basic, "tf1", 1.0),
    "lstm": (lstm, rl.layout("tf1", forget_bias=1.0), 1.0),
    "projected": (lambda: lstm(num_proj=P), "tf1", 1.0),
    "half": (lambda: lstm(forget_bias=FORGET_BIAS), rl.layout("tf1", forget_bias=FORGET_BIAS),
             FORGET_BIAS),
    "block-cell": (lambda: Block("LSTMBlockCell", names=("kernel", "bias"), forget_bias=1.0), "tf1",
                   1.0),
    "haiku": (lambda: Haiku("lstm"), "haiku", 1.0),
}  # fmt: skip


def spec_of(name):
    return LSTM.replace(proj_size=P) if name == "projected" else LSTM


def reference(params, spec, amount, given):
    """Return the weights as torch's tensors, with the forget bias as a second bias so that nothing
    is added or rounded, and what they compute."""
    names = {"linear/w": "kernel", "linear/b": "bias", "w": "kernel", "b": "bias"}
    params = {names.get(n, n): a for n, a in params.items()}
    weights = dict(rl.convert(params, spec, layout=NO_FORGET_BIAS, to="torch", exact=True))
    weights["bias_hh_l0"] = np.repeat(np.float32([0, amount, 0, 0]), H)
    return weights, forward(from_cudnn(rl.pack(weights, spec), spec), spec, *given)


@pytest.mark.parametrize("name", LSTMS)
def test_from_a_forget_bias_to_torch(name):
    make, layout, amount = LSTMS[name]
    spec, framework = spec_of(name), fill(make(), "forget bias", name)
    assert rl.infer_spec(framework.params, layout) == spec
    assert {n: a.shape for n, a in framework.params.items()} == rl.describe(spec, layout)
    given = inputs(seeded("forget bias", name), spec)
    weights, expected = reference(framework.params, spec, amount, given)
    assert distance(run(framework, *given), expected) <= 1  # reference.Rounded

    weights["bias_ih_l0"] = weights["bias_ih_l0"] + weights["bias_hh_l0"]  # float32: rounded once
    weights["bias_hh_l0"] = 0 * weights["bias_hh_l0"]
    for tensor, array in rl.convert(framework.params, spec, layout=layout, to="torch").items():
        np.testing.assert_array_equal(array, weights[tensor], tensor)


@pytest.mark.parametrize("name", LSTMS)
def test_from_torch_to_a_forget_bias(name):
    make, layout, amount = LSTMS[name]
    spec, rng = spec_of(name), seeded("to a forget bias", name)
    module, framework = torch_module(spec, rng), make()
    framework.params = dict(rl.convert(module, to=layout))
    given = inputs(rng, spec)
    # bW + bR and the difference are rounded, two of the additions that reference.Rounded counts
    expected = reference(framework.params, spec, amount, given)[1]
    assert distance_between(run(framework, *given), run_torch(module, *given), expected) <= 1


def test_the_op_of_lstm_block_cell():
    """BlockLSTM has the layout of BasicLSTMCell, with other names of tensors."""
    framework = fill(Block("BlockLSTM", forget_bias=FORGET_BIAS), "block")
    given = inputs(seeded("block"), LSTM)
    expected = reference(framework.params, LSTM, FORGET_BIAS, given)[1]
    assert distance(run(framework, *given), expected) <= 1


def test_a_sum_that_is_not_rounded_is_exact():
    spec = rl.Spec("lstm", 2, 3)
    kernel, bias = np.ones((5, 12), "f4"), np.zeros(12, "f4")
    bias[6:9] = 0.5, -1, 1 + 2**-23
    tensors = {"kernel": kernel, "bias": bias}
    found = rl.convert(tensors, spec, layout="tf1", to="torch")
    assert found["bias_ih_l0"][3:6].tolist() == [1.5, 0, 2]
    assert found.report == rl.Report("rounds", 1, "1 rounded sums of biases and a forget bias")
    with pytest.raises(rl.LossyError, match="tf1 adds 1 to the bias of f, torch adds 0, and for 1"):
        rl.convert(tensors, spec, layout="tf1", to="torch", exact=True)
    bias[8] = 2**-23
    exact = rl.convert(tensors, spec, layout="tf1", to="torch", exact=True)
    back = rl.convert(exact, spec, to="tf1", exact=True)
    assert all(back[name].tobytes() == array.tobytes() for name, array in tensors.items())


def test_without_biases():
    """A target without biases needs the one of f to undo the forget bias; and such a source gives
    this one."""
    spec = LSTM.replace(bias="none")
    module = torch_module(spec, seeded("no biases"))
    weights = rl.convert(module, to="tf1", exact=True)
    assert weights["bias"].reshape(4, H).tolist() == [[0] * H, [0] * H, [-1] * H, [0] * H]
    back = rl.convert(weights, spec, layout="tf1", to="torch", exact=True)
    assert back["weight_hh_l0"].tobytes() == module.weight_hh_l0.detach().numpy().tobytes()
    weights["bias"][2 * H] = 0
    with pytest.raises(rl.LossyError, match=rf"bias\[{2 * H}\] is 0: .* of gate f must be -1 for"):
        rl.convert(weights, spec, layout="tf1", to="torch")


def test_it_is_explained():
    text = rl.explain(LSTM, "tf1", "torch")
    assert "bW f  bias + 1 -> bias_ih_l0, forget bias" in text
    text = rl.explain(LSTM, "torch", rl.layout("tf1", forget_bias=0.5))
    assert "bW f  bias_ih_l0 + bias_hh_l0 - 0.5 -> bias, bW + bR, forget bias" in text
    text = rl.explain(LSTM.replace(bias="none"), "tf1", "torch")
    assert "unrepresentable unless -1: input bias of gate f" in text


@pytest.mark.parametrize("value", ["one", "nan", "inf", "", "1.0x"])
def test_what_is_no_forget_bias(value):
    with pytest.raises(rl.LayoutError, match=r"need a finite number such as 1\.0"):
        rl.layout("tf1", forget_bias=value)


def test_a_forget_bias_that_overflows():
    spec = LSTM.replace(dtype="float16")
    tensors = {"kernel": np.ones((I + H, 4 * H), "f2"), "bias": np.full(4 * H, 65504, "f2")}
    with pytest.raises(rl.LossyError, match="is 65504 before the forget bias is added: too large"):
        rl.convert(tensors, spec, layout=rl.layout("tf1", forget_bias=16), to="torch")
