"""Buffers with more or fewer values than cuDNN's weight space: what is certain of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .mistakes import Mistake
from .packing import Packing
from .truth import same_bits


def explains_length(packing: Packing, fixed: np.ndarray) -> bool:
    """Return whether a buffer of another length is explained value by value.

    One that is too long must have all true values, bit for bit. One that is too short must have
    all matrices and no biases, or one bias vector per layer and direction.
    """
    truth, biases = packing.truth, packing.biases
    if packing.size == truth.size:
        return True
    if packing.size > truth.size:
        return same_bits(fixed, truth.flat)
    one = biases is not None and biases.count == 1 and not biases.wrong
    expected = truth.num_weights + one * truth.biases[:, :, :1].size
    return packing.size == expected and not packing.unknown


def exactly_found(packing: Packing, fixed: np.ndarray) -> Packing:
    """Return a packing with only those of its matrices that were found bit for bit."""
    exact, at = set(), 0
    for slab in packing.truth.slabs:
        values = fixed[at : at + slab.size]
        if slab.name in packing.matrices and same_bits(values, slab.values.reshape(-1)):
            exact.add(slab.name)
        at += slab.size
    matrices = {name: one for name, one in packing.matrices.items() if name in exact}
    return replace(packing, matrices=matrices, biases=None)


def length_mistake(packing: Packing, buffer: np.ndarray, rest: int = 0) -> Mistake:
    """Return how many values are missing or too many, and at which end if that is certain.

    rest: how many bytes follow the last whole value.
    """
    truth = packing.truth
    bytes_ = f" and {rest} byte{'s' * (rest > 1)}" * bool(rest)
    text = f"the buffer has {buffer.size} values{bytes_}, expected {truth.size}"
    missing = truth.size - buffer.size
    if missing <= 0:
        return Mistake("extra", text + f": {-missing} too many" * bool(missing), ())
    ends = {"last": truth.flat[: buffer.size], "first": truth.flat[missing:]}
    cut = [end for end, left in ends.items() if same_bits(buffer, left)]
    if len(cut) != 1:
        return Mistake("too short", text, (), f"{missing} values")
    which = f"the {cut[0]} {missing} are" if missing > 1 else f"the {cut[0]} one is"
    return Mistake("too short", f"{text}: {which} missing", (), f"the {cut[0]} {missing} values")
