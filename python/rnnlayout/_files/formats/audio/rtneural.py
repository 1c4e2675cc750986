"""RTNeural's JSON, .json: a chain of layers, each with the arrays of Keras's get_weights().

RTNeural's python/model_utils.py writes such files, RTNeural/model_loader.h reads them: "in_shape",
and "layers" with "type", "shape" (its last number is H) and "weights". Their names are made here:
lstm, dense, lstm_2. A file that rnnlayout wrote also has its record, which RTNeural ignores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnlayout._files.formats.content import content_of
from rnnlayout._files.formats.registry import ModelFormat, check_layout
from rnnlayout._files.tensor_sets.choose_rnns import as_recorded, stack_entries
from rnnlayout._files.tensor_sets.file_limits import InputFile, check_texts, object_of_texts
from rnnlayout._files.tensor_sets.found import Found
from rnnlayout._files.tensor_sets.output_file import Output
from rnnlayout._files.tensor_sets.record import KEY, Record, read_records, write_records
from rnnlayout._files.tensor_sets.rnn_names import distinct_names
from rnnlayout._model.describe import describe
from rnnlayout._model.errors import FileError
from rnnlayout._model.spec import Spec
from rnnlayout._native import LayoutError
from rnnlayout._sources.read_tensors import read_described
from rnnlayout._weights.weights import Weights, weights_of

from .json_model import (
    MOST_LAYERS,
    check_json_model_has,
    read_decimals,
    read_json_model,
    write_json_model,
)

_CELLS = ("lstm", "gru")
_ARRAYS = ("kernel", "recurrent_kernel", "bias")
_MODEL = "a model of RTNeural"
_LISTED = 5  # names of an object


@dataclass(frozen=True)
class _RTNeuralModel:
    """A model. layers: name -> the object of each layer. parts: the names of the layers of each
    RNN, bottom first."""

    json: dict[str, Any]
    layers: dict[str, dict[str, Any]]
    found: Found
    parts: dict[str, list[str]]


def _write_rtneural(out: Output, entries: Mapping[str, Weights]) -> None:
    """Write a model of the RNN's layers and nothing else."""
    ((name, weights),) = entries.items()
    check_json_model_has(name, weights, _MODEL, _CELLS)
    layers = [
        {
            "type": part.spec.cell,
            "activation": "tanh",
            "shape": [None, None, part.spec.hidden_size],
            "weights": _lists_of_layer(part),
        }
        for part in weights.split()
    ]
    model = {"in_shape": [None, None, weights.spec.input_size], "layers": layers}
    write_json_model(out, model | write_records({name: Record.of(weights)}))


def _replace_in_rtneural(file: InputFile, out: Output, entries: Mapping[str, Weights]) -> list[str]:
    """Write the model to `out` with new weights in the layers of these RNNs."""
    model = _parse_rtneural(file)
    for name, new in entries.items():
        check_layout(new, "keras", f"{name}: {_MODEL}")
        check_json_model_has(name, new, _MODEL, _CELLS)
        for layer, part in zip(model.parts[name], new.split(), strict=True):
            model.layers[layer]["weights"] = _lists_of_layer(part)
    write_json_model(out, model.json)
    return []


FORMAT = ModelFormat(
    ".json", ("keras",), lambda file, hints: _parse_rtneural(file).found, _write_rtneural,
    _replace_in_rtneural, single=True,
)  # fmt: skip


def _parse_rtneural(file: InputFile) -> _RTNeuralModel:
    model = read_json_model(file)
    layers = _rtneural_layers(model, file)
    width = _layer_width(model.get("in_shape"))
    entries: dict[str, Weights] = {}
    refused: dict[str, Exception] = {}
    notes: list[str] = []
    for name, layer in layers.items():
        if layer["type"] in _CELLS:
            try:
                entries[name] = _read_rtneural_layer(name, layer, width, notes)
            except ValueError as error:
                refused[name] = error
        width = _layer_width(layer.get("shape"))
    parts = {name: [name] for name in entries}
    told = object_of_texts({k: v for k, v in model.items() if k == KEY}, str(file))
    for name, record in read_records(told, file).items():
        own = list(entries)
        if len(own) == record.spec.num_layers:
            entries = stack_entries(entries, own, name)
            parts = {name: own} if name in entries else parts
        if name in entries:
            if record.spec.bias == "none":
                entries[name] = _without_zero_biases(entries[name])
            whole = as_recorded(entries[name], record)
            entries[name] = weights_of(whole, batch_first=record.batch_first)
    others = [name for name, one in layers.items() if one["type"] not in _CELLS and one["weights"]]
    return _RTNeuralModel(model, layers, Found(entries, refused, notes, others), parts)


def _rtneural_layers(model: dict[str, Any], file: InputFile) -> dict[str, dict[str, Any]]:
    """Return the layers by name. Raises FileError if the object is not a model of RTNeural."""
    layers = model.get("layers")
    if not isinstance(layers, list) or not all(
        isinstance(one, dict)
        and isinstance(one.get("type"), str)
        and isinstance(one.get("weights"), list)
        for one in layers
    ):
        content = content_of(file.path)
        if content and content.repair:
            raise FileError(f"{file} is {content.what}: {content.repair}")
        names = ", ".join(repr(name[:40]) for name in list(model)[:_LISTED])
        raise FileError(
            f"{file} is not {_MODEL}: need an object with 'layers', a list of objects with 'type',"
            f" 'shape' and 'weights', found one with {names or 'nothing'}"
        )
    if len(layers) > MOST_LAYERS:
        raise FileError(f"{file} has {len(layers)} layers, and up to {MOST_LAYERS} are read")
    types = [one["type"] for one in layers]
    check_texts(types, f"{file}: a type")
    return dict(zip(distinct_names(types), layers, strict=True))


def _layer_width(shape: Any) -> int | None:
    """Return how many numbers a layer of this shape gives to the next one, None if unknown."""
    sizes = shape if isinstance(shape, list) else []
    sizes = sizes[2:] if len(sizes) == 4 else sizes[-1:]  # of a Conv2D: features, channels
    known = sizes and all(type(n) is int and n > 0 for n in sizes)
    return math.prod(sizes) if known else None


def _read_rtneural_layer(
    name: str, layer: dict[str, Any], width: int | None, notes: list[str]
) -> Weights:
    """Return one layer. width: how many inputs it has, None if that is not known."""
    hidden, arrays = _layer_width(layer.get("shape")), layer["weights"]
    if hidden is None:
        raise LayoutError(f"{name}: need 'shape', a list of sizes of which the last is H")
    if len(arrays) != len(_ARRAYS):
        needed = ", ".join(_ARRAYS)
        raise LayoutError(f"{name}: weights has {len(arrays)} arrays, need {needed}")
    tensors = {
        leaf: read_decimals(array, f"{name}: {leaf}", notes)
        for leaf, array in zip(_ARRAYS, arrays, strict=True)
    }
    inputs = width or len(tensors["kernel"])
    spec = Spec(layer["type"], inputs, hidden)
    for leaf, shape in describe(spec, "keras").items():
        if (found := tensors[leaf].shape) != shape:
            raise LayoutError(
                f"{name}: {leaf} has shape {found}, expected {shape}, with H = {hidden} by its"
                f" 'shape' and {inputs} outputs of the layer below it"
            )
    if (unused := layer.get("activation", "tanh")) not in ("tanh", ""):
        unused = repr(unused)[:40]
        notes.append(f"{name}: its activation {unused} is not used: RTNeural computes tanh")
    return weights_of(read_described(tensors, spec, "keras"))


def _without_zero_biases(weights: Weights) -> Weights:
    """Return weights without the biases that _lists_of_layer() added."""
    tensors = {name: a for name, a in weights.items() if not name.endswith("bias") or a.any()}
    lacks = len(tensors) * len(_ARRAYS) == len(weights) * (len(_ARRAYS) - 1)
    spec = weights.spec.replace(bias="none")
    return weights_of(read_described(tensors, spec, "keras")) if lacks else weights


def _lists_of_layer(weights: Weights) -> list[Any]:
    """Return the arrays of one layer, zeros for a bias that it does not have."""
    needed = describe(weights.spec.replace(bias="double"), "keras")
    return [weights.get(leaf, np.zeros(needed[leaf])).tolist() for leaf in _ARRAYS]
