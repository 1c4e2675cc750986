"""The sorted table in a checkpoint's index, and the protocol buffers that are its values.

It is LevelDB's table (doc/table_format.md there; tensorflow/core/lib/io/format.cc, 2.21), which
TensorFlow writes without compression.
"""

from __future__ import annotations

from collections.abc import Iterator

from rnnlayout._model.errors import FileError

MAGIC = 0xDB4775248B80FB57.to_bytes(8, "little")
_FOOTER = 48  # bytes: where two blocks are, zeros, the magic
_MOST_ENTRIES = 50_000  # a tensor each
_MOST_KEY_NBYTES = 32 << 20  # of all keys: each repeats the beginning of the one before it


def table_entries(data: memoryview, what: str) -> Iterator[tuple[bytes, memoryview]]:
    """Yield the keys and values. Raises FileError if the table is malformed."""
    if len(data) < _FOOTER or data[-8:] != MAGIC:
        raise FileError(f"{what} is not the index of a TensorFlow checkpoint, or is cut short")
    count = nbytes = 0
    footer = data[-_FOOTER:]
    for _, handle in _read_block(data, _block_handle(footer[_handle_size(footer) :]), what):
        for key, value in _read_block(data, _block_handle(handle), what):
            count, nbytes = count + 1, nbytes + len(key)
            if count > _MOST_ENTRIES or nbytes > _MOST_KEY_NBYTES:
                raise FileError(f"{what} has more than {_MOST_ENTRIES} tensors, or names too long")
            yield key, value


def _handle_size(data: memoryview) -> int:
    return read_varint(data, read_varint(data, 0)[1])[1]


def _block_handle(data: memoryview) -> tuple[int, int]:
    """Return where a block begins, and its size."""
    begin, at = read_varint(data, 0)
    return begin, read_varint(data, at)[0]


def _read_block(
    data: memoryview, handle: tuple[int, int], what: str
) -> Iterator[tuple[bytes, memoryview]]:
    begin, size = handle
    if begin + size + 5 > len(data) - _FOOTER or size < 4:
        raise FileError(f"{what}: a block is beyond the end: it is cut short")
    if data[begin + size]:
        raise FileError(f"{what} is compressed, which TensorFlow does not do: write it again")
    block = data[begin : begin + size]
    end = size - 4 * (1 + int.from_bytes(block[-4:], "little"))  # before the restarts
    key, at = b"", 0
    while at < end:
        shared, at = read_varint(block, at)
        more, at = read_varint(block, at)
        length, at = read_varint(block, at)
        if shared > len(key) or at + more + length > end:
            raise FileError(f"{what}: an entry is longer than its block: it is damaged")
        key = key[:shared] + bytes(block[at : at + more])
        yield key, block[at + more : at + more + length]
        at += more + length


def message_fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield the number and the value of each field of a message: an integer, or bytes."""
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = read_varint(data, at)
            yield key >> 3, value
            continue
        size, at = read_varint(data, at) if kind == 2 else ({1: 8, 5: 4}.get(kind, -1), at)
        if size < 0 or at + size > len(data):
            raise FileError("a protocol buffer is damaged")
        yield key >> 3, data[at : at + size]
        at += size


def read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the integer that begins at a byte, and where it ends."""
    value = 0
    for k, byte in enumerate(data[at : at + 10]):
        value |= (byte & 127) << 7 * k
        if byte < 128:
            return value, at + k + 1
    raise FileError("an integer is cut short")
