"""Read attributes of objects (sections IV.A.2.m and v of the specification), links of groups (III.A
to III.C and IV.A.2.c, g, r) and arrays of datasets (III.A.1 and IV.A.2.e, f, i, l).

Old groups have a B-tree of names in a local heap. New groups have a message per link, and from 9
links on a fractal heap of messages with a B-tree. New objects store attributes in the same ways.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from .bounded import (
    BoundedFile,
    Cursor,
    DamagedError,
    Hdf5Type,
    HeaderMessages,
    MessageKind,
    name_damaged,
    nelems,
    read_space,
    read_type,
    strip_padding,
)
from .heaps import (
    ATTRIBUTES_BY_NAME,
    LINKS_BY_NAME,
    btree1_entries,
    dense_messages,
    global_object,
    local_heap,
)

_SHARED_TYPE, _SHARED_SPACE = 1, 2
_TEXT_NBYTES = 64  # of a Python object for a text


@dataclass(frozen=True)
class Hdf5Attribute:
    """An attribute. label: the attribute's name in messages. data: the bytes in the HDF5 message;
    texts of variable length are in a heap instead."""

    source: BoundedFile
    label: str
    name: str
    type: Hdf5Type
    shape: tuple[int, ...] | None
    data: bytes

    @cached_property
    def values(self) -> np.ndarray:
        """The values, texts as bytes. The type must have a dtype, the shape must not be None."""
        dtype, shape = self.type.dtype, self.shape
        assert dtype is not None and shape is not None
        if not dtype.hasobject:
            array = np.frombuffer(self.data, dtype, nelems(shape)).reshape(shape)
            return strip_padding(array, self.type.padding) if self.type.charset else array
        cursor, values = Cursor(self.data, f"attribute {self.name!r}"), np.empty(shape, object)
        flat = values.reshape(-1)
        with name_damaged(self.label):
            for k in range(flat.size):
                nbytes, at, number = cursor.uint(4), cursor.uint(8), cursor.uint(4)
                text = global_object(self.source, at, number) if nbytes else b""
                if len(text) < nbytes:
                    raise DamagedError(f"{cursor.label} is longer than its text in the global heap")
                flat[k] = text[:nbytes].split(b"\0", 1)[0]
        return values


def read_attributes(
    source: BoundedFile, messages: HeaderMessages, label: str
) -> dict[str, Hdf5Attribute]:
    """Return the attributes of an object by name, after charging the budget for texts. label: the
    object's name in messages."""
    cursors = messages.get(MessageKind.ATTRIBUTE, [])
    if info := messages.single(MessageKind.ATTRIBUTE_INFO):
        cursors = [*cursors, *dense_messages(source, info, ATTRIBUTES_BY_NAME)]
    attributes = [_parse_attribute(source, cursor, label) for cursor in cursors]
    texts = sum(nelems(attribute.shape) for attribute in attributes if attribute.type.charset)
    source.budget.charge("texts", _TEXT_NBYTES * texts)
    by_name = {attribute.name: attribute for attribute in attributes}
    if len(by_name) < len(attributes):
        raise DamagedError("two attributes have the same name")
    return by_name


def _parse_attribute(source: BoundedFile, cursor: Cursor, owner: str) -> Hdf5Attribute:
    """Decode an attribute. IV.A.2.m. The Attribute Message. owner: the object in messages."""
    version = cursor.version(1, 2, 3)
    flags = cursor.uint()  # reserved in version 1
    sizes = cursor.uint(2), cursor.uint(2), cursor.uint(2)
    cursor.take(1 if version == 3 else 0)  # the character set: UTF-8 includes ASCII
    parts = []
    for nbytes in sizes:
        parts.append(Cursor(cursor.take(nbytes), cursor.label))
        cursor.take(-nbytes % 8 if version == 1 else 0)
    name = parts[0].name(sizes[0])
    label = f"attribute {name!r}"
    if version > 1 and flags & _SHARED_SPACE:
        raise DamagedError(f"{label} has a shared dataspace, which is not supported")
    parts[1].label, parts[2].label = f"{label}: its datatype", f"{label}: its dataspace"
    shape, _ = read_space(parts[2])
    kind = Hdf5Type("of a committed datatype", 0)
    if version == 1 or not flags & _SHARED_TYPE:
        kind = read_type(parts[1])
    data = cursor.take(nelems(shape) * kind.nbytes)
    return Hdf5Attribute(source, f"{owner}: {label}", name, kind, shape, data)


# -------------------------------------------------------------------------------------------- links

_SOFT = 2  # cache type of an entry in a symbol table
# Every group has a message of at least one of the kinds here.
OF_GROUPS = {MessageKind.SYMBOL_TABLE, MessageKind.LINK_INFO, MessageKind.LINK}


@dataclass(frozen=True)
class GroupLink:
    """A link in a group. at: the address of the object's header; None for a soft or external link.
    order: the number in the order of creation; None if the order is not recorded."""

    name: str
    at: int | None
    order: int | None = None


def read_links(source: BoundedFile, messages: HeaderMessages) -> list[GroupLink]:
    """Return the links of a group: in the recorded order of creation, else by name."""
    links = [*map(_parse_link, messages.get(MessageKind.LINK, ()))]
    if table := messages.single(MessageKind.SYMBOL_TABLE):  # III.B. and C. of the specification
        tree, heap = table.uint(8), local_heap(source, table.address())
        for _, at in btree1_entries(source, tree, 0, 8):
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
                links.append(GroupLink(name, None if cache == _SOFT else address))
    if info := messages.single(MessageKind.LINK_INFO):
        links += map(_parse_link, dense_messages(source, info, LINKS_BY_NAME))
    if len({link.name for link in links}) < len(links):
        raise DamagedError("two links have the same name")
    for link in links:
        if link.name in ("", ".") or "/" in link.name:
            raise DamagedError(f"a link has the name {link.name!r}")
    return sorted(links, key=lambda link: (link.order or 0, link.name.encode()))


def _parse_link(cursor: Cursor) -> GroupLink:
    """Decode a link. IV.A.2.g. The Link Message."""
    cursor.version(1)
    flags = cursor.uint()
    kind = cursor.uint() if flags & 8 else 0
    order = cursor.uint(8) if flags & 4 else None
    cursor.take(1 if flags & 16 else 0)  # the character set: UTF-8 includes ASCII
    name = cursor.name(cursor.uint(1 << (flags & 3)))
    return GroupLink(name, None if kind else cursor.uint(8), order)


# ------------------------------------------------------------------------- the arrays of datasets

_COMPACT, _CONTIGUOUS, _CHUNKED, _VIRTUAL = range(4)
DEFLATE, SHUFFLE = 1, 2
_UNSAFE = "is stored in another file: refused as unsafe"
_NEW_CHUNKS = (
    "its chunks are stored as by HDF5 1.10 with libver='latest', which is not supported: save the"
    " arrays again in a file that h5py.File(path, 'w') opens without libver"
)


@dataclass(frozen=True)
class Chunk:
    """A stored chunk. first: the indices of the first element. at, nbytes: the place in the file.
    mask: a bit for each filter that was not applied to the chunk."""

    first: tuple[int, ...]
    at: int
    nbytes: int
    mask: int


@dataclass(frozen=True)
class StoragePlace:
    """The place of an array in the file. nbytes: the number of stored bytes.

    data: the bytes of a compact dataset. at: the address of a contiguous dataset; None if nothing
    is stored. chunk: the shape of the chunks of a dataset, () without chunks. chunk_nbytes: the
    size of a chunk before all filters. chunks: the stored chunks."""

    nbytes: int = 0
    data: bytes | None = None
    at: int | None = None
    chunk: tuple[int, ...] = ()
    chunk_nbytes: int = 0
    chunks: list[Chunk] = field(default_factory=list)


@dataclass(frozen=True)
class StoredArray:
    """An array of a file, not yet read. label: the array's name in messages. shape: None if the
    dataset has no elements and no dimensions. max_shape: the shape to which the array may grow.
    fill: the bytes of an element that is not stored, b"" for zeros. filters: the filters of the
    chunks, (number, settings); deflate has a single setting, the level."""

    source: BoundedFile
    label: str
    type: Hdf5Type
    shape: tuple[int, ...] | None
    max_shape: tuple[int | None, ...]
    fill: bytes
    filters: tuple[tuple[int, tuple[int, ...]], ...]
    place: StoragePlace

    def read(self, first: int = 0, last: int | None = None) -> np.ndarray:
        """Return the array, or some rows of an array without chunks. The type must have a dtype.
        Raises FileError if the array is damaged."""
        dtype, shape, place = self.type.dtype, self.shape, self.place
        assert dtype is not None and shape is not None
        if last is not None:
            shape = (last - first, *shape[1:])
        count, skip = math.prod(shape), first * math.prod(shape[1:]) * dtype.itemsize
        with name_damaged(self.label):
            if place.data is not None:
                array = np.frombuffer(place.data, dtype, count, skip).copy()
            elif place.at is not None:
                data = self.source.read(place.at + skip, count * dtype.itemsize, "the array")
                array = np.ndarray(count, dtype, data)
            elif self.fill.strip(b"\0"):
                array = np.full(shape, np.frombuffer(self.fill, dtype, 1)[0], dtype)
            else:
                array = np.zeros(shape, dtype)
            array = array.reshape(shape)
            if place.chunk:
                self._read_chunks(array)
        return strip_padding(array, self.type.padding) if self.type.charset else array

    def _read_chunks(self, array: np.ndarray) -> None:
        for number, _ in self.filters:
            if number not in (DEFLATE, SHUFFLE):
                raise DamagedError(
                    f"HDF5 filter {number} is not supported: h5repack -f NONE removes it"
                )
        place, nbytes = self.place, self.place.chunk_nbytes
        for chunk in place.chunks:
            data = self.source.read(chunk.at, chunk.nbytes, f"the chunk at {chunk.first}")
            for k, (number, _) in reversed([*enumerate(self.filters)]):
                if chunk.mask >> k & 1:
                    continue
                if number == DEFLATE:
                    try:
                        data = zlib.decompressobj().decompress(data, nbytes + 1)
                    except zlib.error as error:
                        raise DamagedError(f"a chunk: {error}") from None
                    if len(data) != nbytes:
                        raise DamagedError(f"a chunk does not inflate to its {nbytes} bytes")
                elif len(data) % array.itemsize:
                    raise DamagedError(f"a chunk has {len(data)} bytes")
                else:
                    planes = np.frombuffer(data, np.uint8).reshape(array.itemsize, -1)
                    data = planes.T.tobytes()
            if len(data) != nbytes:
                raise DamagedError(f"a chunk has {len(data)} bytes, need {nbytes}")
            block = np.frombuffer(data, array.dtype).reshape(place.chunk)
            spans = zip(chunk.first, place.chunk, strict=True)
            target = array[tuple(slice(at, at + size) for at, size in spans)]
            target[...] = block[tuple(slice(n) for n in target.shape)]


def read_stored_array(source: BoundedFile, messages: HeaderMessages, label: str) -> StoredArray:
    """Return a dataset's array, after charging the budget for the memory to read the array. label:
    the array's name in messages. Raises DamagedError if another file has the array."""
    space = messages.single(MessageKind.DATASPACE)
    kind = messages.single(MessageKind.DATATYPE)
    layout = messages.single(MessageKind.LAYOUT)
    if MessageKind.EXTERNAL_FILES in messages:
        raise DamagedError(_UNSAFE)
    if space is None or kind is None or layout is None:
        raise DamagedError("a dataset has no type, shape or place")
    (shape, max_shape), element = read_space(space), read_type(kind)
    place = _parse_storage_place(source, layout, shape, element.nbytes)
    if place.nbytes > source.size:
        raise DamagedError(f"{place.nbytes} bytes are stored, in a file of {source.size}")
    needs = nelems(shape) * element.nbytes
    if (place.data is not None or place.at is not None) and place.nbytes < needs:
        raise DamagedError(f"{place.nbytes} bytes are stored, need {needs}")
    fill = b""  # IV.A.2.e and f. The Fill Value Messages
    if cursor := messages.single(MessageKind.FILL_VALUE):
        version = cursor.version(1, 2, 3)
        cursor.take(0 if version == 3 else 2)
        flags = cursor.uint()
        if flags & 32 if version == 3 else flags or version == 1:
            fill = cursor.take(cursor.uint(4))
    elif cursor := messages.single(MessageKind.OLD_FILL_VALUE):
        fill = cursor.take(cursor.uint(4))
    fill = fill if len(fill) == element.nbytes else b""
    filters = _parse_filters(messages)
    source.budget.charge("arrays", max(needs, place.chunk_nbytes * max(1, len(place.chunks))))
    source.budget.charge("texts", _TEXT_NBYTES * nelems(shape) if element.charset else 0)
    return StoredArray(source, label, element, shape, max_shape, fill, filters, place)


def _parse_storage_place(
    source: BoundedFile, layout: Cursor, shape: tuple[int, ...] | None, itemsize: int
) -> StoragePlace:
    """Decode the place of an array. IV.A.2.i. The Data Layout Message."""
    version, kind = layout.version(3, 4, 5), layout.uint()
    if kind == _VIRTUAL:
        raise DamagedError(_UNSAFE)
    if kind == _COMPACT:
        data = layout.take(layout.uint(2))
        return StoragePlace(len(data), data)
    if kind == _CONTIGUOUS:
        at, nbytes = layout.address(), layout.uint(8)
        return StoragePlace() if at is None else StoragePlace(nbytes, at=at)
    if kind != _CHUNKED or shape is None:
        raise DamagedError(f"a data layout of class {kind}")
    if version > 3:
        raise DamagedError(_NEW_CHUNKS)
    rank, at = layout.uint() - 1, layout.address()
    sizes = tuple(layout.uint(4) for _ in range(rank))
    if rank != len(shape) or not sizes or not all(sizes) or layout.uint(4) != itemsize:
        raise DamagedError(f"chunks of {sizes} for a shape of {shape}")
    chunks = [] if at is None else _read_chunk_index(source, at, shape, sizes)
    stored = sum(chunk.nbytes for chunk in chunks)
    nbytes = math.prod(sizes) * itemsize
    return StoragePlace(stored, chunk=sizes, chunk_nbytes=nbytes, chunks=chunks)


def _read_chunk_index(
    source: BoundedFile, at: int, shape: tuple[int, ...], chunk: tuple[int, ...]
) -> list[Chunk]:
    """Return the chunks of a dataset. III.A.1. Disk Format: Level 1A1 - Version 1 B-trees, of node
    type 1."""
    chunks: dict[tuple[int, ...], Chunk] = {}
    for key, address in btree1_entries(source, at, 1, 16 + 8 * len(shape)):
        fields = Cursor(key, "the key of a chunk")
        nbytes, mask = fields.uint(4), fields.uint(4)
        first = tuple(fields.uint(8) for _ in shape)
        if first in chunks or any(f % c for f, c in zip(first, chunk, strict=True)):
            raise DamagedError(f"a chunk is at {first}, or twice")
        if all(f < n for f, n in zip(first, shape, strict=True)):
            chunks[first] = Chunk(first, address, nbytes, mask)  # outside: from before a shrink
    return list(chunks.values())


def _parse_filters(messages: HeaderMessages) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Decode the filters of chunks. IV.A.2.l. The Filter Pipeline Message."""
    cursor = messages.single(MessageKind.FILTERS)
    if cursor is None:
        return ()
    version, count = cursor.version(1, 2), cursor.uint()
    cursor.take(6 if version == 1 else 0)
    filters = []
    for _ in range(count):
        number = cursor.uint(2)
        nbytes = cursor.uint(2) if version == 1 or number >= 256 else 0
        cursor.take(2)  # flags
        values = cursor.uint(2)
        cursor.take(-(-nbytes // 8) * 8 if version == 1 else nbytes)
        filters.append((number, tuple(cursor.uint(4) for _ in range(values))))
        cursor.take(4 if version == 1 and values % 2 else 0)
    return tuple(filters)
