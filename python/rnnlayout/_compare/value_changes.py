"""What was done to values, apart from their order: encoded, rounded, quantized, changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from rnnlayout._model.dtypes import FLOATS, narrow_values, round_values, storage_dtype

from .blocks import differing, values_of_bits
from .mistakes import BIAS_ROLE, Mistake, places_in_words
from .packed_biases import KEPT_RULE, SPLIT_RULE, eps_of
from .packing import Packing
from .truth import MatrixName, Truth

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
    every = chain(given, _other_encodings(raw, dtype, truth))
    plausible = (one for one in every if _is_plausible(one, truth))
    first = next(plausible, None)
    yield from given if first is None else chain([first], plausible)


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


def value_mistake(
    packing: Packing, buffer: np.ndarray, fixed: np.ndarray, ulps: int = 0
) -> Mistake | None:
    """Compare the values of a buffer, repaired, with the true ones: what was done to them?

    Matrices and biases that were not found are left out. ulps: differences of so many units in the
    last place are ignored.
    """
    truth = packing.truth
    eps, forget = eps_of(truth), truth.gates.find("f")
    pairs = [
        (truth.part(fixed, slab).reshape(-1, slab.shape[2]), slab.values.reshape(-1, slab.shape[2]))
        for slab in truth.slabs if slab.name in packing.matrices
    ]  # fmt: skip
    matrices = list(pairs)
    sums: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    touched: list[MatrixName] = []
    for place, given, true, wide in _biases_as_repaired(packing, fixed):
        if wide is not None:
            sums.append((given, true, wide))
            continue
        pairs.append((given, true))
        far = differing(given, true, 0)
        with np.errstate(all="ignore"):  # NaN, infinity
            near = abs(given - true) <= eps * (1 + abs(true))
        only_f = forget >= 0 and far.any() and far.sum() == far[:, forget].sum()
        if only_f and (near | ~far).all():
            touched.append((*place, BIAS_ROLE))
            pairs.pop()
    wrong = [(a[far], b[far]) for a, b in pairs if (far := differing(a, b, 0, ulps * eps)).any()]
    if wrong and (what := _explain_values(wrong, matrices, buffer, truth.spec.dtype)):
        if what.rule == "pruned":
            text = f"{_count_of(wrong, pairs)} 0, the others are as they were (pruned?)"
            return replace(what, text=text)
        return what
    wrong += [(a[far], b[far]) for a, b, wide in sums if (far := differing(a, b, wide)).any()]
    if not wrong:
        return _rounded_twice(packing, touched) if touched else None
    nans, count = sum(int(np.isnan(x).sum()) for x, _ in wrong), sum(x.size for x, _ in wrong)
    text = f"{_count_of(wrong, [*pairs, *sums])} changed"
    if nans:
        text += f", {nans} of them to NaN" if count > nans else " to NaN"
    if count > nans:
        with np.errstate(invalid="ignore"):
            most = max(float(np.nanmax(abs(x - y), initial=0)) for x, y in wrong)
        text += f", by up to {most:.3g}"
    return Mistake("changed", f"{text}: were the weights trained further, or edited?", ())


def _count_of(wrong: Sequence[Any], pairs: Sequence[Any]) -> str:
    count, size = (sum(pair[0].size for pair in some) for some in (wrong, pairs))
    return f"{count} of {size} values {'is' if count == 1 else 'are'}"


def _biases_as_repaired(
    packing: Packing, fixed: np.ndarray
) -> Iterator[tuple[tuple[int, int], np.ndarray, np.ndarray, np.ndarray | None]]:
    """Yield for each layer and direction whose biases were recognized: what they are, repaired, and
    what they should be then, as (vectors, G, H), and how far rounding may take them from that; None
    if they have to be equal. Those that were split differently were compared by their sums.
    """
    truth, biases = packing.truth, packing.biases
    given = fixed[truth.num_weights :].reshape(truth.biases.shape)
    for at, layer in (biases.layers if biases else {}).items():
        if layer.unknown or layer.rule is SPLIT_RULE or biases is None:
            continue
        true = truth.biases[at]
        if layer.rule is KEPT_RULE and not layer.shift[1]:
            yield at, given[at][: biases.count], true[: biases.count], None
            continue
        w, r = true[0], true[1] if len(true) == 2 else np.zeros_like(true[0])
        with np.errstate(all="ignore"):
            made = np.stack(layer.rule.make(w, r))[: biases.count]
            made = np.stack(layer.rule.undo(made[0], made[-1]))[: biases.count]
            wide = 8 * eps_of(truth) * (abs(w) + abs(r) + bool(layer.shift[1]))
        yield at, given[at][: biases.count], made, np.broadcast_to(wide, made.shape)


def _rounded_twice(packing: Packing, places: Sequence[MatrixName]) -> Mistake:
    """Return the mistake of biases of gate f whose last bits are others."""
    words = places_in_words(packing, places, [(*at, BIAS_ROLE) for at in packing.layer_biases])
    text = f"{words} of gate f are rounded, as 1 was added and subtracted again (a forget bias)"
    lost = "the last bits of the biases of gate f"
    return Mistake("forget bias rounded", text, tuple(places), lost)


def _explain_values(
    wrong: list[tuple[np.ndarray, np.ndarray]],
    matrices: list[tuple[np.ndarray, np.ndarray]],
    whole: np.ndarray,
    dtype: str,
) -> Mistake | None:
    """Return what made values of others; None if they were just changed.

    wrong: values that differ, and the true ones. matrices: all values of each matrix, and the true
    ones, as (rows, columns). whole: all values of the buffer.
    """
    with np.errstate(all="ignore"):  # signalling NaNs too
        a, b = (np.concatenate([part[:_LOOKED_AT] for part in parts]).astype("f8")
                for parts in zip(*wrong, strict=True))  # fmt: skip
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
    if all((x == y).all() for x, y in matrices):
        return None
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
