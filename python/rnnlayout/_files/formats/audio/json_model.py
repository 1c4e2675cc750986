"""Models that are one JSON object, with the weights as lists of decimals.

Both libraries read a decimal as a double, which they round to float32.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np

from rnnlayout._files.tensor_sets.file_limits import InputFile, parse_json_object
from rnnlayout._files.tensor_sets.output_file import Output
from rnnlayout._model.config import changes_outputs, unwritten_settings
from rnnlayout._model.errors import FileError
from rnnlayout._native import LayoutError, LossyError
from rnnlayout._weights.weights import Weights

_MOST_NBYTES = 64 << 20  # an LSTM with 512 units has 20 MB: far too slow to run live
_MOST_AXES = 2
MOST_LAYERS = 1000  # a model that runs live has less than ten


def read_json_model(file: InputFile) -> dict[str, Any]:
    """Return the object of a file. Raises FileError if it is malformed, or too large."""
    if (size := file.path.stat().st_size) > _MOST_NBYTES:
        raise FileError(f"{file} has {size} bytes, and models of up to {_MOST_NBYTES} are read")
    return parse_json_object(file.path.read_bytes(), str(file))


def write_json_model(out: Output, model: Mapping[str, Any]) -> None:
    """Write an object, of which parts may be what read_json_model() returned: their numbers stay
    the same doubles."""
    try:
        text = json.dumps(model, allow_nan=False)
    except (ValueError, RecursionError) as error:  # 1e999 is infinite in Python
        raise FileError(f"{out} cannot be written as JSON: {error}") from None
    out.path.write_text(text + "\n", encoding="ascii")


def read_decimals(found: Any, what: str, notes: list[str]) -> np.ndarray:
    """Return a list of numbers, or a list of equally long lists of them, as float32.

    what: its name in messages. Adds a note if a number has to be rounded. Raises LayoutError for
    anything else, and for numbers that float32 cannot represent.
    """
    shape: list[int] = []
    flat = [found]
    if not isinstance(found, list):
        raise LayoutError(f"{what} is a {type(found).__name__}, need a list of numbers")
    while flat and isinstance(flat[0], list) and len(shape) < _MOST_AXES:
        shape.append(len(flat[0]))
        if any(not isinstance(one, list) or len(one) != shape[-1] for one in flat):
            raise LayoutError(f"{what}: its lists are not of the same length")
        flat = list(chain.from_iterable(flat))
    for one in flat:
        if type(one) not in (int, float):
            kind = "null" if one is None else type(one).__name__
            raise LayoutError(f"{what} has a {kind}, need a list of numbers, or of lists of them")
    try:
        exact = np.array(flat, np.float64).reshape(shape)
    except OverflowError:  # an integer
        exact = np.full(1, np.inf)
    with np.errstate(over="ignore"):
        rounded = exact.astype(np.float32)
    if not np.isfinite(rounded).all():
        raise LayoutError(f"{what} has a number that exceeds the largest float32, 3.4e38")
    if count := int((rounded != exact).sum()):
        notes.append(f"{what}: {count} of {exact.size} decimals are not float32: rounded once")
    return rounded


def check_json_model_has(
    name: str, weights: Weights, what: str, cells: tuple[str, ...], settings: tuple[str, ...] = ()
) -> None:
    """Raise LossyError if a model for a library cannot have this RNN.

    what: the model, for messages. cells: those that it has. settings: those of Weights.config.
    """
    spec = weights.spec
    lacks = {
        f"cell {spec.cell}": spec.cell not in cells,
        "a second direction": spec.bidirectional,
        f"reset {spec.reset!r}": spec.reset != "after",
        f"recurrent_activation {spec.recurrent_activation!r}": spec.recurrent_activation
        != "sigmoid",
        f"activation {spec.activation!r}": spec.activation != "tanh",
    }
    for found in (found for found, is_so in lacks.items() if is_so):
        raise LossyError(f"{name} has {found}, which {what} cannot represent")
    others = {k: v for k, v in changes_outputs(weights.config).items() if k not in settings}
    if others:
        raise unwritten_settings(name, others, f"unknown to {what}; to leave it out")
    if spec.dtype != "float32":
        raise LossyError(
            f"{name} is {spec.dtype}, {what} has float32: convert it with"
            f" .to({weights.layout.name!r}, dtype='float32') first, or --dtype float32"
        )
    for tensor, array in weights.items():
        if not np.isfinite(array).all():
            raise LossyError(f"{name}: {tensor} has a number that is not finite, as JSON lacks it")
