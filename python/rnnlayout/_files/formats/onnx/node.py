"""One recurrent node of an ONNX model as Weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from rnnlayout._files.bags.bag import Ask
from rnnlayout._model.dtypes import take
from rnnlayout._model.errors import FileError
from rnnlayout._model.layout import known_layouts
from rnnlayout._model.spec import Spec
from rnnlayout._native import LayoutError, LossyError, SpecError
from rnnlayout._sources.read import read
from rnnlayout._weights.weights import Weights

from .constants import Constants, dequantized
from .graph import Site

# The inputs of an operator that are weights; of DynamicQuantizeLSTM those of its scales.
WEIGHTS = {"LSTM": {"W": 1, "R": 2, "B": 3, "P": 7}, "GRU": {"W": 1, "R": 2, "B": 3}}
WEIGHTS["RNN"] = WEIGHTS["GRU"]
_SCALES = {"W": (8, 9), "R": (10, 11)}
_LENGTHS, _STATES = 4, {"initial_h": 5, "initial_c": 6}

# A curve's alpha and beta, as attributes of float32.
HARD_SIGMOIDS = {
    "hard_sigmoid_keras2": (np.float32(0.2), np.float32(0.5)),  # ONNX's own default too
    "hard_sigmoid": (np.float32(1 / 6), np.float32(0.5)),
}


def weights_of(site: Site, constants: Constants, ask: Ask, notes: list[str]) -> Weights:
    """The weights of a node. notes: gets what was done to have them.

    LayoutError: they are no constants, or do not fit each other; LossyError: the node computes
    what no layout has a word for; SpecError: it is not what `ask` says; FileError.
    """
    try:
        return _weights_of(site, constants, ask, notes)
    except (LayoutError, SpecError, FileError) as error:
        raise type(error)(f"node {site.name!r}: {error}") from None


def _weights_of(site: Site, constants: Constants, ask: Ask, notes: list[str]) -> Weights:
    tensors = {
        role: _tensor(site, constants, role, k, notes)
        for role, k in WEIGHTS[site.operator].items()
        if site.input(k)
    }
    attributes = site.attributes()
    told = _spec(site, attributes, tensors, ask, notes)
    if "P" in tensors and not tensors["P"].any():
        del tensors["P"]
    if "input_forget" in attributes and attributes["input_forget"].i:
        _couple(tensors, constants)
        notes.append(f"{site.name}: input_forget became weights of f that are those of i, negated")
    spec = told if ask.spec is None else _agreed(ask.spec, told)
    given = read({role: np.ascontiguousarray(a) for role, a in tensors.items()}, spec, "onnx")
    return Weights._of(given, None, _config(site, attributes, constants))


def _tensor(site: Site, constants: Constants, role: str, k: int, notes: list[str]) -> np.ndarray:
    array = constants.get(site.scope, site.input(k), role)
    if site.is_quantized and role in _SCALES:
        array = _dynamically(site, constants, role, array)
        notes.append(
            f"{site.name}: {role} was dequantised to float32; the node rounds what it multiplies it"
            " with to 8 bits too, and these weights will not"
        )
    elif _comes_from(site, site.input(k), "DequantizeLinear"):
        notes.append(f"{site.name}: {role} was dequantised to {array.dtype}")
    if not array.flags.c_contiguous:
        constants.charge(array.nbytes)
    return array


def _comes_from(site: Site, name: str, operator: str) -> bool:
    made = site.scope.find(name)[1]
    return getattr(made, "op_type", None) == operator


def _dynamically(site: Site, constants: Constants, role: str, array: np.ndarray) -> np.ndarray:
    """Of DynamicQuantizeLSTM: (D, I, G H) with one scale, one a direction, or (D, G H)."""
    if array.ndim != 3:
        raise LayoutError(f"{role}: shape {array.shape}, expected three dimensions")
    array = np.ascontiguousarray(array.transpose(0, 2, 1))
    scale, zero = (
        _scale(constants.get(site.scope, site.input(k), f"the scale of {role}"), array, role)
        for k in _SCALES[role]
    )
    return dequantized(constants, array, scale, zero)


def _scale(scale: np.ndarray, array: np.ndarray, what: str) -> np.ndarray:
    directions, rows, _ = array.shape
    for shape in ((1,), (directions,), (directions, rows)):
        if scale.shape in (shape, ()):
            return scale.reshape(*scale.shape, *[1] * (3 - scale.ndim))
    raise LayoutError(
        f"{what}: scales or zero points of shape {scale.shape}, expected ({directions},) or"
        f" ({directions}, {rows})"
    )


# ------------------------------------------------------------------------------ which RNN it is


def _spec(
    site: Site,
    attributes: dict[str, Any],
    tensors: dict[str, np.ndarray],
    ask: Ask,
    notes: list[str],
) -> Spec:
    for role in "WR":
        if role not in tensors or tensors[role].ndim != 3:
            found = f"shape {tensors[role].shape}" if role in tensors else "left out"
            raise LayoutError(f"{role}: {found}, expected (D, G H, {'I' if role == 'W' else 'H'})")
    hidden = tensors["R"].shape[2]
    if "hidden_size" in attributes and attributes["hidden_size"].i != hidden:
        raise LayoutError(
            f"hidden_size is {attributes['hidden_size'].i}, but R is {tensors['R'].shape}"
        )
    both = _direction(attributes) == "bidirectional"
    if tensors["W"].shape[0] != 1 + both:
        raise LayoutError(
            f"direction is {_direction(attributes)!r}, but W is {tensors['W'].shape}: its first"
            " size is the number of directions"
        )
    cell, curve = _curves(site.operator, attributes, 1 + both)
    if ask.cell is not None and ask.cell != cell:
        raise SpecError(f"it is a {cell}, and you say cell={ask.cell!r}")
    return Spec(
        cell,
        tensors["W"].shape[2],
        hidden,
        bidirectional=both,
        bias="double" if "B" in tensors else "none",
        reset=_reset(site, attributes, ask, notes) if cell == "gru" else "after",
        recurrent_activation=curve,
        dtype=take(tensors["W"], "W")[1],
    )


def _direction(attributes: dict[str, Any]) -> str:
    given = attributes.get("direction")
    direction = given.s.decode("utf-8", "replace") if given is not None else "forward"
    if direction not in ("forward", "reverse", "bidirectional"):
        raise LayoutError(f"direction is {direction!r}, need forward, reverse or bidirectional")
    return direction


def _reset(site: Site, attributes: dict[str, Any], ask: Ask, notes: list[str]) -> str:
    """Where the attribute is missing ONNX says before, and older exporters forgot it."""
    if "linear_before_reset" not in attributes:
        if ask.reset is None:
            notes.append(
                f"{site.name}: linear_before_reset is not written, so its reset is 'before'. An"
                " exporter of torch forgot it once (onnxscript before 0.6.3): if the model came"
                " from there say reset='after'"
            )
        return ask.reset or "before"
    told = "after" if attributes["linear_before_reset"].i else "before"
    if ask.reset not in (None, told):
        raise SpecError(
            f"linear_before_reset is {attributes['linear_before_reset'].i}, and so its reset"
            f" {told!r}; you say {ask.reset!r}"
        )
    return told


def _agreed(spec: Any, told: Spec) -> Spec:
    """The spec that was asked for: it may differ in cuDNN's own terms, bias and skip_input."""
    if not isinstance(spec, Spec):
        raise SpecError(f"spec is a {type(spec).__name__}, need a Spec")
    if spec.replace(bias=told.bias, skip_input=False) != told:
        raise SpecError(f"it is {told}; the spec says {spec}")
    return spec


def _curves(operator: str, attributes: dict[str, Any], directions: int) -> tuple[str, str]:
    """(cell, recurrent_activation) of the activations."""
    count = {"LSTM": 3, "GRU": 2, "RNN": 1}[operator]
    given = attributes.get("activations")
    names = [s.decode("utf-8", "replace") for s in given.strings] if given is not None else []
    curves = [name.lower() for name in names]
    one = curves[:count]
    if curves and len(curves) != count * directions:
        raise LayoutError(f"activations are {names}, need {count * directions} of them")
    if curves and curves != one * directions:
        raise LossyError(f"activations are {names}: the two directions differ, no layout has that")
    if operator == "RNN" and one in ([], ["tanh"], ["relu"]):
        return f"rnn_{one[0] if one else 'tanh'}", "sigmoid"
    rest = ["tanh"] * (count - 1)
    if operator != "RNN" and one in ([], ["sigmoid", *rest]):
        return operator.lower(), "sigmoid"
    if operator != "RNN" and one == ["hardsigmoid", *rest]:
        return operator.lower(), _hard_sigmoid(attributes, directions)
    raise LossyError(
        f"activations are {names}: an LSTM or GRU needs Sigmoid or HardSigmoid and then Tanh, an"
        " RNN Tanh or Relu"
    )


def _hard_sigmoid(attributes: dict[str, Any], directions: int) -> str:
    """Of alpha and beta of each direction; curves that take none are passed over."""

    def floats(name: str, default: float) -> list[np.float32]:
        given = list(attributes[name].floats) if name in attributes else []
        given += [default] * (directions - len(given))
        return [np.float32(x) for x in given[:directions]]

    slopes = set(zip(floats("activation_alpha", 0.2), floats("activation_beta", 0.5), strict=True))
    for name, slope in HARD_SIGMOIDS.items():
        if slopes == {slope}:
            return name
    told = " and ".join(f"{alpha} x + {beta}" for alpha, beta in slopes)
    raise LossyError(f"HardSigmoid is {told}: known are 0.2 x + 0.5 and x / 6 + 0.5")


def _couple(tensors: dict[str, np.ndarray], constants: Constants) -> None:
    """input_forget: f = 1 - i, and 1 - sigmoid(a) = sigmoid(-a), which is so of both hard ones."""
    gates = known_layouts()["onnx"]["gates"]["lstm"]
    if "P" in tensors:
        raise LossyError("input_forget and peepholes that are not zero: no layout has both")
    for role in [role for role in "WRB" if role in tensors]:
        array = tensors[role]
        constants.charge(array.nbytes)
        if array.size == 0 or array.shape[1] % len(gates):
            raise LayoutError(f"{role}: shape {array.shape}, expected (D, {len(gates)} H, ...)")
        # B is that of W and then that of R, gate after gate
        halves = (array.shape[0], 2 if role == "B" else 1, len(gates), -1)
        coupled = array.reshape(halves).copy()
        coupled[:, :, gates.index("f")] = -coupled[:, :, gates.index("i")]
        tensors[role] = coupled.reshape(array.shape)


# ------------------------------------------------------------ what changes outputs, not weights


def _config(site: Site, attributes: dict[str, Any], constants: Constants) -> dict[str, Any]:
    """What the node does otherwise than cuDNN, in ONNX's own words."""
    config: dict[str, Any] = {}
    if _direction(attributes) == "reverse":
        config["direction"] = "reverse"
    if "clip" in attributes:
        config["clip"] = float(attributes["clip"].f)
    if "layout" in attributes and attributes["layout"].i:
        config["layout"] = int(attributes["layout"].i)
    for name, k in _STATES.items():
        if site.input(k) and (name == "initial_h" or site.operator == "LSTM"):
            state = _constant(site, site.input(k), constants)
            if state is not None and state.any():
                config[name] = np.asarray(state, np.float64).tolist()
    lengths = _constant(site, site.input(_LENGTHS), constants) if site.input(_LENGTHS) else None
    if lengths is not None:
        config["sequence_lens"] = [int(n) for n in lengths.ravel()]
    return config


def _constant(site: Site, name: str, constants: Constants) -> np.ndarray | None:
    """An input that the network itself fixes; a state may be repeated for each sequence."""
    try:
        scope, made = site.scope.find(name)
        if getattr(made, "op_type", "") in ("Expand", "Tile"):
            return constants.get(scope, made.input[0], f"input {name!r}")
        return constants.get(site.scope, name, f"input {name!r}")
    except LayoutError:  # it comes from outside, as cuDNN's does
        return None
