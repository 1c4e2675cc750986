"""Models of real-time audio: files that are a JSON object, with the weights as lists of decimals,
which the libraries read as doubles and round to float32.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np

from rnnlayout._files.tensor_sets.file_limits import InputFile, parse_json_object
from rnnlayout._files.tensor_sets.output_file import Output
from rnnlayout._model.config import changes_outputs, unwritable_settings, unwritten_settings
from rnnlayout._model.errors import Ask, FileError
from rnnlayout._model.weights import Weights
from rnnlayout._native import LayoutError, LossyError

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


def read_decimals(
    decimals: Any, label: str, notes: list[str], most_axes: int = _MOST_AXES
) -> np.ndarray:
    """Return a list of numbers, or a list of equally long lists of numbers, as float32. label: name
    of the list in messages. most_axes: how deep the lists may be. Adds a note if a number is
    rounded. Raises LayoutError for anything else, and for numbers that float32 cannot represent."""
    if not isinstance(decimals, list):
        raise LayoutError(f"{label} is a {type(decimals).__name__}, need a list of numbers")
    shape, flat = [len(decimals)], decimals
    while flat and isinstance(flat[0], list) and len(shape) < most_axes:
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
    if lost := unwritable_settings(changes_outputs(weights.config, spec), spec, layout):
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


def settings_text(settings: Mapping[str, Any]) -> str:
    """Return settings of a file for a message."""
    return ", ".join(f"{key}={repr(value)[:40]}" for key, value in settings.items())
