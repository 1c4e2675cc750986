"""The test cases of ONNX's own operators LSTM, GRU and RNN: their inputs and expected outputs are
those of the package onnx, computed by its own NumPy code."""

import numpy as np
import pytest
from files.onnx.models import write
from onnx import ModelProto, numpy_helper
from onnx.backend.test.case import node as cases
from onnx.backend.test.case.node import gru, lstm, rnn

import rnnlayout as rl

MODULES = {lstm.__name__, gru.__name__, rnn.__name__}  # imported: each adds its cases to a list
CASES = {one.name: one for one in cases._NodeTestCases if one.model.graph.node[0].op_type in
         ("LSTM", "GRU", "RNN")}  # fmt: skip
WEIGHTS = "WRBP"


def test_these_are_all():
    assert len(CASES) == 18


@pytest.mark.parametrize("name", CASES)
def test_a_case_of_onnx(name, tmp_path):
    """The weights are inputs of the node; here they are initializers."""
    case = CASES[name]
    model = ModelProto()
    model.CopyFrom(case.model)
    (node,) = model.graph.node
    ((arrays, expected),) = case.data_sets
    given = dict(zip([n for n in node.input if n], arrays, strict=True))
    for one in list(model.graph.input):
        if one.name in WEIGHTS:
            model.graph.input.remove(one)
            model.graph.initializer.append(numpy_helper.from_array(given[one.name], one.name))
    (weights,) = rl.load(write(model, tmp_path / "m.onnx")).values()

    states = [given[n] for n in ("initial_h", "initial_c") if n in given]
    state = states and (states[0] if len(states) == 1 else tuple(states))
    y, last = weights.rnn()(given["X"], state or None, lengths=given.get("sequence_lens"))
    layout = weights.config.get("layout")
    d, h = weights.spec.num_directions, weights.spec.hidden_size
    y = y.reshape(*y.shape[:2], d, h)  # directions side by side
    ours = {"Y": y if layout else y.transpose(0, 2, 1, 3)}
    last = last if isinstance(last, tuple) else (last,)  # (D, N, H), also of layout 1
    last = [one.transpose(1, 0, 2) for one in last] if layout else last
    ours |= dict(zip(["Y_h", "Y_c"], last, strict=False))
    for output, wanted in zip([n for n in node.output if n], expected, strict=True):
        # The package's own bounds for an implementation
        np.testing.assert_allclose(ours[output], wanted, rtol=case.rtol, atol=case.atol)
