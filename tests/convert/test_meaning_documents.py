"""Layouts of frameworks that nothing here can run: their equations, written down once more.

Each function below is one step of a framework, in float64, from the source file that the row names.
It reads the framework's own tensors and shares nothing with the table.
"""

from functools import partial

import numpy as np
import pytest
from oracles.frameworks import H, I, inputs, seeded, weight
from oracles.reference import FLOAT64, Run, distance, forward, from_onnx

import rnnlayout as rl

ANSWERS_FOR = ("tf1-cudnn-canonical", "burn", "webnn", "webnn-ifgo", "haste",
               "cntk", "dl4j", "coreml", "tensorrt", "miopen")  # fmt: skip


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def haste_lstm(w, x, h, c):
    a = x @ w["kernel"] + h @ w["recurrent_kernel"] + w["bias"]
    i, g, f, o = np.split(a, 4, -1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def haste_gru(w, x, h, _):
    wz, wr, wg = np.split(x @ w["kernel"] + w["bias"], 3, -1)
    rz, rr, rg = np.split(h @ w["recurrent_kernel"] + w["recurrent_bias"], 3, -1)
    z, r = sigmoid(wz + rz), sigmoid(wr + rr)
    g = np.tanh(wg + r * rg)
    return z * h + (1 - z) * g, None


def cntk_lstm(w, x, h, c):
    proj4 = w["b"] + x @ w["W"] + h @ w["H"]
    it, bit, ft, ot = np.split(proj4, 4, -1)
    c = sigmoid(ft) * c + sigmoid(it) * np.tanh(bit)
    return sigmoid(ot) * np.tanh(c), c


def cntk_gru(w, x, h, _):
    zx, rx, cx = np.split(w["b"] + x @ w["W"], 3, -1)
    zh, rh = np.split(h @ w["H"], 2, -1)
    z, r = sigmoid(zx + zh), sigmoid(rx + rh)
    c = np.tanh(cx + (h * r) @ w["H1"])
    return (1 - z) * c + z * h, None


def cntk_rnn(w, x, h, _):
    return np.tanh(x @ w["W"] + h @ w["H"] + w["b"]), None


def dl4j_lstm(w, x, h, c):
    ifog = x @ w["W"] + h @ w["RW"] + w["b"]
    candidate, forget, output, input_gate = np.split(ifog, 4, -1)
    c = sigmoid(forget) * c + sigmoid(input_gate) * np.tanh(candidate)
    return sigmoid(output) * np.tanh(c), c


def cntk_peephole_lstm(w, x, h, c):
    i, candidate, f, o = np.split(w["b"] + x @ w["W"] + h @ w["H"], 4, -1)
    new = sigmoid(f + w["Cf"] * c) * c + sigmoid(i + w["Ci"] * c) * np.tanh(candidate)
    return sigmoid(o + w["Co"] * new) * np.tanh(new), new


def dl4j_graves_lstm(w, x, h, c):
    wFF, wOO, wGG = w["RW"][:, 4 * H :].T
    ifog = x @ w["W"] + h @ w["RW"][:, : 4 * H] + w["b"]
    candidate, forget, output, input_gate = np.split(ifog, 4, -1)
    new = sigmoid(forget + c * wFF) * c + sigmoid(input_gate + c * wGG) * np.tanh(candidate)
    return sigmoid(output + new * wOO) * np.tanh(new), new


def tf1_lstm(w, x, h, c):
    icfo = np.concatenate([x, h], -1) @ w["kernel"] + w["bias"]
    i, ci, f, o = np.split(icfo, 4, -1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(ci)
    return sigmoid(o) * np.tanh(c), c


def tf1_gru(w, x, h, _):
    gates = sigmoid(np.concatenate([x, h], -1) @ w["gates/kernel"] + w["gates/bias"])
    r, u = np.split(gates, 2, -1)
    side = "candidate/{}_projection/{}".format
    hi = x @ w[side("input", "kernel")] + w[side("input", "bias")]
    hh = r * (h @ w[side("hidden", "kernel")] + w[side("hidden", "bias")])
    return u * h + (1 - u) * np.tanh(hi + hh), None


def tf1_rnn(w, x, h, _):
    return np.tanh(np.concatenate([x, h], -1) @ w["kernel"] + w["bias"]), None


def burn_gate(w, gate, x, h):
    """Return the two products of one gate, each with its bias."""
    side = f"{gate}_gate.{{}}_transform.{{}}".format
    return (x @ w[side("input", "weight")] + w[side("input", "bias")],
            h @ w[side("hidden", "weight")] + w[side("hidden", "bias")])  # fmt: skip


def burn_lstm(w, x, h, c):
    gates = "input", "forget", "output", "cell"
    i, f, o, cell = (sum(burn_gate(w, gate, x, h)) for gate in gates)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(cell)
    return sigmoid(o) * np.tanh(c), c


def burn_gru(w, x, h, _):
    z, r = (sigmoid(sum(burn_gate(w, gate, x, h))) for gate in ("update", "reset"))
    from_input, from_hidden = burn_gate(w, "new", x, h)
    return (1 - z) * np.tanh(from_input + r * from_hidden) + z * h, None


def burn_gru_reset_before(w, x, h, _):
    z, r = (sigmoid(sum(burn_gate(w, gate, x, h))) for gate in ("update", "reset"))
    return (1 - z) * np.tanh(sum(burn_gate(w, "new", x, r * h))) + z * h, None


def burn_shapes(*gates):
    parts = {"input_transform.weight": (I, H), "hidden_transform.weight": (H, H),
             "input_transform.bias": (H,), "hidden_transform.bias": (H,)}  # fmt: skip
    return {f"{g}_gate.{part}": shape for part, shape in parts.items() for g in gates}


def webnn_gates(w, x, h, order):
    """Return the two products of each gate, for layout=order."""
    from_x = np.split(x @ w["weight"][0].T + w["bias"][0], len(order), -1)
    from_h = np.split(h @ w["recurrentWeight"][0].T + w["recurrentBias"][0], len(order), -1)
    return {gate: (from_x[k], from_h[k]) for k, gate in enumerate(order)}


def webnn_lstm(order):
    def step(w, x, h, c):
        a = {gate: sum(both) for gate, both in webnn_gates(w, x, h, order).items()}
        c = sigmoid(a["f"]) * c + sigmoid(a["i"]) * np.tanh(a["g"])
        return sigmoid(a["o"]) * np.tanh(c), c

    return step


def webnn_gru(order, reset_after):
    def step(w, x, h, _):
        a = webnn_gates(w, x, h, order)
        z, r = sigmoid(sum(a["z"])), sigmoid(sum(a["r"]))
        if reset_after:
            n = np.tanh(a["n"][0] + r * a["n"][1])
        else:
            n = np.tanh(sum(webnn_gates(w, x, r * h, order)["n"]))
        return z * h + n * (1 - z), None

    return step


def webnn_shapes(gates):
    return {"weight": (1, gates * H, I), "recurrentWeight": (1, gates * H, H),
            "bias": (1, gates * H), "recurrentBias": (1, gates * H)}  # fmt: skip


def candle_lstm(w, x, h, c):
    a = x @ w["weight_ih_l0"].T + w["bias_ih_l0"] + (h @ w["weight_hh_l0"].T + w["bias_hh_l0"])
    in_gate, forget_gate, cell_gate, out_gate = np.split(a, 4, -1)
    c = sigmoid(forget_gate) * c + sigmoid(in_gate) * np.tanh(cell_gate)
    return sigmoid(out_gate) * np.tanh(c), c


def candle_gru(w, x, h, _):
    ih = np.split(x @ w["weight_ih_l0"].T + w["bias_ih_l0"], 3, -1)
    hh = np.split(h @ w["weight_hh_l0"].T + w["bias_hh_l0"], 3, -1)
    r, z = sigmoid(ih[0] + hh[0]), sigmoid(ih[1] + hh[1])
    n = np.tanh(ih[2] + r * hh[2])
    return z * h - (z - 1) * n, None


def coreml_gates(w, x, h, n):
    return np.split(x @ w["weight_ih"].T + h @ w["weight_hh"].T + w["bias"], n, -1)


def relu(x):
    return np.maximum(x, 0)


def coreml_lstm(w, x, h, c, activation=np.tanh):
    i, f, o, z = coreml_gates(w, x, h, 4)
    c = sigmoid(f) * c + sigmoid(i) * activation(z)
    return sigmoid(o) * activation(c), c


def coreml_gru(w, x, h, _, activation=np.tanh):
    r, _, z = map(sigmoid, coreml_gates(w, x, h, 3))
    _, o, _ = coreml_gates(w, x, h * r, 3)
    return (1 - z) * activation(o) + z * h, None


def coreml_rnn(w, x, h, _):
    return relu(coreml_gates(w, x, h, 1)[0]), None


def coreml_shapes(gates):
    return {"weight_ih": (gates * H, I), "weight_hh": (gates * H, H), "bias": (gates * H,)}


def tensorrt_gate(w, gate, x, h):
    """Return the two products of one gate, each with its bias."""
    return (x @ w[f"W0[{gate}]"].T + w[f"Wb0[{gate}]"],
            h @ w[f"R0[{gate}]"].T + w[f"Rb0[{gate}]"])  # fmt: skip


def tensorrt_lstm(w, x, h, c_before):
    f, i, o, c = (sum(tensorrt_gate(w, gate, x, h)) for gate in "fioc")
    c = sigmoid(f) * c_before + sigmoid(i) * np.tanh(c)
    return sigmoid(o) * np.tanh(c), c


def tensorrt_gru(w, x, h_before, _):
    z, r = (sigmoid(sum(tensorrt_gate(w, gate, x, h_before))) for gate in "zr")
    from_x, from_h = tensorrt_gate(w, "h", x, h_before)
    return (1 - z) * np.tanh(from_x + r * from_h) + z * h_before, None


def tensorrt_rnn(w, x, h, _):
    return np.tanh(sum(tensorrt_gate(w, "i", x, h))), None


def tensorrt_shapes(gates):
    parts = {"W": (H, I), "R": (H, H), "Wb": (H,), "Rb": (H,)}
    return {f"{part}0[{g}]": shape for part, shape in parts.items() for g in gates}


def miopen_parts(w, gates):
    """Cut the vector of one layer and direction: W, R, bW, bR, each of all gates."""
    sizes = np.cumsum([gates * H * I, gates * H * H, gates * H])
    W, R, bW, bR = np.split(w["weights"], sizes)
    return W.reshape(-1, I), R.reshape(-1, H), bW, bR


def miopen_lstm(w, x, h, c):
    W, R, bW, bR = miopen_parts(w, 4)
    i, f, o, g = np.split(x @ W.T + bW + h @ R.T + bR, 4, -1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def miopen_gru(w, x, h, _):
    """As driver/gru_verify_gemm.hpp of MIOpen computes what its GPU computes."""
    W, R, bW, bR = miopen_parts(w, 3)
    wz, wr, wn = np.split(x @ W.T + bW, 3, -1)
    rz, rr, rn = np.split(h @ R.T + bR, 3, -1)
    z, r = sigmoid(wz + rz), sigmoid(wr + rr)
    return (1 - z) * np.tanh(wn + r * rn) + z * h, None


def miopen_rnn(w, x, h, _):
    W, R, bW, bR = miopen_parts(w, 1)
    return np.tanh(x @ W.T + bW + h @ R.T + bR), None


def torch_shapes(gates):
    return {"weight_ih_l0": (gates * H, I), "weight_hh_l0": (gates * H, H),
            "bias_ih_l0": (gates * H,), "bias_hh_l0": (gates * H,)}  # fmt: skip


# layout, cell, reset, its step, the shapes of its tensors in their order
CASES = [
    ("haste", "lstm", "after", haste_lstm,
     {"kernel": (I, 4 * H), "recurrent_kernel": (H, 4 * H), "bias": (4 * H,)}),
    ("haste", "gru", "after", haste_gru,
     {"kernel": (I, 3 * H), "recurrent_kernel": (H, 3 * H), "bias": (3 * H,),
      "recurrent_bias": (3 * H,)}),
    ("cntk", "lstm", "after", cntk_lstm, {"b": (4 * H,), "W": (I, 4 * H), "H": (H, 4 * H)}),
    ("cntk", "gru", "before", cntk_gru,
     {"b": (3 * H,), "W": (I, 3 * H), "H": (H, 2 * H), "H1": (H, H)}),
    ("cntk", "rnn_tanh", "after", cntk_rnn, {"b": (H,), "W": (I, H), "H": (H, H)}),
    ("dl4j", "lstm", "after", dl4j_lstm, {"W": (I, 4 * H), "RW": (H, 4 * H), "b": (4 * H,)}),
    ("tf1-cudnn-canonical", "lstm", "after", tf1_lstm,
     {"kernel": (I + H, 4 * H), "bias": (4 * H,)}),
    ("tf1-cudnn-canonical", "gru", "after", tf1_gru,
     {"gates/kernel": (I + H, 2 * H), "candidate/input_projection/kernel": (I, H),
      "candidate/hidden_projection/kernel": (H, H), "gates/bias": (2 * H,),
      "candidate/input_projection/bias": (H,), "candidate/hidden_projection/bias": (H,)}),
    ("tf1-cudnn-canonical", "rnn_tanh", "after", tf1_rnn, {"kernel": (I + H, H), "bias": (H,)}),
    ("burn", "lstm", "after", burn_lstm, burn_shapes("input", "forget", "output", "cell")),
    ("burn", "gru", "after", burn_gru, burn_shapes("update", "reset", "new")),
    ("burn", "gru", "before", burn_gru_reset_before, burn_shapes("update", "reset", "new")),
    ("webnn", "lstm", "after", webnn_lstm("iofg"), webnn_shapes(4)),
    ("webnn", "gru", "after", webnn_gru("zrn", True), webnn_shapes(3)),
    ("webnn", "gru", "before", webnn_gru("zrn", False), webnn_shapes(3)),
    ("webnn-ifgo", "lstm", "after", webnn_lstm("ifgo"), webnn_shapes(4)),
    ("webnn-ifgo", "gru", "after", webnn_gru("rzn", True), webnn_shapes(3)),
    ("webnn-ifgo", "gru", "before", webnn_gru("rzn", False), webnn_shapes(3)),
    ("coreml", "lstm", "after", coreml_lstm, coreml_shapes(4)),
    ("coreml", "gru", "before", coreml_gru, coreml_shapes(3)),
    ("coreml", "rnn_relu", "after", coreml_rnn, coreml_shapes(1)),
    ("tensorrt", "lstm", "after", tensorrt_lstm, tensorrt_shapes("fico")),
    ("tensorrt", "gru", "after", tensorrt_gru, tensorrt_shapes("zrh")),
    ("tensorrt", "rnn_tanh", "after", tensorrt_rnn, tensorrt_shapes("i")),
    ("miopen", "lstm", "after", miopen_lstm, {"weights": (4 * H * (I + H + 2),)}),
    ("miopen", "gru", "after", miopen_gru, {"weights": (3 * H * (I + H + 2),)}),
    ("miopen", "rnn_tanh", "after", miopen_rnn, {"weights": (H * (I + H + 2),)}),
    ("candle", "lstm", "after", candle_lstm, torch_shapes(4)),
    ("candle", "gru", "after", candle_gru, torch_shapes(3)),
]  # fmt: skip


# the same, of an LSTM with peepholes
PEEPHOLES = [
    ("cntk", cntk_peephole_lstm,
     {"b": (4 * H,), "W": (I, 4 * H), "H": (H, 4 * H), "Ci": (H,), "Cf": (H,), "Co": (H,)}),
    ("dl4j", dl4j_graves_lstm, {"W": (I, 4 * H), "RW": (H, 4 * H + 3), "b": (4 * H,)}),
]  # fmt: skip


def run(step, tensors, x, h0, c0=None):
    w = {name: array.astype(np.float64) for name, array in tensors.items()}
    h, c, ys = np.float64(h0[0]), None if c0 is None else np.float64(c0[0]), []
    for x_t in np.float64(x):
        h, c = step(w, x_t, h, c)
        ys.append(h)
    return Run(np.stack(ys), h[None], None if c is None else c[None])


@pytest.mark.parametrize("layout, cell, reset, step, shapes", CASES)
def test_both_ways(layout, cell, reset, step, shapes):
    check_both_ways(layout, rl.Spec(cell, I, H, reset=reset), step, shapes)


@pytest.mark.parametrize("layout, step, shapes", PEEPHOLES)
def test_both_ways_with_peepholes(layout, step, shapes):
    check_both_ways(layout, rl.Spec("lstm", I, H, peepholes=True), step, shapes)


# Core ML's activation of gru; cell_activation and activation of lstm, both relu
@pytest.mark.parametrize(
    "cell, reset, step, gates",
    [("lstm", "after", coreml_lstm, 4), ("gru", "before", coreml_gru, 3)],
)
def test_both_ways_with_relu(cell, reset, step, gates):
    spec = rl.Spec(cell, I, H, reset=reset, activation="relu")
    check_both_ways("coreml", spec, partial(step, activation=relu), coreml_shapes(gates))


def check_both_ways(layout, spec, step, shapes):
    rng = seeded("documents", layout, spec.cell)
    tensors = {name: weight(rng, shape) for name, shape in shapes.items()}
    assert rl.describe(spec, layout) == shapes
    given = inputs(rng, spec)
    there = rl.convert(tensors, spec, layout=layout, to="onnx", exact=True)
    expected = forward(from_onnx(there, spec), spec, *given)
    # both follow equations in float64
    assert distance(run(step, tensors, *given), expected, unit=FLOAT64) <= 1
    back = rl.convert(there, spec, to=layout, exact=True)
    assert list(back) == list(shapes)
    assert all(back[name].tobytes() == tensors[name].tobytes() for name in shapes)


def test_the_peepholes_of_core_ml():
    """Core ML lists them as i, f, o, and ONNX as i, o, f."""
    spec = rl.Spec("lstm", I, H, peepholes=True)
    rng = seeded("peepholes of Core ML")
    tensors = {name: weight(rng, shape) for name, shape in coreml_shapes(4).items()}
    i, f, o = weight(rng, (3, H))
    tensors["peephole"] = np.concatenate([i, f, o])
    there = rl.convert(tensors, spec, layout="coreml", to="onnx", exact=True)
    assert there["P"][0].tobytes() == np.concatenate([i, o, f]).tobytes()
    back = rl.convert(there, spec, to="coreml", exact=True)
    assert back["peephole"].tobytes() == tensors["peephole"].tobytes()


def test_the_names_of_further_layers_and_of_the_backward_direction():
    """Core ML's lstm names its backward direction, its gru has none; TensorRT numbers both."""
    both, stack = rl.Spec("lstm", I, H, 1, True), rl.Spec("lstm", I, H, 2, True)
    parts = [f"{part}{side}" for side in ("", "_back") for part in coreml_shapes(4)]
    assert list(rl.describe(both, "coreml")) == parts
    assert list(rl.describe(stack, "coreml")) == [f"{k}/{part}" for k in (0, 1) for part in parts]
    gru = rl.Spec("gru", I, H, 1, True, reset="before")
    assert list(rl.describe(gru, "coreml"))[::3] == ["0/forward/weight_ih", "0/backward/weight_ih"]
    names = list(rl.describe(rl.Spec("gru", I, H, 2, True), "tensorrt"))
    assert names[::12] == ["W0[z]", "W1[z]", "W2[z]", "W3[z]"]
    assert rl.describe(stack, "tensorrt")["W2[f]"] == (H, 2 * H)


def test_the_lstm_block_cell_of_tensorflow():
    """TensorFlow's operator of that name, without forget bias, is the cell that TensorFlow 1 reads
    the canonical tensors of a CudnnLSTM into."""
    import tensorflow as tf

    rng = seeded("block cell")
    tensors = {"kernel": weight(rng, (I + H, 4 * H)), "bias": weight(rng, (4 * H,))}
    spec = rl.Spec("lstm", I, H)
    x, h0, c0 = inputs(rng, spec)
    zero = tf.zeros([H])
    h, c, ys = tf.constant(h0[0]), tf.constant(c0[0]), []
    for x_t in x:
        out = tf.raw_ops.LSTMBlockCell(
            x=tf.constant(x_t), cs_prev=c, h_prev=h, w=tensors["kernel"], wci=zero, wcf=zero,
            wco=zero, b=tensors["bias"], forget_bias=0.0, cell_clip=-1.0,
        )  # fmt: skip
        h, c = out.h, out.cs
        ys.append(h.numpy())
    found = Run(np.stack(ys), h.numpy()[None], c.numpy()[None])
    there = rl.convert(tensors, spec, layout="tf1-cudnn-canonical", to="onnx", exact=True)
    expected = forward(from_onnx(there, spec), spec, x, h0, c0)
    assert distance(found, expected) <= 1  # reference.Rounded
