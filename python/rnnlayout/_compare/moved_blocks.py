"""Which blocks have the right values, bit for bit, whether or not in the right place."""

from __future__ import annotations

from collections.abc import Iterator

from rnnlayout._model.layout import BlockKey

from .packed_biases import KEPT_RULE
from .packing import Packing
from .truth import MatrixName, same_bits


def right_blocks(packing: Packing) -> frozenset[BlockKey]:
    """Return the blocks whose values are in the buffer without a change: moved or transposed, but
    not scaled, negated, summed or rounded."""
    truth, changed = packing.truth, set(_changed_gates(packing))
    right = []
    for array in [*truth.matrices, *truth.bias_vectors]:
        part = truth.part(packing.fixed, array).reshape(array.shape)
        for number, (letter, values) in enumerate(zip(array.gates, array.values, strict=True)):
            if (array.name, number) not in changed and same_bits(part[number], values):
                right.append((*array.name, "" if array.name[2] == "P" else letter))
    return frozenset(right)


def _changed_gates(packing: Packing) -> Iterator[tuple[MatrixName, int]]:
    """Yield (name, number of the gate) of each gate that a mistake scaled, negated or shifted."""
    for name, located in (packing.matrices | packing.vectors).items():
        reading = located.reading
        for number, sign in zip(reading.order, reading.signs, strict=True):
            if sign < 0 or reading.scale != 1:
                yield name, number
    for (layer, direction, _), biases in (
        packing.layer_biases.items() if not packing.vectors else ()
    ):
        is_changed = biases.rule is not KEPT_RULE or bool(biases.shifts)
        for role, signs in zip(packing.truth.roles, biases.signs, strict=False):
            for number, sign in zip(biases.order, signs, strict=True):
                if sign < 0 or is_changed:
                    yield (layer, direction, role), number
