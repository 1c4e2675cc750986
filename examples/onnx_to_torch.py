"""Let onnx2torch convert ONNX models with LSTM, GRU and RNN nodes: import this file first.

onnx2torch makes a torch.fx.GraphModule of a graph and stops at recurrent nodes: "Converter is not
implemented (... operation_type='LSTM', version=14)". This file adds these nodes to its registry;
rnnlayout reads and converts their weights.
"""

import tempfile

import onnx
import torch
from onnx import helper
from onnx2torch.node_converters.registry import add_converter
from onnx2torch.utils.common import OnnxMapping, OperationConverterResult

import rnnlayout as rl


class RecurrentNode(torch.nn.Module):
    """A module of PyTorch with the inputs, outputs and axes of an ONNX node."""

    def __init__(self, weights, has_one_output):
        super().__init__()
        spec, kind = weights.spec, weights.spec.cell.split("_")
        kwargs = {"nonlinearity": kind[1]} if kind[0] == "rnn" else {}
        self.module = getattr(torch.nn, kind[0].upper())(
            spec.input_size,
            spec.hidden_size,
            bias=spec.bias != "none",
            bidirectional=spec.bidirectional,
            **kwargs,
        )
        rl.assign(self.module, weights.to("torch"))
        self.has_one_output = has_one_output

    def forward(self, x, h=None, c=None):
        y, last = self.module(x, h if c is None else (h, c))
        y = y.unflatten(2, (-1, self.module.hidden_size)).transpose(1, 2)  # (T, D, N, H)
        return y if self.has_one_output else (y, *(last if isinstance(last, tuple) else (last,)))


def convert_node(node, graph):
    """Return the module of a node, and the values that it reads and writes."""
    read = [value for value in (*node.input_values[:1], *node.input_values[4:]) if value]
    values = [
        helper.make_tensor_value_info(value, onnx.TensorProto.FLOAT, None)
        for value in (*read, *filter(None, node.output_values))
    ]
    arrays = [graph.initializers[value].proto for value in node.input_values[1:4] if value]
    inputs, outputs = values[: len(read)], values[len(read) :]
    alone = helper.make_model(
        helper.make_graph([node.proto], "node", inputs, outputs, arrays),
        opset_imports=[helper.make_opsetid("", 14)],
    )
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        onnx.save(alone, file.name)
        (weights,) = rl.load(file.name).values()
    if weights.config or node.input_values[4:5] not in ((), ("",)):
        raise NotImplementedError(f"{node.name}: lengths, or {weights.config}: PyTorch has neither")
    module = RecurrentNode(weights, len(node.output_values) == 1)
    return OperationConverterResult(module, OnnxMapping(tuple(read), node.output_values))


for operation in ("LSTM", "GRU", "RNN"):
    for version in (7, 14, 22):
        add_converter(operation, version)(convert_node)
