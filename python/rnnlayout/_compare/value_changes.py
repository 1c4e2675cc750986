"""Find changes of values, apart from the order: encoded, rounded, quantized, changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np

from rnnlayout._model.dtypes import FLOATS, narrow_values, round_values, storage_dtype

from .blocks import differing, values_of_bits
from .mistakes import Mistake, places_in_words
from .packed_biases import KEPT_RULE, SPLIT_RULE, eps_of
from .packing import Packing
from .truth import MatrixName, Truth

_LOOKED_AT = 65536  # values of each matrix, to tell rounding from training
_Pair = tuple[np.ndarray, np.ndarray]  # values of the buffer, and true values


@dataclass(frozen=True)
class DecodedBuffer:
    """A way to read a buffer. bits: the values as bits of the true dtype. mistake: the mistake of
    a packer that wrote such a buffer; None for a right buffer.

    rest: how many bytes are not a whole value. in_front: the rest is in front, not at the end.
    """

    bits: np.ndarray
    mistake: Mistake | None = None
    rest: int = 0
    in_front: bool = False


def decode_buffer(raw: np.ndarray, dtype: str | None, truth: Truth) -> Iterator[DecodedBuffer]:
    """Yield the plausible ways to read a buffer, the likely ways first; if none is plausible, the
    caller's way.

    raw: 1-D bits, or bytes if dtype is None: then the number of bytes decides.
    """
    right, data = truth.spec.dtype, raw.view("u1")
    decoded = [_reread_bits(raw, dtype or right, right)] if dtype else []
    if not dtype:
        rest = data.size % storage_dtype(right).itemsize
        for at in (0, rest)[: 1 + (rest > 0)]:
            part = np.ascontiguousarray(data[at : data.size - rest + at])
            decoded.append(DecodedBuffer(part.view(storage_dtype(right)), None, rest, at > 0))
    none = True
    for candidate in chain(decoded, _other_encodings(data, dtype, truth)):
        if _is_plausible(candidate, truth):
            none = False
            yield candidate
    if none:
        yield from decoded


def _is_plausible(decoded: DecodedBuffer, truth: Truth) -> bool:
    """Return whether the values are as large as the true values, up to some powers of two."""
    sizes = []
    for values in (values_of_bits(decoded.bits, truth.spec.dtype), truth.matrices[0].values):
        with np.errstate(all="ignore"):
            absolute = np.abs(values.reshape(-1)[:_LOOKED_AT].astype("f8"))
        absolute = absolute[np.isfinite(absolute) & (absolute > 0)]
        sizes.append(np.quantile(np.log2(absolute), (0.1, 0.9)) if absolute.size else np.zeros(2))
    return bool((abs(sizes[0] - sizes[1]) < 10).all())


def _other_encodings(data: np.ndarray, dtype: str | None, truth: Truth) -> Iterator[DecodedBuffer]:
    """Yield the values in dtypes other than the caller's, and in the reverse byte order."""
    right = truth.spec.dtype
    sizes = {name: storage_dtype(name).itemsize for name in FLOATS}
    fitting = [name for name in (right, *FLOATS) if data.size % sizes[name] == 0]
    for name in fitting:
        count = data.size // sizes[name]
        if (
            name != (dtype or right)
            and truth.num_weights <= count <= truth.size + truth.spec.hidden_size
        ):
            yield _reread_bits(data.view(storage_dtype(name)), name, right, read_as=dtype or "")
    text = "the bytes of each value are in the other order (big-endian, not little-endian)"
    for name in dict.fromkeys((dtype or right, right)):
        if name in fitting:
            swapped = data.view(storage_dtype(name)).byteswap()
            swapped_bits = _reread_bits(swapped, name, right).bits
            yield DecodedBuffer(swapped_bits, Mistake("byte order", text, ()))


def _reread_bits(bits: np.ndarray, dtype: str, right: str, read_as: str = "") -> DecodedBuffer:
    """Return values of a dtype as bits of the right dtype."""
    if dtype == right:
        text = f"the values are {right}, but were read as {read_as}"
        return DecodedBuffer(bits, Mistake("read as", text, ()) if read_as else None)
    with np.errstate(all="ignore"):
        narrowed = narrow_values(values_of_bits(bits, dtype).astype("f8"), right)
    text = f"the values are {dtype}, expected {right}"
    return DecodedBuffer(narrowed, Mistake(f"dtype {dtype}", text, ()))


def value_mistake(packing: Packing, ulps: int = 0) -> Mistake | None:
    """Return the mistake that explains how repaired values differ from the true values, if any.

    Matrices and biases that were not located are left out. ulps: differences up to this many units
    in the last place are ignored.
    """
    truth = packing.truth
    eps, forget = eps_of(truth), truth.gates.find("f")
    matrices = [
        (truth.part(packing.fixed, matrix).reshape(shape), matrix.values.reshape(shape))
        for matrix in truth.matrices
        if matrix.name in packing.matrices
        for shape in [(-1, matrix.shape[2])]
    ]
    pairs, touched = list(matrices), []
    sums: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for name, repaired, true, wide in _biases_as_repaired(packing):
        if wide is not None:
            sums.append((repaired, true, wide))
            continue
        far = differing(repaired, true)
        with np.errstate(all="ignore"):  # NaN, infinity
            near = abs(repaired - true) <= eps * (1 + abs(true))
        only_f = forget >= 0 and far.any() and far.sum() == far[:, forget].sum()
        if only_f and (near | ~far).all():
            touched.append(name)
        else:
            pairs.append((repaired, true))
    wrong = [(a[far], b[far]) for a, b in pairs if (far := differing(a, b, 0, ulps * eps)).any()]
    dtype = truth.spec.dtype
    if wrong and (change := _known_change(wrong, pairs, matrices, packing.buffer, dtype)):
        return change
    wrong += [(a[far], b[far]) for a, b, wide in sums if (far := differing(a, b, wide)).any()]
    if not wrong and touched:
        words = places_in_words(packing, touched, packing.layer_biases)
        text = f"{words} of gate f are rounded, as 1 was added and subtracted again (a forget bias)"
        lost = "the last bits of the biases of gate f"
        return Mistake("forget bias rounded", text, tuple(touched), lost)
    if not wrong:
        return None
    nans, count = sum(int(np.isnan(x).sum()) for x, _ in wrong), sum(x.size for x, _ in wrong)
    text = f"{_count_of(wrong, pairs + [(a, b) for a, b, _ in sums])} changed"
    if nans:
        text += f", {nans} of them to NaN" if count > nans else " to NaN"
    if count > nans:
        with np.errstate(invalid="ignore"):
            most = max(float(np.nanmax(abs(x - y), initial=0)) for x, y in wrong)
        text += f", by up to {most:.3g}"
    return Mistake("changed", f"{text}: were the weights trained further, or edited?", ())


def _count_of(wrong: list[_Pair], pairs: list[_Pair]) -> str:
    count, size = (sum(pair[0].size for pair in counted) for counted in (wrong, pairs))
    return f"{count} of {size} values {'is' if count == 1 else 'are'}"


def _biases_as_repaired(
    packing: Packing,
) -> Iterator[tuple[MatrixName, np.ndarray, np.ndarray, np.ndarray | None]]:
    """Yield (name, repaired, expected, tolerance) of the recognized biases of each layer and
    direction. Arrays are (vectors, G, H); tolerance is None if the biases have to be equal. Biases
    that were split differently are left out: the search compared the sums.
    """
    truth, biases = packing.truth, packing.biases
    all_biases = packing.fixed[truth.num_weights :].reshape(truth.biases.shape)
    for name, layer in packing.layer_biases.items():
        if layer.unknown or layer.rule is SPLIT_RULE or biases is None:
            continue
        repaired, true = all_biases[name[:2]][: biases.count], truth.biases[name[:2]]
        if layer.rule is KEPT_RULE and not layer.shift[1]:
            yield name, repaired, true[: biases.count], None
            continue
        w, r = true[0], true[1] if len(true) == 2 else np.zeros_like(true[0])
        with np.errstate(all="ignore"):
            expected = np.stack(layer.rule.make(w, r))[: biases.count]
            expected = np.stack(layer.rule.undo(expected[0], expected[-1]))[: biases.count]
            wide = 8 * eps_of(truth) * (abs(w) + abs(r) + bool(layer.shift[1]))
        yield name, repaired, expected, np.broadcast_to(wide, expected.shape)


def _known_change(
    wrong: list[_Pair], pairs: list[_Pair], matrices: list[_Pair], whole: np.ndarray, dtype: str
) -> Mistake | None:
    """Return the known change that explains all differences, else None.

    wrong: values that differ. pairs: all compared values. matrices: all values of each matrix,
    as (rows, columns). whole: all values of the buffer.
    """
    with np.errstate(all="ignore"):  # signalling NaNs too
        a, b = (
            np.concatenate([part[:_LOOKED_AT] for part in parts]).astype("f8")
            for parts in zip(*wrong, strict=True)
        )
        for name in FLOATS[:2]:
            if name != dtype and (round_values(b, name) == a).all():
                text = f"the values are rounded to {name}"
                return Mistake(f"rounded {name}", text, (), f"what {name} cannot represent")
        # without the last 16 bits, as many scripts convert to bfloat16
        if dtype == "float32" and ((b.astype("f4").view("u4") >> 16 << 16).view("f4") == a).all():
            text = "the values are cut off to bfloat16, not rounded"
            return Mistake("cut to bfloat16", text, (), "what bfloat16 cannot represent")
        if (a == 0).all():
            text = f"{_count_of(wrong, pairs)} 0, the others are as they were (pruned?)"
            return Mistake("pruned", text, (), "the values that are 0")
        most = np.abs(a).max()
        largest_of_all = max((np.abs(x).max() for x, _ in matrices), default=np.inf)
        if a.size > 1 and (a == np.clip(b, -most, most)).all() and largest_of_all <= most:
            text = f"the values are clipped to {most:.6g}"
            return Mistake("clipped", text, (), f"what is beyond {most:.6g}")
        return _quantized(matrices, whole)


def _quantized(matrices: list[_Pair], whole: np.ndarray) -> Mistake | None:
    """Return the scheme by which matrices were quantized: few, evenly spaced values."""
    if all((x == y).all() for x, y in matrices):
        return None
    rows = [pair for x, y in matrices for pair in zip(x, y, strict=True)]
    for bits in (4, 7, 8):
        for group, pairs in {"matrix": matrices, "row": rows, "": matrices}.items():
            for with_zero in (False, True):
                if all(
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
    """Return whether x are the true values y, rounded to multiples of a scale.

    group: the values with this scale. The scale follows from the largest value, or with a zero
    point from the range of values, which is `levels` steps, or a step less if both ends were
    rounded inwards.
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
        # rounding to the dtype shifts a multiple by at most steps * 2^-11 < 0.13
        near = abs(exact - np.rint(exact)) < 0.01
        if near.all() and (abs(x - y) <= scale * 1.01).all():
            return True
    return False
