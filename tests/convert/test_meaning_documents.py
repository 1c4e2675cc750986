"""Layouts of frameworks that nothing here can run, and of textbooks: their equations, written down
once more.

Of each framework, the table below says where the sums of a gate come from, in float64, by the
source file that the row names. It reads the framework's own tensors and shares nothing with the
table of layouts.
"""

import itertools

import numpy as np
import pytest
from convert.meaning import check_meaning
from oracles.frameworks import H, I, seeded, weight
from oracles.reference import FLOAT64, in_double, run_steps

import rnnlayout as rl

ANSWERS_FOR = ("tf1-cudnn-canonical", "burn", "webnn", "webnn-ifgo", "haste",
               "cntk", "dl4j", "coreml", "tensorrt", "miopen", "concat")  # fmt: skip


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def relu(a):
    return np.maximum(a, 0)


# ------------------------------------------- how a framework reads its tensors, (w, x, h) -> sums
# The sums of a gate are two products, each with its bias: of the input, of the state.


def side_by_side(order, W, R, bW, bR=None, turned=False):
    """All gates in one matrix, in this order. turned: the matrices are (G H, in)."""
    width = len(order) * H

    def read(w, x, h):
        w_x, w_h = (w[name].reshape(-1, w[name].shape[-1]) for name in (W, R))
        w_x, w_h = (w_x.T, w_h.T) if turned else (w_x, w_h[:, :width])
        from_x = np.split(x @ w_x + w[bW].ravel(), len(order), -1)
        from_h = np.split(h @ w_h + (w[bR].ravel() if bR else 0), len(order), -1)
        return dict(zip(order, zip(from_x, from_h, strict=True), strict=True))

    return read


def gate_by_gate(names, W, R, bW, bR, turned=False):
    """A tensor for each gate. names: letter -> what W, R, bW and bR are formatted with."""

    def read(w, x, h):
        def product(a, matrix, bias, gate):
            m = w[matrix.format(gate)]
            return a @ (m.T if turned else m) + w[bias.format(gate)]

        return {letter: (product(x, W, bW, gate), product(h, R, bR, gate))
                for letter, gate in names.items()}  # fmt: skip

    return read


def cntk_gru(w, x, h):
    z, r, n = np.split(w["b"] + x @ w["W"], 3, -1)
    z_h, r_h = np.split(h @ w["H"], 2, -1)
    return {"z": (z, z_h), "r": (r, r_h), "n": (n, h @ w["H1"])}


def tf1(order):
    def read(w, x, h):
        gates = np.split(np.concatenate([x, h], -1) @ w["kernel"] + w["bias"], len(order), -1)
        return {gate: (a, 0) for gate, a in zip(order, gates, strict=True)}

    return read


def tf1_gru(w, x, h):
    r, z = np.split(np.concatenate([x, h], -1) @ w["gates/kernel"] + w["gates/bias"], 2, -1)
    side = "candidate/{}_projection/{}".format
    n = (a @ w[side(name, "kernel")] + w[side(name, "bias")]
         for name, a in (("input", x), ("hidden", h)))  # fmt: skip
    return {"z": (z, 0), "r": (r, 0), "n": tuple(n)}


def miopen(order):
    """One vector: W, R, bW, bR, each of all gates."""
    G = len(order)
    read = side_by_side(order, "W", "R", "bW", "bR", turned=True)

    def read_vector(w, x, h):
        W, R, bW, bR = np.split(w["weights"], np.cumsum([G * H * I, G * H * H, G * H]))
        return read({"W": W.reshape(-1, I), "R": R.reshape(-1, H), "bW": bW, "bR": bR}, x, h)

    return read_vector


def textbook(letters, inputs, z):
    """One matrix per gate over [h, x] or [x, h]. If z is on the candidate, 1 - z is on the state:
    1 - sigmoid(a) = sigmoid(-a)."""

    def read(w, x, h):
        found = {}
        for gate in letters:
            W, sign = w[f"W_{gate}"], -1 if (gate, z) == ("z", "candidate") else 1
            w_h, w_x = (W[:, :H], W[:, H:]) if inputs == "hx" else (W[:, I:], W[:, :I])
            found[gate] = sign * (x @ w_x.T + w[f"b_{gate}"]), sign * (h @ w_h.T)
        return found

    shapes = {f"W_{gate}": (H, H + I) for gate in letters}
    return read, shapes | {f"b_{gate}": (H,) for gate in letters}


# ------------------------------------------------- the equations, which all of them have in common


def lstm_step(read, w, x, h, c, curve, peep):
    a = {gate: sum(both) for gate, both in read(w, x, h).items()}
    i, f = (sigmoid(a[gate] + peep.get(gate, 0) * c) for gate in "if")
    c = f * c + i * curve(a["g"])
    return sigmoid(a["o"] + peep.get("o", 0) * c) * curve(c), c


def gru_step(read, w, x, h, reset, curve):
    a = read(w, x, h)
    z, r = sigmoid(sum(a["z"])), sigmoid(sum(a["r"]))
    n = a["n"][0] + r * a["n"][1] if reset == "after" else sum(read(w, x, r * h)["n"])
    return z * h + (1 - z) * curve(n), None


def step_of(read, w, spec, peep):
    """Return (x, h, c) -> (h', c')."""
    curve = relu if "relu" in (spec.activation, spec.cell[4:]) else np.tanh
    if spec.cell == "lstm":
        return lambda x, h, c: lstm_step(read, w, x, h, c, curve, peep)
    if spec.cell == "gru":
        return lambda x, h, _: gru_step(read, w, x, h, spec.reset, curve)
    return lambda x, h, _: (curve(sum(read(w, x, h)["h"])), None)


# ----------------------------------------------------------------------------------- the frameworks

HASTE = "kernel", "recurrent_kernel", "bias"
BURN = ["{}_gate.{}_transform.{}".format("{}", side, what)
        for what in ("weight", "bias") for side in ("input", "hidden")]  # fmt: skip
TENSORRT = "W0[{}]", "R0[{}]", "Wb0[{}]", "Rb0[{}]"
CANDLE = "weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"
WEBNN = "weight", "recurrentWeight", "bias", "recurrentBias"
COREML = "weight_ih", "weight_hh", "bias"
BURN_LSTM = {"i": "input", "f": "forget", "o": "output", "g": "cell"}
BURN_GRU = {"z": "update", "r": "reset", "n": "new"}
TENSORRT_LSTM, TENSORRT_GRU = dict(zip("figo", "fico", strict=True)), dict(z="z", r="r", n="h")


def rows(names, G):
    """Return the shapes of W, R and one or two biases, (G H, in)."""
    return dict(zip(names, [(G * H, I), (G * H, H), (G * H,), (G * H,)], strict=False))


def columns(names, G):
    return {name: shape[::-1] for name, shape in rows(names, G).items()}


def each(names, parts, turned):
    shapes = [(H, I), (H, H)] if turned else [(I, H), (H, H)]
    return {part.format(gate): shape
            for part, shape in zip(parts, [*shapes, (H,), (H,)], strict=True)
            for gate in names.values()}  # fmt: skip


def burn(names):
    return gate_by_gate(names, *BURN), each(names, BURN, turned=False)


def tensorrt(names):
    return gate_by_gate(names, *TENSORRT, turned=True), each(names, TENSORRT, turned=True)


def webnn(order):
    shapes = {name: (1, *shape) for name, shape in rows(WEBNN, len(order)).items()}
    return side_by_side(order, *WEBNN, turned=True), shapes


def turned(order, names):
    return side_by_side(order, *names, turned=True), rows(names, len(order))


def cntk(order):
    shapes = {"b": (len(order) * H,), **columns(("W", "H"), len(order))}
    return side_by_side(order, "W", "H", "b"), shapes


# layout, cell, reset, how it reads, the shapes of its tensors in their order
CASES = [
    ("haste", "lstm", "after", side_by_side("igfo", *HASTE), columns(HASTE, 4)),
    ("haste", "gru", "after", side_by_side("zrn", *HASTE, "recurrent_bias"),
     columns((*HASTE, "recurrent_bias"), 3)),
    ("cntk", "lstm", "after", *cntk("igfo")),
    ("cntk", "gru", "before", cntk_gru, {"b": (3 * H,), "W": (I, 3 * H), "H": (H, 2 * H),
                                         "H1": (H, H)}),
    ("cntk", "rnn_tanh", "after", *cntk("h")),
    ("dl4j", "lstm", "after", side_by_side("gfoi", "W", "RW", "b"), columns(("W", "RW", "b"), 4)),
    ("tf1-cudnn-canonical", "lstm", "after", tf1("igfo"),
     {"kernel": (I + H, 4 * H), "bias": (4 * H,)}),
    ("tf1-cudnn-canonical", "gru", "after", tf1_gru,
     {"gates/kernel": (I + H, 2 * H), "candidate/input_projection/kernel": (I, H),
      "candidate/hidden_projection/kernel": (H, H), "gates/bias": (2 * H,),
      "candidate/input_projection/bias": (H,), "candidate/hidden_projection/bias": (H,)}),
    ("tf1-cudnn-canonical", "rnn_tanh", "after", tf1("h"), {"kernel": (I + H, H), "bias": (H,)}),
    ("burn", "lstm", "after", *burn(BURN_LSTM)),
    ("burn", "gru", "after", *burn(BURN_GRU)),
    ("burn", "gru", "before", *burn(BURN_GRU)),
    ("webnn", "lstm", "after", *webnn("iofg")),
    ("webnn", "gru", "after", *webnn("zrn")),
    ("webnn", "gru", "before", *webnn("zrn")),
    ("webnn-ifgo", "lstm", "after", *webnn("ifgo")),
    ("webnn-ifgo", "gru", "after", *webnn("rzn")),
    ("webnn-ifgo", "gru", "before", *webnn("rzn")),
    ("coreml", "lstm", "after", *turned("ifog", COREML)),
    ("coreml", "gru", "before", *turned("rnz", COREML)),
    ("coreml", "rnn_relu", "after", *turned("h", COREML)),
    ("tensorrt", "lstm", "after", *tensorrt(TENSORRT_LSTM)),
    ("tensorrt", "gru", "after", *tensorrt(TENSORRT_GRU)),
    ("tensorrt", "rnn_tanh", "after", *tensorrt({"h": "i"})),
    ("miopen", "lstm", "after", miopen("ifog"), {"weights": (4 * H * (I + H + 2),)}),
    ("miopen", "gru", "after", miopen("zrn"), {"weights": (3 * H * (I + H + 2),)}),
    ("miopen", "rnn_tanh", "after", miopen("h"), {"weights": (H * (I + H + 2),)}),
    ("candle", "lstm", "after", *turned("ifgo", CANDLE)),
    ("candle", "gru", "after", *turned("rzn", CANDLE)),
    *((rl.layout("concat", inputs=inputs, z=z), cell, reset, *textbook(letters, inputs, z))
      for inputs, z in itertools.product(["hx", "xh"], ["state", "candidate"])
      for cell, reset, letters in [("lstm", "after", "ifgo"), ("gru", "after", "rzn"),
                                   ("gru", "before", "rzn"), ("rnn_relu", "after", "h")]),
]  # fmt: skip
RELU = [case for case in CASES if case[0] == "coreml" and case[1] != "rnn_relu"]
# the layout of an LSTM with peepholes, those of i, f and o, the shapes that it has beside them
PEEPHOLES = [
    ("cntk", lambda w: {gate: w[f"C{gate}"] for gate in "ifo"},
     {"Ci": (H,), "Cf": (H,), "Co": (H,)}),
    ("dl4j", lambda w: dict(zip("foi", w["RW"][:, 4 * H :].T, strict=True)),
     {"RW": (H, 4 * H + 3)}),
    ("coreml", lambda w: dict(zip("ifo", np.split(w["peephole"], 3), strict=True)),
     {"peephole": (3 * H,)}),
]  # fmt: skip


@pytest.mark.parametrize("layout, cell, reset, read, shapes", CASES)
def test_both_ways(layout, cell, reset, read, shapes):
    check_equations(layout, rl.Spec(cell, I, H, reset=reset), read, shapes)


@pytest.mark.parametrize("layout, cell, reset, read, shapes", RELU)
def test_both_ways_with_relu(layout, cell, reset, read, shapes):
    """Core ML's activation of gru; cell_activation and activation of lstm, both relu."""
    spec = rl.Spec(cell, I, H, reset=reset, activation="relu")
    check_equations(layout, spec, read, shapes)


@pytest.mark.parametrize("layout, peep, more", PEEPHOLES)
def test_both_ways_with_peepholes(layout, peep, more):
    (read, shapes), *_ = (case[3:] for case in CASES if case[:2] == (layout, "lstm"))
    check_equations(layout, rl.Spec("lstm", I, H, peepholes=True), read, shapes | more, peep)


def check_equations(layout, spec, read, shapes, peep=lambda w: {}):
    assert list(rl.describe(spec, layout)) == list(shapes)
    rng = seeded("documents", layout, spec.cell)
    tensors = {name: weight(rng, shape) for name, shape in shapes.items()}
    w = dict(zip(tensors, in_double(*tensors.values()), strict=True))
    step = step_of(read, w, spec, peep(w))
    check_meaning(
        layout, tensors, spec, lambda *given: run_steps(step, *in_double(*given)), unit=FLOAT64
    )


def test_the_names_of_further_layers_and_of_the_backward_direction():
    """Core ML's lstm names its backward direction, its gru has none; TensorRT numbers both."""
    both, stack = rl.Spec("lstm", I, H, 1, True), rl.Spec("lstm", I, H, 2, True)
    parts = [f"{part}{side}" for side in ("", "_back") for part in COREML]
    assert list(rl.describe(both, "coreml")) == parts
    assert list(rl.describe(stack, "coreml")) == [f"{k}/{part}" for k in (0, 1) for part in parts]
    gru = rl.Spec("gru", I, H, 1, True, reset="before")
    assert list(rl.describe(gru, "coreml"))[::3] == ["0/forward/weight_ih", "0/backward/weight_ih"]
    names = list(rl.describe(rl.Spec("gru", I, H, 2, True), "tensorrt"))
    assert names[::12] == ["W0[z]", "W1[z]", "W2[z]", "W3[z]"]
    assert rl.describe(stack, "tensorrt")["W2[f]"] == (H, 2 * H)
