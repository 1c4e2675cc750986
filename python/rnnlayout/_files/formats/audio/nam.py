"""Models of Neural Amp Modeler, .nam: of architecture LSTM.

"weights" is one list: per layer the matrix [W R] of (4 H, I + H), the bias, the initial h and the
initial c; then the matrix and the bias of the head (NAM/lstm.cpp of NeuralAmpModelerCore). The
initial states are in Weights.config, as those of ONNX, unless they are zero. No new file is made:
an RNN has no head.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnlayout._files.formats.registry import ModelFormat, check_layout
from rnnlayout._files.tensor_sets.file_limits import InputFile
from rnnlayout._files.tensor_sets.found import Found
from rnnlayout._files.tensor_sets.output_file import Output
from rnnlayout._files.tensor_sets.tensor_set import Hints
from rnnlayout._model.config import how_to_round, initial_states
from rnnlayout._model.describe import describe
from rnnlayout._model.errors import FileError
from rnnlayout._model.spec import Spec
from rnnlayout._native import LossyError
from rnnlayout._sources.read_tensors import read_described
from rnnlayout._weights.weights import Weights, weights_of

from .json_model import (
    MOST_LAYERS,
    check_json_model_has,
    read_decimals,
    read_json_model,
    write_json_model,
)

_NAME = "lstm"
_MODEL = "a model of Neural Amp Modeler"
_STATES = ("initial_h", "initial_c")
_SIZES = ("input_size", "hidden_size", "num_layers", "out_channels")
_LOUDNESS = ("loudness", "gain")  # of metadata: how loud the outputs are


@dataclass(frozen=True)
class _NamModel:
    """A model. head: the index in "weights" at which the head begins."""

    json: dict[str, Any]
    spec: Spec
    head: int


def _read_nam(file: InputFile, hints: Hints) -> Found:
    model = _parse_nam(file)
    notes: list[str] = []
    numbers = read_decimals(model.json["weights"], "weights", notes)
    tensors: dict[str, np.ndarray] = {}
    states: dict[str, list[np.ndarray]] = {name: [] for name in _STATES}
    at = 0
    for name, shape in _nam_arrays(model.spec):
        end = at + int(np.prod(shape))
        array = numbers[at:end].reshape(shape)
        at = end
        if name in states:
            states[name].append(array)
        else:
            tensors[name] = array
    config = {
        name: np.stack(found)[:, None].tolist() for name, found in states.items() if np.any(found)
    }
    weights = weights_of(read_described(tensors, model.spec, "nam"), config=config)
    return Found({_NAME: weights}, {}, notes, ["head.weight", "head.bias"])


def _replace_in_nam(file: InputFile, out: Output, entries: Mapping[str, Weights]) -> list[str]:
    """Write the model to `out` with new weights and initial states; the head stays."""
    ((name, new),) = entries.items()
    check_layout(new, "nam", f"{name}: {_MODEL}")
    check_json_model_has(name, new, _MODEL, ("lstm",), _STATES)
    model, old = _parse_nam(file), _read_nam(file, Hints())[_NAME]
    states = {key: iter(_nam_states(name, new, key)) for key in _STATES}
    weights: list[float] = []
    for key, _ in _nam_arrays(model.spec):
        array = next(states[key]) if key in states else new[key]
        weights += np.asarray(array, np.float32).ravel().tolist()
    head = model.json["weights"][model.head :]
    write_json_model(out, model.json | {"weights": weights + head})
    notes = []
    if gone := [key for key in _STATES if key in old.config and key not in new.config]:
        notes.append(
            f"{' and '.join(gone)} of {file.path.name} are zero in the copy, as in the source"
        )
    metadata = model.json.get("metadata")
    if told := [key for key in _LOUDNESS if isinstance(metadata, dict) and metadata.get(key)]:
        notes.append(f"{' and '.join(told)} in its metadata are those of the old weights")
    return notes


FORMAT = ModelFormat(
    ".nam", ("nam",), _read_nam, None, _replace_in_nam, single=True,
    needs="a head, the matrix and bias after the layers",
)  # fmt: skip


def _parse_nam(file: InputFile) -> _NamModel:
    """Return a model whose number of weights is right. Raises FileError if it is not an LSTM."""
    model = read_json_model(file)
    architecture, config = model.get("architecture"), model.get("config")
    weights = model.get("weights")
    if not isinstance(architecture, str) or not isinstance(config, dict):
        raise FileError(f"{file} is not {_MODEL}: need 'architecture', 'config' and 'weights'")
    if architecture != "LSTM":
        why = "has no recurrent layer" if architecture != "SlimmableContainer" else "is not read"
        raise FileError(f"{file} is a model of architecture {architecture[:40]!r}, which {why}")
    if not isinstance(weights, list):
        raise FileError(f"{file}: need 'weights', a list of numbers")
    i, h, layers, channels = (
        _config_size(key, {"out_channels": 1} | config, file) for key in _SIZES
    )
    own = 4 * h * (h + 1) + 2 * h
    head = layers * own + 4 * h * (i + (layers - 1) * h)
    needed = head + channels * (h + 1)
    if len(weights) != needed:
        raise FileError(
            f"{file}: weights has {len(weights)} numbers, an LSTM with input_size {i}, hidden_size"
            f" {h}, num_layers {layers} and {channels} output channels needs {needed}"
        )
    if layers > MOST_LAYERS:
        raise FileError(f"{file}: num_layers is {layers}, and up to {MOST_LAYERS} are read")
    return _NamModel(model, Spec("lstm", i, h, layers), head)


def _config_size(key: str, config: Mapping[str, Any], file: InputFile) -> int:
    size = config.get(key)
    if type(size) is not int or not 0 < size < 1 << 31:
        raise FileError(f"{file}: config has {key} {repr(size)[:40]}, need a number from 1")
    return size


def _nam_arrays(spec: Spec) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the names and shapes of the arrays in "weights", up to the head."""
    for name, shape in describe(spec, "nam").items():
        yield name, shape
        if name.endswith("b"):
            yield from ((state, (spec.hidden_size,)) for state in _STATES)


def _nam_states(name: str, weights: Weights, key: str) -> list[np.ndarray]:
    """Return an initial state of each layer. Raises LossyError if a model cannot have it."""
    spec = weights.spec
    if key not in weights.config:
        return [np.zeros(spec.hidden_size)] * spec.num_layers
    states = initial_states(weights.config, key, spec.num_layers)
    for state in states:
        if state.size != spec.hidden_size:
            raise LossyError(
                f"{name}: {key} has shape {state.shape}, and {_MODEL} runs one sequence"
            )
        if not (state.astype(np.float32) == state).all():
            raise LossyError(f"{name}: {key} is not float32: {how_to_round(key, 'float32')}")
    return states
