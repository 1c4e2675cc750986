""".safetensors: a JSON header, then the bytes of the tensors.

Read and written here and not with the package of that name: its NumPy interface lacks bfloat16, it
accepts a file that has one name twice, and it keeps everything it writes in memory.
"""

from __future__ import annotations

import json
import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rnnlayout._files.tensor_sets.file_limits import (
    check_texts,
    map_open_file,
    object_of_texts,
    parse_json_object,
)
from rnnlayout._files.tensor_sets.tensor_set import (
    FileTensor,
    Progress,
    ProgressCount,
    TensorSet,
    stored_tensor,
)
from rnnlayout._model.dtypes import storage_dtype
from rnnlayout._model.errors import FileError

from .registry import TensorFormat

if TYPE_CHECKING:  # what a load does not need
    from rnnlayout._files.tensor_sets.output_file import Output

MOST_HEADER_NBYTES = 100_000_000  # the limit of the format itself
WRITE_NBYTES = 256 << 10  # per call: the fastest of 64 KB to 8 MB
FORGET_NBYTES = 32 << 20  # written before the memory of what was read is given back

# The format's names of the dtypes that NumPy has.
_NUMPY = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "F16": "float16",
    "BF16": "bfloat16", "U32": "uint32", "I32": "int32", "F32": "float32", "U64": "uint64",
    "I64": "int64", "F64": "float64", "C64": "complex64",
}  # fmt: skip
_NAMES = {numpy: name for name, numpy in _NUMPY.items()}


def _read_safetensors(path: Path) -> TensorSet:
    file = _MappedFile(path)
    mapped = file.mapped
    nbytes, most = int.from_bytes(mapped[:8], "little"), min(MOST_HEADER_NBYTES, len(mapped) - 8)
    if nbytes > most:
        raise FileError(
            f"{path}: header length {nbytes} exceeds the maximum of {most}: the file is cut short"
            " or is not a safetensors file"
        )
    if mapped[8:9] != b"{":
        raise FileError(f"{path}: its header does not begin with {{: it is not a safetensors file")
    header = parse_json_object(mapped[8 : 8 + nbytes], f"{path}: its header")
    told = header.pop("__metadata__", None)  # MLX writes null
    metadata = object_of_texts({} if told is None else told, f"{path}: __metadata__")
    check_texts(header, f"{path}: a name")
    data = memoryview(mapped)[8 + nbytes :]
    ranges: dict[str, tuple[int, int]] = {}
    tensors: dict[str, FileTensor] = {}
    for name, entry in header.items():
        what = f"{path}: tensor {name!r}"
        begin, end = ranges[name] = _tensor_range(entry, len(data), what)
        dtype = _NUMPY.get(entry["dtype"], entry["dtype"])
        tensors[name] = stored_tensor(dtype, entry["shape"], data[begin:end], what)
    _check_gapless(path, ranges, len(data))
    return TensorSet(tensors, metadata, forget=file.forget, copy=file.copy)


class _MappedFile:
    """A memory-mapped file, open for as long as this object exists."""

    def __init__(self, path: Path) -> None:
        self._fd = -1
        self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        self.mapped = map_open_file(self._fd, path)
        if len(self.mapped) < 8:
            raise FileError(f"{path} has {len(self.mapped)} bytes: it is not a safetensors file")
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
        except OSError:  # another file system, or an older kernel
            return 0


def _address(memory: Any) -> int:
    start: int = np.frombuffer(memory, np.uint8).__array_interface__["data"][0]
    return start


def _tensor_range(entry: Any, nbytes: int, what: str) -> tuple[int, int]:
    """Return where the bytes of a tensor are, after checking all of its entry but the shape."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise FileError(f"{what} needs exactly dtype, shape and data_offsets")
    dtype, offsets = entry["dtype"], entry["data_offsets"]
    is_name = isinstance(dtype, str) and dtype.isascii() and dtype == dtype.upper()
    if not is_name or not 0 < len(dtype) <= 32:
        raise FileError(f"{what}: its dtype is not a name")
    if not isinstance(offsets, list) or [type(n) for n in offsets] != [int, int]:
        raise FileError(f"{what}: its data_offsets are not two sizes")
    begin, end = offsets
    if not 0 <= begin <= end <= nbytes:
        raise FileError(f"{what} is at bytes {begin} to {end} of {nbytes}: cut short or damaged")
    return begin, end


def _check_gapless(path: Path, ranges: dict[str, tuple[int, int]], nbytes: int) -> None:
    at = 0
    for name, (begin, end) in sorted(ranges.items(), key=lambda item: item[1]):
        if begin != at:
            unused = f"has {begin - at} unused bytes before it"
            how = "overlaps another one" if begin < at else unused
            raise FileError(f"{path}: tensor {name!r} {how}")
        at = end
    if at != nbytes:
        raise FileError(f"{path}: {nbytes - at} bytes after the last tensor")


def write_tensors(out: Output, tensor_set: TensorSet, progress: Progress | None = None) -> None:
    """Write the tensors by name in their order, their bytes by element size for alignment."""
    count = ProgressCount(progress, tensor_set.nbytes)
    order = sorted(tensor_set.tensors.items(), key=lambda item: -_alignment(item[1]))
    offsets, at = {}, 0
    for name, tensor in order:
        offsets[name] = [at, at := at + _checked_nbytes(name, tensor)]
    header: dict[str, Any] = {"__metadata__": tensor_set.metadata} if tensor_set.metadata else {}
    for name, tensor in tensor_set.tensors.items():
        dtype = _NAMES.get(tensor.dtype, tensor.dtype)
        header[name] = {"dtype": dtype, "shape": tensor.shape, "data_offsets": offsets[name]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with open(out, "wb", buffering=0) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        written = 0
        for chunk in (chunk for _, tensor in order for chunk in tensor.chunks()):
            rest = chunk
            while rest:  # one call may write less than all
                n = tensor_set.copy(file.fileno(), rest) or file.write(rest[:WRITE_NBYTES])
                written, rest = written + n, rest[n:]
            count(len(chunk))
            if written >= FORGET_NBYTES:
                written = 0
                tensor_set.forget()


FORMAT = TensorFormat(".safetensors", _read_safetensors, write_tensors)


def _alignment(tensor: FileTensor) -> int:
    return storage_dtype(tensor.dtype).itemsize if tensor.dtype in _NAMES else 1


def _checked_nbytes(name: str, tensor: FileTensor) -> int:
    if tensor.dtype in _NAMES:
        return tensor.nbytes
    bits = tensor.bits()
    if bits.dtype != np.uint8 or tensor.dtype != tensor.dtype.upper():
        raise FileError(f"{name}: .safetensors cannot store dtype {tensor.dtype}: write .npz")
    return bits.nbytes
