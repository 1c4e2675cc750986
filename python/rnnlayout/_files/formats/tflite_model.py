"""The operators and constants of a .tflite model.

Numbers of fields are from tensorflow/compiler/mlir/lite/schema/schema.fbs (2.21).

The file is a FlatBuffer. Each offset is checked against the end of the file. A table begins with
the distance to the table's vtable, which has the distance of each field from the table, 0 for a
field with the default (flatbuffers/docs/source/internals.md, 25.12).
"""

from __future__ import annotations

import math
import struct
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rnnlayout._files.tensor_sets.file_limits import Budget
from rnnlayout._model.errors import FileError
from rnnlayout._native import LayoutError


def unpack_number(data: memoryview, form: str, at: int) -> Any:
    """Return the number at a byte. form: the format, as for struct.unpack(). Raises FileError if
    the number is beyond the end of the file."""
    if not 0 <= at <= len(data) - struct.calcsize(form):
        raise FileError("an offset is beyond the end: it is cut short or damaged")
    return struct.unpack_from(form, data, at)[0]


@dataclass(frozen=True)
class FlatTable:
    """A table. at: the first byte. Fields are known by the numbers in the schema."""

    data: memoryview
    at: int

    def _field(self, number: int) -> int:
        """Return the position of a field, 0 for a field with the default."""
        vtable = self.at - unpack_number(self.data, "<i", self.at)
        if 6 + 2 * number > unpack_number(self.data, "<H", vtable):
            return 0
        distance: int = unpack_number(self.data, "<H", vtable + 4 + 2 * number)
        return self.at + distance if distance else 0

    def number(self, number: int, form: str, default: Any = 0) -> Any:
        at = self._field(number)
        return unpack_number(self.data, "<" + form, at) if at else default

    def table(self, number: int) -> FlatTable | None:
        """Return a table, None by default."""
        at = self._field(number)
        return FlatTable(self.data, at + unpack_number(self.data, "<I", at)) if at else None

    def vector(self, number: int, dtype: str) -> np.ndarray:
        """Return a vector of numbers, empty by default, as a view."""
        at = self._field(number)
        if not at:
            return np.empty(0, dtype)
        at += unpack_number(self.data, "<I", at)
        count, size = unpack_number(self.data, "<I", at), np.dtype(dtype).itemsize
        if count * size > len(self.data) - at - 4:
            raise FileError("a vector is longer than the file: it is cut short or damaged")
        return np.frombuffer(self.data, dtype, count, at + 4)

    def offsets(self, number: int) -> FlatVector:
        """Return a vector of tables."""
        distances = self.vector(number, "<u4")
        at = self._field(number)
        start = at + unpack_number(self.data, "<I", at) + 4 if at else 0
        return FlatVector(self.data, start, distances)


@dataclass(frozen=True)
class FlatVector:
    """A vector of tables, in which a table may be repeated. start: the first byte. distances: of
    each table, from the element's place in the vector."""

    data: memoryview
    start: int
    distances: np.ndarray

    def __len__(self) -> int:
        return len(self.distances)

    def __getitem__(self, k: int) -> FlatTable:
        if not 0 <= k < len(self.distances):
            raise FileError(
                f"element {k} of a list of {len(self.distances)} is used: it is damaged"
            )
        return FlatTable(self.data, self.start + 4 * k + int(self.distances[k]))


# ---------------------------------------------------------------------------------------- the model

_OPERATOR_STEPS = 16  # of the budget
_LONGEST_NAME = 200

# BuiltinOperator
RNN_CODES = {35: ("rnn", False), 44: ("lstm", False), 46: ("rnn", True), 52: ("lstm", True)}
CONCATENATION, SLICE = 2, 45
_DEQUANTIZE, _REVERSE, _CUSTOM = 6, 105, 32
_TIME_MAJOR = {35: (0, False), 44: (3, False), 46: (0, False), 52: (4, True)}  # field, default
# TensorType
_DTYPES = {0: "<f4", 1: "<f2", 2: "<i4", 3: "u1", 7: "<i2", 9: "i1"}
_INT32 = 2


@dataclass(frozen=True, eq=False)
class TFLiteOperator:
    """An operator. code: the BuiltinOperator. weak_graph: the subgraph with the operator, which the
    model keeps: in a cycle with its operators, it would keep the file mapped."""

    code: int
    table: FlatTable
    weak_graph: weakref.ref[TFLiteGraph]

    @property
    def graph(self) -> TFLiteGraph:
        graph = self.weak_graph()
        assert graph is not None, "the model keeps its subgraphs"
        return graph

    @cached_property
    def inputs(self) -> list[int]:
        """The numbers of the input tensors, -1 for an omitted input."""
        return list(map(int, self.table.vector(1, "<i4")[:64]))

    def input(self, k: int) -> int:
        return self.inputs[k] if k < len(self.inputs) else -1

    @cached_property
    def output(self) -> int:
        """The number of the first output tensor, -1 without outputs."""
        return int([*self.table.vector(2, "<i4")[:1], -1][0])

    @property
    def time_axis(self) -> int:
        """The axis of the steps in x and y of an RNN."""
        field, default = _TIME_MAJOR[self.code]
        return 0 if self.options.number(field, "?", default) else 1

    @property
    def options(self) -> FlatTable:
        options = self.table.table(4)
        if options is None:
            raise FileError("an operator has no options: it is damaged")
        return options


class TFLiteGraph:
    """A subgraph. producers: number of a tensor -> the operator that computes the tensor, for
    DEQUANTIZE, STRIDED_SLICE, REVERSE and RNNs only. reversals: number of a tensor -> a REVERSE of
    the tensor."""

    def __init__(self, tensors: FlatVector) -> None:
        self.tensors = tensors
        self.producers: dict[int, TFLiteOperator] = {}
        self.reversals: dict[int, TFLiteOperator] = {}


class TFLiteModel:
    """The operators and constants of a model. The budget limits the sum of the constants."""

    def __init__(self, data: memoryview, budget: Budget) -> None:
        self._data, self._budget = data, budget
        model = FlatTable(data, unpack_number(data, "<I", 0))
        self._buffers, self._graphs = model.offsets(4), model.offsets(2)
        codes = model.offsets(1)
        budget.charge("steps", _OPERATOR_STEPS * len(codes))
        # a byte, and since 2020 also an int32: the larger number counts
        tables = [codes[k] for k in range(len(codes))]
        self._codes = [max(table.number(0, "b"), table.number(3, "i")) for table in tables]
        self.custom_names = [
            _text_field(table, 1)
            for table, code in zip(tables, self._codes, strict=True)
            if code == _CUSTOM
        ]
        self._read = set[int]()  # the buffers of the constants that were read
        self._kept = list[TFLiteGraph]()

    def operators(self) -> Iterator[TFLiteOperator]:
        for k in range(len(self._graphs)):
            subgraph = self._graphs[k]
            graph, operators = TFLiteGraph(subgraph.offsets(0)), subgraph.offsets(3)
            self._kept.append(graph)
            self._budget.charge("steps", _OPERATOR_STEPS * (1 + len(operators)))
            for n in range(len(operators)):
                table = operators[n]
                number = table.number(0, "I")
                if number >= len(self._codes):
                    raise FileError(f"operator {n} is of kind {number} of {len(self._codes)}")
                operator = TFLiteOperator(self._codes[number], table, weakref.ref(graph))
                if operator.code in (CONCATENATION, _DEQUANTIZE, SLICE, _REVERSE):
                    self._budget.charge("steps", _OPERATOR_STEPS)  # its inputs or output are read
                if operator.code in (_DEQUANTIZE, SLICE, _REVERSE, *RNN_CODES):
                    graph.producers[operator.output] = operator
                if operator.code == _REVERSE:
                    graph.reversals[operator.input(0)] = operator
                yield operator

    def constant(self, graph: TFLiteGraph, number: int, name: str) -> tuple[np.ndarray, bool]:
        """Return a constant as floats, and whether the constant was dequantized."""
        source = graph.producers.get(number)
        if source is not None and source.code == _DEQUANTIZE:  # float16, or int8
            array, quantized = self.constant(TFLiteGraph(graph.tensors), source.input(0), name)
            return array.astype(np.float32), quantized
        tensor = graph.tensors[number]
        kind, shape = tensor.number(1, "b"), tensor.vector(0, "<i4")[:8].tolist()
        if kind not in _DTYPES:
            raise LayoutError(f"{name} has type {kind} of TFLite, which is not supported")
        if tensor.table(6) is not None:
            raise LayoutError(f"{name} is sparse: convert the model without pruning it")
        buffer = tensor.number(2, "I")
        content, dtype = self._bytes(buffer), np.dtype(_DTYPES[kind])
        self._read.add(buffer)
        if not len(content):
            raise LayoutError(f"{name} is not a constant of the model: it is computed, or an input")
        if min(shape, default=1) < 0 or math.prod(shape) * dtype.itemsize != len(content):
            raise FileError(
                f"{name}: {len(content)} bytes do not fit shape {shape} of {dtype.name}"
            )
        self._budget.charge("computed", 4 * math.prod(shape))
        array = np.frombuffer(content, dtype).reshape(shape)
        if dtype.kind == "f":
            return array, False
        return _dequantize_constant(array, tensor.table(4), name), True

    def other_constants(self) -> Iterator[str]:
        """Yield the names of the constants that were not read, without shapes and axes (int32)."""
        for k in range(len(self._graphs)):
            tensors = self._graphs[k].offsets(0)
            self._budget.charge("steps", _OPERATOR_STEPS * len(tensors))
            for n in range(len(tensors)):
                kind, buffer = tensors[n].number(1, "b"), tensors[n].number(2, "I")
                is_weight = kind in _DTYPES and kind != _INT32
                if is_weight and buffer not in self._read and len(self._bytes(buffer)):
                    name = _text_field(tensors[n], 3)
                    self._budget.charge("names", len(name))
                    yield name

    def reverses_time(self, operator: TFLiteOperator | None, rnn: TFLiteOperator) -> bool:
        """Return whether an operator reverses the steps of x or y of an RNN, and nothing else."""
        if operator is None or operator.code != _REVERSE:
            return False
        axes = self.integers(operator.graph, operator.input(1))
        return axes in ([rnn.time_axis], [rnn.time_axis - 3])

    def takes_last_step(self, operator: TFLiteOperator | None, rnn: TFLiteOperator) -> bool:
        """Return whether an operator takes the last step of y of an RNN, and nothing else."""
        if operator is None or operator.code != SLICE:
            return False
        begin, _, strides = (self.integers(operator.graph, operator.input(k)) for k in (1, 2, 3))
        time = 1 << rnn.time_axis  # a bit of the masks
        other_axes = 0b111 - time
        masks = [operator.options.number(k, "i") for k in range(5)]
        begin_mask, end_mask, ellipsis, new_axes, dropped_axes = masks
        return (
            begin == [-(axis == rnn.time_axis) for axis in range(3)]
            and strides == [1, 1, 1]
            and not begin_mask & time
            and end_mask & other_axes == other_axes
            and (ellipsis, new_axes, dropped_axes) == (0, 0, time)
        )

    def integers(self, graph: TFLiteGraph, number: int) -> list[int]:
        """Return the numbers of a short constant of int32, [] of a different tensor."""
        tensor = graph.tensors[number]
        content = self._bytes(tensor.number(2, "I"))
        is_short = tensor.number(1, "b") == _INT32 and len(content) % 4 == 0 and len(content) <= 64
        return np.frombuffer(content, "<i4").tolist() if is_short and len(content) else []

    def _bytes(self, number: int) -> memoryview:
        """Return the bytes of a buffer, inside or behind the FlatBuffer."""
        buffer = self._buffers[number]
        at, size = buffer.number(1, "Q"), buffer.number(2, "Q")
        if at > 1:
            if at + size > len(self._data):
                raise FileError("a buffer is beyond the end: it is cut short")
            return self._data[at : at + size]
        return buffer.vector(0, "u1").data


def _text_field(table: FlatTable, number: int) -> str:
    text = bytes(table.vector(number, "u1")[:_LONGEST_NAME])
    return str(text, "utf-8", "backslashreplace")


def _dequantize_constant(
    array: np.ndarray, quantization: FlatTable | None, name: str
) -> np.ndarray:
    """Return (q - zero) * scale, rounded once."""
    scale = quantization.vector(2, "<f4") if quantization else np.empty(0, "<f4")
    zero = quantization.vector(3, "<i8") if quantization else np.empty(0, "<i8")
    axis = quantization.number(6, "i") if quantization else 0
    if not scale.size:
        raise LayoutError(f"{name} is {array.dtype}, without a scale: it is not quantized weights")
    shape = [1] * array.ndim
    if scale.size > 1:
        if not 0 <= axis < array.ndim or array.shape[axis] != scale.size:
            raise FileError(f"{name}: {scale.size} scales do not fit shape {array.shape}")
        shape[axis] = scale.size
    if zero.size not in (0, 1, scale.size):
        raise FileError(f"{name}: {zero.size} zero points, {scale.size} scales")
    numbers = array.astype(np.float64)
    if zero.size:
        numbers -= zero.astype(np.float64).reshape(shape if zero.size > 1 else [1] * array.ndim)
    with np.errstate(all="ignore"):
        return np.asarray(numbers * scale.astype(np.float64).reshape(shape), np.float32)
