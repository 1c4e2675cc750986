"""A published network: rl.RNN runs the LSTM of silero-vad 6.2.3, a voice detector.

onnxruntime runs the whole graph, chunk by chunk, on noise that swells and fades, and returns the
inputs and outputs of its LSTM; rl.RNN computes the same from the same input and state.
"""

import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from commands import ROOT
from oracles.reference import Run, distance_between, forward, from_onnx

import rnnlayout as rl

sys.path.insert(0, str(ROOT / "examples"))
import checkpoints

pytestmark = pytest.mark.download

CHUNKS, WINDOW = 40, 576  # the last 64 samples before, then 512 new ones


@pytest.fixture(scope="module")
def model():
    """The LSTM's weights, and a session that also returns the LSTM's input and output."""
    model = onnx.load_from_string(checkpoints.fetch(checkpoints.SILERO))
    (node,) = (n for n in model.graph.node if n.op_type == "LSTM")
    stored = {i.name: onnx.numpy_helper.to_array(i) for i in model.graph.initializer}
    shown = [node.input[0], node.output[0]]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in shown)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    weights = dict(zip("WRB", (stored[name] for name in node.input[1:4]), strict=True))
    return weights, lambda feed: session.run([*shown, "hn", "cn"], feed)


@pytest.fixture(scope="module")
def chunks(model):
    """[(x, h, c, their results)] of one chunk after the other."""
    rng = np.random.default_rng(5)
    h, c = (np.zeros((1, 1, 128), "f4") for _ in "hc")
    found = []
    for k in range(CHUNKS):
        sound = np.sin(k / 6) ** 2 * rng.standard_normal((1, WINDOW)) / 8
        x, y, hn, cn = model[1]({"input": sound.astype("f4"), "h": h, "c": c})
        found.append((x, h, c, Run(y[:, 0], hn, cn)))
        h, c = hn, cn
    return found


def distance(weights, chunk):
    x, h, c, theirs = chunk
    spec = rl.infer_spec(weights, "onnx")
    y, (hn, cn) = rl.RNN(weights, layout="onnx")(x, (h, c))
    return distance_between(
        Run(y, hn, cn), theirs, forward(from_onnx(weights, spec), spec, x, h, c)
    )


def test_every_chunk_as_onnxruntime_has_it(model, chunks):
    assert np.ptp([theirs.y for *_, theirs in chunks]) > 1  # there is something to be wrong
    assert max(distance(model[0], chunk) for chunk in chunks) <= 1


def test_gates_in_another_order_are_far_from_it(model, chunks):
    wrong = {name: array[:, ::-1].copy() for name, array in model[0].items()}
    right = forward(from_onnx(model[0], rl.infer_spec(wrong, "onnx")), rl.infer_spec(wrong, "onnx"),
                    *chunks[1][:3])  # fmt: skip
    y, (hn, cn) = rl.RNN(wrong, layout="onnx")(chunks[1][0], chunks[1][1:3])
    assert distance_between(Run(y, hn, cn), chunks[1][3], right) > 1000


def test_a_sequence_is_its_steps_in_place(model, chunks):
    """Run step by step with the state updated in place: the same bits as the whole sequence."""
    rnn = rl.RNN(model[0], layout="onnx")
    x = np.concatenate([x for x, *_ in chunks])
    y, (hn, cn) = rnn(x)
    state = np.zeros((1, 1, 128), "f4"), np.zeros((1, 1, 128), "f4")
    out = np.empty((1, 128), "f4")
    for x_t, y_t in zip(x, y, strict=True):
        rnn.step(x_t, state, out=out, h_out=state[0], c_out=state[1])
        assert np.array_equal(out, y_t)
    assert np.array_equal(state[0], hn) and np.array_equal(state[1], cn)
