"""identify: the rows of the table of layouts in which tensors may be, by names or by shapes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, permutations, product
from typing import Any

import numpy as np

from rnnlayout import _native
from rnnlayout._model.checked_rnn import CheckedRNN
from rnnlayout._model.layout import CUDNN, Layout, known_layouts
from rnnlayout._model.spec import CELLS, Spec
from rnnlayout._native import LossyError
from rnnlayout._sources.candidates import (
    UnsizedRNN,
    candidates_with_count,
    candidates_with_names,
    is_one_vector,
    one_layer_candidates,
)
from rnnlayout._sources.tensor_paths import match_layout_names

from .identify_inputs import Observed, UnknownTensors
from .identify_network import Network, direction_joins

_MOST_ORDERS = 48  # ways to assign tensors of equal shapes that are tried
_MOST_LAYERS = 8  # of a flat vector
NamedShapes = list[tuple[str, tuple[int, ...]]]


@dataclass(frozen=True)
class RowMatch:
    """A row of the table that the tensors fit, and which tensor is which.

    names: the names of the layout's tensors, in its order. order: for each of them, the index of
    the tensor that was passed. how: in words for the report, why this order was tried; "" if the
    names show it, or if the tensors were passed in this order.
    """

    layout: Layout
    spec: Spec
    optional_tensors: int
    names: tuple[str, ...]
    order: tuple[int, ...]
    how: str = ""

    def checked_rnn(self, arrays: Sequence[np.ndarray], dtype: str) -> CheckedRNN:
        """Return the RNN of these arrays."""
        picked = [arrays[k] for k in self.order]
        if len(arrays) == 1 and self.names != ("weight_space",):
            picked = self._cut(arrays[0])
        return CheckedRNN(
            self.spec.replace(dtype=dtype),
            self.layout,
            self.optional_tensors,
            list(self.names),
            picked,
        )

    def _cut(self, flat: np.ndarray) -> list[np.ndarray]:
        shapes = [
            shape for _, shape in _native.tensors(self.layout, self.spec, self.optional_tensors)
        ]
        if flat.shape == shapes[0]:
            return [flat]
        ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
        return [part.reshape(s) for part, s in zip(np.split(flat, ends), shapes, strict=True)]

    def network(self, values: Sequence[np.ndarray]) -> Network:
        """Return the network of the tensors' numbers in float64."""
        return Network.of(self.checked_rnn(values, "float64"))


def all_layouts() -> list[Layout]:
    """Return every layout, with every value of the options that change the outputs."""
    found = []
    for name, info in known_layouts().items():
        options = {key: [*values] for key, values in info["options"].items() if key != "version"}
        if "forget_bias" in options:
            options["forget_bias"] = ["1.0", "0.0"]
        for values in product(*options.values()):
            found.append(Layout(name, **dict(zip(options, values, strict=True))))
    return found


def named_rows(tensors: UnknownTensors, observed: list[Observed]) -> Iterator[RowMatch]:
    """Yield the rows whose tensors have these names."""
    names = tensors.names or ()
    for layout in all_layouts() if names else ():
        renamed = match_layout_names(layout, names) or {}
        where = {renamed[name]: k for k, name in enumerate(names) if renamed}
        candidates = candidates_with_names(layout, frozenset(where)) if where else ()
        for candidate, spec, shapes in _sized_rows(candidates, tensors, observed):
            order = tuple(where.get(name, -1) for name, _ in shapes)
            if -1 not in order and all(
                tensors.arrays[k].shape == shape
                for k, (_, shape) in zip(order, shapes, strict=True)
            ):
                yield _row_match(candidate, spec, shapes, order)


def shaped_rows(tensors: UnknownTensors, observed: list[Observed]) -> Iterator[RowMatch]:
    """Yield the rows whose tensors have these shapes: in the order given, then in others."""
    found = Counter(array.shape for array in tensors.arrays)
    for layout in all_layouts():
        if not is_one_vector(layout):
            candidates = candidates_with_count(layout, len(tensors.arrays))
            for candidate, spec, shapes in _sized_rows(candidates, tensors, observed):
                if Counter(shape for _, shape in shapes) == found:
                    for order, how in tensor_orders(shapes, tensors, spec):
                        yield _row_match(candidate, spec, shapes, order, how)


def flat_rows(tensors: UnknownTensors, observed: list[Observed]) -> Iterator[RowMatch]:
    """Yield the rows whose tensors, one after another, have the length of a vector."""
    size = tensors.arrays[0].size
    least = max(1, min(one.width for one in observed) // 2)
    for layout in all_layouts():
        candidates = _deeper_specs(layout, size, least)
        for candidate, spec, shapes in _sized_rows(candidates, tensors, observed):
            if sum(math.prod(shape) for _, shape in shapes) == size:
                how = "" if layout == CUDNN else "all tensors one after another"
                order = (0,) if len(shapes) == 1 else ()
                yield _row_match(candidate, spec, shapes, order, how)


def _deeper_specs(layout: Layout, size: int, P: int) -> Iterator[UnsizedRNN]:
    """Yield the RNNs of so many layers that their recurrent matrices alone, of at least P columns
    and rows in each gate, are not too large."""
    for one in one_layer_candidates(layout):
        gates = len(CELLS[one.cell].gates)
        most = min(_MOST_LAYERS, size // (gates * P * P * (2 if one.bidirectional else 1)))
        yield from (replace(one, num_layers=layers) for layers in range(1, most + 1))


def _sized_rows(
    candidates: Iterable[UnsizedRNN], tensors: UnknownTensors, observed: list[Observed]
) -> Iterator[tuple[UnsizedRNN, Spec, NamedShapes]]:
    """Yield each RNN with its specs, in cuDNN's weight space with each of its biases, and what it
    consists of."""
    for candidate in candidates:
        for spec in fitting_specs(candidate, tensors, observed):
            whole = candidate.layout == CUDNN and spec.bias != "none"
            for bias in ("double", "input", "recurrent") if whole else (spec.bias,):
                each = spec.replace(bias=bias)
                shapes = _layout_shapes(candidate.layout, each, candidate.optional_tensors)
                if shapes:
                    yield candidate, each, shapes


def _row_match(
    candidate: UnsizedRNN, spec: Spec, shapes: NamedShapes, order: tuple[int, ...], how: str = ""
) -> RowMatch:
    names = tuple(name for name, _ in shapes)
    return RowMatch(candidate.layout, spec, candidate.optional_tensors, names, order, how)


def fitting_specs(
    candidate: UnsizedRNN, tensors: UnknownTensors, observed: Iterable[Observed]
) -> Iterator[Spec]:
    """Yield the specs of this RNN that x and y have the widths of."""
    D = 2 if candidate.bidirectional else 1
    widths = dict.fromkeys((one.x.shape[-1], one.width) for one in observed)
    curves: Iterable[tuple[Any, Any]] = [("sigmoid", "tanh")]
    if CELLS[candidate.cell].is_gated:
        info = known_layouts()[candidate.layout.name]
        states = ("tanh", "relu") if info["relu"] else ("tanh",)
        curves = [*product(info["recurrent_activations"], states)]
    for (I, width), share, (recurrent, state) in product(widths, {1, D}, curves):  # noqa: E741
        P = width // share
        for H in _hidden_sizes(candidate, I, P, tensors):
            try:
                spec = candidate.spec(
                    H, I, P, dtype="float64", recurrent_activation=recurrent, activation=state
                )
            except ValueError:
                continue
            if any(direction_joins(spec, one) for one in observed):
                yield spec


def _hidden_sizes(candidate: UnsizedRNN, I: int, P: int, tensors: UnknownTensors) -> list[int]:  # noqa: E741
    """Return what H may be."""
    if not candidate.projected:
        return [P]
    if tensors.is_flat:  # every block of a projected LSTM has H rows or columns
        shapes = _layout_shapes(
            candidate.layout, candidate.spec(P + 1, I, P), candidate.optional_tensors
        )
        each = sum(math.prod(shape) for _, shape in shapes) // (P + 1)
        return [tensors.arrays[0].size // each] if each else []
    lengths = {n for array in tensors.arrays for n in array.shape}
    lengths |= {n // 4 for n in lengths if n % 4 == 0}  # the gates joined, or an axis of their own
    return sorted(n for n in lengths if n > P)


def _layout_shapes(layout: Layout, spec: Spec, optional_tensors: int) -> NamedShapes:
    try:
        return _native.tensors(layout, spec, optional_tensors)
    except LossyError:  # the layout cannot represent this RNN
        return []


# --------------------------------------------------------------- which tensor is which, by shapes


def tensor_orders(
    shapes: NamedShapes, tensors: UnknownTensors, spec: Spec
) -> Iterator[tuple[tuple[int, ...], str]]:
    """Yield ways to assign the tensors: the order, and how it was found."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for k, array in enumerate(tensors.arrays):
        groups.setdefault(array.shape, []).append(k)
    seen = set()
    for order, how in chain(
        _likely_orders(shapes, groups, tensors, spec), _other_orders(shapes, groups)
    ):
        if order not in seen:
            seen.add(order)
            yield order, how


def _likely_orders(
    shapes: NamedShapes, groups: dict[Any, list[int]], tensors: UnknownTensors, spec: Spec
) -> Iterator[tuple[tuple[int, ...], str]]:
    given = _assign_by_shape(shapes, groups)
    yield given, ""
    if tensors.names:
        by_name = {shape: sorted(ks, key=lambda k: tensors.names[k]) for shape, ks in  # type: ignore[index]
                   groups.items()}  # fmt: skip
        yield _assign_by_shape(shapes, by_name), "tensors in the order of their names"
    each = len(given) // spec.num_layers
    half = each // 2
    if spec.bidirectional and each == 2 * half:
        layers = [given[at : at + each] for at in range(0, len(given), each)]
        swapped = tuple(k for layer in layers for k in (*layer[half:], *layer[:half]))
        if all(tensors.arrays[a].shape == tensors.arrays[b].shape
               for a, b in zip(swapped, given, strict=True)):  # fmt: skip
            yield swapped, "the backward direction first"


def _other_orders(
    shapes: NamedShapes, groups: dict[Any, list[int]]
) -> Iterator[tuple[tuple[int, ...], str]]:
    """Yield all orders, if these are few."""
    if math.prod(math.factorial(len(ks)) for ks in groups.values()) <= _MOST_ORDERS:
        for each in islice(product(*map(permutations, groups.values())), _MOST_ORDERS):
            mapped = dict(zip(groups, map(list, each), strict=True))
            yield _assign_by_shape(shapes, mapped), "tensors of equal shapes in another order"


def _assign_by_shape(shapes: NamedShapes, groups: dict[Any, list[int]]) -> tuple[int, ...]:
    """Return the tensors of each shape in the order in which the layout has them."""
    left = {shape: iter(ks) for shape, ks in groups.items()}
    return tuple(next(left[shape]) for _, shape in shapes)
