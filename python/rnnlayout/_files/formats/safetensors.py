""".safetensors: a header of JSON, then the tensors' bytes.

Read and written here rather than by the package of that name: its NumPy front end has no bfloat16,
it takes a file with one name twice, and it holds the whole of what it writes in memory.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np

from rnnlayout._files.bags.bag import Bag, Tensor
from rnnlayout._files.bags.json_text import check_texts, json_object, texts
from rnnlayout._files.bags.limits import check_shape
from rnnlayout._model.errors import FileError

MOST_HEADER_NBYTES = 100_000_000  # what the format itself allows
WRITE_NBYTES = 256 << 10  # at once: of 64 KB to 8 MB the fastest
FORGET_NBYTES = 32 << 20  # written before the memory of what was read is given back

# The format's words for what NumPy has, and the bits an element of the others has.
_NUMPY = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "F16": "float16",
    "BF16": "bfloat16", "U32": "uint32", "I32": "int32", "F32": "float32", "U64": "uint64",
    "I64": "int64", "F64": "float64", "C64": "complex64",
}  # fmt: skip
_WORDS = {name: word for word, name in _NUMPY.items()}
_BITS = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
}  # fmt: skip


def _storage(dtype: str) -> np.dtype:
    return np.dtype("uint16" if dtype == "bfloat16" else dtype).newbyteorder("<")


# ---------------------------------------------------------------------------------------- reading


def read_tensors(path: Path) -> Bag:
    """The tensors, as views of one map of the file."""
    file = _File(path)
    mapped = file.mapped
    nbytes = int.from_bytes(mapped[:8], "little")
    if nbytes > min(MOST_HEADER_NBYTES, len(mapped) - 8):
        raise FileError(
            f"{path}: its header would have {nbytes} bytes, at most"
            f" {min(MOST_HEADER_NBYTES, len(mapped) - 8)} can be: cut short, or no safetensors file"
        )
    if mapped[8:9] != b"{":
        raise FileError(f"{path}: its header does not begin with {{: no safetensors file")
    header = json_object(mapped[8 : 8 + nbytes], f"{path}: its header")
    metadata = texts(header.pop("__metadata__", {}), f"{path}: __metadata__")
    check_texts(header, f"{path}: a name")
    data = memoryview(mapped)[8 + nbytes :]
    ranges = {name: _range(path, name, told, len(data)) for name, told in header.items()}
    _check_gapless(path, ranges, len(data))
    tensors = {
        name: _tensor(data[slice(*ranges[name])], told["dtype"], tuple(told["shape"]))
        for name, told in header.items()
    }
    return Bag(tensors, metadata, forget=file.forget, copy=file.copy)


class _File:
    """A file that is mapped, and open as long as this is there."""

    def __init__(self, path: Path) -> None:
        self._fd = -1
        try:
            self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
            self.mapped = mmap.mmap(self._fd, 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # ValueError: it is empty
            raise FileError(f"{path} cannot be read: {error}") from None
        if len(self.mapped) < 8:
            raise FileError(f"{path} has {len(self.mapped)} bytes: no safetensors file")
        self._start = _address(self.mapped)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def forget(self) -> None:
        self.mapped.madvise(mmap.MADV_DONTNEED)

    def copy(self, out: int, chunk: memoryview) -> int:
        at = _address(chunk) - self._start
        if not 0 <= at <= len(self.mapped) - len(chunk) or not hasattr(os, "copy_file_range"):
            return 0
        try:
            return os.copy_file_range(self._fd, out, len(chunk), at)
        except OSError:  # another file system, an older kernel
            return 0


def _address(memory: Any) -> int:
    start: int = np.frombuffer(memory, np.uint8).__array_interface__["data"][0]
    return start


def _is_size(n: Any) -> bool:
    return type(n) is int and 0 <= n < 1 << 63


def _range(path: Path, name: str, told: Any, nbytes: int) -> tuple[int, int]:
    """Where a tensor's bytes lie, everything about it checked."""
    what = f"{path}: tensor {name!r}"
    if not isinstance(told, dict) or told.keys() != {"dtype", "shape", "data_offsets"}:
        raise FileError(f"{what} has not just dtype, shape and data_offsets")
    dtype, shape, offsets = told["dtype"], told["shape"], told["data_offsets"]
    if not isinstance(dtype, str) or not dtype.isascii() or not 0 < len(dtype) <= 32:
        raise FileError(f"{what}: its dtype is no word")
    if not isinstance(shape, list) or len(shape) > 32 or not all(map(_is_size, shape)):
        raise FileError(f"{what}: its shape is no list of sizes")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)):
        raise FileError(f"{what}: its data_offsets are no two sizes")
    begin, end = offsets
    if not begin <= end <= nbytes:
        raise FileError(f"{what} lies at {begin} to {end} of {nbytes} bytes: cut short or damaged")
    bits = 8 * _storage(_NUMPY[dtype]).itemsize if dtype in _NUMPY else _BITS.get(dtype)
    check_shape(tuple(shape), what)
    if bits is not None and bits * math.prod(shape) != 8 * (end - begin):
        raise FileError(
            f"{what}: {end - begin} bytes are not those of shape {tuple(shape)} in {dtype}"
        )
    return begin, end


def _check_gapless(path: Path, ranges: dict[str, tuple[int, int]], nbytes: int) -> None:
    at = 0
    for name, (begin, end) in sorted(ranges.items(), key=lambda item: item[1]):
        if begin != at:
            how = "overlaps another" if begin < at else f"leaves {begin - at} bytes unused before"
            raise FileError(f"{path}: tensor {name!r} {how}")
        at = end
    if at != nbytes:
        raise FileError(f"{path}: {nbytes - at} bytes after the last tensor")


def _tensor(data: memoryview, dtype: str, shape: tuple[int, ...]) -> Tensor:
    if dtype not in _NUMPY:
        return Tensor(dtype, shape, lambda: np.frombuffer(data, np.uint8))
    name = _NUMPY[dtype]
    return Tensor(name, shape, lambda: np.frombuffer(data, _storage(name)).reshape(shape))


# ---------------------------------------------------------------------------------------- writing


def write_tensors(path: Path, bag: Bag) -> None:
    """The tensors under their names in their order; their bytes by the size of an element, so that
    all are aligned."""
    order = sorted(bag.tensors.items(), key=lambda item: -_alignment(item[1]))
    offsets, at = {}, 0
    for name, tensor in order:
        offsets[name] = [at, at := at + _nbytes(name, tensor)]
    header: dict[str, Any] = {"__metadata__": bag.metadata} if bag.metadata else {}
    for name, tensor in bag.tensors.items():
        word = _WORDS.get(tensor.dtype, tensor.dtype)
        header[name] = {"dtype": word, "shape": tensor.shape, "data_offsets": offsets[name]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb", buffering=0) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        written = 0
        for chunk in (chunk for _, tensor in order for chunk in tensor.chunks()):
            while chunk:  # one call may write less than all
                n = bag.copy(file.fileno(), chunk) or file.write(chunk[:WRITE_NBYTES])
                written, chunk = written + n, chunk[n:]
            if written >= FORGET_NBYTES:
                written = 0
                bag.forget()


def _alignment(tensor: Tensor) -> int:
    return _storage(tensor.dtype).itemsize if tensor.dtype in _WORDS else 1


def _nbytes(name: str, tensor: Tensor) -> int:
    if tensor.dtype in _WORDS:
        return _storage(tensor.dtype).itemsize * math.prod(tensor.shape)
    bits = tensor.bits()
    if bits.dtype != np.uint8 or tensor.dtype != tensor.dtype.upper():
        raise FileError(f"{name}: a .safetensors file has no dtype {tensor.dtype}")
    return bits.nbytes
