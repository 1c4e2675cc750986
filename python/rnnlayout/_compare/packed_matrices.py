"""Where the matrices are in a packed buffer, and how each was written there.

Samples of each matrix are compared with the buffer: a few of its largest values tell the place, the
form, the order of the gates and their signs at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .matrix_forms import MATRIX_FORMS, MatrixForm
from .truth import MatrixName, Slab, Truth, comparable, gate_orders, largest

ENOUGH_SAMPLES = 0.7  # of the samples have to be equal: values here and there may have been changed
_MOST_STEPS = 4096  # of a look ahead


@dataclass(frozen=True)
class MatrixSpan:
    """Where a matrix is: `runs` pieces of equal length, each `step` after the one before."""

    at: int
    runs: int
    step: int

    def take(self, buffer: np.ndarray, size: int) -> np.ndarray:
        """Return the numbers in the order of the buffer, 1-D."""
        if self.runs == 1:
            return buffer[self.at : self.at + size]
        shape, item = (self.runs, size // self.runs), buffer.itemsize
        strides = self.step * item, item
        return np.lib.stride_tricks.as_strided(buffer[self.at :], shape, strides).reshape(-1)

    def end(self, size: int) -> int:
        """Return where in the buffer a chunk of so many numbers ends."""
        return self.at + (self.runs - 1) * self.step + size // self.runs

    def index(self, at: np.ndarray, size: int) -> np.ndarray:
        """Return where in the buffer these elements of the chunk are."""
        length = size // self.runs
        return np.asarray(self.at + at // length * self.step + at % length)


@dataclass(frozen=True)
class MatrixReading:
    """One way to read a matrix. order: for each place of a gate in the buffer, the number of the
    gate that is there. signs: for each place 1, or -1 if that gate is negated.
    """

    form: MatrixForm
    order: tuple[int, ...]
    signs: tuple[int, ...]
    share: float  # of the samples that are equal


@dataclass(frozen=True)
class LocatedMatrix:
    """A matrix that was found in the buffer. readings: the ways to read it that fit equally well,
    the likeliest first.
    """

    slab: Slab
    place: MatrixSpan
    readings: tuple[MatrixReading, ...]


class MatrixFinder:
    """Looks for the matrices of a truth in a buffer of values.

    near: accept values that are close, as after rounding or quantization.
    """

    def __init__(self, truth: Truth, buffer: np.ndarray, near: bool) -> None:
        self.truth, self.buffer, self.near = truth, buffer, near
        self._index: dict[str, np.ndarray] = {}

    def find(self) -> list[LocatedMatrix]:
        """Return the matrices that are in the buffer, in its order."""
        found: list[LocatedMatrix] = []
        left = list(self.truth.slabs)
        free = self.buffer.size - self.truth.num_weights  # what is not a matrix
        at, ahead = 0, True
        while left and at < self.buffer.size:
            new = self._next(left, at, free if ahead else 0)
            ahead = bool(new)  # once in a row: other weights are not searched for everywhere
            if not new:  # the next one in the right order is unknown
                at += left.pop(0).size
                continue
            free -= new[0].place.at - at
            at = new[0].place.at + sum(one.slab.size for one in new)
            for one in new:
                left.remove(one.slab)
            if new[0].slab in self.truth.slabs:  # go on with its successors
                k = self.truth.slabs.index(new[-1].slab)
                left.sort(key=lambda slab: self.truth.slabs.index(slab) < k)
            found += new
        return found

    def _next(self, left: list[Slab], at: int, free: int) -> list[LocatedMatrix]:
        """Return the matrix at `at`, or two that share rows there, or what follows a gap."""
        step = 1 if free % self.truth.spec.hidden_size else self.truth.spec.hidden_size
        for gap in range(0, min(max(free, 0), step * _MOST_STEPS) + 1, step):
            fits: list[list[LocatedMatrix]] = []
            for slab in left:
                if slab.is_constant and (gap or slab is not left[0]):
                    continue  # it would be found anywhere
                if one := self.read(slab, MatrixSpan(at + gap, 1, 0)):
                    fits.append([one])
                    if one.readings[0].share == 1:
                        break
            if fits:
                return max(fits, key=lambda new: new[0].readings[0].share)
            for new in self._joined(left, at + gap):
                return new
        return []

    def _joined(self, left: list[Slab], at: int) -> Iterator[list[LocatedMatrix]]:
        """Yield the input and recurrent matrix of one layer if they are joined gate by gate or
        row by row."""
        varied = [slab for slab in left if not slab.is_constant]
        for one in varied:
            others = [slab for slab in varied if slab.name[:2] == one.name[:2]
                      and {slab.name[2], one.name[2]} == {"W", "R"}]  # fmt: skip
            for other in others:
                gates, rows, _ = one.shape
                for runs in {gates, gates * rows} - {1}:
                    length, next_length = one.size // runs, other.size // runs
                    step = length + next_length
                    first = self.read(one, MatrixSpan(at, runs, step))
                    second = first and self.read(other, MatrixSpan(at + length, runs, step))
                    if first and second:
                        yield [first, second]

    def read(self, slab: Slab, place: MatrixSpan) -> LocatedMatrix | None:
        """Return the matrix with all ways to read it there, or None if it cannot be read."""
        if place.end(slab.size) > self.buffer.size:
            return None
        where = place.index(self._where(slab), slab.size)
        values = slab.sampled
        with np.errstate(all="ignore"):
            x = comparable(self.buffer[where])  # form, place, gate, sample
            wide = 0.01 * np.abs(values) + largest(values) / 120 if self.near else 0 * values
            plain = (np.abs(x - values) <= wide).mean(axis=-1)
            negated = (np.abs(x + values) <= wide).mean(axis=-1)
        best = np.maximum(plain, negated)
        readings = []
        count = len(slab.gates)
        likely = best.max(axis=2).min(axis=1) >= ENOUGH_SAMPLES
        likely[1:] &= not slab.is_constant
        for k in np.flatnonzero(likely):
            form, share, minus = MATRIX_FORMS[k], best[k], negated[k] > plain[k]
            for order in gate_orders(count):
                places = np.arange(count), np.array(order)
                if share[places].min() >= ENOUGH_SAMPLES:
                    signs = tuple(-1 if m else 1 for m in minus[places])
                    readings.append(MatrixReading(form, order, signs, float(share[places].mean())))
        if not readings:
            return None
        most = max(reading.share for reading in readings)
        return LocatedMatrix(slab, place, tuple(r for r in readings if r.share == most))

    def _where(self, slab: Slab) -> np.ndarray:
        """Return the indices of the samples in the chunk; the axes are form, place, gate,
        sample.
        """
        key = repr(slab.name)
        if key not in self._index:
            gates, rows, columns = slab.shape
            starts = (np.arange(gates) * rows * columns).reshape(-1, 1, 1)
            flat = starts + slab.samples  # place, gate, sample
            self._index[key] = np.stack([form.at(flat, slab.shape) for form in MATRIX_FORMS])
        return self._index[key]


def simplest_readings(
    found: list[LocatedMatrix],
) -> dict[MatrixName, tuple[LocatedMatrix, MatrixReading]]:
    """Choose a reading of each matrix so that the fewest different mistakes are needed."""
    readings = {one.slab.name: list(one.readings) for one in found}
    for trait in (lambda r: MATRIX_FORMS.index(r.form), lambda r: (len(r.order), r.order)):
        _settle_trait(readings, trait)
    return {one.slab.name: (one, readings[one.slab.name][0]) for one in found}


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
