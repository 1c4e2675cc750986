"""What was done to values, apart from their order: encoded, rounded, quantized, changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

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

    rest: how many bytes are not a whole value. in_front: they are in front, not at the end.
    """

    bits: np.ndarray
    mistake: Mistake | None = None
    rest: int = 0
    in_front: bool = False


def decode_buffer(raw: np.ndarray, dtype: str | None, truth: Truth) -> Iterator[DecodedBuffer]:
    """Yield the ways to read a buffer, the likely ones first: those as large as the true values,
    or the given one if there are none.

    raw: 1-D bits, or bytes if dtype is None: their number decides then.
    """
    given = list(_given_encodings(raw, dtype, truth))
    found = [one for one in given if _is_plausible(one, truth)]
    others = (one for one in _other_encodings(raw, dtype, truth) if _is_plausible(one, truth))
    if not found:
        found = list(others) or given
    yield from found
    yield from others


def _given_encodings(raw: np.ndarray, dtype: str | None, truth: Truth) -> Iterator[DecodedBuffer]:
    right = truth.spec.dtype
    data = raw.view("u1")
    if dtype is None:
        rest = data.size % storage_dtype(right).itemsize
        yield DecodedBuffer(data[: data.size - rest].view(storage_dtype(right)), rest=rest)
        if rest:
            behind = np.ascontiguousarray(data[rest:]).view(storage_dtype(right))
            yield DecodedBuffer(behind, rest=rest, in_front=True)
    else:
        yield _reread_bits(raw, dtype, right)


def _is_plausible(decoded: DecodedBuffer, truth: Truth) -> bool:
    """Are the values as large as the true ones, up to some powers of two?"""
    sizes = []
    for values in (values_of_bits(decoded.bits, truth.spec.dtype), truth.slabs[0].values):
        with np.errstate(all="ignore"):
            some = np.abs(values.reshape(-1)[:_LOOKED_AT].astype("f8"))
        some = some[np.isfinite(some) & (some > 0)]
        sizes.append(np.quantile(np.log2(some), (0.1, 0.9)) if some.size else np.zeros(2))
    return bool((abs(sizes[0] - sizes[1]) < 10).all())


def _other_encodings(raw: np.ndarray, dtype: str | None, truth: Truth) -> Iterator[DecodedBuffer]:
    right = truth.spec.dtype
    data = raw.view("u1")
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
    if dtype == right:
        text = "all values are in the reverse order"
        yield DecodedBuffer(raw[::-1].copy(), Mistake("reversed", text, ()))


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


def compare_values(
    packing: Packing, buffer: np.ndarray, fixed: np.ndarray, ulps: int = 0
) -> ValueDifference:
    """Compare the values of a buffer, repaired, with the true ones: what was done to them?

    Matrices that were not found, and biases of which values were lost, are left out. ulps:
    differences of so many units in the last place are ignored.
    """
    truth = packing.truth
    pairs: list[tuple[np.ndarray, np.ndarray]] = []
    widths: list[int] = []  # of the matrices: columns
    for slab in truth.slabs:
        if slab.name in packing.matrices:
            pairs.append((truth.part(fixed, slab), slab.values.reshape(-1)))
            widths.append(slab.shape[2])
    given = fixed[truth.num_weights :].reshape(truth.biases.shape)
    for place, layer in (packing.biases.layers if packing.biases else {}).items():
        if not (layer.rule.lost or layer.shift[1] or layer.unknown) and packing.biases:
            count = packing.biases.count
            pairs.append((given[place][:count].reshape(-1),
                          truth.biases[place][:count].reshape(-1)))  # fmt: skip
    wide = ulps * float(np.finfo(fixed.dtype).eps)
    wrong = [(a[far], b[far]) for a, b in pairs if (far := _differing(a, b, wide)).any()]
    count = sum(a.size for a, _ in wrong)
    size = sum(a.size for a, _ in pairs)
    if not count:
        return ValueDifference(0, size, ())
    with np.errstate(invalid="ignore"):  # signalling NaNs
        a, b = (np.concatenate([part[:_LOOKED_AT] for part in parts]).astype("f8")
                for parts in zip(*wrong, strict=True))  # fmt: skip
    shaped = [(x.reshape(-1, columns), y.reshape(-1, columns))
              for (x, y), columns in zip(pairs, widths, strict=False)]  # fmt: skip
    what = _explain_values(a, b, shaped, buffer, truth.spec.dtype)
    of = f"{count} of {size} values {'is' if count == 1 else 'are'}"
    if what and what.rule == "pruned":
        what = replace(what, text=f"{of} 0, the others are as they were (pruned?)")
    if what is None:
        text = f"{of} changed"
        if nans := sum(int(np.isnan(x).sum()) for x, y in wrong):
            text += f", {nans} of them to NaN" if count > nans else " to NaN"
        if count > nans:
            most = max(float(np.nanmax(abs(x - y), initial=0)) for x, y in wrong)
            text += f", by up to {most:.3g}"
        what = Mistake("changed", f"{text}: were the weights trained further, or edited?", ())
    return ValueDifference(count, size, (what,))


def _differing(a: np.ndarray, b: np.ndarray, wide: float) -> np.ndarray:
    unequal: np.ndarray = a != b
    if wide:
        unequal = ~(np.abs(a - b) <= wide * np.abs(b))
    if unequal.any():
        unequal &= ~(np.isnan(a) & np.isnan(b))
    return unequal


def _explain_values(
    a: np.ndarray,
    b: np.ndarray,
    matrices: list[tuple[np.ndarray, np.ndarray]],
    whole: np.ndarray,
    dtype: str,
) -> Mistake | None:
    """Return what made `a`, values that differ, of `b`; None if they were just changed.

    matrices: the values of each matrix that differs, and the true ones, as (rows, columns).
    whole: all values.
    """
    with np.errstate(all="ignore"):
        for name in FLOATS[:2]:
            if name != dtype and (round_values(b, name) == a).all():
                text = f"the values are rounded to {name}"
                return Mistake(f"rounded {name}", text, (), f"what {name} cannot represent")
        if dtype == "float32" and (_cut_to_bfloat16(b) == a).all():
            text = "the values are cut off to bfloat16, not rounded"
            return Mistake("cut to bfloat16", text, (), "what bfloat16 cannot represent")
        if (a == 0).all():
            return Mistake("pruned", "", (), "the values that are 0")
        most = np.abs(a).max()
        beyond = (np.sign(a) == np.sign(b)).all() and (abs(b) > most).all()
        every = max(np.abs(x).max() for x, _ in matrices) if matrices else np.inf
        if a.size > 1 and (np.abs(a) == most).all() and beyond and every <= most:
            text = f"the values are clipped to {most:.6g}"
            return Mistake("clipped", text, (), f"what is beyond {most:.6g}")
        return _quantized(matrices, whole)


def _cut_to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Return float32 values without their last 16 bits, as many scripts make bfloat16."""
    return (values.astype("f4").view("u4") & 0xFFFF0000).view("f4")


def _quantized(matrices: list[tuple[np.ndarray, np.ndarray]], whole: np.ndarray) -> Mistake | None:
    """Return the scheme by which matrices were quantized: evenly spaced values, few of them.

    whole: all values of the buffer.
    """
    rows = [pair for x, y in matrices for pair in zip(x, y, strict=True)]
    groups = {"matrix": matrices, "row": rows, "": matrices}
    for bits in (4, 7, 8):
        for group, pairs in groups.items():
            for with_zero in (False, True):
                if pairs and all(
                    _is_quantized(x, y, bits, with_zero, x if group else whole) for x, y in pairs
                ):
                    scale = f"one scale {'and zero point ' * with_zero}"
                    scale += f"per {group}" if group else "for all"
                    text = f"the values are quantized to {bits} bits, with {scale}"
                    return Mistake("quantized", text, (), f"what {bits} bits cannot represent")
    return None


def _is_quantized(
    x: np.ndarray, y: np.ndarray, bits: int, with_zero: bool, group: np.ndarray
) -> bool:
    """Are values x the true ones y, rounded to multiples of a scale?

    group: the values that have this scale. It follows from the largest of them, or with a zero
    point from their range: that is so many steps, or one less where both ends were rounded inwards.
    """
    x, y = (part.reshape(-1)[:_LOOKED_AT].astype("f8") for part in (x, y))
    low, high = float(group.min(initial=0)), float(group.max(initial=0))
    low, high = (low, high) if with_zero else (0.0, max(-low, high))
    levels = 2 ** (bits - (not with_zero)) - 1
    for steps in (levels, levels - 1) if with_zero else (levels, levels + 1):
        scale = (high - low) / steps
        if not scale or not np.isfinite(scale):
            return bool(scale == 0 and (y == 0).all())
        exact = x / scale
        # rounded once more to its dtype, a multiple is off by at most steps * 2^-11 < 0.13
        near = abs(exact - np.rint(exact)) < 0.01
        if near.all() and (abs(x - y) <= scale * 1.01).all():
            return True
    return False
