"""ONNX models that take long to compute or are deep; hostile/onnxes.py makes the hostile ones."""

import gc

import numpy as np
import pytest
from files.hostile.limits import limited
from files.hostile.onnxes import graphs, model_of, one
from onnx import helper

import rnnlayout as rl

ERRORS = rl.FileError, rl.LayoutError, rl.SpecError


@pytest.mark.parametrize(
    "nodes",
    [
        [helper.make_node("Concat", [f"n{k}", f"n{k}"], [f"n{k + 1}"], axis=0) for k in range(60)],
        [helper.make_node("Tile", [f"n{k}", "twice"], [f"n{k + 1}"]) for k in range(200)],
        one("Concat", ["n60", "n0"], ["n60"], axis=0),
        one("Gather", ["n0", "all"], ["n60"], axis=2),
        [helper.make_node("Mul", [f"n{k}", f"n{k}"], [f"n{k + 1}"]) for k in range(5000)],
    ],
    ids=["doubles", "long", "from itself", "grows", "is not read"],
)
def test_a_state_that_is_repeated(nodes, tmp_path):
    """The weights can be read; or the file is refused, also without much work."""
    given = {"first": np.ones((1, 1, 3), "f4"), "twice": np.array([1, 1, 2]),
             "all": np.zeros(1 << 10, "i8")}  # fmt: skip
    before = [helper.make_node("Shape", ["X"], ["sizes"]),
              helper.make_node("Expand", ["first", "sizes"], ["n0"]), *nodes]  # fmt: skip
    model = model_of(given, before)
    (lstm,) = (node for node in model.graph.node if node.op_type == "LSTM")
    lstm.input.extend(["", "n60"])
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    with limited():
        try:
            found = rl.load(path)
        except ERRORS as error:
            assert "lstm" in str(error)
        else:
            assert "initial_h is computed from constants" in found.notes[0]


def test_graphs_in_graphs(tmp_path):
    """Protobuf itself allows about thirty."""
    (tmp_path / "m.onnx").write_bytes(graphs(10))
    assert list(rl.load(tmp_path / "m.onnx")) == ["if/" * 10 + "lstm"]


def test_what_others_left_for_the_collector_is_not_measured():
    """A collection meanwhile takes a second with all frameworks in the process."""
    found = []
    gc.callbacks.append(lambda phase, info: found.append(phase))
    try:
        with limited():
            kept = [[] for _ in range(100_000)]  # more than it lets go by
            found_inside = len(found)
        kept += [[] for _ in range(100_000)]
    finally:
        gc.callbacks.pop()
    assert found_inside == 0 and len(found) > 0
