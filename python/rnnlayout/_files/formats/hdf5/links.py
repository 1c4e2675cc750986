"""The links in a group: sections III.A to III.C and IV.A.2.c, g, r of the specification.

Old groups have a B-tree of names in a local heap. New ones have a message for each link; those with
more than 8 links keep the messages in a fractal heap with a B-tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .bounded import BoundedFile, Cursor, DamagedError, null_terminated
from .headers import HeaderMessages, MessageKind
from .heaps import LINKS_BY_NAME, dense_messages, local_heap, old_entries

_SOFT = 2  # cache type of an entry in a symbol table


@dataclass(frozen=True)
class GroupLink:
    """A link in a group. at: the address of the object's header; None for a soft or external link.
    order: its number in the order of creation; None if that is not recorded.
    """

    name: str
    at: int | None
    order: int | None = None


def is_group(messages: HeaderMessages) -> bool:
    """Return whether an object is a group."""
    return any(
        kind in messages
        for kind in (MessageKind.SYMBOL_TABLE, MessageKind.LINK_INFO, MessageKind.LINK)
    )


def read_links(source: BoundedFile, messages: HeaderMessages) -> list[GroupLink]:
    """Return the links of a group: in their order of creation if it is recorded, else by name."""
    found = [_parse_link(message.cursor()) for message in messages.all(MessageKind.LINK)]
    if table := messages.one(MessageKind.SYMBOL_TABLE):
        found += _old_links(source, table)
    if info := messages.one(MessageKind.LINK_INFO):
        found += map(_parse_link, dense_messages(source, info, LINKS_BY_NAME))
    if len({link.name for link in found}) < len(found):
        raise DamagedError("two links have the same name")
    for link in found:
        if link.name in ("", ".") or "/" in link.name:
            raise DamagedError(f"a link has the name {link.name!r}")
    return sorted(found, key=lambda link: (link.order or 0, link.name.encode()))


def _old_links(source: BoundedFile, table: Cursor) -> Iterator[GroupLink]:
    """III.B. Disk Format: Level 1B - Group Symbol Table Nodes; III.C. Symbol Table Entry."""
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
            source.count(len(name))
            yield GroupLink(name, None if cache == _SOFT else address)


def _parse_link(cursor: Cursor) -> GroupLink:
    """IV.A.2.g. The Link Message."""
    cursor.version(1)
    flags = cursor.uint()
    kind = cursor.uint() if flags & 8 else 0
    order = cursor.uint(8) if flags & 4 else None
    cursor.take(1 if flags & 16 else 0)  # the character set: always read as UTF-8
    name = null_terminated(cursor.take(cursor.uint(1 << (flags & 3))), cursor.what)
    return GroupLink(name, None if kind else cursor.uint(8), order)
