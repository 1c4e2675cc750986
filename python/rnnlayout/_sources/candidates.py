"""Every RNN that a layout supports, apart from its sizes: which tensors it has, of which shapes.
With which sizes does it fit shapes that were found?

The shapes that the core describes are affine in H, I and P, so four probes give the coefficients:
no second copy of any layout is needed. The RNNs of a layout are listed only if its tensors may have
all names that were found.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from itertools import product
from typing import Any

from rnnlayout import _native
from rnnlayout._model.layout import Layout, known_layouts
from rnnlayout._model.spec import CELLS, Cell, Reset, Spec
from rnnlayout._native import HAS_BIAS, HAS_PEEPHOLES, SpecError

Shape = tuple[int, ...]
_PROBE = {"H": 5, "I": 7, "P": 2}
_OPTIONAL = (HAS_BIAS, 0, HAS_BIAS | HAS_PEEPHOLES, HAS_PEEPHOLES)
LAYER = r"\d+/(?:forward/|backward/)?"  # as rnnlayout names the tensors of a stack
_PREFIX = re.compile(f"^{LAYER}")
# Of a layer: weight_ih_l2, l2_i2h_bias, W2[f]. (?<!\d) keeps the search linear.
_NUMBER = re.compile(r"(?<=[lr])\d+|(?<!\d)\d+(?=\[)")


@dataclass(frozen=True)
class Dimension:
    """The length of one dimension of a tensor: the sum of coefficient * size, and a constant."""

    coefficients: dict[str, int]  # of H, I and P, where not zero
    constant: int

    def at(self, sizes: dict[str, int]) -> int:
        """Return the length for these sizes, an unknown one counting as 0."""
        length = self.constant
        for symbol, coefficient in self.coefficients.items():
            length += coefficient * sizes.get(symbol, 0)
        return length

    def __str__(self) -> str:
        terms = [symbol if c == 1 else f"{c} {symbol}" for symbol, c in self.coefficients.items()]
        if self.constant or not terms:
            terms.append(str(self.constant))
        return " + ".join(terms)


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

    def spec(self, sizes: Mapping[str, int], **more: Any) -> Spec:
        """Return the spec of this RNN with these sizes: H, I, and P if it is projected."""
        return Spec(
            self.cell, sizes["I"], sizes["H"], self.num_layers, self.bidirectional,
            proj_size=sizes["P"] if self.projected else 0,
            bias="double" if self.optional_tensors & HAS_BIAS else "none", reset=self.reset,
            peepholes=bool(self.optional_tensors & HAS_PEEPHOLES), **more,
        )  # fmt: skip

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of its tensors, in the layout's order."""
        tensors = _native.tensors(self.layout, self.spec(_PROBE), self.optional_tensors)
        return tuple([name for name, _ in tensors])

    @property
    def names_by_role(self) -> dict[str, set[str]]:
        """For each role, the names of the tensors that contain its blocks."""
        names: dict[str, set[str]] = {}
        for (_, _, role, _, _), view in _native.blocks(
            self.layout, self.spec(_PROBE), self.optional_tensors
        ):
            names.setdefault(role, set()).add(self.names[view[0]])
        return names

    @cached_property
    def dimensions(self) -> dict[str, list[Dimension]]:
        """The dimensions of each tensor as functions of H, I and P."""
        base, *larger = (
            _native.tensors(self.layout, self.spec(sizes), self.optional_tensors)
            for sizes in (_PROBE, *(_PROBE | {symbol: n + 1} for symbol, n in _PROBE.items()))
        )
        found: dict[str, list[Dimension]] = {}
        for k, (name, shape) in enumerate(base):
            found[name] = []
            for axis, n in enumerate(shape):
                slopes = {s: other[k][1][axis] - n for s, other in zip(_PROBE, larger, strict=True)}
                constant = n - sum(slope * _PROBE[s] for s, slope in slopes.items())
                found[name].append(Dimension({s: c for s, c in slopes.items() if c}, constant))
        return found

    @cached_property
    def two_layers(self) -> UnsizedRNN:
        """The same RNN with two layers; this one has one. Further layers are like the second."""
        return replace(self, num_layers=2)


@cache
def one_layer_candidates(layout: Layout) -> tuple[UnsizedRNN, ...]:
    """Return every RNN of one layer that the layout supports. Optional tensors that a layout has
    always, or never, make no candidate of their own."""
    info = known_layouts()[layout.name]
    found: dict[Any, UnsizedRNN] = {}
    for cell in info["cells"]:
        facts = CELLS[cell]
        resets = info["resets"] if facts.has_reset else ("after",)
        may_project = info["projection"] and facts.may_project
        has_peepholes = info["peepholes"] and facts.peepholes
        for reset, projected, optional_tensors, both in product(
            resets,
            (False, True) if may_project else (False,),
            _OPTIONAL if has_peepholes else _OPTIONAL[:2],
            (False, True),
        ):
            one = UnsizedRNN(layout, cell, reset, 1, both, projected, optional_tensors)
            # deeplearning4j's tensors have the same names with and without peepholes
            peepholes = optional_tensors & HAS_PEEPHOLES
            found.setdefault((cell, reset, projected, both, peepholes, one.names), one)
    return tuple(found.values())


def tensor_leaf(tensor: str) -> str:
    """Return a tensor's name without its layer and direction."""
    return _NUMBER.sub("#", _PREFIX.sub("", tensor).removesuffix("_reverse"))


@cache
def tensor_leaves(layout: Layout) -> frozenset[str]:
    """Return the names of all tensors of the layout, without layers and directions."""
    return frozenset(map(tensor_leaf, {*_native.names(layout)}))


@cache
def is_one_vector(layout: Layout) -> bool:
    """Is every RNN one vector? Its length is not an affine function of the sizes."""
    return len(tensor_leaves(layout)) == 1 and all(
        len(one.two_layers.names) == 1 for one in one_layer_candidates(layout)
    )


def candidates_with_count(layout: Layout, count: int) -> list[UnsizedRNN]:
    """Return every RNN that has so many tensors in the layout."""
    return [found for one in one_layer_candidates(layout) if (found := _with_count(one, count))]


def _with_count(one: UnsizedRNN, count: int) -> UnsizedRNN | None:
    """Return an RNN of one layer with the number of layers that gives so many tensors, if any."""
    first, each = len(one.names), len(one.two_layers.names) - len(one.names)
    # one vector does not show its layers
    more, rest = divmod(count - first, each) if each else (0, count - first)
    if rest or more < 0:
        return None
    return replace(one, num_layers=1 + more) if more else one


@lru_cache(maxsize=512)
def candidates_with_names(layout: Layout, names: frozenset[str]) -> tuple[UnsizedRNN, ...]:
    """Return every RNN whose tensors in the layout have exactly these names. Kept, because a model
    or a file may have hundreds of RNNs with equal names."""
    if not all(tensor_leaf(name) in tensor_leaves(layout) for name in names):
        return ()
    found = []
    for one in one_layer_candidates(layout):
        whole = _with_count(one, len(names))
        first = (one if whole is one else one.two_layers).names[0]
        if whole and first in names and names == set(whole.names):
            found.append(whole)
    return tuple(found)


@dataclass(frozen=True)
class Guess:
    """A candidate, with the sizes that fit the shapes that were found best."""

    candidate: UnsizedRNN
    shapes: dict[str, Shape]  # of the tensors found, by the names of the layout
    sizes: dict[str, int]  # those of H, I and P that the shapes determine
    wrong: list[str]  # the tensors whose shapes do not fit

    @property
    def fits(self) -> bool:
        return not self.wrong and len(self.sizes) == 2 + self.candidate.projected

    def shape(self, name: str) -> Shape:
        """Return the shape that the tensor would have with these sizes."""
        return tuple([d.at(self.sizes) for d in self.candidate.dimensions[name]])


def guess_sizes(candidate: UnsizedRNN, shapes: dict[str, Shape]) -> Guess:
    """Solve for the sizes; one that no equation determines is missing. shapes: those that were
    found, by the layout's names."""
    equations = [
        (dimension, n)
        for name, shape in shapes.items()
        if len(shape) == len(candidate.dimensions[name])
        for dimension, n in zip(candidate.dimensions[name], shape, strict=True)
    ]
    sizes: dict[str, int] = {}  # those that most equations agree on
    while True:
        votes: dict[str, Counter[int]] = {}
        for dimension, length in equations:
            unknown = [symbol for symbol in dimension.coefficients if symbol not in sizes]
            if len(unknown) == 1:
                (symbol,) = unknown
                n, rest = divmod(length - dimension.at(sizes), dimension.coefficients[symbol])
                if rest == 0 and n > 0:
                    votes.setdefault(symbol, Counter())[n] += 1
        if not votes:
            break
        symbol = next(symbol for symbol in "HIP" if symbol in votes)
        sizes[symbol] = votes[symbol].most_common(1)[0][0]
    found = Guess(candidate, shapes, sizes, [])
    found.wrong.extend(name for name, shape in shapes.items() if found.shape(name) != shape)
    if found.fits:
        try:  # the core refuses sizes that contradict each other: P must be below H
            candidate.spec(sizes)
        except SpecError:
            found.wrong.extend(shapes)
    return found
