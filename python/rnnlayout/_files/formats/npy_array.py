"""An array in NumPy's own format, its header checked before anything is allocated for it."""

from __future__ import annotations

import ast
import math
from pathlib import Path
from typing import IO

import numpy as np

from rnnlayout._files.bags.limits import check_shape
from rnnlayout._model.errors import FileError

_LENGTH_NBYTES = {(1, 0): 2, (2, 0): 4, (3, 0): 4}
_MOST_HEADER_NBYTES = 65536


def read_header(file: IO[bytes], what: str) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """(shape, whether in Fortran order, dtype, bytes of magic and header) of what begins here.

    FileError: it is none, or an array of Python objects, which would have to be run to be read.
    """
    start = file.read(8)
    version = tuple(start[6:])
    if start[:6] != b"\x93NUMPY" or version not in _LENGTH_NBYTES:
        raise FileError(f"{what} is no NumPy array, or of a version that is not known")
    length = file.read(_LENGTH_NBYTES[version])
    nbytes = int.from_bytes(length, "little")
    text = file.read(nbytes) if nbytes <= _MOST_HEADER_NBYTES else b""
    if len(text) != nbytes:
        raise FileError(f"{what}: its header of {nbytes} bytes is cut short or too long")
    shape, fortran, descr = _fields(text, "utf-8" if version[0] == 3 else "latin1", what)
    return shape, fortran, _dtype(descr, what), 8 + len(length) + nbytes


def _fields(text: bytes, encoding: str, what: str) -> tuple[tuple[int, ...], bool, object]:
    try:
        told = ast.literal_eval(text.decode(encoding).strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise FileError(f"{what}: its header is malformed: {error}") from None
    if not isinstance(told, dict) or told.keys() != {"descr", "fortran_order", "shape"}:
        raise FileError(f"{what}: its header has not just descr, fortran_order and shape")
    shape, fortran = told["shape"], told["fortran_order"]
    if not isinstance(shape, tuple) or len(shape) > 32 or type(fortran) is not bool:
        raise FileError(f"{what}: its header has no shape or order")
    if not all(type(n) is int and n >= 0 for n in shape):
        raise FileError(f"{what}: its shape {shape} is none")
    check_shape(shape, what)
    return shape, fortran, told["descr"]


def _dtype(descr: object, what: str) -> np.dtype:
    try:
        dtype: np.dtype = np.lib.format.descr_to_dtype(descr)  # type: ignore[arg-type]
    except Exception as error:  # of many kinds, as what is in the header
        raise FileError(f"{what}: its dtype {descr!r} is none: {error}") from None
    if dtype.hasobject:
        raise FileError(
            f"{what} holds Python objects, which would have to be run to be read: save plain arrays"
        )
    return dtype


def check_size(shape: tuple[int, ...], dtype: np.dtype, nbytes: int, what: str) -> None:
    """Are there as many bytes as the header says?"""
    needed = math.prod(shape) * dtype.itemsize
    if needed > nbytes:
        raise FileError(
            f"{what}: shape {shape} in {dtype} has {needed} bytes, {nbytes} are there: cut short"
        )


def mapped(path: Path) -> np.ndarray:
    """The one array of a .npy file, mapped. FileError: as read_header(), or it is cut short."""
    with open(path, "rb") as file:
        shape, fortran, dtype, at = read_header(file, str(path))
    check_size(shape, dtype, path.stat().st_size - at, str(path))
    if 0 in shape:
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, "r", at, shape, "F" if fortran else "C").view(np.ndarray)


def as_array(data: bytes, at: int, shape: tuple[int, ...], f: bool, dtype: np.dtype) -> np.ndarray:
    """The array that begins at a byte of data. f: in Fortran order."""
    flat = np.frombuffer(data, dtype, math.prod(shape), at) if dtype.itemsize else None
    if flat is None:  # texts without letters
        return np.zeros(shape, dtype)
    return flat.reshape(shape[::-1]).T if f else flat.reshape(shape)
