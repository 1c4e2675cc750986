"""New values for the weights of an ONNX model; everything else is unchanged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rnnlayout._model.checked_rnn import checked_rnn_of
from rnnlayout._model.dtypes import Bits
from rnnlayout._native import LayoutError
from rnnlayout._weights.weights import Weights

from .graph import NodeSite, all_graphs, find_sites, integer_attribute
from .node import WEIGHTS
from .write import fill_tensor_proto


def replace_node_weights(model: Any, layers: Mapping[str, tuple[Weights, Weights]]) -> None:
    """Put weights into the nodes of these names.

    layers: name of a node -> (its old weights, its new weights), each of one layer.

    A tensor that only this node reads is changed in place. If others read it too, or nodes compute
    it, it stays for them, and the node gets one of its own. Replaced tensors that nothing reads any
    more are removed. Raises LayoutError if the node cannot represent the new weights.
    """
    for name, (old, new) in layers.items():
        if new.spec.replace(bias=old.spec.bias, skip_input=old.spec.skip_input) != old.spec:
            raise LayoutError(f"node {name!r} is {old.spec}, the new weights are {new.spec}")
    change = _ModelChange(model)
    for site in find_sites(model):
        if site.name in layers:
            old, new = layers[site.name]
            for role in WEIGHTS[site.operator]:
                if role in old or role in new:
                    change.put(site, role, _new_bits(old, role), _new_bits(new, role))
    change.remove_unread()


def _new_bits(weights: Weights, role: str) -> Bits | None:
    given = checked_rnn_of(weights)
    return Bits(given.arrays[given.names.index(role)], given.dtype) if role in given.names else None


class _ModelChange:
    def __init__(self, model: Any) -> None:
        self._model = model
        self._uses = _count_uses(model)
        self._names = set(self._uses)
        for graph in all_graphs(model.graph, *model.functions):
            self._names |= {tensor.name for tensor in getattr(graph, "initializer", [])}
            self._names |= {name for node in graph.node for name in node.output}
        self._replaced: set[str] = set()

    def put(self, site: NodeSite, role: str, old: Bits | None, new: Bits | None) -> None:
        if old is not None and new is not None and _same_bits(old, new):
            return
        what = f"{role} of node {site.name!r}"
        if new is None:
            raise LayoutError(f"{what}: the new weights do not have it")
        _check_not_computed(site, what)
        at = WEIGHTS[site.operator][role]
        name = site.input(at)
        if name and self._uses[name] == 1:
            tensor = site.scope.find(name)[1]
            if type(tensor).__name__ == "TensorProto":
                fill_tensor_proto(tensor, new.array, new.dtype, name)
                return
        self._add(site, f"{site.name}/{role}", at, new)
        if name:
            self._replaced.add(name)

    def _add(self, site: NodeSite, name: str, at: int, new: Bits) -> None:
        while name in self._names:
            name += "_"
        self._names.add(name)
        fill_tensor_proto(site.scope.proto.initializer.add(), new.array, new.dtype, name)
        while len(site.node.input) <= at:
            site.node.input.append("")
        site.node.input[at] = name

    def remove_unread(self) -> None:
        """Remove the initializers that were replaced and that nothing reads any more."""
        uses = _count_uses(self._model)
        for graph in all_graphs(self._model.graph):
            inputs = {value.name for value in graph.input}
            for k, tensor in reversed(list(enumerate(graph.initializer))):
                if tensor.name in self._replaced - inputs and not uses[tensor.name]:
                    del graph.initializer[k]


def _check_not_computed(site: NodeSite, what: str) -> None:
    if site.is_quantized:
        raise LayoutError(
            f"{what} is quantized and cannot store floats: put the weights into the model that was"
            " quantized, and quantize it again"
        )
    if site.scope.is_function:
        raise LayoutError(
            f"{what} is inside a function, whose calls share it: inline the functions first,"
            " onnx.inliner.inline_local_functions(model)"
        )
    if integer_attribute(site.attributes(), "input_forget"):
        raise LayoutError(f"{what}: with input_forget a node has no weights of f of its own")


def _same_bits(a: Bits, b: Bits) -> bool:
    return a.dtype == b.dtype and a.array.shape == b.array.shape and (
        a.array.tobytes() == b.array.tobytes()
    )  # fmt: skip


def _count_uses(model: Any) -> Counter[str]:
    """Return how often each name is read, in all graphs."""
    uses: Counter[str] = Counter()
    for graph in all_graphs(model.graph, *model.functions):
        uses.update(name for node in graph.node for name in node.input)
        uses.update(getattr(value, "name", value) for value in graph.output)
    return uses
