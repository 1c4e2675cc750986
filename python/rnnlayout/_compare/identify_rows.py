"""identify: the rows of the table of layouts that fit tensors, by names or by shapes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from typing import Any

import numpy as np

from rnnlayout import _native
from rnnlayout._model.layout import CUDNN, Layout, known_layouts
from rnnlayout._model.spec import CELLS, Spec
from rnnlayout._model.weights import Weights, checked_weights
from rnnlayout._sources.candidates import (
    Shape,
    UnsizedRNN,
    candidates_with_count,
    candidates_with_names,
    is_one_vector,
    one_layer_candidates,
)
from rnnlayout._sources.tensor_paths import match_layout_names

from .identify_inputs import Observed, UnknownTensors

MOST_LAYERS = 8  # of a vector, and of a layout that is in no row
_MOST_ORDERS = 48  # ways to assign tensors of equal shapes that are tried


@dataclass(frozen=True)
class RowMatch:
    """A row of the table that fits the tensors, and the order of the tensors.

    shapes: of the layout's tensors, by name. order: for each name, the index of the caller's
    tensor; () if a single vector has all tensors. how: the reason for this order, in words for the
    report; "" if the names or the caller's order determine the order.
    """

    layout: Layout
    spec: Spec
    optional_tensors: int
    shapes: dict[str, Shape]
    order: tuple[int, ...] = ()
    how: str = ""

    def weights(self, arrays: Sequence[np.ndarray], dtype: str) -> Weights:
        """Return the RNN of these arrays."""
        picked = [arrays[k] for k in self.order]
        if not self.order:
            ends = np.cumsum([math.prod(shape) for shape in self.shapes.values()])[:-1]
            parts = zip(np.split(arrays[0], ends), self.shapes.values(), strict=True)
            picked = [part.reshape(shape) for part, shape in parts]
        spec = self.spec.replace(dtype=dtype)
        return checked_weights(spec, self.layout, self.optional_tensors, [*self.shapes], picked)


def _all_layouts() -> list[Layout]:
    """Return every layout, with every value of the options that change the outputs."""
    layouts = []
    for name, info in known_layouts().items():
        options = {key: [*values] for key, values in info["options"].items() if key != "version"}
        if "forget_bias" in options:
            options["forget_bias"] = ["1.0", "0.0"]
        for values in product(*options.values()):
            layouts.append(Layout(name, **dict(zip(options, values, strict=True))))
    return layouts


def named_rows(tensors: UnknownTensors, observed: list[Observed]) -> Iterator[RowMatch]:
    """Yield the rows that fit the names of the tensors."""
    for layout in _all_layouts() if tensors.names else ():
        renamed = match_layout_names(layout, tensors.names or ())
        where = {renamed[name]: k for k, name in enumerate(tensors.names or ()) if renamed}
        candidates = candidates_with_names(layout, frozenset(where)) if where else ()
        for row in _sized_rows(candidates, tensors, observed):
            order = tuple(where[name] for name in row.shapes)
            if [tensors.arrays[k].shape for k in order] == [*row.shapes.values()]:
                yield replace(row, order=order)


def shaped_rows(tensors: UnknownTensors, observed: list[Observed]) -> Iterator[RowMatch]:
    """Yield the rows that fit the shapes: in the caller's order, then in further orders."""
    shape_counts = Counter(array.shape for array in tensors.arrays)
    for layout in _all_layouts():
        if not is_one_vector(layout):
            candidates = candidates_with_count(layout, len(tensors.arrays))
            for row in _sized_rows(candidates, tensors, observed):
                if Counter(row.shapes.values()) == shape_counts:
                    for order, how in _orders(row, tensors).items():
                        yield replace(row, order=order, how=how)


def flat_rows(tensors: UnknownTensors, observed: list[Observed]) -> Iterator[RowMatch]:
    """Yield the rows that fit the length of a vector with all tensors in sequence."""
    size = tensors.arrays[0].size
    least = max(1, min(reading.width for reading in observed) // 2)
    for layout in _all_layouts():
        how = "" if layout == CUDNN else "all tensors one after another"
        for candidate in one_layer_candidates(layout):
            # the recurrent matrices alone, of at least so many rows and columns in each gate
            gates, directions = len(CELLS[candidate.cell].gates), 1 + candidate.bidirectional
            most = size // (gates * directions * least * least)
            layers = range(1, min(MOST_LAYERS, most) + 1)
            deeper = [replace(candidate, num_layers=L) for L in layers]
            for row in _sized_rows(deeper, tensors, observed):
                if sum(map(math.prod, row.shapes.values())) == size:
                    yield replace(row, how=how)


def _sized_rows(
    candidates: Iterable[UnsizedRNN], tensors: UnknownTensors, observed: list[Observed]
) -> Iterator[RowMatch]:
    """Yield each RNN with every spec that fits the widths of x and y, in cuDNN's weight space with
    each bias mode."""
    widths = dict.fromkeys((reading.x.shape[-1], reading.width) for reading in observed)
    for candidate in candidates:
        layout = candidate.layout
        info = layout.facts
        curves: list[tuple[Any, ...]] = [("sigmoid", "tanh")]
        if CELLS[candidate.cell].is_gated:
            states = ("tanh", "relu") if info["relu"] else ("tanh",)
            curves = [*product(info["recurrent_activations"], states)]
        for (I, width), share, (recurrent, state) in product(  # noqa: E741
            widths, {1, 1 + candidate.bidirectional}, curves
        ):
            P = width // share
            try:
                sizes = {"H": _hidden_size(candidate, I, P, tensors), "I": I, "P": P}
                spec = candidate.spec(
                    sizes, dtype="float64", recurrent_activation=recurrent, activation=state
                )
                whole = layout == CUDNN and spec.bias != "none"
                for bias in ("double", "input", "recurrent") if whole else (spec.bias,):
                    with_bias = spec.replace(bias=bias)
                    shapes = dict(_native.tensors(layout, with_bias, candidate.optional_tensors))
                    if any(reading.joins(with_bias) for reading in observed):
                        yield RowMatch(layout, with_bias, candidate.optional_tensors, shapes)
            except ValueError:  # the RNN does not exist, or the layout cannot represent it
                continue


def _hidden_size(candidate: UnsizedRNN, I: int, P: int, tensors: UnknownTensors) -> int:  # noqa: E741
    """Return H; of a projected LSTM by size, as all blocks have H rows or columns."""
    if not candidate.projected:
        return P
    shapes = _native.tensors(
        candidate.layout, candidate.spec({"H": P + 1, "I": I, "P": P}), candidate.optional_tensors
    )
    per_unit = sum(math.prod(shape) for _, shape in shapes) // (P + 1)
    return sum(array.size for array in tensors.arrays) // per_unit


def _orders(row: RowMatch, tensors: UnknownTensors) -> dict[tuple[int, ...], str]:
    """Return {order: reason} of ways to assign the tensors by shape, the likely orders first."""
    groups: dict[Shape, list[int]] = {}
    for k, array in enumerate(tensors.arrays):
        groups.setdefault(array.shape, []).append(k)

    def assign(groups_in_order: Iterable[Iterable[int]]) -> tuple[int, ...]:
        indices = dict(zip(groups, map(iter, groups_in_order), strict=True))
        return tuple(next(indices[shape]) for shape in row.shapes.values())

    in_order = assign(groups.values())
    orders = {in_order: ""}
    if names := tensors.names:
        by_name = assign(sorted(ks, key=names.__getitem__) for ks in groups.values())
        orders.setdefault(by_name, "tensors in the order of their names")
    per_layer = len(in_order) // row.spec.num_layers
    if row.spec.bidirectional and per_layer % 2 == 0:
        layers = [in_order[at : at + per_layer] for at in range(0, len(in_order), per_layer)]
        half = per_layer // 2
        swapped = tuple(k for layer in layers for k in (*layer[half:], *layer[:half]))
        shapes = [[tensors.arrays[k].shape for k in order] for order in (in_order, swapped)]
        if shapes[0] == shapes[1]:
            orders.setdefault(swapped, "the backward direction first")
    if math.prod(math.factorial(len(ks)) for ks in groups.values()) <= _MOST_ORDERS:
        for choice in product(*map(permutations, groups.values())):
            orders.setdefault(assign(choice), "tensors of equal shapes in another order")
    return orders
