"""ONNX models, .onnx: the LSTM, GRU and RNN nodes of a graph, its subgraphs and functions.

W, R, B and P are read if constant, or computed from constants by simple nodes. Settings of a node
that the weights do not show go into Weights.config under the names of ONNX: direction, clip,
layout, initial_h, initial_c, sequence_lens. constants.py reads tensors in external files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from rnnlayout._files.formats.registry import (
    ModelFormat,
    NewWeights,
    check_layout,
    compare_settings,
)
from rnnlayout._files.tensor_sets.choose_rnns import as_recorded, stack_entries
from rnnlayout._files.tensor_sets.file_limits import BudgetError, InputFile
from rnnlayout._files.tensor_sets.file_rnns import Found
from rnnlayout._files.tensor_sets.output_file import Output
from rnnlayout._files.tensor_sets.record import read_records
from rnnlayout._files.tensor_sets.tensor_set import FileTensor
from rnnlayout._model.errors import error_with_name
from rnnlayout._model.weights import Weights
from rnnlayout._native import LayoutError
from rnnlayout._sources.reading import Reading
from rnnlayout._sources.tensor_paths import is_under_with_direction

from .constants import NUMBERS, Constants, is_external
from .graph import (
    CLASSES,
    MODULES,
    NAMES,
    NodeSite,
    all_graphs,
    all_tensors,
    attributes_of,
    find_sites,
    integer_attribute,
    load_model,
    node_name,
    recorded_texts,
    subgraphs,
)
from .node import WEIGHTS, list_settings, read_onnx_node
from .write import TensorArrays, make_model, write_model

_LISTED = 3
_WITHOUT_INPUTS = 4  # the IR version from which initializers need not be inputs of the graph
_PRODUCTS = {"MatMul", "Gemm"}
_TORCH = "torch.nn.modules.rnn."
_SOURCE = "read the weights from where they come from: a Keras file, a state_dict"
_EXPORT = (
    "export it with torch.onnx.export(..., dynamo=False), which keeps nn.RNN, nn.GRU and nn.LSTM as"
    " nodes; of cells read the weights from where they come from: a state_dict, a Keras file"
)


def _notes_about_unread_rnns(model: Any, has_nodes: bool) -> Iterator[str]:
    """Yield notes about RNNs that a model has in a form other than recurrent nodes. has_nodes:
    whether the model also has recurrent nodes."""
    modules: dict[str, str] = {}  # recurrent modules of PyTorch: path -> description
    kept_paths, loops = set[str](), list[str]()
    for node in (node for g in all_graphs(model.graph, *model.functions) for node in g.node):
        paths, classes = recorded_texts(node, MODULES), recorded_texts(node, CLASSES)
        for path, kind in zip(paths, classes, strict=False):
            if kind.startswith(_TORCH):
                label = f"module {path!r}" if path else "the model itself"
                modules[path] = f"{label} (nn.{kind.removeprefix(_TORCH)})"
                kept_paths |= {path} if node.op_type in NAMES else set()
        if node.op_type in ("Loop", "Scan"):
            operators = {n.op_type for g in all_graphs(*subgraphs(node)) for n in g.node}
            if operators & _PRODUCTS and not operators & NAMES:
                loops.append(f"{node_name(node)!r} ({node.op_type})")
    replaced = [text for path, text in modules.items() if path not in kept_paths]
    if replaced:
        yield (
            f"{_first_names(replaced)}: the exporter replaced the RNN by MatMul and other nodes,"
            f" which are not read: {_EXPORT}"
        )
    if loops:
        yield (
            f"{_first_names(loops)} is a loop with matrix products: an RNN made of those is not"
            " read (tf2onnx writes so a Keras layer with a mask, a SimpleRNN, and a GRU of reset"
            f" 'before'): {_SOURCE}"
        )
    elif not has_nodes and not replaced:
        repair = _EXPORT if model.producer_name == "pytorch" else _SOURCE
        yield f"none of its nodes is an LSTM, GRU or RNN: {repair}"


def _first_names(names: list[str]) -> str:
    return ", ".join(names[:_LISTED]) + (" and others" if len(names) > _LISTED else "")


# --------------------------------------------------------------------------------------- the format


def _replace_in_onnx(file: InputFile, out: Output, new: NewWeights) -> list[str]:
    """Write the model to `out` with new weights in the nodes that `new` names.

    The RNNs are in layout onnx, each of the same spec as the old RNN. Everything else is unchanged,
    but external tensors move into the new model, or into the new model's .data file.

    A tensor that only this node reads is changed in place. An input that is shared with other
    nodes, or computed, is left alone; the node gets a new initializer. Replaced tensors without a
    reader are removed. Raises LayoutError if the node does not exist, or cannot represent the
    weights."""
    model, constants, arrays = load_model(file), Constants(file), TensorArrays()
    rnns = _read_sites(file, model, new.reading, constants)
    layers: dict[str, tuple[Weights, Weights]] = {}
    notes: list[str] = []
    for name, weights in new.rnns.items():
        check_layout(weights, "onnx", f"{name}: an ONNX model")
        if name not in rnns.names:
            raise LayoutError(f"{file} has no RNN {name!r}; it has {', '.join(map(repr, rnns))}")
        old = rnns[name]
        if old.spec.num_layers != weights.spec.num_layers:
            raise LayoutError(f"{name!r} is {old.spec}, the new weights are {weights.spec}")
        notes += compare_settings(name, weights, old, file.path.name)
        pairs = zip(old.split(), weights.split(), strict=True)
        is_single = old.spec.num_layers == 1
        layers |= {name if is_single else f"{name}/{k}": pair for k, pair in enumerate(pairs)}
    for name, (before, after) in layers.items():
        node_spec = before.spec
        if after.spec.replace(bias=node_spec.bias, skip_input=node_spec.skip_input) != node_spec:
            raise LayoutError(f"node {name!r} is {node_spec}, the new weights are {after.spec}")
    change = _ModelChange(model, arrays)
    for site in find_sites(model, InputFile(file.path).budget):
        if site.name in layers:
            before, after = layers[site.name]
            for role in WEIGHTS[site.operator]:
                if role in before or role in after:
                    change.put(site, role, before, after)
    change.remove_unread()
    for tensor in filter(is_external, all_tensors(model)):
        bits = constants.bits_of(tensor, f"a copy for {out}") or b""
        arrays.move(tensor, np.frombuffer(bits, np.uint8))
    write_model(out, model, arrays)
    return notes


FORMAT = ModelFormat(
    ".onnx",
    ("onnx",),
    lambda file, reading: _read_sites(file, load_model(file), reading, Constants(file)),
    lambda out, entries: write_model(out, *make_model(entries)),
    _replace_in_onnx,
)


def _read_sites(file: InputFile, model: Any, reading: Reading, constants: Constants) -> Found:
    """Return the RNNs of all recurrent nodes. A name begins with the names of the nodes around the
    node: "If_0/lstm"."""
    entries: dict[str, Weights] = {}
    refused: dict[str, Exception] = {}
    notes: list[str] = []
    records = read_records({prop.key: prop.value for prop in model.metadata_props}, file)
    sites = find_sites(model, file.budget)
    for site in sites:
        if is_under_with_direction(site.name, reading.prefix):
            try:
                entries[site.name] = read_onnx_node(site, constants, reading, notes)
            except BudgetError as error:
                raise error_with_name(error, f"node {site.name!r}") from None
            except ValueError as error:
                refused[site.name] = error_with_name(error, f"node {site.name!r}")
    for weights in entries.values():
        list_settings(weights)
    notes += _notes_about_unread_rnns(model, bool(sites))
    unused_tensors = [
        str(tensor.name)
        for graph in all_graphs(model.graph)
        for tensor in (*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer))
        if constants.is_unused_weight(tensor)
    ]
    for name, record in records.items():
        names = [f"{name}/{k}" for k in range(min(record.spec.num_layers, len(entries) + 1))]
        entries = stack_entries(entries, names, name) if len(names) > 1 else entries
        if name in entries:
            entries[name] = as_recorded(entries[name], record)
    return Found(entries, refused, notes, unused_tensors)


def _tensor_of(weights: Weights, role: str) -> FileTensor | None:
    array = weights.bits.get(role)
    return None if array is None else FileTensor.of(array, weights.spec.dtype)


class _ModelChange:
    """New weights for the nodes of a model, put into the model in place."""

    def __init__(self, model: Any, arrays: TensorArrays) -> None:
        self._model, self._arrays = model, arrays
        self._uses = _count_uses(model)
        self._names = set(self._uses)
        for graph in all_graphs(model.graph, *model.functions):
            self._names |= {tensor.name for tensor in getattr(graph, "initializer", [])}
            self._names |= {name for node in graph.node for name in node.output}
        self._replaced: set[str] = set()

    def put(self, site: NodeSite, role: str, old: Weights, new: Weights) -> None:
        """Replace an input of a node. role: W, R, B or P."""
        before, after = _tensor_of(old, role), _tensor_of(new, role)
        if before and after and before.same_as(after):
            return
        label = f"{role} of node {site.name!r}"
        if after is None:
            raise LayoutError(f"{label}: the new weights do not have it")
        if site.is_quantized:
            raise LayoutError(
                f"{label} is quantized and cannot store floats: put the weights into the model that"
                " was quantized, and quantize it again"
            )
        if site.scope.is_function:
            raise LayoutError(
                f"{label} is inside a function, whose calls share it: inline the functions first,"
                " onnx.inliner.inline_local_functions(model)"
            )
        if integer_attribute(attributes_of(site.node, site.scope), "input_forget"):
            raise LayoutError(f"{label}: with input_forget a node has no weights of f of its own")
        at = WEIGHTS[site.operator][role]
        name = site.input(at)
        if name and self._uses[name] == 1:
            tensor = site.scope.find(name)[1]
            if type(tensor).__name__ == "TensorProto":
                self._arrays.put(tensor, after.bits(), after.dtype, name)
                return
        if name:
            self._replaced.add(name)
        initializer = f"{site.name}/{role}"
        while initializer in self._names:
            initializer += "_"
        self._names.add(initializer)
        self._add_initializer(site.scope.proto, initializer, after)
        while len(site.node.input) <= at:
            site.node.input.append("")
        site.node.input[at] = initializer

    def _add_initializer(self, graph: Any, name: str, array: FileTensor) -> None:
        """Add an initializer to a graph. In old models it is an input, too, of the outer graph."""
        if self._model.ir_version < _WITHOUT_INPUTS:
            graph = self._model.graph
            declaration = graph.input.add(name=name)
            declaration.type.tensor_type.elem_type = NUMBERS[array.dtype]
            for size in array.shape:
                declaration.type.tensor_type.shape.dim.add(dim_value=size)
        self._arrays.put(graph.initializer.add(), array.bits(), array.dtype, name)

    def remove_unread(self) -> None:
        """Remove the replaced initializers that no node and no output reads."""
        uses = _count_uses(self._model)
        for graph in all_graphs(self._model.graph):
            inputs = {value.name for value in graph.input}
            for k, tensor in reversed(list(enumerate(graph.initializer))):
                if tensor.name in self._replaced - inputs and not uses[tensor.name]:
                    del graph.initializer[k]


def _count_uses(model: Any) -> Counter[str]:
    """Return {name: number of nodes' inputs and graphs' outputs with this name} of all graphs."""
    uses: Counter[str] = Counter()
    for graph in all_graphs(model.graph, *model.functions):
        uses.update(name for node in graph.node for name in node.input)
        uses.update(getattr(value, "name", value) for value in graph.output)
    return uses
