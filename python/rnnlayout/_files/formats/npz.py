""".npz: a zip archive of NumPy arrays, as np.savez() and np.load() use it.

What an array does not record is in the member rnnlayout.json, an object: the records of the RNNs
(tensor_sets/record.py); "dtypes", of tensors whose dtype NumPy lacks (bfloat16, stored as uint16);
"metadata", other texts by name.

The header of an array is checked before anything is allocated for it, here and for .npy.
"""

from __future__ import annotations

import io
import json
import math
import mmap
import zipfile
from typing import IO, TYPE_CHECKING, NamedTuple

import numpy as np

from rnnlayout._files.tensor_sets.file_limits import (
    InputFile,
    object_of_texts,
    open_member,
    open_zip,
    parse_json_object,
    read_json_member,
    read_member,
)
from rnnlayout._files.tensor_sets.record import KEY, SCHEMA
from rnnlayout._files.tensor_sets.tensor_set import (
    FileTensor,
    Progress,
    ProgressCount,
    TensorSet,
    sizes_of,
)
from rnnlayout._model.dtypes import storage_dtype
from rnnlayout._model.errors import FileError

from .registry import TensorFormat

if TYPE_CHECKING:  # what a load does not need
    from rnnlayout._files.tensor_sets.output_file import Output

_MOST_HEADER_NBYTES = 65536
_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


class NpyHeader(NamedTuple):
    """What an array begins with. fortran: is it in Fortran order? nbytes: of the header itself."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype
    nbytes: int

    def array(self, data: bytes | mmap.mmap, at: int) -> np.ndarray:
        """Return the array whose elements begin at byte `at` of data."""
        if not self.dtype.itemsize:  # empty texts, for which np.zeros() would allocate
            return np.ndarray(self.shape, self.dtype, b"")
        flat = np.frombuffer(data, self.dtype, math.prod(self.shape), at)
        return flat.reshape(self.shape[::-1]).T if self.fortran else flat.reshape(self.shape)


def read_npy_header(file: IO[bytes], nbytes: int, what: str) -> NpyHeader:
    """Return the header of an array. nbytes: how many there are of it, with the header. Raises
    FileError if it is malformed or too short, or has Python objects, which are code."""
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
    needed, found = math.prod(shape) * dtype.itemsize, nbytes - head.tell()
    if needed > found:
        raise FileError(
            f"{what} is cut short: shape {shape} in {dtype} needs {needed} bytes, it has {found}"
        )
    return NpyHeader(shape, fortran, dtype, head.tell())


def read_npy(file: InputFile) -> np.ndarray:
    """Return the array of a .npy file. Raises FileError if the file is malformed, or too short."""
    data = file.data()
    with open(file, "rb") as opened:
        header = read_npy_header(opened, len(data), str(file))
    return header.array(data, header.nbytes)


def write_npy(file: IO[bytes], array: np.ndarray) -> None:
    """Write an array as np.save() does, which hides why a file cannot be written."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    header = np.lib.format.header_data_from_array_1_0(array)
    np.lib.format.write_array_header_1_0(file, header)
    file.write(array.reshape(-1).view(np.uint8).data)


# ----------------------------------------------------------------------------------------- archives

_BESIDE = "rnnlayout.json"
_PLAIN = "bytes"  # the dtype of a member that is not an array
_FIRST_DAY = (1980, 1, 1, 0, 0, 0)  # the same bytes at any time


def _read_npz(file: InputFile) -> TensorSet:
    archive = open_zip(file)  # closed with the last of the tensors
    described = {}
    if _BESIDE in archive.namelist():
        described = parse_json_object(
            read_json_member(file, archive, _BESIDE), f"{file}: {_BESIDE}"
        )
    dtypes = object_of_texts(described.pop("dtypes", {}), f"{file}: dtypes")
    metadata = object_of_texts(described.pop("metadata", {}), f"{file}: metadata")
    if "entries" in described:
        metadata = {**metadata, KEY: json.dumps(described)}
    found = TensorSet({}, metadata)
    for member in archive.infolist():
        if member.filename != _BESIDE:
            name = member.filename.removesuffix(".npy")
            found.add(name, _member_tensor(file, archive, member, dtypes.get(name)), file)
    return found


def _member_tensor(
    file: InputFile, archive: zipfile.ZipFile, member: zipfile.ZipInfo, dtype: str | None
) -> FileTensor:
    name, what = member.filename, f"{file}: {member.filename}"
    if not name.endswith(".npy"):
        size = (member.file_size,)
        return FileTensor(_PLAIN, size, lambda: np.frombuffer(read_member(archive, name), np.uint8))
    with open_member(archive, name) as opened:
        header = read_npy_header(opened, member.file_size, what)
    file.budget.charge("headers", header.nbytes)
    found = header.dtype
    if dtype is not None and (dtype != "bfloat16" or found != np.uint16):
        raise FileError(f"{what} is stored as {found} and {_BESIDE} says {dtype}: they do not fit")
    return FileTensor(
        dtype or found.name,
        header.shape,
        lambda: header.array(read_member(archive, name), header.nbytes),
    )


def _write_npz(out: Output, tensor_set: TensorSet, progress: Progress | None = None) -> None:
    """Write the arrays uncompressed, as np.savez() does; the same input gives the same bytes."""
    count = ProgressCount(progress, tensor_set.nbytes)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        metadata = tensor_set.metadata
        rest = {key: value for key, value in metadata.items() if key != KEY}
        dtypes = {n: t.dtype for n, t in tensor_set.tensors.items() if t.dtype == "bfloat16"}
        beside = json.loads(metadata[KEY]) if KEY in metadata else {"schema": SCHEMA}
        beside |= {key: own for key, own in (("dtypes", dtypes), ("metadata", rest)) if own}
        if dtypes or metadata:
            archive.writestr(_member_info(_BESIDE), json.dumps(beside))
        for name, tensor in tensor_set.tensors.items():
            member = name if tensor.dtype == _PLAIN else f"{name}.npy"
            if "\0" in member:  # where zipfile would cut the name
                raise FileError(f"{name!r}: .npz cannot store this name: write .safetensors")
            with archive.open(_member_info(member), "w", force_zip64=True) as file:
                _write_member(file, name, tensor, count)
            tensor_set.forget()


FORMAT = TensorFormat(".npz", _read_npz, _write_npz)


def _member_info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _FIRST_DAY)
    info.external_attr = 0o644 << 16
    return info


def _write_member(file: IO[bytes], name: str, tensor: FileTensor, count: ProgressCount) -> None:
    if tensor.pieces is None and tensor.dtype not in (_PLAIN, "bfloat16"):
        array = tensor.bits()
        if array.dtype.name != tensor.dtype:
            raise FileError(f"{name}: NumPy lacks the dtype {tensor.dtype}: write .safetensors")
        np.lib.format.write_array(file, array, allow_pickle=False)
        count(array.nbytes)
        return
    if tensor.dtype != _PLAIN:
        dtype = storage_dtype(tensor.dtype).newbyteorder("<")
        header = {
            "descr": np.lib.format.dtype_to_descr(dtype),
            "fortran_order": False,
            "shape": tensor.shape,
        }
        np.lib.format.write_array_header_1_0(file, header)
    for chunk in tensor.chunks():
        file.write(chunk)
        count(len(chunk))
