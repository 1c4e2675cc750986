"""The textbook's form, one matrix per gate over [h, x], run by the textbook's equations."""

import itertools

import numpy as np
import pytest
from oracles.frameworks import H, I, inputs, seeded, torch_module, weight
from oracles.reference import (
    FLOAT64,
    Run,
    distance,
    forward,
    from_cudnn,
    from_onnx,
    in_double,
    run_steps,
)

import rnnlayout as rl

ANSWERS_FOR = ("concat",)
OTHER = {"after": "before", "before": "after", "state": "candidate", "candidate": "state"}


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def textbook(spec, order, z_on="state"):
    """Return one step of the textbook's cell: (weights, x, h, c) -> (h', c')."""

    def join(h, x):
        return np.concatenate([h, x] if order == "hx" else [x, h], axis=-1)

    def gate(w, letter, h, x):
        return join(h, x) @ w["W_" + letter].T + w["b_" + letter]

    def lstm(w, x, h, c):
        i, f, o = (sigmoid(gate(w, letter, h, x)) for letter in "ifo")
        c = f * c + i * np.tanh(gate(w, "g", h, x))
        return o * np.tanh(c), c

    def gru(w, x, h, _):
        r, z = (sigmoid(gate(w, letter, h, x)) for letter in "rz")
        if spec.reset == "before":
            n = np.tanh(gate(w, "n", r * h, x))
        else:  # only the product with h is scaled, not the bias
            from_x, from_h = gate(w, "n", 0 * h, x), gate(w, "n", h, 0 * x) - w["b_n"]
            n = np.tanh(from_x + r * from_h)
        return ((1 - z) * h + z * n if z_on == "candidate" else z * h + (1 - z) * n), None

    def rnn(w, x, h, _):
        a = gate(w, "h", h, x)
        return (np.tanh(a) if spec.cell == "rnn_tanh" else np.maximum(a, 0)), None

    return {"lstm": lstm, "gru": gru}.get(spec.cell, rnn)


def run_stack(weights, step, x, h0, c0=None):
    """Run two layers in two directions, one after the other, in float64."""
    x, h0, c0 = in_double(x, h0, c0)
    hs, cs = [], []
    for layer in range(2):
        ys = []
        for side, name in enumerate(["forward", "backward"]):
            prefix, at = f"{layer}/{name}/", slice(2 * layer + side, None)
            own = {key.removeprefix(prefix): np.float64(array) for key, array in weights.items()
                   if key.startswith(prefix)}  # fmt: skip
            order = slice(None, None, -1 if side else 1)
            run = run_steps(lambda *now, own=own: step(own, *now), x[order], h0[at],
                            None if c0 is None else c0[at])  # fmt: skip
            ys.append(run.y[order])
            hs.append(run.h)
            cs.append(run.c)
        x = np.concatenate(ys, axis=-1)
    return Run(x, np.concatenate(hs), None if c0 is None else np.concatenate(cs))


CASES = [
    (cell, reset, order, z)
    for cell, reset in [("lstm", "after"), ("gru", "after"), ("gru", "before"),
                        ("rnn_tanh", "after"), ("rnn_relu", "after")]
    for order, z in itertools.product(["hx", "xh"], ["state", "candidate"][: 1 + (cell == "gru")])
]  # fmt: skip


@pytest.mark.parametrize("cell, reset, order, z", CASES)
def test_both_ways(cell, reset, order, z):
    spec = rl.Spec(cell, I, H, 2, bidirectional=True, reset=reset)
    layout = rl.layout("concat", inputs=order, z=z)
    rng = seeded("concat", spec, layout)
    weights = {name: weight(rng, shape) for name, shape in rl.describe(spec, layout).items()}
    given = inputs(rng, spec)
    there = rl.convert(weights, spec, layout=layout, to="onnx", exact=True)
    expected = forward(from_onnx(there, spec), spec, *given)
    run = run_stack(weights, textbook(spec, order, z), *given)
    assert distance(run, expected, unit=FLOAT64) <= 1  # the same numbers, both in float64
    back = rl.convert(there, spec, layout="onnx", to=layout, exact=True)
    assert all(back[name].tobytes() == weights[name].tobytes() for name in weights)
    if cell == "gru":  # otherwise it is a different network, far beyond rounding
        swapped = textbook(spec, order, OTHER[z])
        turned = textbook(spec.replace(reset=OTHER[reset]), order, z)
        for other in (swapped, turned):
            assert distance(run_stack(weights, other, *given), expected) > 1000


@pytest.mark.parametrize("order", ["hx", "xh"])
def test_z_on_the_candidate_is_packed_exactly_by_negation(order):
    """1 - sigmoid(a) = sigmoid(-a): only signs change, nothing is rounded."""
    spec = rl.Spec("gru", I, H)
    candidate, state = (rl.layout("concat", inputs=order, z=z) for z in ("candidate", "state"))
    rng = seeded("negation", order)
    weights = {name: weight(rng, shape) for name, shape in rl.describe(spec, state).items()}
    negated = {name: -array if name.endswith("_z") else array for name, array in weights.items()}
    flat = rl.pack(weights, spec, layout=candidate, exact=True)
    assert np.array_equal(flat, rl.pack(negated, spec, layout=state))


@pytest.mark.parametrize("order", ["hx", "xh"])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_from_torch(cell, order):
    """An LSTM's two biases become their sum; a GRU's only if the candidate's bias_hh is zero."""
    layout, spec = rl.layout("concat", inputs=order), rl.Spec(cell, I, H)
    rng = seeded("from torch", spec, order)
    module = torch_module(spec, rng)
    if cell == "gru":
        with pytest.raises(rl.LossyError, match="bias_hh_l0"):
            rl.convert(module, to=layout)
        module.bias_hh_l0.data[2 * H :] = 0
    given = inputs(rng, spec)
    weights = rl.convert(module, to=layout)
    assert weights.report.grade == "rounds"
    expected = forward(from_cudnn(rl.pack(module), spec), spec, *given)
    w, step = dict(zip(weights, in_double(*weights.values()), strict=True)), textbook(spec, order)
    run = run_steps(lambda *now: step(w, *now), *in_double(*given))
    # the sums were rounded to float32, one of the additions that reference.Rounded counts
    assert distance(run, expected) <= 1
