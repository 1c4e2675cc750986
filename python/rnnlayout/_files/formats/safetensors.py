""".safetensors: a JSON header, then the bytes of the tensors.

The package safetensors is not used: the NumPy interface of the package lacks bfloat16, files with a
name twice are accepted, and a new file is kept in memory as a whole.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rnnlayout._files.tensor_sets.file_limits import (
    InputFile,
    check_texts,
    object_of_texts,
    parse_json_object,
)
from rnnlayout._files.tensor_sets.tensor_set import (
    Progress,
    ProgressCount,
    TensorSet,
    stored_tensor,
)
from rnnlayout._model.dtypes import storage_dtype
from rnnlayout._model.errors import FileError

from .registry import TensorFormat

if TYPE_CHECKING:  # not needed for reading
    from rnnlayout._files.tensor_sets.output_file import Output

MOST_HEADER_NBYTES = 100_000_000  # the limit of the format itself
WRITE_NBYTES = 256 << 10  # per call: the fastest of 64 KB to 8 MB
FORGET_NBYTES = 32 << 20  # written before the pages of the source are released

# Name of a dtype in the format -> name in NumPy.
_NUMPY = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "F16": "float16",
    "BF16": "bfloat16",
    "U32": "uint32",
    "I32": "int32",
    "F32": "float32",
    "U64": "uint64",
    "I64": "int64",
    "F64": "float64",
    "C64": "complex64",
}
_NAMES = {numpy: name for name, numpy in _NUMPY.items()}


def _read_safetensors(file: InputFile) -> TensorSet:
    opened = _OpenFile(file)
    whole = opened.data
    if len(whole) < 8:
        raise FileError(f"{file} has {len(whole)} bytes: it is not a safetensors file")
    nbytes, most = int.from_bytes(whole[:8], "little"), min(MOST_HEADER_NBYTES, len(whole) - 8)
    if nbytes > most:
        raise FileError(
            f"{file}: header length {nbytes} exceeds the maximum of {most}: the file is cut short"
            " or is not a safetensors file"
        )
    if whole[8:9] != b"{":
        raise FileError(f"{file}: its header does not begin with {{: it is not a safetensors file")
    header = parse_json_object(whole[8 : 8 + nbytes], f"{file}: its header")
    recorded = header.pop("__metadata__", None)  # MLX writes null
    metadata = object_of_texts({} if recorded is None else recorded, f"{file}: __metadata__")
    check_texts(header, f"{file}: a name")
    body = memoryview(whole)[8 + nbytes :]
    ranges: dict[str, list[int]] = {}
    tensor_set = TensorSet({}, metadata, copy=opened.copy)
    if isinstance(whole, mmap.mmap) and sys.platform != "win32":
        tensor_set.forget = partial(whole.madvise, mmap.MADV_DONTNEED)
    for name, entry in header.items():
        label = f"{file}: tensor {name!r}"
        if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
            raise FileError(f"{label} needs exactly dtype, shape and data_offsets")
        dtype, offsets = entry["dtype"], entry["data_offsets"]
        is_name = isinstance(dtype, str) and dtype.isascii() and dtype == dtype.upper()
        if not is_name or not 0 < len(dtype) <= 32:
            raise FileError(f"{label}: its dtype is not a name")
        if not isinstance(offsets, list) or [type(n) for n in offsets] != [int, int]:
            raise FileError(f"{label}: its data_offsets are not two sizes")
        begin, end = ranges[name] = offsets
        if not 0 <= begin <= end <= len(body):
            raise FileError(
                f"{label} is at bytes {begin} to {end} of {len(body)}: cut short or damaged"
            )
        dtype = str(_NUMPY.get(dtype, dtype))
        tensor_set.add(name, stored_tensor(dtype, entry["shape"], body[begin:end], label), file)
    at = 0
    for name, (begin, end) in sorted(ranges.items(), key=lambda item: item[1]):
        if begin != at:
            unused = f"has {begin - at} unused bytes before it"
            how = "overlaps another one" if begin < at else unused
            raise FileError(f"{file}: tensor {name!r} {how}")
        at = end
    if at != len(body):
        raise FileError(f"{file}: {len(body) - at} bytes after the last tensor")
    return tensor_set


class _OpenFile:
    """A file, open for as long as the object exists. data: the bytes of the file."""

    def __init__(self, file: InputFile) -> None:
        self._fd = -1
        self._fd = os.open(file, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        self.data = file.data_of(self._fd)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def copy(self, out: int, chunk: memoryview) -> int:
        """Let the system copy a chunk; see TensorSet.copy."""
        start, at = (np.frombuffer(buffer, np.uint8).ctypes.data for buffer in (self.data, chunk))
        is_part = 0 <= at - start <= len(self.data) - len(chunk)
        # without a memory map, the file may have changed since reading
        if not (is_part and isinstance(self.data, mmap.mmap) and hasattr(os, "copy_file_range")):
            return 0
        try:
            return os.copy_file_range(self._fd, out, len(chunk), at - start)
        except OSError:  # another file system, or an older kernel
            return 0


def write_tensors(out: Output, tensor_set: TensorSet, progress: Progress | None = None) -> None:
    """Write a header in the order of the tensors, and the bytes by element size for alignment."""
    from rnnlayout._files.tensor_sets.output_file import open_untruncated

    count = ProgressCount(progress, tensor_set.nbytes)
    alignment = {dtype: storage_dtype(dtype).itemsize for dtype in _NAMES}
    order = sorted(tensor_set.tensors.items(), key=lambda item: -alignment.get(item[1].dtype, 1))
    offsets, at = {}, 0
    for name, tensor in order:
        nbytes = tensor.nbytes
        if tensor.dtype not in _NAMES:
            bits = tensor.bits()
            if bits.dtype != np.uint8 or tensor.dtype != tensor.dtype.upper():
                why = f"{name}: .safetensors cannot store dtype {tensor.dtype}: write .npz"
                raise FileError(why)
            nbytes = bits.nbytes
        offsets[name] = [at, at := at + nbytes]
    header: dict[str, Any] = {"__metadata__": tensor_set.metadata} if tensor_set.metadata else {}
    for name, tensor in tensor_set.tensors.items():
        dtype = _NAMES.get(tensor.dtype, tensor.dtype)
        header[name] = {"dtype": dtype, "shape": tensor.shape, "data_offsets": offsets[name]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with open(out, "wb", buffering=0, opener=open_untruncated) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        out_fd, written = file.fileno(), 0
        for chunk in (chunk for _, tensor in order for chunk in tensor.chunks()):
            remaining = chunk
            while remaining:  # a call may write a part
                n = tensor_set.copy(out_fd, remaining) or file.write(remaining[:WRITE_NBYTES])
                written, remaining = written + n, remaining[n:]
            count(len(chunk))
            if written >= FORGET_NBYTES:
                written = 0
                tensor_set.forget()


FORMAT = TensorFormat(".safetensors", _read_safetensors, write_tensors)
