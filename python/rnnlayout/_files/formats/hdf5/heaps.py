"""Read heaps and B-trees: sections III.A (B-trees of both versions), III.D (local heaps), III.E
(global heaps) and III.G (fractal heaps) of the specification.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

from .bounded import BoundedFile, Cursor, DamagedError

ATTRIBUTES_BY_NAME, LINKS_BY_NAME = 8, 5  # types of the records of a B-tree
_MANAGED, _HUGE = 0, 1  # kinds of objects in a fractal heap
_MOST_ROWS = 64  # a heap has at most 2**64 bytes
_PREFIX = 10  # bytes around the records of a node of version 2: signature, version, type, checksum
_HUGE_RECORD = 1  # type of a record: a huge object by number, not filtered


def _uint_nbytes(largest: int) -> int:
    """Return the number of bytes for numbers up to `largest`, at least 1."""
    return max(1, (largest.bit_length() + 7) // 8)


def local_heap(source: BoundedFile, at: int | None) -> Cursor:
    """Return the data of a local heap: names of links, addressed by offset."""
    head = source.block(at, 32, "local heap", b"HEAP")
    head.version(0)
    head.take(3)
    nbytes, _, data = head.uint(8), head.uint(8), head.address()
    return source.block(data, nbytes, "local heap's data")


def global_object(source: BoundedFile, at: int, number: int) -> bytes:
    """Return object `number` of the global heap's collection at an address."""
    if at not in source.collections:
        head = source.block(at, 16, "global heap", b"GCOL")
        head.version(1)
        head.take(3)
        start, end, places = at + 16, at + head.uint(8), dict[int, tuple[int, int]]()
        while start + 16 <= end:
            entry = source.block(start, 16, "object of a global heap")
            entry_number = entry.uint(2)
            entry.take(6)
            nbytes = entry.uint(8)
            if not entry_number:  # free space, which comes last
                break
            if start + 16 + nbytes > end:
                raise DamagedError(f"{entry.label} is longer than its heap")
            places[entry_number] = start + 16, nbytes
            start += 16 + -(-nbytes // 8) * 8
        source.collections[at] = places
    place = source.collections[at].get(number)
    if place is None:
        raise DamagedError(f"the global heap at {at} has no object {number}")
    source.budget.charge("texts", place[1])
    return source.block(*place, "object of a global heap").data


def fractal_heap_reader(source: BoundedFile, at: int | None) -> Callable[[Cursor], Cursor]:
    """Return a function: ID of an object in a fractal heap -> object."""
    head = source.block(at, 142, "fractal heap", b"FRHP")
    head.version(0)
    id_nbytes, filters, _, most = head.uint(2), head.uint(2), head.uint(), head.uint(4)
    if filters:
        raise DamagedError(f"{head.label} is filtered, which is not supported")
    head.take(8)
    huge_at = head.address()
    head.take(8 * 10)
    width, first, largest, bits = head.uint(2), head.uint(8), head.uint(8), head.uint(2)
    head.take(2)
    root, rows = head.address(), head.uint(2)
    if any(n.bit_count() != 1 for n in (first, largest, width)) or first > largest:
        raise DamagedError(f"{head.label} has blocks of {first} to {largest} bytes")
    offset_nbytes = (bits + 7) // 8
    length_nbytes = min(_uint_nbytes(most), (largest.bit_length() + 6) // 8)
    blocks: list[tuple[int, int, int]] = []  # offset in the heap, size and address
    todo = [] if root is None else [(root, rows, 0)]
    while todo:
        # a row has `width` blocks: of `first` bytes in rows 0 and 1, then twice the row before
        at, rows, start = todo.pop()
        if not rows:
            blocks.append((start, first, at))
            continue
        nbytes = 4 + 1 + 8 + offset_nbytes + 8 * width * rows
        block = source.block(at, nbytes, "fractal heap block", b"FHIB")
        if rows > _MOST_ROWS:
            raise DamagedError(f"{block.label} has {rows} rows")
        block.take(9 + offset_nbytes)
        for row in range(rows):
            size = first << max(0, row - 1)
            for _ in range(width):
                child = block.address()
                if child is not None and row <= (largest // first).bit_length():
                    blocks.append((start, size, child))
                elif child is not None:
                    todo.append((child, (size // (first * width)).bit_length(), start))
                start += size
    blocks.sort()
    starts = [start for start, _, _ in blocks]
    huge: dict[int, tuple[int, int]] = {}

    def read_object(cursor: Cursor) -> Cursor:
        object_id = Cursor(cursor.take(id_nbytes), f"an ID of {head.label}")
        kind = object_id.uint() >> 4
        if kind == _MANAGED:
            offset, nbytes = object_id.uint(offset_nbytes), object_id.uint(length_nbytes)
            k = bisect_right(starts, offset) - 1
            if k < 0 or offset + nbytes > starts[k] + blocks[k][1]:
                raise DamagedError(f"{object_id.label} leads out of the heap")
            return source.block(blocks[k][2] + offset - starts[k], nbytes, "object of a heap")
        if kind == _HUGE and id_nbytes < 17:
            if not huge and huge_at is not None:
                for record in btree2_records(source, huge_at, _HUGE_RECORD):
                    place = record.uint(8), record.uint(8)
                    huge[record.uint(8)] = place
            place = huge.get(object_id.uint(min(8, id_nbytes - 1)), (-1, 0))
            return source.block(*place, "huge object of a heap")
        raise DamagedError(f"{object_id.label} is of kind {kind}, which is not supported")

    return read_object


def dense_messages(source: BoundedFile, info: Cursor, kind: int) -> Iterator[Cursor]:
    """Yield an object's attributes or links from a fractal heap with a B-tree of names. kind:
    ATTRIBUTES_BY_NAME or LINKS_BY_NAME. IV.A.2.c. The Link Info Message; IV.A.2.v. The Attribute
    Info Message."""
    of_links = kind == LINKS_BY_NAME
    info.version(0)
    flags = info.uint()
    info.take((8 if of_links else 2) if flags & 1 else 0)  # the largest number in creation order
    heap_at, tree_at = info.address(), info.address()
    if heap_at is not None and tree_at is not None:
        read_object = fractal_heap_reader(source, heap_at)
        for record in btree2_records(source, tree_at, kind):
            record.take(4 if of_links else 0)  # hash of a link's name; an attribute's hash is last
            yield read_object(record)


def btree1_entries(
    source: BoundedFile, at: int, kind: int, key_nbytes: int
) -> Iterator[tuple[bytes, int]]:
    """Yield the keys and addresses in the leaves of a B-tree of version 1. kind: 0 for groups, 1
    for chunks. The level of a child must be the level of the parent minus 1."""
    todo: list[tuple[int, int | None]] = [(at, None)]
    while todo:
        at, expected = todo.pop()
        head = source.block(at, 24, "B-tree node", b"TREE")
        node_type, level, count = head.uint(), head.uint(), head.uint(2)
        if node_type != kind or expected not in (None, level):
            raise DamagedError(f"{head.label} has type {node_type} and level {level}")
        node = source.block(at + 24, count * (key_nbytes + 8), "B-tree node")
        for _ in range(count):
            key, child = node.take(key_nbytes), node.uint(8)
            if level:
                todo.append((child, level - 1))
            else:
                yield key, child


def btree2_records(source: BoundedFile, at: int, expected: int) -> Iterator[Cursor]:
    """Yield the records of a B-tree of version 2. expected: the type of the records."""
    head = source.block(at, 34, "B-tree header", b"BTHD")
    head.version(0)
    kind, node_nbytes, record_nbytes, depth = head.uint(), head.uint(4), head.uint(2), head.uint(2)
    if kind != expected or not record_nbytes or node_nbytes < _PREFIX + record_nbytes:
        raise DamagedError(f"{head.label} has records of type {kind} and {record_nbytes} bytes")
    head.take(2)
    root, count = head.address(), head.uint(2)
    if depth > 16:
        raise DamagedError(f"a B-tree of depth {depth} is not supported")
    # per level, leaves first: the bytes in which a node stores the number of records in a child
    # (enough for a full leaf, in all levels), and the number of all records below a child
    max_below = max_records = (node_nbytes - _PREFIX) // record_nbytes  # records in a full child
    size, total, widths = _uint_nbytes(max_records), 0, []
    for level in range(depth + 1):
        widths.append((size, total))
        if level:
            pointer = 8 + size + total
            max_records = max(0, node_nbytes - _PREFIX - pointer) // (record_nbytes + pointer)
            max_below = (max_records + 1) * max_below + max_records
            total = _uint_nbytes(max_below)
    todo = [] if root is None else [(root, count, depth)]
    while todo:
        at, count, level = todo.pop()
        size, total = widths[level]
        nbytes = 6 + count * record_nbytes + (count + 1) * (8 + size + total if level else 0)
        node = source.block(at, nbytes, "B-tree node", b"BTIN" if level else b"BTLF")
        node.version(0)
        if node.uint() != kind:
            raise DamagedError(f"{node.label} has records of another type than its tree")
        for _ in range(count):
            yield Cursor(node.take(record_nbytes), f"a record of {node.label}")
        for _ in range(count + 1 if level else 0):
            todo.append((node.uint(8), node.uint(size), level - 1))
            node.take(total)
