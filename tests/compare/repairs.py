"""Is a repair right where the report is sure? Each value is the value that was meant, or the report
says that this value was lost or changed."""

import re

import ml_dtypes
import numpy as np
from compare.mistake_machine import GATES
from compare.packed_arrays import Arrays


def bits(x):
    return np.ascontiguousarray(x).view(f"u{x.itemsize}")


def same(a, b):
    return a is not None and a.size == b.size and bool((bits(a) == bits(b)).all())


def wide_of(x):
    return np.asarray(x).astype("f8")


def rounding_of_sums(eps):
    """Return how far a sum of two biases may be, as a share of the biases. Two of bfloat16's units
    tell the sum from one of its terms."""
    return min(8 * eps, 2**-6)


def is_wrong(case, diagnosis, fixed):
    """Return whether the report is sure, and the repair has a value that is not right."""
    return diagnosis.sure and bool(values_not_right(case, diagnosis, fixed).any())


def values_not_right(case, diagnosis, fixed):
    """Return which values of a repair are neither meant nor true, and are not said to be lost or
    changed."""
    if fixed is None or fixed.size != case.meant.size:
        return np.ones(case.meant.size, bool)
    wrong = (bits(fixed) != bits(case.meant)) & (bits(fixed) != bits(case.like))
    parts, x, meant = (
        Arrays(case.spec, y).parts() for y in (wrong, wide_of(fixed), wide_of(case.meant))
    )
    added = [float(number) for number in re.findall(r" have ([\d.e+-]+) ", diagnosis.text)]
    for mistake in diagnosis.mistakes:
        names = [name for name in parts if concerns(mistake, name)]
        changed = re.match(r"(\d+) of \d+ values? (?:is|are) changed", mistake.text)
        if changed and sum(int(parts[name].sum()) for name in names) <= int(changed[1]):
            for name in names:
                parts[name][...] = False
        for name in names if mistake.lost else ():
            both = sum(
                abs(y) for other, y in meant.items() if other[:2] == name[:2] and "b" in other[2]
            )
            with np.errstate(all="ignore"):
                parts[name] &= ~is_lost(mistake, name, x[name], meant[name], both, added, case)
    return np.concatenate([part.ravel() for part in parts.values()])


def concerns(mistake, name):
    """Return whether a mistake is of a part: b is the role of both vectors of biases."""
    places = mistake.where
    return not places or name in places or ("b" in name[2] and (*name[:2], "b") in places)


def is_lost(mistake, name, x, meant, both, added, case):
    """Return which values of a part are as a mistake that loses values leaves them. both: of biases
    the sum of absolute values. added: the numbers that the repair subtracts, also from 0."""
    lost, none = mistake.lost, np.zeros(x.shape, bool)
    finfo = ml_dtypes.finfo(case.like.dtype)
    gap, eps = abs(x - meant), float(finfo.eps)
    if match := re.fullmatch(r"the last bits of the biases of gate (\w)", lost):
        number = float((re.search(r"have ([\d.e+-]+) ", mistake.text) or "01")[1])
        none[GATES[case.spec.cell].index(match[1])] = "b" in name[2]
        return none & (gap <= 4 * eps * (abs(meant) + number))
    if match := re.fullmatch(r"the last bits of (b[WR])", lost):
        # the sum is right within `sums`; the subtraction of the other vector rounds once more
        sums = rounding_of_sums(eps) * both
        return (gap <= sums + eps / 2 * (abs(meant) + sums)) if name[2] == match[1] else none
    if lost == "the last bits of the values":
        factor = float(re.search(r"multiplied by ([\d.e+-]+)", mistake.text)[1])
        return gap <= 64 * eps * abs(meant) + float(finfo.smallest_subnormal) / factor
    if lost == "the values that are 0":
        return (x == 0) | np.isin(abs(x), added)
    if match := re.fullmatch(r"what is beyond ([\d.e+-]+)", lost):
        limit = float(match[1])
        return (abs(abs(x) - limit) <= 1e-5 * limit) & (abs(meant) >= abs(x))
    if re.fullmatch(r"what .* cannot represent", lost):
        return ~none
    vectors = {"bW": ["bW"], "bR": ["bR"], "bW and bR": ["bW", "bR"], "the biases": ["bW", "bR"],
               "how the sums were split between bW and bR": ["bW", "bR"]}  # fmt: skip
    return none | (name[2] in vectors[lost])
