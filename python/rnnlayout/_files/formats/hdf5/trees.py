"""B-trees of both versions: sections III.A.1 and III.A.2 of the specification."""

from __future__ import annotations

from collections.abc import Iterator

from .bounded import BoundedFile, Cursor, DamagedError, uint_nbytes

_PREFIX = 10  # bytes around the records of a node of version 2: signature, version, type, checksum


def old_entries(
    source: BoundedFile, at: int, kind: int, key_nbytes: int
) -> Iterator[tuple[bytes, int]]:
    """Yield the keys and addresses in the leaves of a B-tree of version 1.

    kind: 0 for groups, 1 for chunks. Each level must be one less than the one above it.
    """
    todo: list[tuple[int, int | None]] = [(at, None)]
    while todo:
        at, expected = todo.pop()
        head = source.block(at, 24, "B-tree node", b"TREE")
        found, level, count = head.uint(), head.uint(), head.uint(2)
        if found != kind or expected not in (None, level):
            raise DamagedError(f"{head.what} has type {found} and level {level}")
        node = source.block(at + 24, count * (key_nbytes + 8), "B-tree node")
        for _ in range(count):
            key, child = node.take(key_nbytes), node.uint(8)
            if level:
                todo.append((child, level - 1))
            else:
                yield key, child


def new_records(source: BoundedFile, at: int, kinds: tuple[int, ...]) -> Iterator[Cursor]:
    """Yield the records of a B-tree of version 2. kinds: types of records that are expected."""
    head = source.block(at, 34, "B-tree header", b"BTHD")
    head.version(0)
    kind, node_nbytes, record_nbytes, depth = head.uint(), head.uint(4), head.uint(2), head.uint(2)
    if kind not in kinds or not record_nbytes or node_nbytes < _PREFIX + record_nbytes:
        raise DamagedError(f"{head.what} has records of type {kind} and {record_nbytes} bytes")
    head.take(2)
    root, count = head.address(), head.uint(2)
    widths = list(_widths(node_nbytes, record_nbytes, depth))
    todo = [] if root is None else [(root, count, depth)]
    while todo:
        at, count, level = todo.pop()
        size, total = widths[level]
        nbytes = 6 + count * record_nbytes + (count + 1) * (8 + size + total if level else 0)
        node = source.block(at, nbytes, "B-tree node", b"BTIN" if level else b"BTLF")
        node.version(0)
        if node.uint() != kind:
            raise DamagedError(f"{node.what} has records of another type than its tree")
        for _ in range(count):
            yield Cursor(node.take(record_nbytes), f"a record of {node.what}")
        for _ in range(count + 1 if level else 0):
            todo.append((node.uint(8), node.uint(size), level - 1))
            node.take(total)


def _widths(node_nbytes: int, record_nbytes: int, depth: int) -> Iterator[tuple[int, int]]:
    """Yield, for each level, how many bytes a node there has for the number of records in a child
    (the same in all nodes: enough for a full leaf) and below it."""
    if depth > 16:
        raise DamagedError(f"a B-tree of depth {depth} is not supported")
    below = most = (node_nbytes - _PREFIX) // record_nbytes  # records in a full child
    size, total = uint_nbytes(most), 0
    for level in range(depth + 1):
        yield size, total
        if level:
            pointer = 8 + size + total
            most = max(0, node_nbytes - _PREFIX - pointer) // (record_nbytes + pointer)
            below = (most + 1) * below + most
            total = uint_nbytes(below)
