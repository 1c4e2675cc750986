"""RNNs of an ONNX model that are not read, because they are not nodes LSTM, GRU or RNN."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .graph import CLASSES, MODULES, NAMES, all_graphs, node_name, recorded_texts, subgraphs

_LISTED = 3
_PRODUCTS = {"MatMul", "Gemm"}
_TORCH = "torch.nn.modules.rnn."
_EXPORT = (
    "export it with torch.onnx.export(..., dynamo=False), which keeps nn.RNN, nn.GRU and nn.LSTM as"
    " nodes; of cells read the weights from where they come from: a state_dict, a Keras file"
)


def notes_about_unread(model: Any, has_nodes: bool) -> Iterator[str]:
    """Yield what a model has instead of recurrent nodes. has_nodes: whether it has such too."""
    if modules := _decomposed(model):
        yield (
            f"{_listed(modules)}: the exporter replaced the RNN by MatMul and other nodes, which"
            f" are not read: {_EXPORT}"
        )
    if steps := _loops(model):
        yield (
            f"{_listed(steps)} is a loop with matrix products: an RNN made of those is not read"
            " (tf2onnx writes a SimpleRNN so, and a GRU of reset 'before'): read the weights from"
            " where they come from: a Keras file, a state_dict"
        )
    elif not has_nodes and not modules:
        yield f"none of its nodes is an LSTM, GRU or RNN: {_EXPORT}"


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_LISTED]) + (" and others" if len(names) > _LISTED else "")


def _decomposed(model: Any) -> list[str]:
    """Return the recurrent modules of PyTorch without a recurrent node."""
    found: dict[str, str] = {}
    kept = set[str]()
    for graph in all_graphs(model.graph, *model.functions):
        for node in graph.node:
            modules, classes = recorded_texts(node, MODULES), recorded_texts(node, CLASSES)
            for module, kind in zip(modules, classes, strict=False):
                if kind.startswith(_TORCH):
                    path = f"module {module!r}" if module else "the model itself"
                    found[module] = f"{path} (nn.{kind.removeprefix(_TORCH)})"
                    kept |= {module} if node.op_type in NAMES else set()
    return [text for module, text in found.items() if module not in kept]


def _loops(model: Any) -> list[str]:
    """Return the loops that multiply matrices, but without a recurrent node."""
    found = []
    for graph in all_graphs(model.graph, *model.functions):
        for node in graph.node:
            if node.op_type in ("Loop", "Scan"):
                inside = {n.op_type for g in all_graphs(*subgraphs(node)) for n in g.node}
                if inside & _PRODUCTS and not inside & NAMES:
                    found.append(f"{node_name(node)!r} ({node.op_type})")
    return found
