"""How a model uses a recurrent node: what changes its outputs, but not its weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rnnlayout._model.spec import Spec
from rnnlayout._native import LayoutError

from .constants import Constants
from .graph import Attributes, Site, integer

_LENGTHS, _STATES = 4, {"initial_h": 5, "initial_c": 6}  # inputs of an operator
_PROJECTED = (
    ": ONNX's LSTM has no projection, and torch.onnx.export(dynamo=True) writes such a node, with a"
    " part of the weights, of an nn.LSTM with proj_size: convert the module or its state_dict()"
    " instead"
)


def settings_of(site: Site, spec: Spec, constants: Constants) -> dict[str, Any]:
    """Return what the node does differently from cuDNN, under ONNX's own names.

    Raises LayoutError if a state does not fit the spec, which is that of the weights.
    """
    attributes = site.attributes()
    config: dict[str, Any] = {}
    if direction_of(attributes) == "reverse":
        config["direction"] = "reverse"
    if "clip" in attributes:
        config["clip"] = float(attributes["clip"].f)
    if layout := integer(attributes, "layout"):
        config["layout"] = layout
    for name, k in _STATES.items():
        if site.input(k) and (name == "initial_h" or site.operator == "LSTM"):
            _check_shape(name, site.scope.shape(site.input(k)), spec, layout)
            state, repeated = _constant(site, site.input(k), constants)
            if state is not None and not repeated:
                _check_shape(name, state.shape, spec, layout)
            if state is not None and state.any():
                config[name] = np.asarray(state, np.float64).tolist()
    lengths, _ = _constant(site, site.input(_LENGTHS), constants)
    if lengths is not None:
        config["sequence_lens"] = [int(n) for n in lengths.ravel()]
    return config


def direction_of(attributes: Attributes) -> str:
    """Return forward, reverse or bidirectional."""
    found = attributes.get("direction")
    direction = found.s.decode("utf-8", "replace") if found is not None else "forward"
    if direction not in ("forward", "reverse", "bidirectional"):
        raise LayoutError(f"direction is {direction!r}, need forward, reverse or bidirectional")
    return direction


def _check_shape(name: str, shape: Sequence[int | None] | None, spec: Spec, layout: int) -> None:
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


def _constant(site: Site, name: str, constants: Constants) -> tuple[np.ndarray | None, bool]:
    """Return an input if the model fixes it, and whether it is repeated for each sequence."""
    if not name:
        return None, False
    try:
        scope, found = site.scope.find(name)
        if getattr(found, "op_type", "") in ("Expand", "Tile"):
            return constants.get(scope, found.input[0], f"input {name!r}"), True
        return constants.get(site.scope, name, f"input {name!r}"), False
    except LayoutError:  # it comes from outside, as in cuDNN
        return None, False
