"""A published network whose LSTM we run: silero-vad 6.2.3, a voice detector.

onnxruntime runs the whole graph on noise that swells and fades, and shows what goes into its LSTM
and what comes out of it; rl.RNN gets the same.
"""

import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import ROOT
from reference import Run, distance_between, forward, from_onnx

import rnnlayout as rl

sys.path.insert(0, str(ROOT / "examples"))
import checkpoints

STEPS, WINDOW = 40, 576  # chunks of 512 samples, each behind the 64 before it


@pytest.fixture(scope="module")
def recorded():
    """The LSTM's weights, what onnxruntime gave it, and what it gave back."""
    model = onnx.load_from_string(checkpoints.fetch(checkpoints.SILERO))
    (node,) = (n for n in model.graph.node if n.op_type == "LSTM")
    stored = {i.name: onnx.numpy_helper.to_array(i) for i in model.graph.initializer}
    weights = dict(zip("WRB", (stored[name] for name in node.input[1:4]), strict=True))
    shown = [node.input[0], node.output[0]]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in shown)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    rng = np.random.default_rng(5)
    loud = np.sin(np.arange(STEPS) / 6)[:, None] ** 2
    sound = (loud * rng.standard_normal((STEPS, WINDOW)) / 8).astype("f4")
    h, c = (rng.standard_normal((1, 1, 128)).astype("f4") / 4 for _ in "hc")
    x, y, hn, cn = session.run([*shown, "hn", "cn"], {"input": sound, "h": h, "c": c})
    return weights, (x, h, c), (y[:, 0], hn, cn)


@pytest.fixture(scope="module")
def expected(recorded):
    """The recurrence in float64, and how far a float32 run may be from it."""
    weights, (x, h, c), _ = recorded
    spec = rl.infer_spec(weights, "onnx")
    return forward(from_onnx(weights, spec), spec, x, h, c)


def run(weights, x, h, c):
    y, (hn, cn) = rl.RNN(weights, layout="onnx")(x, (h, c))
    return Run(y, hn, cn)


def test_the_sequence_as_onnxruntime_has_it(recorded, expected):
    weights, inputs, wanted = recorded
    found = run(weights, *inputs)
    assert np.ptp(found.y) > 1  # there is something to be wrong
    assert distance_between(found, Run(*wanted), expected) <= 1


def test_step_by_step_in_place(recorded):
    """As a voice detector would: the state stays where it is. The same bits as the whole sequence."""
    weights, (x, h, c), _ = recorded
    rnn = rl.RNN(weights, layout="onnx")
    y, (hn, cn) = rnn(x, (h, c))
    state, out = (h.copy(), c.copy()), np.empty((1, 128), "f4")
    for x_t, y_t in zip(x, y, strict=True):
        rnn.step(x_t, state, out=out, h_out=state[0], c_out=state[1])
        assert np.array_equal(out, y_t)
    assert np.array_equal(state[0], hn) and np.array_equal(state[1], cn)


def test_gates_in_another_order_are_far_from_it(recorded, expected):
    weights, inputs, wanted = recorded
    wrong = {name: array[:, ::-1].copy() for name, array in weights.items()}
    assert distance_between(run(wrong, *inputs), Run(*wanted), expected) > 100
