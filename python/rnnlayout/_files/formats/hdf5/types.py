"""Datatypes and dataspaces: sections IV.A.2.b and IV.A.2.d of the specification."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .bounded import Cursor, DamagedError

_FIXED, _FLOAT, _TEXT, _OPAQUE, _ENUM, _VARIABLE = 0, 1, 3, 5, 8, 9
_OTHERS = {2: "a time", 4: "bits", 6: "a compound", 7: "a reference", 10: "an array in an array",
           11: "complex"}  # fmt: skip
# bytes -> precision, where the exponent is and its size, the same for the mantissa, and the bias
_IEEE = {
    2: (16, 10, 5, 0, 10, 15),
    4: (32, 23, 8, 0, 23, 127),
    8: (64, 52, 11, 0, 52, 1023),
}
_ENDS_AT_NULL, _ENDS_WITH_SPACES = 0, 2  # how texts of fixed length are padded
_BOOL = b"\0\1"  # h5py's: FALSE and TRUE


@dataclass(frozen=True)
class Hdf5Type:
    """The type of an element. name: the type's name in messages. nbytes: the size of an element in
    the file. dtype: NumPy's dtype, object for texts of variable length, None if the type is not
    supported. charset: the character set of texts. padding: how texts of fixed length are padded.
    """

    name: str
    nbytes: int
    dtype: np.dtype | None = None
    charset: str | None = None
    padding: int = 1

    @property
    def is_text(self) -> bool:
        """Whether it is text, of fixed or variable length."""
        return self.charset is not None

    @property
    def is_variable(self) -> bool:
        """Whether it is text of variable length, stored in a global heap."""
        return self.dtype == object


def read_type(cursor: Cursor) -> Hdf5Type:
    """IV.A.2.d. The Datatype Message."""
    head, bits, nbytes = cursor.uint(), cursor.uint(3), cursor.uint(4)
    kind, version = head & 15, head >> 4
    if not nbytes or nbytes >= 1 << 31 or not 1 <= version <= 5:
        raise DamagedError(f"a datatype of version {version} with {nbytes} bytes")
    if kind == _FIXED:
        offset, precision = cursor.uint(2), cursor.uint(2)
        if (offset, precision) != (0, 8 * nbytes) or nbytes not in (1, 2, 4, 8):
            return Hdf5Type(f"an integer of {precision} bits", nbytes)
        return _number_type(f"{'>' if bits & 1 else '<'}{'i' if bits & 8 else 'u'}{nbytes}")
    if kind == _FLOAT:
        offset, precision = cursor.uint(2), cursor.uint(2)
        form = precision, *(cursor.uint() for _ in range(4)), cursor.uint(4)
        sign, order = bits >> 8 & 255, bits & 0x41
        if offset or form != _IEEE.get(nbytes) or sign != 8 * nbytes - 1 or order > 1:
            return Hdf5Type(f"a float of {precision} bits that is not IEEE's", nbytes)
        return _number_type(f"{'>' if order else '<'}f{nbytes}")
    if kind == _TEXT:
        charset = "utf-8" if bits >> 4 & 15 else "ascii"
        return Hdf5Type(f"|S{nbytes}", nbytes, np.dtype(f"S{nbytes}"), charset, bits & 15)
    if kind == _OPAQUE:
        if cursor.take(bits & 255).startswith(b"NUMPY:"):
            return Hdf5Type("a date", nbytes)
        return Hdf5Type(f"|V{nbytes}", nbytes, np.dtype(f"V{nbytes}"))
    if kind == _ENUM:
        return _enum_type(cursor, bits, nbytes, padded=version < 3)
    if kind == _VARIABLE and bits & 15 == 1 and nbytes == 16:
        charset = "utf-8" if bits >> 8 & 15 else "ascii"
        return Hdf5Type("text of variable length", nbytes, np.dtype(object), charset)
    return Hdf5Type(
        "a list of variable length" if kind == _VARIABLE else _OTHERS.get(kind, "?"), nbytes
    )


def _number_type(form: str) -> Hdf5Type:
    dtype = np.dtype(form)
    return Hdf5Type(str(dtype.newbyteorder("=")), dtype.itemsize, dtype)


def _enum_type(cursor: Cursor, bits: int, nbytes: int, padded: bool) -> Hdf5Type:
    base, count = read_type(cursor), bits & 0xFFFF
    names = []
    for _ in range(min(count, 3)):
        start = cursor.at
        names.append(cursor.name())
        cursor.take(-(cursor.at - start) % 8 if padded else 0)
    if base.dtype == np.int8 and names == ["FALSE", "TRUE"] and cursor.take(2) == _BOOL:
        return Hdf5Type("bool", 1, np.dtype(bool))
    return Hdf5Type("an enumeration", nbytes)


def read_space(cursor: Cursor) -> tuple[tuple[int, ...] | None, tuple[int | None, ...]]:
    """Return the shape, None of nothing at all, and up to where each dimension may grow.

    IV.A.2.b. The Dataspace Message.
    """
    version = cursor.version(1, 2)
    rank, flags = cursor.uint(), cursor.uint()
    kind = cursor.uint() if version == 2 else None
    cursor.take(5 if version == 1 else 0)
    if rank > 32:
        raise DamagedError(f"{cursor.what} has {rank} dimensions")
    shape = tuple(cursor.uint(8) for _ in range(rank))
    most: tuple[int | None, ...] = shape
    if flags & 1:
        most = tuple(cursor.address() for _ in range(rank))  # the undefined address: without limit
    if math.prod(n or 1 for n in shape) >= 1 << 56:
        raise DamagedError(f"shape {shape} is too large")
    return (None if kind == 2 else shape), most


def nelems(shape: tuple[int, ...] | None) -> int:
    """Return the number of elements."""
    return 0 if shape is None else math.prod(shape)


def strip_padding(array: np.ndarray, padding: int) -> np.ndarray:
    """Return texts of fixed length without their padding; null bytes NumPy removes itself."""
    if padding == _ENDS_AT_NULL:
        texts = [text.split(b"\0", 1)[0] for text in array.reshape(-1).tolist()]
    elif padding == _ENDS_WITH_SPACES:
        texts = [text.rstrip(b" ") for text in array.reshape(-1).tolist()]
    else:
        return array
    return np.array(texts, array.dtype).reshape(array.shape)
