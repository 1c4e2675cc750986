"""Where the chunks of a dataset are: section III.A.1 and appendix C of the specification."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from .bounded import BoundedFile, Cursor, DamagedError, is_power_of_two
from .heaps import new_records, old_entries

_SINGLE, _IMPLICIT, _FIXED_ARRAY, _EXTENSIBLE_ARRAY, _TREE = range(1, 6)
_SINGLE_IS_FILTERED = 2
_CHUNK_NBYTES = 32  # counted for a chunk of which nothing is stored but its data
_PLAIN_RECORD, _FILTERED_RECORD = 10, 11  # types of the records of a B-tree


@dataclass(frozen=True)
class Chunk:
    """A chunk that is stored. first: the indices of its first element. at, nbytes: where it is in
    the file. mask: a bit for each filter that was not applied to it.
    """

    first: tuple[int, ...]
    at: int
    nbytes: int
    mask: int = 0


@dataclass(frozen=True)
class ChunkGrid:
    """The chunks into which a dataset is cut. most: the length to which each dimension may grow;
    None if there is no limit. nbytes: the size of a chunk before all filters.
    """

    shape: tuple[int, ...]
    most: tuple[int | None, ...]
    chunk: tuple[int, ...]
    nbytes: int

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of chunks along each dimension when the dataset has grown to its limit."""
        most = (n if m is None else m for n, m in zip(self.shape, self.most, strict=True))
        return tuple(-(-m // c) for m, c in zip(most, self.chunk, strict=True))

    def checked(self, chunks: Iterator[Chunk]) -> list[Chunk]:
        """Return the chunks. Raises DamagedError if one is not of the grid, or there twice."""
        found: dict[tuple[int, ...], Chunk] = {}
        for one in chunks:
            inside = all(f < n for f, n in zip(one.first, self.shape, strict=True))
            if one.first in found or any(f % c for f, c in zip(one.first, self.chunk, strict=True)):
                raise DamagedError(f"a chunk is at {one.first}, or twice")
            if inside:  # others remain of a dataset that was larger
                found[one.first] = one
        return list(found.values())

    def first_of(self, number: int) -> tuple[int, ...]:
        """Return the first element of the chunk with this number.

        They are numbered in C order, but a dimension without a limit comes before the others.
        """
        axes = sorted(range(len(self.shape)), key=lambda axis: self.most[axis] is not None)
        first = [0] * len(axes)
        for axis in reversed(axes):
            count = self.counts[axis] if axis != axes[0] else number + 1
            if not count:
                raise DamagedError("there are chunks of an empty dataset")
            first[axis] = number % count * self.chunk[axis]
            number //= count
        return tuple(first)


def old_chunks(source: BoundedFile, at: int, grid: ChunkGrid) -> list[Chunk]:
    """III.A.1. Disk Format: Level 1A1 - Version 1 B-trees, of node type 1."""

    def found() -> Iterator[Chunk]:
        for key, address in old_entries(source, at, 1, 16 + 8 * len(grid.shape)):
            own = Cursor(key, "the key of a chunk")
            nbytes, mask = own.uint(4), own.uint(4)
            yield Chunk(tuple(own.uint(8) for _ in grid.shape), address, nbytes, mask)

    return grid.checked(found())


def new_chunks(
    source: BoundedFile, layout: Cursor, flags: int, grid: ChunkGrid, filtered: bool
) -> list[Chunk]:
    """IV.A.2.i. The Data Layout Message, version 4: what follows the dimensions."""
    kind = layout.uint()
    nbytes, mask = grid.nbytes, 0
    if kind == _SINGLE and flags & _SINGLE_IS_FILTERED:
        nbytes, mask = layout.uint(8), layout.uint(4)
    layout.take(
        {_SINGLE: 0, _IMPLICIT: 0, _FIXED_ARRAY: 1, _EXTENSIBLE_ARRAY: 5, _TREE: 6}.get(kind, 0)
    )
    at = layout.address()
    if at is None:
        return []
    if kind == _SINGLE:
        return grid.checked(iter([Chunk((0,) * len(grid.shape), at, nbytes, mask)]))
    if kind == _IMPLICIT:
        count = math.prod(grid.counts)
        source.budget.charge("structures", _CHUNK_NBYTES * count)
        return grid.checked(Chunk(grid.first_of(k), at + k * nbytes, nbytes) for k in range(count))
    if kind == _FIXED_ARRAY:
        return grid.checked(_fixed_array(source, at, grid))
    if kind == _EXTENSIBLE_ARRAY:
        return grid.checked(_extensible_array(source, at, grid))
    if kind == _TREE:
        return grid.checked(_tree_of_chunks(source, at, grid, filtered))
    raise DamagedError(f"chunks with an index of type {kind} are not supported")


def _fixed_array(source: BoundedFile, at: int, grid: ChunkGrid) -> Iterator[Chunk]:
    """Appendix C.III. The Fixed Array Chunk Index."""
    head = source.block(at, 24, "fixed array", b"FAHD")
    head.version(0)
    filtered, width, page_bits, count = head.uint(), head.uint(), head.uint(), head.uint(8)
    data = head.uint(8)
    if count > math.prod(grid.counts):
        raise DamagedError(f"{head.what} has {count} chunks")
    at = data + 14
    block = source.block(data, 14, "fixed array's data", b"FADB")
    block.version(0)
    page = 1 << page_bits if page_bits < 64 else count
    pages = -(-count // page)
    has = b""
    if pages > 1:
        has = source.block(at, -(-pages // 8), "fixed array's pages").data
        at += len(has) + 4
    for number in range(pages):
        first, last = number * page, min(count, (number + 1) * page)
        nbytes = (last - first) * width
        if not has or has[number // 8] >> 7 - number % 8 & 1:
            entries = source.block(at, nbytes, "fixed array's page")
            yield from _entries(entries, range(first, last), width, filtered, grid)
        at += nbytes + 4  # a checksum


def _extensible_array(source: BoundedFile, at: int, grid: ChunkGrid) -> Iterator[Chunk]:
    """Appendix C.IV. The Extensible Array Chunk Index.

    The first entries are in the index block, the next in data blocks of the index block, all others
    in data blocks of secondary blocks: number k has 2**(k // 2) of them, each with
    2**((k + 1) // 2) times as many entries as the first.
    """
    head = source.block(at, 68, "extensible array", b"EAHD")
    head.version(0)
    filtered, width, bits, own, least, pointers, page_bits = (head.uint() for _ in range(7))
    head.take(48)
    index_at = head.address()
    if not (is_power_of_two(least) and is_power_of_two(pointers)) or page_bits > 32:
        raise DamagedError(f"{head.what} has blocks of {least} entries")
    if index_at is None:
        return
    offset, number = (bits + 7) // 8, own
    inside = 2 * (pointers.bit_length() - 1)  # secondary blocks whose pointers the index block has
    outside = max(0, 1 + bits - (least.bit_length() - 1) - inside)
    nbytes = 14 + own * width + (2 * (pointers - 1) + outside) * 8
    index = source.block(index_at, nbytes, "extensible array's index", b"EAIB")
    index.take(10)
    yield from _entries(index, range(own), width, filtered, grid)
    for k in range(inside + outside):
        blocks, count = 1 << k // 2, least << (k + 1) // 2
        second: Cursor | None = index
        if k >= inside:
            at_second = index.address()
            second = None if at_second is None else _pointers(source, at_second, offset, blocks)
        if second is None:
            number += blocks * count
            continue
        for _ in range(blocks):
            if (data_at := second.address()) is not None:
                if count > 1 << page_bits:  # from 100,000 chunks
                    raise DamagedError("an extensible array in pages is not supported")
                size = 14 + offset + count * width
                data = source.block(data_at, size, "extensible array's data", b"EADB")
                data.take(10 + offset)
                yield from _entries(data, range(number, number + count), width, filtered, grid)
            number += count


def _pointers(source: BoundedFile, at: int, offset: int, blocks: int) -> Cursor:
    """Return the addresses in a secondary block."""
    block = source.block(at, 14 + offset + blocks * 8, "extensible array's pointers", b"EASB")
    block.take(10 + offset)
    return block


def _entries(
    cursor: Cursor, numbers: range, width: int, filtered: int, grid: ChunkGrid
) -> Iterator[Chunk]:
    """Yield the chunks of entries in an array of chunks that are stored."""
    for number in numbers:
        own = Cursor(cursor.take(width), cursor.what)
        at, nbytes, mask = own.address(), grid.nbytes, 0
        if filtered:
            nbytes, mask = own.uint(own.left - 4), own.uint(4)
        if at is not None:
            yield Chunk(grid.first_of(number), at, nbytes, mask)


def _tree_of_chunks(
    source: BoundedFile, at: int, grid: ChunkGrid, filtered: bool
) -> Iterator[Chunk]:
    """Appendix C.V. The Version 2 B-tree Chunk Index."""
    kind = _FILTERED_RECORD if filtered else _PLAIN_RECORD
    for record in new_records(source, at, (kind,)):
        address, nbytes, mask = record.uint(8), grid.nbytes, 0
        if filtered:
            nbytes = record.uint(record.left - 4 - 8 * len(grid.shape))
            mask = record.uint(4)
        first = tuple(record.uint(8) * c for c in grid.chunk)
        yield Chunk(first, address, nbytes, mask)
