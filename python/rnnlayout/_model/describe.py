"""Names and shapes of an RNN's tensors, and the regions of cuDNN's weight space."""

from __future__ import annotations

from typing import Any

import numpy as np

from rnnlayout import _native

from .layout import CUDNN, Layout, as_layout
from .spec import Spec


def describe(spec: Spec, layout: str | Layout) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of an RNN's tensors in a layout, in the framework's order.

    Raises LossyError if the RNN cannot be represented in the layout.

        >>> describe(Spec("gru", 8, 16, bias=False), "torch")
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


class Regions(np.ndarray[Any, np.dtype[np.void]]):
    """The result of regions(), which a notebook shows as a picture. Parts are plain arrays."""

    spec: Spec

    def __getitem__(self, key: Any) -> Any:
        return np.asarray(self)[key]

    def _repr_svg_(self) -> str | None:
        spec = getattr(self, "spec", None)  # results of NumPy's functions lack a spec
        return None if spec is None else spec._repr_svg_()


def regions(spec: Spec) -> np.ndarray:
    """Return where each matrix and bias is in cuDNN's weight space, in address order.

    A structured array with one row per matrix or bias: pseudo_layer (= layer * D + direction),
    layer, direction (0 forward, 1 backward), lin_layer_id (cuDNN's number), role ("W" input, "R"
    recurrent, "P" projection, "bW", "bR"), gate ("i f g o", "r z n", "h", "" for a projection),
    offset in bytes, rows, cols (1 for a bias). Each matrix is row-major.

    A notebook shows the array as a picture.

    Raises LossyError if the RNN cannot be represented in cuDNN's weight space.

        >>> regions(Spec("rnn_tanh", 2, 3))[["role", "offset", "rows", "cols"]].tolist()
        [('W', 0, 3, 2), ('R', 24, 3, 3), ('bW', 60, 3, 1), ('bR', 72, 3, 1)]
    """
    blocks = _native.blocks(CUDNN, spec)
    itemsize = _native.itemsize(spec.dtype)
    rows = [
        (
            layer * spec.num_directions + direction,
            layer,
            direction,
            number,
            role,
            gate,
            at * itemsize,
            height,
            width,
        )
        for (layer, direction, role, number, gate), (_, at, height, width, *_) in blocks
    ]
    table = np.array(rows, dtype=_REGION).view(Regions)
    table.spec = spec
    return table
