"""Where the matrices are in a buffer, and how each was written there.

A few of the largest values of a matrix, which are rare, are looked up in the buffer. Under each
pattern of strides, each of them says where the matrix would begin: it begins where most of them
agree. Strides that are in no table are solved for from the places of three values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from .matrix_forms import (
    MATRIX_FORMS,
    MatrixForm,
    MatrixShape,
    Pattern,
    patterns_of,
    solved_pattern,
)
from .truth import MatrixName, Slab, comparable, gate_orders, largest

ENOUGH_SAMPLES = 0.7  # of the samples have to be equal: values here and there may have been changed
_ANCHORS = 8  # per gate: samples that are looked up
_MOST_HITS = 64  # of an anchor: a value that is more frequent shows nothing
_MOST_STARTS, _MOST_PLACES = 8, 24  # per pattern, and of all: places that are tried
_RELATED = 6  # standard deviations: a correlation that chance does not make, see _correlations()


@dataclass(frozen=True)
class MatrixReading:
    """One way to read a matrix. at: where its first element is. order: for each place of a gate in
    the buffer, the number of the gate found in it. signs: for each place 1, or -1 if that gate is
    negated. scale: what all its values were multiplied by.
    """

    pattern: Pattern
    at: int
    order: tuple[int, ...]
    signs: tuple[int, ...]
    share: float  # of the samples that are equal
    scale: float = 1.0

    @property
    def form(self) -> MatrixForm:
        return self.pattern.form

    def span(self, shape: MatrixShape) -> tuple[int, int]:
        """Return where a matrix of this shape begins and ends in the buffer."""
        low, high = self.pattern.span(shape)
        return self.at + low, self.at + high


@dataclass(frozen=True)
class LocatedMatrix:
    """A matrix that was found in the buffer. readings: the ways to read it that fit equally well,
    the likeliest first.
    """

    slab: Slab
    readings: tuple[MatrixReading, ...]

    @property
    def reading(self) -> MatrixReading:
        return self.readings[0]

    @property
    def span(self) -> tuple[int, int]:
        """Where it begins and ends."""
        return self.reading.span(self.slab.shape)


Located = dict[MatrixName, LocatedMatrix]


class MatrixFinder:
    """Looks for matrices in a buffer of values. start: where the first should be."""

    def __init__(self, slabs: list[Slab], buffer: np.ndarray, start: int = 0) -> None:
        self.buffer, self.slabs = buffer, slabs
        ends = start + np.cumsum([slab.size for slab in slabs])
        self.expected = {slab.name: int(end) - slab.size
                         for slab, end in zip(slabs, ends, strict=True)}  # fmt: skip
        self.eps = float(np.finfo(buffer.dtype).eps) if buffer.dtype.kind == "f" else 0.0
        self._columns = {slab.name: slab.shape[2] for slab in slabs}
        self._all_patterns: dict[MatrixName, list[Pattern]] = {}
        self._indices: dict[tuple[MatrixName, Pattern], np.ndarray] = {}

    def find(self, exactly: bool = False) -> Located:
        """Return the matrices that are in the buffer, in its order: those that are there as they
        are, and if not `exactly` those that were multiplied, rounded, or changed otherwise."""
        found: Located = {}
        near = (_scaled_shares, _kept_shares, _near_shares, _correlations)
        for compare in (_equal_shares, *(() if exactly else near)):
            self._find_all(compare, found)
            if len(found) == len(self.slabs):
                break
        else:
            if not exactly:
                self._find_together(found)
        in_order = sorted(found.values(), key=lambda one: (one.span, self.slabs.index(one.slab)))
        return _simplest_readings({one.slab.name: one for one in in_order})

    def fits(self, slab: Slab, at: int) -> bool:
        """Is a matrix there as it should be?"""
        return any(self._readings(slab, [(self._patterns(slab)[0], at)], _equal_shares))

    def _find_all(self, compare: Shares, found: Located) -> None:
        """Add the matrices that are found by one way to compare values."""
        left = [slab for slab in self.slabs if slab.name not in found and not slab.is_constant]
        for slab in left:  # where they should be
            self._add(found, slab, [(self._patterns(slab)[0], self.expected[slab.name])], compare)
        left = [slab for slab in left if slab.name not in found]
        if compare in (_equal_shares, _near_shares):
            hits = _Lookup(left, self.buffer, near=compare is _near_shares)
            for slab in left:
                self._add(found, slab, self._voted(slab, hits), compare)
                if slab.name not in found and compare is _equal_shares:
                    self._add(found, slab, _solved(slab, hits), compare)
        new = True
        while new:  # next to those that were found
            left = [slab for slab in self.slabs if slab.name not in found]
            new = False
            for slab in left:
                places = self._beside(slab, found)
                beside = ((pattern, at) for at in places for pattern in self._patterns(slab))
                new |= self._add(found, slab, beside, compare)

    def _find_together(self, found: Located) -> None:
        """Add the matrices that are where they should be, if all that are left correlate together:
        each may be too small to show it."""
        left = [slab for slab in self.slabs if slab.name not in found]
        sums = []  # for each gate: of x v, of x x and of v v
        for slab in left:
            at = self.expected[slab.name]
            x = self.buffer[at : at + slab.size]
            if x.size < slab.size:
                return
            x, v = x.reshape(len(slab.values), -1), slab.values.reshape(len(slab.values), -1)
            with np.errstate(all="ignore"):
                sums += list(zip(*(np.einsum("gi,gi->g", a, b, dtype="f8")
                                   for a, b in ((x, v), (x, x), (v, v))), strict=True))  # fmt: skip
        with np.errstate(all="ignore"):
            gates = np.array([*sums, np.sum(sums, axis=0)])
            share = gates[:, 0] / np.sqrt(gates[:, 1] * gates[:, 2])
        enough = _RELATED / np.sqrt(sum(slab.size for slab in left))
        if share[-1] >= max(ENOUGH_SAMPLES, enough) and share.min() > 0.5:
            for slab in left:
                order = tuple(range(slab.shape[0]))
                right = self._patterns(slab)[0]
                reading = MatrixReading(right, self.expected[slab.name], order, (1,) * len(order),
                                        float(share[-1]))  # fmt: skip
                found[slab.name] = LocatedMatrix(slab, (reading,))

    def _patterns(self, slab: Slab) -> list[Pattern]:
        if slab.name not in self._all_patterns:
            layer, direction, role = slab.name
            other = self._columns.get((layer, direction, {"W": "R", "R": "W"}.get(role, "")), 0)
            self._all_patterns[slab.name] = list(patterns_of(slab.shape, other))
        return self._all_patterns[slab.name]

    def _beside(self, slab: Slab, found: Located) -> list[int]:
        """Return where a matrix may begin: where it should, and before and after others."""
        spans = {name: one.span for name, one in found.items()}
        k = self.slabs.index(slab)
        after = [spans[one.name][1] for one in self.slabs[max(k - 1, 0) : k] if one.name in spans]
        before = [spans[one.name][0] - slab.size for one in self.slabs[k + 1 : k + 2]
                  if one.name in spans]  # fmt: skip
        ends = [end for _, end in spans.values()]
        starts = [start for start, _ in spans.values()]
        every = [*after, *before, self.expected[slab.name]]
        if not slab.is_constant:  # it would be found anywhere
            every += [0, self.buffer.size - slab.size, *ends]
            every += [start - slab.size for start in starts]
        return [at for at in dict.fromkeys(every) if at not in starts]

    def _voted(self, slab: Slab, hits: _Lookup) -> Iterator[tuple[Pattern, int]]:
        """Yield the patterns and places on which most of the values that were looked up agree."""
        gate, sample, positions = hits.of(slab)
        if not positions.size:
            return
        within = slab.samples[gate, sample]
        gates, rows, columns = slab.shape
        best: list[tuple[int, Pattern, int]] = []
        for pattern in self._patterns(slab):
            starts = [positions - pattern.index(place * rows * columns + within, slab.shape)
                      for place in range(gates)]  # fmt: skip
            at, count = np.unique(np.concatenate(starts), return_counts=True)
            most = np.argsort(-count, kind="stable")[:_MOST_STARTS]
            best += [(int(count[k]), pattern, int(at[k])) for k in most]
        best.sort(key=lambda one: -one[0])
        yield from ((p, at) for votes, p, at in best[:_MOST_PLACES] if 2 * votes >= best[0][0])

    def _add(
        self,
        found: Located,
        slab: Slab,
        places: Iterable[tuple[Pattern, int]],
        compare: Shares,
    ) -> bool:
        """Add a matrix if it is in one of these places: in that where most of it is."""
        best: list[MatrixReading] = []
        taken = {one.span[0] for one in found.values()}
        near = [one.span[0] for one in found.values()
                if one.slab.name[:2] == slab.name[:2] and not slab.is_constant]  # fmt: skip

        def rank(one: MatrixReading) -> tuple[float, bool, bool, int]:
            """Order readings: one that fits better, in a place of its own, with the gates in order,
            near the other matrix of the layer."""
            in_order = one.order == tuple(sorted(one.order))
            return one.share, one.at not in taken, in_order, -sum(abs(one.at - at) for at in near)

        for more in self._readings(slab, places, compare):
            if not best or rank(more[0]) > rank(best[0]):
                best = more
        if not best:
            return False
        first = best[0]
        others = [(p, first.at) for p in self._patterns(slab) if p != first.pattern]
        best += [one for more in self._readings(slab, others, compare) for one in more]
        most = max(reading.share for reading in best)
        same = [r for r in best if r.share == most]
        same.sort(key=lambda r: MATRIX_FORMS.index(r.form) if r.form in MATRIX_FORMS else 99)
        found[slab.name] = LocatedMatrix(slab, tuple(same))
        return True

    def _readings(
        self, slab: Slab, places: Iterable[tuple[Pattern, int]], compare: Shares
    ) -> Iterator[list[MatrixReading]]:
        """Yield, for each pattern and place with which a matrix can be read, the ways to do so that
        fit best."""
        inside = []
        for pattern, at in places:
            low, high = pattern.span(slab.shape)
            if at + low >= 0 and at + high <= self.buffer.size:
                inside.append((pattern, at))
        if slab.is_constant:
            for pattern, at in inside:
                yield from self._constant(slab, pattern, at, compare)
        elif inside:
            where = np.stack([at + self._samples(slab, pattern) for pattern, at in inside])
            with np.errstate(all="ignore"):
                found = compare(comparable(self.buffer[where]), slab.sampled, self.eps)
            share = found[0]  # pattern and place in the buffer, place of a gate, gate
            least = np.minimum(share.max(axis=1).min(axis=1), share.max(axis=2).min(axis=1))
            for k in np.flatnonzero(least >= ENOUGH_SAMPLES):
                if fitting := self._fitting(*inside[k], *(part[k] for part in found)):
                    yield fitting

    def _samples(self, slab: Slab, pattern: Pattern) -> np.ndarray:
        """Return where the samples are with this pattern, as (place of a gate, gate, sample)."""
        key = slab.name, pattern
        if key not in self._indices:
            gates, rows, columns = slab.shape
            starts = (np.arange(gates) * rows * columns).reshape(-1, 1, 1)
            self._indices[key] = pattern.index(starts + slab.samples, slab.shape)
        return self._indices[key]

    def _fitting(
        self, pattern: Pattern, at: int, share: np.ndarray, minus: np.ndarray, scale: np.ndarray
    ) -> list[MatrixReading]:
        """Return the orders of the gates that fit best."""
        found = []
        for order in gate_orders(len(share)):
            places = np.arange(len(share)), np.array(order)
            factors = scale[places]
            alike = np.ptp(factors) <= 8 * self.eps * factors[0]
            if share[places].min() >= ENOUGH_SAMPLES and alike:
                signs = tuple(-1 if m else 1 for m in minus[places])
                one = float(share[places].mean())
                found.append(MatrixReading(pattern, at, order, signs, one, float(factors[0])))
        most = max((reading.share for reading in found), default=0.0)
        return [reading for reading in found if reading.share == most]

    def _constant(
        self, slab: Slab, pattern: Pattern, at: int, compare: Shares
    ) -> Iterator[list[MatrixReading]]:
        """Yield how to read a matrix whose values are all the same."""
        if not pattern.form.words:
            gates = slab.shape[0]
            x = comparable(pattern.take(self.buffer, at, slab.shape)).reshape(1, 1, -1)
            share, *_ = compare(x, np.full((1, x.size), slab.sampled[0, 0]), self.eps)
            if share[0, 0] == 1:
                yield [MatrixReading(pattern, at, tuple(range(gates)), (1,) * gates, 1.0)]


# -------------------------------------------------------------------------- how values are compared

# Of the values x in the buffer (place, gate, sample), the true ones v (gate, sample) and the
# relative rounding of one value: the share of the samples that agree, whether with the other sign,
# and the factor between them, each as (place, gate).
Shares = Callable[[np.ndarray, np.ndarray, float], tuple[np.ndarray, np.ndarray, np.ndarray]]


def _within(x: np.ndarray, v: np.ndarray, wide: np.ndarray) -> tuple[np.ndarray, ...]:
    plain = (np.abs(x - v) <= wide).mean(axis=-1)
    negated = (np.abs(x + v) <= wide).mean(axis=-1)
    share = np.maximum(plain, negated)
    return share, negated > plain, np.ones_like(share)


def _equal_shares(x: np.ndarray, v: np.ndarray, eps: float) -> Any:
    return _within(x, v, 0 * v)


def _kept_shares(x: np.ndarray, v: np.ndarray, eps: float) -> Any:
    """Equal but for those that were replaced by 0."""
    share, minus, scale = _within(x, v, 0 * v)
    kept = (x != 0) & (v != 0)
    return np.where(kept.any(axis=-1), share + (~kept).mean(axis=-1) * (share > 0), 0), minus, scale


def _near_shares(x: np.ndarray, v: np.ndarray, eps: float) -> Any:
    """Equal but for rounding, also to 8 bits."""
    return _within(x, v, _tolerance(v))


def _tolerance(v: np.ndarray) -> np.ndarray:
    return np.asarray(0.01 * np.abs(v) + largest(v) / 120)


def _scaled_shares(x: np.ndarray, v: np.ndarray, eps: float) -> Any:
    """Equal but for one factor, which at least 4 values per gate have in common."""
    ratio = np.nan_to_num(x / np.where(v == 0, np.nan, v))
    scale = np.median(ratio, axis=-1)
    scale = np.where(np.abs(np.abs(scale) - 1) <= 8 * eps, np.sign(scale), scale)
    known = (scale != 0) & (x.shape[-1] >= 4) & np.isfinite(scale)
    near = np.abs(ratio - scale[..., None]) <= 4 * eps * np.abs(scale[..., None])
    return np.where(known, near.mean(axis=-1), 0), scale < 0, np.abs(scale)


def _correlations(x: np.ndarray, v: np.ndarray, eps: float) -> Any:
    """The correlation of all gates together, if it is one that chance does not make.

    That of n values which have nothing to do with each other has a standard deviation of
    1 / sqrt(n).
    """
    dot = (x * v).sum(axis=-1)
    with np.errstate(invalid="ignore"):  # 0 / 0: zeros, or no numbers, are related to nothing
        share = dot / np.sqrt((x**2).sum(axis=-1) * (v**2).sum(axis=-1))
    strong = np.abs(share) * np.sqrt(v.size) >= _RELATED
    return np.where(strong, np.abs(share), 0), share < 0, np.ones_like(share)


# ------------------------------------------------------------------------------- where values are


class _Lookup:
    """The anchors of matrices, looked up in a buffer."""

    def __init__(self, slabs: list[Slab], buffer: np.ndarray, near: bool) -> None:
        self.near = near
        self.anchors = {slab.name: _anchors(slab) for slab in slabs}
        wanted = [slab.sampled[where] for slab in slabs for where in [self.anchors[slab.name]]]
        low = min((float(np.abs(v).min()) for v in wanted if v.size), default=np.inf)
        if near and np.isfinite(low):
            low = low - max(_tolerance(v).max() for v in wanted if v.size)
        with np.errstate(invalid="ignore"):
            large = np.flatnonzero(np.abs(buffer) >= low)
        values = np.abs(comparable(buffer[large]))
        order = np.argsort(values, kind="stable")
        self.values, self.positions = values[order], large[order]

    def of(self, slab: Slab) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return gate, sample and position of each place where an anchor's value is."""
        gate, sample = self.anchors[slab.name]
        value = np.abs(slab.sampled[gate, sample])
        wide = _tolerance(value) if self.near and value.size else 0 * value
        first = np.searchsorted(self.values, value - wide, "left")
        count = np.searchsorted(self.values, value + wide, "right") - first
        rare = (count > 0) & (count <= _MOST_HITS * (8 if self.near else 1))
        gate, sample, first, count = (x[rare] for x in (gate, sample, first, count))
        each = np.repeat(first - np.cumsum(count) + count, count) + np.arange(count.sum())
        return np.repeat(gate, count), np.repeat(sample, count), self.positions[each]


def _anchors(slab: Slab) -> tuple[np.ndarray, np.ndarray]:
    """Return gate and sample of the values that are looked up."""
    values = np.abs(slab.sampled)
    known = (values > 0) & (values < 1e300)
    order = np.argsort(~known, axis=1, kind="stable")[:, :_ANCHORS]
    gate = np.repeat(np.arange(len(values)), order.shape[1])
    keep = known[gate, order.reshape(-1)]
    return gate[keep], order.reshape(-1)[keep]


def _solved(slab: Slab, hits: _Lookup) -> Iterator[tuple[Pattern, int]]:
    """Yield the pattern of strides that follows from where the anchors of each gate are."""
    gate, sample, positions = hits.of(slab)
    gates, rows, columns = slab.shape
    starts, steps = [], set()
    for k in range(gates):
        row, column = np.divmod(slab.samples[k, sample[gate == k]], columns)
        points = np.stack([row, column, positions[gate == k]], axis=1).tolist()
        solved = _solve([*map(tuple, points)], (rows == 1, columns == 1), 1 + (gates == 1))
        if solved is None:
            return
        starts.append(solved[0])
        steps.add(solved[1:])
    starts.sort()
    apart = {b - a for a, b in pairwise(starts)} or {rows * columns}
    if len(steps) == len(apart) == 1:
        strides = (apart.pop(), *steps.pop())
        yield solved_pattern(strides, slab.shape), starts[0]


def _solve(
    points: list[tuple[int, int, int]], closed: tuple[bool, bool], more: int
) -> tuple[int, int, int] | None:
    """Return start, row stride and column stride that explain most places.

    points: row, column and place of values. closed: whether there is only one row, or column: its
    stride is 1. None if few points agree: at least so many more than the strides are solved from.
    """
    need = 3 - sum(closed)
    if need == 1:
        return None  # a single value shows no strides
    only_one = [(int(rows), int(columns), 1) for rows, columns in [closed] if need == 2]
    for (row, column, at), *others in combinations(points[:10], need):
        steps = [(r - row, c - column, place - at) for r, c, place in others] + only_one
        (r1, c1, d1), (r2, c2, d2) = steps
        if not (det := r1 * c2 - r2 * c1):
            continue
        so, so_rest = divmod(d1 * c2 - d2 * c1, det)
        si, si_rest = divmod(r1 * d2 - r2 * d1, det)
        if so_rest or si_rest:
            continue
        start = at - row * so - column * si
        agree = sum(start + r * so + c * si == place for r, c, place in points)
        if agree >= need + more and agree >= ENOUGH_SAMPLES * len({point[:2] for point in points}):
            return start, so, si
    return None


def _simplest_readings(found: Located) -> Located:
    """Put a reading of each matrix first so that the fewest different mistakes are needed."""
    readings = {name: list(one.readings) for name, one in found.items()}
    for trait in (
        lambda r: MATRIX_FORMS.index(r.form) if r.form in MATRIX_FORMS else len(MATRIX_FORMS),
        lambda r: (len(r.order), r.order),
    ):
        _settle_trait(readings, trait)
    return {
        name: replace(one, readings=tuple(dict.fromkeys([*readings[name], *one.readings])))
        for name, one in found.items()
    }


def _settle_trait(
    readings: dict[MatrixName, list[MatrixReading]], trait: Callable[[MatrixReading], Any]
) -> None:
    """Keep of each matrix the readings with one value of a trait: the right one, which is the
    least, if it is possible, else that which most of the others may have."""
    open_ = set(readings)
    while open_:
        votes = Counter(value for name in open_ for value in {trait(r) for r in readings[name]})
        right = [value for value in votes if value in (0, *_RIGHT_ORDERS)]
        most = min(votes, key=lambda value: (-votes[value], value))
        pick = right[0] if right else most
        for name in [name for name in open_ if pick in map(trait, readings[name])]:
            readings[name] = [r for r in readings[name] if trait(r) == pick]
            open_.remove(name)


_RIGHT_ORDERS = tuple((count, tuple(range(count))) for count in range(1, 5))
