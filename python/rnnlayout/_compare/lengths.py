"""Buffers with more or fewer values than cuDNN's weight space: what is certain of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from .matrix_forms import RIGHT_FORM
from .mistakes import Mistake
from .packed_matrices import MatrixReading
from .packing import Packing
from .truth import same_bits


def explains_length(packing: Packing, fixed: np.ndarray, rest: int) -> bool:
    """Return whether a buffer of another length is explained value by value.

    rest: how many bytes are not a whole value.
    One that is too long must have all true values, bit for bit. One that is too short must have
    all matrices and no biases, or one bias vector per layer and direction.
    """
    truth, biases = packing.truth, packing.biases
    if packing.size == truth.size and not rest:
        return True
    if packing.size > truth.size or rest:
        return same_bits(fixed, truth.flat)
    one = biases is not None and biases.count == 1 and not biases.wrong
    return packing.size == truth.short_sizes[one] and not packing.unknown


def exactly_found(packing: Packing, fixed: np.ndarray) -> Packing:
    """Return a packing with only those of its matrices that were found bit for bit."""
    matrices = {
        name: found for name, found in packing.matrices.items()
        if same_bits(packing.truth.part(fixed, found.slab), found.slab.values.reshape(-1))
    }  # fmt: skip
    return replace(packing, matrices=matrices, biases=None)


def length_mistake(
    packing: Packing, buffer: np.ndarray, rest: int = 0, in_front: bool = False
) -> Mistake:
    """Return how many values are missing or too many, and where if that is certain.

    rest: how many bytes are not a whole value. in_front: they are in front, not at the end.
    """
    truth = packing.truth
    bytes_ = f" and {rest} byte{'s' * (rest > 1)}" * bool(rest)
    text = f"the buffer has {buffer.size} values{bytes_}, expected {truth.size}"
    missing = truth.size - buffer.size
    if missing <= 0:
        more = f": {-missing} too many" * bool(missing)
        if rest:
            count = rest - missing * buffer.itemsize
            more = f": {count} byte{'s' * (count > 1)} too many"
        return Mistake("extra", text + more + _where_extra(packing, buffer, in_front), ())
    start = _where_missing(packing, buffer)
    if start is None:
        return Mistake("too short", text, (), f"{missing} values")
    behind = missing - start
    parts = [f"the {end} {count}" if count > 1 else f"the {end} one"
             for end, count in (("first", start), ("last", behind)) if count]  # fmt: skip
    which = " and ".join(parts) + (" are" if missing > 1 else " is")
    lost = [f"the {end} {count} values"
            for end, count in (("first", start), ("last", behind)) if count]  # fmt: skip
    return Mistake("too short", f"{text}: {which} missing", (), " and ".join(lost))


def _where_missing(packing: Packing, buffer: np.ndarray) -> int | None:
    """Return how many of the missing values were in front, None if that is not certain."""
    truth = packing.truth
    missing = truth.size - buffer.size
    shifts = [at - reading.at for at, reading in _in_the_right_form(packing)]
    first = np.flatnonzero(truth.flat[: missing + 1] == buffer[0]).tolist() if buffer.size else []
    starts = dict.fromkeys([0, missing, *(s for s in [*shifts, *first[:16]] if 0 < s < missing)])
    fits = [start for start in starts
            if same_bits(buffer, truth.flat[start : start + buffer.size])]  # fmt: skip
    return fits[0] if len(fits) == 1 else None


def _in_the_right_form(packing: Packing) -> Iterator[tuple[int, MatrixReading]]:
    """Yield where each matrix that is in the right form should begin, and its reading."""
    for name, found in packing.matrices.items():
        reading = found.reading
        if reading.form is RIGHT_FORM and reading.order == tuple(sorted(reading.order)):
            yield packing.truth.starts[name], reading


def _where_extra(packing: Packing, buffer: np.ndarray, in_front: bool) -> str:
    """Return where the values that are too many are, if all others are as they should be."""
    flat, more = packing.truth.flat, buffer.size - packing.truth.size
    if not in_front and same_bits(buffer[: flat.size], flat):
        return ", at the end"
    if same_bits(buffer[more:], flat):
        return ", in front"
    return ", between the others" * same_bits(packing.undo(buffer), flat)


def reverse_mistake(packing: Packing, buffer: np.ndarray) -> tuple[Mistake, np.ndarray] | None:
    """Return the mistake of a buffer in the reverse order, and the right one; None of another."""
    flat, fixed = packing.truth.flat, buffer[::-1].copy()
    if same_bits(buffer, flat) or not same_bits(fixed, flat):
        return None
    return Mistake("reversed", "all values are in the reverse order", ()), fixed


def roll_mistake(packing: Packing, buffer: np.ndarray) -> tuple[Mistake, np.ndarray] | None:
    """Return the mistake of a buffer that begins elsewhere and goes on at its start, and the right
    buffer; None if this one does not."""
    flat = packing.truth.flat
    shifts = {reading.at - at for at, reading in _in_the_right_form(packing)} - {0}
    if buffer.size != flat.size or len(shifts) != 1:
        return None
    if not packing.vectors and same_bits(packing.undo(buffer), flat):
        return None  # parts that are in another order
    (shift,) = shifts
    fixed = np.roll(buffer, -shift)
    if not same_bits(fixed, flat):
        return None
    text = f"the values are rolled by {shift}, as by np.roll"
    return Mistake("rolled", text, ()), fixed
