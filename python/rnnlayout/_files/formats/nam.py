"""Models of Neural Amp Modeler, .nam.

Only the architecture LSTM is read. "weights" is one list: per layer the matrix [W R] of
(4 H, I + H), the bias, the initial h and the initial c; then the matrix and the bias of the head
(NAM/lstm.cpp of NeuralAmpModelerCore). Initial states other than zero are in Weights.config, as for
ONNX. New files are not written: an RNN lacks a head.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from rnnlayout._files.tensor_sets.file_limits import InputFile
from rnnlayout._files.tensor_sets.file_rnns import Found, arrays_in_vector
from rnnlayout._files.tensor_sets.output_file import Output
from rnnlayout._files.tensor_sets.tensor_set import FileTensor
from rnnlayout._model.config import how_to_round, initial_states
from rnnlayout._model.describe import describe
from rnnlayout._model.errors import FileError
from rnnlayout._model.spec import Spec
from rnnlayout._model.weights import changed_weights
from rnnlayout._native import LossyError
from rnnlayout._sources.read_tensors import read_described
from rnnlayout._sources.reading import Reading

from .audio import (
    MOST_LAYERS,
    check_json_model_fits,
    read_decimals,
    read_json_model,
    settings_text,
    write_json_model,
)
from .registry import ModelFormat, NewWeights, check_layout

_NAME = "lstm"
_NAM = "a model of Neural Amp Modeler"
_HEAD = ("head.weight", "head.bias")
_STATES = ("initial_h", "initial_c")
_SIZES = ("input_size", "hidden_size", "num_layers", "out_channels")
_OF_TRAINING = ("train_burn_in", "train_truncate", "dropout")  # keys of config
_LOUDNESS = ("loudness", "gain")  # of metadata: how loud the outputs are


def _read_nam(file: InputFile, reading: Reading) -> Found:
    model, spec, _ = _parse_nam(file)
    notes: list[str] = []
    file.budget.charge_weights(spec.nbytes, arrays_in_vector(spec))
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
    return Found({_NAME: weights}, {}, notes, _HEAD)


def _replace_in_nam(file: InputFile, out: Output, new: NewWeights) -> list[str]:
    """Write the model to `out` with new weights and initial states; keep the head unless `new` has
    one."""
    ((name, weights),) = new.rnns.items()
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
    head_numbers, notes = model["weights"][head:], list[str]()
    if new.head is not None:
        outputs = len(head_numbers) // (spec.hidden_size + 1)
        new.head.check_fits(spec.hidden_size, outputs, f"the head of {file.path.name}")
        head_numbers = [*new.head.kernel.T.ravel().tolist(), *new.head.bias.tolist()]
        notes = new.head.notes(f"the head of {file.path.name}")
    write_json_model(out, model | {"weights": numbers + head_numbers})
    if gone := [key for key in _STATES if key in old.config and key not in weights.config]:
        notes.append(
            f"{' and '.join(gone)} of {file.path.name} are zero in the copy, as in the source"
        )
    metadata = model.get("metadata")
    if loudness := [key for key in _LOUDNESS if isinstance(metadata, dict) and metadata.get(key)]:
        notes.append(f"{' and '.join(loudness)} in its metadata are those of the old weights")
    return notes


def _read_head(file: InputFile, names: Collection[str]) -> dict[str, FileTensor]:
    model, spec, start = _parse_nam(file)
    numbers = read_decimals(model["weights"][start:], "the head", [])
    outputs = numbers.size // (spec.hidden_size + 1)
    weight, bias = np.split(numbers, [outputs * spec.hidden_size])
    arrays = dict(zip(_HEAD, (weight.reshape(outputs, spec.hidden_size), bias), strict=True))
    return {name: FileTensor.of(arrays[name], "float32") for name in names}


FORMAT = ModelFormat(
    ".nam",
    ("nam",),
    _read_nam,
    None,
    _replace_in_nam,
    single=True,
    needs="a head, the matrix and bias after the layers",
    read_others=_read_head,
    has_head=True,
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
    _check_nam_keys(config, i, file)
    return model, Spec("lstm", i, h, layers), head


def _check_nam_keys(config: dict[str, Any], inputs: int, file: InputFile) -> None:
    """Raise FileError if the config has a key that may change the outputs."""
    for key, value in config.items():
        harmless = key in (*_SIZES, *_OF_TRAINING) or value is None or value is False
        if not harmless and (key != "in_channels" or value != inputs):
            raise FileError(
                f"{file}: config has {settings_text({key: value})}, which may change the outputs,"
                " and which NeuralAmpModelerCore does not read: if it computes the right outputs,"
                " delete the key from the file"
            )


def _nam_arrays(spec: Spec) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the names and shapes of the arrays in "weights", up to the head."""
    for name, shape in describe(spec, "nam").items():
        yield name, shape
        if name.endswith("b"):
            yield from ((state, (spec.hidden_size,)) for state in _STATES)
