"""Read the bytes of an untrusted HDF5 file within bounds.

A damaged file can point anywhere, also back to where the reader has been. So every structure is
read through block(), which checks that the structure is in the file and charges the bytes to the
budget. That ends every circle, and bounds all work by the file's size.

Structures and messages are called as in the HDF5 File Format Specification, version 3.0, and the
code that decodes a structure names the section. Checksums are not verified: HDF5 does not protect
weights by checksums either.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import IO

import numpy as np

from rnnlayout._files.formats.content import HDF5
from rnnlayout._files.tensor_sets.file_limits import Budget
from rnnlayout._model.errors import FileError

_UNDEFINED = (1 << 64) - 1


class DamagedError(Exception):
    """A structure that the specification does not allow, or that this reader does not support."""


@contextmanager
def name_damaged(label: str) -> Iterator[None]:
    """Turn a DamagedError into a FileError that begins with label, the damaged part."""
    try:
        yield
    except DamagedError as error:
        raise FileError(f"{label}: {error}") from None


@dataclass
class Cursor:
    """A structure's bytes, taken from front to back. label: the structure's name in messages."""

    data: bytes
    label: str
    at: int = 0

    def take(self, nbytes: int) -> bytes:
        """Return the next bytes. Raises DamagedError if fewer bytes are left."""
        end = self.at + nbytes
        if not self.at <= end <= len(self.data):
            raise DamagedError(f"{self.label} is cut short")
        start, self.at = self.at, end
        return self.data[start:end]

    def uint(self, nbytes: int = 1) -> int:
        return int.from_bytes(self.take(nbytes), "little")

    def address(self) -> int | None:
        """Return the next address, None for the undefined address."""
        address = self.uint(8)
        return None if address == _UNDEFINED else address

    def version(self, *allowed: int) -> int:
        """Return the next byte, a version. Raises DamagedError if the version is not allowed."""
        version = self.uint()
        if version not in allowed:
            raise DamagedError(f"{self.label} has version {version}, which is not supported")
        return version

    def name(self, nbytes: int | None = None) -> str:
        """Return the next name, of nbytes bytes with padding, by default up to a null byte."""
        if nbytes is None:
            end = self.data.find(b"\0", self.at)
            nbytes = (end if end >= 0 else len(self.data)) + 1 - self.at
        try:
            return self.take(nbytes).split(b"\0", 1)[0].decode()
        except UnicodeDecodeError as error:
            raise DamagedError(f"{self.label}: a name is not UTF-8: {error}") from None


class BoundedFile:
    """An open file, read within bounds.

    start: the byte of the file where the HDF5 data begins; addresses are counted from start.
    budget: the budget of the file, or of the archive around the file. collections: the places of
    objects in the global heap so far: address of a collection -> object number -> (address, size).
    """

    def __init__(self, file: IO[bytes], budget: Budget) -> None:
        self._file, self.budget = file, budget
        self.size = file.seek(0, io.SEEK_END)
        self.start = 0
        self.collections: dict[int, dict[int, tuple[int, int]]] = {}

    def block(self, at: int | None, nbytes: int, label: str, signature: bytes = b"") -> Cursor:
        """Return a structure, or the first part of a structure, after the signature."""
        label = f"the {label} at {at}"
        self.budget.charge("structures", max(0, nbytes))
        cursor = Cursor(self.read(at, nbytes, label), label)
        if signature and cursor.take(len(signature)) != signature:
            raise DamagedError(f"{label} does not begin with {signature.decode()!r}")
        return cursor

    def read(self, at: int | None, nbytes: int, label: str) -> bytes:
        """Return bytes of the file, without charging the budget."""
        if at is None or nbytes < 0 or not 0 <= at <= self.size - self.start - nbytes:
            raise DamagedError(f"{label}: its {nbytes} bytes are not in the file")
        self._file.seek(self.start + at)
        content = self._file.read(nbytes)
        if len(content) != nbytes:
            raise DamagedError(f"{label} is cut short")
        return content


# ------------------------------------------------------------------- superblocks and object headers

_SHARED, _FAIL_IF_UNKNOWN = 2, 128  # flags of messages


class MessageKind(IntEnum):
    """Kinds of messages that this reader supports."""

    DATASPACE = 1
    LINK_INFO = 2
    DATATYPE = 3
    OLD_FILL_VALUE = 4
    FILL_VALUE = 5
    LINK = 6
    EXTERNAL_FILES = 7
    LAYOUT = 8
    GROUP_INFO = 10
    FILTERS = 11
    ATTRIBUTE = 12
    CONTINUATION = 16
    SYMBOL_TABLE = 17
    MODIFIED = 18
    ATTRIBUTE_INFO = 21
    REFERENCE_COUNT = 22


_KINDS = {kind.value: kind for kind in MessageKind}


class HeaderMessages(dict[MessageKind, list[Cursor]]):
    """The messages of an object, by kind."""

    def __init__(self, source: BoundedFile, at: int) -> None:
        """Read an object header. IV.A.1.a and b. Data Object Header Prefix, of version 1 and 2."""
        is_new = source.block(at, 4, "object header").take(4) == b"OHDR"
        if is_new:
            head = source.block(at, 6, "object header", b"OHDR")
            head.version(2)
            flags = head.uint()
            at += 6 + (16 if flags & 32 else 0) + (4 if flags & 16 else 0)
            width = 1 << (flags & 3)
            nbytes = source.block(at, width, "object header").uint(width)
            blocks, kind_nbytes, skip = [(at + width, nbytes, b"")], 1, 2 if flags & 4 else 0
        else:
            head = source.block(at, 16, "object header")
            head.version(1)
            head.take(7)
            blocks, kind_nbytes, skip = [(at + 16, head.uint(4), b"")], 2, 3
        for at, nbytes, signature in blocks:
            block = source.block(at, nbytes, "object header", signature)
            while len(block.data) - block.at >= kind_nbytes + 3 + skip:  # fewer bytes are a gap
                number, size, flags = block.uint(kind_nbytes), block.uint(2), block.uint()
                block.take(skip)
                data = block.take(size)
                if (kind := _KINDS.get(number)) is None:
                    if flags & _FAIL_IF_UNKNOWN:
                        raise DamagedError(f"a message of kind {number} is not supported")
                    continue
                message = Cursor(data, f"the message {kind.name.lower().replace('_', ' ')}")
                if flags & _SHARED:  # the data only refers to the message
                    why = "is shared by several objects, which is not supported"
                    raise DamagedError(f"{message.label} {why}")
                if kind == MessageKind.CONTINUATION:
                    at, nbytes = message.uint(8), message.uint(8)
                    # a continuation of version 2 ends with a checksum
                    blocks.append((at, nbytes - 4, b"OCHK") if is_new else (at, nbytes, b""))
                else:
                    self.setdefault(kind, []).append(message)

    def single(self, kind: MessageKind) -> Cursor | None:
        """Return the only message of a kind, None if the object has none."""
        messages = self.get(kind, [])
        if len(messages) > 1:
            raise DamagedError(f"{len(messages)} messages of kind {kind.name.lower()}")
        return messages[0] if messages else None


def root_address(source: BoundedFile) -> int:
    """Return the address of the root group's object header (II.A. Format Signature, Superblock)."""
    while source.start + len(HDF5) <= source.size and source.read(0, 8, "the signature") != HDF5:
        source.start = max(512, 2 * source.start)
    if source.start + len(HDF5) > source.size:
        raise DamagedError("it is not an HDF5 file")
    head = source.block(0, 12, "superblock", HDF5)
    version = head.version(0, 1, 2, 3)
    nbytes = {0: 96, 1: 100, 2: 48, 3: 48}[version]
    block = source.block(0, nbytes, "superblock", HDF5)
    block.take(5 if version < 2 else 1)
    sizes = block.uint(), block.uint()
    if sizes != (8, 8):
        raise DamagedError(f"addresses and lengths of {sizes} bytes are not supported, need 8")
    block.take({0: 9, 1: 13, 2: 1, 3: 1}[version])
    _, _, end, root = (block.address() for _ in range(4))
    if version < 2:  # the fourth address is the driver information; the root's entry follows
        block.take(8)
        root = block.address()
    if end is None or end > source.size:
        raise DamagedError(
            f"the file should have {end} bytes and has {source.size}: it is cut short"
        )
    if root is None:
        raise DamagedError("the file has no root group")
    return root


# ------------------------------------------------------------------------- datatypes and dataspaces

_FIXED, _FLOAT, _TEXT, _OPAQUE, _ENUM, _VARIABLE = 0, 1, 3, 5, 8, 9
_UNSUPPORTED = {
    2: "a time",
    4: "bits",
    6: "a compound",
    7: "a reference",
    10: "an array in an array",
    11: "complex",
}
# bytes -> precision, exponent's position and size, mantissa's position and size, bias
_IEEE = {2: (16, 10, 5, 0, 10, 15), 4: (32, 23, 8, 0, 23, 127), 8: (64, 52, 11, 0, 52, 1023)}
_ENDS_AT_NULL, _ENDS_WITH_SPACES = 0, 2  # paddings of texts of fixed length
_BOOL = b"\0\1"  # h5py's: FALSE and TRUE


@dataclass(frozen=True)
class Hdf5Type:
    """The type of an element. name: the type's name in messages. nbytes: the size of an element in
    the file. dtype: NumPy's dtype, object for texts of variable length, None if the type is not
    supported. charset: the character set of a text, "" for numbers. padding: the kind of padding of
    a text of fixed length."""

    name: str
    nbytes: int
    dtype: np.dtype | None = None
    charset: str = ""
    padding: int = 1


def read_type(cursor: Cursor) -> Hdf5Type:
    """Decode a type. IV.A.2.d. The Datatype Message."""
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
        base, names = read_type(cursor), []
        for _ in range(min(bits & 0xFFFF, 3)):
            start = cursor.at
            names.append(cursor.name())
            cursor.take(-(cursor.at - start) % 8 if version < 3 else 0)
        if base.dtype == np.int8 and names == ["FALSE", "TRUE"] and cursor.take(2) == _BOOL:
            return Hdf5Type("bool", 1, np.dtype(bool))
        return Hdf5Type("an enumeration", nbytes)
    if kind == _VARIABLE and bits & 15 == 1 and nbytes == 16:
        charset = "utf-8" if bits >> 8 & 15 else "ascii"
        return Hdf5Type("text of variable length", nbytes, np.dtype(object), charset)
    return Hdf5Type(
        "a list of variable length" if kind == _VARIABLE else _UNSUPPORTED.get(kind, "?"), nbytes
    )


def _number_type(form: str) -> Hdf5Type:
    dtype = np.dtype(form)
    return Hdf5Type(str(dtype.newbyteorder("=")), dtype.itemsize, dtype)


def read_space(cursor: Cursor) -> tuple[tuple[int, ...] | None, tuple[int | None, ...]]:
    """Return the shape, None for a null dataspace, and the maximum of each dimension, None without
    limit. IV.A.2.b. The Dataspace Message."""
    version = cursor.version(1, 2)
    rank, flags = cursor.uint(), cursor.uint()
    kind = cursor.uint() if version == 2 else None
    cursor.take(5 if version == 1 else 0)
    if rank > 32:
        raise DamagedError(f"{cursor.label} has {rank} dimensions")
    shape = tuple(cursor.uint(8) for _ in range(rank))
    max_shape: tuple[int | None, ...] = shape
    if flags & 1:
        max_shape = tuple(cursor.address() for _ in range(rank))  # undefined: without limit
    if math.prod(n or 1 for n in shape) >= 1 << 56:
        raise DamagedError(f"shape {shape} is too large")
    return (None if kind == 2 else shape), max_shape


def nelems(shape: tuple[int, ...] | None) -> int:
    return 0 if shape is None else math.prod(shape)


def strip_padding(array: np.ndarray, padding: int) -> np.ndarray:
    """Return texts of fixed length without padding; NumPy itself removes null bytes."""
    if padding == _ENDS_AT_NULL:
        texts = [text.split(b"\0", 1)[0] for text in array.reshape(-1).tolist()]
    elif padding == _ENDS_WITH_SPACES:
        texts = [text.rstrip(b" ") for text in array.reshape(-1).tolist()]
    else:
        return array
    return np.array(texts, array.dtype).reshape(array.shape)
