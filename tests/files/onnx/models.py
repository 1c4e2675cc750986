"""ONNX models for the tests of files, and their results in onnxruntime.

frameworks.onnx_model() builds one with its weights as initializers; place() moves them elsewhere.
"""

import contextlib
import io
import warnings

import numpy as np
import onnx
import torch
from files.outputs import assert_computes
from onnx import helper, numpy_helper
from oracles.frameworks import ONNX_OPERATOR, inputs, onnx_session, seeded
from oracles.reference import Run


def write(model, path):
    path.write_bytes(model.SerializeToString())
    return path


def session(model):
    return onnx_session(model.SerializeToString())


def run(model, x, h0, c0=None):
    """Run a model of frameworks.onnx_model(), of one layer, in onnxruntime."""
    feed = {"x": x, "0/h0": h0} | ({} if c0 is None else {"0/c0": c0})
    made = session(model)
    wanted = {given.name for given in made.get_inputs()}
    y, *last = made.run(None, {name: feed[name] for name in wanted})
    return Run(y, *last)


def run_file(path, *given):
    """Run a file in onnxruntime, which reads the data beside it."""
    made = onnx_session(path)
    names = [one.name for one in made.get_inputs()]
    return made.run(None, dict(zip(names, given, strict=True)))


def export(module, path, *given, **options):
    """Write a module as torch.onnx.export() does."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(module.eval(), given, path, **options)
    return path


def assert_same_outputs(model, spec, weights):
    """Assert that onnxruntime computes from a model what rl.RNN computes from its weights."""
    given = inputs(seeded("inputs", spec), spec)
    assert_computes(weights, run(model, *given), *given)


def node_of(graph):
    """Return the first RNN of a graph."""
    return next(node for node in graph.node if node.op_type in ONNX_OPERATOR.values())


def constant(name, array):
    return helper.make_node(
        "Constant", [], [name], value=numpy_helper.from_array(np.asarray(array), name + "/value")
    )


# ------------------------------------------------------------------- where a weight can stand


def initializers(graph):
    return {tensor.name: tensor for tensor in graph.initializer}


def taken(graph, name):
    """Remove an initializer from the graph and return its array."""
    tensor = initializers(graph)[name]
    array = numpy_helper.to_array(tensor)
    graph.initializer.remove(tensor)
    return array


def as_input_too(model):
    """Make it an input too, as all initializers were before IR version 4."""
    model.graph.input.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in model.graph.initializer
    )


def as_constants(model):
    for name in "WRB":
        model.graph.node.insert(0, constant(name, taken(model.graph, name)))


def not_raw(model):
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        tensor.CopyFrom(
            helper.make_tensor(tensor.name, tensor.data_type, array.shape, array.ravel())
        )


def through_nodes(model):
    """Split, transpose, concatenate and cast a tensor, each with other nodes."""
    graph, nodes = model.graph, []
    w, r, b = (taken(graph, name) for name in "WRB")
    half = w.shape[1] // 2
    nodes += [
        constant("w/b", w[:, half:].transpose(2, 1, 0)),
        constant("w/a", w[:, :half].transpose(2, 1, 0)),
        helper.make_node("Concat", ["w/a", "w/b"], ["w/ab"], axis=1),
        helper.make_node("Transpose", ["w/ab"], ["w/t"], perm=[2, 1, 0]),
        helper.make_node("Identity", ["w/t"], ["W"]),
        constant("r/more", np.concatenate([r[:, :, ::-1], np.ones_like(r)], 2).astype(np.float64)),
        helper.make_node("Cast", ["r/more"], ["r/cast"], to=onnx.TensorProto.FLOAT),
        *[constant(f"r/{k}", np.array([n])) for k, n in
          [("start", -r.shape[2] - 1), ("end", -(1 << 62)), ("axis", -1), ("step", -1)]],
        helper.make_node("Slice", ["r/cast", "r/start", "r/end", "r/axis", "r/step"], ["R"]),
        *[constant(f"b/{k}", np.array(n)) for k, n in
          [("shape", [b.shape[0], -1, 1]), ("first", [0])]],
        constant("b/flat", b.ravel()),
        helper.make_node("Reshape", ["b/flat", "b/shape"], ["b/shaped"]),
        helper.make_node("Unsqueeze", ["b/shaped", "b/first"], ["b/wide"]),
        *[constant("b/outer", np.array([0, 3]))],
        helper.make_node("Squeeze", ["b/wide", "b/outer"], ["B"]),
    ]  # fmt: skip
    for node in reversed(nodes):
        graph.node.insert(0, node)


PLACES = {
    "initializers": lambda model: None, "inputs": as_input_too, "constants": as_constants,
    "not raw": not_raw, "through nodes": through_nodes,
}  # fmt: skip


# ------------------------------------------------------------------------------ in other graphs


def values(*names, kind=1):
    """Describe floats of any shape; scalars if they are integers (7) or truth values (9)."""
    return [helper.make_tensor_value_info(name, kind, None if kind == 1 else []) for name in names]


def wrapped(model, operator):
    """Move the model's nodes into a branch of an If, or into the body of a Loop that runs once. Its
    initializers stay outside, where names inside refer to them."""
    graph = model.graph
    names, inner = [out.name for out in graph.output], list(graph.node)
    results, others = ([f"{name}/{more}" for name in names] for more in ("outer", "other"))
    zeros = [constant(name, np.zeros((1, 1, 1), "f4")) for name in others]
    if operator == "If":
        then = helper.make_graph(inner, "then", [], values(*names))
        otherwise = helper.make_graph(zeros, "else", [], values(*others))
        before, given = [], ["yes"]
        branches = {"then_branch": then, "else_branch": otherwise}
    else:
        inner.append(helper.make_node("Identity", ["on"], ["still"]))
        state = [*values("turn", kind=7), *values("on", kind=9)]
        state += values(*(f"{name}/before" for name in names))
        still = [*values("still", kind=9), *values(*names)]
        before, given = [constant("turns", np.array(1)), *zeros], ["turns", "yes", *others]
        branches = {"body": helper.make_graph(inner, "body", state, still)}
    outer = helper.make_node(operator, given, results, "outer", **branches)
    del graph.node[:]
    graph.node.extend([constant("yes", True), *before, outer])
    for out, name in zip(graph.output, results, strict=True):
        out.name = name
    return model
