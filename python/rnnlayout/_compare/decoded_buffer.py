"""Ways to read a buffer: the dtype and the byte order of the values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rnnlayout._model.dtypes import FLOATS, narrow_values, storage_dtype

from .blocks import values_of_bits
from .mistakes import Mistake
from .truth import Truth

_LOOKED_AT = 65536  # values that show how large all are


@dataclass(frozen=True)
class DecodedBuffer:
    """A way to read a buffer. bits: the values as bits of the true dtype. mistake: the mistake of
    a packer that wrote such a buffer; None for a right buffer. rounding: the value rule that the
    values of this dtype follow if the dtype lost anything.

    rest: how many bytes are not a whole value. in_front: the rest is in front, not at the end.
    """

    bits: np.ndarray
    mistake: Mistake | None = None
    rest: int = 0
    in_front: bool = False
    rounding: str = ""


def decode_buffer(raw: np.ndarray, dtype: str | None, truth: Truth) -> Iterator[DecodedBuffer]:
    """Yield the caller's way to read a buffer, then other ways that are plausible.

    raw: 1-D bits, or bytes if dtype is None: then the number of bytes decides.
    """
    right, data = truth.spec.dtype, raw.view("u1")
    decoded = [_reread_bits(raw, dtype or right, right)] if dtype else []
    if not dtype:
        rest = data.size % storage_dtype(right).itemsize
        for at in (0, rest)[: 1 + (rest > 0)]:
            part = np.ascontiguousarray(data[at : data.size - rest + at])
            decoded.append(DecodedBuffer(part.view(storage_dtype(right)), None, rest, at > 0))
    yield from decoded
    yield from (way for way in _other_encodings(data, dtype, truth) if _is_plausible(way, truth))


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
    mistake = Mistake(f"dtype {dtype}", text, ())
    return DecodedBuffer(narrowed, mistake, rounding=f"rounded {dtype}")
