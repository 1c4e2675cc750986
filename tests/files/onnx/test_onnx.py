"""load() reads from an ONNX model what onnxruntime computes with it."""

import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import onnx
import pytest
from commands import TESTS
from files.hostile.good import good
from files.hostile.growth import write_product
from files.hostile.onnxes import graphs
from files.onnx import models
from files.onnx.models import assert_same_outputs, constant, node_of, taken, values, wrapped, write
from files.outputs import assert_computes
from marks import pairwise
from onnx import helper, numpy_helper
from oracles.frameworks import FORMS, RELU_FORMS, H, I, inputs, onnx_model, onnx_tensors, seeded
from oracles.reference import Run

import rnnlayout as rl
from rnnlayout._files.formats.onnx import model as model_file

LSTM, GRU, RNN = (rl.Spec(cell, I, H) for cell in ("lstm", "gru", "rnn_tanh"))


def model_of(spec, name="layer", **attributes):
    tensors = onnx_tensors(spec, seeded("file", spec))
    model = onnx_model(tensors, spec, **attributes)
    node_of(model.graph).name = name
    return model, tensors


def read(model, tmp_path, **hints):
    return rl.load(write(model, tmp_path / "model.onnx"), **hints)


def with_opset(model, opset):
    model.opset_import[0].version = opset
    model.ir_version = 10 if opset > 20 else 8
    return model


@pytest.mark.parametrize("form, curve, both, bias, opset", pairwise(
    [*FORMS, *RELU_FORMS], ["sigmoid", "hard_sigmoid", "hard_sigmoid_keras2"], [False, True],
    ["double", "none"], [7, 14, 22],
    fits=lambda form, curve, *_: curve == "sigmoid" or not form[0].startswith("rnn"),
), ids=str)  # fmt: skip
def test_every_operator(form, curve, both, bias, opset, tmp_path):
    cell, options = form
    spec = rl.Spec(cell, I, H, 1, both, bias=bias, recurrent_activation=curve, **options)
    model, tensors = model_of(spec)
    found = read(with_opset(model, opset), tmp_path)
    assert list(found) == ["layer"] and not found.refused
    weights = found["layer"]
    assert (weights.spec, weights.layout.name, weights.config) == (spec, "onnx", {})
    assert {name: a.tobytes() for name, a in weights.items()} == {
        name: a.tobytes() for name, a in tensors.items()
    }
    assert_same_outputs(model, spec, weights)


def test_an_rnn_in_a_loop_is_named(tmp_path):
    """Weights that a Scan or a Loop multiplies with were left out without a word."""
    product = helper.make_node("MatMul", ["x_t", "W"], ["h_t"])
    body = helper.make_graph([product], "step", values("h", "x_t"), values("h_t", "y_t"))
    scan = helper.make_node("Scan", ["h_0", "x"], ["h_n", "y_n"], "steps", body=body)
    model, _ = model_of(LSTM)
    model.graph.node.append(scan)
    (note,) = read(model, tmp_path).notes
    assert "'steps' (Scan) is a loop with matrix products: " in note and "not read" in note
    del model.graph.node[:-1]
    with pytest.raises(rl.FileError, match=rf"no recurrent layer found; {re.escape(note)}"):
        read(model, tmp_path)
    model, _ = model_of(GRU)  # a loop around one is another matter
    model.graph.node.append(helper.make_node("MatMul", ["y", "y"], ["product"]))
    assert not read(wrapped(model, "Loop"), tmp_path).notes


def test_a_masked_layer_that_tf2onnx_wrote(tmp_path):
    """Its loop was blamed on a SimpleRNN."""
    path = TESTS / "data/tf2onnx-mask.onnx"
    with pytest.raises(rl.FileError, match=r"/enc/.*\(Loop\) .*a Keras layer with a mask"):
        rl.load(path)
    model = onnx.load(path)
    (loop,) = (node for node in model.graph.node if node.op_type == "Loop")
    model.graph.node.remove(loop)
    with pytest.raises(
        rl.FileError, match=r"no.* an LSTM, GRU or RNN: read the weights from where"
    ):
        read(model, tmp_path)


@pytest.mark.parametrize("spec", [LSTM, GRU, RNN], ids=lambda spec: spec.cell)
@pytest.mark.parametrize("name", ["peephole", "input_forget", "linear_before_reset"])
def test_an_attribute_that_the_operator_lacks(name, spec, tmp_path):
    """It was ignored; onnxruntime refuses it."""
    if (name, spec.cell) in (("input_forget", "lstm"), ("linear_before_reset", "gru")):
        spec, name = LSTM, "linear_before_resets"
    model, _ = model_of(spec)
    node_of(model.graph).attribute.append(helper.make_attribute(name, 1))
    with pytest.raises(Exception, match=f"Unrecognized attribute: {name}"):
        models.session(model)
    with pytest.raises(rl.LayoutError, match=f"node 'layer': it has the attribute '{name}'"):
        read(model, tmp_path)


@pytest.mark.parametrize("spec", [LSTM, GRU, RNN], ids=lambda spec: spec.cell)
def test_a_clip_of_zero_is_a_setting(spec, tmp_path):
    """onnxruntime refuses it, or clips an RNN to zero: it is not "no clip"."""
    model, _ = model_of(spec, clip=0.0)
    x, *states = inputs(seeded("inputs", spec), spec)
    if spec is RNN:
        assert not models.run(model, x, *states).y.any()
    else:
        with pytest.raises(Exception, match="clip"):
            models.session(model)
    weights = read(model, tmp_path)["layer"]
    assert weights.config == {"clip": 0.0}
    with pytest.raises(rl.LayoutError, match=r"clip=0\.0, which rl\.RNN does not apply"):
        rl.RNN(weights)


def test_graphs_in_graphs(tmp_path):
    """Protobuf itself allows about thirty."""
    (tmp_path / "m.onnx").write_bytes(graphs(10))
    assert list(rl.load(tmp_path / "m.onnx")) == ["if/" * 10 + "lstm"]


def test_tensors_of_no_rnn_are_named_and_an_inner_name_hides_an_outer_one(tmp_path):
    model, tensors = model_of(LSTM)
    assert read(model, tmp_path).others == ()
    wrapped(model, "If")
    (branch,) = (a.g for n in model.graph.node for a in n.attribute if a.name == "then_branch")
    for graph, name, dtype in (
        (model.graph, "fc.weight", "i1"), (branch, "inner", "f2"), (model.graph, "shape", "i8"),
    ):  # fmt: skip
        graph.initializer.append(numpy_helper.from_array(np.ones((2, 3), dtype), name))
    sparse = onnx.SparseTensorProto(values=numpy_helper.from_array(np.ones(1, "f4"), "few"))
    model.graph.sparse_initializer.append(sparse)
    assert read(model, tmp_path).others == ("fc.weight", "few", "inner")
    branch.node.insert(0, constant("W", tensors["W"][:, ::-1]))
    assert np.array_equal(read(model, tmp_path)["outer/layer"]["W"], tensors["W"][:, ::-1])


def test_in_functions_as_they_are_called(tmp_path):
    """One function, called twice with other weights and another reset."""
    model, tensors = model_of(GRU)
    x, h0, _ = inputs(seeded("inputs", GRU), GRU)
    body = helper.make_node("GRU", ["x", "w", "R", "B", "", "h"], ["y", "last"], "inner")
    body.attribute.append(helper.make_attribute("hidden_size", H))
    body.attribute.append(onnx.AttributeProto(
        name="linear_before_reset", ref_attr_name="lbr", type=onnx.AttributeProto.INT))  # fmt: skip
    shared = [constant(name, tensors[name]) for name in "RB"]
    opset = helper.make_opsetid("", 14)
    function = helper.make_function(
        "mine", "Layer", ["x", "w", "h"], ["y", "last"], [*shared, body], [opset], ["lbr"]
    )
    other = tensors["W"][:, ::-1].copy()
    graph = helper.make_graph(
        [helper.make_node("Layer", ["x", "W", "0/h0"], ["y", "l"], "a", "", "mine", lbr=1),
         helper.make_node("Layer", ["x", "W2", "0/h0"], ["y2", "l2"], "b", "", "mine", lbr=0)],
        "g", list(model.graph.input), values("y", "l", "y2", "l2"),
        [numpy_helper.from_array(tensors["W"], "W"), numpy_helper.from_array(other, "W2")],
    )  # fmt: skip
    made = helper.make_model(graph, functions=[function], ir_version=8,
                             opset_imports=[opset, helper.make_opsetid("mine", 1)])  # fmt: skip
    found = read(made, tmp_path)
    assert list(found) == ["a/inner", "b/inner"]
    y, last, y2, last2 = models.session(made).run(None, {"x": x, "0/h0": h0})
    for name, theirs, reset in [("a/inner", Run(y[:, 0], last), "after"),
                                ("b/inner", Run(y2[:, 0], last2), "before")]:  # fmt: skip
        assert found[name].spec == GRU.replace(reset=reset)
        assert_computes(found[name], theirs, x, h0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("raw", [True, False])
def test_other_dtypes(dtype, raw, tmp_path):
    model, tensors = model_of(LSTM)
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    for name in "WRB":
        array = taken(model.graph, name).astype(kind)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    if not raw:
        models.not_raw(model)
    weights = read(model, tmp_path)["layer"]
    assert weights.spec == LSTM.replace(dtype=dtype)
    assert all(weights[n].tobytes() == tensors[n].astype(kind).tobytes() for n in "WRB")


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "int32", "int64", "bool"])
@pytest.mark.parametrize("raw", [True, False])
def test_weights_that_are_cast_from_integers(dtype, raw, tmp_path):
    model, _ = model_of(LSTM)
    least, most = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    w = np.resize([least, most, 1, 0], taken(model.graph, "W").shape).astype(dtype)
    model.graph.initializer.append(numpy_helper.from_array(w, "stored"))
    model.graph.node.insert(0, helper.make_node("Cast", ["stored"], ["W"], to=1))
    if not raw:
        models.not_raw(model)
    assert np.array_equal(read(model, tmp_path)["layer"]["W"], w.astype("f4"))


# ------------------------------------------------------------------ what changes the network


@pytest.mark.parametrize("curve, both, bias", pairwise(
    ["sigmoid", "hard_sigmoid_keras2"], [False, True], ["double", "none"]
))  # fmt: skip
def test_input_forget_becomes_weights(curve, both, bias, tmp_path):
    spec = LSTM.replace(bidirectional=both, bias=bias, recurrent_activation=curve)
    model, _ = model_of(spec, input_forget=1)
    found = read(model, tmp_path)
    assert found["layer"].config == {} and "input_forget" in found.notes[0]
    assert_same_outputs(model, spec, found["layer"])


@pytest.mark.parametrize("role, shape", [
    ("W", (1, 4 * H - 1, I)), ("W", (1, 0, I)), ("R", (1, 4 * H + 1, H)), ("B", (1, 8 * H + 2)),
    ("B", (1, 0)),
])  # fmt: skip
def test_input_forget_of_weights_that_are_not_four_gates(role, shape, tmp_path):
    model, _ = model_of(LSTM, input_forget=1)
    taken(model.graph, role)
    model.graph.initializer.append(numpy_helper.from_array(np.ones(shape, "f4"), role))
    expected = rf"{role}: shape {re.escape(str(shape))}, expected \(D, 4 H, \.\.\.\)"
    with pytest.raises(rl.LayoutError, match=expected):
        read(model, tmp_path)


def test_zero_states_zero_peepholes_and_a_table_of_lengths(tmp_path):
    model, _ = model_of(LSTM)
    for name, shape in (("0/h0", (1, 9, H)), ("P", (1, 3 * H))):
        zeros = numpy_helper.from_array(np.zeros(shape, "f4"), name)
        model.graph.initializer.append(zeros)
    node_of(model.graph).input[4] = "lens"
    node_of(model.graph).input.append("P")
    model.graph.node.insert(0, constant("lens", np.array([3, 4], np.int32)))
    found = read(model, tmp_path)["layer"]
    assert found.config == {"sequence_lens": [3, 4]} and "P" not in found


def test_lengths_that_are_no_integers_were_cut(tmp_path):
    model, _ = model_of(LSTM)
    node_of(model.graph).input[4] = "lens"
    model.graph.node.insert(0, constant("lens", np.array([3.5, 4], np.float32)))
    with pytest.raises(rl.LayoutError, match="sequence_lens has dtype float32, ONNX needs int32"):
        read(model, tmp_path)


def test_a_list_per_node_was_made_of_a_state_before_the_file_was_refused(tmp_path, monkeypatch):
    def refuse_to_list(_):
        raise AssertionError("a list was made")

    monkeypatch.setattr(model_file, "list_settings", refuse_to_list)
    with pytest.raises(rl.FileError, match="bytes of weights"):
        rl.load(write_product(tmp_path / "a" / "a state of many nodes.onnx", 400))


def test_zero_states_as_tf2onnx_writes_them(tmp_path):
    """The size of the batch, and so the state, is computed from x."""
    spec = LSTM.replace(bidirectional=True)
    model, _ = model_of(spec)
    zero = numpy_helper.from_array(np.zeros((), np.float32), "zero")
    model.graph.initializer.extend([zero, *(numpy_helper.from_array(np.array([k]), f"at {k}")
                                            for k in (0, 1, 2, H))])  # fmt: skip
    for k, node in enumerate([
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Slice", ["sizes", "at 1", "at 2"], ["n"]),
        helper.make_node("Concat", ["n", f"at {H}"], ["n h"], axis=0),
        helper.make_node("Expand", ["zero", "n h"], ["2-D"]),
        helper.make_node("Unsqueeze", ["2-D", "at 0"], ["3-D"]),
        helper.make_node("Concat", ["3-D", "3-D"], ["both"], axis=0),
    ]):  # fmt: skip
        model.graph.node.insert(k, node)
    node_of(model.graph).input[5:7] = ["both", "both"]
    x, h0, c0 = inputs(seeded("inputs", spec), spec)
    found = read(model, tmp_path)
    assert found["layer"].config == {} and not found.notes
    assert_computes(found["layer"], models.run(model, x, h0, c0), x)


@pytest.mark.parametrize("how", ["constant", "input", "sliced input"])
@pytest.mark.parametrize("state", ["initial_h", "initial_c"])
def test_a_state_of_another_size_contradicts_the_weights(state, how, tmp_path):
    """torch wrote such models of LSTM(4, 5, proj_size=2); one was read as an LSTM of 2 units."""
    model, _ = model_of(LSTM)
    x, *states = inputs(seeded("inputs", LSTM), LSTM)
    at = ["initial_h", "initial_c"].index(state)
    states[at] = np.concatenate([states[at]] * 2, -1)
    given = model.graph.input[1 + at]
    given.type.tensor_type.shape.dim[-1].dim_value = 2 * H
    if how == "constant":
        model.graph.initializer.append(numpy_helper.from_array(states[at], given.name))
        model.graph.input.remove(given)
    if how == "sliced input":
        node_of(model.graph).input[5 + at] = "part"
        model.graph.node.insert(0, helper.make_node("Identity", [given.name], ["part"]))
        model.graph.value_info.append(helper.make_tensor_value_info("part", 1, [None, None, 2 * H]))
    with pytest.raises(Exception, match=f"{state} must have shape"):  # onnxruntime's Fail
        models.run(model, x, *states)
    sizes = rf"{state}: shape \([1?], [9?], {2 * H}\), expected \(1, N, {H}\) = \(D, N, H\)"
    with pytest.raises(rl.LayoutError, match=sizes) as raised:
        read(model, tmp_path)
    assert ("proj_size" in str(raised.value)) == (state == "initial_c")


# ----------------------------------------------------------------------------------- names, hints


def copied(graph, name):
    """Add a copy of the RNN's node to the graph."""
    node = graph.node.add()
    node.CopyFrom(node_of(graph))
    node.name, node.output[:] = name, ["a", "b", "c"]
    return node


def test_names(tmp_path):
    model, _ = model_of(LSTM, name="")
    assert list(read(model, tmp_path)) == ["0/Y"]
    copied(model.graph, "0/Y")
    assert list(read(model, tmp_path)) == ["0/Y", "0/Y_2"]
    assert list(read(model, tmp_path, prefix="0/Y_2")) == ["0/Y_2"]
    with pytest.raises(rl.FileError, match="no recurrent layer"):
        read(model, tmp_path, prefix="elsewhere")


@pytest.mark.parametrize(
    ("spec", "attributes", "error", "match"),
    [
        (LSTM, {"hidden_size": 5}, rl.LayoutError, "hidden_size is 5, but R has shape"),
        (LSTM, {"direction": "bidirectional"}, rl.LayoutError, "expected .D, G H, I., D = 2"),
        (LSTM, {"direction": "sideways"}, rl.LayoutError, "need forward, reverse"),
        (LSTM, {"activations": ["Sigmoid", "Tanh", "Relu"]}, rl.LossyError,
         "the candidate has Tanh and the output Relu"),
        (LSTM, {"activations": ["Sigmoid", "Relu", "Elu"]}, rl.LossyError, "then Tanh or Relu"),
        (GRU, {"activations": ["Sigmoid", "LeakyRelu"]}, rl.LossyError, "then Tanh or Relu"),
        (GRU, {"activations": ["Relu", "Tanh"]}, rl.LossyError, "needs Sigmoid or HardSigmoid"),
        (LSTM, {"activations": ["Sigmoid"]}, rl.LayoutError, "need 3 of them"),
        (LSTM, {"activations": ["HardSigmoid", "Tanh", "Tanh"], "activation_alpha": [0.3]},
         rl.LossyError, "0.3"),
        (GRU.replace(bidirectional=True), {"activations": ["Sigmoid", "Tanh", "Relu", "Tanh"]},
         rl.LossyError, "differ by direction"),
        (rl.Spec("rnn_tanh", I, H), {"activations": ["Elu"]}, rl.LossyError, "Tanh or Relu"),
    ],
)  # fmt: skip
def test_what_has_no_form_is_refused_by_name(spec, attributes, error, match, tmp_path):
    model, _ = model_of(spec, name="/encoder/LSTM")
    node = node_of(model.graph)
    kept = [a for a in node.attribute if a.name not in attributes]
    del node.attribute[:]
    node.attribute.extend([*kept, *(helper.make_attribute(*item) for item in attributes.items())])
    with pytest.raises(error, match=match) as raised:
        read(model, tmp_path)
    assert "/encoder/LSTM" in str(raised.value)


def test_weights_that_are_no_constants(tmp_path):
    model, _ = model_of(LSTM)
    copied(model.graph, "good")
    node_of(model.graph).input[1] = "computed"
    square = helper.make_node("Mul", ["W", "W"], ["computed"], "square")
    other = helper.make_node("Identity", ["x"], ["computed"])
    for node, why in ((square, r"'layer': W is computed by node 'square' \(Mul"),
                      (other, "computed from 'x', an input of a graph")):  # fmt: skip
        model.graph.node.insert(0, node)
        found = read(model, tmp_path)
        assert list(found) == ["good"] and list(found.refused) == ["layer"]
        assert re.search(why, str(found.refused["layer"]))
        del model.graph.node[0]


# Inspects the model "a.onnx" in processes that get 20 to 90 MB, and prints their exit codes.
LITTLE_MEMORY = """
import onnx, os, resource
from rnnlayout._cli.main import main
main(["inspect", "good.onnx"])
for megabytes in range(20, 100, 10):
    if (pid := os.fork()) == 0:
        pages = int(open("/proc/self/statm").read().split()[5])
        most = pages * resource.getpagesize() + megabytes * 1_000_000
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        os._exit(main(["inspect", "a.onnx"]))
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.long
@pytest.mark.parametrize("name", ["a state of many nodes.onnx", "a state that is not read.onnx"])
def test_memory_that_ends_while_a_model_is_read(name, tmp_path):
    """protobuf makes an object for an empty field without a check of memory: SIGSEGV. Where it did
    check, the model was called cut short."""
    path = write_product(tmp_path / "a" / name, 40000)
    path.rename(path.with_name("a.onnx"))
    path.with_name("good.onnx").write_bytes(good(".onnx"))
    done = subprocess.run([sys.executable, "-c", LITTLE_MEMORY], text=True, cwd=path.parent,
                          capture_output=True, check=False)  # fmt: skip
    codes = [int(line) for line in done.stdout.split("\n")[-9:-1]]
    assert codes[0] == 5 and {*codes} <= {3, 5}, (codes, done.stderr)
    assert "cut short" not in done.stderr
