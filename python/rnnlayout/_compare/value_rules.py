"""Rules by which values change, apart from the order: rounded, cut, clipped, pruned, quantized.

A rule is tested on every value of the matrices and biases that the rule is said to concern.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import prod

import numpy as np

from rnnlayout._model.dtypes import FLOATS, round_values

from .blocks import UNITS
from .truth import BIAS_ROLE, MatrixName, Truth

_EVIDENCE = 4  # values at least, besides the values that determine digits or scales
_SAMPLES = 16384  # values of a part that a rule is tried on, before all values are
_AT_ONCE = 1 << 18  # values that a rule computes with at a time
Axes = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ComparedPart:
    """A matrix, or the biases of a layer and direction, after the repair of the order.

    values: in the right order. true: what the values are without further changes. wide: how far a
    right value may be from the true value. wrong: where the values differ by more. All are of shape
    (gates, rows, columns), biases (vectors, gates, units).
    """

    name: MatrixName
    values: np.ndarray
    true: np.ndarray
    wide: np.ndarray
    wrong: np.ndarray
    _ranges: dict[Axes, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def at(self, rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return values and true values in float64, and wide, of some rows."""
        values, true = (x[:, rows].astype("f8") for x in (self.values, self.true))
        return values, true, self.wide[:, rows]

    def range(self, axes: Axes) -> tuple[np.ndarray, np.ndarray]:
        """Return the least and the largest finite value along axes, 0 included."""
        if axes not in self._ranges:
            finite = np.isfinite(self.values)
            least, most = (
                function(self.values, axes, keepdims=True, initial=0, where=finite).astype("f8")
                for function in (np.min, np.max)
            )
            self._ranges[axes] = least, most
        return self._ranges[axes]

    @property
    def slices(self) -> Iterator[slice]:
        """Yield slices of all rows, each of about _AT_ONCE values."""
        gates, rows, columns = self.values.shape
        step = max(1, _AT_ONCE // (gates * columns))
        for first in range(0, rows, step):
            yield slice(first, first + step)

    @cached_property
    def some_rows(self) -> np.ndarray:
        """The first rows with wrong values, as many as a rule is tried on."""
        gates, _, columns = self.values.shape
        rows = np.flatnonzero(self.wrong.any(axis=(0, 2)))
        return rows[: max(1, _SAMPLES // (gates * columns))]


Rows = slice | np.ndarray
_ALL = slice(None)


@dataclass(frozen=True)
class ValueRule:
    """A rule by which all values of some parts were made from the true values.

    name, lost: as in Mistake. text: the sentence, with {places}, or with {count}, as "3 of 60
    values are", and {where}, as " in the biases". explains: returns which values of some rows of a
    part are as the rule makes the values. by_row: whether each row can be asked alone. least: how
    many wrong values show the rule.
    """

    name: str
    text: str
    lost: str
    explains: Callable[[ComparedPart, Rows], np.ndarray]
    by_row: bool = True
    least: int = 1

    def misfits(self, part: ComparedPart) -> np.ndarray | None:
        """Return which values of a part the rule does not explain; None if the rule explains fewer
        than half of the wrong values."""
        with np.errstate(all="ignore"):  # NaN, infinity
            some = part.some_rows
            if not _most(self.explains(part, some), part.wrong[:, some]):
                return None
            explained = self._explains_all(part)
            return ~explained if _most(explained, part.wrong) else None

    def _explains_all(self, part: ComparedPart) -> np.ndarray:
        """Return which values of a part are as the rule makes the values, if possible a few rows at
        a time: rules compute in float64."""
        if not self.by_row:
            return self.explains(part, _ALL)
        return np.concatenate([self.explains(part, some) for some in part.slices], axis=1)

    def explains_all(self, part: ComparedPart) -> bool:
        """Return whether all values of a part are as the rule makes the values."""
        with np.errstate(all="ignore"):
            return bool(self._explains_all(part).all())


def _most(explained: np.ndarray, wrong: np.ndarray) -> bool:
    """Return whether half of the wrong values are explained."""
    return bool(2 * np.count_nonzero(explained & wrong) >= np.count_nonzero(wrong))


def rules_for(parts: list[ComparedPart], truth: Truth, largest: float) -> Iterator[ValueRule]:
    """Yield the rules that may explain wrong values of parts, the likeliest rules first.

    parts: with wrong values. largest: the largest absolute value of the whole buffer.
    """
    dtype = truth.spec.dtype
    if "f" in truth.gates:
        text = "{places} of gate f are rounded, as 1 was added and subtracted again (a forget bias)"
        explains = partial(_is_shifted_twice, truth.gates.index("f"), dtype)
        lost = "the last bits of the biases of gate f"
        yield ValueRule("forget bias rounded", text, lost, explains)
    yield from _conversions(dtype)
    text = "{count} 0{where}, the others are as they were (pruned?)"
    yield ValueRule("pruned", text, "the values that are 0", _is_pruned)
    yield from _clippings(parts)
    yield from _quantizations(dtype, largest)
    yield from _roundings(dtype)


# ------------------------------------------------------------------------------- rules by a formula

Rounding = Callable[[np.ndarray], np.ndarray]


def _rounding_rule(
    name: str, words: str, cannot: str, rounding: Rounding, least: int = 1
) -> ValueRule:
    text, lost = f"{{places}} are {words}", f"what {cannot} cannot represent"
    return ValueRule(name, text, lost, partial(_is_rounded, rounding), least=least)


def _is_rounded(rounding: Rounding, part: ComparedPart, rows: Rows) -> np.ndarray:
    """Return where values are true values that were rounded. rounding: a function that never
    decreases, and that leaves a rounded value as the value is."""
    x, b, wide = part.at(rows)
    nans = np.isnan(x) & np.isnan(b)
    if not wide.any():
        return np.asarray((x == rounding(b)) | nans)
    inside = (rounding(b - wide) <= x) & (x <= rounding(b + wide)) & (rounding(x) == x)
    return np.asarray(inside | nans)


def _cut(bits: int, x: np.ndarray) -> np.ndarray:
    """Set the last bits of float32 values to 0."""
    return (x.astype("f4").view("u4") >> bits << bits).view("f4").astype("f8")


def _to_bits(bits: int, x: np.ndarray) -> np.ndarray:
    """Round float32 values to fewer bits of the significand, ties to even."""
    unit = np.ldexp(1.0, np.maximum(np.frexp(x)[1], -125) - bits)
    return np.where(np.isfinite(x), np.rint(x / unit) * unit, x)


def _to_decimals(digits: int, dtype: str, x: np.ndarray) -> np.ndarray:
    return round_values(np.rint(x * 10.0**digits) / 10.0**digits, dtype)


def round_to_digits(digits: int, x: np.ndarray) -> np.ndarray:
    """Return the values with the nearest number of so many digits, in float64."""
    places = digits - 1 - np.floor(np.log10(np.abs(np.where(x == 0, 1, x)))).astype(int)
    power = np.power(10.0, np.abs(places))
    up = places >= 0
    rounded = np.rint(np.where(up, x * power, x / power))
    return np.asarray(np.where(up, rounded / power, rounded * power))


def _to_digits(digits: int, dtype: str, x: np.ndarray) -> np.ndarray:
    return round_values(round_to_digits(digits, x), dtype)


def _to_fixed_point(bits: int, x: np.ndarray) -> np.ndarray:
    return np.rint(x * 2.0**bits) / 2.0**bits


def _conversions(dtype: str) -> Iterator[ValueRule]:
    """Yield the conversions to another format of floating-point numbers."""
    for name in FLOATS[:2] + FLOATS[2:3] * (dtype == "float64"):
        if name != dtype:
            rounding = partial(round_values, name=name)
            yield _rounding_rule(f"rounded {name}", f"rounded to {name}", name, rounding)
    if dtype == "float32":
        # without the last 16 bits, as many scripts convert to bfloat16
        words = "cut off to bfloat16, not rounded"
        yield _rounding_rule("cut to bfloat16", words, "bfloat16", partial(_cut, 16))
        yield _rounding_rule("rounded tf32", "rounded to TF32", "TF32", partial(_to_bits, 11))
        words = "cut off to TF32, not rounded"
        yield _rounding_rule("cut to tf32", words, "TF32", partial(_cut, 13))


def _roundings(dtype: str) -> Iterator[ValueRule]:
    """Yield decimal and binary roundings."""
    for digits in range(1, 13):
        noun = f"{digits} decimal{'s' * (digits > 1)}"
        rounding = partial(_to_decimals, digits, dtype)
        words = f"rounded to {noun} (written as text?)"
        yield _rounding_rule(f"decimals {digits}", words, noun, rounding, _EVIDENCE)
    for digits in range(2, 13):
        noun = f"{digits} significant digits"
        rounding = partial(_to_digits, digits, dtype)
        words = f"rounded to {noun} (written as text?)"
        yield _rounding_rule(f"digits {digits}", words, noun, rounding, _EVIDENCE)
    for bits in range(3, 25):
        noun = f"{bits} bits after the point"
        rounding = partial(_to_fixed_point, bits)
        words = f"rounded to fixed point with {noun}"
        yield _rounding_rule(f"fixed point {bits}", words, noun, rounding, _EVIDENCE)


def _is_shifted_twice(forget: int, dtype: str, part: ComparedPart, rows: Rows) -> np.ndarray:
    """Return where biases are as if 1 was added to those of the forget gate and subtracted again,
    or the other way round."""
    if part.name[2] != BIAS_ROLE:
        return np.zeros(part.wrong[:, rows].shape, bool)
    x, b, wide = part.at(rows)
    explained = abs(x - b) <= wide
    is_forget = np.arange(part.values.shape[1])[rows] == forget
    unit = UNITS[dtype] * abs(b)  # b may be a sum that was rounded to the dtype
    for sign in (1, -1):
        low, same, high = (
            round_values(round_values(y + sign, dtype) - sign, dtype)
            for y in (b - unit, x, b + unit)
        )
        explained |= is_forget[:, None] & (low <= x) & (x <= high) & (same == x)
    return np.asarray(explained)


# ----------------------------------------------------------------------- rules found in the values


def _is_pruned(part: ComparedPart, rows: Rows) -> np.ndarray:
    return np.asarray((part.values[:, rows] == 0) | ~part.wrong[:, rows])


def _clippings(parts: Iterable[ComparedPart]) -> Iterator[ValueRule]:
    """Yield a rule for each limit that most wrong values of a part are at."""
    limits = []
    for part in parts:
        rows = part.some_rows
        size, count = np.unique(abs(part.values[:, rows][part.wrong[:, rows]]), return_counts=True)
        limit, most = float(size[count.argmax()]), int(count.max())
        if most > 1 and 0 < limit < np.inf:
            limits.append(limit)
    for limit in dict.fromkeys(limits):
        text, lost = f"{{places}} are clipped to {limit:.6g}", f"what is beyond {limit:.6g}"
        yield ValueRule("clipped", text, lost, partial(_is_clipped, limit))


def _is_clipped(limit: float, part: ComparedPart, rows: Rows) -> np.ndarray:
    x, b, wide = part.at(rows)
    return np.asarray(np.abs(x - np.clip(b, -limit, limit)) <= wide)


# The axes of the values that have a scale in common, and how many values of a row have, 0: all;
# in words to follow "one scale". None: all values of the buffer.
_GROUPS: dict[str, tuple[Axes | None, int]] = {
    "for all": (None, 0),
    "per matrix": ((0, 1, 2), 0),
    "per gate": ((1, 2), 0),
    "per row": ((2,), 0),
    "per column": ((0, 1), 0),
    "per column of each gate": ((1,), 0),
    **{f"per {n} values of a row": ((3,), n) for n in (32, 64, 128)},
}


def _quantizations(dtype: str, largest: float) -> Iterator[ValueRule]:
    """Yield schemes of quantization: few, evenly spaced values."""
    for bits in (4, 7, 8, 2, 3, 5, 6, 10, 12, 16):
        near = 0.01 + 2.0**bits * UNITS[dtype]  # a multiple is rounded to the dtype
        if near > 0.2:
            continue
        for words, (axes, block) in _GROUPS.items():
            for with_zero in (False, True)[: 1 + (axes is not None)]:
                scale = f"one scale {'and zero point ' * with_zero}{words}"
                text = f"{{places}} are quantized to {bits} bits, with {scale}"
                grid = _Grid(bits, with_zero, axes, block, largest, near)
                lost = f"what {bits} bits cannot represent"
                yield ValueRule("quantized", text, lost, grid.explains, by_row=False)


@dataclass(frozen=True)
class _Grid:
    """Evenly spaced values. near: how far a multiple of the scale may be from a whole number."""

    bits: int
    with_zero: bool
    axes: Axes | None
    block: int
    largest: float
    near: float

    def explains(self, part: ComparedPart, rows: Rows) -> np.ndarray:
        """Return where values are true values, rounded to multiples of a scale.

        The scale follows from the largest absolute value, or with a zero point from the range of
        values, which is `levels` steps, or a step less if both ends were rounded inwards.
        """
        x, b, wide = part.at(rows)
        shape = x.shape
        best = np.zeros(shape, bool)
        if part.name[2] == BIAS_ROLE and self.axes not in (None, (0, 1, 2)):
            return best
        if self.block and (shape[2] % self.block or shape[2] == self.block):
            return best
        sizes = (*part.values.shape, self.block)
        group = prod(sizes[axis] for axis in self.axes or (0, 1, 2))
        if part.values.size * (1 - 1 / group) < _EVIDENCE:
            return best
        if self.block:
            x, b, wide, best = (y.reshape(*shape[:2], -1, self.block) for y in (x, b, wide, best))
            finite = np.where(np.isfinite(x), x, 0)
            low, high = (f(finite, 3, keepdims=True, initial=0) for f in (np.min, np.max))
        elif self.axes is None:
            low, high = np.full((1, 1, 1), -self.largest), np.full((1, 1, 1), self.largest)
        else:
            low, high = (y if y.shape[1] == 1 else y[:, rows] for y in part.range(self.axes))
        if not self.with_zero:
            low, high = 0 * low, np.maximum(-low, high)
        levels = 2 ** (self.bits - (not self.with_zero)) - 1
        for steps in (levels, levels - 1) if self.with_zero else (levels, levels + 1):
            scale = (high - low) / steps
            multiple = x / np.where(scale == 0, 1, scale)
            fits = np.abs(multiple - np.rint(multiple)) < self.near
            fits &= (np.abs(multiple) > 0.5) | (x == 0)  # 0 is exact, whatever the scale
            fits &= np.abs(x - b) <= 1.01 * scale + wide
            fits = np.where(scale == 0, (x == 0) & (np.abs(b) <= wide), fits)
            along = self.axes or (0, 1, 2)
            share, most = (y.mean(axis=along, keepdims=True) for y in (fits, best))
            best = np.where(share > most, fits, best)
        return best.reshape(shape)
