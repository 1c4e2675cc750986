"""The graphs of an ONNX model: their recurrent nodes, and what a name in one of them refers to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rnnlayout._files.tensor_sets.file_limits import Budget, InputFile
from rnnlayout._files.tensor_sets.found import distinct_names
from rnnlayout._model.errors import FileError, import_extra

LARGEST = (1 << 31) - 1  # bytes of a protobuf message
MOST_DEEP = 100  # graphs in graphs; protobuf itself allows about 33
_NODE_STEPS = 4  # of the budget, for a node
_CALLED_STEPS = 40  # for a node of a called function, at each call: it may call others twice

OPERATORS = {
    ("", "LSTM"): "LSTM",
    ("", "GRU"): "GRU",
    ("", "RNN"): "RNN",
    ("com.microsoft", "DynamicQuantizeLSTM"): "LSTM",
}
_MOST_FOLLOWED = 1000  # nodes before one that is asked about
NAMES = {name for _, name in OPERATORS}
TWICE = "defined twice"  # what a name refers to that is defined twice
INPUT = "an input of the graph"

# What torch.onnx.export(dynamo=True) records about a node: the paths of the modules that it is in,
# outermost first, "" of the model itself, then the name of the call; and the classes of these.
MODULES, CLASSES = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy"
_TEXTS = re.compile(r"\['[^'\\]*'(?:, '[^'\\]*')*\]")  # as repr() writes a list of them

Attributes = dict[str, Any]  # name -> AttributeProto


def load_model(file: InputFile) -> Any:
    """Return the ModelProto of a file, without its tensors in other files. Raises FileError if it
    is not an ONNX model, MissingExtraError if the package onnx is not installed."""
    onnx = import_extra("onnx", "onnx", "an .onnx file")
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        size = file.path.stat().st_size
        if size > LARGEST:
            raise FileError(f"{file} has {size} bytes, more than protobuf's limit of 2 GB")
        model = onnx.ModelProto.FromString(file.path.read_bytes())
    except DecodeError as error:
        raise FileError(f"{file} is not an ONNX model, or is cut short: {error}") from None
    if not model.HasField("graph"):
        raise FileError(f"{file} is not an ONNX model: it has no graph")
    return model


class GraphScope:
    """The names of one graph, subgraph or function. proto: its protobuf message. attributes: in a
    function, the attributes of the call; {} outside of functions."""

    def __init__(
        self,
        proto: Any,
        outer: GraphScope | None = None,
        formals: Mapping[str, tuple[GraphScope, str]] | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        self.proto, self.outer = proto, outer
        self.is_function: bool = formals is not None or (outer is not None and outer.is_function)
        around: Mapping[str, Any] = outer.attributes if outer is not None else {}
        self.attributes: Mapping[str, Any] = around if attributes is None else attributes
        self._defined: dict[str, Any] = dict(formals or {})
        definitions: list[tuple[str, Any]] = []
        if formals is None:
            definitions += [(tensor.name, tensor) for tensor in proto.initializer]
            definitions += [(sparse.values.name, sparse) for sparse in proto.sparse_initializer]
            defaults = {name for name, _ in definitions}  # of inputs of the same names
            inputs = dict.fromkeys(value.name for value in proto.input)
            definitions += [(name, INPUT) for name in inputs if name not in defaults]
        definitions += [(name, node) for node in proto.node for name in node.output]
        for name, definition in definitions:
            if name:
                self._defined[name] = TWICE if name in self._defined else definition

    def _resolve(self, name: str) -> tuple[GraphScope | None, str, Any]:
        """Follow a name through the graphs around it, and from parameters to their values."""
        scope: GraphScope | None = self
        while name and scope is not None:
            found = scope._defined.get(name)
            if isinstance(found, tuple):  # a parameter: what the function is called with
                scope, name = found
            elif found is not None:
                return scope, name, found
            else:
                scope = scope.outer
        return None, name, None

    def is_given(self, name: str) -> bool:
        """Return whether it is a name, and not a parameter that the function's caller omits."""
        return bool(self._resolve(name)[1])

    def find(self, name: str) -> tuple[GraphScope, Any]:
        """Return what a name refers to, and its scope: a TensorProto, a SparseTensorProto, the
        NodeProto that computes it, or INPUT. Raises FileError if it is undefined or ambiguous."""
        scope, name, found = self._resolve(name)
        if scope is None:
            raise FileError(f"{name!r} is used but not defined")
        if found is TWICE:
            raise FileError(f"{name!r} is defined twice in one graph")
        return scope, found

    def shape(self, name: str) -> list[int | None] | None:
        """Return the shape that a graph declares for a name, None per size that it leaves open.
        Returns None if there is no such declaration."""
        scope, name, _ = self._resolve(name)
        if scope is None or scope.is_function or name not in scope._declared:
            return None
        return [n.dim_value if n.dim_value > 0 else None for n in scope._declared[name]]

    @cached_property
    def _declared(self) -> dict[str, Any]:
        values = (*self.proto.input, *self.proto.value_info)
        types = ((value.name, value.type.tensor_type) for value in values)
        return {name: one.shape.dim for name, one in types if one.HasField("shape")}


def attributes_of(node: Any, scope: GraphScope) -> Attributes:
    """Return a node's attributes by name, in a function with the values of its call."""
    found = {}
    for attribute in node.attribute:
        reference = attribute.ref_attr_name
        if not reference:
            found[attribute.name] = attribute
        elif reference in scope.attributes:
            found[attribute.name] = scope.attributes[reference]
    return found


def integer_attribute(attributes: Attributes, name: str, default: int = 0) -> int:
    return int(attributes[name].i) if name in attributes else default


def is_fixed(scope: GraphScope, name: str) -> bool:
    """Return whether a name refers to what constants and shapes alone decide."""
    waiting, seen = [(scope, name)], set[tuple[GraphScope, int]]()
    while waiting and len(seen) < _MOST_FOLLOWED:
        scope, name = waiting.pop()
        if not scope.is_given(name):
            continue
        scope, found = scope.find(name)
        if found is INPUT:
            return False
        if getattr(found, "op_type", "Shape") in ("Shape", "Size") or (scope, id(found)) in seen:
            continue
        if next(subgraphs(found), None) is not None:
            return False
        seen.add((scope, id(found)))
        waiting += [(scope, one) for one in found.input]
    return not waiting


def subgraphs(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        yield from [attribute.g] if attribute.HasField("g") else attribute.graphs


def all_graphs(*graphs: Any) -> Iterator[Any]:
    waiting = list(reversed(graphs))
    while waiting:
        graph = waiting.pop()
        yield graph
        waiting += reversed([inner for node in graph.node for inner in subgraphs(node)])


def all_tensors(model: Any) -> Iterator[Any]:
    """Yield the TensorProtos of a model: initializers, and values of attributes."""
    for graph in all_graphs(model.graph, *model.functions):
        yield from getattr(graph, "initializer", ())  # a function has none
        for sparse in getattr(graph, "sparse_initializer", ()):
            yield from (sparse.values, sparse.indices)
        for attribute in (one for node in graph.node for one in node.attribute):
            yield from [attribute.t] if attribute.HasField("t") else attribute.tensors


@dataclass(frozen=True)
class NodeSite:
    """A recurrent node, its unique name, and the names that are visible to it. operator: LSTM, GRU
    or RNN."""

    name: str
    operator: str
    node: Any
    scope: GraphScope

    @property
    def is_quantized(self) -> bool:
        return bool(self.node.op_type == "DynamicQuantizeLSTM")

    def input(self, k: int) -> str:
        """Return the name of an input, "" if it is omitted, by the caller of a function too."""
        name: str = self.node.input[k] if k < len(self.node.input) else ""
        return name if self.scope.is_given(name) else ""


def recorded_texts(node: Any, key: str) -> tuple[str, ...]:
    """Return a list of texts in the metadata of a node, () if it has none."""
    for one in node.metadata_props:
        if one.key == key and isinstance(one.value, str) and _TEXTS.fullmatch(one.value):
            return tuple(one.value[2:-2].split("', '"))
    return ()


def find_sites(model: Any, budget: Budget) -> list[NodeSite]:
    """Return all recurrent nodes: of the graph, of subgraphs at any depth, of called functions."""
    functions = {(f.domain, f.name, f.overload): f for f in model.functions}
    found: list[tuple[tuple[str, ...], str, Any, GraphScope]] = []
    budget.charge("steps", _NODE_STEPS * len(model.graph.node))
    inside: list[tuple[GraphScope, tuple[str, ...], Iterator[Any]]] = [
        (GraphScope(model.graph), (), iter(model.graph.node))
    ]
    while inside:
        scope, path, nodes = inside[-1]
        if len(path) > MOST_DEEP:
            raise FileError(f"graphs or functions nested more than {MOST_DEEP} deep: refused")
        if (node := next(nodes, None)) is None:
            inside.pop()
            continue
        domain = "" if node.domain == "ai.onnx" else node.domain
        if operator := OPERATORS.get((domain, node.op_type)):
            found.append(((*path, node_name(node)), operator, node, scope))
            budget.charge("names", sum(map(len, found[-1][0])))  # with the nodes around it
        inner = []
        for graph in subgraphs(node):
            budget.charge("steps", _NODE_STEPS * len(graph.node))
            inner.append(GraphScope(graph, scope))
        if functions and (called := functions.get((node.domain, node.op_type, node.overload))):
            budget.charge("steps", _CALLED_STEPS * (len(called.node) + 1))
            inputs = dict(zip(called.input, node.input, strict=False))
            formals = {name: (scope, inputs.get(name, "")) for name in called.input}
            defaults = {a.name: a for a in called.attribute_proto}
            attributes = {**defaults, **attributes_of(node, scope)}
            inner.append(GraphScope(called, None, formals, attributes))
        for one in reversed(inner):
            inside.append((one, (*path, node_name(node)), iter(one.proto.node)))

    # Of a node that torch exported, the module takes the place of the node's name: NAME, or of its
    # layers, which are the nodes of one call, NAME_0, NAME_1 ...
    calls = [(path[:-1], recorded_texts(node, MODULES)) for path, _, node, _ in found]
    layers, seen = Counter(calls), Counter[Any]()
    names = []
    for (path, operator, *_), call in zip(found, calls, strict=True):
        if len(call[1]) > 1:  # the last text is the call's
            name = call[1][-2] or operator.lower()
            path = (*path[:-1], name if layers[call] == 1 else f"{name}_{seen[call]}")
            seen[call] += 1
        names.append("/".join([path[0], *(part.lstrip("/") for part in path[1:])]))
    return [NodeSite(n, *rest) for n, (_, *rest) in zip(distinct_names(names), found, strict=True)]


def node_name(node: Any) -> str:
    """Return the name of a node, else that of its first output."""
    name = node.name or next((name for name in node.output if name), "") or node.op_type
    if not isinstance(name, str):  # protobuf returns bytes that are not UTF-8
        raise FileError(f"a node has the name {name!r}, which is not UTF-8")
    return name
