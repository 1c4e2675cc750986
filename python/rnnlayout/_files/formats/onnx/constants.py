"""Constants of an ONNX graph: tensors, and what simple nodes compute of them.

Exporters leave weights in steps: slices of gates put together in another order, a dimension more,
a cast, a scale. These are followed; anything else is no constant here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rnnlayout._model.errors import FileError
from rnnlayout._native import LayoutError, bfloat16

from .graph import INPUT, Scope, attributes_of, package

MOST_DIMENSIONS = 8
MOST_STEPS = 10_000  # of all chains of a file: torch writes some 300 for a layer
MOST_LONG = 100  # steps of one chain after another
FREE_NBYTES = 16 << 20  # what may be computed of any file
MOST_TIMES = 8  # beyond that, of a file's own size: int8 becomes float32, and is transposed

# By the number of TensorProto.DataType: the dtype, and the field of values that are not raw.
_TYPES = {
    1: ("float32", "float_data"),
    2: ("uint8", "int32_data"),
    3: ("int8", "int32_data"),
    4: ("uint16", "int32_data"),
    5: ("int16", "int32_data"),
    6: ("int32", "int32_data"),
    7: ("int64", "int64_data"),
    9: ("bool", "int32_data"),
    10: ("float16", "int32_data"),
    11: ("float64", "double_data"),
    16: ("bfloat16", "int32_data"),
}
# What NumPy, or a missing input or attribute, raises where a node makes no sense.
_SENSELESS = (ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError)
NUMBERS = {name: number for number, (name, _) in _TYPES.items()}


def dtype_of(number: int, what: str) -> np.dtype:
    """The NumPy dtype of a number of TensorProto.DataType. LayoutError: there is none here."""
    if number not in _TYPES:
        kinds = package().TensorProto.DataType
        name = kinds.Name(number).lower() if number in kinds.values() else f"type {number}"
        raise LayoutError(f"{what} is {name}: not known here")
    name = _TYPES[number][0]
    return bfloat16() if name == "bfloat16" else np.dtype(name)


def array_of(tensor: Any, what: str) -> np.ndarray:
    """The array of a TensorProto, which lies in the file itself."""
    if tensor.data_location == tensor.EXTERNAL or tensor.external_data:
        raise FileError(
            f"{what}: tensor {tensor.name!r} lies in another file. A model that names other files"
            " is not followed: load it with onnx.load(path), look at it, and write it into one"
            " file with onnx.save(model, path, save_as_external_data=False)"
        )
    dims = list(tensor.dims)
    if len(dims) > MOST_DIMENSIONS or any(n < 0 for n in dims) or tensor.HasField("segment"):
        raise FileError(f"{what}: tensor {tensor.name!r} has no shape that makes sense")
    dtype, claimed = dtype_of(tensor.data_type, what), math.prod(dims)
    if tensor.HasField("raw_data"):
        raw = tensor.raw_data
        _check_length(tensor, len(raw), claimed * dtype.itemsize, "bytes")
        values = _little_endian(raw, dtype)
    else:
        held = getattr(tensor, _TYPES[tensor.data_type][1])
        _check_length(tensor, len(held), claimed, "elements")
        values = np.array(held, np.float64 if dtype == np.float64 else None)
        if dtype.itemsize == 2 and dtype.kind not in "iu":  # its bits
            values = values.astype(np.uint16).view(dtype)
        values = values.astype(dtype, copy=False)
    try:
        return values.reshape(dims)
    except ValueError as error:  # no element, and sizes that NumPy has no number for
        raise FileError(f"tensor {tensor.name!r} of shape {dims}: {error}") from None


def _little_endian(raw: bytes, dtype: np.dtype) -> np.ndarray:
    carrier = np.dtype(f"<u{dtype.itemsize}")
    values = np.frombuffer(raw, carrier)
    return values.astype(carrier.newbyteorder("="), copy=False).view(dtype)


def _check_length(tensor: Any, found: int, needed: int, unit: str) -> None:
    if found != needed:
        raise FileError(
            f"tensor {tensor.name!r} of shape {tuple(tensor.dims)} needs {needed} {unit}, it has"
            f" {found}"
        )


class Constants:
    """The constants of one file. size: its length in bytes."""

    def __init__(self, size: int) -> None:
        self._nbytes_left = FREE_NBYTES + MOST_TIMES * size
        self._steps_left = MOST_STEPS
        self._tensors: dict[int, tuple[Any, np.ndarray]] = {}  # id -> its TensorProto, array

    def charge(self, nbytes: int) -> None:
        """Ask, before an array is made, whether there may be one more of this size."""
        self._nbytes_left -= nbytes
        if self._nbytes_left < 0:
            raise FileError(
                f"its weights are computed, and grow beyond {MOST_TIMES} times the file: refused"
                " as a bomb"
            )

    def leaves(self, tensor: Any) -> bool:
        """Is it a weight that nobody has asked for? Of int64 are shapes and axes."""
        return id(tensor) not in self._tensors and tensor.data_type != NUMBERS["int64"]

    def get(self, scope: Scope, name: str, what: str, depth: int = 0) -> np.ndarray:
        """The array that a name stands for. LayoutError: it is no constant."""
        scope, made = scope.find(name)
        if made is INPUT:
            where = "a graph" if scope.outer is None else "a subgraph"
            raise LayoutError(
                f"{what} is computed from {name!r}, an input of {where}: it has no value in the"
                " file"
            )
        kind = type(made).__name__
        if kind == "SparseTensorProto":
            raise LayoutError(f"{what}: {name!r} is a sparse tensor: make it a dense one first")
        if kind == "TensorProto":
            if id(made) not in self._tensors:
                self._tensors[id(made)] = made, array_of(made, what)
            return self._tensors[id(made)][1]
        return self._compute(scope, made, what, depth)

    def _compute(self, scope: Scope, node: Any, what: str, depth: int) -> np.ndarray:
        self._steps_left -= 1
        if self._steps_left < 0 or depth > MOST_LONG:
            raise FileError(f"{what} is computed in too many steps, or of itself: refused")
        attributes = attributes_of(node, scope)
        told = f"node {node.name or node.output[0]!r} ({node.op_type})"
        if node.op_type == "Constant":
            return _constant(attributes, what)
        fold = _FOLDS.get(node.op_type)
        if fold is None or node.domain not in ("", "ai.onnx", "com.microsoft"):
            raise LayoutError(
                f"{what} is computed by {told}: only constants are read, and of what is computed"
                f" of them {', '.join(_FOLDS)}"
            )
        given = [self.get(scope, n, what, depth + 1) if n else None for n in node.input]
        try:
            return fold(self, given, attributes)
        except (FileError, LayoutError):
            raise
        except _SENSELESS as error:
            raise FileError(f"{what}: {told} cannot be computed: {error}") from None


def _constant(attributes: dict[str, Any], what: str) -> np.ndarray:
    if "value" in attributes:
        return array_of(attributes["value"].t, what)
    for name, field, dtype in (
        ("value_float", "f", np.float32),
        ("value_floats", "floats", np.float32),
        ("value_int", "i", np.int64),
        ("value_ints", "ints", np.int64),
    ):
        if name in attributes:
            return np.array(getattr(attributes[name], field), dtype)
    raise LayoutError(f"{what} comes from a Constant that is no dense array of numbers")


# --------------------------------------------- what is computed: of a file, inputs and attributes


def _ints(given: list[Any], k: int, attributes: dict[str, Any], name: str) -> list[int] | None:
    """A list of whole numbers, an attribute in older versions of an operator and an input since."""
    if name in attributes:
        return list(attributes[name].ints)
    if k >= len(given) or given[k] is None:
        return None
    return [int(n) for n in given[k].ravel()[: MOST_DIMENSIONS + 1]]


def _identity(file: Constants, given: list[Any], attributes: dict[str, Any]) -> np.ndarray:
    return np.asarray(given[0])


def _cast(file: Constants, given: list[Any], attributes: dict[str, Any]) -> np.ndarray:
    dtype = dtype_of(attributes["to"].i, "a Cast's result")
    file.charge(given[0].size * dtype.itemsize if dtype != given[0].dtype else 0)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(given[0].astype(dtype, copy=False))


def _transpose(file: Constants, given: list[Any], attributes: dict[str, Any]) -> np.ndarray:
    perm = list(attributes["perm"].ints) if "perm" in attributes else None
    return np.asarray(np.transpose(given[0], perm))


def _reshape(file: Constants, given: list[Any], attributes: dict[str, Any]) -> np.ndarray:
    shape = _ints(given, 1, attributes, "shape") or []
    copies = not ("allowzero" in attributes and attributes["allowzero"].i)
    file.charge(given[0].nbytes)
    kept = [given[0].shape[k] if copies and n == 0 else n for k, n in enumerate(shape)]
    return np.asarray(np.reshape(given[0], kept))


def _unsqueeze(file: Constants, given: list[Any], attributes: dict[str, Any]) -> np.ndarray:
    axes = _ints(given, 1, attributes, "axes") or []
    return np.asarray(np.expand_dims(given[0], tuple(axes)))


def _squeeze(file: Constants, given: list[Any], attributes: dict[str, Any]) -> np.ndarray:
    axes = _ints(given, 1, attributes, "axes")
    return np.asarray(np.squeeze(given[0], None if axes is None else tuple(axes)))


def _concat(file: Constants, given: list[Any], attributes: dict[str, Any]) -> np.ndarray:
    file.charge(sum(array.nbytes for array in given))
    return np.asarray(np.concatenate(given, attributes["axis"].i))


def _slice(file: Constants, given: list[Any], attributes: dict[str, Any]) -> np.ndarray:
    starts = _ints(given, 1, attributes, "starts") or []
    ends = _ints(given, 2, attributes, "ends") or []
    axes = _ints(given, 3, attributes, "axes") or list(range(len(starts)))
    steps = _ints(given, 4, {}, "") or [1] * len(starts)
    parts = [slice(None)] * given[0].ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        parts[axis] = slice(start, end, step)  # clamped as in ONNX
    return np.asarray(given[0][tuple(parts)])


def _dequantize(file: Constants, given: list[Any], attributes: dict[str, Any]) -> np.ndarray:
    quantized, scale, zero = (*given, None)[:3]
    if "block_size" in attributes and attributes["block_size"].i:
        raise LayoutError("weights that are quantised in blocks: dequantise the model first")
    if scale.ndim:
        shape = [1] * quantized.ndim
        shape[attributes["axis"].i if "axis" in attributes else 1] = scale.size
        shape = shape if scale.size > 1 else [1] * quantized.ndim
        scale = scale.reshape(shape)
        zero = None if zero is None else zero.reshape(shape)
    return dequantized(file, quantized, scale, zero)


def dequantized(constants: Constants, quantized: Any, scale: Any, zero: Any) -> np.ndarray:
    """(q - zero) * scale: the difference is exact in float32, the product is rounded once."""
    if quantized.dtype.kind not in "iu" or quantized.dtype.itemsize > 2:
        raise LayoutError(
            f"quantised weights are {quantized.dtype}, known are those of 8 and 16 bits"
        )
    if scale.dtype != np.float32:
        raise LayoutError(f"quantised weights have a scale of {scale.dtype}, need float32")
    constants.charge(4 * math.prod(np.broadcast_shapes(quantized.shape, scale.shape)))
    numbers = quantized.astype(np.float32)
    if zero is not None:
        numbers -= zero.astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        return np.asarray(numbers * scale)


_FOLDS: dict[str, Callable[[Constants, list[Any], dict[str, Any]], np.ndarray]] = {
    "Identity": _identity,
    "Cast": _cast,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Concat": _concat,
    "Slice": _slice,
    "DequantizeLinear": _dequantize,
}
