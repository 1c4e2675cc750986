"""List the RNNs of a layout with unknown sizes, and solve for H, I and P from actual shapes.

The shapes that the core describes are affine in H, I and P, so four probes give the coefficients:
no second copy of a layout is needed. The RNNs of a layout are listed only if all names of the
actual tensors can be names of the layout.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import chain, cycle, product, starmap
from typing import Any

from rnnlayout import _native
from rnnlayout._model.layout import Layout
from rnnlayout._model.sized_cache import cached_by_size
from rnnlayout._model.spec import CELLS, Cell, Reset, Spec
from rnnlayout._native import HAS_BIAS, HAS_PEEPHOLES, SpecError

Shape = tuple[int, ...]
_PROBE = {"H": 5, "I": 7, "P": 2}
_OPTIONAL = (HAS_BIAS, 0, HAS_BIAS | HAS_PEEPHOLES, HAS_PEEPHOLES)
LAYER = r"\d+/(?:forward/|backward/)?"  # prefix that rnnlayout gives the tensors of a stack
_PREFIX = re.compile(f"^{LAYER}")
_NUMBER = re.compile(r"\d+")  # the layer in weight_ih_l2, W2[f], wx2, or another number: x2h


@dataclass(frozen=True, eq=False)
class Dimension:
    """The length of one dimension of a tensor: the sum of coefficient * size, and a constant."""

    coefficients: dict[str, int]  # of H, I and P, where not zero
    constant: int

    def at(self, sizes: dict[str, int]) -> int:
        """Return the length for these sizes; an unknown size counts as 0."""
        length = self.constant
        for symbol, coefficient in self.coefficients.items():
            length += coefficient * sizes.get(symbol, 0)
        return length

    def __str__(self) -> str:
        terms = [symbol if c == 1 else f"{c} {symbol}" for symbol, c in self.coefficients.items()]
        if self.constant or not terms:
            terms.append(str(self.constant))
        return " + ".join(terms)


Dimensions = tuple[Dimension, ...]  # of a tensor


@dataclass(frozen=True)
class UnsizedRNN:
    """An RNN in a layout, without its sizes."""

    layout: Layout
    cell: Cell
    reset: Reset
    num_layers: int
    bidirectional: bool
    projected: bool
    optional_tensors: int

    def spec(self, sizes: Mapping[str, int], **fields: Any) -> Spec:
        """Return the spec of the RNN with these sizes: H, I, and P if the RNN is projected. fields:
        further fields of the spec."""
        return Spec(
            self.cell,
            sizes["I"],
            sizes["H"],
            self.num_layers,
            self.bidirectional,
            proj_size=sizes["P"] if self.projected else 0,
            bias="double" if self.optional_tensors & HAS_BIAS else "none",
            reset=self.reset,
            peepholes=bool(self.optional_tensors & HAS_PEEPHOLES),
            **fields,
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the RNN's tensors, in the order of the layout."""
        tensors = _native.tensors(self.layout, self.spec(_PROBE), self.optional_tensors)
        return tuple([name for name, _ in tensors])

    @property
    def names_by_role(self) -> dict[str, set[str]]:
        """Role -> names of the tensors with blocks of the role."""
        names: dict[str, set[str]] = {}
        for (_, _, role, _, _), view in _native.blocks(
            self.layout, self.spec(_PROBE), self.optional_tensors
        ):
            names.setdefault(role, set()).add(self.names[view[0]])
        return names

    @cached_property
    def dimensions(self) -> dict[str, Dimensions]:
        """The dimensions of each tensor as functions of H, I and P. Further layers are like the
        second, and share its dimensions."""
        depth = self.num_layers if is_one_vector(self.layout) else min(self.num_layers, 2)
        probes = [
            _native.tensors(
                self.layout, replace(self, num_layers=depth).spec(sizes), self.optional_tensors
            )
            for sizes in (_PROBE, *(_PROBE | {symbol: n + 1} for symbol, n in _PROBE.items()))
        ]
        dimensions = [
            tuple(starmap(_dimension, zip(*[shape for _, shape in tensors], strict=True)))
            for tensors in zip(*probes, strict=True)
        ]
        second_layer = dimensions[len(replace(self, num_layers=1).names) :]
        return dict(zip(self.names, chain(dimensions, cycle(second_layer)), strict=False))

    @cached_property
    def two_layers(self) -> UnsizedRNN:
        """The same RNN with two layers, if this RNN has one. Further layers are like the second."""
        return replace(self, num_layers=2)


def _dimension(length: int, *larger: int) -> Dimension:
    """Return the dimension that has this length for the probe's sizes, and the larger lengths if
    one size of the probe is larger by 1."""
    slopes = {symbol: n - length for symbol, n in zip(_PROBE, larger, strict=True)}
    constant = length - sum(slope * _PROBE[symbol] for symbol, slope in slopes.items())
    return Dimension({symbol: slope for symbol, slope in slopes.items() if slope}, constant)


@cache
def one_layer_candidates(layout: Layout) -> tuple[UnsizedRNN, ...]:
    """Return every single-layer RNN that the layout supports. RNNs that differ only in optional
    tensors, and have the same names in the layout, count once."""
    info = layout.facts
    rnns: dict[Any, UnsizedRNN] = {}
    for cell in info["cells"]:
        facts = CELLS[cell]
        resets = info["resets"] if facts.has_reset else ("after",)
        may_project = info["projection"] and facts.may_project
        has_peepholes = info["peepholes"] and facts.peepholes
        for reset, projected, optional_tensors, bidirectional in product(
            resets,
            (False, True) if may_project else (False,),
            _OPTIONAL if has_peepholes else _OPTIONAL[:2],
            (False, True),
        ):
            rnn = UnsizedRNN(layout, cell, reset, 1, bidirectional, projected, optional_tensors)
            # deeplearning4j's tensors have the same names with and without peepholes
            peepholes = optional_tensors & HAS_PEEPHOLES
            rnns.setdefault((cell, reset, projected, bidirectional, peepholes, rnn.names), rnn)
    return tuple(rnns.values())


def tensor_leaf(tensor: str) -> str:
    """Return a tensor's name without its layer and direction."""
    return _NUMBER.sub("#", _PREFIX.sub("", tensor).removesuffix("_reverse"))


@cache
def tensor_leaves(layout: Layout) -> frozenset[str]:
    """Return the names of all tensors of the layout, without layers and directions."""
    return frozenset(map(tensor_leaf, {*_native.names(layout)}))


@cache
def is_one_vector(layout: Layout) -> bool:
    """Is every RNN of the layout one vector, of a length that is not affine in the sizes?"""
    return len(tensor_leaves(layout)) == 1 and all(
        len(rnn.two_layers.names) == 1 for rnn in one_layer_candidates(layout)
    )


def candidates_with_count(layout: Layout, count: int) -> list[UnsizedRNN]:
    """Return every RNN that has `count` tensors in the layout."""
    return [
        candidate for rnn in one_layer_candidates(layout) if (candidate := _with_count(rnn, count))
    ]


def _with_count(rnn: UnsizedRNN, count: int) -> UnsizedRNN | None:
    """Return a single-layer RNN with the number of layers that makes `count` tensors, if any."""
    first, per_layer = len(rnn.names), len(rnn.two_layers.names) - len(rnn.names)
    # a single vector does not show layers
    added, remainder = divmod(count - first, per_layer) if per_layer else (0, count - first)
    if remainder or added < 0:
        return None
    return replace(rnn, num_layers=1 + added) if added else rnn


@cached_by_size(lambda layout, names: len(names))
def candidates_with_names(layout: Layout, names: frozenset[str]) -> tuple[UnsizedRNN, ...]:
    """Return every RNN that has exactly these tensor names in the layout. Cached, because a model
    or a file may have hundreds of RNNs with equal names."""
    candidates = []
    for rnn in one_layer_candidates(layout):
        candidate = _with_count(rnn, len(names))
        first = (rnn if candidate is rnn else rnn.two_layers).names[0]
        if candidate and first in names and names == set(candidate.names):
            candidates.append(candidate)
    return tuple(candidates)


@dataclass(frozen=True)
class Guess:
    """A candidate, with the sizes that fit the actual shapes best."""

    candidate: UnsizedRNN
    shapes: dict[str, Shape]  # actual shapes, by names of the layout
    sizes: dict[str, int]  # H, I and P, if the shapes determine the size
    wrong: list[str]  # tensors with shapes that do not fit

    @property
    def fits(self) -> bool:
        return not self.wrong and len(self.sizes) == 2 + self.candidate.projected

    def shape(self, name: str) -> Shape:
        """Return the shape that the tensor would have with these sizes."""
        return _shape_at(self.candidate.dimensions[name], self.sizes)


def count_shapes(
    candidate: UnsizedRNN, shapes: Mapping[str, Shape]
) -> Counter[tuple[Dimensions, Shape]]:
    """Return (dimensions, actual shape) -> number of tensors: few, however many the layers are, if
    the shapes are those of an RNN."""
    return Counter([(candidate.dimensions[name], shape) for name, shape in shapes.items()])


def _shape_at(dimensions: Dimensions, sizes: dict[str, int]) -> Shape:
    return tuple([dimension.at(sizes) for dimension in dimensions])


def guess_sizes(candidate: UnsizedRNN, shapes: dict[str, Shape]) -> Guess:
    """Solve for the sizes; a size that no equation determines is missing. shapes: the actual
    shapes, by names of the layout."""
    tensors = count_shapes(candidate, shapes)
    equations = [
        (dimension, n, count)
        for (dimensions, shape), count in tensors.items()
        if len(shape) == len(dimensions)
        for dimension, n in zip(dimensions, shape, strict=True)
    ]
    sizes: dict[str, int] = {}  # that most equations agree on
    while True:
        votes: dict[str, Counter[int]] = {}
        for dimension, length, count in equations:
            unknown = [symbol for symbol in dimension.coefficients if symbol not in sizes]
            if len(unknown) == 1:
                (symbol,) = unknown
                size, remainder = divmod(
                    length - dimension.at(sizes), dimension.coefficients[symbol]
                )
                if remainder == 0 and size > 0:
                    votes.setdefault(symbol, Counter())[size] += count
        if not votes:
            break
        symbol = next(symbol for symbol in "HIP" if symbol in votes)
        sizes[symbol] = votes[symbol].most_common(1)[0][0]
    wrong = {tensor for tensor in tensors if _shape_at(tensor[0], sizes) != tensor[1]}
    names = [name for name, shape in shapes.items() if (candidate.dimensions[name], shape) in wrong]
    guess = Guess(candidate, shapes, sizes, names)
    if guess.fits:
        try:  # the core refuses sizes that contradict each other: P must be below H
            candidate.spec(sizes)
        except SpecError:
            guess.wrong.extend(shapes)
    return guess
