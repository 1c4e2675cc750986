"""MessagePack, read and written as data (https://github.com/msgpack/msgpack, spec.md)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rnnlayout._files.tensor_sets.budget import Budget
from rnnlayout._model.errors import FileError

_MOST_DEEP = 32
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_NUMBERS = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
# code -> its kind, and the bytes of its length
_SIZED = {
    0xC4: ("bin", 1), 0xC5: ("bin", 2), 0xC6: ("bin", 4),
    0xC7: ("ext", 1), 0xC8: ("ext", 2), 0xC9: ("ext", 4),
    0xD9: ("str", 1), 0xDA: ("str", 2), 0xDB: ("str", 4),
    0xDC: ("list", 2), 0xDD: ("list", 4), 0xDE: ("map", 2), 0xDF: ("map", 4),
}  # fmt: skip
_FIXED_EXT = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}


Parts = Iterator[bytes | memoryview]


@dataclass(frozen=True)
class Extension:
    """A value of an application's own type. data: a view of the file."""

    code: int
    data: memoryview


def read_msgpack(data: memoryview, what: str, budget: Budget) -> Any:
    """Return what the bytes contain: dicts, lists, texts, numbers, and views of byte strings.

    Keys that are not texts or numbers are refused. Raises FileError if the bytes are malformed.
    """
    reader = _MsgpackReader(data, what, budget)
    found = reader.value(0)
    if reader.at != len(data):
        raise FileError(f"{what}: {len(data) - reader.at} bytes after its end")
    return found


class _MsgpackReader:
    def __init__(self, data: memoryview, what: str, budget: Budget) -> None:
        self.data, self.what, self.budget, self.at = data, what, budget, 0

    def take(self, nbytes: int) -> memoryview:
        if nbytes > len(self.data) - self.at:
            raise FileError(f"{self.what} is cut short, or not a msgpack file")
        self.at += nbytes
        return self.data[self.at - nbytes : self.at]

    def value(self, depth: int) -> Any:
        if depth > _MOST_DEEP:
            raise FileError(
                f"{self.what}: more than {_MOST_DEEP} containers in each other: refused"
            )
        code = self.take(1)[0]
        if code < 0x80 or code >= 0xE0:
            return code - (256 if code >= 0xE0 else 0)
        if code in _CONSTANTS:
            return _CONSTANTS[code]
        if code in _NUMBERS:
            form = _NUMBERS[code]
            return struct.unpack(form, self.take(struct.calcsize(form)))[0]
        if code in _FIXED_EXT:
            return self.sized("ext", _FIXED_EXT[code], depth)
        if code in _SIZED:
            kind, width = _SIZED[code]
            return self.sized(kind, int.from_bytes(self.take(width), "big"), depth)
        if code == 0xC1:
            raise FileError(f"{self.what} is damaged, or not a msgpack file: byte 0xc1")
        kind = "map" if code < 0x90 else "list" if code < 0xA0 else "str"
        return self.sized(kind, code & (0x1F if kind == "str" else 0x0F), depth)

    def sized(self, kind: str, n: int, depth: int) -> Any:
        if kind == "ext":
            code = self.take(1)[0]
            return Extension(code, self.take(n))
        if kind == "bin":
            return self.take(n)
        if kind == "str":
            try:
                return str(self.take(n), "utf-8")
            except UnicodeDecodeError as error:
                raise FileError(f"{self.what} has a text that is not UTF-8: {error}") from None
        if n > len(self.data) - self.at:
            raise FileError(f"{self.what} is cut short: a {kind} of {n} items at byte {self.at}")
        self.budget.charge("steps", 2 * n)
        if kind == "list":
            return [self.value(depth + 1) for _ in range(n)]
        found: dict[Any, Any] = {}
        for _ in range(n):
            key = self.value(depth + 1)
            if not isinstance(key, (str, int)):
                raise FileError(f"{self.what}: a key is a {type(key).__name__}, need a text")
            if key in found:
                raise FileError(f"{self.what} has the key {key!r:.100} twice")
            found[key] = self.value(depth + 1)
        return found


def msgpack_bytes(value: Any, other: Callable[[Any], Parts]) -> Parts:
    """Yield the bytes of a value, as the msgpack package writes them.

    other: called with a value of another type, which read_msgpack() never returns; yields its
    bytes.
    """
    if isinstance(value, Mapping):
        yield value_head("map", len(value))
        for key, inside in value.items():
            yield from msgpack_bytes(key, other)
            yield from msgpack_bytes(inside, other)
    elif isinstance(value, (list, tuple)):
        yield value_head("list", len(value))
        for inside in value:
            yield from msgpack_bytes(inside, other)
    elif isinstance(value, str):
        text = value.encode()
        yield value_head("str", len(text)) + text
    elif isinstance(value, (bytes, memoryview)):
        yield value_head("bin", len(value))
        yield value
    elif isinstance(value, Extension):
        yield value_head("ext", len(value.data)) + bytes([value.code])
        yield value.data
    elif isinstance(value, float):
        yield b"\xcb" + struct.pack(">d", value)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield _integer_bytes(value)
    elif value is None or isinstance(value, bool):
        yield bytes([next(code for code, own in _CONSTANTS.items() if own is value)])
    else:
        yield from other(value)


def value_head(kind: str, n: int) -> bytes:
    """Return the bytes before the content of a value with a size."""
    small = {"map": (0x80, 16), "list": (0x90, 16), "str": (0xA0, 32)}
    if kind in small and n < small[kind][1]:
        return bytes([small[kind][0] | n])
    if kind == "ext" and n in _FIXED_EXT.values():
        return bytes([next(code for code, size in _FIXED_EXT.items() if size == n)])
    for code, (own, width) in _SIZED.items():
        if own == kind and n < 1 << 8 * width:
            return bytes([code]) + n.to_bytes(width, "big")
    raise FileError(f"a msgpack file cannot have a {kind} of {n} bytes or items")


def _integer_bytes(value: int) -> bytes:
    if -32 <= value < 128:
        return bytes([value & 0xFF])
    for code, form in _NUMBERS.items():
        if (form[1] in "BHIQ") == (value >= 0) and form[1] not in "fd":
            try:
                return bytes([code]) + struct.pack(form, value)
            except struct.error:
                continue
    raise FileError(f"a msgpack file cannot have the number {value}")
