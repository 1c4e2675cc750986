"""Attributes: sections IV.A.2.m and IV.A.2.v of the specification."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .bounded import BoundedFile, Cursor, DamagedError, null_terminated
from .headers import HeaderMessages, MessageKind
from .heaps import ATTRIBUTES_BY_NAME, GlobalHeap, dense_messages
from .types import Hdf5Type, nelems, read_space, read_type, strip_padding

_MOST_TEXT = 32 << 20  # bytes in an attribute: the config of a large model has 1 or 2 MB
_SHARED_TYPE, _SHARED_SPACE = 1, 2


@dataclass(frozen=True)
class Hdf5Attribute:
    """An attribute. data: the bytes in the message; texts of variable length are in a heap
    instead.
    """

    name: str
    type: Hdf5Type
    shape: tuple[int, ...] | None
    data: bytes

    def values(self, heap: GlobalHeap) -> np.ndarray:
        """Return its values, text as bytes. Its type has a dtype, and its shape is not None."""
        dtype, shape = self.type.dtype, self.shape
        assert dtype is not None and shape is not None
        if not self.type.is_variable:
            array = np.frombuffer(self.data, dtype, nelems(shape)).reshape(shape)
            return strip_padding(array, self.type.padding) if self.type.is_text else array
        cursor, values = Cursor(self.data, f"attribute {self.name!r}"), np.empty(shape, object)
        flat, total = values.reshape(-1), 0
        for k in range(flat.size):
            nbytes, at, number = cursor.uint(4), cursor.uint(8), cursor.uint(4)
            total += nbytes
            if total > _MOST_TEXT:
                raise DamagedError(f"more than {_MOST_TEXT} bytes of text")
            text = heap.object(at, number) if nbytes else b""
            if len(text) < nbytes:
                raise DamagedError(f"{cursor.what} is longer than its text in the global heap")
            flat[k] = text[:nbytes].split(b"\0", 1)[0]
        return values


def read_attributes(source: BoundedFile, messages: HeaderMessages) -> dict[str, Hdf5Attribute]:
    """Return the attributes of an object by name."""
    found = [_parse_attribute(message.cursor()) for message in messages.all(MessageKind.ATTRIBUTE)]
    if info := messages.one(MessageKind.ATTRIBUTE_INFO):
        found += map(_parse_attribute, dense_messages(source, info, ATTRIBUTES_BY_NAME))
    by_name = {attribute.name: attribute for attribute in found}
    if len(by_name) < len(found):
        raise DamagedError("two attributes have the same name")
    return by_name


def _parse_attribute(cursor: Cursor) -> Hdf5Attribute:
    """IV.A.2.m. The Attribute Message."""
    version = cursor.version(1, 2, 3)
    flags = cursor.uint()  # reserved in version 1
    sizes = cursor.uint(2), cursor.uint(2), cursor.uint(2)
    cursor.take(1 if version == 3 else 0)  # the character set: always read as UTF-8
    parts = []
    for nbytes in sizes:
        parts.append(cursor.take(nbytes))
        cursor.take(-nbytes % 8 if version == 1 else 0)
    name = null_terminated(parts[0], cursor.what)
    what = f"attribute {name!r}"
    if version > 1 and flags & _SHARED_SPACE:
        raise DamagedError(f"{what} has a shared dataspace, which is not supported")
    shape, _ = read_space(Cursor(parts[2], f"{what}: its dataspace"))
    if version > 1 and flags & _SHARED_TYPE:
        return Hdf5Attribute(name, Hdf5Type("of a committed datatype", 0), shape, b"")
    kind = read_type(Cursor(parts[1], f"{what}: its datatype"))
    return Hdf5Attribute(name, kind, shape, cursor.take(nelems(shape) * kind.nbytes))
