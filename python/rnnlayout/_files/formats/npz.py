""".npz: a zip archive of NumPy arrays, as of np.savez() and np.load().

The member rnnlayout.json, an object, has the facts that arrays do not record: the records of RNNs
(tensor_sets/record.py); "dtypes" of tensors if NumPy lacks the dtype (bfloat16, stored as uint16);
"metadata", further texts by name.

In .npz and .npy files, the header of an array is checked before memory is allocated for the array.
"""

from __future__ import annotations

import io
import json
import math
import mmap
import zipfile
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, NamedTuple

import numpy as np

from rnnlayout._files.tensor_sets.file_limits import (
    BudgetError,
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
    walk_leaves,
)
from rnnlayout._model.dtypes import storage_dtype
from rnnlayout._model.errors import FileError
from rnnlayout._sources.mismatch import list_names

from .registry import Pairs, TensorFormat

if TYPE_CHECKING:  # not needed for reading
    from rnnlayout._files.tensor_sets.output_file import Output

_MOST_HEADER_NBYTES = 65536
_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


class PythonObjectsError(FileError):
    """An array has Python objects: a pickle, which may run code."""


class NpyHeader(NamedTuple):
    """The header of an array. fortran: True for Fortran order. nbytes: the size of the header."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype
    nbytes: int

    def array(self, data: bytes | mmap.mmap, at: int) -> np.ndarray:
        """Return the array of the elements from byte `at` of data on."""
        if not self.dtype.itemsize:  # empty texts: np.zeros() would allocate bytes
            return np.ndarray(self.shape, self.dtype, b"")
        flat = np.frombuffer(data, self.dtype, math.prod(self.shape), at)
        return flat.reshape(self.shape[::-1]).T if self.fortran else flat.reshape(self.shape)


def read_npy_header(file: IO[bytes], nbytes: int, label: str) -> NpyHeader:
    """Return the header of an array. nbytes: the number of bytes of the array with the header.
    Raises FileError if the header is malformed, if the elements exceed nbytes, and for Python
    objects, which are code."""
    head = io.BytesIO(file.read(_MOST_HEADER_NBYTES))
    try:
        version = np.lib.format.read_magic(head)
        if version not in _READERS:
            raise ValueError(f"version {version} is not supported")
        shape, fortran, dtype = _READERS[version](head, max_header_size=_MOST_HEADER_NBYTES)
    except Exception as error:  # of many kinds, depending on the header
        raise FileError(f"{label} is malformed or not a NumPy array: {str(error)[:200]}") from None
    shape = sizes_of(shape, label)
    if dtype.hasobject:
        raise PythonObjectsError(
            f"{label} has Python objects, and reading them runs code: save plain arrays"
        )
    needed, available = math.prod(shape) * dtype.itemsize, nbytes - head.tell()
    if needed > available:
        raise FileError(
            f"{label} is cut short: shape {shape} in {dtype} needs {needed} bytes,"
            f" it has {available}"
        )
    return NpyHeader(shape, fortran, dtype, head.tell())


def read_npy(file: InputFile) -> np.ndarray:
    """Return the array of a .npy file. Raises FileError if the file is malformed, or too short."""
    data = file.data()
    with open(file, "rb") as opened:
        header = read_npy_header(opened, len(data), str(file))
    return header.array(data, header.nbytes)


def write_npy(file: IO[bytes], array: np.ndarray) -> None:
    """Write an array as np.save() does; np.save() hides the reason if a file cannot be written."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    header = np.lib.format.header_data_from_array_1_0(array)
    np.lib.format.write_array_header_1_0(file, header)
    file.write(array.reshape(-1).view(np.uint8).data)


# ----------------------------------------------------------------------------------------- archives

_RECORDS_NAME = "rnnlayout.json"
_PLAIN = "bytes"  # the dtype of a member that is not an array
_FIRST_DAY = (1980, 1, 1, 0, 0, 0)  # constant: the same input gives the same bytes


def _read_npz(file: InputFile) -> TensorSet:
    archive = open_zip(file)  # closed with the last of the tensors
    records = {}
    if _RECORDS_NAME in archive.namelist():
        records = parse_json_object(
            read_json_member(file, archive, _RECORDS_NAME), f"{file}: {_RECORDS_NAME}"
        )
    dtypes = object_of_texts(records.pop("dtypes", {}), f"{file}: dtypes")
    metadata = object_of_texts(records.pop("metadata", {}), f"{file}: metadata")
    if "entries" in records:
        metadata = {**metadata, KEY: json.dumps(records)}
    tensor_set = TensorSet({}, metadata)
    members = archive.infolist()
    for member in members:
        if member.filename != _RECORDS_NAME:
            name = member.filename.removesuffix(".npy")
            try:
                tensor = _member_tensor(file, archive, member, dtypes.get(name))
            except PythonObjectsError:
                path = "" if len(members) == 1 else f"{name}."
                if arrays := _arrays_in_objects(file, read_member(archive, member.filename)):
                    for inner, tensor in arrays.items():
                        tensor_set.add(path + inner, tensor, file)
                    continue
                file.budget.charge("names", len(name))
                tensor_set.skipped[name] = "an array of Python objects"
            else:
                tensor_set.add(name, tensor, file)
    if skipped := tensor_set.skipped:
        names = list_names(skipped)
        note = (
            f"arrays of Python objects, whose reading may run code, were not read: {names}; if you"
            f" trust the file, numpy.load({str(file)!r}, allow_pickle=True)"
            f"[{next(iter(skipped))!r}].tolist() is what was saved: pass its arrays to rl.Weights()"
        )
        tensor_set.notes.append(note)
    return tensor_set


def _arrays_in_objects(file: InputFile, member: bytes) -> dict[str, FileTensor]:
    """Return the arrays in a dict or list that NumPy saved as an array of one or more objects; {}
    if it has anything else, which the names of tensors could not keep."""
    from . import pickles  # few archives have objects

    begin = io.BytesIO(member)
    _READERS[np.lib.format.read_magic(begin)](begin, max_header_size=_MOST_HEADER_NBYTES)
    try:
        options = pickles.MAKERS, pickles.UnreadObject, file, "latin-1"
        whole, _ = pickles.load_pickle(member, begin.tell(), *options)
        objects = whole.objects if isinstance(whole, pickles.PickledArray) else []
        leaves = [*walk_leaves(file, objects[0] if len(objects) == 1 else objects)]
    except BudgetError:
        raise
    except FileError:  # a pickle that is not plain data
        return {}
    arrays: dict[str, FileTensor] = {}
    for name, _, _, leaf in leaves:
        if not isinstance(leaf, pickles.PickledArray) or leaf.array is None or name in arrays:
            return {}
        arrays[name] = FileTensor.of(leaf.array, leaf.dtype)
        file.budget.charge("arrays", leaf.array.nbytes)  # several may be one array
    return arrays


def _member_tensor(
    file: InputFile, archive: zipfile.ZipFile, member: zipfile.ZipInfo, dtype: str | None
) -> FileTensor:
    name, label = member.filename, f"{file}: {member.filename}"
    if not name.endswith(".npy"):
        size = (member.file_size,)
        return FileTensor(_PLAIN, size, lambda: np.frombuffer(read_member(archive, name), np.uint8))
    with open_member(archive, name) as opened:
        header = read_npy_header(opened, member.file_size, label)
    file.budget.charge("headers", header.nbytes)
    stored = header.dtype
    if dtype is not None and (dtype != "bfloat16" or stored != np.uint16):
        raise FileError(
            f"{label} is stored as {stored} and {_RECORDS_NAME} says {dtype}: they do not fit"
        )
    return FileTensor(
        dtype or stored.name,
        header.shape,
        lambda: header.array(read_member(archive, name), header.nbytes),
    )


def _write_npz(
    out: Output,
    tensor_set: TensorSet,
    progress: Progress | None = None,
    members: Mapping[str, bytes] | None = None,
) -> None:
    """Write the arrays uncompressed, as np.savez() does. members: further files of the archive."""
    count = ProgressCount(progress, tensor_set.nbytes)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        metadata = tensor_set.metadata
        texts = {key: value for key, value in metadata.items() if key != KEY}
        dtypes = {n: t.dtype for n, t in tensor_set.tensors.items() if t.dtype == "bfloat16"}
        records = json.loads(metadata[KEY]) if KEY in metadata else {"schema": SCHEMA}
        if dtypes:
            records["dtypes"] = dtypes
        if texts:
            records["metadata"] = texts
        if dtypes or metadata:
            archive.writestr(_member_info(_RECORDS_NAME), json.dumps(records))
        for name, tensor in tensor_set.tensors.items():
            member = name if tensor.dtype == _PLAIN else f"{name}.npy"
            if "\0" in member:  # zipfile would cut the name
                raise FileError(f"{name!r}: .npz cannot store this name: write .safetensors")
            with archive.open(_member_info(member), "w", force_zip64=True) as file:
                _write_member(file, name, tensor, count)
            tensor_set.forget()
        for member, data in (members or {}).items():
            archive.writestr(_member_info(member), data)


def _replace_npz(
    file: InputFile, out: Output, tensor_set: TensorSet, pairs: Pairs, progress: Progress | None
) -> list[str]:
    """Write the tensors, and the arrays of Python objects as they are."""
    if not out.dry_run:
        with open_zip(file) as archive:
            names = [f"{name}.npy" for name in tensor_set.skipped]
            objects = {name: bytes(read_member(archive, name)) for name in names}
        _write_npz(out, tensor_set, progress, objects)
    return []


FORMAT = TensorFormat(".npz", _read_npz, _write_npz, _replace_npz)


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
