"""What was done to values, apart from their order: encoded, rounded, quantized, changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rnnlayout._model.dtypes import FLOATS, narrow_values, round_values, storage_dtype

from .mistakes import Mistake
from .packing import Packing
from .truth import Truth, values_of_bits

_LOOKED_AT = 65536  # values of each matrix, to tell rounding from training


@dataclass(frozen=True)
class DecodedBuffer:
    """One way to read a buffer. bits: its values as bits of the true dtype. mistake: what is wrong
    if this is the way to read it; None if it is the right way.

    rest: how many bytes at its end are not a whole value.
    """

    bits: np.ndarray
    mistake: Mistake | None = None
    rest: int = 0


def decode_buffer(raw: np.ndarray, dtype: str | None, truth: Truth) -> Iterator[DecodedBuffer]:
    """Yield the ways to read a buffer, the likely ones first.

    raw: 1-D bits, or bytes if dtype is None: their number decides then.
    """
    right = truth.spec.dtype
    data = raw.view("u1")
    if dtype is None:
        rest = data.size % storage_dtype(right).itemsize
        yield DecodedBuffer(data[: data.size - rest].view(storage_dtype(right)), rest=rest)
    else:
        yield _reread_bits(raw, dtype, right)
    for name in (right, *FLOATS):
        size = storage_dtype(name).itemsize
        if (
            name != (dtype or right)
            and data.size % size == 0
            and _has_right_count(data.size // size, truth)
        ):
            yield _reread_bits(data.view(storage_dtype(name)), name, right, read_as=dtype or "")
    for name in dict.fromkeys((dtype or right, right)):
        if data.size % storage_dtype(name).itemsize == 0:
            swapped = data.view(storage_dtype(name)).byteswap()
            text = "the bytes of each value are in the other order (big-endian, not little-endian)"
            yield DecodedBuffer(
                _reread_bits(swapped, name, right).bits, Mistake("byte order", text, ())
            )


def _has_right_count(count: int, truth: Truth) -> bool:
    return truth.num_weights <= count <= truth.size + truth.spec.hidden_size


def _reread_bits(bits: np.ndarray, dtype: str, right: str, read_as: str = "") -> DecodedBuffer:
    """Return values of one dtype as the bits of another."""
    if dtype == right:
        text = f"the values are {right}, but were read as {read_as}"
        return DecodedBuffer(bits, Mistake("read as", text, ()) if read_as else None)
    with np.errstate(all="ignore"):
        values = values_of_bits(bits, dtype).astype("f8")
        made = narrow_values(values, right)
    return DecodedBuffer(
        made, Mistake(f"dtype {dtype}", f"the values are {dtype}, expected {right}", ())
    )


@dataclass(frozen=True)
class ValueDifference:
    """Where the repaired values differ from the true ones, apart from what the mistakes lost."""

    count: int
    size: int
    mistakes: tuple[Mistake, ...]


def compare_values(packing: Packing, buffer: np.ndarray, fixed: np.ndarray) -> ValueDifference:
    """Compare the values of a buffer, repaired, with the true ones: what was done to them?

    Matrices that were not found, and biases of which values were lost, are left out.
    """
    truth, at = packing.truth, 0
    pairs: list[tuple[np.ndarray, np.ndarray]] = []
    for slab in truth.slabs:
        if slab.name in packing.matrices:
            pairs.append((fixed[at : at + slab.size], slab.values.reshape(-1)))
        at += slab.size
    matrices = len(pairs)
    given = fixed[at:].reshape(truth.biases.shape)
    for place, layer in (packing.biases.layers if packing.biases else {}).items():
        if not (layer.rule.lost or layer.shift[1] or layer.unknown) and packing.biases:
            count = packing.biases.count
            pairs.append((given[place][:count].reshape(-1),
                          truth.biases[place][:count].reshape(-1)))  # fmt: skip
    wrong = [(a[far], b[far]) for a, b in pairs if (far := _differing(a, b)).any()]
    count = sum(a.size for a, _ in wrong)
    size = sum(a.size for a, _ in pairs)
    if not count:
        return ValueDifference(0, size, ())
    with np.errstate(invalid="ignore"):  # signalling NaNs
        a, b = (np.concatenate([part[:_LOOKED_AT] for part in parts]).astype("f8")
                for parts in zip(*wrong, strict=True))  # fmt: skip
        largest = float(np.nanmax(abs(buffer), initial=0))
    what = _explain_values(a, b, pairs[:matrices], largest, truth.spec.dtype)
    if what is None:
        text = f"{count} of {size} values {'is' if count == 1 else 'are'} changed"
        if nans := sum(int(np.isnan(x).sum()) for x, y in wrong):
            text += f", {nans} of them to NaN" if count > nans else " to NaN"
        if count > nans:
            most = max(float(np.nanmax(abs(x - y), initial=0)) for x, y in wrong)
            text += f", by up to {most:.3g}"
        what = Mistake("changed", f"{text}: were the weights trained further, or edited?", ())
    return ValueDifference(count, size, (what,))


def _differing(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    unequal: np.ndarray = a != b
    if unequal.any():
        unequal &= ~(np.isnan(a) & np.isnan(b))
    return unequal


def _explain_values(
    a: np.ndarray,
    b: np.ndarray,
    matrices: list[tuple[np.ndarray, np.ndarray]],
    largest: float,
    dtype: str,
) -> Mistake | None:
    """Return what made `a`, values that differ, of `b`; None if they were just changed."""
    with np.errstate(all="ignore"):
        for name in FLOATS[:2]:
            if name != dtype and (round_values(b, name) == a).all():
                text = f"the values are rounded to {name}"
                return Mistake(f"rounded {name}", text, (), f"what {name} cannot represent")
        if dtype == "float32" and (_cut_to_bfloat16(b) == a).all():
            text = "the values are cut off to bfloat16, not rounded"
            return Mistake("cut to bfloat16", text, (), "what bfloat16 cannot represent")
        for scales, words in ((None, "one scale per matrix"), (largest / 127, "one scale for all")):
            if all(_is_quantized(x, y, scales) for x, y in matrices):
                text = f"the values are quantized to 8 bits, with {words}"
                return Mistake("quantized", text, (), "what 8 bits cannot represent")
    return None


def _cut_to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Return float32 values without their last 16 bits, as many scripts make bfloat16."""
    return (values.astype("f4").view("u4") & 0xFFFF0000).view("f4")


def _is_quantized(x: np.ndarray, y: np.ndarray, scale: float | None) -> bool:
    scale = scale or float(np.abs(x).max()) / 127
    if not np.isfinite(scale):
        return False
    x, y = x[:_LOOKED_AT].astype("f8"), y[:_LOOKED_AT].astype("f8")
    if not scale:
        return bool((y == 0).all())
    steps = x / scale
    near = abs(steps - np.rint(steps)) < 0.01
    return bool(near.all() and (abs(x - y) <= scale * 0.51).all())
