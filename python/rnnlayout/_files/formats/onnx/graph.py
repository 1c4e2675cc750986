"""The graphs of an ONNX model: the recurrent nodes, and the definitions of names in each graph."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rnnlayout._files.tensor_sets.file_limits import Budget, InputFile
from rnnlayout._files.tensor_sets.file_rnns import distinct_names
from rnnlayout._model.errors import FileError, import_extra

LARGEST = (1 << 31) - 1  # bytes of a protobuf message
MOST_DEEP = 100  # graphs in graphs; protobuf itself allows about 33
_NODE_STEPS = 4  # of the budget, per node
# Per node of a called function and call, and per input, output and attribute of them: calls may
# multiply in nested functions.
_CALLED_STEPS, _NAME_STEPS = 40, 2

OPERATORS = {
    ("", "LSTM"): "LSTM",
    ("", "GRU"): "GRU",
    ("", "RNN"): "RNN",
    ("com.microsoft", "DynamicQuantizeLSTM"): "LSTM",
}
_MOST_FOLLOWED = 1000  # nodes in is_fixed()
NAMES = {name for _, name in OPERATORS}
# Instead of a definition: for a name with two definitions, and for an input of the graph.
TWICE = "defined twice"
INPUT = "an input of the graph"

# Metadata that torch.onnx.export(dynamo=True) records about a node: the paths of the modules around
# the node, outermost first, "" for the model itself, then the name of the call; and the classes of
# these modules.
MODULES, CLASSES = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy"
_TEXTS = re.compile(r"\['[^'\\]*'(?:, '[^'\\]*')*\]")  # repr() of a list of texts

Attributes = dict[str, Any]  # name -> AttributeProto


def load_model(file: InputFile) -> Any:
    """Return the ModelProto of a file, without tensors in external files. Raises FileError if the
    file is not an ONNX model, MissingExtraError if the package onnx is not installed."""
    onnx = import_extra("onnx", "onnx", "an .onnx file")
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        size = file.path.stat().st_size
        if size > LARGEST:
            raise FileError(f"{file} has {size} bytes, more than protobuf's limit of 2 GB")
        model = onnx.ModelProto.FromString(file.path.read_bytes())
    except DecodeError as error:
        if "alloc" in str(error):
            raise MemoryError from None
        raise FileError(f"{file} is not an ONNX model, or is cut short: {error}") from None
    if not model.HasField("graph"):
        raise FileError(f"{file} is not an ONNX model: it has no graph")
    return model


def elements_of(message: Any, name: str) -> Sequence[Any]:
    """Return the elements of a repeated field. To read a field without elements, protobuf makes an
    object of 600 bytes; without memory for the object, protobuf ends the process."""
    return next((value for field, value in message.ListFields() if field.name == name), ())


class GraphScope:
    """The names of a graph, subgraph or function. proto: the protobuf message. attributes: in a
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
        outer_attributes: Mapping[str, Any] = outer.attributes if outer is not None else {}
        self.attributes: Mapping[str, Any] = outer_attributes if attributes is None else attributes
        self._defined: dict[str, Any] = dict(formals or {})
        definitions: list[tuple[str, Any]] = []
        if formals is None:
            definitions += [(tensor.name, tensor) for tensor in proto.initializer]
            definitions += [(sparse.values.name, sparse) for sparse in proto.sparse_initializer]
            defaults = {name for name, _ in definitions}  # of inputs with the same names
            inputs = dict.fromkeys(value.name for value in proto.input)
            definitions += [(name, INPUT) for name in inputs if name not in defaults]
        definitions += [(name, node) for node in proto.node for name in node.output]
        for name, definition in definitions:
            if name:
                self._defined[name] = TWICE if name in self._defined else definition

    def _resolve(self, name: str) -> tuple[GraphScope | None, str, Any]:
        """Return (scope, name, definition) of a name, in this graph or a graph around this graph.
        Parameters of a function are replaced by the arguments of the call. The scope is None if the
        name has no definition."""
        scope: GraphScope | None = self
        while name and scope is not None:
            definition = scope._defined.get(name)
            if isinstance(definition, tuple):  # a parameter: the argument of the call
                scope, name = definition
            elif definition is not None:
                return scope, name, definition
            else:
                scope = scope.outer
        return None, name, None

    def is_present(self, name: str) -> bool:
        """Return whether an input exists: the name is not "", nor a parameter of a function that
        the call omits."""
        return bool(self._resolve(name)[1])

    def find(self, name: str) -> tuple[GraphScope, Any]:
        """Return the scope and the definition of a name: a TensorProto, a SparseTensorProto, the
        NodeProto with this output, or INPUT. Raises FileError if the name has no definition, or
        two."""
        scope, name, definition = self._resolve(name)
        if scope is None:
            raise FileError(f"{name!r} is used but not defined")
        if definition is TWICE:
            raise FileError(f"{name!r} is defined twice in one graph")
        return scope, definition

    def shape(self, name: str) -> list[int | None] | None:
        """Return the shape that a graph declares for a name, None per undeclared size. Returns None
        if the graph declares no shape for the name."""
        scope, name, _ = self._resolve(name)
        if scope is None or scope.is_function or name not in scope._declared:
            return None
        return [n.dim_value if n.dim_value > 0 else None for n in scope._declared[name]]

    @cached_property
    def _declared(self) -> dict[str, Any]:
        return {
            value.name: value.type.tensor_type.shape.dim
            for value in (*self.proto.input, *self.proto.value_info)
            if value.type.tensor_type.HasField("shape")
        }


def attributes_of(node: Any, scope: GraphScope) -> Attributes:
    """Return a node's attributes by name, in a function with the attributes of the call."""
    attributes = {}
    for attribute in elements_of(node, "attribute"):
        reference = attribute.ref_attr_name
        if not reference:
            attributes[attribute.name] = attribute
        elif reference in scope.attributes:
            attributes[attribute.name] = scope.attributes[reference]
    return attributes


def integer_attribute(attributes: Attributes, name: str, default: int = 0) -> int:
    return int(attributes[name].i) if name in attributes else default


def is_fixed(scope: GraphScope, name: str, charge: Callable[[int], None]) -> bool:
    """Return whether an array depends on constants and shapes alone. charge: takes the number of
    inputs of each node that is followed."""
    waiting, visited = [(scope, name)], set[tuple[GraphScope, int]]()
    while waiting and len(visited) < _MOST_FOLLOWED:
        scope, name = waiting.pop()
        if not scope.is_present(name):
            continue
        scope, definition = scope.find(name)
        if definition is INPUT:
            return False
        if (
            getattr(definition, "op_type", "Shape") in ("Shape", "Size")
            or (scope, id(definition)) in visited
        ):
            continue
        if next(subgraphs(definition), None) is not None:
            return False
        visited.add((scope, id(definition)))
        charge(len(definition.input))
        waiting += [(scope, input_name) for input_name in definition.input]
    return not waiting


def subgraphs(node: Any) -> Iterator[Any]:
    for attribute in elements_of(node, "attribute"):
        yield from [attribute.g] if attribute.HasField("g") else elements_of(attribute, "graphs")


def all_graphs(*graphs: Any) -> Iterator[Any]:
    waiting = list(reversed(graphs))
    while waiting:
        graph = waiting.pop()
        yield graph
        waiting += reversed([inner for node in graph.node for inner in subgraphs(node)])


def all_tensors(model: Any) -> Iterator[Any]:
    """Yield the TensorProtos of a model: initializers, and tensors in attributes."""
    for graph in all_graphs(model.graph, *model.functions):
        yield from getattr(graph, "initializer", ())  # a function has no initializers
        for sparse in getattr(graph, "sparse_initializer", ()):
            yield from (sparse.values, sparse.indices)
        for node in graph.node:
            for attribute in elements_of(node, "attribute"):
                is_one = attribute.HasField("t")
                yield from [attribute.t] if is_one else elements_of(attribute, "tensors")


@dataclass(frozen=True)
class NodeSite:
    """A recurrent node, its unique name, and the scope of its names. operator: LSTM, GRU or RNN."""

    name: str
    operator: str
    node: Any
    scope: GraphScope

    @property
    def is_quantized(self) -> bool:
        return bool(self.node.op_type == "DynamicQuantizeLSTM")

    def input(self, k: int) -> str:
        """Return the name of an input, "" if the node or the call of a function omits the input."""
        name: str = self.node.input[k] if k < len(self.node.input) else ""
        return name if self.scope.is_present(name) else ""


def recorded_texts(node: Any, key: str) -> tuple[str, ...]:
    """Return a list of texts in the metadata of a node, () without such metadata."""
    for entry in elements_of(node, "metadata_props"):
        if entry.key == key and isinstance(entry.value, str) and _TEXTS.fullmatch(entry.value):
            return tuple(entry.value[2:-2].split("', '"))
    return ()


def find_sites(model: Any, budget: Budget) -> list[NodeSite]:
    """Return all recurrent nodes: of the graph, of subgraphs at any depth, of called functions."""
    functions = {(f.domain, f.name, f.overload): f for f in model.functions}
    sites: list[tuple[tuple[str, ...], str, Any, GraphScope]] = []
    budget.charge("steps", _NODE_STEPS * len(model.graph.node))
    stack: list[tuple[GraphScope, tuple[str, ...], Iterator[Any]]] = [
        (GraphScope(model.graph), (), iter(model.graph.node))
    ]
    while stack:
        scope, path, nodes = stack[-1]
        if len(path) > MOST_DEEP:
            raise FileError(f"graphs or functions nested more than {MOST_DEEP} deep: refused")
        if (node := next(nodes, None)) is None:
            stack.pop()
            continue
        domain = "" if node.domain == "ai.onnx" else node.domain
        if operator := OPERATORS.get((domain, node.op_type)):
            sites.append(((*path, node_name(node)), operator, node, scope))
            budget.charge("names", sum(map(len, sites[-1][0])))
        inner = []
        for graph in subgraphs(node):
            budget.charge("steps", _NODE_STEPS * len(graph.node))
            inner.append(GraphScope(graph, scope))
        if functions and (function := functions.get((node.domain, node.op_type, node.overload))):
            budget.charge("steps", _CALLED_STEPS * (len(function.node) + 1))
            lists = [function.input, function.attribute_proto, node.input, node.attribute]
            lists += [inner_node.output for inner_node in function.node]
            budget.charge("steps", _NAME_STEPS * sum(map(len, lists)))
            inputs = dict(zip(function.input, node.input, strict=False))
            formals = {name: (scope, inputs.get(name, "")) for name in function.input}
            defaults = {a.name: a for a in function.attribute_proto}
            attributes = {**defaults, **attributes_of(node, scope)}
            inner.append(GraphScope(function, None, formals, attributes))
        for inner_scope in reversed(inner):
            stack.append((inner_scope, (*path, node_name(node)), iter(inner_scope.proto.node)))

    # A node that torch exported is named after the module. The layers of a module are several nodes
    # of the same call: NAME_0, NAME_1 ...
    calls = [(path[:-1], recorded_texts(node, MODULES)) for path, _, node, _ in sites]
    layers, num_named = Counter(calls), Counter[Any]()
    names = []
    for (path, operator, *_), call in zip(sites, calls, strict=True):
        if len(call[1]) > 1:  # the last text is the name of the call
            name = call[1][-2] or operator.lower()
            path = (*path[:-1], name if layers[call] == 1 else f"{name}_{num_named[call]}")
            num_named[call] += 1
        names.append("/".join([path[0], *(part.lstrip("/") for part in path[1:])]))
    return [NodeSite(n, *site) for n, (_, *site) in zip(distinct_names(names), sites, strict=True)]


def node_name(node: Any) -> str:
    """Return the name of a node, else of the first output, else of the operator."""
    name = node.name or next((name for name in node.output if name), "") or node.op_type
    if not isinstance(name, str):  # protobuf returns bytes that are not UTF-8
        raise FileError(f"a node has the name {name!r}, which is not UTF-8")
    return name
