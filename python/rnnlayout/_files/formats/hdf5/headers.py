"""Superblocks and object headers: sections II and IV.A of the specification."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from rnnlayout._files.formats.content import HDF5

from .bounded import BoundedFile, Cursor, DamagedError

_SHARED, _FAIL_IF_UNKNOWN = 2, 128  # flags of messages


class MessageKind(IntEnum):
    """The kinds of messages that this reader knows."""

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


@dataclass(frozen=True)
class HeaderMessage:
    """One message of an object header."""

    kind: int
    flags: int
    data: bytes

    def cursor(self) -> Cursor:
        """Return its content. Raises DamagedError if it is shared."""
        what = f"the message {MessageKind(self.kind).name.lower().replace('_', ' ')}"
        if self.flags & _SHARED:  # it only tells where the message is
            raise DamagedError(f"{what} is shared by several objects, which is not supported")
        return Cursor(self.data, what)


class HeaderMessages(dict[int, list[HeaderMessage]]):
    """The messages of one object, by kind."""

    def __init__(self, source: BoundedFile, at: int) -> None:
        is_new = source.block(at, 4, "object header").take(4) == b"OHDR"
        for message in _new_messages(source, at) if is_new else _old_messages(source, at):
            if message.flags & _FAIL_IF_UNKNOWN and message.kind not in set(MessageKind):
                raise DamagedError(f"a message of kind {message.kind} is not supported")
            self.setdefault(message.kind, []).append(message)

    def one(self, kind: MessageKind) -> Cursor | None:
        """Return the content of the only message of a kind, None if the object has none."""
        found = self.get(kind, [])
        if len(found) > 1:
            raise DamagedError(f"{len(found)} messages of kind {kind.name.lower()}")
        return found[0].cursor() if found else None


def root_address(source: BoundedFile) -> int:
    """Return the address of the root group's object header (II.A. Format Signature, Superblock)."""
    source.start = _superblock_start(source)
    head = source.block(0, 12, "superblock", HDF5)
    version = head.version(0, 1, 2, 3)
    nbytes = {0: 96, 1: 100, 2: 48, 3: 48}[version]
    block = source.block(0, nbytes, "superblock", HDF5)
    block.take(5 if version < 2 else 1)
    sizes = block.uint(), block.uint()
    if sizes != (8, 8):
        raise DamagedError(f"addresses and lengths of {sizes} bytes are not supported, need 8")
    block.take({0: 9, 1: 13, 2: 1, 3: 1}[version])
    _, _, end, other = (block.address() for _ in range(4))
    if version < 2:  # other is the driver information; then comes the root's symbol table entry
        block.take(8)
        other = block.address()
    if end is None or end > source.size:
        raise DamagedError(
            f"the file should have {end} bytes and has {source.size}: it is cut short"
        )
    if other is None:
        raise DamagedError("the file has no root group")
    return other


def _superblock_start(source: BoundedFile) -> int:
    """Return where the superblock is: at 0, or at a power of two from 512."""
    at = 0
    while at + len(HDF5) <= source.size:
        if source.data(at, len(HDF5), "the signature") == HDF5:
            return at
        at = max(512, 2 * at)
    raise DamagedError("it is not an HDF5 file")


def _old_messages(source: BoundedFile, at: int) -> Iterator[HeaderMessage]:
    """IV.A.1.a. Version 1 Data Object Header Prefix."""
    head = source.block(at, 16, "object header")
    head.version(1)
    head.take(7)
    blocks = [(at + 16, head.uint(4))]
    for at, nbytes in blocks:
        block = source.block(at, nbytes, "object header")
        while block.left >= 8:
            kind, size, flags = block.uint(2), block.uint(2), block.uint()
            block.take(3)
            message = HeaderMessage(kind, flags, block.take(size))
            if kind == MessageKind.CONTINUATION:
                blocks.append(_continuation(message))
            else:
                yield message


def _new_messages(source: BoundedFile, at: int) -> Iterator[HeaderMessage]:
    """IV.A.1.b. Version 2 Data Object Header Prefix."""
    head = source.block(at, 6, "object header", b"OHDR")
    head.version(2)
    flags = head.uint()
    skip = 6 + (16 if flags & 32 else 0) + (4 if flags & 16 else 0)
    width, order = 1 << (flags & 3), 2 if flags & 4 else 0
    size = source.block(at + skip, width, "object header").uint(width)
    blocks = [(at + skip + width, size, b"")]
    for at, nbytes, signature in blocks:
        block = source.block(at, nbytes, "object header", signature)
        while block.left >= 4 + order:  # what is shorter is a gap
            kind, size, flags = block.uint(), block.uint(2), block.uint()
            block.take(order)
            message = HeaderMessage(kind, flags, block.take(size))
            if kind == MessageKind.CONTINUATION:
                at, nbytes = _continuation(message)
                blocks.append((at, nbytes - 4, b"OCHK"))  # a checksum follows
            else:
                yield message


def _continuation(message: HeaderMessage) -> tuple[int, int]:
    cursor = message.cursor()
    return cursor.uint(8), cursor.uint(8)
