""".tflite: the operators UNIDIRECTIONAL_ and BIDIRECTIONAL_SEQUENCE_LSTM and _RNN of a model.

Numbers of fields are from tensorflow/compiler/mlir/lite/schema/schema.fbs, positions of inputs from
tensorflow/lite/kernels: lstm_shared.h, bidirectional_sequence_lstm.cc,
unidirectional_sequence_rnn.cc, bidirectional_sequence_rnn.cc (2.21).

The file is a FlatBuffer. Each offset is checked against the end of the file. A table begins with
the distance to the table's vtable, which has the distance of each field from the table, 0 for a
field with the default (flatbuffers/docs/source/internals.md, 25.12).
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rnnlayout._files.tensor_sets.file_limits import Budget, InputFile, name_file
from rnnlayout._files.tensor_sets.file_rnns import Found, distinct_names
from rnnlayout._model.errors import FileError, error_with_name
from rnnlayout._model.spec import Spec
from rnnlayout._model.weights import Weights, changed_weights
from rnnlayout._native import LayoutError, LossyError
from rnnlayout._sources.mismatch import list_names
from rnnlayout._sources.read_tensors import read_described
from rnnlayout._sources.reading import Reading
from rnnlayout._sources.tensor_paths import is_under_with_direction

from .registry import ModelFormat


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

_OPERATOR_STEPS, _RNN_STEPS = 16, 1600  # of the budget

# BuiltinOperator
_RNNS = {35: ("rnn", False), 44: ("lstm", False), 46: ("rnn", True), 52: ("lstm", True)}
_DEQUANTIZE, _REVERSE, _CUSTOM, _WHILES = 6, 105, 32, (119, 200)
_ONE_STEP = {16: "LSTM", 24: "RNN", 27: "SVDF"}
_TIME_MAJOR = {35: (0, False), 44: (3, False), 46: (0, False), 52: (4, True)}  # field, default
# TensorType
_DTYPES = {0: "<f4", 1: "<f2", 2: "<i4", 3: "u1", 7: "<i2", 9: "i1"}
_INT32 = 2
_ACTIVATIONS = {1: "relu", 4: "tanh"}
_RNN_NAME = re.compile("rnn|lstm|gru", re.IGNORECASE)  # in the name of a custom operator
_LONGEST_NAME, _LISTED = 200, 3

_GATES = ("input", "forget", "cell", "output")
# The tensors of a direction, in the order of the inputs.
_LSTM = (
    *(f"input_to_{gate}_weights" for gate in _GATES),
    *(f"recurrent_to_{gate}_weights" for gate in _GATES),
    *(f"cell_to_{gate}_weights" for gate in ("input", "forget", "output")),
    *(f"{gate}_gate_bias" for gate in _GATES),
    "projection_weights",
    "projection_bias",
)
_RNN = ("input_weights", "recurrent_weights", "bias")
_NORMS = range(20, 24)  # inputs for layer normalization, of an LSTM without a backward direction
_MOST_INPUTS = {35: 5, 44: 24, 46: 12, 52: 48}  # code of the operator -> number of its inputs
_AUXILIARY = {"lstm": 39, "rnn": 9}  # a second input of x, of RNNs with a backward direction


@dataclass(frozen=True)
class TFLiteOperator:
    """An operator. code: the BuiltinOperator. graph: the subgraph with the operator."""

    code: int
    table: FlatTable
    graph: TFLiteGraph

    @cached_property
    def inputs(self) -> list[int]:
        """The numbers of the input tensors, -1 for an omitted input."""
        return list(map(int, self.table.vector(1, "<i4")[:64]))

    def input(self, k: int) -> int:
        return self.inputs[k] if k < len(self.inputs) else -1

    @property
    def options(self) -> FlatTable:
        options = self.table.table(4)
        if options is None:
            raise FileError("an operator has no options: it is damaged")
        return options


class TFLiteGraph:
    """A subgraph. producers: number of a tensor -> the operator that computes the tensor, for
    DEQUANTIZE and REVERSE only."""

    def __init__(self, tensors: FlatVector) -> None:
        self.tensors = tensors
        self.producers: dict[int, TFLiteOperator] = {}


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

    def operators(self) -> Iterator[TFLiteOperator]:
        for k in range(len(self._graphs)):
            subgraph = self._graphs[k]
            graph, operators = TFLiteGraph(subgraph.offsets(0)), subgraph.offsets(3)
            self._budget.charge("steps", _OPERATOR_STEPS * (1 + len(operators)))
            for n in range(len(operators)):
                table = operators[n]
                number = table.number(0, "I")
                if number >= len(self._codes):
                    raise FileError(f"operator {n} is of kind {number} of {len(self._codes)}")
                operator = TFLiteOperator(self._codes[number], table, graph)
                if operator.code in (_DEQUANTIZE, _REVERSE):
                    for output in table.vector(2, "<i4")[:1].tolist():
                        graph.producers[output] = operator
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


# ------------------------------------------------------------------------------- operators as RNNs


def _read_operator(
    model: TFLiteModel, operator: TFLiteOperator, name: str, notes: list[str]
) -> Weights:
    cell, bidirectional = _RNNS[operator.code]
    reasons = {
        "it has a coupled input gate (i = 1 - f, without input_to_input_weights)": cell == "lstm"
        and any(operator.input(1 + 17 * k) < 0 for k in range(1 + bidirectional)),
        "it has layer normalization": cell == "lstm"
        and not bidirectional
        and any(operator.input(k) >= 0 for k in _NORMS),
        f"it has more than {_MOST_INPUTS[operator.code]} inputs": len(operator.inputs)
        > _MOST_INPUTS[operator.code],
        "it has an auxiliary input": bidirectional and operator.input(_AUXILIARY[cell]) >= 0,
    }
    for reason, applies in reasons.items():
        if applies:
            raise LossyError(f"{reason}, which no layout can represent")
    if operator.code == 44 and operator.options.number(5, "?"):
        raise LossyError("its recurrent matrices are diagonals: no layout can represent that")
    roles = _LSTM if cell == "lstm" else _RNN
    step = len(roles) + (cell == "rnn")  # in a plain RNN a state precedes the next direction
    tensors: dict[str, np.ndarray] = {}
    quantized = False
    for k, side in enumerate(("forward", "backward")[: 1 + bidirectional]):
        for n, role in enumerate(roles):
            number = operator.input(1 + k * step + n)
            key = f"0/{side}/{role}" if bidirectional else role
            if number >= 0:
                tensors[key], is_quantized = model.constant(operator.graph, number, role)
                quantized |= is_quantized
    if quantized:
        notes.append(
            f"{name}: its weights were dequantized to float32; the operator also rounds its inputs"
            " to 8 bits, which these weights do not reproduce"
        )
    for key in [key for key in tensors if key.endswith("projection_bias")]:
        if tensors.pop(key).any():
            raise LossyError("projection_bias is not 0, which no layout can represent")
    spec = _spec_of(cell, bidirectional, tensors, operator)
    arrays = {key: np.ascontiguousarray(array) for key, array in tensors.items()}
    rnn = read_described(arrays, spec, "tflite")
    config = dict[str, Any]()
    field, default = _TIME_MAJOR[operator.code]
    time_major = bool(operator.options.number(field, "?", default))
    for k, key in enumerate(("cell_clip", "proj_clip") if cell == "lstm" else (), 1):
        if (clip := operator.options.number(k, "f")) != 0:
            config[key] = float(clip)
    source = operator.graph.producers.get(operator.input(0))
    if source is not None and source.code == _REVERSE:
        axes = model.integers(operator.graph, source.input(1))
        if axes in ([0 if time_major else 1], [-3 if time_major else -2]):
            config["go_backwards"] = True
    return changed_weights(rnn, config=config, batch_first=not time_major)


def _spec_of(
    cell: str, bidirectional: bool, tensors: dict[str, Any], operator: TFLiteOperator
) -> Spec:
    side, options = "0/forward/" if bidirectional else "", operator.options
    number = options.number(0 if cell == "lstm" else 1, "b")
    activation = _ACTIVATIONS.get(number)
    if activation is None:
        raise LossyError(f"its activation is number {number} of TFLite, need TANH or RELU")
    kinds = {"lstm": ("input_to_output_weights", "recurrent_to_output_weights")}
    first, second = (
        tensors.get(side + role) for role in kinds.get(cell, ("input_weights", "recurrent_weights"))
    )
    if first is None or second is None or first.ndim != 2 or second.ndim != 2:
        raise LayoutError("its matrices are missing, or do not have two dimensions")
    projected = f"{side}projection_weights" in tensors
    return Spec(
        "lstm" if cell == "lstm" else f"rnn_{activation}",  # type: ignore[arg-type]
        first.shape[1],
        first.shape[0],
        bidirectional=bidirectional,
        proj_size=second.shape[1] if projected else 0,
        peepholes=any("cell_to_output" in key for key in tensors),
        activation=activation if cell == "lstm" else "tanh",  # type: ignore[arg-type]
        dtype=first.dtype.name,
    )


def _read_tflite(file: InputFile, reading: Reading) -> Found:
    with name_file(file):
        model = TFLiteModel(memoryview(file.data()), file.budget)
        operators = list(model.operators())
        rnns = [operator for operator in operators if operator.code in _RNNS]
        file.budget.charge("steps", _RNN_STEPS * len(rnns))
        entries: dict[str, Weights] = {}
        refused: dict[str, Exception] = {}
        notes: list[str] = []
        names = distinct_names([_RNNS[operator.code][0] for operator in rnns])
        for name, operator in zip(names, rnns, strict=True):
            if is_under_with_direction(name, reading.prefix):
                try:
                    entries[name] = _read_operator(model, operator, name, notes)
                except FileError:
                    raise
                except ValueError as error:
                    refused[name] = error_with_name(error, name)
    codes = {operator.code for operator in operators}
    if not codes.isdisjoint(_WHILES):
        notes.append(
            "a WHILE may hold an RNN that is not read: read the model that the file was made from"
        )
    notes += [
        f"the operator {name}, which computes one step, is not read"
        for code, name in _ONE_STEP.items()
        if code in codes
    ]
    # a custom operator may compute anything; without another RNN, it may be the RNN
    custom = [name for name in model.custom_names if not rnns or _RNN_NAME.search(name)]
    if custom:
        notes.append(
            f"custom operators are not read: {list_names(custom, _LISTED)}: read the model that"
            " the file was made from"
        )
    return Found(entries, refused, notes, model.other_constants())


FORMAT = ModelFormat(".tflite", ("tflite",), _read_tflite, None)
