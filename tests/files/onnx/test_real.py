"""ONNX models written by others: torch's exporter, onnxruntime's quantizer, and the cases of the
package onnx."""

import numpy as np
import onnx
import pytest
import torch
from files.onnx.models import export, node_of, run_file, session, taken, write
from files.outputs import assert_computes
from marks import pairwise
from onnx import ModelProto, helper, numpy_helper
from onnx.backend.test.case import node as cases
from onnx.backend.test.case.node import gru, lstm, rnn
from oracles.frameworks import H, I, N, T, normal, onnx_model, onnx_tensors, seeded, torch_module
from oracles.reference import Run

import rnnlayout as rl

LSTM = rl.Spec("lstm", I, H)


# ------------------------------------------------------------------------------------------ torch


class LearnedStart(torch.nn.Module):
    """A GRU whose initial state is a parameter, for each sequence the same."""

    def __init__(self, spec, how):
        super().__init__()
        self.how, self.shape = how, (spec.num_layers, 1, H)
        self.gru = torch_module(spec, seeded("start", spec))
        other = {"shared": (1, 1, H), "one vector": (H,), "table": (3, *self.shape)}
        first = other.get(how, self.shape)
        self.h0 = torch.nn.Parameter(torch.from_numpy(normal(seeded("start", how), *first)))

    def forward(self, x):
        n = x.size(1)
        if self.how == "repeat":
            h0 = self.h0.repeat(1, n, 1)
        elif self.how == "stack":
            h0 = torch.stack([h0.expand(n, H) for h0 in self.h0])
        else:
            chosen = self.h0[1] if self.how == "table" else self.h0
            h0 = chosen.expand(self.shape[0], n, H).contiguous()
        return self.gru(x, h0)


def exported(module, x, folder, any_batch):
    axes = {"x": {1: "n"}} if any_batch else None
    return export(module, folder / "m.onnx", torch.from_numpy(x), dynamo=False, input_names=["x"],
                  dynamic_axes=axes)  # fmt: skip


@pytest.mark.parametrize("how, layers, batch", pairwise(
    ["repeat", "expand", "shared", "one vector", "table"], [1, 2], ["fixed", "any"],
))  # fmt: skip
def test_a_learned_initial_state(how, layers, batch, tmp_path):
    """All but those of one layer that Expand repeats alone were lost."""
    spec = rl.Spec("gru", I, H, layers)
    x = normal(seeded("start x"), T, N, I)
    path = exported(LearnedStart(spec, how), x, tmp_path, batch == "any")
    found = rl.load(path)
    assert not found.notes
    stacked = rl.stack(found.values())
    h0 = np.array(stacked.config.pop("initial_h"), np.float32)
    assert h0.shape in [(layers, 1, H), (layers, N, H)] and not stacked.config
    h0 = np.broadcast_to(h0, (layers, N, H)).copy()
    y, h_n = run_file(path, x)
    assert_computes(stacked, Run(y, h_n), x, h0)


def test_a_learned_initial_state_that_is_not_read(tmp_path):
    """Split is not computed here."""
    spec = rl.Spec("gru", I, H, 2)
    x = normal(seeded("start x"), T, N, I)
    found = rl.load(exported(LearnedStart(spec, "stack"), x, tmp_path, any_batch=True))
    assert [weights.config for weights in found.values()] == [{}, {}]
    assert [note.split(":")[0] for note in found.notes] == list(found)
    assert all("initial_h is computed from constants in a way" in note for note in found.notes)


# ------------------------------------------------------------------------------------- quantised


def dequantized_by_onnxruntime(quantized, scale, zero, axis):
    names = ["q", "scale", "zero"]
    node = helper.make_node("DequantizeLinear", names, ["out"], axis=axis)
    values = [numpy_helper.from_array(a, n) for n, a in zip(names, (quantized, scale, zero),
                                                          strict=True)]  # fmt: skip
    out = helper.make_tensor_value_info("out", 1, [None] * quantized.ndim)
    graph = helper.make_graph([node], "g", [], [out], values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    return session(model).run(None, {})[0]


@pytest.mark.parametrize("both, per_channel, unsigned", pairwise(*[[False, True]] * 3))
def test_quantize_dynamic(both, per_channel, unsigned, tmp_path):
    from onnxruntime.quantization import quantize_dynamic

    spec = LSTM.replace(bidirectional=both)
    tensors = onnx_tensors(spec, seeded("quantized", both))
    model = onnx_model(tensors, spec)
    node_of(model.graph).name = "layer"
    write(model, tmp_path / "float.onnx")
    quantize_dynamic(tmp_path / "float.onnx", tmp_path / "int8.onnx", per_channel=per_channel,
                     op_types_to_quantize=["LSTM"])  # fmt: skip
    made = onnx.load(tmp_path / "int8.onnx")
    (node,) = (n for n in made.graph.node if n.op_type == "DynamicQuantizeLSTM")
    for tensor in made.graph.initializer if unsigned else ():
        if tensor.name in [node.input[k] for k in (1, 2, 9, 11)]:  # the same about another zero
            array = numpy_helper.to_array(tensor).astype(np.int16) + 128
            tensor.CopyFrom(numpy_helper.from_array(array.astype(np.uint8), tensor.name))
    found = rl.load(write(made, tmp_path / "int8.onnx"))
    weights = found["layer_quant"]
    assert weights.spec == spec and len(found.notes) == 2
    assert all("dequantized to float32" in note for note in found.notes)
    held = {t.name: numpy_helper.to_array(t) for t in made.graph.initializer}
    for role, at, scale in (("W", 1, 8), ("R", 2, 10)):
        q, s, z = (held[node.input[k]] for k in (at, scale, scale + 1))
        parts = [dequantized_by_onnxruntime(q[d], s[d], z[d], 1).T for d in range(1 + both)]
        assert np.array_equal(weights[role], np.stack(parts))
        # off by less than a step, of which int8 has 254 from -max to max
        assert abs(weights[role] - tensors[role]).max() < abs(tensors[role]).max() / 127


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16])
def test_dequantize_linear(axis, kind, tmp_path):
    model = onnx_model(onnx_tensors(LSTM, seeded("linear")), LSTM)
    model.opset_import[0].version, model.ir_version = 21 if kind is np.int16 else 14, 10
    shape, rng = taken(model.graph, "W").shape, seeded("levels", axis)
    levels = rng.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, shape).astype(kind)
    size = () if axis is None else (shape[axis],)
    scale = np.asarray(rng.uniform(0.2, 1, size) / np.iinfo(kind).max, np.float32)
    given = {"q": levels, "scale": scale, "zero": np.asarray(rng.integers(0, 9, size), kind)}
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in given.items())
    more = {} if axis is None else {"axis": axis}
    model.graph.node.insert(0, helper.make_node("DequantizeLinear", [*given], ["W"], **more))
    found = rl.load(write(model, tmp_path / "m.onnx"))
    assert found.notes == ["0/Y: W was dequantized to float32"]
    model.graph.output.append(helper.make_tensor_value_info("W", 1, list(shape)))
    x, states = np.zeros((1, 1, I), "f4"), np.zeros((1, 1, H), "f4")
    theirs = session(model).run(["W"], {"x": x, "0/h0": states, "0/c0": states})[0]
    assert np.array_equal(theirs, found["0/Y"]["W"])


# ------------------------------------------------------------------ the cases of ONNX's own package


MODULES = {lstm.__name__, gru.__name__, rnn.__name__}  # imported: each adds its cases to a list
CASES = {one.name: one for one in cases._NodeTestCases if one.model.graph.node[0].op_type in
         ("LSTM", "GRU", "RNN")}  # fmt: skip
assert len(CASES) == 18
WEIGHTS = "WRBP"


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
