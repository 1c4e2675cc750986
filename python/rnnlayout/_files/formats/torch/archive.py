"""torch's files read as tensors, without torch: what torch.load(weights_only=True) reads of them.

There are two forms: a zip archive with data.pkl and one member per storage (torch 1.6 and later),
and five pickles followed by the storages (before 1.6, and later on request).
"""

from __future__ import annotations

import math
import mmap
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rnnlayout._files.bags.limits import check_claim, open_zip, read_member
from rnnlayout._model.errors import FileError

from . import pickles
from .pickles import Dict, Made, Named

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
_MAGIC = re.compile(rb"\x80[\x02\x03]\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19\.")
AGAIN = "load it with a version of torch that reads it, and save its state_dict again"


class Storage:
    """One block of elements of the file."""

    def __init__(self, dtype: str, numel: int, what: str) -> None:
        if type(numel) is not int or numel < 0:
            raise FileError(f"{what} declares {numel!r} elements")
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
class Array:
    """A tensor: a strided view of a storage, which it does not exceed."""

    dtype: str
    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def bits(self) -> np.ndarray:
        """Return the elements, a read-only view of the file's bytes; bfloat16 as uint16."""
        carrier = _carrier(self.dtype)
        if 0 in self.shape:
            return np.empty(self.shape, carrier)
        start = self.storage.start + self.offset * carrier.itemsize
        flat = np.frombuffer(self.storage.file, carrier, _span(self.shape, self.strides), start)
        steps = [stride * carrier.itemsize for stride in self.strides]
        return np.lib.stride_tricks.as_strided(flat, self.shape, steps, writeable=False)


def _carrier(dtype: str) -> np.dtype:
    return np.dtype(_CARRIERS.get(dtype, dtype))


def _span(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Return the number of elements from the first to the last one of a view."""
    return 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))


def read(path: Path) -> Any:
    """Return what torch.load() would: containers, numbers, Array per tensor, Made for the rest.

    Raises FileError if it is not such a file, is damaged, or asks for more than data.
    """
    with open(path, "rb") as opened:
        head = opened.read(4)
        if not head:
            raise FileError(f"{path} is empty")
        file = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    if head == b"PK\x03\x04":
        return _read_zip(path, file)
    if match := _MAGIC.match(file):
        return _read_old(path, file, match.end())
    if file[257:262] == b"ustar":
        raise FileError(f"{path} is a tar archive, written by torch before 0.2: {AGAIN}")
    if head[:1] == b"\x80":  # another pickle: an error that names what it asks for comes first
        _load(path, file, 0)
    raise FileError(f"{path} was not written by torch.save()")


def _load(path: Path, data: Any, at: int) -> tuple[Any, dict[str, Storage], int]:
    """Return the object of the pickle at data[at], the storages of its tensors, and its end."""
    storages: dict[str, Storage] = {}

    def persistent(pid: Any) -> Storage:
        if not isinstance(pid, tuple) or len(pid) not in (5, 6) or pid[0] != "storage":
            raise FileError(f"{path}: a persistent id that is not of a storage")
        kind, key, _, numel = pid[1:5]
        name = kind.name.rpartition(".")[2] if isinstance(kind, Named) else ""
        dtype = _STORAGES.get(name.removesuffix("Storage"))
        if dtype is None or not isinstance(key, str):
            raise FileError(f"{path}: a storage of unknown kind {name[:50]!r}")
        if len(pid) == 6 and pid[5] is not None:
            raise FileError(f"{path}: a view of a storage, written by torch before 0.4: {AGAIN}")
        what = f"{path}: storage {key[:50]!r}"
        return storages.setdefault(key, Storage(dtype, numel, what))

    end = pickles.scan(data, at, _MAKERS, str(path))
    return pickles.load(data[at:end], _MAKERS, persistent, str(path)), storages, end


# ------------------------------------------------------------------------------------ zip archives


def _read_zip(path: Path, file: mmap.mmap) -> Any:
    with open_zip(path) as archive:
        names = {info.filename: info for info in archive.infolist()}
        _check_kind(path, list(names))
        root = next((n[:-8] for n in names if re.fullmatch(r"[^/]+/data\.pkl", n)), None)
        if root is None:
            raise FileError(f"{path} was not written by torch.save(): it has no data.pkl")
        if f"{root}byteorder" in names and read_member(archive, f"{root}byteorder") != b"little":
            raise FileError(f"{path} was written on a big-endian machine: {AGAIN}")
        found, storages, _ = _load(path, read_member(archive, f"{root}data.pkl"), 0)
        for key, one in storages.items():
            info = names.get(f"{root}data/{key}")
            if info is None:
                raise FileError(f"{one.what}: the archive has no member {root}data/{key}")
            if info.file_size != one.nbytes:
                raise FileError(f"{one.what} needs {one.nbytes} bytes, it has {info.file_size}")
            one.place(file, _start(file, info, one.what))
        return found


def _check_kind(path: Path, names: list[str]) -> None:
    """Refuse, by their names, other zip archives that torch writes."""
    tails = {name.partition("/")[2] for name in names}
    program = "serialized_exported_program.json"
    exported = program in names or tails & {program, "archive_format", "models/model.json"}
    for kind, found, load in (
        ("TorchScript", "constants.pkl" in tails or any(t.startswith("code/") for t in tails),
         "torch.jit.load()"),
        ("torch.export", exported, "torch.export.load()"),
        ("torch.package", ".data/extern_modules" in tails, "torch.package.PackageImporter"),
    ):  # fmt: skip
        if found:
            raise FileError(
                f"{path} is a {kind} archive, which contains code: if you trust it, load it with"
                f" {load} and torch.save() its state_dict()"
            )


def _start(file: mmap.mmap, info: zipfile.ZipInfo, what: str) -> int:
    """Return where the bytes of a member begin."""
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
        raise FileError(f"{what} is compressed or encrypted, which torch never does: {AGAIN}")
    at = info.header_offset
    if file[at : at + 4] != b"PK\x03\x04":
        raise FileError(f"{what}: there is no zip member at byte {at}: the file is damaged")
    lengths = file[at + 26 : at + 30]
    return at + 30 + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")


# ---------------------------------------------------------------------------------- the older form


def _read_old(path: Path, file: mmap.mmap, at: int) -> Any:
    parts: list[Any] = []
    storages: dict[str, Storage] = {}
    for _ in range(4):  # the version, the machine, the object, the keys of its storages
        part, more, at = _load(path, file, at)
        parts.append(part)
        storages |= more
    version, machine, found, keys = parts
    if version != 1001 or not isinstance(machine, dict) or not machine.get("little_endian", True):
        raise FileError(f"{path}: version {version!r}, or from a big-endian machine: {AGAIN}")
    if not isinstance(keys, list) or set(map(str, keys)) != storages.keys():
        raise FileError(f"{path}: its storages are not those of its tensors: it is damaged")
    for key in keys:
        one = storages[str(key)]
        numel = int.from_bytes(file[at : at + 8], "little")
        if numel != one.numel:
            raise FileError(f"{one.what} declares {one.numel} elements, the file stores {numel}")
        at = one.place(file, at + 8)
    return found


# ------------------------------------------------------------------------- what a pickle may name


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any) -> Any:
    """_rebuild_tensor and _v2. rest: requires_grad, hooks, and metadata if there is any."""
    if len(rest) > 2 and rest[2]:
        return Made("a conjugate or negative view")
    return _array(storage, storage.dtype, offset, shape, strides)


def _tensor_v3(
    storage: Any, offset: Any, shape: Any, strides: Any, grad: Any, hooks: Any, dtype: Any, *_: Any
) -> Any:
    name = dtype.name.removeprefix("torch.") if isinstance(dtype, Named) else ""
    if name not in _NEWER:
        return Made(f"a tensor of {name}")
    return _array(storage, name, offset, shape, strides)


def _array(storage: Any, dtype: str, offset: Any, shape: Any, strides: Any) -> Array:
    if not isinstance(storage, Storage) or not isinstance(shape, (tuple, list)):
        raise FileError("a tensor without a storage or a shape")
    shape, strides = tuple(shape), tuple(strides)
    numbers = (offset, *shape, *strides)
    if any(type(n) is not int or n < 0 for n in numbers) or not len(shape) == len(strides) <= 32:
        raise FileError(f"{storage.what}: invalid shape {str(shape)[:100]} or strides of a tensor")
    nbytes, itemsize = storage.nbytes, _carrier(dtype).itemsize
    if 0 not in shape and (offset + _span(shape, strides)) * itemsize > nbytes:
        raise FileError(f"{storage.what}: a tensor of shape {shape} extends beyond its end")
    check_claim(math.prod(shape) * itemsize, nbytes, f"{storage.what}: shape {shape}")
    return Array(dtype, storage, offset, shape, strides)


def _parameter(data: Any, *_: Any) -> Any:
    return data


def _of_type(make: Any, kind: Any, args: Any, state: Any) -> Any:
    return make(*args) if isinstance(make, Named) else Made("a tensor of a class of its own")


# What torch.load(weights_only=True) lets a pickle name (torch/_weights_only_unpickler.py), and what
# a call of it calls here.
_MAKERS: dict[str, Callable[..., Any] | None] = {
    "collections.OrderedDict": Dict,
    "collections.Counter": Dict,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_v3,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
    "torch._tensor._rebuild_from_type_v2": _of_type,
    **dict.fromkeys((
        "torch.nn.parameter.Parameter", "torch.Tensor", "torch.Size", "torch.device",
        "torch.serialization._get_layout", "torch.storage.UntypedStorage", "_codecs.encode",
        *(f"torch.{dtype}" for dtype in (*_STORAGES.values(), *_NEWER) if dtype != "untyped"),
        *(f"torch.{place}{name}Storage" for name in _STORAGES for place in ("", "cuda.")),
        *(f"{module}.{name}" for module in ("builtins", "__builtin__")
          for name in ("set", "complex", "bytearray")),
        *(f"torch._utils._rebuild_{name}"
          for name in ("sparse_tensor", "meta_tensor_no_storage", "nested_tensor", "qtensor")),
        *(f"torch.per_{name}"
          for name in ("tensor_affine", "tensor_symmetric", "channel_affine", "channel_symmetric",
                       "channel_affine_float_qparams")),
    )),
}  # fmt: skip
