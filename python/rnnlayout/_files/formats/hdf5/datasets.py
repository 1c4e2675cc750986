"""The arrays of datasets: sections IV.A.2.e, f, i and l of the specification."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, field

import numpy as np

from .bounded import BoundedFile, Cursor, DamagedError
from .chunks import Chunk, ChunkGrid, new_chunks, old_chunks
from .headers import HeaderMessages, MessageKind
from .types import Hdf5Type, nelems, read_space, read_type, strip_padding

_COMPACT, _CONTIGUOUS, _CHUNKED, _VIRTUAL = range(4)
DEFLATE, SHUFFLE = 1, 2
_UNSAFE = "is stored in another file: refused as unsafe"
_NO_FILTER_AT_EDGES = 1


@dataclass(frozen=True)
class ChunkFilter:
    """A filter of chunks. number: which filter, for example DEFLATE. values: its settings; deflate
    has one, the level.
    """

    number: int
    values: tuple[int, ...]


@dataclass(frozen=True)
class StoragePlace:
    """Where an array is, and how many bytes are stored.

    data: the bytes of a compact dataset. at: the address of a contiguous dataset; None if nothing
    is stored. grid, chunks: the grid of a chunked dataset, and the chunks that are stored.
    """

    nbytes: int = 0
    data: bytes | None = None
    at: int | None = None
    grid: ChunkGrid | None = None
    chunks: list[Chunk] = field(default_factory=list)


@dataclass(frozen=True)
class StoredArray:
    """An array as it is stored. shape: None if the dataset has no elements and no dimensions. most:
    the shape to which it may grow. fill: the bytes of an element that is not stored,
    b"" for zeros.
    """

    source: BoundedFile
    type: Hdf5Type
    shape: tuple[int, ...] | None
    most: tuple[int | None, ...]
    fill: bytes
    filters: tuple[ChunkFilter, ...]
    place: StoragePlace

    @property
    def claims(self) -> int:
        """The number of bytes that reading it takes, without the objects of texts."""
        whole, grid = nelems(self.shape) * self.type.nbytes, self.place.grid
        return max(whole, grid.nbytes * max(1, len(self.place.chunks)) if grid else 0)

    def read(self, first: int = 0, last: int | None = None) -> np.ndarray:
        """Return the array, or of one without chunks some of its rows. Its type has a dtype."""
        dtype, shape, place = self.type.dtype, self.shape, self.place
        assert dtype is not None and shape is not None
        if last is not None:
            shape = (last - first, *shape[1:])
        count, skip = math.prod(shape), first * math.prod(shape[1:]) * dtype.itemsize
        if place.grid is not None:
            array = self._from_chunks(place.grid, shape, dtype)
        elif place.data is not None:
            array = np.frombuffer(place.data, dtype, count, skip).copy()
        elif place.at is not None:
            array = self.source.array(place.at + skip, count, dtype, "the array")
        else:
            array = self._filled(shape, dtype)
        array = array.reshape(shape)
        return strip_padding(array, self.type.padding) if self.type.is_text else array

    def _filled(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        if not self.fill.strip(b"\0"):
            return np.zeros(shape, dtype)
        return np.full(shape, np.frombuffer(self.fill, dtype, 1)[0], dtype)

    def _from_chunks(self, grid: ChunkGrid, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        for one in self.filters:
            if one.number not in (DEFLATE, SHUFFLE):
                raise DamagedError(
                    f"HDF5 filter {one.number} is not supported: h5repack -f NONE removes it"
                )
        array = self._filled(shape, dtype)
        for chunk in self.place.chunks:
            data = self.source.data(chunk.at, chunk.nbytes, f"the chunk at {chunk.first}")
            for k in reversed(range(len(self.filters))):
                if not chunk.mask >> k & 1:
                    data = _undo_filter(self.filters[k].number, data, grid.nbytes, dtype.itemsize)
            if len(data) != grid.nbytes:
                raise DamagedError(f"a chunk has {len(data)} bytes, need {grid.nbytes}")
            block = np.frombuffer(data, dtype).reshape(grid.chunk)
            target = array[
                tuple(slice(f, f + c) for f, c in zip(chunk.first, grid.chunk, strict=True))
            ]
            target[...] = block[tuple(slice(n) for n in target.shape)]
        return array


def _undo_filter(number: int, data: bytes, nbytes: int, itemsize: int) -> bytes:
    if number == DEFLATE:
        try:
            data = zlib.decompressobj().decompress(data, nbytes + 1)
        except zlib.error as error:
            raise DamagedError(f"a chunk: {error}") from None
        if len(data) != nbytes:
            raise DamagedError(f"a chunk does not inflate to its {nbytes} bytes")
        return data
    if len(data) % itemsize:
        raise DamagedError(f"a chunk has {len(data)} bytes")
    return np.frombuffer(data, np.uint8).reshape(itemsize, -1).T.tobytes()


def read_stored_array(source: BoundedFile, messages: HeaderMessages) -> StoredArray:
    """Return a dataset's array. Raises DamagedError unless it is in this file."""
    space, kind, layout = (
        messages.one(k) for k in (MessageKind.DATASPACE, MessageKind.DATATYPE, MessageKind.LAYOUT)
    )
    if MessageKind.EXTERNAL_FILES in messages:
        raise DamagedError(_UNSAFE)
    if space is None or kind is None or layout is None:
        raise DamagedError("a dataset has no type, shape or place")
    (shape, most), own = read_space(space), read_type(kind)
    filters = _parse_filters(messages.one(MessageKind.FILTERS))
    place = _parse_storage_place(source, layout, shape, most, own.nbytes, bool(filters))
    if place.nbytes > source.size:
        raise DamagedError(f"{place.nbytes} bytes are stored, in a file of {source.size}")
    needs = nelems(shape) * own.nbytes
    if (place.data is not None or place.at is not None) and place.nbytes < needs:
        raise DamagedError(f"{place.nbytes} bytes are stored, need {needs}")
    return StoredArray(source, own, shape, most, _fill_value(messages, own), filters, place)


def _parse_storage_place(
    source: BoundedFile,
    layout: Cursor,
    shape: tuple[int, ...] | None,
    most: tuple[int | None, ...],
    itemsize: int,
    filtered: bool,
) -> StoragePlace:
    """IV.A.2.i. The Data Layout Message."""
    version, kind = layout.version(3, 4, 5), layout.uint()
    if kind == _VIRTUAL:
        raise DamagedError(_UNSAFE)
    if kind == _COMPACT:
        data = layout.take(layout.uint(2))
        return StoragePlace(len(data), data=data)
    if kind == _CONTIGUOUS:
        at, nbytes = layout.address(), layout.uint(8)
        return StoragePlace() if at is None else StoragePlace(nbytes, at=at)
    if kind != _CHUNKED or shape is None:
        raise DamagedError(f"a data layout of class {kind}")
    flags = layout.uint() if version > 3 else 0
    if flags & _NO_FILTER_AT_EDGES and filtered:
        raise DamagedError("chunks at the edges without filters are not supported")
    rank = layout.uint() - 1
    at = layout.address() if version == 3 else None
    width = 4 if version == 3 else layout.uint()
    sizes = tuple(layout.uint(width) for _ in range(rank))
    if rank != len(shape) or not all(sizes) or layout.uint(width) != itemsize:
        raise DamagedError(f"chunks of {sizes} for a shape of {shape}")
    grid = ChunkGrid(shape, most, sizes, math.prod(sizes) * itemsize)
    if version > 3:
        chunks = new_chunks(source, layout, flags, grid, filtered)
    else:
        chunks = [] if at is None else old_chunks(source, at, grid)
    return StoragePlace(sum(chunk.nbytes for chunk in chunks), grid=grid, chunks=chunks)


def _parse_filters(cursor: Cursor | None) -> tuple[ChunkFilter, ...]:
    """IV.A.2.l. The Filter Pipeline Message."""
    if cursor is None:
        return ()
    version, count = cursor.version(1, 2), cursor.uint()
    cursor.take(6 if version == 1 else 0)
    found = []
    for _ in range(count):
        number = cursor.uint(2)
        nbytes = cursor.uint(2) if version == 1 or number >= 256 else 0
        cursor.take(2)  # flags
        values = cursor.uint(2)
        cursor.take(-(-nbytes // 8) * 8 if version == 1 else nbytes)
        found.append(ChunkFilter(number, tuple(cursor.uint(4) for _ in range(values))))
        cursor.take(4 if version == 1 and values % 2 else 0)
    return tuple(found)


def _fill_value(messages: HeaderMessages, own: Hdf5Type) -> bytes:
    """IV.A.2.e and f. The Fill Value Messages."""
    data = b""
    if cursor := messages.one(MessageKind.FILL_VALUE):
        version = cursor.version(1, 2, 3)
        if version == 3:
            defined = cursor.uint() & 32
        else:
            cursor.take(2)
            defined = cursor.uint() or version == 1
        data = cursor.take(cursor.uint(4)) if defined else b""
    elif cursor := messages.one(MessageKind.OLD_FILL_VALUE):
        data = cursor.take(cursor.uint(4))
    return data if len(data) == own.nbytes else b""
