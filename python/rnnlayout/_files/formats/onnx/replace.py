"""New values for the weights of an ONNX model; all else stays as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from rnnlayout._model.dtypes import Bits
from rnnlayout._native import LayoutError
from rnnlayout._weights.weights import Weights

from .graph import Site, sites
from .node import WEIGHTS
from .write import fill


def replace_in(model: Any, layers: Mapping[str, tuple[Weights, Weights]]) -> None:
    """Put weights into the nodes of these names.

    layers: name of a node -> (what it holds, what it is to hold), of one layer each.

    A tensor that only this node reads is changed where it lies. One that others read too, or that
    nodes compute, stays for them, and the node gets one of its own. What nobody reads any more
    goes. LayoutError: the node cannot hold them.
    """
    for name, (old, new) in layers.items():
        if new.spec.replace(bias=old.spec.bias, skip_input=old.spec.skip_input) != old.spec:
            raise LayoutError(f"node {name!r} is {old.spec}, the new weights are {new.spec}")
    place = _Place(model)
    for site in sites(model):
        if site.name in layers:
            old, new = layers[site.name]
            for role in WEIGHTS[site.operator]:
                if role in old or role in new:
                    place.put(site, role, _bits(old, role), _bits(new, role))
    place.clean()


def _bits(weights: Weights, role: str) -> Bits | None:
    given = weights._read()
    return Bits(given.arrays[given.names.index(role)], given.dtype) if role in given.names else None


class _Place:
    def __init__(self, model: Any) -> None:
        self._model = model
        self._uses = _uses(model)
        self._names = set(self._uses) | {
            name
            for graph in _graphs(model)
            for name in [t.name for t in getattr(graph, "initializer", [])]
            + [name for node in graph.node for name in node.output]
        }
        self._left: set[str] = set()

    def put(self, site: Site, role: str, old: Bits | None, new: Bits | None) -> None:
        if old is not None and new is not None and _same(old, new):
            return
        told = f"{role} of node {site.name!r}"
        if new is None:
            raise LayoutError(f"{told}: the new weights have none")
        self._check(site, told)
        at = WEIGHTS[site.operator][role]
        name = site.input(at)
        if name and self._uses[name] == 1:
            made = site.scope.find(name)[1]
            if type(made).__name__ == "TensorProto":
                fill(made, new.array, new.dtype, name)
                return
        self._own(site, role, at, new)
        if name:
            self._left.add(name)

    def _check(self, site: Site, told: str) -> None:
        if site.is_quantized:
            raise LayoutError(f"{told} is quantised, and holds no floats: quantise the model anew")
        if site.scope.is_function:
            raise LayoutError(
                f"{told} is inside a function, whose calls share it: inline the functions first,"
                " onnx.inliner.inline_local_functions(model)"
            )
        attributes = site.attributes()
        if "input_forget" in attributes and attributes["input_forget"].i:
            raise LayoutError(f"{told}: the node has input_forget, and no weights of f of its own")

    def _own(self, site: Site, role: str, at: int, new: Bits) -> None:
        name = f"{site.name}/{role}"
        while name in self._names:
            name += "_"
        self._names.add(name)
        fill(site.scope.proto.initializer.add(), new.array, new.dtype, name)
        while len(site.node.input) <= at:
            site.node.input.append("")
        site.node.input[at] = name

    def clean(self) -> None:
        """Take away the initializers that were replaced and that nothing reads any more."""
        uses = _uses(self._model)
        for graph in _graphs(self._model):
            given = {value.name for value in getattr(graph, "input", []) if hasattr(value, "name")}
            for k, tensor in reversed(list(enumerate(getattr(graph, "initializer", [])))):
                if tensor.name in self._left and not uses[tensor.name] and tensor.name not in given:
                    del graph.initializer[k]


def _same(a: Bits, b: Bits) -> bool:
    return a.dtype == b.dtype and a.array.shape == b.array.shape and (
        a.array.tobytes() == b.array.tobytes()
    )  # fmt: skip


def _graphs(model: Any) -> Iterator[Any]:
    """All graphs and functions, each once."""
    waiting = [model.graph, *model.functions]
    while waiting:
        graph = waiting.pop()
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                waiting += [attribute.g] if attribute.HasField("g") else attribute.graphs


def _uses(model: Any) -> Counter[str]:
    """How often a name is read, in whichever graph."""
    uses: Counter[str] = Counter()
    for graph in _graphs(model):
        uses.update(name for node in graph.node for name in node.input)
        uses.update(getattr(value, "name", value) for value in graph.output)
    return uses
