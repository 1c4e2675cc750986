"""Which blocks have the right values, bit for bit, whether or not in the right place."""

from __future__ import annotations

from collections.abc import Iterator

from rnnlayout._model.layout import BlockKey

from .packed_biases import KEPT_RULE
from .packing import Packing
from .truth import BIAS_ROLE, MatrixName, same_bits


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
    roles = packing.truth.roles
    for (layer, direction, role), _, order, signs, scale in packing.written:
        for number, sign in zip(order, signs, strict=True):
            if sign < 0 or scale != 1:
                for part in roles if role == BIAS_ROLE else (role,):
                    yield (layer, direction, part), number
    for (layer, direction, _), biases in packing.layer_biases.items():
        if biases.rule is not KEPT_RULE or biases.shifts:
            yield from (((layer, direction, role), k) for role in roles for k in biases.order)
