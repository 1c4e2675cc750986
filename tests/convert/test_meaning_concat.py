"""The textbook's form, one matrix per gate over [h, x], run by the textbook's equations."""

import numpy as np
import pytest
from oracles.frameworks import (
    KERAS_NOISE,
    H,
    I,
    inputs,
    keras_layers,
    run_keras,
    run_onnx,
    run_torch,
    seeded,
    torch_module,
    weight,
)
from oracles.reference import FLOAT64, GATES, Run, distance, forward, from_cudnn, from_onnx

import rnnlayout as rl

ANSWERS_FOR = ("concat",)

pytestmark = KERAS_NOISE

every_order = pytest.mark.parametrize("order", ["hx", "xh"])
every_z = pytest.mark.parametrize("z", ["state", "candidate"])


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


def run_textbook(weights, step, x, h0, c0=None):
    """Run one layer in one direction, in float64."""
    weights = {name: np.float64(array) for name, array in weights.items()}
    h, c, ys = np.float64(h0[0]), None if c0 is None else np.float64(c0[0]), []
    for x_t in np.float64(x):
        h, c = step(weights, x_t, h, c)
        ys.append(h)
    return Run(np.stack(ys), h[None], None if c is None else c[None])


def run_stack(weights, step, x, h0, c0=None):
    """Run two layers in two directions, one after the other."""
    hs, cs = [], []
    for layer in range(2):
        ys = []
        for side, name in enumerate(["forward", "backward"]):
            prefix, at = f"{layer}/{name}/", slice(2 * layer + side, None)
            own = {key.removeprefix(prefix): array for key, array in weights.items()
                   if key.startswith(prefix)}  # fmt: skip
            order = slice(None, None, -1 if side else 1)
            run = run_textbook(own, step, x[order], h0[at], None if c0 is None else c0[at])
            ys.append(run.y[order])
            hs.append(run.h)
            cs.append(run.c)
        x = np.concatenate(ys, axis=-1)
    return Run(x, np.concatenate(hs), None if c0 is None else np.concatenate(cs))


def filled(spec, order, rng):
    shapes = rl.describe(spec, rl.layout("concat", inputs=order))
    return {name: weight(rng, shape) for name, shape in shapes.items()}


@every_z
@every_order
def test_a_reset_after_gru(order, z):
    spec = rl.Spec("gru", I, H)
    layout = rl.layout("concat", inputs=order, z=z)
    rng = seeded("concat", spec, layout)
    weights = filled(spec, order, rng)
    given = inputs(rng, spec)
    flat = rl.pack(weights, spec, layout=layout, exact=True)
    expected = forward(from_cudnn(flat, spec), spec, *given)
    run = run_textbook(weights, textbook(spec, order, z), *given)
    # Both use the same numbers in float64, so they differ only by the rounding of float64.
    assert distance(run, expected, unit=FLOAT64) <= 1

    module = torch_module(spec)
    rl.assign(module, rl.convert(weights, spec, layout=layout, to="torch"))
    assert distance(run_torch(module, *given), expected) <= 1  # reference.Rounded

    # with z on the other side it is a different network, far beyond rounding
    other = run_textbook(weights, textbook(spec, order, {"state": "candidate"}.get(z, "state")),
                         *given)  # fmt: skip
    assert distance(other, expected) > 1000


@every_order
def test_z_on_the_candidate_is_packed_exactly_by_negation(order):
    """1 - sigmoid(a) = sigmoid(-a): only signs change, nothing is rounded."""
    spec = rl.Spec("gru", I, H)
    layouts = [rl.layout("concat", inputs=order, z=z) for z in ("candidate", "state")]
    weights = filled(spec, order, seeded("negation", order))
    negated = {name: -array if name.endswith("_z") else array for name, array in weights.items()}
    report = rl.check(weights, spec, layout=layouts[0], to="cudnn")
    assert report.grade == "exact"
    flat = rl.pack(weights, spec, layout=layouts[0])
    assert np.array_equal(flat, rl.pack(negated, spec, layout=layouts[1]))
    back = rl.unpack(flat, spec, to=layouts[0])
    assert all(back[name].tobytes() == weights[name].tobytes() for name in weights)


@pytest.mark.parametrize("dst", ["cudnn", "torch", "torch-cell", "keras-cudnn"])
@every_z
@every_order
def test_a_reset_before_gru_is_refused(order, z, dst):
    spec = rl.Spec("gru", I, H, reset="before")
    weights = filled(spec, order, seeded("refused", order, z))
    with pytest.raises(rl.LossyError, match=r"R \(r \* h\).*r \* \(R h\)"):
        rl.convert(weights, spec, layout=rl.layout("concat", inputs=order, z=z), to=dst)


@every_z
@every_order
def test_a_reset_before_gru_runs_in_keras_and_onnx(order, z):
    spec = rl.Spec("gru", I, H, reset="before")
    layout = rl.layout("concat", inputs=order, z=z)
    rng = seeded("before", layout)
    weights = filled(spec, order, rng)
    given = inputs(rng, spec)
    onnx = rl.convert(weights, spec, layout=layout, to="onnx", exact=True)
    expected = forward(from_onnx(onnx, spec), spec, *given)
    run = run_textbook(weights, textbook(spec, order, z), *given)
    assert distance(run, expected, unit=FLOAT64) <= 1  # the same numbers, both in float64
    assert distance(run_onnx(onnx, spec, *given), expected) <= 1  # reference.Rounded

    layers = keras_layers(spec)
    rl.assign(layers, rl.convert(weights, spec, layout=layout, to="keras", exact=True))
    assert distance(run_keras(layers, *given), expected) <= 1

    # read as a reset-after GRU, the same weights are a different network
    after = run_textbook(weights, textbook(spec.replace(reset="after"), order, z), *given)
    assert distance(after, expected) > 1000


@every_order
def test_an_lstm(order):
    spec = rl.Spec("lstm", I, H)
    layout = rl.layout("concat", inputs=order)
    rng = seeded("concat lstm", order)
    weights = filled(spec, order, rng)
    given = inputs(rng, spec)
    flat = rl.pack(weights, spec, layout=layout, exact=True)
    expected = forward(from_cudnn(flat, spec), spec, *given)
    run = run_textbook(weights, textbook(spec, order), *given)
    assert distance(run, expected, unit=FLOAT64) <= 1  # the same numbers, both in float64

    module = torch_module(spec)
    rl.assign(module, rl.convert(weights, spec, layout=layout, to="torch"))
    assert distance(run_torch(module, *given), expected) <= 1  # reference.Rounded


@every_order
@pytest.mark.parametrize("cell", GATES)
def test_stacks_of_both_directions(cell, order):
    spec = rl.Spec(cell, I, H, 2, bidirectional=True)
    layout = rl.layout("concat", inputs=order)
    rng = seeded("stack", spec, order)
    weights = filled(spec, order, rng)
    given = inputs(rng, spec)
    flat = rl.pack(weights, spec, layout=layout, exact=True)
    expected = forward(from_cudnn(flat, spec), spec, *given)
    run = run_stack(weights, textbook(spec, order), *given)
    assert distance(run, expected, unit=FLOAT64) <= 1  # the same numbers, both in float64
    back = rl.unpack(flat, spec, to=layout)
    assert all(back[name].tobytes() == weights[name].tobytes() for name in weights)


@every_order
def test_from_torch(order):
    """An LSTM's two biases become their sum; a GRU's only if the candidate's bias_hh is zero."""
    layout = rl.layout("concat", inputs=order)
    for spec in (rl.Spec("lstm", I, H), rl.Spec("gru", I, H)):
        rng = seeded("from torch", spec, order)
        module = torch_module(spec, rng)
        if spec.cell == "gru":
            with pytest.raises(rl.LossyError, match="bias_hh_l0"):
                rl.convert(module, to=layout)
            module.bias_hh_l0.data[2 * H :] = 0
        given = inputs(rng, spec)
        weights = rl.convert(module, to=layout)
        assert weights.report.grade == "rounds"
        expected = forward(from_cudnn(rl.pack(module), spec), spec, *given)
        run = run_textbook(weights, textbook(spec, order), *given)
        # the sums were rounded to float32, one of the additions that reference.Rounded counts
        assert distance(run, expected) <= 1
