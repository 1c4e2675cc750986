"""A recurrent node of an ONNX model as Weights, with the settings and states of the node."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rnnlayout._files.tensor_sets.file_limits import BudgetError
from rnnlayout._model.dtypes import take_bits
from rnnlayout._model.errors import Ask, Message
from rnnlayout._model.layout import known_layouts
from rnnlayout._model.spec import CELLS, Spec
from rnnlayout._model.weights import Weights, changed_weights
from rnnlayout._native import LayoutError, LossyError
from rnnlayout._sources.read_tensors import read_described
from rnnlayout._sources.reading import Reading

from .constants import Constants, dequantize
from .graph import Attributes, NodeSite, attributes_of, integer_attribute, is_fixed

# The numbers of the inputs with weights; for DynamicQuantizeLSTM also with scales and zero points.
WEIGHTS = {"LSTM": {"W": 1, "R": 2, "B": 3, "P": 7}, "GRU": {"W": 1, "R": 2, "B": 3}}
WEIGHTS["RNN"] = WEIGHTS["GRU"]
_SCALES = {"W": (8, 9), "R": (10, 11)}

# ONNX's defaults.
_ACTIVATIONS = {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"], "RNN": ["tanh"]}
# Attributes of the operators. output_sequence, of opset 1, only omits an output.
_SHARED = {"activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size"}
_SHARED |= {"layout", "output_sequence"}
_ATTRIBUTES = {
    "LSTM": _SHARED | {"input_forget"},
    "GRU": _SHARED | {"linear_before_reset"},
    "RNN": _SHARED,
}
_MOST_INPUTS = {"LSTM": 8, "GRU": 6, "RNN": 6, "DynamicQuantizeLSTM": 12}
# recurrent_activation -> alpha and beta of HardSigmoid, which are float32 attributes.
SLOPES = {
    "hard_sigmoid_keras2": (np.float32(0.2), np.float32(0.5)),  # also ONNX's default
    "hard_sigmoid": (np.float32(1 / 6), np.float32(0.5)),
}


def read_onnx_node(
    site: NodeSite, constants: Constants, reading: Reading, notes: list[str]
) -> Weights:
    """Return the weights of a node. Messages about their computation are added to notes. Raises
    LayoutError if weights are not constant or do not fit each other, LossyError if no layout can
    represent the node, FileError if the node is malformed."""
    tensors = {
        role: _weight_bits(site, constants, role, k, notes)
        for role, k in WEIGHTS[site.operator].items()
        if site.input(k)
    }
    attributes = attributes_of(site.node, site.scope)
    _check_attributes(site, attributes)
    spec = _node_spec(site, attributes, tensors, reading, notes)
    if "P" in tensors and not tensors["P"].any():
        del tensors["P"]
    spec = spec.replace(peepholes="P" in tensors)
    if integer_attribute(attributes, "input_forget"):
        _couple_gates(tensors, constants)
        notes.append(f"{site.name}: input_forget is replaced by weights of f, those of i negated")
    arrays = {role: np.ascontiguousarray(array) for role, array in tensors.items()}
    rnn = read_described(arrays, spec, "onnx")
    config = _node_settings(site, attributes, spec, constants, notes)
    return changed_weights(rnn, config=config, batch_first="layout" in config)


def _check_attributes(site: NodeSite, attributes: Attributes) -> None:
    """Raise LayoutError for an attribute or input that ONNX does not define for the operator."""
    for name in filter(None, site.node.input[_MOST_INPUTS[site.node.op_type] :]):
        raise LayoutError(f"it has the input {name!r}, which ONNX does not define: remove it")
    for name in sorted(attributes.keys() - _ATTRIBUTES[site.operator], key=str):
        raise LayoutError(
            f"it has the attribute {name!r}, which ONNX does not define for {site.operator}, and"
            " which onnxruntime refuses: if it changes nothing, remove it from the node"
        )


def _weight_bits(
    site: NodeSite, constants: Constants, role: str, k: int, notes: list[str]
) -> np.ndarray:
    array = constants.get(site.scope, site.input(k), role)
    if site.is_quantized and role in _SCALES:  # (D, I, G H) with scales of (D,) or (D, G H)
        if array.ndim != 3:
            raise LayoutError(f"{role}: shape {array.shape}, expected three dimensions")
        array = np.ascontiguousarray(array.transpose(0, 2, 1))
        directions, rows, _ = array.shape
        scales = []
        for at in _SCALES[role]:
            scale = constants.get(site.scope, site.input(at), f"the scale of {role}")
            if scale.shape not in ((), (1,), (directions,), (directions, rows)):
                raise LayoutError(
                    f"{role}: scales or zero points of shape {scale.shape}, expected"
                    f" ({directions},) or ({directions}, {rows})"
                )
            scales.append(scale.reshape(*scale.shape, *[1] * (3 - scale.ndim)))
        array = dequantize(constants, array, *scales)
        notes.append(
            f"{site.name}: {role} was dequantized to float32; the node also rounds its inputs to 8"
            " bits, which these weights do not reproduce"
        )
    elif getattr(site.scope.find(site.input(k))[1], "op_type", "") == "DequantizeLinear":
        notes.append(f"{site.name}: {role} was dequantized to {array.dtype}")
    if not array.flags.c_contiguous:
        constants.charge(array.nbytes)
    constants.charge_weights(array.nbytes)
    return array


# ------------------------------------------------------------------------------ the RNN of a node


def _node_spec(
    site: NodeSite,
    attributes: Attributes,
    tensors: dict[str, np.ndarray],
    reading: Reading,
    notes: list[str],
) -> Spec:
    for role in "WR":
        if role not in tensors or tensors[role].ndim != 3:
            actual = f"shape {tensors[role].shape}" if role in tensors else "missing"
            raise LayoutError(f"{role}: {actual}, expected (D, G H, {'I' if role == 'W' else 'H'})")
    w, r = tensors["W"].shape, tensors["R"].shape
    if (hidden := integer_attribute(attributes, "hidden_size", r[2])) != r[2]:
        raise LayoutError(f"hidden_size is {hidden}, but R has shape {r}")
    attribute = attributes.get("direction")
    direction = attribute.s.decode("utf-8", "replace") if attribute is not None else "forward"
    if direction not in ("forward", "reverse", "bidirectional"):
        raise LayoutError(f"direction is {direction!r}, need forward, reverse or bidirectional")
    directions = 2 if direction == "bidirectional" else 1
    if w[0] != directions:
        raise LayoutError(
            f"direction is {direction!r}, but W has shape {w}, expected (D, G H, I), D ="
            f" {directions}"
        )
    cell, recurrent, activation = _activations(site.operator, attributes, directions)
    reset: Any = "after"
    if CELLS[cell].has_reset and "linear_before_reset" in attributes:
        reset = "after" if integer_attribute(attributes, "linear_before_reset") else "before"
    elif CELLS[cell].has_reset:  # ONNX's default is before, but old exporters omit the attribute
        reset = reading.fields.get("reset", "before")
        if "reset" not in reading.fields:
            note = (
                f"{site.name}: linear_before_reset is missing, so its reset is 'before'. An"
                " exporter of torch forgot to write it (onnxscript before 0.6.3): if that one wrote"
                " the model, pass "
            )
            notes.append(Message(note, Ask("reset", "after")).text)
    return Spec(
        cell,
        w[2],
        hidden,
        bidirectional=directions == 2,
        bias="double" if "B" in tensors else "none",
        reset=reset,
        recurrent_activation=recurrent,
        activation=activation,
        dtype=take_bits(tensors["W"], "W")[1],
    )


def _activations(operator: str, attributes: Attributes, directions: int) -> tuple[Any, Any, Any]:
    """Return the cell, the recurrent_activation and the activation."""
    count = len(_ACTIVATIONS[operator])
    names: list[str] = []
    if "activations" in attributes:
        names = [text.decode("utf-8", "replace") for text in attributes["activations"].strings]
    lower_names = [name.lower() for name in names]
    functions = lower_names[:count] or _ACTIVATIONS[operator]
    if lower_names and len(lower_names) != count * directions:
        raise LayoutError(f"activations are {names}, need {count * directions} of them")
    if lower_names and lower_names != functions * directions:
        raise LossyError(f"activations {names} differ by direction: no layout has that")
    if operator == "RNN" and functions[0] in ("tanh", "relu"):
        return f"rnn_{functions[0]}", "sigmoid", "tanh"
    gate, *states = functions
    if states and gate in ("sigmoid", "hardsigmoid") and {*states} <= {"tanh", "relu"}:
        if len({*states}) > 1:
            raise LossyError(
                f"activations are {names}: the candidate has {names[1]} and the output {names[2]},"
                " and no layout can represent two different ones"
            )
        if gate == "hardsigmoid":
            slopes = []  # alpha and beta of each direction
            for key, default in (("activation_alpha", 0.2), ("activation_beta", 0.5)):
                floats = list(attributes[key].floats) if key in attributes else []
                coefficients = [*floats, *[default] * directions][:directions]
                slopes.append([np.float32(x) for x in coefficients])
            pairs = frozenset(zip(*slopes, strict=True))
            gate_names = {frozenset([slope]): name for name, slope in SLOPES.items()}
            if pairs not in gate_names:
                formulas = " and ".join(f"{alpha} x + {beta}" for alpha, beta in pairs)
                raise LossyError(f"HardSigmoid is {formulas}, need 0.2 x + 0.5 or x / 6 + 0.5")
            gate = gate_names[pairs]
        return operator.lower(), gate, states[0]
    needed = "Tanh or Relu" if operator == "RNN" else "Sigmoid or HardSigmoid, then Tanh or Relu"
    raise LossyError(f"activations are {names}, a node {operator} needs {needed}")


def _couple_gates(tensors: dict[str, np.ndarray], constants: Constants) -> None:
    """Make the weights of gate f of a node with input_forget, in place. f = 1 - i, and
    1 - s(a) = s(-a) for sigmoid and both hard sigmoids."""
    gates = known_layouts()["onnx"]["gates"]["lstm"]
    if "P" in tensors:
        raise LossyError("no layout can represent input_forget together with non-zero peepholes")
    for role in [role for role in "WRB" if role in tensors]:
        array = tensors[role]
        constants.charge(array.nbytes)
        if array.size == 0 or array.shape[1] % len(gates):
            raise LayoutError(f"{role}: shape {array.shape}, expected (D, {len(gates)} H, ...)")
        # B is the bias of W, then the bias of R, each gate after gate
        halves = (array.shape[0], 2 if role == "B" else 1, len(gates), -1)
        coupled = array.reshape(halves).copy()
        coupled[:, :, gates.index("f")] = -coupled[:, :, gates.index("i")]
        tensors[role] = coupled.reshape(array.shape)


# ------------------------------------------------------------------- settings and states of a node

LENGTHS, _STATES = 4, {"initial_h": 5, "initial_c": 6}  # inputs of an operator
# The errors for an input that is not computed from constants by simple nodes, or misshapen.
_NOT_READ = (ValueError, IndexError)
_NUMBER_NBYTES = 32  # a number of a list in Python
_PROJECTED = (
    ": ONNX's LSTM has no projection, and torch.onnx.export(dynamo=True) writes such a node, with a"
    " part of the weights, of an nn.LSTM with proj_size: convert the module or its state_dict()"
    " instead"
)


def _node_settings(
    site: NodeSite, attributes: Attributes, spec: Spec, constants: Constants, notes: list[str]
) -> dict[str, Any]:
    """Return the settings of a node that differ from cuDNN's, under the names of ONNX, with arrays
    for lists. Messages about unread states are added to notes. spec: of the weights. Raises
    LayoutError if a state does not fit the spec."""
    config: dict[str, Any] = {}
    if "direction" in attributes and attributes["direction"].s == b"reverse":
        config["direction"] = "reverse"
    if "clip" in attributes:
        config["clip"] = float(attributes["clip"].f)
    if layout := integer_attribute(attributes, "layout"):
        config["layout"] = layout
    for name, k in _STATES.items():
        if site.input(k) and (name == "initial_h" or site.operator == "LSTM"):
            state = _initial_state(site, name, spec, layout, constants, notes)
            if state is not None and state.any():
                constants.charge_weights(_NUMBER_NBYTES * state.size)
                config[name] = np.asarray(state, np.float64)
    if (lengths := _fixed_lengths(site, constants)) is not None:
        config["sequence_lens"] = lengths
    return config


def _fixed_lengths(site: NodeSite, constants: Constants) -> np.ndarray | None:
    """Return the lengths that the model fixes, None for lengths that the caller passes."""
    if not (name := site.input(LENGTHS)):
        return None
    try:
        lengths = constants.get_unrepeated(site.scope, name, "sequence_lens")
    except BudgetError:
        raise
    except _NOT_READ:
        return None  # lengths that the model computes are arguments of the caller
    if lengths.dtype.kind not in "iu":
        raise LayoutError(f"sequence_lens has dtype {lengths.dtype}, ONNX needs int32: convert it")
    constants.charge_weights(_NUMBER_NBYTES * lengths.size)
    return lengths.ravel()


def list_settings(weights: Weights) -> None:
    """Replace the arrays among the settings of a node by lists: once all nodes are charged, because
    many nodes may share a large array, and a list takes longer than all further work."""
    for name, value in weights.config.items():
        if isinstance(value, np.ndarray):
            weights.config[name] = value.tolist()


def _check_state_shape(
    name: str, shape: Sequence[int | None] | None, spec: Spec, layout: int
) -> None:
    """Raise LayoutError if a state does not have the shape that the weights need. shape: None per
    unknown size, or None for an unknown shape."""
    d, h = spec.num_directions, spec.hidden_size
    expected = (None, d, h) if layout else (d, None, h)
    pairs = zip(shape or expected, expected, strict=False)
    if len(shape or expected) == 3 and all(a == b or None in (a, b) for a, b in pairs):
        return
    actual = ", ".join("?" if n is None else str(n) for n in shape or ())
    axes, sizes = ("(N, D, H)", f"(N, {d}, {h})") if layout else ("(D, N, H)", f"({d}, N, {h})")
    why = _PROJECTED if name == "initial_c" else ""
    raise LayoutError(f"{name}: shape ({actual}), expected {sizes} = {axes}{why}")


def _initial_state(
    site: NodeSite, name: str, spec: Spec, layout: int, constants: Constants, notes: list[str]
) -> np.ndarray | None:
    """Return an initial state that the model fixes, None for a state that the caller passes, as in
    cuDNN. N is 1 if the model repeats the state for each sequence."""
    source, d, h = site.input(_STATES[name]), spec.num_directions, spec.hidden_size
    _check_state_shape(name, site.scope.shape(source), spec, layout)
    try:
        state = constants.get(site.scope, source, name)
    except LayoutError:
        pass
    else:
        _check_state_shape(name, state.shape, spec, layout)
        return state
    try:
        state = constants.get_unrepeated(site.scope, source, name)
        first, second, _ = state.shape
        shape = (first, d, h) if layout else (d, second, h)
        constants.charge(math.prod(shape) * state.itemsize)
        return np.broadcast_to(state, shape)
    except BudgetError:
        raise
    except _NOT_READ:
        if is_fixed(site.scope, source, constants.charge_inputs):
            notes.append(
                f"{site.name}: its {name} is computed from constants in a way that is not read:"
                " pass it as the initial state"
            )
        return None
