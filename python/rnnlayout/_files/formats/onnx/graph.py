"""The graphs of an ONNX model: its recurrent nodes, and what a name in one of them stands for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rnnlayout._model.errors import FileError, missing

LARGEST = (1 << 31) - 1  # bytes of a message of protobuf
MOST_DEEP = 100  # graphs in graphs; protobuf itself ends at about 33 of them
MOST_NODES = 200_000  # of a model; each is two bytes at least, and some microseconds here
MOST_CALLED = 20_000  # those that calls of functions stand for: each may call others twice

OPERATORS = {
    ("", "LSTM"): "LSTM",
    ("", "GRU"): "GRU",
    ("", "RNN"): "RNN",
    ("com.microsoft", "DynamicQuantizeLSTM"): "LSTM",
}
_NAMES = {name for _, name in OPERATORS}
TWICE = "defined twice"  # what two things of one name stand for
INPUT = "an input of the graph"


def package() -> Any:
    """The package onnx. MissingExtraError: it is not installed."""
    try:
        import onnx
    except ImportError:
        raise missing("onnx", "onnx", "an .onnx file") from None
    return onnx


def load_model(path: Path) -> Any:
    """The ModelProto of a file; no other file is opened. FileError: there is none in it."""
    onnx = package()
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise FileError(
                f"{path} has {size} bytes, and protobuf ends at 2 GB: it is no ONNX model as its"
                " tools write it"
            )
        model = onnx.ModelProto.FromString(path.read_bytes())
    except DecodeError as error:
        raise FileError(f"{path} is no ONNX model, or a part of one: {error}") from None
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}") from None
    if not model.HasField("graph"):
        raise FileError(f"{path} is no ONNX model: it has no graph")
    return model


class Scope:
    """The names of one graph, subgraph or function.

    proto: its message. attributes: those that a function was called with, else those around it.
    """

    def __init__(
        self,
        proto: Any,
        outer: Scope | None = None,
        formals: Mapping[str, tuple[Scope, str]] | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        self.proto, self.outer = proto, outer
        self.is_function: bool = formals is not None or (outer is not None and outer.is_function)
        around: Mapping[str, Any] = outer.attributes if outer is not None else {}
        self.attributes: Mapping[str, Any] = around if attributes is None else attributes
        self._made: dict[str, Any] = dict(formals or {})
        if formals is None:
            self._add_graph()
        for node in proto.node:
            for name in node.output:
                self._add(name, node)

    def _add_graph(self) -> None:
        for tensor in self.proto.initializer:
            self._add(tensor.name, tensor)
        for sparse in self.proto.sparse_initializer:
            self._add(sparse.values.name, sparse)
        for given in self.proto.input:  # an initializer of its name is its default
            self._made.setdefault(given.name, INPUT)

    def _add(self, name: str, made: Any) -> None:
        if name:
            self._made[name] = TWICE if name in self._made else made

    def is_given(self, name: str) -> bool:
        """Is it a name, and no parameter that a function is called without?"""
        scope: Scope | None = self
        while name and scope is not None:
            made = scope._made.get(name)
            if made is not None and not isinstance(made, tuple):
                return True
            scope, name = made if made is not None else (scope.outer, name)
        return bool(name)

    def find(self, name: str) -> tuple[Scope, Any]:
        """What a name stands for, and the scope in which that stands: a TensorProto, a
        SparseTensorProto, the NodeProto that computes it, INPUT. FileError: nothing, or two
        things."""
        scope: Scope | None = self
        while scope is not None:
            made = scope._made.get(name)
            if made is TWICE:
                raise FileError(f"{name!r} is defined twice in one graph")
            if isinstance(made, tuple):  # what a function is called with
                scope, name = made
            elif made is not None:
                return scope, made
            else:
                scope = scope.outer
        raise FileError(f"{name!r} is used and nowhere defined")


def attributes_of(node: Any, scope: Scope) -> dict[str, Any]:
    """A node's attributes by name; those of a function as it was called."""
    found = {}
    for attribute in node.attribute:
        told = attribute.ref_attr_name
        if not told:
            found[attribute.name] = attribute
        elif told in scope.attributes:
            found[attribute.name] = scope.attributes[told]
    return found


def initializers(graph: Any) -> Iterator[Any]:
    """The TensorProtos of a graph and of the graphs in it."""
    yield from graph.initializer
    yield from (sparse.values for sparse in graph.sparse_initializer)
    for node in graph.node:
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from initializers(inner)


@dataclass(frozen=True)
class Site:
    """A recurrent node. operator: LSTM, GRU or RNN."""

    name: str
    node: Any
    scope: Scope

    @property
    def operator(self) -> str:
        return OPERATORS[_kind(self.node)]

    @property
    def is_quantized(self) -> bool:
        return bool(self.node.op_type == "DynamicQuantizeLSTM")

    def attributes(self) -> dict[str, Any]:
        return attributes_of(self.node, self.scope)

    def input(self, k: int) -> str:
        """The name of an input, "" where it is left out, also by who calls the function."""
        name: str = self.node.input[k] if k < len(self.node.input) else ""
        return name if self.scope.is_given(name) else ""


def _kind(node: Any) -> tuple[str, str]:
    return ("" if node.domain == "ai.onnx" else node.domain, node.op_type)


def sites(model: Any) -> list[Site]:
    """All recurrent nodes: of the graph, of subgraphs of any depth, of functions as they are
    called; each has a name of its own."""
    found: dict[str, Site] = {}
    for path, node, scope in _Walk(model).nodes():
        plain = name = "/".join([path[0], *(part.lstrip("/") for part in path[1:])])
        number = 1
        while name in found:
            number += 1
            name = f"{plain}_{number}"
        found[name] = Site(name, node, scope)
    return list(found.values())


class _Walk:
    def __init__(self, model: Any) -> None:
        self._model = model
        self._functions = {(f.domain, f.name, f.overload): f for f in model.functions}
        self._left, self._left_called = MOST_NODES, MOST_CALLED

    def nodes(self) -> Iterator[tuple[tuple[str, ...], Any, Scope]]:
        yield from self._nodes(self._scope(self._model.graph, None), ())

    def _scope(self, graph: Any, outer: Scope | None) -> Scope:
        self._left -= len(graph.node)
        if self._left < 0:
            raise FileError(f"it has more than {MOST_NODES} nodes: refused")
        return Scope(graph, outer)

    def _nodes(
        self, scope: Scope, path: tuple[str, ...]
    ) -> Iterator[tuple[tuple[str, ...], Any, Scope]]:
        if len(path) > MOST_DEEP:
            raise FileError(f"more than {MOST_DEEP} graphs or functions in each other: refused")
        for node in scope.proto.node:
            if node.op_type in _NAMES and _kind(node) in OPERATORS:
                yield (*path, _name_of(node)), node, scope
            inner = [
                self._scope(graph, scope)
                for attribute in node.attribute
                for graph in ([attribute.g] if attribute.HasField("g") else attribute.graphs)
            ]
            if self._functions:
                function = self._functions.get((node.domain, node.op_type, node.overload))
                inner += [] if function is None else [self._called(function, node, scope)]
            for one in inner:
                yield from self._nodes(one, (*path, _name_of(node)))

    def _called(self, function: Any, node: Any, scope: Scope) -> Scope:
        self._left_called -= len(function.node) + 1
        if self._left_called < 0:
            raise FileError(
                f"its functions call each other more than {MOST_CALLED} nodes long: refused"
            )
        given = dict(zip(function.input, node.input, strict=False))
        formals = {name: (scope, given.get(name, "")) for name in function.input}
        defaults = {a.name: a for a in function.attribute_proto}
        return Scope(function, None, formals, {**defaults, **attributes_of(node, scope)})


def _name_of(node: Any) -> str:
    """What its user calls a node: its name, else that of its first output."""
    name = node.name or next((name for name in node.output if name), "") or node.op_type
    if not isinstance(name, str):  # what protobuf makes of bytes that are no text
        raise FileError(f"a node is named {name!r}, which is no text")
    return name
