"""Tables, vectors and texts of a FlatBuffer, each checked against the end of the file.

A table begins with the distance to its vtable, which has the distance of each field from the table,
0 for a field at its default (flatbuffers/docs/source/internals.md, 25.12).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnlayout._model.errors import FileError


def unpack_number(data: memoryview, form: str, at: int) -> Any:
    """Return the number at a byte. form: of struct."""
    if not 0 <= at <= len(data) - struct.calcsize(form):
        raise FileError("an offset is beyond the end: it is cut short or damaged")
    return struct.unpack_from(form, data, at)[0]


@dataclass(frozen=True)
class FlatTable:
    """A table. at: its first byte. Fields are known by their numbers in the schema."""

    data: memoryview
    at: int

    def _field(self, number: int) -> int:
        """Return where a field is, 0 if it is at its default."""
        vtable = self.at - unpack_number(self.data, "<i", self.at)
        if 6 + 2 * number > unpack_number(self.data, "<H", vtable):
            return 0
        distance: int = unpack_number(self.data, "<H", vtable + 4 + 2 * number)
        return self.at + distance if distance else 0

    def number(self, number: int, form: str, default: Any = 0) -> Any:
        """Return a number. default: the schema's."""
        at = self._field(number)
        return unpack_number(self.data, "<" + form, at) if at else default

    def table(self, number: int) -> FlatTable | None:
        """Return a table, None by default."""
        at = self._field(number)
        return FlatTable(self.data, at + unpack_number(self.data, "<I", at)) if at else None

    def vector(self, number: int, dtype: str) -> np.ndarray:
        """Return a vector of numbers, empty by default, as a view."""
        at = self._field(number)
        if not at:
            return np.empty(0, dtype)
        at += unpack_number(self.data, "<I", at)
        count, size = unpack_number(self.data, "<I", at), np.dtype(dtype).itemsize
        if count * size > len(self.data) - at - 4:
            raise FileError("a vector is longer than the file: it is cut short or damaged")
        return np.frombuffer(self.data, dtype, count, at + 4)

    def offsets(self, number: int) -> FlatVector:
        """Return a vector of tables."""
        distances = self.vector(number, "<u4")
        at = self._field(number)
        start = at + unpack_number(self.data, "<I", at) + 4 if at else 0
        return FlatVector(self.data, start, distances)


@dataclass(frozen=True)
class FlatVector:
    """A vector of tables, which may be one table many times. start: its first byte."""

    data: memoryview
    start: int
    distances: np.ndarray

    def __len__(self) -> int:
        return len(self.distances)

    def __getitem__(self, k: int) -> FlatTable:
        if not 0 <= k < len(self.distances):
            raise FileError(
                f"element {k} of a list of {len(self.distances)} is used: it is damaged"
            )
        return FlatTable(self.data, self.start + 4 * k + int(self.distances[k]))


def root_table(data: memoryview) -> FlatTable:
    """Return the table that the file is."""
    return FlatTable(data, unpack_number(data, "<I", 0))
