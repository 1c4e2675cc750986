"""Models of RTNeural, .json.

A model is a chain of layers, each with the arrays of Keras's get_weights(): "in_shape", and
"layers" with "type", "shape" (the last number is H) and "weights" (RTNeural's
python/model_utils.py writes the file, RTNeural/model_loader.h reads the file). The reader numbers
the layers by type: lstm, dense, lstm_2. Files of rnnlayout also have a record, which RTNeural
ignores.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from rnnlayout._files.tensor_sets.choose_rnns import as_recorded, stack_entries
from rnnlayout._files.tensor_sets.dense_layer import DenseLayer
from rnnlayout._files.tensor_sets.file_limits import InputFile, check_texts, object_of_texts
from rnnlayout._files.tensor_sets.file_rnns import Found, distinct_names
from rnnlayout._files.tensor_sets.output_file import Output
from rnnlayout._files.tensor_sets.record import KEY, Record, read_records, write_records
from rnnlayout._files.tensor_sets.tensor_set import FileTensor
from rnnlayout._model.describe import describe
from rnnlayout._model.errors import Ask, FileError
from rnnlayout._model.spec import Spec
from rnnlayout._model.weights import Weights, changed_weights
from rnnlayout._native import LayoutError
from rnnlayout._sources.mismatch import list_names
from rnnlayout._sources.read_tensors import read_described

from .audio import (
    MOST_LAYERS,
    check_json_model_fits,
    read_decimals,
    read_json_model,
    settings_text,
    write_json_model,
)
from .registry import ModelFormat, NewWeights, check_layout

_CELLS = ("lstm", "gru")
_ARRAYS = ("kernel", "recurrent_kernel", "bias")
_RTNEURAL = "a model of RTNeural"
_LISTED = 5  # names of an object
_DENSE = ("dense", "time-distributed-dense")
_LAYER_KEYS = ("type", "activation", "shape", "weights")
# Further keys of a recurrent layer, which RTNeural does not read -> the values that change nothing;
# () if all values change nothing.
_HARMLESS = {
    "name": (),
    "trainable": (),
    "implementation": (),  # how Keras computes the same numbers
    "dropout": (),  # only in training, as the next
    "recurrent_dropout": (),
    "unit_forget_bias": (),  # a start of training
    "return_sequences": (),  # RTNeural returns every step
    "return_state": (),
    "stateful": (),  # RTNeural keeps the state, until reset()
    "use_bias": (),  # the list of weights has a bias
    "bidirectional": (False, None),
    "go_backwards": (False, None),
    "time_major": (False, None),
    "reset_after": (True,),  # the bias of a GRU has two rows
    "recurrent_activation": ("sigmoid",),
}
# Settings of AIDA-X beside the layers -> what the plug-in does, which is not done by an RNN.
_OF_PLUG_IN = {
    "in_skip": "adds its first input, x[..., 0] after in_gain, to the output of the last layer: do"
    " the same",
    "in_gain": "multiplies its input by 10 ** (in_gain / 20): multiply x first",
    "out_gain": "multiplies its output, after in_skip, by 10 ** (out_gain / 20): do the same last",
}
# Further keys of a model: texts, and data to test the model with.
_TEXTS = ("metadata", "samplerate", "sample_rate", "author", "input_batch", "output_batch")


def _write_rtneural(out: Output, entries: Mapping[str, Weights]) -> None:
    ((name, weights),) = entries.items()
    check_json_model_fits(name, weights, _RTNEURAL, _CELLS)
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


def _replace_in_rtneural(file: InputFile, out: Output, new: NewWeights) -> list[str]:
    model, rnns, parts = _parse_rtneural(file)
    for name, weights in new.rnns.items():
        check_layout(weights, "keras", f"{name}: {_RTNEURAL}")
        check_json_model_fits(name, weights, _RTNEURAL, _CELLS)
        for layer, part in zip(parts[name], weights.split(), strict=True):
            layer["weights"] = _lists_of_layer(part)
    notes = []
    if new.head is not None:
        top = parts[[*new.rnns][-1]][-1]
        notes = _replace_rtneural_head(model, top, new.head, file, rnns.others)
    write_json_model(out, model)
    return notes


def _replace_rtneural_head(
    model: dict[str, Any], top: Any, head: DenseLayer, file: InputFile, others: Collection[str]
) -> list[str]:
    """Put a dense layer into the model, in the place of the only dense layer above the RNN; return
    notes. top: the top layer of the RNN. others: the names of all layers outside RNNs."""
    layers = _rtneural_layers(model, file)
    names = [*layers]
    first = next(k for k, layer in enumerate(layers.values()) if layer is top) + 1
    above = [name for name in names[first:] if layers[name]["type"] in _DENSE]
    if len(above) != 1:
        count = f"{len(above)} dense layers ({', '.join(above)})" if above else "no dense layer"
        raise FileError(
            f"{file} has {count} above the RNN, and one is replaced: omit ",
            Ask("head", None),
            ", and export the whole model again with RTNeural's python/model_utils.py",
        )
    (name,) = above
    layer, below = layers[name], layers[names[names.index(name) - 1]]
    inputs, outputs = _layer_width(below.get("shape")) or 0, _layer_width(layer.get("shape")) or 0
    head.check_fits(inputs, outputs, f"{name} of {file.path.name}")
    layer["weights"] = [head.kernel.tolist(), head.bias.tolist()]
    notes = head.notes(f"{name} of {file.path.name}")
    if activation := layer.get("activation"):
        notes.append(f"{name} keeps its activation {repr(activation)[:40]}")
    if unchanged := [other for other in others if not other.startswith(f"{name}.")]:
        notes.append(f"unchanged from {file.path.name}: {list_names(unchanged)}")
    return notes


def _arrays_of_others(layers: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the arrays of all layers but the recurrent ones by name: dense.kernel, dense.bias,
    conv1d.0 ..."""
    arrays = {}
    for name, layer in layers.items():
        leaves = ("kernel", "bias") if layer["type"] in _DENSE else ()
        for k, array in enumerate(layer["weights"] if layer["type"] not in _CELLS else ()):
            arrays[f"{name}.{leaves[k] if k < len(leaves) else k}"] = array
    return arrays


def _read_others(file: InputFile, names: Collection[str]) -> dict[str, FileTensor]:
    arrays = _arrays_of_others(_rtneural_layers(read_json_model(file), file))
    return {name: FileTensor.of(read_decimals(arrays[name], name, []), "float32") for name in names}


FORMAT = ModelFormat(
    ".json",
    ("keras",),
    lambda file, reading: _parse_rtneural(file)[1],
    _write_rtneural,
    _replace_in_rtneural,
    single=True,
    read_others=_read_others,
    has_head=True,
)


def _parse_rtneural(
    file: InputFile,
) -> tuple[dict[str, Any], Found, dict[str, list[dict[str, Any]]]]:
    """Return the object, its RNNs, and the objects of the layers of each RNN, bottom first."""
    model = read_json_model(file)
    layers = _rtneural_layers(model, file)
    width = _layer_width(model.get("in_shape"))
    entries: dict[str, Weights] = {}
    refused: dict[str, Exception] = {}
    notes = _notes_about_keys(model)
    for name, layer in layers.items():
        if layer["type"] in _CELLS:
            try:
                _check_layer_keys(name, layer)
                entries[name] = _read_rtneural_layer(name, layer, width, notes)
            except ValueError as error:
                refused[name] = error
        width = _layer_width(layer.get("shape"))
    parts = {name: [layers[name]] for name in entries}
    metadata = object_of_texts({key: text for key, text in model.items() if key == KEY}, str(file))
    for name, record in read_records(metadata, file).items():
        names = list(entries)
        at = [k for k, layer in enumerate(layers) if layer in entries]
        is_stack = at == [*range(at[0], at[-1] + 1)] if at else False  # no layer in between
        if is_stack and len(names) == record.spec.num_layers:
            entries = stack_entries(entries, names, name)
            parts = {name: [layers[layer] for layer in names]} if name in entries else parts
        if name in entries:
            whole = entries[name]
            tensors = {
                leaf: array
                for leaf, array in whole.items()
                if not leaf.endswith("bias") or array.any()
            }
            lacks = len(tensors) * len(_ARRAYS) == len(whole) * (len(_ARRAYS) - 1)
            if record.spec.bias == "none" and lacks:  # a file must have biases: remove the zeros
                spec = whole.spec.replace(bias="none")
                whole = read_described(tensors, spec, "keras")
            whole = as_recorded(whole, record)
            entries[name] = changed_weights(whole, batch_first=record.batch_first)
    return model, Found(entries, refused, notes, _arrays_of_others(layers)), parts


def _notes_about_keys(model: dict[str, Any]) -> list[str]:
    """Return notes about the keys of a model beside its layers, which an RNN does not apply."""
    notes = [
        f"{settings_text({key: value})}: the plug-in {effect}"
        for key, effect in _OF_PLUG_IN.items()
        if (value := model.get(key))
    ]
    known = {"in_shape", "layers", KEY, *_TEXTS, *_OF_PLUG_IN}
    if unknown := [key for key in model if key not in known]:
        notes.append(f"not used, as RTNeural does not: {list_names(unknown)}")
    return notes


def _check_layer_keys(name: str, layer: dict[str, Any]) -> None:
    """Raise LayoutError if a recurrent layer has a key that may change its outputs."""
    unknown = {key: value for key, value in layer.items() if key not in _LAYER_KEYS}
    for key, value in unknown.items():
        values = _HARMLESS.get(key, (None,))
        if values and not any(value is v or value == v for v in values):
            raise LayoutError(
                f"{name} has {settings_text({key: value})}, which may change its outputs, and which"
                " RTNeural does not read: if RTNeural computes the right outputs, delete the key"
                " from the file"
            )


def _rtneural_layers(model: dict[str, Any], file: InputFile) -> dict[str, dict[str, Any]]:
    """Return the layers by name. Raises FileError if the object is not a model of RTNeural."""
    layers = model.get("layers")
    if not isinstance(layers, list) or not all(
        isinstance(layer, dict)
        and isinstance(layer.get("type"), str)
        and isinstance(layer.get("weights"), list)
        for layer in layers
    ):
        names = ", ".join(repr(name[:40]) for name in list(model)[:_LISTED])
        raise FileError(
            f"{file} is not {_RTNEURAL}: need an object with 'layers', a list of objects with"
            f" 'type', 'shape' and 'weights', found one with {names or 'nothing'}"
        )
    if len(layers) > MOST_LAYERS:
        raise FileError(f"{file} has {len(layers)} layers, and up to {MOST_LAYERS} are read")
    types = [layer["type"] for layer in layers]
    check_texts(types, f"{file}: a type")
    return dict(zip(distinct_names(types), layers, strict=True))


def _layer_width(shape: Any) -> int | None:
    """Return the number of outputs of a layer with this shape, None if unknown."""
    sizes = shape if isinstance(shape, list) else []
    sizes = sizes[2:] if len(sizes) == 4 else sizes[-1:]  # of a Conv2D: features, channels
    is_known = sizes and all(type(n) is int and n > 0 for n in sizes)
    return math.prod(sizes) if is_known else None


def _read_rtneural_layer(
    name: str, layer: dict[str, Any], width: int | None, notes: list[str]
) -> Weights:
    """Return one layer. width: the number of inputs, None if unknown."""
    hidden, lists = _layer_width(layer.get("shape")), layer["weights"]
    if hidden is None:
        raise LayoutError(f"{name}: need 'shape', a list of sizes of which the last is H")
    if len(lists) != len(_ARRAYS):
        needed = ", ".join(_ARRAYS)
        raise LayoutError(f"{name}: weights has {len(lists)} arrays, need {needed}")
    tensors = {
        leaf: read_decimals(array, f"{name}: {leaf}", notes)
        for leaf, array in zip(_ARRAYS, lists, strict=True)
    }
    inputs = width or len(tensors["kernel"])
    spec = Spec(layer["type"], inputs, hidden)
    for leaf, shape in describe(spec, "keras").items():
        if (actual := tensors[leaf].shape) != shape:
            raise LayoutError(
                f"{name}: {leaf} has shape {actual}, expected {shape}, with H = {hidden} by its"
                f" 'shape' and {inputs} outputs of the layer below it"
            )
    if (activation := layer.get("activation", "tanh")) not in ("tanh", ""):
        activation = repr(activation)[:40]
        notes.append(f"{name}: its activation {activation} is not used: RTNeural computes tanh")
    return read_described(tensors, spec, "keras")


def _lists_of_layer(weights: Weights) -> list[Any]:
    """Return the arrays of one layer, with zeros for a missing bias."""
    needed = describe(weights.spec.replace(bias="double"), "keras")
    return [weights.get(leaf, np.zeros(needed[leaf])).tolist() for leaf in _ARRAYS]
