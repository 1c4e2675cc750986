"""Constants of an ONNX graph: tensors, and the results of simple nodes on tensors.

Exporters store weights in steps: slices of gates concatenated in a new order, an added dimension, a
cast, a scale. The nodes in the table _FOLDS are computed; results of all further nodes are not
constants here.

A tensor may be in an external file, such as torch.onnx.export's m.onnx.data: a companion of the
model (InputFile.companion), opened only if a tensor of an RNN is in it.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from rnnlayout._files.tensor_sets.file_limits import InputFile
from rnnlayout._model.errors import FileError
from rnnlayout._native import LayoutError, bfloat16

from .graph import INPUT, Attributes, GraphScope, attributes_of, integer_attribute

_NUMBER = re.compile(r"[0-9]{1,19}")
_SHOWN = 100  # characters of a name
_ONE_FILE = (
    "write the model into one file: torch.onnx.export(..., external_data=False), or"
    " onnx.save(onnx.load(path), new, save_as_external_data=False)"
)


def is_external(tensor: Any) -> bool:
    return bool(tensor.data_location == tensor.EXTERNAL or tensor.external_data)


def _whole_number(text: Any, label: str) -> int:
    if not isinstance(text, str) or not _NUMBER.fullmatch(text):
        raise FileError(f"{label}: its place {text[:_SHOWN]!r} is not a number: {_ONE_FILE}")
    return int(text)


# ---------------------------------------------------------------------------------------- constants

MOST_DIMENSIONS = 8
MOST_LONG = 100  # steps in a chain
# Of the budget, per step of a chain, and per input; torch writes about 300 steps per layer.
_STEPS, _INPUT_STEPS = 80, 8

# TensorProto.DataType -> the dtype, and the field of numbers that are not raw.
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
NUMBERS = {name: number for number, (name, _) in _TYPES.items()}
_DOMAINS = ("", "ai.onnx", "com.microsoft")
# The nodes that repeat a state, and the nodes that only move elements of a state.
_REPEATS = ("Expand", "Tile", "ConstantOfShape")
_MOVES = ("Identity", "Transpose", "Unsqueeze", "Squeeze", "Slice", "Gather", "Concat")
_ONCE = np.ones(3, np.int64)  # repetitions per dimension
# The attributes of a Constant: the field of the AttributeProto, and the dtype.
_CONSTANTS = {
    "value_float": ("f", np.float32),
    "value_floats": ("floats", np.float32),
    "value_int": ("i", np.int64),
    "value_ints": ("ints", np.int64),
}
# Errors of NumPy, and of a missing input or attribute, for an invalid node.
_INVALID = (ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError)


def _dtype_of(number: int, label: str) -> np.dtype:
    if number not in _TYPES:
        kinds = sys.modules["onnx"].TensorProto.DataType
        name = kinds.Name(number).lower() if number in kinds.values() else f"type {number}"
        dtypes = ", ".join(dtype for dtype, _ in _TYPES.values())
        raise LayoutError(f"{label} is {name}, which is not supported: need one of {dtypes}")
    name = _TYPES[number][0]
    return bfloat16() if name == "bfloat16" else np.dtype(name)


class Constants:
    """The constants of the model in `file`. An external file is opened when the first tensor needs
    the file."""

    def __init__(self, file: InputFile) -> None:
        self._file, self._budget = file, file.budget
        self._external_files: dict[str, memoryview] = {}
        self._tensors: dict[int, tuple[Any, np.ndarray]] = {}  # id -> TensorProto, array

    def charge(self, nbytes: int) -> None:
        """Take the memory of an array from the budget before the array exists. Raises FileError if
        the budget is exhausted."""
        self._budget.charge("computed", max(0, nbytes))  # for a negative size NumPy raises

    def charge_weights(self, nbytes: int) -> None:
        """Take a weight or a state from the budget, for each node that uses the array."""
        self._budget.charge_weights(nbytes)

    def charge_inputs(self, count: int) -> None:
        """Take the inputs of a node from the budget, each time that the node is followed."""
        self._budget.charge("steps", _STEPS + _INPUT_STEPS * count)

    def array_of(self, tensor: Any, label: str) -> np.ndarray:
        bits = self.bits_of(tensor, label)
        dims = list(tensor.dims)
        if len(dims) > MOST_DIMENSIONS or any(n < 0 for n in dims) or tensor.HasField("segment"):
            raise FileError(f"{label}: tensor {tensor.name!r} has an invalid shape")
        dtype, count = _dtype_of(tensor.data_type, label), math.prod(dims)
        content = bits if bits is not None else getattr(tensor, _TYPES[tensor.data_type][1])
        needed, unit = (count, "elements") if bits is None else (count * dtype.itemsize, "bytes")
        if len(content) != needed:
            raise FileError(
                f"tensor {tensor.name!r} {tuple(dims)} needs {needed} {unit}, it has {len(content)}"
            )
        if bits is not None:
            carrier = np.dtype(f"<u{dtype.itemsize}")
            values = np.frombuffer(bits, carrier)
            values = values.astype(carrier.newbyteorder("="), copy=False).view(dtype)
        else:
            values = np.array(content, np.float64 if dtype == np.float64 else None)
            if dtype.itemsize == 2 and dtype.kind not in "iu":  # float16 and bfloat16 as bits
                values = values.astype(np.uint16).view(dtype)
            values = values.astype(dtype, copy=False)
        try:
            return values.reshape(dims)
        except ValueError as error:  # no elements, and sizes beyond NumPy's limit
            raise FileError(f"tensor {tensor.name!r} of shape {dims}: {error}") from None

    def bits_of(self, tensor: Any, label: str) -> bytes | memoryview | None:
        """Return the bytes of a TensorProto, also from an external file; None if the TensorProto
        has numbers instead of bytes."""
        if is_external(tensor):
            bits = self._external_bytes(tensor, label)
            self.charge(len(bits))  # of every tensor, because tensors may share bytes
            return bits
        return tensor.raw_data if tensor.HasField("raw_data") else None

    def _external_bytes(self, tensor: Any, label: str) -> memoryview:
        """Return the bytes of a tensor in an external file. Raises FileError if the file is too
        short, or not a regular file in the model's folder."""
        label = f"{label}: tensor {tensor.name[:_SHOWN]!r}"
        if tensor.data_location != tensor.EXTERNAL or tensor.HasField("raw_data"):
            raise FileError(f"{label} is stored in the model and in another file: {_ONE_FILE}")
        pairs = [(entry.key, entry.value) for entry in tensor.external_data]
        place = dict(pairs)
        if len(place) < len(pairs):
            raise FileError(f"{label}: it is recorded twice where it is stored: {_ONE_FILE}")
        name = place.get("location", "")
        if name not in self._external_files:
            self._external_files[name] = self._map_external_file(name, label)
        content = self._external_files[name]
        start = _whole_number(place.get("offset", "0"), label)
        count = _whole_number(place.get("length", f"{max(0, len(content) - start)}"), label)
        if start + count > len(content):
            raise FileError(
                f"{label} is stored in bytes {start} to {start + count} of {name}, which has"
                f" {len(content)}: it is cut short, or belongs to another model: export both files"
                " again, or into one with external_data=False"
            )
        return content[start : start + count]

    def _map_external_file(self, name: Any, label: str) -> memoryview:
        try:
            external_file = self._file.companion(name)
            has_bytes = os.path.getsize(external_file)  # an empty file cannot be mapped
            return memoryview(external_file.data() if has_bytes else b"")
        except FileError as error:
            why = f"{label} is stored in another file: "
            raise FileError(why, error, f"; or {_ONE_FILE}") from None

    def is_unused_weight(self, tensor: Any) -> bool:
        """Return whether a tensor may be a weight, and has not been read for an RNN. (Tensors of
        int64 are shapes and axes.)"""
        return id(tensor) not in self._tensors and tensor.data_type != NUMBERS["int64"]

    def get(self, scope: GraphScope, name: str, label: str, depth: int = 0) -> np.ndarray:
        """Return the array that a name refers to. Raises LayoutError if the array is not a
        constant."""
        scope, definition = scope.find(name)
        if definition is INPUT:
            graph = "a graph" if scope.outer is None else "a subgraph"
            raise LayoutError(
                f"{label} is computed from {name!r}, an input of {graph}: it is not in the file"
            )
        kind = type(definition).__name__
        if kind == "SparseTensorProto":
            raise LayoutError(f"{label}: {name!r} is a sparse tensor: make it a dense one first")
        if kind == "TensorProto":
            if id(definition) not in self._tensors:
                self._tensors[id(definition)] = definition, self.array_of(definition, label)
            return self._tensors[id(definition)][1]
        node = definition
        self._check_steps(label, depth, node)
        if node.op_type == "Constant":
            attributes = attributes_of(node, scope)
            if "value" in attributes:
                return self.array_of(attributes["value"].t, label)
            for key, (field, dtype) in _CONSTANTS.items():
                if key in attributes:
                    return np.array(getattr(attributes[key], field), dtype)
            raise LayoutError(f"{label} comes from a Constant that is not a dense array of numbers")
        if node.op_type not in _FOLDS or node.domain not in _DOMAINS:
            raise LayoutError(
                f"{label} is computed by {_title(node)}, need a constant or {', '.join(_FOLDS)}"
            )
        inputs = [self.get(scope, n, label, depth + 1) if n else None for n in node.input]
        return self._fold(scope, node, inputs, label)

    def _check_steps(self, label: str, depth: int, node: Any) -> None:
        self.charge_inputs(len(node.input))
        if depth > MOST_LONG:
            raise FileError(f"{label} is computed in too many steps, or from itself: refused")

    def _fold(self, scope: GraphScope, node: Any, inputs: list[Any], label: str) -> np.ndarray:
        try:
            return np.asarray(_FOLDS[node.op_type](self, inputs, attributes_of(node, scope)))
        except (FileError, LayoutError):
            raise
        except _INVALID as error:
            raise FileError(f"{label}: {_title(node)} cannot be computed: {error}") from None

    def get_unrepeated(
        self, scope: GraphScope, name: str, label: str, depth: int = 0
    ) -> np.ndarray:
        """Return a state of three dimensions without the repetition for each sequence. The size of
        a batch is not a constant, so axes on which nodes repeat the state have size 1. Raises
        LayoutError or FileError if the state is not computed from constants by simple nodes."""
        scope, node = scope.find(name)
        kind = node.op_type if getattr(node, "domain", None) in _DOMAINS else ""
        if kind not in _REPEATS + _MOVES:
            return self.get(scope, name, label, depth)
        self._check_steps(label, depth, node)
        if kind == "ConstantOfShape":
            return self._fold(scope, node, [self._times(scope, node.input[0], label, depth)], label)
        if kind == "Concat":
            parts = [self.get_unrepeated(scope, n, label, depth + 1) for n in node.input]
            return self._fold(scope, node, parts, label)
        first = self.get_unrepeated(scope, node.input[0], label, depth + 1)
        if kind in _REPEATS:
            times = self._times(scope, node.input[1], label, depth)
            return self._fold(scope, node, [first, times], label)
        if first.size == 1:  # all elements of the state are equal, whatever their order
            return first
        arguments = [self.get(scope, n, label, depth + 1) if n else None for n in node.input[1:]]
        part = self._fold(scope, node, [first, *arguments], label)
        return part if part.size else first  # all parts of a repeated state are the same

    def _times(self, scope: GraphScope, name: str, label: str, depth: int) -> np.ndarray:
        """Return how often a node repeats a state: once, if the number is not a constant."""
        try:
            return self.get(scope, name, label, depth + 1)
        except LayoutError:
            return _ONCE


def _title(node: Any) -> str:
    return f"node {node.name or node.output[0]!r} ({node.op_type})"


# ---------------------------------- the result of a node, from the file, the inputs and attributes


def _integers(inputs: list[Any], k: int, attributes: Attributes, name: str) -> list[int] | None:
    """Return a list of integers: an attribute in old versions of an operator, now an input."""
    if name in attributes:
        return list(attributes[name].ints)
    if k >= len(inputs) or inputs[k] is None:
        return None
    return list(_whole_numbers(inputs[k]))


def _cast(file: Constants, inputs: list[Any], attributes: Attributes) -> Any:
    dtype = _dtype_of(attributes["to"].i, "a Cast's result")
    file.charge(inputs[0].size * dtype.itemsize if dtype != inputs[0].dtype else 0)
    with np.errstate(over="ignore", invalid="ignore"):
        return inputs[0].astype(dtype, copy=False)


def _reshape(file: Constants, inputs: list[Any], attributes: Attributes) -> Any:
    shape = _integers(inputs, 1, attributes, "shape") or []
    copies = not integer_attribute(attributes, "allowzero")
    file.charge(inputs[0].nbytes)
    sizes = [inputs[0].shape[k] if copies and n == 0 else n for k, n in enumerate(shape)]
    return np.reshape(inputs[0], sizes)


def _concat(file: Constants, inputs: list[Any], attributes: Attributes) -> Any:
    file.charge(sum(array.nbytes for array in inputs))
    return np.concatenate(inputs, attributes["axis"].i)


def _slice(file: Constants, inputs: list[Any], attributes: Attributes) -> Any:
    starts = _integers(inputs, 1, attributes, "starts") or []
    ends = _integers(inputs, 2, attributes, "ends") or []
    axes = _integers(inputs, 3, attributes, "axes") or list(range(len(starts)))
    steps = _integers(inputs, 4, {}, "") or [1] * len(starts)
    parts = [slice(None)] * inputs[0].ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        parts[axis] = slice(start, end, step)  # clamped as in ONNX
    return inputs[0][tuple(parts)]


def _whole_numbers(array: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in array.ravel()[: MOST_DIMENSIONS + 1])


def _gather(file: Constants, inputs: list[Any], attributes: Attributes) -> Any:
    array, index, axis = inputs[0], inputs[1], integer_attribute(attributes, "axis")
    file.charge(array.nbytes // max(1, array.shape[axis]) * index.size)
    return np.take(array, index, axis)


def _expand(file: Constants, inputs: list[Any], attributes: Attributes) -> Any:
    shape = np.broadcast_shapes(inputs[0].shape, _whole_numbers(inputs[1]))
    file.charge(math.prod(shape) * inputs[0].itemsize)
    return np.broadcast_to(inputs[0], shape)


def _tile(file: Constants, inputs: list[Any], attributes: Attributes) -> Any:
    times = _whole_numbers(inputs[1])
    file.charge(math.prod(times) * inputs[0].nbytes)
    return np.tile(inputs[0], times)


def _full(file: Constants, inputs: list[Any], attributes: Attributes) -> Any:
    value = np.zeros(1, np.float32)
    if "value" in attributes:
        value = file.array_of(attributes["value"].t, "a value")
    shape = _whole_numbers(inputs[0])
    file.charge(math.prod(shape) * value.itemsize)
    return np.full(shape, value.reshape(()))


def _dequantize(file: Constants, inputs: list[Any], attributes: Attributes) -> Any:
    quantized, scale, zero = (*inputs, None)[:3]
    if integer_attribute(attributes, "block_size"):
        raise LayoutError("weights quantized in blocks are not supported: dequantize the model")
    if scale.ndim:
        shape = [1] * quantized.ndim
        shape[integer_attribute(attributes, "axis", 1)] = scale.size
        shape = shape if scale.size > 1 else [1] * quantized.ndim
        scale = scale.reshape(shape)
        zero = None if zero is None else zero.reshape(shape)
    return dequantize(file, quantized, scale, zero)


def dequantize(file: Constants, quantized: Any, scale: Any, zero: Any) -> np.ndarray:
    """Return (q - zero) * scale: the difference is exact in float32, the product rounds once."""
    if quantized.dtype.kind not in "iu" or quantized.dtype.itemsize > 2:
        raise LayoutError(f"quantized weights are {quantized.dtype}, need integers of 8 or 16 bits")
    if scale.dtype != np.float32:
        raise LayoutError(f"the scale of quantized weights is {scale.dtype}, need float32")
    file.charge(4 * math.prod(np.broadcast_shapes(quantized.shape, scale.shape)))
    numbers = quantized.astype(np.float32)
    if zero is not None:
        numbers -= zero.astype(np.float32)
    with np.errstate(all="ignore"):
        return np.asarray(numbers * scale)


_FOLDS: dict[str, Callable[[Constants, list[Any], Attributes], Any]] = {
    "Identity": lambda file, inputs, attributes: inputs[0],
    "Cast": _cast,
    "Transpose": lambda file, inputs, attributes: np.transpose(
        inputs[0], attributes["perm"].ints if "perm" in attributes else None
    ),
    "Reshape": _reshape,
    "Unsqueeze": lambda file, inputs, attributes: np.expand_dims(
        inputs[0], tuple(_integers(inputs, 1, attributes, "axes") or ())
    ),
    "Squeeze": lambda file, inputs, attributes: np.squeeze(
        inputs[0],
        None if (axes := _integers(inputs, 1, attributes, "axes")) is None else tuple(axes),
    ),
    "Concat": _concat,
    "Slice": _slice,
    "Gather": _gather,
    "Expand": _expand,
    "Tile": _tile,
    "ConstantOfShape": _full,
    "DequantizeLinear": _dequantize,
}
