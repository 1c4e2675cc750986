"""The bytes of an HDF5 file that cannot be trusted, read within bounds.

A damaged file can point anywhere, also back to where the reader has been. So every structure is
read through block(), which checks that it is in the file and charges its bytes to the budget. That
ends every circle, and bounds all work by the file's size.

The names of structures and messages are those of the HDF5 File Format Specification, version 3.0.
Its sections are named where a structure is decoded. Checksums are not verified: a wrong bit in a
weight has none either.
"""

from __future__ import annotations

import io
from typing import IO

import numpy as np

from rnnlayout._files.tensor_sets.budget import Budget

_UNDEFINED = (1 << 64) - 1


class DamagedError(Exception):
    """A structure that the specification does not allow, or that this reader does not support."""


class Cursor:
    """A structure's bytes, taken from front to back. what: the structure's name in messages."""

    def __init__(self, data: bytes, what: str) -> None:
        self.data, self.what, self.at = data, what, 0

    @property
    def left(self) -> int:
        """The number of bytes that have not been taken."""
        return len(self.data) - self.at

    def take(self, nbytes: int) -> bytes:
        """Return the next bytes. Raises DamagedError if there are not as many."""
        end = self.at + nbytes
        if not self.at <= end <= len(self.data):
            raise DamagedError(f"{self.what} is cut short")
        start, self.at = self.at, end
        return self.data[start:end]

    def uint(self, nbytes: int = 1) -> int:
        """Return the next little-endian unsigned integer."""
        return int.from_bytes(self.take(nbytes), "little")

    def address(self) -> int | None:
        """Return the next address, None for the undefined one."""
        found = self.uint(8)
        return None if found == _UNDEFINED else found

    def version(self, *allowed: int) -> int:
        """Return the next byte, a version. Raises DamagedError if it is not allowed."""
        found = self.uint()
        if found not in allowed:
            raise DamagedError(f"{self.what} has version {found}, which is not supported")
        return found

    def name(self, nbytes: int | None = None) -> str:
        """Return the next name, of nbytes bytes including its padding, or up to a null byte."""
        if nbytes is None:
            end = self.data.find(b"\0", self.at)
            nbytes = (end if end >= 0 else len(self.data)) + 1 - self.at
        return null_terminated(self.take(nbytes), self.what)


def null_terminated(data: bytes, what: str) -> str:
    """Return the text before the first null byte."""
    try:
        return data.split(b"\0", 1)[0].decode()
    except UnicodeDecodeError as error:
        raise DamagedError(f"{what}: a name is not UTF-8: {error}") from None


def is_power_of_two(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0


def uint_nbytes(most: int) -> int:
    """Return how many bytes numbers up to `most` need, at least one."""
    return max(1, (most.bit_length() + 7) // 8)


class BoundedFile:
    """An open file, read within bounds. start: where the HDF5 data begins in it; addresses are
    counted from there. budget: of the file, or of the archive that it is in.
    """

    def __init__(self, file: IO[bytes], budget: Budget) -> None:
        self._file, self.budget = file, budget
        self.size = file.seek(0, io.SEEK_END)
        self.start = 0

    def block(self, at: int | None, nbytes: int, what: str, signature: bytes = b"") -> Cursor:
        """Return a structure, or the first part of one, after its signature."""
        what = f"the {what} at {at}"
        self.budget.charge("structures", max(0, nbytes))
        cursor = Cursor(self.data(at, nbytes, what), what)
        if signature and cursor.take(len(signature)) != signature:
            raise DamagedError(f"{what} does not begin with {signature.decode()!r}")
        return cursor

    def data(self, at: int | None, nbytes: int, what: str) -> bytes:
        """Return bytes of an array, which are not counted."""
        self._seek(at, nbytes, what)
        found = self._file.read(nbytes)
        if len(found) != nbytes:
            raise DamagedError(f"{what} is cut short")
        return found

    def array(self, at: int, count: int, dtype: np.dtype, what: str) -> np.ndarray:
        """Return `count` elements, which are not counted."""
        self._seek(at, count * dtype.itemsize, what)
        array = np.empty(count, dtype)
        view = array.view(np.uint8).data
        if self._file.readinto(view) != array.nbytes:  # type: ignore[attr-defined]
            raise DamagedError(f"{what} is cut short")
        return array

    def _seek(self, at: int | None, nbytes: int, what: str) -> None:
        if at is None or nbytes < 0 or not 0 <= at <= self.size - self.start - nbytes:
            raise DamagedError(f"{what}: its {nbytes} bytes are not in the file")
        self._file.seek(self.start + at)
