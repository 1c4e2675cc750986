"""An array in NumPy's own format, with its header checked before anything is allocated for it."""

from __future__ import annotations

import io
import math
import mmap
from typing import IO

import numpy as np

from rnnlayout._files.tensor_sets.file_limits import InputFile
from rnnlayout._files.tensor_sets.tensor_set import sizes_of
from rnnlayout._model.errors import FileError

_MOST_HEADER_NBYTES = 65536
_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_npy_header(file: IO[bytes], what: str) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """Return the shape, whether it is in Fortran order, the dtype, and the size of the header.

    Raises FileError if it is malformed, or the array has Python objects, which are code.
    """
    head = io.BytesIO(file.read(_MOST_HEADER_NBYTES))
    try:
        version = np.lib.format.read_magic(head)
        if version not in _READERS:
            raise ValueError(f"version {version} is not supported")
        shape, fortran, dtype = _READERS[version](head, max_header_size=_MOST_HEADER_NBYTES)
    except Exception as error:  # of many kinds, depending on the header
        raise FileError(f"{what} is malformed or not a NumPy array: {str(error)[:200]}") from None
    shape = sizes_of(shape, what)
    if dtype.hasobject:
        raise FileError(f"{what} has Python objects, and reading them runs code: save plain arrays")
    return shape, fortran, dtype, head.tell()


def check_npy_size(shape: tuple[int, ...], dtype: np.dtype, nbytes: int, what: str) -> None:
    """Raise FileError if an array needs more bytes than there are."""
    needed = math.prod(shape) * dtype.itemsize
    if needed > nbytes:
        raise FileError(
            f"{what} is cut short: shape {shape} in {dtype} needs {needed} bytes, it has {nbytes}"
        )


def npy_array_at(
    data: bytes | mmap.mmap, at: int, shape: tuple[int, ...], f: bool, dtype: np.dtype
) -> np.ndarray:
    """Return the array that begins at byte `at` of data. f: whether it is in Fortran order."""
    if not dtype.itemsize:  # empty texts, for which np.zeros() would allocate
        return np.ndarray(shape, dtype, b"")
    flat = np.frombuffer(data, dtype, math.prod(shape), at)
    return flat.reshape(shape[::-1]).T if f else flat.reshape(shape)


def read_npy(file: InputFile) -> np.ndarray:
    """Return the array of a .npy file. Raises FileError if the file is malformed, or too short."""
    with open(file, "rb") as opened:
        shape, fortran, dtype, at = read_npy_header(opened, str(file))
    data = file.data()
    check_npy_size(shape, dtype, len(data) - at, str(file))
    return npy_array_at(data, at, shape, fortran, dtype)


def write_npy(file: IO[bytes], array: np.ndarray) -> None:
    """Write an array as np.save() does, which hides why a file cannot be written."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    header = np.lib.format.header_data_from_array_1_0(array)
    np.lib.format.write_array_header_1_0(file, header)
    file.write(array.reshape(-1).view(np.uint8).data)
