""".npz: a zip archive of NumPy arrays, as np.savez() and np.load() use it.

What an array does not record is in the member rnnlayout.json, an object: the records of the RNNs
(tensor_sets/record.py); "dtypes", of tensors whose dtype NumPy lacks (bfloat16, stored as uint16);
"metadata", other texts by name.
"""

from __future__ import annotations

import json
import zipfile
from typing import IO, TYPE_CHECKING, Any

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
from rnnlayout._files.tensor_sets.tensor_set import FileTensor, Progress, ProgressCount, TensorSet
from rnnlayout._model.dtypes import storage_dtype
from rnnlayout._model.errors import FileError

from .npy import check_npy_size, npy_array_at, read_npy_header
from .registry import TensorFormat

if TYPE_CHECKING:  # what a load does not need
    from rnnlayout._files.tensor_sets.output_file import Output

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
        shape, fortran, found, at = read_npy_header(opened, what)
    file.budget.charge("headers", at)
    check_npy_size(shape, found, member.file_size - at, what)
    if dtype is not None and (dtype != "bfloat16" or found != np.uint16):
        raise FileError(f"{what} is stored as {found} and {_BESIDE} says {dtype}: they do not fit")
    return FileTensor(
        dtype or found.name,
        shape,
        lambda: npy_array_at(read_member(archive, name), at, shape, fortran, found),
    )


def _write_npz(out: Output, tensor_set: TensorSet, progress: Progress | None = None) -> None:
    """Write the arrays uncompressed, as np.savez() does; the same input gives the same bytes."""
    count = ProgressCount(progress, tensor_set.nbytes)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        if beside := _json_member(tensor_set):
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


def _json_member(tensor_set: TensorSet) -> dict[str, Any]:
    rest = {key: value for key, value in tensor_set.metadata.items() if key != KEY}
    dtypes = {n: t.dtype for n, t in tensor_set.tensors.items() if t.dtype == "bfloat16"}
    records = (
        json.loads(tensor_set.metadata[KEY]) if KEY in tensor_set.metadata else {"schema": SCHEMA}
    )
    more = {key: value for key, value in (("dtypes", dtypes), ("metadata", rest)) if value}
    return {**records, **more} if more or KEY in tensor_set.metadata else {}


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
