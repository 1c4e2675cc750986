""".npz: a zip archive of NumPy arrays, as np.savez() and np.load() use it.

What an array does not record is in the member rnnlayout.json, an object: the records of the RNNs
(bags/record.py); "dtypes", of tensors whose dtype NumPy lacks (bfloat16, stored as uint16);
"metadata", other texts by name.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from rnnlayout._files.bags.bag import Bag, Count, Progress, Tensor
from rnnlayout._files.bags.json_text import json_object, texts
from rnnlayout._files.bags.limits import open_member, open_zip, read_member
from rnnlayout._files.bags.output import Output
from rnnlayout._files.bags.record import KEY, SCHEMA
from rnnlayout._model.dtypes import storage
from rnnlayout._model.errors import FileError

from .format import TensorFormat
from .npy import as_array, check_size, read_header

_BESIDE = "rnnlayout.json"
_PLAIN = "bytes"  # the dtype of a member that is not an array
_FIRST_DAY = (1980, 1, 1, 0, 0, 0)  # the same bytes at any time


def _read(path: Path) -> Bag:
    archive = open_zip(path)  # closed with the last of the tensors
    described = {}
    if _BESIDE in archive.namelist():
        described = json_object(read_member(archive, _BESIDE), f"{path}: {_BESIDE}")
    dtypes = texts(described.pop("dtypes", {}), f"{path}: dtypes")
    metadata = texts(described.pop("metadata", {}), f"{path}: metadata")
    if "entries" in described:
        metadata = {**metadata, KEY: json.dumps(described)}
    tensors: dict[str, Tensor] = {}
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        if name in tensors:
            raise FileError(f"{path} has {name!r} twice")
        if member.filename != _BESIDE:
            tensors[name] = _tensor(archive, member, dtypes.get(name))
    return Bag(tensors, metadata)


def _tensor(archive: zipfile.ZipFile, member: zipfile.ZipInfo, dtype: str | None) -> Tensor:
    name, what = member.filename, f"{archive.filename}: {member.filename}"
    if not name.endswith(".npy"):
        size = (member.file_size,)
        return Tensor(_PLAIN, size, lambda: np.frombuffer(read_member(archive, name), np.uint8))
    with open_member(archive, name) as file:
        shape, fortran, found, at = read_header(file, what)
    check_size(shape, found, member.file_size - at, what)
    if dtype is not None and (dtype != "bfloat16" or found != np.uint16):
        raise FileError(f"{what} is stored as {found} and {_BESIDE} says {dtype}: they do not fit")
    return Tensor(
        dtype or found.name,
        shape,
        lambda: as_array(read_member(archive, name), at, shape, fortran, found),
    )


def _write(out: Output, bag: Bag, progress: Progress | None = None) -> None:
    """Write the arrays uncompressed, as np.savez() does; the same input gives the same bytes."""
    count = Count(progress, bag.nbytes)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        if beside := _beside(bag):
            archive.writestr(_info(_BESIDE), json.dumps(beside))
        for name, tensor in bag.tensors.items():
            member = name if tensor.dtype == _PLAIN else f"{name}.npy"
            if "\0" in member:  # where zipfile would cut the name
                raise FileError(f"{name!r}: .npz cannot store this name: write .safetensors")
            with archive.open(_info(member), "w", force_zip64=True) as file:
                _write_member(file, name, tensor, count)
            bag.forget()


FORMAT = TensorFormat(".npz", _read, _write)


def _info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _FIRST_DAY)
    info.external_attr = 0o644 << 16
    return info


def _beside(bag: Bag) -> dict[str, Any]:
    rest = {key: value for key, value in bag.metadata.items() if key != KEY}
    dtypes = {n: t.dtype for n, t in bag.tensors.items() if t.dtype == "bfloat16"}
    records = json.loads(bag.metadata[KEY]) if KEY in bag.metadata else {"schema": SCHEMA}
    more = {key: value for key, value in (("dtypes", dtypes), ("metadata", rest)) if value}
    return {**records, **more} if more or KEY in bag.metadata else {}


def _write_member(file: IO[bytes], name: str, tensor: Tensor, count: Count) -> None:
    if tensor.pieces is None and tensor.dtype not in (_PLAIN, "bfloat16"):
        array = tensor.bits()
        if array.dtype.name != tensor.dtype:
            raise FileError(f"{name}: NumPy lacks the dtype {tensor.dtype}: write .safetensors")
        np.lib.format.write_array(file, array, allow_pickle=False)
        count(array.nbytes)
        return
    if tensor.dtype != _PLAIN:
        dtype = storage(tensor.dtype).newbyteorder("<")
        header = {
            "descr": np.lib.format.dtype_to_descr(dtype),
            "fortran_order": False,
            "shape": tensor.shape,
        }
        np.lib.format.write_array_header_1_0(file, header)
    for chunk in tensor.chunks():
        file.write(chunk)
        count(len(chunk))
