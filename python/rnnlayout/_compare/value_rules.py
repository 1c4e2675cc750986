"""Rules by which values change, apart from the order: rounded, cut, clipped, pruned, quantized.

A rule is tested on every value of the matrices and biases that the rule is said to concern.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np

from rnnlayout._model.dtypes import FLOATS, round_values

from .blocks import UNITS
from .compared_parts import EVIDENCE, ComparedPart, Rows, ValueRule
from .quantizations import quantizations
from .truth import BIAS_ROLE, Truth


def rules_for(parts: list[ComparedPart], truth: Truth, buffer: np.ndarray) -> Iterator[ValueRule]:
    """Yield the rules that may explain wrong values of parts, the likeliest rules first.

    parts: with wrong values. buffer: all values.
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
    yield from quantizations(truth, buffer)
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
        yield _rounding_rule(f"decimals {digits}", words, noun, rounding, EVIDENCE)
    for digits in range(2, 13):
        noun = f"{digits} significant digits"
        rounding = partial(_to_digits, digits, dtype)
        words = f"rounded to {noun} (written as text?)"
        yield _rounding_rule(f"digits {digits}", words, noun, rounding, EVIDENCE)
    for bits in range(3, 25):
        noun = f"{bits} bits after the point"
        rounding = partial(_to_fixed_point, bits)
        words = f"rounded to fixed point with {noun}"
        yield _rounding_rule(f"fixed point {bits}", words, noun, rounding, EVIDENCE)


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
