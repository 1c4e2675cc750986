"""Quantizations: rules by which values became few, evenly spaced values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from rnnlayout._model.dtypes import round_values

from .blocks import UNITS
from .compared_parts import EVIDENCE, Axes, ComparedPart, Rows, ValueRule
from .truth import BIAS_ROLE, Truth

_ROUNDINGS = 2.0**-21  # how far a number is off that float32 rounded a few times

# The axes of the values of a matrix that have a scale in common, in words to follow "one scale".
# The axis 3 is within blocks of a row.
_GROUPS: dict[str, Axes] = {
    "for all": (),
    "per matrix": (0, 1, 2),
    "per gate": (1, 2),
    "per row": (2,),
    "per column": (0, 1),
    "per column of each gate": (1,),
    **{f"per {n} values of a row": (3,) for n in (32, 64, 128)},
}
_GROUPS_OF_BIASES: dict[str, tuple[Axes, ...]] = {  # axes: vector, gate, unit
    "for all": ((),),
    "per matrix": ((0, 1, 2), (1, 2)),  # both vectors may be one tensor
    "per gate": ((2,),),
}


def quantizations(truth: Truth, buffer: np.ndarray) -> Iterator[ValueRule]:
    """Yield schemes of quantization, the likeliest first. buffer: all values."""
    dtype = truth.spec.dtype
    stored, true = map(_largest, (buffer, truth.flat))
    for bits in (4, 7, 8, 2, 3, 5, 6, 10, 12, 16):
        near = 0.01 + 2.0**bits * UNITS[dtype]  # a multiple is rounded to the dtype
        is_seen = near <= 0.2
        for words in _GROUPS:
            for with_zero in (False, True)[: 1 + (words != "for all")]:
                scale = f"one scale {'and zero point ' * with_zero}{words}"
                text = f"{{places}} are quantized to {bits} bits, with {scale}"
                steps = 2 ** (bits - (not with_zero)) - 1
                grid: _Grid = _SeenGrid(words, with_zero, steps, stored, dtype, near)
                if not is_seen:
                    grid = _PredictedGrid(words, with_zero, steps, true, dtype)
                lost, least = f"what {bits} bits cannot represent", 1 if is_seen else EVIDENCE
                yield ValueRule("quantized", text, lost, grid.explains, by_row=False, least=least)


def _largest(values: np.ndarray) -> float:
    """Return the largest absolute finite value."""
    finite = np.isfinite(values)
    return max(abs(float(end(values, initial=0, where=finite))) for end in (np.min, np.max))


@dataclass(frozen=True)
class _Grid:
    """Evenly spaced values. group: the values with a common scale. steps: from 0, or with a zero
    point from the least value, to the largest. largest: the largest value of all."""

    group: str
    with_zero: bool
    steps: int
    largest: float
    dtype: str
    is_seen = True  # in the stored values

    def explains(self, part: ComparedPart, rows: Rows) -> np.ndarray:
        """Return where values are true values, rounded to multiples of a scale."""
        x, b, wide = part.at(rows)
        best = np.zeros(x.shape, bool)
        is_bias = part.name[2] == BIAS_ROLE
        for axes in _GROUPS_OF_BIASES.get(self.group, ()) if is_bias else (_GROUPS[self.group],):
            block = int(self.group.split()[1]) if axes == (3,) else 0
            if block and (x.shape[2] % block or x.shape[2] == block):
                continue
            sizes = (*part.values.shape, block)
            size = prod(sizes[axis] for axis in axes or (0, 1, 2))
            if part.values.size * (1 - 1 / size) < EVIDENCE:
                continue
            split = (*x.shape[:2], -1, block) if block else x.shape
            values, true, tolerance = (y.reshape(split) for y in (x, b, wide))
            low, high = self._ends(part, rows, axes, values if self.is_seen else true)
            for fits in self.fits(values, true, tolerance, low, high):
                kept = best.reshape(split)
                share, most = (y.mean(axis=axes or None, keepdims=True) for y in (fits, kept))
                best = np.where(share > most, fits, kept).reshape(x.shape)
        return best

    def _ends(
        self, part: ComparedPart, rows: Rows, axes: Axes, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the least and the largest value of each group. values: of the rows."""
        if not axes:
            low = high = np.full((1, 1, 1), self.largest)
        elif axes == (3,):
            finite = np.where(np.isfinite(values), values, 0)
            low, high = (f(finite, 3, keepdims=True, initial=0) for f in (np.min, np.max))
        else:
            ends = part.range(axes, "values" if self.is_seen else "true")
            low, high = (y if y.shape[1] == 1 else y[:, rows] for y in ends)
        return (low, high) if self.with_zero else (0 * low, np.maximum(-low, high))

    def fits(
        self, x: np.ndarray, b: np.ndarray, wide: np.ndarray, low: np.ndarray, high: np.ndarray
    ) -> Iterator[np.ndarray]:
        """Yield for each likely scale where values x are true values b that were quantized. low,
        high: the ends of each group."""
        raise NotImplementedError


@dataclass(frozen=True)
class _SeenGrid(_Grid):
    """A grid whose steps the stored values show, whatever the true values were. near: how far a
    multiple of the scale may be from a whole number."""

    near: float

    def fits(
        self, x: np.ndarray, b: np.ndarray, wide: np.ndarray, low: np.ndarray, high: np.ndarray
    ) -> Iterator[np.ndarray]:
        # with a zero point, both ends may have been rounded inwards
        for steps in (self.steps, self.steps + (-1 if self.with_zero else 1)):
            scale = (high - low) / steps
            multiple = x / np.where(scale == 0, 1, scale)
            fits = np.abs(multiple - np.rint(multiple)) < self.near
            fits &= (np.abs(multiple) > 0.5) | (x == 0)  # 0 is exact, whatever the scale
            fits &= np.abs(x - b) <= 1.01 * scale + wide
            yield np.where(scale == 0, (x == 0) & (np.abs(b) <= wide), fits)


@dataclass(frozen=True)
class _PredictedGrid(_Grid):
    """A grid whose steps are too narrow to be seen in a dtype of 16 bits: the true values show the
    scale, and so each quantized value."""

    is_seen = False

    def fits(
        self, x: np.ndarray, b: np.ndarray, wide: np.ndarray, low: np.ndarray, high: np.ndarray
    ) -> Iterator[np.ndarray]:
        for steps in (self.steps, self.steps + 1)[: 2 - self.with_zero]:
            for compute in (np.asarray, self._rounded):  # in float32 or more, or in the dtype
                scale = compute((high - low) / steps)
                scale = np.where(scale == 0, 1, scale)
                multiple = compute(b / scale)
                first, last = -self.steps - 1, self.steps
                if self.with_zero:
                    first = -np.rint(-low / scale)
                    last = first + self.steps
                fits = wide == 0
                for sign, compare in ((-1, np.less_equal), (1, np.greater_equal)):
                    number = np.rint(multiple + sign * _ROUNDINGS * np.abs(multiple))
                    end = np.clip(number, first, last) * scale
                    fits &= compare(self._rounded(end + sign * _ROUNDINGS * np.abs(end)), x)
                yield fits

    def _rounded(self, x: np.ndarray) -> np.ndarray:
        return round_values(x, self.dtype)
