"""How a model uses a recurrent node: what changes its outputs, but not its weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rnnlayout._model.spec import Spec
from rnnlayout._native import LayoutError

from .constants import Constants
from .graph import Attributes, NodeSite, integer_attribute, is_fixed

_LENGTHS, _STATES = 4, {"initial_h": 5, "initial_c": 6}  # inputs of an operator
# What is raised for an input that is not computed from constants by simple nodes, or misshapen.
_NOT_READ = (ValueError, IndexError)
_PROJECTED = (
    ": ONNX's LSTM has no projection, and torch.onnx.export(dynamo=True) writes such a node, with a"
    " part of the weights, of an nn.LSTM with proj_size: convert the module or its state_dict()"
    " instead"
)


def node_settings(
    site: NodeSite, spec: Spec, constants: Constants, notes: list[str]
) -> dict[str, Any]:
    """Return what the node does differently from cuDNN, under ONNX's own names.

    Messages about what could not be read are added to notes.
    Raises LayoutError if a state does not fit the spec, which is that of the weights.
    """
    attributes = site.attributes()
    config: dict[str, Any] = {}
    if direction_of(attributes) == "reverse":
        config["direction"] = "reverse"
    if "clip" in attributes:
        config["clip"] = float(attributes["clip"].f)
    if layout := integer_attribute(attributes, "layout"):
        config["layout"] = layout
    for name, k in _STATES.items():
        if site.input(k) and (name == "initial_h" or site.operator == "LSTM"):
            state = _initial_state(site, name, spec, layout, constants, notes)
            if state is not None and state.any():
                config[name] = np.asarray(state, np.float64).tolist()
    if site.input(_LENGTHS) and (lengths := _lengths(site, constants)) is not None:
        config["sequence_lens"] = [int(n) for n in lengths.ravel()]
    return config


def direction_of(attributes: Attributes) -> str:
    """Return forward, reverse or bidirectional."""
    found = attributes.get("direction")
    direction = found.s.decode("utf-8", "replace") if found is not None else "forward"
    if direction not in ("forward", "reverse", "bidirectional"):
        raise LayoutError(f"direction is {direction!r}, need forward, reverse or bidirectional")
    return direction


def _check_state_shape(
    name: str, shape: Sequence[int | None] | None, spec: Spec, layout: int
) -> None:
    """Raise LayoutError if a state does not have a shape that the weights need.

    shape: None per unknown size, or None if all of it is unknown.
    """
    d, h = spec.num_directions, spec.hidden_size
    needed = (None, d, h) if layout else (d, None, h)
    pairs = zip(shape or needed, needed, strict=False)
    if len(shape or needed) == 3 and all(a == b or None in (a, b) for a, b in pairs):
        return
    found = ", ".join("?" if n is None else str(n) for n in shape or ())
    axes, sizes = ("(N, D, H)", f"(N, {d}, {h})") if layout else ("(D, N, H)", f"({d}, N, {h})")
    why = _PROJECTED if name == "initial_c" else ""
    raise LayoutError(f"{name}: shape ({found}), expected {sizes} = {axes}{why}")


def _initial_state(
    site: NodeSite, name: str, spec: Spec, layout: int, constants: Constants, notes: list[str]
) -> np.ndarray | None:
    """Return an initial state if the model fixes it, None if it comes from outside, as in cuDNN.

    N is 1 if the model repeats the state for each sequence.
    """
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
        state = constants.get_once(site.scope, source, name)
        first, second, _ = state.shape
        shape = (first, d, h) if layout else (d, second, h)
        constants.charge(math.prod(shape) * state.itemsize)
        return np.broadcast_to(state, shape)
    except _NOT_READ:
        if is_fixed(site.scope, source):
            notes.append(
                f"{site.name}: its {name} is computed from constants in a way that is not read:"
                " pass it as the initial state"
            )
        return None


def _lengths(site: NodeSite, constants: Constants) -> np.ndarray | None:
    """Return the lengths of the sequences if the model fixes them."""
    try:
        return constants.get_once(site.scope, site.input(_LENGTHS), "sequence_lens")
    except _NOT_READ:
        return None
