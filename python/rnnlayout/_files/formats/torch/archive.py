"""Read torch's files as tensors, without torch and without running anything in the files.

torch.save() has two forms: a zip archive with data.pkl and a member per storage (torch 1.6 and
later), and five pickles followed by the storages (before 1.6, and later on request). TorchScript
adds programs to the zip archive (modules.py), torch.export writes another archive (exported.py). A
pickle of NumPy arrays, without tensors of torch, is read too.
"""

from __future__ import annotations

import mmap
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from reprlib import repr as short
from typing import Any

import numpy as np

from rnnlayout._files.formats.content import DISTCP, TORCH, ZIP
from rnnlayout._files.formats.pickles import MAKERS, Makers, UnreadObject, load_pickle
from rnnlayout._files.tensor_sets.file_limits import InputFile, open_zip, read_member
from rnnlayout._model.errors import FileError

from .exported import read_exported
from .modules import PickledObject, QuantizedTensor, read_programs

# Storage class -> dtype of the elements.
_STORAGES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
    "QInt8": "qint8",
    "QUInt8": "quint8",
    "QInt32": "qint32",
    "Untyped": "untyped",
}
# Dtypes without a storage class: the tensor names the dtype, and the storage has bytes.
_FLOAT8 = (
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
)
_NEWER_DTYPES = ("uint16", "uint32", "uint64", *_FLOAT8)
# Dtype that NumPy lacks -> NumPy's dtype of the same size, for the bits.
_CARRIERS = {
    "bfloat16": "uint16",
    "qint8": "int8",
    "quint8": "uint8",
    "qint32": "int32",
    "untyped": "uint8",
    **dict.fromkeys(_FLOAT8, "uint8"),
}
SAVE_AGAIN = "load it with a version of torch that reads it, and save its state_dict again"


class TorchStorage:
    """A block of elements in a file. label: the storage's name in messages."""

    def __init__(self, dtype: str, numel: int, label: str) -> None:
        if type(numel) is not int or numel < 0:
            raise FileError(f"{label} declares {short(numel)} elements")
        self.dtype, self.numel, self.label = dtype, numel, label
        self.file: Any = b""
        self.start = 0  # byte of the file

    @property
    def nbytes(self) -> int:
        return self.numel * _carrier(self.dtype).itemsize

    def place(self, file: Any, start: int) -> int:
        """Set the byte of the file where the storage begins; return the byte where it ends."""
        end = start + self.nbytes
        if end > len(file):
            raise FileError(f"{self.label} needs {self.nbytes} bytes: the file is cut short")
        self.file, self.start = file, start
        return end


@dataclass(frozen=True)
class TorchTensor:
    """A tensor: a strided view within the bounds of a storage."""

    dtype: str
    storage: TorchStorage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def bits(self) -> np.ndarray:
        """Return the elements as a read-only view of the file's bytes, bfloat16 as uint16."""
        carrier = _carrier(self.dtype)
        if 0 in self.shape:
            return np.empty(self.shape, carrier)
        start = self.storage.start + self.offset * carrier.itemsize
        flat = np.frombuffer(
            self.storage.file, carrier, _view_span(self.shape, self.strides), start
        )
        steps = [stride * carrier.itemsize for stride in self.strides]
        return np.lib.stride_tricks.as_strided(flat, self.shape, steps, writeable=False)


def _carrier(dtype: str) -> np.dtype:
    return np.dtype(_CARRIERS.get(dtype, dtype))


def _view_span(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Return the number of elements from the first to the last element of a view."""
    return 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))


def read_torch_file(file: InputFile) -> Any:
    """Return the contents as torch.load() does: containers, numbers, and a TorchTensor per tensor.
    Instances of unknown classes become PickledObjects, everything else an UnreadObject. Raises
    FileError if the file is damaged, was not written by torch, or needs more than plain data."""
    data = file.data()
    head = data[:4]
    if head == ZIP:
        return _read_zip(file, data)
    if match := TORCH.match(data):
        return _read_old(file, data, match.end())
    if head[:1] == b"\x80":  # a pickle of NumPy arrays; Python 2 wrote bytes as texts
        contents, storages, _ = _load_pickled(file, data, 0, encoding="latin-1")
        if storages:
            raise FileError(f"{file}: the storages of its tensors are missing: it is cut short")
        return contents
    raise FileError(
        f"{file} was not written by torch.save(), nor by pickle.dump() with protocol 2 or later:"
        " a pickle of an older protocol has to be written again"
    )


def _load_pickled(
    file: InputFile,
    data: Any,
    at: int,
    encoding: str = "utf-8",
    make_object: Callable[[str], Any] = PickledObject,
) -> tuple[Any, dict[str, TorchStorage], int]:
    """Return the contents of the pickle at data[at], the storages of the tensors, and the end."""
    storages: dict[str, TorchStorage] = {}

    def persistent(pid: Any) -> Any:
        if isinstance(pid, tuple) and len(pid) == 4 and pid[0] == "module":
            return pid[1]  # the class of a whole module; the source code follows
        if not isinstance(pid, tuple) or len(pid) not in (5, 6) or pid[0] != "storage":
            raise FileError(f"{file}: a persistent id that is not of a storage")
        kind, key, _, numel = pid[1:5]
        name = kind.name.rpartition(".")[2] if isinstance(kind, UnreadObject) else ""
        dtype = _STORAGES.get(name.removesuffix("Storage"))
        if dtype is None or not isinstance(key, str):
            raise FileError(f"{file}: a storage of unknown kind {name[:50]!r}")
        if len(pid) == 6 and pid[5] is not None:
            raise FileError(
                f"{file}: a view of a storage, written by torch before 0.4: {SAVE_AGAIN}"
            )
        label = f"{file}: storage {key[:50]!r}"
        return storages.setdefault(key, TorchStorage(dtype, numel, label))

    contents, end = load_pickle(data, at, _MAKERS, persistent, file, encoding, make_object)
    return contents, storages, end


# ------------------------------------------------------------------------------------ zip archives


def _read_zip(file: InputFile, data: mmap.mmap | bytes) -> Any:
    with open_zip(file) as archive:
        members = {member.filename: member for member in archive.infolist()}
        order = next((n for n in members if re.fullmatch(r"[^/]+/byteorder", n)), None)
        if order and read_member(archive, order) != b"little":
            raise FileError(f"{file} was written on a big-endian machine: {SAVE_AGAIN}")
        program = "serialized_exported_program.json"
        if program in members or any(name.endswith("/archive_format") for name in members):
            return read_exported(file, archive, partial(_tensor_in_member, file, data))
        if any(name.endswith("/.data/extern_modules") for name in members):
            raise FileError(
                f"{file} is a torch.package archive, which contains code: if you trust it, load it"
                " with torch.package.PackageImporter and torch.save() its state_dict()"
            )
        if min((member.header_offset for member in members.values()), default=0) > 0:
            raise FileError(
                f"{file} is several files of torch.save(), one after another, as in"
                f" {DISTCP.description}: ",
                DISTCP.repair,
            )
        root = next((n[:-8] for n in members if re.fullmatch(r"[^/]+/data\.pkl", n)), None)
        if root is None:
            raise FileError(f"{file} was not written by torch.save(): it has no data.pkl")
        objects: list[PickledObject] = []

        def make_object(name: str) -> PickledObject:
            objects.append(PickledObject(name))
            return objects[-1]

        pickled = read_member(archive, f"{root}data.pkl")
        contents, storages, _ = _load_pickled(file, pickled, 0, make_object=make_object)
        read_programs(file, archive, root, objects)
        for key, storage in storages.items():
            member = members.get(f"{root}data/{key}")
            if member is None:
                raise FileError(f"{storage.label}: the archive has no member {root}data/{key}")
            if member.file_size != storage.nbytes:
                raise FileError(
                    f"{storage.label} needs {storage.nbytes} bytes, it has {member.file_size}"
                )
            storage.place(data, _member_start(data, member, storage.label))
        return contents


def _tensor_in_member(
    file: InputFile,
    data: mmap.mmap | bytes,
    dtype: str,
    member: zipfile.ZipInfo,
    offset: Any,
    shape: list[Any],
    strides: list[Any],
) -> TorchTensor:
    numel = member.file_size // _carrier(dtype).itemsize
    storage = TorchStorage(dtype, numel, f"{file}: {member.filename[:100]!r}")
    storage.place(data, _member_start(data, member, storage.label))
    return _view_storage(storage, dtype, offset, shape, strides)


def _member_start(data: mmap.mmap | bytes, member: zipfile.ZipInfo, label: str) -> int:
    if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
        raise FileError(f"{label} is compressed or encrypted, which torch never does: {SAVE_AGAIN}")
    at = member.header_offset
    if data[at : at + 4] != ZIP:
        raise FileError(f"{label}: no zip member begins at byte {at}: the file is damaged")
    lengths = data[at + 26 : at + 30]
    return at + 30 + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")


# ---------------------------------------------------------------------------------- the older form


def _read_old(file: InputFile, data: mmap.mmap | bytes, at: int) -> Any:
    parts: list[Any] = []
    storages: dict[str, TorchStorage] = {}
    for _ in range(4):  # version, machine, contents, keys of the storages
        part, part_storages, at = _load_pickled(file, data, at)
        parts.append(part)
        storages |= part_storages
    version, machine, contents, keys = parts
    if version != 1001 or not isinstance(machine, dict) or not machine.get("little_endian", True):
        raise FileError(
            f"{file}: version {short(version)}, or from a big-endian machine: {SAVE_AGAIN}"
        )
    is_list = isinstance(keys, list) and all(isinstance(key, str) for key in keys)
    if not is_list or set(keys) != storages.keys():
        raise FileError(f"{file}: its storages are not those of its tensors: it is damaged")
    for key in keys:
        storage = storages[key]
        numel = int.from_bytes(data[at : at + 8], "little")
        if numel != storage.numel:
            raise FileError(
                f"{storage.label} declares {storage.numel} elements, the file stores {numel}"
            )
        at = storage.place(data, at + 8)
    return contents


# ------------------------------------------------------------------------- what a pickle may name


def _rebuild_tensor(storage: Any, offset: Any, shape: Any, strides: Any, *extras: Any) -> Any:
    """Make a tensor of _rebuild_tensor or _v2. extras: requires_grad, hooks, optional metadata."""
    if len(extras) > 2 and extras[2]:
        is_complex = isinstance(storage, TorchStorage) and storage.dtype.startswith("complex")
        return UnreadObject("a complex tensor" if is_complex else "a negative view")
    if isinstance(storage, UnreadObject):
        return storage
    return _view_storage(storage, storage.dtype, offset, shape, strides)


def _rebuild_tensor_v3(
    storage: Any, offset: Any, shape: Any, strides: Any, grad: Any, hooks: Any, dtype: Any, *_: Any
) -> Any:
    name = dtype.name.removeprefix("torch.") if isinstance(dtype, UnreadObject) else ""
    if name == "complex32":
        return UnreadObject("a complex tensor")
    if name not in _NEWER_DTYPES:
        return UnreadObject(f"a tensor of {name}")
    return _view_storage(storage, name, offset, shape, strides)


def _view_storage(storage: Any, dtype: str, offset: Any, shape: Any, strides: Any) -> TorchTensor:
    if not isinstance(storage, TorchStorage) or not isinstance(shape, (tuple, list)):
        raise FileError("a tensor without a storage or a shape")
    shape, strides = tuple(shape), tuple(strides)
    numbers = (offset, *shape, *strides)
    if any(type(n) is not int or n < 0 for n in numbers) or not len(shape) == len(strides) <= 32:
        raise FileError(f"{storage.label}: invalid shape {short(shape)} or strides of a tensor")
    nbytes, itemsize = storage.nbytes, _carrier(dtype).itemsize
    if 0 not in shape and (offset + _view_span(shape, strides)) * itemsize > nbytes:
        raise FileError(f"{storage.label}: a tensor of shape {shape} extends beyond its end")
    return TorchTensor(dtype, storage, offset, shape, strides)


def _rebuild_qtensor(
    storage: Any, offset: Any, shape: Any, strides: Any, scheme: Any, *_: Any
) -> UnreadObject:
    if isinstance(storage, UnreadObject):
        return storage
    integers = _view_storage(storage, storage.dtype, offset, shape, strides)
    if not isinstance(scheme, (tuple, list)) or len(scheme) not in (3, 4):
        return UnreadObject("a quantized tensor")
    return QuantizedTensor(integers, scheme)


def _make_instance(kind: Any, *_: Any) -> PickledObject:
    """Make an object of protocol 1."""
    return PickledObject(kind.name)


def _rebuild_from_type(function: Any, kind: Any, args: Any, state: Any) -> Any:
    name = function.name if isinstance(function, UnreadObject) else ""
    maker = _MAKERS.get(name) if name.startswith("torch._utils.") else None
    return maker(*args) if maker else UnreadObject("a tensor of a class of its own")


# TorchScript's containers of elements of the same type.
_TYPED_CONTAINERS = (
    "build_intlist",
    "build_tensorlist",
    "build_doublelist",
    "build_boollist",
    "restore_type_tag",
)
# Function that makes a tensor without a strided array of numbers -> what the tensor is.
_OTHER_TENSORS = {
    "_rebuild_sparse_tensor": "a sparse tensor",
    "_rebuild_sparse_csr_tensor": "a sparse tensor",  # of torch before 1.13
    "_rebuild_nested_tensor": "a nested tensor",
    "_rebuild_meta_tensor_no_storage": "a tensor on the meta device",
}
# Function that torch.save() names -> the function called instead.
_MAKERS: Makers = {
    **MAKERS,
    "torch._utils._rebuild_tensor": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v3": _rebuild_tensor_v3,
    "torch._utils._rebuild_parameter": lambda tensor, *_: tensor,
    "torch._utils._rebuild_parameter_with_state": lambda tensor, *_: tensor,
    "torch._tensor._rebuild_from_type_v2": _rebuild_from_type,
    "torch._utils._rebuild_qtensor": _rebuild_qtensor,
    **{
        f"torch._utils.{maker}": lambda *_, kind=kind: UnreadObject(kind)
        for maker, kind in _OTHER_TENSORS.items()
    },
    "torch._dynamo.eval_frame.OptimizedModule": lambda module, *_: module,  # of torch.compile()
    **{f"torch.jit._pickle.{name}": lambda container, *_: container for name in _TYPED_CONTAINERS},
    "copyreg._reconstructor": _make_instance,
    "copy_reg._reconstructor": _make_instance,
}
