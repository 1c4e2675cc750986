"""Find the matrices in a buffer, and how each matrix was written.

A few of the largest values of a matrix, which are rare, are looked up in the buffer. For each
pattern of strides every match votes for a start; the start with most votes wins. Strides outside
the table are solved for from the places of three values.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations, pairwise, permutations
from typing import Any

import numpy as np

from rnnlayout._model.layout import ROLES

from .matrix_forms import MatrixForm, Pattern, patterns_of, rolled_pattern, solved_pattern
from .truth import MatrixName, TrueArray, comparable, largest, same_bits

ENOUGH_SAMPLES = 0.7  # of the samples have to be equal: a few values may have been changed
_ANCHORS = 8  # per gate: samples that are looked up
_RUN = 4  # values
_AT_ONCE = 1 << 18  # values of the buffer that are searched at a time
_MOST_HITS = 64  # of an anchor: a value that is more frequent shows nothing
_MOST_STARTS, _MOST_PLACES = 8, 24  # per pattern, and of all: places that are tried
# Next to how many located matrices, before and after its right place, a matrix is looked for, and
# how often: so the search is linear in the number of layers.
_MOST_NEAR, _MOST_ROUNDS = 16, 16
# How many matrices may be looked for in vain: a search for one takes up to a tenth of a second, and
# a small file may claim hundreds. The files of networks are larger: 4 KB per matrix allow all.
_MOST_ABSENT, _NBYTES_PER_ABSENT = 16, 4096
_FEWEST_NEAR = 8  # values: fewer than these are near to others by chance
_RELATED = 6  # standard deviations: a correlation too strong for chance, see _correlations()


@dataclass(frozen=True)
class MatrixReading:
    """A way to read a matrix. at: the place of the first element. order: for each place of a gate
    in the buffer, the number of the gate stored in this place. signs: for each place 1, or -1 if
    the gate is negated. scale: the factor of all values.
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

    @property
    def in_order(self) -> bool:
        """Return whether the gates are in order."""
        return self.order == tuple(sorted(self.order))


@dataclass(frozen=True)
class LocatedMatrix:
    """A matrix and its place. readings: the ways to read the matrix that fit equally well, the
    likeliest first. unknown_gates: the numbers of gates with other values; all others are equal."""

    matrix: TrueArray
    readings: tuple[MatrixReading, ...]
    unknown_gates: tuple[int, ...] = ()

    @property
    def reading(self) -> MatrixReading:
        return self.readings[0]

    def is_right_at(self, start: int) -> bool:
        """Return whether a repair copies the matrix unchanged, from `start`."""
        pattern, gates = next(patterns_of(self.matrix.shape, 0)), self.matrix.shape[0]
        order, signs, share = (*range(gates),), (1,) * gates, self.reading.share
        return self.reading == MatrixReading(pattern, start, order, signs, share)

    @property
    def span(self) -> tuple[int, int]:
        """Return where the matrix begins and ends in the buffer."""
        low, high = self.reading.pattern.span(self.matrix.shape)
        return self.reading.at + low, self.reading.at + high


LocatedMatrices = dict[MatrixName, LocatedMatrix]


class MatrixFinder:
    """Looks for matrices in a buffer of values. starts: the right place of each matrix. eps: from 1
    to the next number of the dtype."""

    def __init__(
        self,
        true_arrays: list[TrueArray],
        buffer: np.ndarray,
        starts: Mapping[MatrixName, int],
        eps: float,
    ) -> None:
        self.buffer, self.true_arrays, self.starts, self.eps = buffer, true_arrays, starts, eps
        columns = {matrix.name: matrix.shape[2] for matrix in true_arrays}
        self._patterns: dict[MatrixName, list[Pattern]] = {}
        for matrix in true_arrays:
            layer, direction, role = matrix.name
            joined = columns.get((layer, direction, {"W": "R", "R": "W"}.get(role, "")), 0)
            self._patterns[matrix.name] = list(patterns_of(matrix.shape, joined))
        self._indices: dict[tuple[MatrixName, Pattern], np.ndarray] = {}
        self._numbers = {matrix.name: k for k, matrix in enumerate(true_arrays)}
        self._most_absent = _MOST_ABSENT + buffer.nbytes // _NBYTES_PER_ABSENT
        self.unsearched: set[MatrixName] = set()
        # of the located matrices: the spans by name, and in sorted order all starts and all ends
        self._spans: dict[MatrixName, tuple[int, int]] = {}
        self._starts: list[int] = []
        self._ends: list[int] = []

    def find(self, exactly: bool = False) -> LocatedMatrices:
        """Return the matrices in the buffer, in the buffer's order: unchanged or multiplied
        matrices, and if not `exactly` also rounded or otherwise changed matrices."""
        located: LocatedMatrices = {}
        self._spans, self._starts, self._ends, self.unsearched = {}, [], [], set()
        near = () if exactly else (_kept_shares, _near_shares, _correlations)
        for compare in (_equal_shares, _scaled_shares, *near):
            self._find_all(compare, located)
            if len(located) == len(self.true_arrays):
                break
        for matrix in () if exactly else self._to_search(self.true_arrays, located):
            self._add_gates(located, matrix)
        self.unsearched -= located.keys()
        names = sorted(located, key=lambda name: (self._spans[name], self._numbers[name]))
        return _simplest_readings([located[name] for name in names])

    def _put(self, located: LocatedMatrices, placed: LocatedMatrix) -> None:
        """Add a located matrix, and where it is."""
        name, (start, end) = placed.matrix.name, placed.span
        located[name] = placed
        self._spans[name] = start, end
        insort(self._starts, start)
        insort(self._ends, end)

    def _is_taken(self, at: int) -> bool:
        """Return whether a located matrix begins at a place."""
        return bool(self._starts[bisect_left(self._starts, at) :][:1] == [at])

    def _find_all(self, compare: Shares, located: LocatedMatrices) -> None:
        """Add the matrices that match by this comparison of values."""
        missing = [
            matrix
            for matrix in self.true_arrays
            if matrix.name not in located and not matrix.is_constant
        ]
        for matrix in missing:  # in the right place
            pattern, at = self._patterns[matrix.name][0], self.starts[matrix.name]
            stored = self.buffer[at : at + matrix.size]
            if compare is _equal_shares and same_bits(stored, matrix.values.reshape(-1)):
                gates = matrix.shape[0]
                reading = MatrixReading(pattern, at, (*range(gates),), (1,) * gates, 1.0)
                self._put(located, LocatedMatrix(matrix, (reading,)))
            else:
                self._add(located, matrix, [(pattern, at)], compare)
        fewest = 0 if compare is _equal_shares else _FEWEST_NEAR
        missing = [m for m in missing if m.name not in located and m.size >= fewest]
        if compare in (_equal_shares, _near_shares):
            hits = _Lookup(missing, self.buffer, near=compare is _near_shares)
            for matrix in self._to_search(missing, located):
                voted = chain(self._voted(matrix, hits), self._rolled(matrix, hits))
                self._add(located, matrix, voted, compare)
                if matrix.name not in located and compare is _equal_shares:
                    self._add(located, matrix, _solved(matrix, hits), compare)
        for _ in range(_MOST_ROUNDS):  # next to located matrices
            new = False
            large = [m for m in self.true_arrays if m.is_constant or m.size >= fewest]
            for matrix in self._to_search(large, located):
                new |= self._add(located, matrix, self._beside(matrix, located), compare)
            if not new:
                break

    def _to_search(
        self, matrices: list[TrueArray], located: LocatedMatrices
    ) -> Iterator[TrueArray]:
        """Yield the matrices that are not located, until too many of them turn out to be absent:
        the others are unsearched."""
        absent = 0
        for matrix in matrices:
            if matrix.name in located or matrix.name in self.unsearched:
                continue
            if absent == self._most_absent:
                self.unsearched.add(matrix.name)
                continue
            yield matrix
            absent += matrix.name not in located

    def _add_gates(self, located: LocatedMatrices, matrix: TrueArray) -> None:
        """Add a matrix if half of its gates are in their places, bit by bit, in any form."""
        gates = matrix.shape[0]
        for pattern, at in self._inside(matrix, self._beside(matrix, located)):
            stored = pattern.take(self.buffer, at, matrix.shape)
            places = [np.ascontiguousarray(gate) for gate in stored]
            pairs = enumerate(zip(places, matrix.values, strict=True))
            unknown = [k for k, (x, v) in pairs if not same_bits(x, v)]
            if 2 * len(unknown) <= gates > len(unknown):
                order = [*range(gates)]
                for a, b in list(permutations(unknown, 2)):  # gate b is in the place of gate a
                    if same_bits(places[a], matrix.values[b]):
                        order[a], order[b] = b, a
                        unknown.remove(b)
                share = 1 - len(unknown) / gates
                reading = MatrixReading(pattern, at, tuple(order), (1,) * gates, share)
                self._put(located, LocatedMatrix(matrix, (reading,), tuple(unknown)))
                return

    def _beside(self, matrix: TrueArray, located: LocatedMatrices) -> list[tuple[Pattern, int]]:
        """Return how and where a matrix may be: at the right start, or next to located matrices, of
        many the nearest."""
        spans, k, right = self._spans, self._numbers[matrix.name], self.starts[matrix.name]
        before, after = self.true_arrays[max(k - 1, 0) : k], self.true_arrays[k + 1 : k + 2]
        starts = [spans[other.name][1] for other in before if other.name in spans]
        starts += [spans[other.name][0] - matrix.size for other in after if other.name in spans]
        starts.append(right)
        if not matrix.is_constant:  # a constant matrix would fit anywhere
            starts += [0, self.buffer.size - matrix.size, *_nearest(self._ends, right)]
            starts += [at - matrix.size for at in _nearest(self._starts, right + matrix.size)]
        free = [at for at in dict.fromkeys(starts) if not self._is_taken(at)]
        patterns = [(p, p.span(matrix.shape)[0]) for p in self._patterns[matrix.name]]
        return [(pattern, at - low) for pattern, low in patterns for at in free]

    def _voted(self, matrix: TrueArray, hits: _Lookup) -> Iterator[tuple[Pattern, int]]:
        """Yield the patterns and places with most votes of the anchors."""
        gate, sample, positions = hits.of(matrix)
        if not positions.size:
            return
        within = matrix.samples[gate, sample]
        gates, rows, columns = matrix.shape
        best: list[tuple[int, Pattern, int]] = []
        for pattern in self._patterns[matrix.name]:
            starts = [
                positions - pattern.index(place * rows * columns + within, matrix.shape)
                for place in range(gates)
            ]
            at, count = np.unique(np.concatenate(starts), return_counts=True)
            most = np.argsort(-count, kind="stable")[:_MOST_STARTS]
            best += [(int(count[k]), pattern, int(at[k])) for k in most]
        best.sort(key=lambda vote: -vote[0])
        yield from ((p, at) for votes, p, at in best[:_MOST_PLACES] if 2 * votes >= best[0][0])

    def _rolled(self, matrix: TrueArray, hits: _Lookup) -> Iterator[tuple[Pattern, int]]:
        """Yield the pattern of rolled rows or columns, where a matrix of this shape should be."""
        _, rows, columns = matrix.shape
        if columns == 1:  # or a vector of biases
            return
        gate, sample, positions = hits.of(matrix)
        alike = (other.name for other in self.true_arrays if other.shape == matrix.shape)
        for start in map(self.starts.__getitem__, alike):
            inside = (start <= positions) & (positions < start + matrix.size)
            row, column = np.divmod((positions - start)[inside] % (rows * columns), columns)
            true_row, true_column = np.divmod(matrix.samples[gate, sample][inside], columns)
            rolls = np.stack([(row - true_row) % rows, (column - true_column) % columns], axis=1)
            for roll, _ in Counter(map(tuple, rolls.tolist())).most_common(1):
                if any(roll):
                    yield rolled_pattern(roll, matrix.shape), start

    def _add(
        self,
        located: LocatedMatrices,
        matrix: TrueArray,
        places: Iterable[tuple[Pattern, int]],
        compare: Shares,
    ) -> bool:
        """Add a matrix if a place fits: the place with the largest share of the matrix."""
        layer = [] if matrix.is_constant else [(*matrix.name[:2], role) for role in ROLES]
        near = [self._spans[name][0] for name in layer if name in self._spans]

        candidates = [*self._readings(matrix, places, compare)]
        is_rolled = any(any(reading.pattern.rolls) for reading in candidates)

        def rank(reading: MatrixReading) -> tuple[float, float, bool, bool, int]:
            """Prefer a reading that fits better (by all values if it may be rolled: the samples may
            lack the last column), in a free place, with the gates in order, near the matrices of
            the layer."""
            apart = sum(abs(reading.at - at) for at in near)
            alike = self._share_of_all(matrix, reading) if is_rolled else 0.0
            free = not self._is_taken(reading.at)
            return reading.share, alike, free, reading.in_order, -apart

        best = max(candidates, key=rank, default=None)
        if best is None:
            return False
        # the samples are the largest values: do the others have their factor?
        if best.scale != 1 and self._share_of_all(matrix, best) < ENOUGH_SAMPLES:
            return False
        patterns = dict.fromkeys([best.pattern, *self._patterns[matrix.name]])
        readings = [*self._readings(matrix, [(p, best.at) for p in patterns], compare)]
        most = max(reading.share for reading in readings)
        fitting = sorted(
            (reading for reading in readings if reading.share == most),
            key=lambda reading: reading.form.rank,
        )
        self._put(located, LocatedMatrix(matrix, tuple(fitting)))
        return True

    def _share_of_all(self, matrix: TrueArray, reading: MatrixReading) -> float:
        """Return the share of all values that are as a reading says."""
        stored = reading.pattern.take(self.buffer, reading.at, matrix.shape)
        least, count = float(np.finfo(self.buffer.dtype).smallest_subnormal), 0
        for gate, number, sign in zip(stored, reading.order, reading.signs, strict=True):
            expected = comparable(matrix.values[number]) * reading.scale * sign
            with np.errstate(all="ignore"):
                far = np.abs(comparable(gate) - expected)
                near = far <= 4 * self.eps * np.abs(expected) + least
                count += int(np.count_nonzero(near))
        return count / matrix.size

    def _readings(
        self, matrix: TrueArray, places: Iterable[tuple[Pattern, int]], compare: Shares
    ) -> Iterator[MatrixReading]:
        """Yield the ways to read a matrix, with each pattern and place in the buffer."""
        inside, gates = [*self._inside(matrix, places)], matrix.shape[0]
        if matrix.is_constant:  # compare all values, in the right form alone
            for pattern, at in inside:
                if not pattern.form.words:
                    stored = pattern.take(self.buffer, at, matrix.shape)
                    # gate by gate, because the values in float64 take twice the memory
                    if all(_is_constant(gate, matrix, compare, self.eps) for gate in stored):
                        yield MatrixReading(pattern, at, (*range(gates),), (1,) * gates, 1.0)
        elif inside:
            where = np.stack([at + self._samples(matrix, pattern) for pattern, at in inside])
            with np.errstate(all="ignore"):
                comparison = compare(comparable(self.buffer[where]), matrix.sampled, self.eps)
            orders = np.array([*permutations(range(gates))])
            share = comparison[0]  # pattern and place in the buffer, place of a gate, gate
            least = np.minimum(share.max(axis=1).min(axis=1), share.max(axis=2).min(axis=1))
            for k in np.flatnonzero(least >= ENOUGH_SAMPLES):
                shares, minus, scales = (part[k][np.arange(gates), orders] for part in comparison)
                alike = np.ptp(scales, axis=1) <= 8 * self.eps * scales[:, 0]
                for n in np.flatnonzero((shares.min(axis=1) >= ENOUGH_SAMPLES) & alike):
                    signs = tuple(-1 if m else 1 for m in minus[n])
                    yield MatrixReading(
                        *inside[k],
                        tuple(orders[n].tolist()),
                        signs,
                        float(shares[n].mean()),
                        float(scales[n, 0]),
                    )

    def _inside(
        self, matrix: TrueArray, places: Iterable[tuple[Pattern, int]]
    ) -> Iterator[tuple[Pattern, int]]:
        """Yield the patterns and places with which a matrix is inside of the buffer."""
        for pattern, at in places:
            low, high = pattern.span(matrix.shape)
            if at + low >= 0 and at + high <= self.buffer.size:
                yield pattern, at

    def _samples(self, matrix: TrueArray, pattern: Pattern) -> np.ndarray:
        """Return where the samples are with this pattern, as (place of a gate, gate, sample)."""
        key = matrix.name, pattern
        if key not in self._indices:
            gates, rows, columns = matrix.shape
            starts = (np.arange(gates) * rows * columns).reshape(-1, 1, 1)
            self._indices[key] = pattern.index(starts + matrix.samples, matrix.shape)
        return self._indices[key]


def _nearest(places: list[int], at: int) -> list[int]:
    """Return the places that are nearest to a place, from places in sorted order."""
    k = bisect_left(places, at)
    return places[max(k - _MOST_NEAR, 0) : k + _MOST_NEAR]


# -------------------------------------------------------------------------- how values are compared

# f(x, v, eps). x: values in the buffer (place, gate, sample). v: true values (gate, sample). eps:
# relative rounding of a value. Returns three arrays (place, gate): the share of the samples that
# agree, whether x is negated, and the factor between x and v.
Shares = Callable[[np.ndarray, np.ndarray, float], tuple[np.ndarray, np.ndarray, np.ndarray]]


def _within(x: np.ndarray, v: np.ndarray, wide: np.ndarray) -> tuple[np.ndarray, ...]:
    plain = (np.abs(x - v) <= wide).mean(axis=-1)
    negated = (np.abs(x + v) <= wide).mean(axis=-1)
    share = np.maximum(plain, negated)
    return share, negated > plain, np.ones_like(share)


def _is_constant(gate: np.ndarray, matrix: TrueArray, compare: Shares, eps: float) -> bool:
    """Return whether all values of a gate in the buffer agree with the value of a constant."""
    x = comparable(gate).reshape(1, 1, -1)
    value = np.broadcast_to(matrix.sampled[0, 0], (1, x.size))
    return bool(compare(x, value, eps)[0][0, 0] == 1)


def _equal_shares(x: np.ndarray, v: np.ndarray, eps: float) -> Any:
    return _within(x, v, 0 * v)


def _kept_shares(x: np.ndarray, v: np.ndarray, eps: float) -> Any:
    """Equal except for values that were replaced by 0: most of the other values are equal."""
    share, minus, scale = _within(x, v, 0 * v)
    kept = ((x != 0) & (v != 0)).mean(axis=-1)
    fits = (kept > 0) & (share >= ENOUGH_SAMPLES * kept)
    return np.where(fits, share + 1 - kept, 0), minus, scale


def _near_shares(x: np.ndarray, v: np.ndarray, eps: float) -> Any:
    """Equal except for rounding, also to 8 bits."""
    return _within(x, v, _tolerance(v))


def _tolerance(v: np.ndarray) -> np.ndarray:
    return np.asarray(0.01 * np.abs(v) + largest(v) / 120)


def _scaled_shares(x: np.ndarray, v: np.ndarray, eps: float) -> Any:
    """Equal except for a factor that at least 4 values per gate have in common."""
    ratio = np.nan_to_num(x / np.where(v == 0, np.nan, v))
    scale = np.median(ratio, axis=-1)
    scale = np.where(np.abs(np.abs(scale) - 1) <= 8 * eps, np.sign(scale), scale)
    has_factor = (scale != 0) & (x.shape[-1] >= 4) & np.isfinite(scale)
    near = np.abs(ratio - scale[..., None]) <= 4 * eps * np.abs(scale[..., None])
    return np.where(has_factor, near.mean(axis=-1), 0), scale < 0, np.abs(scale)


def _correlations(x: np.ndarray, v: np.ndarray, eps: float) -> Any:
    """The correlation of each gate, if the correlation of all gates is too strong for chance.

    For n unrelated values, arctanh(correlation) has a standard deviation of 1 / sqrt(n - 3)
    (Fisher); the mean of arctanh(correlation) over G gates, 1 / sqrt(G (n - 3)).
    """
    x, v = (samples - samples.mean(axis=-1, keepdims=True) for samples in (x, v))
    with np.errstate(invalid="ignore", divide="ignore"):  # a single value has no correlation
        share = (x * v).sum(axis=-1) / np.sqrt((x**2).sum(axis=-1) * (v**2).sum(axis=-1))
        strong = np.arctanh(np.abs(share)) * np.sqrt(max(v.size - 3 * len(v), 0)) >= _RELATED
    rounded = np.round(np.abs(share), 3)  # forms that are alike for a shape are alike again
    return np.where(strong, rounded, 0), share < 0, np.ones_like(share)


# ------------------------------------------------------------------------------- where values are


class _Lookup:
    """The anchors of matrices, looked up in a buffer: single values, or if these are frequent, as
    among many values of 16 bits, runs of values along a row or a column."""

    def __init__(self, true_arrays: list[TrueArray], buffer: np.ndarray, near: bool) -> None:
        self._near, self._buffer = near, buffer
        self._most_hits = _MOST_HITS * (8 if near else 1)
        self._anchors: dict[MatrixName, tuple[np.ndarray, ...]] = {}
        low = np.inf
        for matrix in true_arrays:
            values = np.abs(matrix.sampled)
            usable = (values > 0) & (values < 1e300)
            sample = np.argsort(~usable, axis=1, kind="stable")[:, :_ANCHORS]
            gate = np.repeat(np.arange(len(values)), sample.shape[1])
            keep = usable[gate, sample.reshape(-1)]
            gate, sample = gate[keep], sample.reshape(-1)[keep]
            value = values[gate, sample]
            wide = _tolerance(value) if near and value.size else 0 * value
            self._anchors[matrix.name] = gate, sample, value - wide, value + wide
            low = min(low, (value - wide).min(initial=low))
        large = _large(buffer, low)
        values = np.abs(comparable(buffer[large]))
        order = np.argsort(values, kind="stable")
        self._values, self._positions = values[order], large[order]

    def of(self, matrix: TrueArray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return gate, sample and position of each place where an anchor's value is."""
        gate, sample, low, high = self._anchors[matrix.name]
        first = np.searchsorted(self._values, low, "left")
        count = np.searchsorted(self._values, high, "right") - first
        if not self._near and count.any() and np.median(count[count > 0]) > 1:
            runs = self._runs_of(matrix)
            if runs[0].size:
                return runs
        rare = (count > 0) & (count <= self._most_hits)
        hits, times = _ranges(first[rare], count[rare])
        return gate[rare][times], sample[rare][times], self._positions[hits]

    @cached_property
    def _runs(self) -> tuple[np.ndarray, np.ndarray]:
        """The keys of all runs in the buffer, sorted, and where each begins."""
        runs = np.lib.stride_tricks.sliding_window_view(self._buffer, _RUN)
        keys = _keys_of_runs(runs)
        order = np.argsort(keys, kind="stable")
        return keys[order], order

    def _runs_of(self, matrix: TrueArray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the same as of(), of places where a run of values begins with an anchor."""
        gate, sample, *_ = self._anchors[matrix.name]
        _, rows, columns = matrix.shape
        row, column = np.divmod(matrix.samples[gate, sample][:, None], columns)
        keys, positions = self._runs
        hits = []
        for down, right in ((0, 1), (0, -1), (1, 0), (-1, 0)):
            r, c = row + down * np.arange(_RUN), column + right * np.arange(_RUN)
            inside = ((r >= 0) & (r < rows) & (c >= 0) & (c < columns)).all(axis=1)
            run = matrix.values[gate[inside, None], r[inside], c[inside]]
            key = _keys_of_runs(run)
            first = np.searchsorted(keys, key, "left")
            count = np.searchsorted(keys, key, "right") - first
            count[count > self._most_hits] = 0
            at, times = _ranges(first, count)
            hits.append((gate[inside][times], sample[inside][times], positions[at]))
        gates, samples, places = (np.concatenate(part) for part in zip(*hits, strict=True))
        return gates, samples, places


def _large(buffer: np.ndarray, low: float) -> np.ndarray:
    """Return the places of the values whose absolute value is at least low."""
    starts = range(0, max(buffer.size, 1), _AT_ONCE)
    with np.errstate(invalid="ignore"):
        parts = [np.flatnonzero(np.abs(buffer[k : k + _AT_ONCE]) >= low) + k for k in starts]
    return np.concatenate(parts)


def _ranges(first: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers from first to first + count of each pair, and the number of the pair."""
    times = np.repeat(np.arange(count.size), count)
    return first[times] + np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count), times


def _keys_of_runs(runs: np.ndarray) -> np.ndarray:
    """Return a number per row of values, which depends on their order and not on their signs."""
    keys = np.zeros(len(runs), "u8")
    for k in range(runs.shape[1]):
        column = np.abs(runs[:, k])
        keys = keys * np.uint64(0x9E3779B97F4A7C15) + column.view(f"u{column.itemsize}").astype(
            "u8"
        )
    return keys


def _solved(matrix: TrueArray, hits: _Lookup) -> Iterator[tuple[Pattern, int]]:
    """Yield the pattern of strides that follows from where the anchors of each gate are."""
    gate, sample, positions = hits.of(matrix)
    gates, rows, columns = matrix.shape
    solved = []
    for k in range(gates):
        points = np.stack([*np.divmod(matrix.samples[k, sample[gate == k]], columns)], axis=1)
        solved.append(_solve(points, positions[gate == k], (rows, columns), 1 + (gates == 1)))
    starts = sorted(solution[0] for solution in solved if solution)
    steps = {solution[1:] for solution in solved if solution}
    apart = {b - a for a, b in pairwise(starts)} or {rows * columns}
    if len(starts) == gates and len(steps) == len(apart) == 1:
        strides = (apart.pop(), *steps.pop())
        yield solved_pattern(strides, matrix.shape), starts[0]


def _solve(
    points: np.ndarray, places: np.ndarray, shape: tuple[int, int], margin: int
) -> tuple[int, int, int] | None:
    """Return start, row stride and column stride that explain most places; 1 for an axis of size 1.

    points: row and column of values. margin: how many values must agree besides the values that
    determine the strides; else None.
    """
    axes = [axis for axis in (0, 1) if shape[axis] > 1]
    coefficients = np.concatenate([np.ones_like(points[:, :1]), points[:, axes]], axis=1)
    distinct, need = len(np.unique(points, axis=0)), 1 + len(axes)
    for chosen in map(list, combinations(range(min(len(points), 10)), need) if axes else ()):
        if round(np.linalg.det(coefficients[chosen])):
            solution = np.rint(np.linalg.solve(coefficients[chosen], places[chosen])).astype(int)
            agree = np.count_nonzero(coefficients @ solution == places)
            if agree >= max(need + margin, ENOUGH_SAMPLES * distinct):
                strides = np.ones(2, int)
                strides[axes] = solution[1:]
                return int(solution[0]), int(strides[0]), int(strides[1])
    return None


def _simplest_readings(matrices: list[LocatedMatrix]) -> LocatedMatrices:
    """Put a reading of each matrix first so that the fewest different mistakes are needed.

    Choose the form, then the order of gates: the right choice if possible, else the choice that
    most matrices allow.
    """
    readings = {located.matrix.name: list(located.readings) for located in matrices}
    for trait in (lambda r: (r.form.rank > 0, r.form.rank), lambda r: (not r.in_order, r.order)):
        open_ = set(readings)
        while open_:
            votes = Counter(value for name in open_ for value in set(map(trait, readings[name])))
            pick = min(votes, key=lambda value: (value[0], -votes[value], value))
            for name in [name for name in open_ if pick in map(trait, readings[name])]:
                readings[name] = [r for r in readings[name] if trait(r) == pick]
                open_.remove(name)
    return {
        located.matrix.name: LocatedMatrix(
            located.matrix,
            tuple(dict.fromkeys([*readings[located.matrix.name], *located.readings])),
            located.unknown_gates,
        )
        for located in matrices
    }
