"""ONNX models, .onnx: the LSTM, GRU and RNN nodes of a graph, its subgraphs and functions.

W, R, B and P are read if they are constants, or computed from constants by simple nodes. What a
node does that its weights do not show goes into Weights.config under ONNX's own names: direction,
clip, layout, initial_h, initial_c, sequence_lens. Tensors in other files are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rnnlayout._files.formats.registry import ModelFormat, check_layout
from rnnlayout._files.tensor_sets.found import Found
from rnnlayout._files.tensor_sets.match_rnns import stack_entries
from rnnlayout._files.tensor_sets.output_file import Output
from rnnlayout._files.tensor_sets.record import Record, read_records
from rnnlayout._files.tensor_sets.tensor_set import Hints
from rnnlayout._model.spec import differing_fields
from rnnlayout._native import LayoutError, SpecError
from rnnlayout._sources.read_source import read_source
from rnnlayout._sources.rnn_places import is_under_with_direction
from rnnlayout._weights.weights import Weights, weights_of

from .constants import Constants
from .graph import all_initializers, find_sites, load_model, loops
from .node import read_onnx_node
from .replace import replace_node_weights
from .write import make_model, write_model

_LISTED = 3  # loops


def _read_onnx(path: Path, hints: Hints) -> Found:
    """Return each recurrent node by its name, after those of the nodes around it: "If_0/lstm"."""
    return _read_sites(path, load_model(path), hints)


def _write_onnx(out: Output, entries: Mapping[str, Weights]) -> None:
    """Write a model with these RNNs and nothing else, which onnxruntime runs."""
    write_model(out, make_model(entries))


def _replace_in_onnx(path: Path, out: Output, entries: Mapping[str, Weights]) -> None:
    """Write the model to `out` with new weights in the nodes of these names.

    entries: in layout onnx, each of the same spec as the old weights. Everything else is unchanged,
    including tensors in other files, whose paths are relative to the model.
    Raises LayoutError if the node does not exist, or cannot represent the weights.
    """
    model = load_model(path)
    found = _read_sites(path, model, Hints())
    layers: dict[str, tuple[Weights, Weights]] = {}
    for name, new in entries.items():
        check_layout(new, "onnx", f"{name}: an ONNX model")
        if name not in found.names:
            raise LayoutError(f"{path} has no RNN {name!r}; it has {', '.join(map(repr, found))}")
        old = found[name]
        if old.spec.num_layers != new.spec.num_layers:
            raise LayoutError(f"{name!r} is {old.spec}, the new weights are {new.spec}")
        pairs = zip(old.split(), new.split(), strict=True)
        one = old.spec.num_layers == 1
        layers |= {name if one else f"{name}/{k}": pair for k, pair in enumerate(pairs)}
    replace_node_weights(model, layers)
    write_model(out, model)


FORMAT = ModelFormat(".onnx", ("onnx",), _read_onnx, _write_onnx, _replace_in_onnx)


def _read_sites(path: Path, model: Any, hints: Hints) -> Found:
    entries: dict[str, Weights] = {}
    refused: dict[str, Exception] = {}
    notes: list[str] = []
    constants = Constants(path.stat().st_size)
    records = read_records({one.key: one.value for one in model.metadata_props}, path)
    for site in find_sites(model):
        if is_under_with_direction(site.name, hints.prefix):
            try:
                entries[site.name] = read_onnx_node(site, constants, hints, notes)
            except ValueError as error:
                refused[site.name] = error
    if steps := loops(model):
        named = ", ".join(steps[:_LISTED]) + (" and others" if len(steps) > _LISTED else "")
        notes.append(f"{named} is a loop with matrix products: an RNN made of those is not read")
    others = [str(one.name) for one in all_initializers(model.graph) if constants.is_other(one)]
    for name, record in records.items():
        names = [f"{name}/{k}" for k in range(min(record.spec.num_layers, len(entries) + 1))]
        entries = stack_entries(entries, names, name) if len(names) > 1 else entries
        if name in entries:
            entries[name] = _as_recorded(entries[name], record)
    return Found(entries, refused, notes, others)


def _as_recorded(weights: Weights, record: Record) -> Weights:
    """Return the weights with the recorded spec, unless the model was changed since.

    It has what nodes do not: cuDNN's bias mode, and skip_input.
    """
    if differing_fields(weights.spec, record.spec) or weights.spec.dtype != record.spec.dtype:
        return weights
    try:
        return weights_of(read_source(weights, record.spec))
    except (LayoutError, SpecError):
        return weights
