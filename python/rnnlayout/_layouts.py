"""Layouts by name, what they hold, and which tensors an RNN has in them."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from rnnlayout import _native
from rnnlayout._spec import Spec


class Layout:
    """A layout's name with its options, taken wherever a name is. Make one with layout()."""

    __slots__ = ("name", "options")

    name: str
    options: tuple[tuple[str, str], ...]

    def __init__(self, name: str, **options: Any) -> None:
        if not isinstance(name, str):
            raise _native.LayoutError(f"a layout is named by a string, found {name!r}")
        object.__setattr__(self, "name", name)
        object.__setattr__(
            self, "options", tuple(sorted((key, str(value)) for key, value in options.items()))
        )
        _native.check_layout(self)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("a Layout cannot be changed")

    @property
    def notes(self) -> dict[str, str]:
        """What each chosen option means."""
        known = known_layouts()[self.name]["options"]
        return {f"{key}={value}": known[key][value] for key, value in self.options}

    def __repr__(self) -> str:
        options = "".join(f", {key}={value!r}" for key, value in self.options)
        return f"layout({self.name!r}{options})"

    def __str__(self) -> str:
        options = ", ".join(f"{key}={value}" for key, value in self.options)
        return f"{self.name}({options})" if options else self.name

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Layout):
            return NotImplemented
        return (self.name, self.options) == (other.name, other.options)

    def __hash__(self) -> int:
        return hash((self.name, self.options))

    def __reduce__(self) -> tuple[Any, ...]:
        return _layout_from, (self.name, dict(self.options))


def _layout_from(name: str, options: dict[str, str]) -> Layout:
    return Layout(name, **options)


CUDNN = Layout("cudnn")


def layout(name: str, **options: Any) -> Layout:
    """A layout with options, taken wherever a layout's name is.

    concat: inputs="hx" (default) or "xh"; z="state" (default, h' = z h + (1 - z) n) or
        "candidate" (h' = (1 - z) h + z n).
    cudnn: version=9 (default), 8 or 7. The weight space is the same; what a version cannot do is
        a SpecError when it is used.

    LayoutError: no such layout, option or value.

        >>> layout("concat", inputs="xh", z="candidate")
        layout('concat', inputs='xh', z='candidate')
    """
    return Layout(name, **options)


def as_layout(layout: str | Layout) -> Layout:
    """A Layout of a name or of itself."""
    return layout if isinstance(layout, Layout) else Layout(layout)


_layouts: dict[str, dict[str, Any]] = {}


def layouts() -> dict[str, dict[str, Any]]:
    """All known layouts, with what each can hold.

    name -> {"cells", "gates" (cell -> order in memory), "resets", "recurrent_activations",
    "projection", "options" (name -> {value: note}, the default first), "rows" (the table's own
    rows), "sources"}.

        >>> layouts()["onnx"]["gates"]["lstm"]
        'iofg'
    """
    return copy.deepcopy(known_layouts())


def known_layouts() -> dict[str, dict[str, Any]]:
    """layouts(), shared: not to be changed."""
    if not _layouts:
        for row in _native.rows():
            _add_row(row)
    return _layouts


def _add_row(row: dict[str, Any]) -> None:
    info = _layouts.setdefault(
        row["layout"],
        {"cells": [], "gates": {}, "resets": [], "recurrent_activations": [], "projection": False,
         "options": {}, "rows": [], "sources": []},
    )  # fmt: skip
    for cell, gates in row["gates"].items():
        info["gates"][cell] = gates
        if cell not in info["cells"]:
            info["cells"].append(cell)
    for key in ("resets", "recurrent_activations"):
        info[key] += [value for value in row[key] if value not in info[key]]
    info["projection"] |= "P" in row["roles"]
    info["options"].update(row["options"])
    info["rows"].append(row)
    info["sources"].append(row["source"])


def describe(layout: str | Layout, spec: Spec) -> dict[str, tuple[int, ...]]:
    """Names and shapes of an RNN's tensors in a layout, in the framework's own order.

    LossyError: the layout has no form for such an RNN.

        >>> describe("torch", Spec("gru", 8, 16, bias=False))
        {'weight_ih_l0': (48, 8), 'weight_hh_l0': (48, 16)}
    """
    return dict(_native.tensors(as_layout(layout), spec))


_REGION = np.dtype(
    [
        ("pseudo_layer", "i8"),
        ("layer", "i8"),
        ("direction", "i8"),
        ("lin_layer_id", "i8"),
        ("role", "U2"),
        ("gate", "U1"),
        ("offset", "i8"),
        ("rows", "i8"),
        ("cols", "i8"),
    ]
)


def regions(spec: Spec) -> np.ndarray:
    """cuDNN's weight space piece by piece, in address order.

    A structured array, one row a matrix or bias: pseudo_layer (= layer * D + direction), layer,
    direction (0 forward, 1 backward), lin_layer_id (cuDNN's number), role ("W" input, "R"
    recurrent, "P" projection, "bW", "bR"), gate ("i f g o", "r z n", "h", "" for a projection),
    offset in bytes, rows, cols (1 for a bias). Each matrix is row-major.

    LossyError: cuDNN has no form for such an RNN.

        >>> regions(Spec("rnn_tanh", 2, 3))[["role", "offset", "rows", "cols"]].tolist()
        [('W', 0, 3, 2), ('R', 24, 3, 3), ('bW', 60, 3, 1), ('bR', 72, 3, 1)]
    """
    blocks = _native.blocks(CUDNN, spec)
    itemsize = _native.itemsize(spec.dtype)
    rows = [
        (layer * spec.num_directions + direction, layer, direction, number, role, gate,
         at * itemsize, height, width)
        for (layer, direction, role, number, gate), (_, at, height, width, *_) in blocks
    ]  # fmt: skip
    return np.array(rows, dtype=_REGION)
