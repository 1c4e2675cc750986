"""Which RNN are these tensors? Answered by asking the core for every RNN that might fit.

The shapes that the core describes are affine in H, I and P. Four probes give the coefficients,
and the found shapes then are equations for the sizes: no second copy of any layout is needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from rnnlayout import _native
from rnnlayout._model.layout import Layout, known_layouts
from rnnlayout._model.spec import Spec
from rnnlayout._native import HAS_BIAS, HAS_PEEPHOLES, LayoutError, LossyError, SpecError

Shape = tuple[int, ...]
_PROBE = {"H": 5, "I": 7, "P": 2}
_SYMBOLS = ("H", "I", "P")


@dataclass(frozen=True)
class Candidate:
    """All of an RNN but its sizes."""

    cell: str
    reset: str
    num_layers: int
    bidirectional: bool
    projected: bool
    has: int

    def spec(self, H: int, I: int, P: int, **more: Any) -> Spec:  # noqa: E741
        return Spec(
            self.cell, I, H, self.num_layers, self.bidirectional, P if self.projected else 0,
            bias="double" if self.has & HAS_BIAS else "none", reset=self.reset, **more,
        )  # fmt: skip

    def probe(self, **steps: int) -> Spec:
        return self.spec(**{symbol: n + steps.get(symbol, 0) for symbol, n in _PROBE.items()})

    def names(self, layout: Layout) -> tuple[str, ...]:
        """Its tensors in a layout."""
        return _names(layout, self)


# Kept, as dimensions() are: a file may have hundreds of RNNs alike.
@lru_cache(maxsize=512)
def _names(layout: Layout, candidate: Candidate) -> tuple[str, ...]:
    return tuple(name for name, _ in _native.tensors(layout, candidate.probe(), candidate.has))


def candidates(
    layout: Layout, num_tensors: int, hints: dict[str, Any] | None = None
) -> Iterator[Candidate]:
    """Every RNN that has so many tensors in the layout and does not contradict the hints."""
    info = known_layouts()[layout.name]
    hints = hints or {}
    for cell in info["cells"]:
        for reset in info["resets"] if cell == "gru" else ["after"]:
            for projected in (False, True) if info["projection"] and cell == "lstm" else (False,):
                for has in (HAS_BIAS, 0, HAS_BIAS | HAS_PEEPHOLES, HAS_PEEPHOLES):
                    if has & HAS_PEEPHOLES and not _has_peepholes(info, cell):
                        continue
                    if not has & HAS_BIAS and info["rows"][0]["bias_always"]:
                        continue
                    for both in (False, True):
                        known = {"cell": cell, "reset": reset, "bidirectional": both}
                        if any(hints.get(k, v) != v for k, v in known.items()):
                            continue
                        yield from _with_layers(
                            layout, Candidate(cell, reset, 1, both, projected, has), num_tensors
                        )


def _has_peepholes(info: dict[str, Any], cell: str) -> bool:
    return cell == "lstm" and any("peephole" in row["roles"] for row in info["rows"])


def _with_layers(layout: Layout, one: Candidate, num_tensors: int) -> Iterator[Candidate]:
    """The candidate with the number of layers that gives so many tensors, if there is one."""
    try:
        first = len(one.names(layout))
        each = len(replace(one, num_layers=2).names(layout)) - first
    except LossyError:
        return
    more, rest = divmod(num_tensors - first, each)
    if rest == 0 and more >= 0:
        yield replace(one, num_layers=1 + more)


# ------------------------------------------------------------------------------------ equations


@dataclass(frozen=True)
class Dimension:
    """One dimension of one tensor: how long it is for given sizes."""

    tensor: str
    axis: int
    coefficients: tuple[int, ...]  # of H, I and P
    constant: int

    def at(self, sizes: dict[str, int]) -> int:
        return self.constant + sum(
            c * sizes.get(symbol, 0) for c, symbol in zip(self.coefficients, _SYMBOLS, strict=True)
        )

    def known(self, sizes: dict[str, int]) -> bool:
        """Are all sizes known that it depends on?"""
        return all(
            symbol in sizes for c, symbol in zip(self.coefficients, _SYMBOLS, strict=True) if c
        )

    @property
    def varies(self) -> bool:
        return any(self.coefficients)

    def __str__(self) -> str:
        terms = [
            symbol if c == 1 else f"{c} {symbol}"
            for c, symbol in zip(self.coefficients, _SYMBOLS, strict=True)
            if c
        ]
        if self.constant or not terms:
            terms.append(str(self.constant))
        return " + ".join(terms)


@lru_cache(maxsize=256)
def dimensions(layout: Layout, candidate: Candidate) -> dict[str, list[Dimension]]:
    """tensor -> its dimensions as functions of H, I and P, by four probes."""
    base = _native.tensors(layout, candidate.probe(), candidate.has)
    moved = [
        _native.tensors(layout, candidate.probe(**{symbol: 1}), candidate.has)
        for symbol in _SYMBOLS
    ]
    all_dimensions: dict[str, list[Dimension]] = {}
    for k, (name, shape) in enumerate(base):
        all_dimensions[name] = []
        for axis, n in enumerate(shape):
            slope = tuple(other[k][1][axis] - n for other in moved)
            constant = n - sum(c * _PROBE[s] for c, s in zip(slope, _SYMBOLS, strict=True))
            all_dimensions[name].append(Dimension(name, axis, slope, constant))
    return all_dimensions


def solve(equations: Sequence[tuple[Dimension, int]]) -> dict[str, int]:
    """The sizes that most equations agree on; a symbol that none determines is missing."""
    sizes: dict[str, int] = {}
    while True:
        votes: dict[str, Counter[int]] = {}
        for dimension, found in equations:
            unknown = [
                (c, symbol)
                for c, symbol in zip(dimension.coefficients, _SYMBOLS, strict=True)
                if c and symbol not in sizes
            ]
            if len(unknown) == 1:
                c, symbol = unknown[0]
                n, rest = divmod(found - dimension.at(sizes), c)
                if rest == 0 and n > 0:
                    votes.setdefault(symbol, Counter())[n] += 1
        if not votes:
            return sizes
        symbol = next(symbol for symbol in _SYMBOLS if symbol in votes)
        sizes[symbol] = votes[symbol].most_common(1)[0][0]


@dataclass(frozen=True)
class Guess:
    """A candidate with the sizes that fit the found shapes best."""

    layout: Layout
    candidate: Candidate
    dimensions: dict[str, list[Dimension]]
    sizes: dict[str, int]
    wrong: list[str]  # tensors whose shape does not fit

    @property
    def fits(self) -> bool:
        return not self.wrong and len(self.sizes) == 2 + self.candidate.projected

    def shape(self, name: str) -> Shape:
        return tuple(d.at(self.sizes) for d in self.dimensions[name])

    def spec(self, dtype: str) -> Spec:
        return self.candidate.spec(**{"P": 0, **self.sizes}, dtype=dtype)


def guess(layout: Layout, candidate: Candidate, shapes: dict[str, Shape]) -> Guess:
    """Solve for the sizes. shapes: by the names of the layout."""
    wanted = dimensions(layout, candidate)
    equations = [
        (dimension, n)
        for name, shape in shapes.items()
        if len(shape) == len(wanted[name])
        for dimension, n in zip(wanted[name], shape, strict=True)
    ]
    sizes = solve(equations)
    wrong = [
        name
        for name, shape in shapes.items()
        if tuple(dimension.at(sizes) for dimension in wanted[name]) != shape
    ]
    found = Guess(layout, candidate, wanted, sizes, wrong)
    if not found.fits:
        return found
    try:  # a projection must be smaller than the state: the core says
        found.spec("float32")
    except SpecError:
        return Guess(layout, candidate, wanted, sizes, list(shapes))
    return found


# --------------------------------------------------------------------------------- one of many


def choose(found: list[Guess], dtype: str, hints: dict[str, Any]) -> tuple[Spec, Guess]:
    """The one RNN that fits; SpecError: there are several, and what to say to tell them apart."""
    if len(found) == 1:
        activation = hints.get("recurrent_activation", "sigmoid")
        spec = found[0].spec(dtype).replace(recurrent_activation=activation)
        return spec, found[0]
    specs = [g.spec(dtype) for g in found]
    cells = {spec.cell for spec in specs}
    if len({g.layout for g in found}) > 1:
        names = ", ".join(sorted({repr(g.layout.name) for g in found}))
        raise LayoutError(f"these tensors fit several layouts, pass one of them: {names}")
    if cells == {"rnn_tanh", "rnn_relu"}:
        raise SpecError(
            "these tensors are those of a plain RNN, but not whether it is one of tanh or of relu:"
            f" pass spec=Spec('rnn_tanh', {specs[0].input_size}, {specs[0].hidden_size}, ...) or"
            " 'rnn_relu', or cell= to infer_spec"
        )
    if len({spec.reset for spec in specs}) > 1 and cells == {"gru"}:
        raise SpecError(
            f"these tensors are those of a GRU, but {found[0].layout} does not show where its reset"
            " gate stands: pass a spec with reset='after' (the product R h is scaled) or"
            " reset='before' (h is), or reset= to infer_spec"
        )
    lines = "; ".join(str(spec) for spec in specs[:4])
    raise SpecError(f"these tensors fit several RNNs, pass the spec of one of them: {lines}")
