"""HDF5 files that nobody vouches for, as a tree of groups and datasets.

The format can name other files (links, external and virtual datasets), code (filters that libhdf5
loads from a folder of plugins), and sizes that it does not hold. So the whole tree is looked at
when a file is opened, before anything is read; compressed chunks are inflated here, where it is
known how long they may become.
"""

from __future__ import annotations

import io
import math
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from rnnlayout._files.bags.limits import check_claim
from rnnlayout._model.errors import FileError, missing

_DEPTH = 64  # groups in groups: as many as nobody has, and as Python's stack can take
_ATTRIBUTE = 60_000  # bytes; what libhdf5 stores in one is a little less than 64 KiB
_DEFLATE, _SHUFFLE = 1, 2  # H5Z_FILTER_DEFLATE, H5Z_FILTER_SHUFFLE
_REPACK = "h5repack -f NONE would make a plain file of it"


@dataclass(frozen=True)
class Dataset:
    """An array of a file: as Tensor, not read before it is asked for. h5: h5py's own object."""

    path: str
    h5: Any
    shape: tuple[int, ...]
    dtype: str  # "float32" ..., or NumPy's word for what is no float

    def bits(self) -> np.ndarray:
        """The array; bfloat16 as uint16. FileError: it is damaged, or no array of numbers."""
        with hdf5_errors(self.path):
            if self.dtype != "bfloat16" and self.h5.dtype.kind not in "fiub":
                raise FileError(f"{self.path} is {self.h5.dtype}, no array of numbers")
            chunks = self.h5.chunks
            array: np.ndarray = self.h5[()] if chunks is None else _read_chunks(self.h5, self.path)
            if self.dtype == "bfloat16":
                return array.view(np.uint16)
            return array.astype(array.dtype.newbyteorder("="), copy=False)


@dataclass(frozen=True)
class Group:
    """A group of a file. h5: h5py's own object, whose links are all harmless."""

    path: str
    h5: Any
    nbytes: int  # of the file
    groups: dict[str, Group] = field(default_factory=dict)
    datasets: dict[str, Dataset] = field(default_factory=dict)

    def group(self, path: str) -> Group | None:
        """The group at a path from here, None where there is none."""
        found: Group | None = self
        for name in path.split("/"):
            found = found.groups.get(name) if found and name else found
        return found

    def dataset(self, path: str) -> Dataset | None:
        """The dataset at a path from here, None where there is none."""
        folder, _, name = path.rpartition("/")
        group = self.group(folder)
        return group.datasets.get(name) if group else None

    def all_datasets(self) -> Iterator[Dataset]:
        """Its own, and those of the groups in it."""
        yield from self.datasets.values()
        for group in self.groups.values():
            yield from group.all_datasets()

    def text(self, name: str) -> str | None:
        """An attribute that is one text, None where it is not there."""
        value = self._attribute(name)
        if value is None:
            return None
        if np.shape(value):
            raise FileError(f"{self.path}: attribute {name!r} is a list, need one text")
        return _text(value, f"{self.path}: attribute {name!r}")

    def texts(self, name: str) -> list[str] | None:
        """An attribute that is a list of texts, also one split into `name0`, `name1` ... as Keras
        does with what is longer than 64 KiB. None where it is not there."""
        value = self._attribute(name)
        parts = [value] if value is not None else []
        while value is None and (part := self._attribute(f"{name}{len(parts)}")) is not None:
            parts.append(part)
        what = f"{self.path}: attribute {name!r}"
        return [_text(v, what) for part in parts for v in np.ravel(part)] if parts else None

    def _attribute(self, name: str) -> Any:
        h5py = import_h5py(self.path)
        with hdf5_errors(f"{self.path}: attribute {name!r}"):
            if name not in self.h5.attrs:
                return None
            attribute = self.h5.attrs.get_id(name)
            if attribute.shape is None or 0 in attribute.shape:
                return np.empty(0, "S1")
            dtype, count = attribute.dtype, math.prod(attribute.shape)
            is_text = dtype.kind == "S" or h5py.check_string_dtype(dtype) is not None
            if not is_text:
                raise FileError(f"{self.path}: attribute {name!r} is {dtype}, need text")
            # texts of no fixed length lie elsewhere, each perhaps as long as the file
            each = self.nbytes if dtype.kind == "O" else dtype.itemsize
            check_claim(count * each, self.nbytes, f"{self.path}: attribute {name!r}")
            return self.h5.attrs[name]


def _text(value: Any, what: str) -> str:
    try:
        return value.decode() if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError as error:
        raise FileError(f"{what}: {error}") from None


def write_texts(h5: Any, name: str, texts: Sequence[str]) -> None:
    """A list of texts as an attribute, split as Group.texts() reads it where it is long."""
    array = np.array([text.encode() for text in texts]) if texts else np.empty(0)
    parts = -(-array.nbytes // _ATTRIBUTE) if texts else 1
    for k, part in enumerate(np.array_split(array, parts)):
        h5.attrs[f"{name}{k}" if parts > 1 else name] = part


# ---------------------------------------------------------------------------------------- opening


@contextmanager
def open_hdf5(source: Path | bytes, what: str = "") -> Iterator[Group]:
    """The tree of an HDF5 file, or of one that is in memory. what: its name in messages.

    All of it has been looked at: hard links only and one to each object, no dataset that lies in
    another file, no claim that check_claim() refuses. FileError: it is not so, or the file is
    malformed. MissingExtraError: there is no h5py.
    """
    what = what or str(source)
    h5py = import_h5py(f"{what}: an HDF5 file")
    with _file(source, what) as file, h5py._hl.base.phil, _no_plugins(h5py):
        size = file.seek(0, io.SEEK_END)
        with _opened(h5py, file, what) as h5:
            with hdf5_errors(what):
                root = _Walk(what, size).group(h5, "", 0)
            yield root


def _file(source: Path | bytes, what: str) -> BinaryIO:
    if isinstance(source, bytes):
        return io.BytesIO(source)
    with hdf5_errors(what):
        return open(source, "rb")


def import_h5py(what: str) -> Any:
    try:
        import h5py  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise missing("h5py", "h5", what) from None
    return h5py


@contextmanager
def _opened(h5py: Any, file: BinaryIO, what: str) -> Iterator[Any]:
    """h5py reads from a file that we have opened: it is given no path."""
    with hdf5_errors(what):
        h5 = h5py.File(file, "r")
    try:
        yield h5
    finally:
        with hdf5_errors(what):
            h5.close()


@contextmanager
def hdf5_errors(what: str) -> Iterator[None]:
    """Whatever h5py makes of a malformed file becomes a FileError."""
    try:
        yield
    except (FileError, MemoryError):
        raise
    except Exception as error:
        raise FileError(f"{what}: {error or type(error).__name__}") from None


@contextmanager
def _no_plugins(h5py: Any) -> Iterator[None]:
    """libhdf5 has nowhere to look for libraries: of filters, through which groups, too, may be
    stored, and of what may know a file that it cannot open, for which it would load them all."""
    pl = h5py.h5pl
    folders = [pl.get(k) for k in range(pl.size())]
    for _ in folders:
        pl.remove(0)
    try:
        yield
    finally:
        for folder in folders:
            pl.append(folder)


class _Walk:
    """Looks at every object of a file once."""

    def __init__(self, what: str, size: int) -> None:
        self.what = what
        self.size = size
        self.seen: dict[Any, str] = {}
        self.claimed = 0

    def group(self, h5: Any, path: str, depth: int) -> Group:
        h5py = import_h5py(self.what)
        if depth > _DEPTH:
            raise FileError(f"{self.what}: {path[:80]!r}... lies {depth} groups deep: refused")
        found = Group(path or "/", h5, self.size)
        for name in h5:
            child = f"{path}/{name}"
            if not isinstance(h5.get(name, getlink=True), h5py.HardLink):
                raise FileError(f"{self.what}: {child!r} is a link to elsewhere: refused as unsafe")
            opened = h5[name]
            self._once(h5py.h5o.get_info(opened.id), child)
            if isinstance(opened, h5py.Group):
                found.groups[name] = self.group(opened, child, depth + 1)
            elif isinstance(opened, h5py.Dataset):
                found.datasets[name] = self._dataset(opened, child)
        return found

    def _once(self, info: Any, path: str) -> None:
        """A second hard link could close a circle, and many could multiply the tree."""
        key = (info.fileno, info.addr)
        if key in self.seen:
            raise FileError(f"{self.what}: {path!r} is {self.seen[key]!r} once more: refused")
        self.seen[key] = path

    def _dataset(self, h5: Any, path: str) -> Dataset:
        h5py = import_h5py(self.what)
        what, properties = f"{self.what}: {path!r}", h5.id.get_create_plist()
        # before anything else: to ask a virtual one for its shape opens the files that it names
        if properties.get_layout() == h5py.h5d.VIRTUAL or properties.get_external_count():
            raise FileError(f"{what} lies in another file: refused as unsafe")
        shape, stored = h5.shape, h5.id.get_storage_size()
        if shape is None:
            return Dataset(path, h5, (), "nothing")
        if stored > self.size:
            raise FileError(f"{what}: {stored} bytes are stored, in a file of {self.size}")
        nelems = max(math.prod(shape), math.prod(h5.chunks or ()))
        check_claim(nelems * h5.dtype.itemsize, stored, what)
        self.claimed += nelems * h5.dtype.itemsize
        check_claim(self.claimed, self.size, self.what)
        return Dataset(path, h5, shape, _dtype(h5))


def _dtype(h5: Any) -> str:
    """Keras stores bfloat16 as two opaque bytes, and says so in an attribute."""
    if h5.dtype.kind == "V" and h5.dtype.itemsize == 2 and "dtype" in h5.attrs:
        attribute = h5.attrs.get_id("dtype")
        if attribute.shape == () and h5.attrs["dtype"] in ("bfloat16", b"bfloat16"):
            return "bfloat16"
    return str(h5.dtype.newbyteorder("="))


# ----------------------------------------------------------------------------------------- chunks


def _read_chunks(h5: Any, path: str) -> np.ndarray:
    """A dataset in chunks, plain or deflated, with no filter of libhdf5's."""
    properties = h5.id.get_create_plist()
    filters = [properties.get_filter(k)[0] for k in range(properties.get_nfilters())]
    if unknown := [f for f in filters if f not in (_DEFLATE, _SHUFFLE)]:
        raise FileError(f"{path} is stored through filter {unknown[0]}, not read here: {_REPACK}")
    array = np.full(h5.shape, h5.fillvalue, h5.dtype)
    stored: list[Any] = []
    if array.size and h5.id.get_num_chunks():
        h5.id.chunk_iter(stored.append)
    for chunk in stored:
        if chunk.size > h5.id.get_storage_size():
            raise FileError(f"{path}: a chunk is longer than all of them")
        mask, data = h5.id.read_direct_chunk(chunk.chunk_offset)
        for k in reversed(range(len(filters))):
            if not mask >> k & 1:
                data = _undo(filters[k], data, h5, path)
        block = np.frombuffer(data, h5.dtype).reshape(h5.chunks)
        at = tuple(slice(o, o + n) for o, n in zip(chunk.chunk_offset, h5.chunks, strict=True))
        target = array[at]
        target[...] = block[tuple(slice(n) for n in target.shape)]
    return array


def _undo(number: int, data: bytes, h5: Any, path: str) -> bytes:
    nbytes = math.prod(h5.chunks) * h5.dtype.itemsize
    if number == _DEFLATE:
        data = zlib.decompressobj().decompress(data, nbytes + 1)
        if len(data) != nbytes:
            raise FileError(f"{path}: a chunk does not inflate to its {nbytes} bytes")
        return data
    return np.frombuffer(data, np.uint8).reshape(h5.dtype.itemsize, -1).T.tobytes()
