"""Where the chunks of a dataset are: section III.A.1 and appendix C of the specification."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from .bounded import Cursor, DamagedError, Source
from .trees import new_records, old_entries

_SINGLE, _IMPLICIT, _FIXED_ARRAY, _EXTENSIBLE_ARRAY, _TREE = range(1, 6)
_SINGLE_IS_FILTERED = 2
_CHUNK_NBYTES = 32  # counted for a chunk of which nothing is stored but its data
_PLAIN_RECORD, _FILTERED_RECORD = 10, 11  # types of the records of a B-tree


@dataclass(frozen=True)
class Chunk:
    """A chunk that is stored. first: its first element. mask: which filters were not applied."""

    first: tuple[int, ...]
    at: int
    nbytes: int
    mask: int = 0


@dataclass(frozen=True)
class Grid:
    """The chunks into which a dataset is cut. most: None in a dimension without a limit.

    nbytes: of a chunk before all filters.
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
        """Return the first element of the chunk with this number in C order."""
        first = []
        for count, size in zip(reversed(self.counts), reversed(self.chunk), strict=True):
            first.append(number % count * size)
            number //= count
        return tuple(reversed(first))


def old_chunks(source: Source, at: int, grid: Grid) -> list[Chunk]:
    """III.A.1. Disk Format: Level 1A1 - Version 1 B-trees, of node type 1."""

    def found() -> Iterator[Chunk]:
        for key, address in old_entries(source, at, 1, 16 + 8 * len(grid.shape)):
            own = Cursor(key, "the key of a chunk")
            nbytes, mask = own.uint(4), own.uint(4)
            yield Chunk(tuple(own.uint(8) for _ in grid.shape), address, nbytes, mask)

    return grid.checked(found())


def new_chunks(
    source: Source, layout: Cursor, flags: int, grid: Grid, filtered: bool
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
        source.count(_CHUNK_NBYTES * count)
        return grid.checked(Chunk(grid.first_of(k), at + k * nbytes, nbytes) for k in range(count))
    if kind == _FIXED_ARRAY:
        return grid.checked(_fixed_array(source, at, grid))
    if kind == _TREE:
        return grid.checked(_tree(source, at, grid, filtered))
    raise DamagedError(
        f"chunks with an index of type {kind} are not supported: h5repack -l CONTI removes chunks"
    )


def _fixed_array(source: Source, at: int, grid: Grid) -> Iterator[Chunk]:
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
            for k in range(first, last):
                if one := _entry(entries, width, bool(filtered), grid, k):
                    yield one
        at += nbytes + 4  # a checksum


def _entry(cursor: Cursor, width: int, filtered: bool, grid: Grid, number: int) -> Chunk | None:
    """Return the chunk of an entry in an array of chunks, None if it is not stored."""
    own = Cursor(cursor.take(width), cursor.what)
    at, nbytes, mask = own.address(), grid.nbytes, 0
    if filtered:
        nbytes, mask = own.uint(own.left - 4), own.uint(4)
    return None if at is None else Chunk(grid.first_of(number), at, nbytes, mask)


def _tree(source: Source, at: int, grid: Grid, filtered: bool) -> Iterator[Chunk]:
    """Appendix C.V. The Version 2 B-tree Chunk Index."""
    kind = _FILTERED_RECORD if filtered else _PLAIN_RECORD
    for record in new_records(source, at, (kind,)):
        address, nbytes, mask = record.uint(8), grid.nbytes, 0
        if filtered:
            nbytes = record.uint(record.left - 4 - 8 * len(grid.shape))
            mask = record.uint(4)
        first = tuple(record.uint(8) * c for c in grid.chunk)
        yield Chunk(first, address, nbytes, mask)
