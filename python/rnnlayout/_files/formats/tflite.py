""".tflite: the operators UNIDIRECTIONAL_ and BIDIRECTIONAL_SEQUENCE_LSTM and _RNN of a model.

Positions of inputs are from tensorflow/lite/kernels: lstm_shared.h, bidirectional_sequence_lstm.cc,
unidirectional_sequence_rnn.cc, bidirectional_sequence_rnn.cc (2.21). Two unidirectional operators
are one RNN if the model joins them as TensorFlow's converter does for a Bidirectional of Keras.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from rnnlayout._files.tensor_sets.file_limits import Budget, InputFile, name_file
from rnnlayout._files.tensor_sets.file_rnns import Found, distinct_names
from rnnlayout._model.config import describe_config
from rnnlayout._model.errors import FileError, error_with_name
from rnnlayout._model.spec import Spec
from rnnlayout._model.weights import Weights, changed_weights
from rnnlayout._native import LayoutError, LossyError
from rnnlayout._sources.mismatch import list_names
from rnnlayout._sources.read_tensors import read_described
from rnnlayout._sources.reading import Reading
from rnnlayout._sources.tensor_paths import is_under_with_direction

from .registry import ModelFormat
from .tflite_model import (
    CONCATENATION,
    RNN_CODES,
    SLICE,
    TFLiteGraph,
    TFLiteModel,
    TFLiteOperator,
)

_RNN_STEPS, _JOIN_STEPS = 1600, 400  # of the budget
_WHILES = (119, 200)  # BuiltinOperator
_ONE_STEP = {16: "LSTM", 24: "RNN", 27: "SVDF"}
_ONE_DIRECTION = {code for code, (_, bidirectional) in RNN_CODES.items() if not bidirectional}
_ACTIVATIONS = {1: "relu", 4: "tanh"}
_RNN_NAME = re.compile("rnn|lstm|gru", re.IGNORECASE)  # in the name of a custom operator
_LISTED = 3

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


def _read_operator(
    model: TFLiteModel, operator: TFLiteOperator, name: str, notes: list[str]
) -> Weights:
    cell, bidirectional = RNN_CODES[operator.code]
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
    for k, key in enumerate(("cell_clip", "proj_clip") if cell == "lstm" else (), 1):
        if (clip := operator.options.number(k, "f")) != 0:
            config[key] = float(clip)
    if _reversed_input(model, operator) is not None:
        turns_back = model.reverses_time(operator.graph.reversals.get(operator.output), operator)
        config |= {"direction": "reverse"} if turns_back else {"go_backwards": True}
    return changed_weights(rnn, config=config, batch_first=operator.time_axis == 1)


def _reversed_input(model: TFLiteModel, rnn: TFLiteOperator) -> int | None:
    """Return the tensor that an RNN reads from the end; None if it reads from the beginning."""
    source = rnn.graph.producers.get(rnn.input(0))
    is_reversed = source is not None and model.reverses_time(source, rnn)
    return source.input(0) if source is not None and is_reversed else None


def _joined_directions(
    model: TFLiteModel, join: TFLiteOperator, budget: Budget
) -> tuple[TFLiteOperator, TFLiteOperator] | None:
    """Return the two RNNs whose outputs a CONCATENATION joins, if they are the forward and the
    backward direction of one RNN: they read the same x, the second from the end, and joined are
    their last steps, or all steps with those of the second turned back. Else None."""
    producers = join.graph.producers
    parts = [producers.get(join.input(k)) for k in (0, 1)]
    is_last_step = all(part is not None and part.code == SLICE for part in parts)
    behind = [part and producers.get(part.input(0)) for part in parts]
    forward, backward = behind if is_last_step else (parts[0], behind[1])
    if forward is None or backward is None or len(join.inputs) != 2:
        return None
    budget.charge("steps", _JOIN_STEPS)
    if {forward.code, backward.code} - _ONE_DIRECTION or forward.code != backward.code:
        return None
    if is_last_step:
        joins_y = model.takes_last_step(parts[0], forward)
        joins_y = joins_y and model.takes_last_step(parts[1], backward)
    else:
        joins_y = model.reverses_time(parts[1], backward)
    is_joined_by_unit = join.options.number(0, "i") in (1 if is_last_step else 2, -1)
    has_no_activation = not join.options.number(1, "b")
    same_x = _reversed_input(model, backward) == forward.input(0)
    same_axes = forward.time_axis == backward.time_axis
    is_rnn = joins_y and is_joined_by_unit and has_no_activation and same_x and same_axes
    return (forward, backward) if is_rnn else None


def _join_directions(forward: Weights, backward: Weights) -> Weights:
    settings = {
        key: value
        for key, value in backward.config.items()
        if key not in ("direction", "go_backwards")
    }
    if (forward.spec, forward.config) != (backward.spec, settings):
        raise LossyError(
            f"its two directions differ, {forward.spec} with {describe_config(forward.config)} and"
            f" {backward.spec} with {describe_config(settings)}, which no layout can represent"
        )
    sides = {"forward": forward, "backward": backward}
    arrays = {f"0/{side}/{role}": a for side, rnn in sides.items() for role, a in rnn.items()}
    rnn = read_described(arrays, forward.spec.replace(bidirectional=True), "tflite")
    return changed_weights(rnn, config=settings, batch_first=forward.batch_first)


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
        joins = [operator for operator in operators if operator.code == CONCATENATION]
        pairs = dict(filter(None, (_joined_directions(model, join, file.budget) for join in joins)))
        backwards = {*pairs.values()} - pairs.keys()
        rnns = [
            operator
            for operator in operators
            if operator.code in RNN_CODES and operator not in backwards
        ]
        file.budget.charge("steps", _RNN_STEPS * (len(rnns) + len(pairs)))
        entries: dict[str, Weights] = {}
        refused: dict[str, Exception] = {}
        notes: list[str] = []
        names = distinct_names([RNN_CODES[operator.code][0] for operator in rnns])
        for name, operator in zip(names, rnns, strict=True):
            if is_under_with_direction(name, reading.prefix):
                try:
                    entries[name] = _read_operator(model, operator, name, notes)
                    if backward := pairs.get(operator):
                        other = _read_operator(model, backward, name, notes)
                        entries[name] = _join_directions(entries.pop(name), other)
                except FileError:
                    raise
                except ValueError as error:
                    refused[name] = error_with_name(error, name)
    read_by: dict[tuple[TFLiteGraph, int | None], str] = {
        (operator.graph, operator.input(0)): name
        for name, operator in zip(names, rnns, strict=True)
    }
    for name, operator in zip(names, rnns, strict=True):
        same_input = operator.graph, _reversed_input(model, operator)
        if name in entries and (forward := read_by.get(same_input)):
            notes.append(
                f"{name} reads the input of {forward} from the end: they may be the directions of a"
                " Bidirectional whose outputs the model does not concatenate"
            )
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
