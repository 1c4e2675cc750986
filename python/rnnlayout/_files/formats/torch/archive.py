"""torch's files read as tensors, without torch and without running anything in them.

torch.save() has two forms: a zip archive with data.pkl and one member per storage (torch 1.6 and
later), and five pickles followed by the storages (before 1.6, and later on request). TorchScript
writes the former with programs beside it (modules.py), torch.export another archive (exported.py).
A pickle alone, which has no tensors of torch, is read too: it may have NumPy arrays.
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

from rnnlayout._files.formats.content import TORCH, ZIP
from rnnlayout._files.formats.pickles import MAKERS, Makers, UnreadObject, load_pickle
from rnnlayout._files.tensor_sets.file_limits import InputFile, open_zip, read_member
from rnnlayout._model.errors import FileError

from .exported import read_exported
from .modules import PickledObject, QuantizedTensor, read_programs

# The storage classes, and the dtypes of their elements.
_STORAGES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16",
    "Long": "int64", "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8",
    "Bool": "bool", "ComplexFloat": "complex64", "ComplexDouble": "complex128",
    "QInt8": "qint8", "QUInt8": "quint8", "QInt32": "qint32", "Untyped": "untyped",
}  # fmt: skip
# The dtypes without a storage class; they are given by name, over bytes.
_NEWER = ("uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
          "float8_e5m2fnuz", "float8_e8m0fnu")  # fmt: skip
# The NumPy dtypes that carry the elements of those that NumPy lacks.
_CARRIERS = {"bfloat16": "uint16", "qint8": "int8", "quint8": "uint8", "qint32": "int32",
             "untyped": "uint8", **dict.fromkeys(_NEWER[3:], "uint8")}  # fmt: skip
AGAIN = "load it with a version of torch that reads it, and save its state_dict again"


class TorchStorage:
    """One block of elements of the file."""

    def __init__(self, dtype: str, numel: int, what: str) -> None:
        if type(numel) is not int or numel < 0:
            raise FileError(f"{what} declares {short(numel)} elements")
        self.dtype, self.numel, self.what = dtype, numel, what
        self.file: Any = b""
        self.start = 0  # byte of the file

    @property
    def nbytes(self) -> int:
        return self.numel * _carrier(self.dtype).itemsize

    def place(self, file: Any, start: int) -> int:
        """Set where it begins in the file; return where it ends."""
        end = start + self.nbytes
        if end > len(file):
            raise FileError(f"{self.what} needs {self.nbytes} bytes: the file is cut short")
        self.file, self.start = file, start
        return end


@dataclass(frozen=True)
class TorchTensor:
    """A tensor: a strided view of a storage, which it does not exceed."""

    dtype: str
    storage: TorchStorage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def bits(self) -> np.ndarray:
        """Return the elements, a read-only view of the file's bytes; bfloat16 as uint16."""
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
    """Return the number of elements from the first to the last one of a view."""
    return 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))


def read_torch_file(file: InputFile) -> Any:
    """Return what torch.load() would: containers and numbers, a TorchTensor per tensor, a
    PickledObject for an object, and an UnreadObject for everything else. Raises FileError if it is
    not such a file, is damaged, or asks for more than data."""
    data = file.data()
    head = data[:4]
    if head == ZIP:
        return _read_zip(file, data)
    if match := TORCH.match(data):
        return _read_old(file, data, match.end())
    if head[:1] == b"\x80":  # of NumPy arrays. Texts of Python 2 may be their bytes
        found, storages, _ = _load_pickled(file, data, 0, encoding="latin-1")
        if storages:
            raise FileError(f"{file}: the storages of its tensors are missing: it is cut short")
        return found
    raise FileError(
        f"{file} was not written by torch.save(), nor by pickle.dump() with protocol 2 or later:"
        " a pickle of an older protocol has to be written again"
    )


def _load_pickled(
    file: InputFile,
    data: Any,
    at: int,
    encoding: str = "utf-8",
    unknown: Callable[[str], Any] = PickledObject,
) -> tuple[Any, dict[str, TorchStorage], int]:
    """Return the object of the pickle at data[at], the storages of its tensors, and its end."""
    storages: dict[str, TorchStorage] = {}

    def persistent(pid: Any) -> Any:
        if isinstance(pid, tuple) and len(pid) == 4 and pid[0] == "module":
            return pid[1]  # the class of a whole module, which its source code follows
        if not isinstance(pid, tuple) or len(pid) not in (5, 6) or pid[0] != "storage":
            raise FileError(f"{file}: a persistent id that is not of a storage")
        kind, key, _, numel = pid[1:5]
        name = kind.name.rpartition(".")[2] if isinstance(kind, UnreadObject) else ""
        dtype = _STORAGES.get(name.removesuffix("Storage"))
        if dtype is None or not isinstance(key, str):
            raise FileError(f"{file}: a storage of unknown kind {name[:50]!r}")
        if len(pid) == 6 and pid[5] is not None:
            raise FileError(f"{file}: a view of a storage, written by torch before 0.4: {AGAIN}")
        what = f"{file}: storage {key[:50]!r}"
        return storages.setdefault(key, TorchStorage(dtype, numel, what))

    found, end = load_pickle(data, at, _MAKERS, persistent, file, encoding, unknown)
    return found, storages, end


# ------------------------------------------------------------------------------------ zip archives


def _read_zip(file: InputFile, data: mmap.mmap | bytes) -> Any:
    with open_zip(file) as archive:
        names = {info.filename: info for info in archive.infolist()}
        order = next((n for n in names if re.fullmatch(r"[^/]+/byteorder", n)), None)
        if order and read_member(archive, order) != b"little":
            raise FileError(f"{file} was written on a big-endian machine: {AGAIN}")
        program = "serialized_exported_program.json"
        if program in names or any(name.endswith("/archive_format") for name in names):
            return read_exported(file, archive, partial(_tensor_in_member, file, data))
        if any(name.endswith("/.data/extern_modules") for name in names):
            raise FileError(
                f"{file} is a torch.package archive, which contains code: if you trust it, load it"
                " with torch.package.PackageImporter and torch.save() its state_dict()"
            )
        root = next((n[:-8] for n in names if re.fullmatch(r"[^/]+/data\.pkl", n)), None)
        if root is None:
            raise FileError(f"{file} was not written by torch.save(): it has no data.pkl")
        objects: list[PickledObject] = []

        def unknown(name: str) -> PickledObject:
            objects.append(PickledObject(name))
            return objects[-1]

        pickled = read_member(archive, f"{root}data.pkl")
        found, storages, _ = _load_pickled(file, pickled, 0, unknown=unknown)
        read_programs(file, archive, root, objects)
        for key, one in storages.items():
            info = names.get(f"{root}data/{key}")
            if info is None:
                raise FileError(f"{one.what}: the archive has no member {root}data/{key}")
            if info.file_size != one.nbytes:
                raise FileError(f"{one.what} needs {one.nbytes} bytes, it has {info.file_size}")
            one.place(data, _member_start(data, info, one.what))
        return found


def _tensor_in_member(
    file: InputFile,
    data: mmap.mmap | bytes,
    dtype: str,
    info: zipfile.ZipInfo,
    offset: Any,
    shape: list[Any],
    strides: list[Any],
) -> TorchTensor:
    numel = info.file_size // _carrier(dtype).itemsize
    storage = TorchStorage(dtype, numel, f"{file}: {info.filename[:100]!r}")
    storage.place(data, _member_start(data, info, storage.what))
    return _view_storage(storage, dtype, offset, shape, strides)


def _member_start(data: mmap.mmap | bytes, info: zipfile.ZipInfo, what: str) -> int:
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
        raise FileError(f"{what} is compressed or encrypted, which torch never does: {AGAIN}")
    at = info.header_offset
    if data[at : at + 4] != ZIP:
        raise FileError(f"{what}: no zip member begins at byte {at}: the file is damaged")
    lengths = data[at + 26 : at + 30]
    return at + 30 + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")


# ---------------------------------------------------------------------------------- the older form


def _read_old(file: InputFile, data: mmap.mmap | bytes, at: int) -> Any:
    parts: list[Any] = []
    storages: dict[str, TorchStorage] = {}
    for _ in range(4):  # the version, the machine, the object, the keys of its storages
        part, more, at = _load_pickled(file, data, at)
        parts.append(part)
        storages |= more
    version, machine, found, keys = parts
    if version != 1001 or not isinstance(machine, dict) or not machine.get("little_endian", True):
        raise FileError(f"{file}: version {short(version)}, or from a big-endian machine: {AGAIN}")
    is_list = isinstance(keys, list) and all(isinstance(key, str) for key in keys)
    if not is_list or set(keys) != storages.keys():
        raise FileError(f"{file}: its storages are not those of its tensors: it is damaged")
    for key in keys:
        one = storages[key]
        numel = int.from_bytes(data[at : at + 8], "little")
        if numel != one.numel:
            raise FileError(f"{one.what} declares {one.numel} elements, the file stores {numel}")
        at = one.place(data, at + 8)
    return found


# ------------------------------------------------------------------------- what a pickle may name


def _rebuild_tensor(storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any) -> Any:
    """_rebuild_tensor and _v2. rest: requires_grad, hooks, and metadata if there is any."""
    if len(rest) > 2 and rest[2]:
        return UnreadObject("a conjugate or negative view")
    if isinstance(storage, UnreadObject):
        return storage
    return _view_storage(storage, storage.dtype, offset, shape, strides)


def _rebuild_tensor_v3(
    storage: Any, offset: Any, shape: Any, strides: Any, grad: Any, hooks: Any, dtype: Any, *_: Any
) -> Any:
    name = dtype.name.removeprefix("torch.") if isinstance(dtype, UnreadObject) else ""
    if name not in _NEWER:
        return UnreadObject(f"a tensor of {name}")
    return _view_storage(storage, name, offset, shape, strides)


def _view_storage(storage: Any, dtype: str, offset: Any, shape: Any, strides: Any) -> TorchTensor:
    if not isinstance(storage, TorchStorage) or not isinstance(shape, (tuple, list)):
        raise FileError("a tensor without a storage or a shape")
    shape, strides = tuple(shape), tuple(strides)
    numbers = (offset, *shape, *strides)
    if any(type(n) is not int or n < 0 for n in numbers) or not len(shape) == len(strides) <= 32:
        raise FileError(f"{storage.what}: invalid shape {short(shape)} or strides of a tensor")
    nbytes, itemsize = storage.nbytes, _carrier(dtype).itemsize
    if 0 not in shape and (offset + _view_span(shape, strides)) * itemsize > nbytes:
        raise FileError(f"{storage.what}: a tensor of shape {shape} extends beyond its end")
    return TorchTensor(dtype, storage, offset, shape, strides)


def _rebuild_qtensor(
    storage: Any, offset: Any, shape: Any, strides: Any, scheme: Any, *_: Any
) -> UnreadObject:
    if isinstance(storage, UnreadObject):
        return storage
    integers = _view_storage(storage, storage.dtype, offset, shape, strides)
    if not isinstance(scheme, (tuple, list)) or len(scheme) not in (3, 4):
        return UnreadObject("torch._utils._rebuild_qtensor")
    return QuantizedTensor(integers, scheme)


def _rebuild_from_type(make: Any, kind: Any, args: Any, state: Any) -> Any:
    name = make.name if isinstance(make, UnreadObject) else ""
    maker = _MAKERS.get(name) if name.startswith("torch._utils.") else None
    return maker(*args) if maker else UnreadObject("a tensor of a class of its own")


# What is made of the names that torch.save() writes for tensors.
_MAKERS: Makers = {
    **MAKERS,
    "torch._utils._rebuild_tensor": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v3": _rebuild_tensor_v3,
    "torch._utils._rebuild_parameter": lambda found, *_: found,
    "torch._utils._rebuild_parameter_with_state": lambda found, *_: found,
    "torch._tensor._rebuild_from_type_v2": _rebuild_from_type,
    "torch._utils._rebuild_qtensor": _rebuild_qtensor,
    "torch._dynamo.eval_frame.OptimizedModule": lambda module, *_: module,  # of torch.compile()
    # TorchScript's containers of one type, and the objects of protocol 1
    **dict.fromkeys(
        [f"torch.jit._pickle.{name}" for name in
         ("build_intlist", "build_tensorlist", "build_doublelist", "build_boollist",
          "restore_type_tag")],
        lambda found, *_: found,
    ),
    **dict.fromkeys(("copyreg._reconstructor", "copy_reg._reconstructor"),
                    lambda kind, *_: PickledObject(kind.name)),
}  # fmt: skip
