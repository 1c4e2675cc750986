"""What an object has by name: attributes (sections IV.A.2.m and v of the specification), and the
links in a group (III.A to III.C and IV.A.2.c, g, r).

Old groups have a B-tree of names in a local heap. New ones have a message for each link; those with
more than 8 links keep the messages in a fractal heap with a B-tree. So do new objects with
attributes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .bounded import (
    BoundedFile,
    Cursor,
    DamagedError,
    Hdf5Type,
    HeaderMessages,
    MessageKind,
    nelems,
    read_space,
    read_type,
    strip_padding,
)
from .heaps import (
    ATTRIBUTES_BY_NAME,
    LINKS_BY_NAME,
    GlobalHeap,
    dense_messages,
    local_heap,
    old_entries,
)

_SHARED_TYPE, _SHARED_SPACE = 1, 2


@dataclass(frozen=True)
class Hdf5Attribute:
    """An attribute. data: the bytes in the message; texts of variable length are in a heap
    instead."""

    name: str
    type: Hdf5Type
    shape: tuple[int, ...] | None
    data: bytes

    def values(self, heap: GlobalHeap) -> np.ndarray:
        """Return its values, text as bytes. Its type has a dtype, and its shape is not None."""
        dtype, shape = self.type.dtype, self.shape
        assert dtype is not None and shape is not None
        if not dtype.hasobject:
            array = np.frombuffer(self.data, dtype, nelems(shape)).reshape(shape)
            return strip_padding(array, self.type.padding) if self.type.charset else array
        cursor, values = Cursor(self.data, f"attribute {self.name!r}"), np.empty(shape, object)
        flat = values.reshape(-1)
        for k in range(flat.size):
            nbytes, at, number = cursor.uint(4), cursor.uint(8), cursor.uint(4)
            text = heap.object(at, number) if nbytes else b""
            if len(text) < nbytes:
                raise DamagedError(f"{cursor.what} is longer than its text in the global heap")
            flat[k] = text[:nbytes].split(b"\0", 1)[0]
        return values


def read_attributes(source: BoundedFile, messages: HeaderMessages) -> dict[str, Hdf5Attribute]:
    """Return the attributes of an object by name, after charging their texts."""
    found = [
        _parse_attribute(message.cursor()) for message in messages.get(MessageKind.ATTRIBUTE, [])
    ]
    if info := messages.one(MessageKind.ATTRIBUTE_INFO):
        found += map(_parse_attribute, dense_messages(source, info, ATTRIBUTES_BY_NAME))
    source.charge_texts(sum(nelems(one.shape) for one in found if one.type.charset))
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
        parts.append(Cursor(cursor.take(nbytes), cursor.what))
        cursor.take(-nbytes % 8 if version == 1 else 0)
    name = parts[0].name(sizes[0])
    what = f"attribute {name!r}"
    if version > 1 and flags & _SHARED_SPACE:
        raise DamagedError(f"{what} has a shared dataspace, which is not supported")
    parts[1].what, parts[2].what = f"{what}: its datatype", f"{what}: its dataspace"
    shape, _ = read_space(parts[2])
    if version > 1 and flags & _SHARED_TYPE:
        return Hdf5Attribute(name, Hdf5Type("of a committed datatype", 0), shape, b"")
    kind = read_type(parts[1])
    return Hdf5Attribute(name, kind, shape, cursor.take(nelems(shape) * kind.nbytes))


# -------------------------------------------------------------------------------------------- links

_SOFT = 2  # cache type of an entry in a symbol table
# A group has messages of one of these kinds.
OF_GROUPS = {MessageKind.SYMBOL_TABLE, MessageKind.LINK_INFO, MessageKind.LINK}


@dataclass(frozen=True)
class GroupLink:
    """A link in a group. at: the address of the object's header; None for a soft or external link.
    order: its number in the order of creation; None if that is not recorded."""

    name: str
    at: int | None
    order: int | None = None


def read_links(source: BoundedFile, messages: HeaderMessages) -> list[GroupLink]:
    """Return the links of a group: in their order of creation if it is recorded, else by name."""
    found = [_parse_link(message.cursor()) for message in messages.get(MessageKind.LINK, [])]
    if table := messages.one(MessageKind.SYMBOL_TABLE):  # III.B. and C. of the specification
        tree, heap = table.uint(8), local_heap(source, table.address())
        for _, at in old_entries(source, tree, 0, 8):
            head = source.block(at, 8, "symbol table node", b"SNOD")
            head.version(1)
            head.take(1)
            count = head.uint(2)
            node = source.block(at + 8, count * 40, "symbol table node")
            for _ in range(count):
                heap.at, address, cache = node.uint(8), node.uint(8), node.uint(4)
                node.take(20)
                name = heap.name()
                source.budget.charge("structures", len(name))
                found.append(GroupLink(name, None if cache == _SOFT else address))
    if info := messages.one(MessageKind.LINK_INFO):
        found += map(_parse_link, dense_messages(source, info, LINKS_BY_NAME))
    if len({link.name for link in found}) < len(found):
        raise DamagedError("two links have the same name")
    for link in found:
        if link.name in ("", ".") or "/" in link.name:
            raise DamagedError(f"a link has the name {link.name!r}")
    return sorted(found, key=lambda link: (link.order or 0, link.name.encode()))


def _parse_link(cursor: Cursor) -> GroupLink:
    """IV.A.2.g. The Link Message."""
    cursor.version(1)
    flags = cursor.uint()
    kind = cursor.uint() if flags & 8 else 0
    order = cursor.uint(8) if flags & 4 else None
    cursor.take(1 if flags & 16 else 0)  # the character set: always read as UTF-8
    name = cursor.name(cursor.uint(1 << (flags & 3)))
    return GroupLink(name, None if kind else cursor.uint(8), order)
