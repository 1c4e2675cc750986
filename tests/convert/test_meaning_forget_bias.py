"""The cells of TF1 and the LSTM of Haiku, which add a forget bias to f whenever they run, compute
the same on both sides of a conversion."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from oracles.frameworks import KERAS_NOISE, H, I, inputs, run_torch, seeded, torch_module, weight
from oracles.reference import (
    distance,
    distance_between,
    forward,
    from_cudnn,
    from_onnx,
    run_steps,
)
from tf_keras.src.layers.rnn import legacy_cells

import rnnlayout as rl

ANSWERS_FOR = ("haiku", "tf1", "tf1-block-v2")

pytestmark = [KERAS_NOISE, pytest.mark.filterwarnings("ignore:.*rnn_cell:UserWarning")]

BIAS = 0.5  # a forget bias that is not the default
P = 2


class Cell:
    """A cell of TF1. params: its variables by their names below the cell's."""

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
            variable.assign(params[name])

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
        w, b = (self.params[name] for name in self.names)
        peeps = {name: self.params.get(name, np.zeros(H, "f4")) for name in self.peeps}
        given = dict(cs_prev=c, h_prev=h, w=w, b=b, **peeps, **self.options)
        if self.op is tf.raw_ops.LSTMBlockCell:
            result = self.op(x=tf.constant(x), **given)
            return result.h, result.cs
        use = "wci" in self.params
        result = self.op(seq_len_max=1, x=tf.constant(x)[None], use_peephole=use, **given)
        return result.h[0], result.cs[0]


class Haiku:
    """params: the module's parameters, below its name."""

    def __init__(self):
        def step(x, h, c):
            y, state = hk.LSTM(H)(x, hk.LSTMState(h, c))
            return y, state.cell

        self.run = hk.without_apply_rng(hk.transform(step))
        state = jnp.zeros((1, H))
        made = self.run.init(jax.random.key(0), jnp.zeros((1, I)), state, state)
        self.params = {f"linear/{name}": array for name, array in made["lstm/linear"].items()}

    def step(self, x, h, c):
        linear = {name.removeprefix("linear/"): a for name, a in self.params.items()}
        return self.run.apply({"lstm/linear": linear}, x, h, c)


def basic(**options):
    return Cell(legacy_cells.BasicLSTMCell, H, **options)


def lstm(**options):
    return Cell(legacy_cells.LSTMCell, H, **options)


# name: the cell, its layout, what the cell adds to the bias of f
LSTMS = {
    "basic": (basic, "tf1", 1.0),
    "lstm": (lstm, rl.layout("tf1", forget_bias=1.0), 1.0),
    "projected": (lambda: lstm(num_proj=P), "tf1", 1.0),
    "half": (lambda: lstm(forget_bias=BIAS), rl.layout("tf1", forget_bias=BIAS), BIAS),
    "zero": (lambda: basic(forget_bias=0.0), rl.layout("tf1", forget_bias=0), 0.0),
    "block": (lambda: Block("BlockLSTM", forget_bias=BIAS), None, BIAS),
    "block-cell": (lambda: Block("LSTMBlockCell", names=("kernel", "bias"), forget_bias=1.0), "tf1",
                   1.0),
    "block-v2": (Block, "tf1-block-v2", 0.0),
    "haiku": (Haiku, "haiku", 1.0),
}  # fmt: skip
LAYOUTS = {name: layout for name, (_, layout, _) in LSTMS.items() if layout}


def filled(framework, rng):
    framework.params = {name: weight(rng, a.shape) for name, a in framework.params.items()}
    return framework


def run(framework, x, h0, c0=None):
    return run_steps(framework.step, x, h0, c0)


def spec_of(name):
    return rl.Spec("lstm", I, H, proj_size=P if name == "projected" else 0)


def reference(name, params, spec, given):
    """Return the weights as torch's tensors, with the forget bias as a second bias so that nothing
    is added or rounded, and what they compute."""
    layout, amount = LSTMS[name][1:]
    if name != "block-v2":  # Haiku's tensors are those of TF1 under other names
        layout = rl.layout("tf1", forget_bias=0)
        names = {"linear/w": "kernel", "linear/b": "bias"}
        params = {names.get(n, n): a for n, a in params.items()}
    weights = dict(rl.convert(params, spec, layout=layout, to="torch", exact=True))
    weights["bias_hh_l0"] = np.repeat(np.float32([0, amount, 0, 0]), H)
    return weights, forward(from_cudnn(rl.pack(weights, spec), spec), spec, *given)


@pytest.mark.parametrize("name", LAYOUTS)
def test_from_the_framework_to_torch(name):
    make, layout, _ = LSTMS[name]
    rng, spec = seeded("forget bias", name), spec_of(name)
    framework = filled(make(), rng)
    assert rl.infer_spec(framework.params, layout) == spec
    assert {n: a.shape for n, a in framework.params.items()} == rl.describe(spec, layout)
    given = inputs(rng, spec)
    weights, expected = reference(name, framework.params, spec, given)
    assert distance(run(framework, *given), expected) <= 1  # reference.Rounded

    converted = rl.convert(framework.params, spec, layout=layout, to="torch")
    weights["bias_ih_l0"] = weights["bias_ih_l0"] + weights["bias_hh_l0"]  # float32: rounded once
    weights["bias_hh_l0"] = 0 * weights["bias_hh_l0"]
    for tensor, array in converted.items():
        np.testing.assert_array_equal(array, weights[tensor], tensor)
    module = torch_module(spec)
    rl.assign(module, converted)
    assert distance_between(run(framework, *given), run_torch(module, *given), expected) <= 1


@pytest.mark.parametrize("name", LAYOUTS)
def test_from_torch_to_the_framework(name):
    make, layout, _ = LSTMS[name]
    spec, rng = spec_of(name), seeded("to a forget bias", name)
    module, framework = torch_module(spec, rng), make()
    converted = rl.convert(module, to=layout)
    assert converted.keys() == framework.params.keys()
    framework.params = dict(converted)
    given = inputs(rng, spec)
    # bW + bR and the difference are rounded, two of the additions that reference.Rounded counts
    expected = reference(name, converted, spec, given)[1]
    assert distance_between(run(framework, *given), run_torch(module, *given), expected) <= 1


def test_the_op_of_lstm_block_cell():
    """BlockLSTM has the layout of BasicLSTMCell, with other names of tensors."""
    framework, rng, spec = LSTMS["block"][0](), seeded("block"), spec_of("block")
    filled(framework, rng)
    stored = {"kernel": framework.params["w"], "bias": framework.params["b"]}
    weights = rl.convert(stored, spec, layout=rl.layout("tf1", forget_bias=BIAS), to="torch")
    given = inputs(rng, spec)
    expected = forward(from_cudnn(rl.pack(weights), spec), spec, *given)
    assert distance(run(framework, *given), expected) <= 1


@pytest.mark.parametrize("cell", ["gru", "rnn_tanh", "rnn_relu"])
def test_other_cells_of_tf1(cell):
    makers = {
        "gru": lambda: Cell(legacy_cells.GRUCell, H),
        "rnn_tanh": lambda: Cell(legacy_cells.BasicRNNCell, H),
        "rnn_relu": lambda: Cell(legacy_cells.BasicRNNCell, H, activation="relu"),
    }
    rng = seeded("tf1", cell)
    framework = filled(makers[cell](), rng)
    hints = {} if cell == "gru" else {"cell": cell}
    spec = rl.infer_spec(framework.params, "tf1", **hints)
    assert spec == rl.Spec(cell, I, H, reset="before" if cell == "gru" else "after")
    assert {n: a.shape for n, a in framework.params.items()} == rl.describe(spec, "tf1")
    given = inputs(rng, spec)
    there = rl.convert(framework.params, spec, layout="tf1", to="onnx", exact=True)
    expected = forward(from_onnx(there, spec), spec, *given)
    assert distance(run(framework, *given), expected) <= 1  # reference.Rounded
    back = rl.convert(there, spec, layout="onnx", to="tf1", exact=True)
    assert all(back[name].tobytes() == a.tobytes() for name, a in framework.params.items())


PEEPING = {
    "cell": (lambda: lstm(use_peepholes=True, forget_bias=0.0), rl.layout("tf1", forget_bias=0)),
    "block": (lambda: Block(peeps=True), rl.layout("tf1-block-v2")),
}


@pytest.mark.parametrize("name", PEEPING)
def test_peepholes_of_tf1_are_those_of_onnx(name):
    make, layout = PEEPING[name]
    rng, spec = seeded("tf1 peepholes", name), rl.Spec("lstm", I, H, peepholes=True)
    framework = filled(make(), rng)
    assert {n: a.shape for n, a in framework.params.items()} == rl.describe(spec, layout)
    assert list(framework.params) == list(rl.describe(spec, layout))  # the order in a list
    assert rl.infer_spec(framework.params, layout) == spec
    there = rl.convert(framework.params, layout=layout, to="onnx", exact=True)
    given = inputs(rng, spec)
    expected = forward(from_onnx(there, spec), spec, *given)
    assert distance(run(framework, *given), expected) <= 1  # reference.Rounded
    back = rl.convert(there, to=layout, exact=True)
    assert all(back[n].tobytes() == a.tobytes() for n, a in framework.params.items())
    with pytest.raises(
        rl.LossyError, match=r"\[0\] is .*: the peephole of gate . must be zero for"
    ):
        rl.convert(framework.params, layout=layout, to="torch")


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
    spec = rl.Spec("lstm", I, H, bias="none")
    rng = seeded("no biases")
    module = torch_module(spec, rng)
    weights = rl.convert(module, to="tf1", exact=True)
    assert weights["bias"].reshape(4, H).tolist() == [[0] * H, [0] * H, [-1] * H, [0] * H]
    back = rl.convert(weights, spec, layout="tf1", to="torch", exact=True)
    assert back["weight_hh_l0"].tobytes() == module.weight_hh_l0.detach().numpy().tobytes()
    weights["bias"][2 * H] = 0
    with pytest.raises(rl.LossyError, match=rf"bias\[{2 * H}\] is 0: .* of gate f must be -1 for"):
        rl.convert(weights, spec, layout="tf1", to="torch")


def test_it_is_explained():
    spec = rl.Spec("lstm", I, H)
    text = rl.explain(spec, "tf1", "torch")
    assert "bW f  bias + 1 -> bias_ih_l0, forget bias" in text
    text = rl.explain(spec, "torch", rl.layout("tf1", forget_bias=0.5))
    assert "bW f  bias_ih_l0 + bias_hh_l0 - 0.5 -> bias, bW + bR, forget bias" in text
    text = rl.explain(spec.replace(bias="none"), "tf1", "torch")
    assert "unrepresentable unless -1: input bias of gate f" in text


@pytest.mark.parametrize("value", ["one", "nan", "inf", "", "1.0x"])
def test_what_is_no_forget_bias(value):
    with pytest.raises(rl.LayoutError, match=r"need a finite number such as 1\.0"):
        rl.layout("tf1", forget_bias=value)


def test_a_forget_bias_that_overflows():
    spec = rl.Spec("lstm", I, H, dtype="float16")
    tensors = {"kernel": np.ones((I + H, 4 * H), "f2"), "bias": np.full(4 * H, 65504, "f2")}
    with pytest.raises(rl.LossyError, match="is 65504 before the forget bias is added: too large"):
        rl.convert(tensors, spec, layout=rl.layout("tf1", forget_bias=16), to="torch")
