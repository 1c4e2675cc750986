"""Mistakes of a buffer as a whole: another length, all values multiplied, all values or units in
another order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rnnlayout._model.dtypes import storage_dtype

from .matrix_forms import RIGHT_FORM
from .mistakes import Mistake, scale_mistake
from .packed_biases import eps_of
from .packed_matrices import MatrixReading
from .packing import Packing
from .truth import BIAS_ROLE, Truth, same_bits

# ------------------------------------------------------------------------------------- the length


def explains_length(packing: Packing, rest: int) -> bool:
    """Return whether a buffer of another length is explained value by value. rest: how many bytes
    are not a whole value.

    A buffer that is too long must have all true values, bit for bit. A buffer that is too short
    must have all matrices and no biases, or a single bias vector per layer and direction.
    """
    truth, biases, size = packing.truth, packing.biases, packing.buffer.size
    if size == truth.size and not rest:
        return True
    if size > truth.size or rest:
        return same_bits(packing.fixed, truth.flat)
    has_one_vector = biases is not None and biases.count == 1 and not biases.wrong
    is_complete = not packing.unknown and not any(
        located.unknown_gates for located in packing.matrices.values()
    )
    return size == truth.short_sizes[has_one_vector] and is_complete


def length_mistake(packing: Packing, rest: int, in_front: bool) -> Mistake:
    """Return how many values are missing or too many, and where if that is certain.

    rest: how many bytes are not a whole value. in_front: the rest is in front, not at the end.
    """
    truth, flat, buffer = packing.truth, packing.truth.flat, packing.buffer
    bytes_ = f" and {rest} byte{'s' * (rest > 1)}" * bool(rest)
    text = f"the buffer has {buffer.size} values{bytes_}, expected {truth.size}"
    missing = truth.size - buffer.size
    if missing <= 0:
        count = rest - missing * storage_dtype(truth.spec.dtype).itemsize
        text += f": {count} byte{'s' * (count > 1)}" if rest else f": {-missing}"
        text += " too many"
        if not in_front and same_bits(buffer[: flat.size], flat):
            text += ", at the end"
        elif same_bits(buffer[-missing:], flat):
            text += ", in front"
        elif same_bits(packing.fixed, flat):
            text += ", between the others"
        return Mistake("extra", text, ())
    # How many of the missing values were in front, if that is certain.
    shifts = [at - reading.at for at, reading in _in_the_right_form(packing)]
    first = np.flatnonzero(flat[: missing + 1] == buffer[0]).tolist() if buffer.size else []
    starts = dict.fromkeys([0, missing, *(s for s in [*shifts, *first[:16]] if 0 < s < missing)])
    fits = [at for at in starts if same_bits(buffer, flat[at : at + buffer.size])]
    if len(fits) != 1:
        return Mistake("too short", text, (), f"{missing} values")
    ends = {end: n for end, n in (("first", fits[0]), ("last", missing - fits[0])) if n}
    which = " and ".join(f"the {end} {n if n > 1 else 'one'}" for end, n in ends.items())
    lost = " and ".join(f"the {end} {n} values" for end, n in ends.items())
    text += f": {which} {'are' if missing > 1 else 'is'} missing"
    return Mistake("too short", text, (), lost)


def _in_the_right_form(packing: Packing) -> Iterator[tuple[int, MatrixReading]]:
    """Yield (right start, reading) of each matrix in the right form."""
    for name, located in packing.matrices.items():
        if located.reading.form is RIGHT_FORM and located.reading.in_order:
            yield packing.truth.starts[name], located.reading


# ------------------------------------------------------------------------- a mistake of all values


@dataclass(frozen=True)
class BufferMistake:
    """A mistake of all values, and the values without it. scale: by which they were multiplied."""

    mistake: Mistake
    repaired: np.ndarray
    scale: float = 1.0


def scaled_buffer(packing: Packing) -> BufferMistake | None:
    """Return the mistake of a factor of all matrices, and of the biases as far as they are
    recognized; else None."""
    scales = [located.reading.scale for located in packing.matrices.values()]
    if packing.biases and packing.biases.known and not packing.biases.near:
        scales += [scale for *_, scale in packing.written_biases]
    if packing.unknown or not scales or scales[0] == 1:
        return None
    scale, near = scales[0], max(1e-3, 8 * eps_of(packing.truth))
    if any(abs(factor / scale - 1) >= near for factor in scales):
        return None
    repaired = np.empty_like(packing.buffer)  # computed in float64, without a copy in float64
    np.divide(packing.buffer, np.asarray(scale, "f8"), out=repaired, casting="same_kind")
    return BufferMistake(scale_mistake(packing.truth, scale, "all values"), repaired, scale)


def reordered_buffer(packing: Packing) -> BufferMistake | None:
    """Return the mistake of a buffer with all the right values in reverse order, rolled, or with
    hidden units in another order; else None."""
    mistake = _order_mistake(packing)
    return BufferMistake(mistake, packing.truth.flat) if mistake else None


def _order_mistake(packing: Packing) -> Mistake | None:
    truth, flat, buffer = packing.truth, packing.truth.flat, packing.buffer
    if buffer.size != flat.size or same_bits(buffer, flat):
        return None
    if same_bits(buffer[::-1], flat):
        return Mistake("reversed", "all values are in the reverse order", ())
    shifts = {reading.at - at for at, reading in _in_the_right_form(packing)} - {0}
    if len(shifts) == 1 and (packing.vectors or not same_bits(packing.fixed, flat)):
        (shift,) = shifts  # if packing.fixed is right, only some parts are in another order
        if same_bits(np.roll(buffer, -shift), flat):
            return Mistake("rolled", f"the values are rolled by {shift}, as by np.roll", ())
    rolled = any(any(located.reading.pattern.rolls) for located in packing.matrices.values())
    return _units_mistake(truth, buffer) if packing.unknown or rolled else None


def _units_mistake(truth: Truth, buffer: np.ndarray) -> Mistake | None:
    """Return the mistake of hidden units in another order, which the rows of the input matrices
    show. The order must explain all values."""
    orders: dict[tuple[int, int], np.ndarray] = {}
    reordered = []
    for matrix in truth.matrices:
        layer, direction, role = matrix.name
        true, at = matrix.values, (layer, direction)
        if role == "W":
            below = [orders[place] for place in sorted(orders) if place[0] == layer - 1]
            if sum(order.size for order in below) == true.shape[2]:  # not so above a projection
                columns = [order + k * order.size for k, order in enumerate(below)]
                true = true[:, :, np.concatenate(columns)]
            stored = truth.part(buffer, matrix).reshape(true.shape)
            rows = {true[:, k].tobytes(): k for k in range(true.shape[1])}
            order = [rows.get(stored[:, k].tobytes(), -1) for k in range(true.shape[1])]
            if sorted(order) != list(range(len(order))):
                return None
            orders[at] = np.array(order)
        elif role == "R" and not truth.spec.proj_size:
            true = true[:, :, orders[at]]
        reordered.append(true[:, :, orders[at]] if role == "P" else true[:, orders[at]])
    reordered += [truth.biases[at][..., order] for at, order in orders.items()]
    if not same_bits(np.concatenate([part.reshape(-1) for part in reordered]), buffer):
        return None
    moved = [at for at, order in orders.items() if (order != np.arange(order.size)).any()]
    names = ", ".join(f"layer {layer}" + " backward" * side for layer, side in moved)
    text = f"the hidden units of {names} are in another order: the same function"
    top = truth.spec.num_layers - 1
    moves_outputs = any(layer == top for layer, _ in moved) and not truth.spec.proj_size
    text += ", with its outputs in that order" * moves_outputs
    above = [at for at in orders if (at[0] - 1, 0) in moved or (at[0] - 1, 1) in moved]
    parts = [(*at, role) for at in moved for role in ("W", "R", "P", BIAS_ROLE)]
    where = tuple(dict.fromkeys([*parts, *((*at, "W") for at in above)]))
    return Mistake("units", text, where, keeps_function=not moves_outputs)
