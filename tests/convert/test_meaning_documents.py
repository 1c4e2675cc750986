"""Layouts of frameworks that nothing here can run, and of textbooks: where the matrices and biases
of each gate are, written down once more from the source file that the row of the table names.

That shares nothing with the table of layouts. What the gates compute is the same in all of them.
"""

import dataclasses
import itertools
import re

import numpy as np
import pytest
from commands import ROOT
from oracles.frameworks import H, I
from oracles.reference import PseudoLayer, by_gate, from_onnx
from oracles.some import normal_weights, same_bits

import rnnlayout as rl

ANSWERS_FOR = ("tf1-cudnn-canonical", "burn", "webnn", "webnn-ifgo", "haste",
               "cntk", "dl4j", "coreml", "tensorrt", "miopen", "concat")  # fmt: skip

# ------------------------------------------------------- how a framework reads tensors, in a list


def rows(order, W, R, bW, bR=None, peep=None):
    """All gates in one matrix (G H, in), in this order."""
    bR = 0 * bW if bR is None else bR
    parts = (by_gate(a, order) for a in (W, R, bW.ravel(), bR.ravel()))
    return PseudoLayer(*parts, peep=peep or {})


def columns(order, W, R, *biases, **peep):
    return rows(order, W.T, R.T, *biases, **peep)


def kinds(tensors, G):
    """All W, then all R or biases: the tensors of one gate after the other."""
    return [tensors[k : k + G] for k in range(0, len(tensors), G)]


def gate_by_gate(order, *tensors):
    return columns(order, *(np.concatenate(kind, -1) for kind in kinds(tensors, len(order))))


def one_vector(order, weights):
    G = len(order)
    W, R, bW, bR = np.split(weights, np.cumsum([G * H * I, G * H * H, G * H]))
    return rows(order, W.reshape(-1, I), R.reshape(-1, H), bW, bR)


def one_kernel(order, kernel, b):
    return columns(order, kernel[:I], kernel[I:], b)


def textbook(order, inputs, z, *tensors):
    """One matrix per gate over [h, x] or [x, h]. If z is on the candidate, 1 - z is on the state:
    1 - sigmoid(a) = sigmoid(-a)."""
    signs = [-1 if (gate, z) == ("z", "candidate") else 1 for gate in order]
    signed = [sign * a for sign, a in zip(signs * 2, tensors, strict=True)]
    W, b = map(np.concatenate, kinds(signed, len(order)))
    return rows(order, *((W[:, H:], W[:, :H]) if inputs == "hx" else (W[:, :I], W[:, I:])), b)


# ---------------------------------------------------------------------------------- the frameworks


def each(names, gates):
    return " ".join(name.format(gate) for name in names.split() for gate in gates.split())


BURN = " ".join(f"{{}}_gate.{side}_transform.{kind}"
                for kind in ("weight", "bias") for side in ("input", "hidden"))  # fmt: skip
BURN_LSTM, BURN_GRU = each(BURN, "input forget output cell"), each(BURN, "update reset new")
TENSORRT = "W0[{}] R0[{}] Wb0[{}] Rb0[{}]"
HASTE = "kernel recurrent_kernel bias"
WEBNN = "weight recurrentWeight bias recurrentBias"
COREML = "weight_ih weight_hh bias"
CANDLE = "weight_ih_l0 weight_hh_l0 bias_ih_l0 bias_hh_l0"
LUX = "weight_ih weight_hh bias_ih bias_hh"
NCNN = "weight_xc bias_c weight_hc"
N = "candidate/{}_projection"
CANONICAL = " ".join(f"gates/{kind} {N.format('input')}/{kind} {N.format('hidden')}/{kind}"
                     for kind in ("kernel", "bias"))  # fmt: skip
PEEPING = {"peepholes": True}

# The rows that docs/layouts.md has ready: ncnn, flux, dynet.
PAGE = (ROOT / "docs" / "layouts.md").read_text()
READY = {"rl": rl}
exec(re.search(r"^```python\n(ncnn = .*?)^```", PAGE, re.DOTALL | re.MULTILINE)[1], READY)


def webnn(order):
    return lambda *tensors: rows(order, *(a[0] for a in tensors))


def tensorrt(order):
    return lambda *tensors: gate_by_gate(order, *(a.T for a in tensors))


def canonical_gru(gates, W, R, b, bW, bR):
    """Two gates over [x, h] with one bias; the candidate has two."""
    zero = np.zeros(2 * H)
    return columns("rzn", np.hstack([gates[:I], W]), np.hstack([gates[I:], R]),
                   np.hstack([b, bW]), np.hstack([zero, bR]))  # fmt: skip


def ncnn_gru(W, b, R):
    """Four biases: r, z, and of the candidate bW and bR."""
    return rows("rzn", W[0], R[0], b[0, :3], np.hstack([np.zeros(2 * H), b[0, 3]]))


def dynet_gru(*tensors):
    """h' = (1 - z) h + z n: 1 - z is on the state."""
    return rows("zrn", *(np.concatenate([-z, r, n]) for z, r, n in kinds(tensors, 3)))


# layout, cell, what else its spec says, the names of its tensors in their order, how it reads them
CASES = [
    ("haste", "lstm", {}, HASTE, lambda *w: columns("igfo", *w)),
    ("haste", "gru", {}, f"{HASTE} recurrent_bias", lambda *w: columns("zrn", *w)),
    ("cntk", "lstm", {}, "b W H", lambda b, W, R: columns("igfo", W, R, b)),
    ("cntk", "lstm", PEEPING, "b W H Ci Cf Co",
     lambda b, W, R, *peep: columns("igfo", W, R, b, peep=dict(zip("ifo", peep, strict=True)))),
    ("cntk", "gru", {"reset": "before"}, "b W H H1",
     lambda b, W, zr, n: columns("zrn", W, np.hstack([zr, n]), b)),
    ("cntk", "rnn_tanh", {}, "b W H", lambda b, W, R: columns("h", W, R, b)),
    ("dl4j", "lstm", {}, "W RW b", lambda *w: columns("gfoi", *w)),
    ("dl4j", "lstm", PEEPING, "W RW b", lambda W, RW, b: columns(
        "gfoi", W, RW[:, : 4 * H], b, peep=dict(zip("foi", RW[:, 4 * H :].T, strict=True)))),
    ("tf1-cudnn-canonical", "lstm", {}, "kernel bias", lambda *w: one_kernel("igfo", *w)),
    ("tf1-cudnn-canonical", "gru", {}, CANONICAL, canonical_gru),
    ("tf1-cudnn-canonical", "rnn_tanh", {}, "kernel bias", lambda *w: one_kernel("h", *w)),
    ("burn", "lstm", {}, BURN_LSTM, lambda *w: gate_by_gate("ifog", *w)),
    *(("burn", "gru", {"reset": reset}, BURN_GRU, lambda *w: gate_by_gate("zrn", *w))
      for reset in ("after", "before")),
    *((layout, cell, {"reset": reset}, WEBNN, webnn(order))
      for layout, lstm, gru in [("webnn", "iofg", "zrn"), ("webnn-ifgo", "ifgo", "rzn")]
      for cell, reset, order in [("lstm", "after", lstm), ("gru", "after", gru),
                                 ("gru", "before", gru)]),
    ("coreml", "gru", {"reset": "before", "activation": "relu"}, COREML,
     lambda *w: rows("rnz", *w)),  # the rest of its rows is recorded
    ("tensorrt", "lstm", {}, each(TENSORRT, "f i c o"), tensorrt("figo")),
    ("tensorrt", "gru", {}, each(TENSORRT, "z r h"), tensorrt("zrn")),
    ("tensorrt", "rnn_tanh", {}, each(TENSORRT, "i"), tensorrt("h")),
    *(("miopen", cell, {}, "weights", lambda w, order=order: one_vector(order, w))
      for cell, order in [("lstm", "ifog"), ("gru", "zrn"), ("rnn_tanh", "h")]),
    ("candle", "lstm", {}, CANDLE, lambda *w: rows("ifgo", *w)),
    ("candle", "gru", {}, CANDLE, lambda *w: rows("rzn", *w)),
    ("lux", "lstm", {}, LUX, lambda *w: rows("ifgo", *w)),
    ("lux", "gru", {}, LUX, lambda *w: rows("rzn", *w)),
    (READY["ncnn"], "lstm", {}, NCNN, lambda W, b, R: rows("ifog", W[0], R[0], b)),
    (READY["ncnn"], "gru", {}, NCNN, ncnn_gru),
    (READY["flux"], "lstm", {}, "Wi Wh bias", lambda *w: rows("ifgo", *w)),
    (READY["flux"], "gru", {}, "Wi Wh b", lambda *w: rows("rzn", *w)),
    (READY["dynet"], "lstm", {}, "x2i h2i bi",
     lambda W, R, b: rows("ifog", W, R, b + np.repeat([0, 1, 0, 0], H))),
    (READY["dynet"], "gru", {"reset": "before"}, each("x2{} h2{} b{}", "z r h"), dynet_gru),
    *((rl.layout("concat", inputs=inputs, z=z), cell, {"reset": reset},
       each("W_{} b_{}", " ".join(order)),
       lambda *w, order=order, inputs=inputs, z=z: textbook(order, inputs, z, *w))
      for inputs, z in itertools.product(["hx", "xh"], ["state", "candidate"])
      for cell, reset, order in [("lstm", "after", "ifgo"), ("gru", "after", "rzn"),
                                 ("gru", "before", "rzn"), ("rnn_relu", "after", "h")]),
]  # fmt: skip


@pytest.mark.parametrize(
    "layout, cell, options, names, read",
    CASES,
    ids=[f"{layout} {cell} {options}" for layout, cell, options, *_ in CASES],
)
def test_both_ways(layout, cell, options, names, read):
    spec = rl.Spec(cell, I, H, **options)
    # rounded, so that adding a forget bias of 1 is exact
    tensors = {name: np.round(a * 256) / 256 for name, a in normal_weights(layout, spec).items()}
    assert [*tensors] == names.split()
    there = rl.convert(tensors, spec, layout=layout, to="onnx", exact=True)
    (found,) = from_onnx(there, spec)
    theirs = read(*tensors.values())
    for field in dataclasses.fields(PseudoLayer):
        ours, wanted = getattr(found, field.name), getattr(theirs, field.name)
        np.testing.assert_equal(ours, wanted, err_msg=field.name)
    assert same_bits(dict(rl.convert(there, spec, layout="onnx", to=layout, exact=True)), tensors)


def test_the_projection_of_ncnn():
    """hr.row(q) is that of output q: PyTorch's."""
    spec = rl.Spec("lstm", I, H, proj_size=H - 1)
    tensors = normal_weights(READY["ncnn"], spec)
    assert tensors["weight_hr"].shape == (1, H - 1, H)
    there = rl.convert(tensors, spec, layout=READY["ncnn"], to="torch")
    np.testing.assert_equal(there["weight_hr_l0"], tensors["weight_hr"][0])


def test_the_names_of_further_layers_and_of_the_backward_direction():
    """Core ML's lstm names its backward direction, its gru has none; TensorRT numbers both."""
    both, stack = rl.Spec("lstm", I, H, 1, True), rl.Spec("lstm", I, H, 2, True)
    parts = [f"{part}{side}" for side in ("", "_back") for part in COREML.split()]
    assert list(rl.describe(both, "coreml")) == parts
    assert list(rl.describe(stack, "coreml")) == [f"{k}/{part}" for k in (0, 1) for part in parts]
    gru = rl.Spec("gru", I, H, 1, True, reset="before")
    assert list(rl.describe(gru, "coreml"))[::3] == ["0/forward/weight_ih", "0/backward/weight_ih"]
    names = list(rl.describe(rl.Spec("gru", I, H, 2, True), "tensorrt"))
    assert names[::12] == ["W0[z]", "W1[z]", "W2[z]", "W3[z]"]
    assert rl.describe(stack, "tensorrt")["W2[f]"] == (H, 2 * H)
