"""Cells of TF1 mean the same after a conversion. Some add a forget bias to f whenever they run."""

from functools import partial

import numpy as np
import pytest
import tensorflow as tf
from convert.meaning import check_meaning
from oracles.frameworks import KERAS_NOISE, H, I, inputs, run_torch, seeded, torch_module, weight
from oracles.reference import distance, distance_between, forward, from_cudnn, run_steps
from tf_keras.src.layers.rnn import legacy_cells

import rnnlayout as rl

ANSWERS_FOR = ("tf1", "tf1-block-v2", "onnx")

pytestmark = [KERAS_NOISE, pytest.mark.filterwarnings("ignore:.*rnn_cell|LSTM with projections")]

FORGET_BIAS = 0.5  # which is not the default
P = 2


# Each of these makes a cell. It returns its tensors by their names, as the framework makes them,
# and step(tensors, x, h, c) -> (h', c').


def tf1(make, **options):
    cell = make(H, **options)
    cell.build((None, I))
    variables = {v.name.split("/", 1)[1].removesuffix(":0"): v for v in cell.weights}

    def step(tensors, x, h, c):
        for name, variable in variables.items():
            variable.assign(np.asarray(tensors[name]))
        y, state = cell(tf.constant(x), h if c is None else (c, h))
        return y, None if c is None else state[0]

    return variables, step


def block(op="BlockLSTMV2", peeps=(), names=("w", "b"), **options):
    """An op of TensorFlow. BlockLSTMV2 has no forget bias; LSTMBlockCell, for a class of
    tf.contrib, has one, and names of its own."""
    call = getattr(tf.raw_ops, op)

    def step(tensors, x, h, c):
        w, b = (tensors[name] for name in names)
        given = {name: tensors.get(name, np.zeros(H, "f4")) for name in ("wci", "wcf", "wco")}
        given |= dict(cs_prev=c, h_prev=h, w=w, b=b, **options)
        if op == "LSTMBlockCell":
            result = call(x=x, cell_clip=-1.0, **given)
            return result.h, result.cs
        result = call(seq_len_max=1, x=x[None], use_peephole=bool(peeps), **given)
        return result.h[0], result.cs[0]

    shapes = {names[0]: (I + H, 4 * H), **dict.fromkeys(peeps, (H,)), names[1]: (4 * H,)}
    return {name: np.zeros(shape, "f4") for name, shape in shapes.items()}, step


def random_tensors(shapes, *labels):
    rng = seeded(*labels)
    return {name: weight(rng, tensor.shape) for name, tensor in shapes.items()}


NO_FORGET_BIAS = rl.layout("tf1", forget_bias=0)
LSTM, PEEPING = rl.Spec("lstm", I, H), rl.Spec("lstm", I, H, peepholes=True)
BEFORE = rl.Spec("gru", I, H, reset="before")
BLOCK_CELL = partial(block, "LSTMBlockCell", names=("kernel", "bias"))
# name: a function that makes the framework's cell, its layout, the RNN
CELLS = {
    "tf1 gru": (partial(tf1, legacy_cells.GRUCell), "tf1", BEFORE),
    "tf1 rnn_tanh": (partial(tf1, legacy_cells.BasicRNNCell), "tf1", rl.Spec("rnn_tanh", I, H)),
    "tf1 rnn_relu": (partial(tf1, legacy_cells.BasicRNNCell, activation="relu"), "tf1",
                     rl.Spec("rnn_relu", I, H)),
    "tf1 lstm": (partial(tf1, legacy_cells.BasicLSTMCell, forget_bias=0.0), NO_FORGET_BIAS, LSTM),
    "tf1 peepholes": (partial(tf1, legacy_cells.LSTMCell, use_peepholes=True, forget_bias=0.0),
                      NO_FORGET_BIAS, PEEPING),
    # the cell that TensorFlow 1 reads the canonical tensors of a CudnnLSTM into
    "canonical": (partial(BLOCK_CELL, forget_bias=0.0), "tf1-cudnn-canonical", LSTM),
    "block": (block, "tf1-block-v2", LSTM),
    "block peepholes": (partial(block, peeps=("wci", "wcf", "wco")), "tf1-block-v2", PEEPING),
}  # fmt: skip


@pytest.mark.parametrize("name", CELLS)
def test_both_ways(name):
    make, layout, spec = CELLS[name]
    shapes, step = make()
    tensors = random_tensors(shapes, "cell", name)
    check_meaning(layout, tensors, spec, partial(run_steps, partial(step, tensors)))
    assert rl.infer_spec(tensors, layout, cell=spec.cell, reset=spec.reset) == spec
    assert rl.describe(spec.replace(bias="none"), layout) == rl.describe(spec, layout)
    if spec.peepholes:
        assert [*tensors] == [*rl.describe(spec, layout)]  # the order in a list


# ------------------------------------------------------------------------------- the forget bias

# name: the cell, its layout, what the cell adds to the bias of f
LSTMS = {
    "basic": (partial(tf1, legacy_cells.BasicLSTMCell), "tf1", 1.0),
    "lstm": (partial(tf1, legacy_cells.LSTMCell), rl.layout("tf1", forget_bias=1.0), 1.0),
    "projected": (partial(tf1, legacy_cells.LSTMCell, num_proj=P), "tf1", 1.0),
    "half": (partial(tf1, legacy_cells.LSTMCell, forget_bias=FORGET_BIAS),
             rl.layout("tf1", forget_bias=FORGET_BIAS), FORGET_BIAS),
    "block-cell": (partial(BLOCK_CELL, forget_bias=1.0), "tf1", 1.0),
}  # fmt: skip


def reference(tensors, spec, amount, given):
    """Return the weights as torch's tensors, with the forget bias as a second bias so that nothing
    is added or rounded, and what they compute."""
    weights = dict(rl.convert(tensors, spec, layout=NO_FORGET_BIAS, to="torch", exact=True))
    weights["bias_hh_l0"] = np.repeat(np.float32([0, amount, 0, 0]), H)
    return weights, forward(from_cudnn(rl.pack(weights, spec), spec), spec, *given)


@pytest.mark.parametrize("name", LSTMS)
def test_a_forget_bias(name):
    """From the framework to torch, and from torch to the framework."""
    make, layout, amount = LSTMS[name]
    spec, rng = LSTM.replace(proj_size=P * (name == "projected")), seeded("forget bias", name)
    shapes, step = make()
    tensors, given = random_tensors(shapes, "forget bias", name), inputs(rng, spec)
    assert rl.infer_spec(tensors, layout) == spec
    assert {n: a.shape for n, a in tensors.items()} == rl.describe(spec, layout)
    weights, expected = reference(tensors, spec, amount, given)
    run = run_steps(partial(step, tensors), *given)
    assert distance(run, expected) <= 1  # reference.Rounded
    weights["bias_ih_l0"] = weights["bias_ih_l0"] + weights["bias_hh_l0"]  # float32: rounded once
    weights["bias_hh_l0"] = 0 * weights["bias_hh_l0"]
    for tensor, array in rl.convert(tensors, spec, layout=layout, to="torch").items():
        np.testing.assert_array_equal(array, weights[tensor], tensor)

    module = torch_module(spec, rng)
    tensors = dict(rl.convert(module, to=layout))
    expected = reference(tensors, spec, amount, given)[1]
    run = run_steps(partial(step, tensors), *given)
    # bW + bR and the difference are rounded, two of the additions that reference.Rounded counts
    assert distance_between(run, run_torch(module, *given), expected) <= 1


def test_a_sum_that_is_not_rounded_is_exact():
    spec = rl.Spec("lstm", 2, 3)
    tensors = {"kernel": np.ones((5, 12), "f4"), "bias": np.zeros(12, "f4")}
    tensors["bias"][6:9] = 0.5, -1, 1 + 2**-23
    found = rl.convert(tensors, spec, layout="tf1", to="torch")
    assert found["bias_ih_l0"][3:6].tolist() == [1.5, 0, 2]
    assert found.report == rl.Report("rounds", 1, "1 rounded sums of biases and a forget bias")
    with pytest.raises(rl.LossyError, match="tf1 adds 1 to the bias of f, torch adds 0, and for 1"):
        rl.convert(tensors, spec, layout="tf1", to="torch", exact=True)
    assert rl.check(tensors, spec, layout=NO_FORGET_BIAS, to="torch").grade == "exact"
    text = rl.explain(LSTM, "torch", rl.layout("tf1", forget_bias=0.5))
    assert "bW f  bias_ih_l0 + bias_hh_l0 - 0.5 -> bias, bW + bR, forget bias" in text
    assert "of gate f where the sum with the forget bias is not rounded, else rounds" in text


def test_from_one_forget_bias_to_another():
    """The bias of f gets what the new cell adds less."""
    old, new = (rl.layout("tf1", forget_bias=amount) for amount in (1.5, 0.25))
    tensors = {"kernel": np.ones((I + H, 4 * H), "f4"), "bias": np.ones(4 * H, "f4")}
    weights = rl.convert(tensors, LSTM, layout=old, to=new, exact=True)
    assert weights["bias"].reshape(4, H).tolist() == [[1] * H, [1] * H, [2.25] * H, [1] * H]


def test_without_biases():
    """A target without biases needs the one of f to undo it, and such a source gives this one."""
    module = torch_module(LSTM.replace(bias="none"), seeded("no biases"))
    weights = rl.convert(module, to="tf1", exact=True)
    assert weights["bias"].reshape(4, H).tolist() == [[0] * H, [0] * H, [-1] * H, [0] * H]
    back = rl.convert(weights, to="torch", exact=True)
    assert back["weight_hh_l0"].tobytes() == module.weight_hh_l0.detach().numpy().tobytes()
    weights["bias"][2 * H] = 0
    with pytest.raises(rl.LossyError, match=rf"bias\[{2 * H}\] is 0: .* of gate f must be -1 for"):
        rl.convert(weights, to="torch")


def test_a_forget_bias_is_finite_and_may_not_overflow():
    for value in ("one", "nan", "inf", "", "1.0x"):
        with pytest.raises(rl.LayoutError, match=r"need a finite number such as 1\.0"):
            rl.layout("tf1", forget_bias=value)
    spec = LSTM.replace(dtype="float16")
    tensors = {"kernel": np.ones((I + H, 4 * H), "f2"), "bias": np.full(4 * H, 65504, "f2")}
    with pytest.raises(rl.LossyError, match="is 65504 before the forget bias is added: too large"):
        rl.convert(tensors, spec, layout=rl.layout("tf1", forget_bias=16), to="torch")
