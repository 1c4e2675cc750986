"""Hostile and damaged ONNX files: a typed error, soon, in little memory."""

import gc
import os
import sys

import numpy as np
import pytest
from files.hostile.good import weights
from files.hostile.limits import limited
from files.hostile.onnxes import (
    call,
    casts,
    chain,
    claims,
    cycle,
    doubled_and_halved,
    function,
    graphs,
    model_of,
    of_n0,
    one,
    sparse_tensor,
    within,
)
from onnx import TensorProto, helper, numpy_helper

import rnnlayout as rl

OPENED = []
sys.addaudithook(lambda event, args: OPENED.append(str(args[0])) if event == "open" else None)
ERRORS = rl.FileError, rl.LayoutError, rl.SpecError


def stored(model, tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return path


def refused(model, tmp_path, match, error=rl.FileError):
    path = stored(model, tmp_path)
    with limited(), pytest.raises(error, match=match):
        rl.load(path)
    assert os.listdir(tmp_path) == ["m.onnx"]


# --------------------------------------------------------------------------------- other files


@pytest.mark.parametrize("place", ["../secret.bin", "{}/secret.bin", "link.bin", "W.bin", ""])
@pytest.mark.parametrize("said", [True, False])
def test_tensors_in_other_files_are_not_followed(place, said, tmp_path):
    """Whatever is at the path: outside, a link, or beside the model as onnx writes it."""
    folder = tmp_path / "models"
    folder.mkdir()
    secret = tmp_path / "secret.bin"
    for name in (secret, folder / "W.bin"):
        name.write_bytes(weights("onnx")["W"].tobytes())
    (folder / "link.bin").symlink_to(secret)
    tensor = TensorProto(name="W", data_type=1, dims=[1, 12, 5])
    if said:
        tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=place.format(tmp_path))
    path = stored(model_of(given={"W": tensor}), folder)
    OPENED.clear()
    with pytest.raises(rl.FileError, match="save_as_external_data=False"):
        rl.load(path)
    assert not [name for name in OPENED if name.endswith(".bin")]
    assert str(path) in OPENED


# -------------------------------------------------------------------------------------- shapes


@pytest.mark.parametrize(
    "given",
    [
        claims([1, 12, 1 << 40]),
        claims([1 << 31, 1 << 31, 1 << 31]),
        claims([(1 << 63) - 1] * 8),
        claims([1] * 1000),
        claims([(1 << 63) - 1] * 100_000),
        claims([1, -12, -5]),
        claims([0, (1 << 63) - 1, (1 << 63) - 1], 0),
        claims([1, 12, 5], 239),
        claims([1, 12, 5], 241),
        {"W": TensorProto(name="W", data_type=1, dims=[1, 12, 5])},
        {"W": TensorProto(name="W", data_type=1, dims=[1, 12, 1 << 40], float_data=[1.0])},
        claims([1, 12, 5], segment=TensorProto.Segment(begin=0, end=1)),
    ],
)
def test_shape_bombs(given, tmp_path):
    refused(model_of(given), tmp_path, "W")


@pytest.mark.parametrize("number", [0, 8, 14, 17, 22, 99, -1])
def test_types_that_are_no_weights(number, tmp_path):
    given = claims([1, 12, 5])
    given["W"].data_type = number
    refused(model_of(given), tmp_path, "W", (rl.FileError, rl.LayoutError))


def test_no_hidden_units(tmp_path):
    empty = {"W": np.zeros((1, 0, 5), "f4"), "R": np.zeros((1, 0, 0), "f4"),
             "B": np.zeros((1, 0), "f4")}  # fmt: skip
    model = model_of(given=empty)
    del model.graph.node[0].attribute[:]
    refused(model, tmp_path, "lstm", ERRORS)


def test_a_sparse_tensor(tmp_path):
    refused(sparse_tensor(), tmp_path, "sparse tensor", rl.LayoutError)


# --------------------------------------------------------------------------------- computations


@pytest.mark.parametrize("count", [101, 5000, 20_000])
def test_a_long_chain(count, tmp_path):
    refused(model_of(given=of_n0(), before=chain("Identity", count)), tmp_path, "too many steps")


def test_a_chain_that_doubles(tmp_path):
    nodes = chain("Concat", 40, lambda k: [f"n{k}", f"n{k}"], axis=2)
    refused(
        model_of(given=of_n0(), before=nodes), tmp_path, "too many steps|times the size of the file"
    )


def test_a_chain_that_doubles_and_halves(tmp_path):
    """The results stay small, but not the steps."""
    more = {n: np.array([v]) for n, v in (("zero", 0), ("five", 5), ("two", 2))}
    refused(
        model_of(of_n0(**more), doubled_and_halved()),
        tmp_path,
        "too many steps|times the size of the file",
    )


def test_a_chain_that_grows(tmp_path):
    """Many large casts of one small tensor."""
    given = {"W": None, "n0": np.zeros(1 << 20, "i1")}
    refused(model_of(given, casts()), tmp_path, "times the size of the file")


def test_scales_that_grow_a_tensor(tmp_path):
    given = {"W": None, "q": np.zeros((1 << 14, 1), "i1"), "s": np.ones((1, 1 << 14), "f4")}
    refused(
        model_of(given, one("DequantizeLinear", ["q", "s"], ["W"])),
        tmp_path,
        "times the size of the file",
    )


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("Identity", ["W"], ["W2"]),
        helper.make_node("Transpose", ["n0"], ["W"], perm=[0, 0, 5]),
        helper.make_node("Transpose", [], ["W"]),
        helper.make_node("Concat", ["n0", "n0"], ["W"]),
        helper.make_node("Concat", ["n0", "B"], ["W"], axis=0),
        helper.make_node("Cast", ["n0"], ["W"]),
        helper.make_node("Cast", ["n0"], ["W"], to=99),
        helper.make_node("Reshape", ["n0", "n0"], ["W"]),
        helper.make_node("Reshape", ["n0", "huge"], ["W"]),
        helper.make_node("Unsqueeze", ["n0", "huge"], ["W"]),
        helper.make_node("Slice", ["n0", "huge", "n0"], ["W"]),
        helper.make_node("Slice", ["n0", "huge", "huge", "huge", "huge"], ["W"]),
        helper.make_node("Gather", ["n0"], ["W"]),
        helper.make_node("Gather", ["n0", "huge"], ["W"], axis=9),
        helper.make_node("Expand", ["n0", "huge"], ["W"]),
        helper.make_node("Expand", ["n0", "below"], ["W"]),
        helper.make_node("Tile", ["n0", "huge"], ["W"]),
        helper.make_node("Tile", ["n0", "below"], ["W"]),
        helper.make_node("Tile", ["n0"], ["W"]),
        helper.make_node("ConstantOfShape", ["huge"], ["W"]),
        helper.make_node("ConstantOfShape", ["below"], ["W"]),
        helper.make_node("ConstantOfShape", [], ["W"]),
        helper.make_node("DequantizeLinear", ["n0"], ["W"]),
        helper.make_node("DequantizeLinear", ["n0", "n0"], ["W"]),
        helper.make_node("Constant", [], ["W"]),
        helper.make_node("Constant", [], ["W"], value_string="x"),
    ],
)
def test_nodes_that_make_no_sense(node, tmp_path):
    more = {"huge": np.array([1 << 62] * 4), "below": np.array([-(1 << 40), 1, 1])}
    refused(model_of(given=of_n0(**more), before=[node]), tmp_path, "node 'lstm': ", ERRORS)


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
    path = stored(model, tmp_path)
    with limited():
        try:
            found = rl.load(path)
        except ERRORS as error:
            assert "lstm" in str(error)
        else:
            assert "initial_h is computed from constants" in found.notes[0]


# ---------------------------------------------------------------------------------------- graphs


def test_cycles(tmp_path):
    for nodes in (cycle(), one("Identity", ["W"], ["W"])):
        refused(model_of({"W": None}, nodes), tmp_path, "from itself")


def test_names_of_two_things(tmp_path):
    model = model_of()
    model.graph.initializer.append(numpy_helper.from_array(weights("onnx")["W"] + 1, "W"))
    refused(model, tmp_path, "'W' is defined twice")
    refused(model_of(before=one("Identity", ["R"], ["W"])), tmp_path, "'W' is defined twice")


def test_names_of_nothing(tmp_path):
    refused(model_of(given={"W": None}), tmp_path, "'W' is used but not defined")


@pytest.mark.parametrize("deep", [10, 60, 3000])
def test_graphs_in_graphs(deep, tmp_path):
    """Protobuf itself allows about thirty."""
    if deep == 10:
        assert list(rl.load(stored(graphs(deep), tmp_path))) == ["if/" * 10 + "lstm"]
    else:
        refused(graphs(deep), tmp_path, "not an ONNX model")


def test_very_many_nodes(tmp_path):
    """Empty ones, of two bytes."""
    refused(within(7, within(1, b"") * 400_000), tmp_path, "more than 200000 nodes")


@pytest.mark.parametrize(
    ("functions", "match"),
    [
        ([function("F0", [call("F0")])], "nested more than 100 deep"),
        ([function("F0", [call("F1")]), function("F1", [call("F0")])], "nested more than 100 deep"),
        ([function(f"F{k}", [call(f"F{k + 1}")] * 2) for k in range(60)], "more than 20000 nodes"),
        (
            [function(f"F{k}", [call(f"F{k + 1}")]) for k in range(2000)],
            "nested more than 100 deep",
        ),
    ],
)
def test_functions_in_functions(functions, match, tmp_path):
    refused(model_of(nodes=[call("F0")], functions=functions), tmp_path, match)


def test_names_that_are_no_text(tmp_path):
    data = model_of().SerializeToString()
    assert data.count(b"lstm") == 1
    refused(data.replace(b"lstm", b"l\xff\xfem"), tmp_path, "not an ONNX model|not UTF-8")


# ---------------------------------------------------------------------------------------- damage


@pytest.mark.parametrize("data", [b"\0" * 100, b"PK\x03\x04", bytes(range(7, 256)), b"{}"])
def test_no_models(data, tmp_path):
    refused(data, tmp_path, "not an ONNX model")


def test_files_beyond_protobuf(tmp_path):
    path = tmp_path / "m.onnx"
    with open(path, "wb") as file:
        file.truncate(1 << 31)  # sparse: it uses no disk space
    with pytest.raises(rl.FileError, match="protobuf's limit of 2 GB"):
        rl.load(path)


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
