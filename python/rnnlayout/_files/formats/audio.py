"""Models of real-time audio: .json of RTNeural, .nam of Neural Amp Modeler.

A file is a JSON object, with the weights as lists of decimals, which the libraries read as doubles
and round to float32.

A model of RTNeural is a chain of layers, each with the arrays of Keras's get_weights(): "in_shape",
and "layers" with "type", "shape" (the last number is H) and "weights" (RTNeural's
python/model_utils.py writes the file, RTNeural/model_loader.h reads the file). The reader numbers
the layers by type: lstm, dense, lstm_2. Files of rnnlayout also have a record, which RTNeural
ignores.

Of .nam models only the architecture LSTM is read. "weights" is one list: per layer the matrix
[W R] of (4 H, I + H), the bias, the initial h and the initial c; then the matrix and the bias of
the head (NAM/lstm.cpp of NeuralAmpModelerCore). Initial states other than zero are in
Weights.config, as for ONNX. New files are not written: an RNN lacks a head.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np

from rnnlayout._files.tensor_sets.choose_rnns import as_recorded, stack_entries
from rnnlayout._files.tensor_sets.file_limits import (
    InputFile,
    check_texts,
    object_of_texts,
    parse_json_object,
)
from rnnlayout._files.tensor_sets.file_rnns import Found, distinct_names
from rnnlayout._files.tensor_sets.output_file import Output
from rnnlayout._files.tensor_sets.record import KEY, Record, read_records, write_records
from rnnlayout._model.config import (
    changes_outputs,
    how_to_round,
    initial_states,
    settings_lost,
    unwritten_settings,
)
from rnnlayout._model.describe import describe
from rnnlayout._model.errors import Ask, FileError
from rnnlayout._model.spec import Spec
from rnnlayout._model.weights import Weights, changed_weights
from rnnlayout._native import LayoutError, LossyError
from rnnlayout._sources.read_tensors import read_described
from rnnlayout._sources.reading import Reading

from .registry import ModelFormat, check_layout

_MOST_NBYTES = 64 << 20  # an LSTM with 512 units has 20 MB: far too slow to run live
_MOST_AXES = 2
MOST_LAYERS = 1000  # a model that runs live has less than ten


def read_json_model(file: InputFile) -> dict[str, Any]:
    """Return the object of a file. Raises FileError for a malformed or too large file."""
    if (size := file.path.stat().st_size) > _MOST_NBYTES:
        raise FileError(f"{file} has {size} bytes, and models of up to {_MOST_NBYTES} are read")
    return parse_json_object(file.path.read_bytes(), str(file))


def write_json_model(out: Output, model: Mapping[str, Any]) -> None:
    """Write an object. Numbers from read_json_model() stay the same doubles."""
    try:
        text = json.dumps(model, allow_nan=False)
    except (ValueError, RecursionError) as error:  # 1e999 is infinite in Python
        raise FileError(f"{out} cannot be written as JSON: {error}") from None
    out.path.write_text(text + "\n", encoding="ascii")


def read_decimals(decimals: Any, label: str, notes: list[str]) -> np.ndarray:
    """Return a list of numbers, or a list of equally long lists of numbers, as float32. label: name
    of the list in messages. Adds a note if a number is rounded. Raises LayoutError for anything
    else, and for numbers that float32 cannot represent."""
    shape: list[int] = []
    flat = [decimals]
    if not isinstance(decimals, list):
        raise LayoutError(f"{label} is a {type(decimals).__name__}, need a list of numbers")
    while flat and isinstance(flat[0], list) and len(shape) < _MOST_AXES:
        shape.append(len(flat[0]))
        if any(not isinstance(element, list) or len(element) != shape[-1] for element in flat):
            raise LayoutError(f"{label}: its lists are not of the same length")
        flat = list(chain.from_iterable(flat))
    for element in flat:
        if type(element) not in (int, float):
            kind = "null" if element is None else type(element).__name__
            raise LayoutError(f"{label} has a {kind}, need a list of numbers, or of lists of them")
    try:
        exact = np.array(flat, np.float64).reshape(shape)
    except OverflowError:  # an integer that exceeds float64
        exact = np.full(1, np.inf)
    with np.errstate(over="ignore"):
        rounded = exact.astype(np.float32)
    if not np.isfinite(rounded).all():
        raise LayoutError(f"{label} has a number that exceeds the largest float32, 3.4e38")
    if count := int((rounded != exact).sum()):
        notes.append(f"{label}: {count} of {exact.size} decimals are not float32: rounded once")
    return rounded


def check_json_model_fits(
    name: str, weights: Weights, model_text: str, cells: tuple[str, ...], layout: str = ""
) -> None:
    """Raise LossyError if a model for a library cannot have this RNN. model_text: the model, for
    messages. cells: the cells of the library. layout: the layout with the settings of the library;
    "" for no settings."""
    spec = weights.spec
    obstacles = {
        f"cell {spec.cell}": spec.cell not in cells,
        "a second direction": spec.bidirectional,
        f"reset {spec.reset!r}": spec.reset != "after",
        f"recurrent_activation {spec.recurrent_activation!r}": spec.recurrent_activation
        != "sigmoid",
        f"activation {spec.activation!r}": spec.activation != "tanh",
    }
    for obstacle in (obstacle for obstacle, applies in obstacles.items() if applies):
        raise LossyError(f"{name} has {obstacle}, which {model_text} cannot represent")
    if lost := settings_lost(changes_outputs(weights.config, spec), spec, layout):
        raise unwritten_settings(name, lost, f"unknown to {model_text}; to leave it out")
    if spec.dtype != "float32":
        raise LossyError(
            f"{name} is {spec.dtype}, {model_text} has float32: convert it with"
            f" .to({weights.layout.name!r}, dtype='float32') first, or ",
            Ask("dtype", "float32"),
        )
    for tensor, array in weights.items():
        if not np.isfinite(array).all():
            raise LossyError(f"{name}: {tensor} has a number that is not finite, as JSON lacks it")


# ----------------------------------------------------------------------------------------- RTNeural

_CELLS = ("lstm", "gru")
_ARRAYS = ("kernel", "recurrent_kernel", "bias")
_RTNEURAL = "a model of RTNeural"
_LISTED = 5  # names of an object


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


def _replace_in_rtneural(file: InputFile, out: Output, entries: Mapping[str, Weights]) -> list[str]:
    model, _, parts = _parse_rtneural(file)
    for name, new in entries.items():
        check_layout(new, "keras", f"{name}: {_RTNEURAL}")
        check_json_model_fits(name, new, _RTNEURAL, _CELLS)
        for layer, part in zip(parts[name], new.split(), strict=True):
            layer["weights"] = _lists_of_layer(part)
    write_json_model(out, model)
    return []


RTNEURAL = ModelFormat(
    ".json",
    ("keras",),
    lambda file, reading: _parse_rtneural(file)[1],
    _write_rtneural,
    _replace_in_rtneural,
    single=True,
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
    notes: list[str] = []
    for name, layer in layers.items():
        if layer["type"] in _CELLS:
            try:
                entries[name] = _read_rtneural_layer(name, layer, width, notes)
            except ValueError as error:
                refused[name] = error
        width = _layer_width(layer.get("shape"))
    parts = {name: [layers[name]] for name in entries}
    metadata = object_of_texts({key: text for key, text in model.items() if key == KEY}, str(file))
    for name, record in read_records(metadata, file).items():
        names = list(entries)
        if len(names) == record.spec.num_layers:
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
    other_layers = [
        name for name, layer in layers.items() if layer["type"] not in _CELLS and layer["weights"]
    ]
    return model, Found(entries, refused, notes, other_layers), parts


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


# ------------------------------------------------------------------------------- Neural Amp Modeler

_NAME = "lstm"
_NAM = "a model of Neural Amp Modeler"
_STATES = ("initial_h", "initial_c")
_SIZES = ("input_size", "hidden_size", "num_layers", "out_channels")
_LOUDNESS = ("loudness", "gain")  # of metadata: how loud the outputs are


def _read_nam(file: InputFile, reading: Reading) -> Found:
    model, spec, _ = _parse_nam(file)
    notes: list[str] = []
    numbers = read_decimals(model["weights"], "weights", notes)
    tensors: dict[str, np.ndarray] = {}
    states: dict[str, list[np.ndarray]] = {name: [] for name in _STATES}
    at = 0
    for name, shape in _nam_arrays(spec):
        end = at + int(np.prod(shape))
        array = numbers[at:end].reshape(shape)
        at = end
        if name in states:
            states[name].append(array)
        else:
            tensors[name] = array
    config = {
        name: np.stack(arrays)[:, None].tolist()
        for name, arrays in states.items()
        if np.any(arrays)
    }
    weights = changed_weights(read_described(tensors, spec, "nam"), config=config)
    return Found({_NAME: weights}, {}, notes, ["head.weight", "head.bias"])


def _replace_in_nam(file: InputFile, out: Output, entries: Mapping[str, Weights]) -> list[str]:
    """Write the model to `out` with new weights and initial states; keep the head."""
    ((name, weights),) = entries.items()
    check_layout(weights, "nam", f"{name}: {_NAM}")
    check_json_model_fits(name, weights, _NAM, ("lstm",), "nam")
    (model, spec, head), old = _parse_nam(file), _read_nam(file, Reading())[_NAME]
    layers = spec.num_layers
    states = {key: [np.zeros(spec.hidden_size)] * layers for key in _STATES}
    for key in states.keys() & weights.config.keys():
        states[key] = initial_states(weights.config, key, layers)
        for state in states[key]:
            if state.size != spec.hidden_size:
                why = f"{key} has shape {state.shape}, and {_NAM} runs one sequence"
                raise LossyError(f"{name}: {why}")
            if not (state.astype(np.float32) == state).all():
                raise LossyError(f"{name}: {key} is not float32: {how_to_round(key, 'float32')}")
    remaining_states = {key: iter(layer_states) for key, layer_states in states.items()}
    numbers: list[float] = []
    for key, _ in _nam_arrays(spec):
        array = next(remaining_states[key]) if key in remaining_states else weights[key]
        numbers += np.asarray(array, np.float32).ravel().tolist()
    write_json_model(out, model | {"weights": numbers + model["weights"][head:]})
    notes = []
    if gone := [key for key in _STATES if key in old.config and key not in weights.config]:
        notes.append(
            f"{' and '.join(gone)} of {file.path.name} are zero in the copy, as in the source"
        )
    metadata = model.get("metadata")
    if loudness := [key for key in _LOUDNESS if isinstance(metadata, dict) and metadata.get(key)]:
        notes.append(f"{' and '.join(loudness)} in its metadata are those of the old weights")
    return notes


NAM = ModelFormat(
    ".nam",
    ("nam",),
    _read_nam,
    None,
    _replace_in_nam,
    single=True,
    needs="a head, the matrix and bias after the layers",
)


def _parse_nam(file: InputFile) -> tuple[dict[str, Any], Spec, int]:
    """Return the object, the spec, and the index in "weights" at which the head begins. Raises
    FileError if the model is not an LSTM, or the number of weights is wrong."""
    model = read_json_model(file)
    architecture, config = model.get("architecture"), model.get("config")
    weights = model.get("weights")
    if not isinstance(architecture, str) or not isinstance(config, dict):
        raise FileError(f"{file} is not {_NAM}: need 'architecture', 'config' and 'weights'")
    if architecture != "LSTM":
        why = "has no recurrent layer" if architecture != "SlimmableContainer" else "is not read"
        raise FileError(f"{file} is a model of architecture {architecture[:40]!r}, which {why}")
    if not isinstance(weights, list):
        raise FileError(f"{file}: need 'weights', a list of numbers")
    sizes: list[Any] = [({"out_channels": 1} | config).get(key) for key in _SIZES]
    for key, size in zip(_SIZES, sizes, strict=True):
        if type(size) is not int or not 0 < size < 1 << 31:
            raise FileError(f"{file}: config has {key} {repr(size)[:40]}, need a number from 1")
    i, h, layers, channels = sizes
    per_layer = 4 * h * (h + 1) + 2 * h
    head = layers * per_layer + 4 * h * (i + (layers - 1) * h)
    needed = head + channels * (h + 1)
    if len(weights) != needed:
        raise FileError(
            f"{file}: weights has {len(weights)} numbers, an LSTM with input_size {i}, hidden_size"
            f" {h}, num_layers {layers} and {channels} output channels needs {needed}"
        )
    if layers > MOST_LAYERS:
        raise FileError(f"{file}: num_layers is {layers}, and up to {MOST_LAYERS} are read")
    return model, Spec("lstm", i, h, layers), head


def _nam_arrays(spec: Spec) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the names and shapes of the arrays in "weights", up to the head."""
    for name, shape in describe(spec, "nam").items():
        yield name, shape
        if name.endswith("b"):
            yield from ((state, (spec.hidden_size,)) for state in _STATES)
