"""HDF5 files that cannot be trusted, as a tree of groups and datasets.

The format can name other files (links, external and virtual datasets), code (filters that libhdf5
loads from a folder of plugins), and sizes of which it stores nothing. So the whole tree is checked
when a file is opened, before any array is read; compressed chunks are inflated here, with a limit
on their size.
"""

from __future__ import annotations

import io
import math
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from rnnlayout._files.bags.bag import Tensor
from rnnlayout._files.bags.limits import check_claim
from rnnlayout._files.bags.output import Output
from rnnlayout._model.dtypes import Bits
from rnnlayout._model.errors import FileError, missing

_DEPTH = 64  # groups in groups: more than any real file has, and few enough for Python's stack
_ATTRIBUTE = 60_000  # bytes; libhdf5 stores a little less than 64 KiB in one
_DEFLATE, _SHUFFLE = 1, 2  # H5Z_FILTER_DEFLATE, H5Z_FILTER_SHUFFLE


@dataclass(frozen=True)
class Dataset:
    """An array of a file, read when it is asked for. h5: h5py's own object."""

    path: str
    h5: Any
    shape: tuple[int, ...]
    dtype: str  # "float32" ..., or NumPy's name of another dtype

    def bits(self) -> np.ndarray:
        """Return the array, bfloat16 as uint16. Raises FileError if damaged, or not of numbers."""
        with hdf5_errors(self.path):
            if self.dtype != "bfloat16" and self.h5.dtype.kind not in "fiub":
                raise FileError(f"{self.path} is {self.h5.dtype}, need an array of numbers")
            chunks = self.h5.chunks
            array: np.ndarray = self.h5[()] if chunks is None else _read_chunks(self.h5, self.path)
            if self.dtype == "bfloat16":
                return array.view(np.uint16)
            return array.astype(array.dtype.newbyteorder("="), copy=False)

    def floats(self, name: str) -> Bits:
        """Return the array of floats. name: of its layer. Raises LayoutError for other dtypes."""
        return Tensor(self.dtype, self.shape, self.bits).floats(f"{name}: {self.path}")


@dataclass(frozen=True)
class Group:
    """A group of a file. h5: h5py's own object, whose links are all harmless."""

    path: str
    h5: Any
    nbytes: int  # of the file
    groups: dict[str, Group] = field(default_factory=dict)
    datasets: dict[str, Dataset] = field(default_factory=dict)

    def group(self, path: str) -> Group | None:
        """Return the group at a path below this one, None if it does not exist."""
        found: Group | None = self
        for name in path.split("/"):
            found = found.groups.get(name) if found and name else found
        return found

    def dataset(self, path: str) -> Dataset | None:
        """Return the dataset at a path below this group, None if it does not exist."""
        folder, _, name = path.rpartition("/")
        group = self.group(folder)
        return group.datasets.get(name) if group else None

    def all_datasets(self) -> Iterator[Dataset]:
        """Yield its datasets, and those of the groups in it."""
        yield from self.datasets.values()
        for group in self.groups.values():
            yield from group.all_datasets()

    def text(self, name: str) -> str | None:
        """Return an attribute that is one text, None if it does not exist."""
        value = self._attribute(name)
        if value is None:
            return None
        if np.shape(value):
            raise FileError(f"{self.path}: attribute {name!r} is a list, need one text")
        return _text(value, f"{self.path}: attribute {name!r}")

    def texts(self, name: str) -> list[str] | None:
        """Return an attribute that is a list of texts, None if it does not exist.

        Keras splits a list of more than 64 KiB into `name0`, `name1` ...
        """
        value = self._attribute(name)
        parts = [value] if value is not None else []
        while value is None and (part := self._attribute(f"{name}{len(parts)}")) is not None:
            parts.append(part)
        what = f"{self.path}: attribute {name!r}"
        return [_text(v, what) for part in parts for v in np.ravel(part)] if parts else None

    def _attribute(self, name: str) -> Any:
        what = f"{self.path}: attribute {name!r}"
        with hdf5_errors(what):
            if name not in self.h5.attrs:
                return None
            attribute = self.h5.attrs.get_id(name)
            if attribute.shape is None or 0 in attribute.shape:
                return np.empty(0, "S1")
            if not check_attribute(attribute, self.nbytes, what):
                raise FileError(f"{what} is {attribute.dtype}, need text")
            return self.h5.attrs[name]


def check_attribute(attribute: Any, nbytes: int, what: str) -> bool:
    """Check the size of an attribute in a file of nbytes bytes; return whether it is text."""
    dtype = attribute.dtype
    # texts of variable length are stored elsewhere, each perhaps as long as the file
    each = nbytes if dtype.kind == "O" else dtype.itemsize
    check_claim(math.prod(attribute.shape) * each, nbytes, what)
    return dtype.kind == "S" or import_h5py(what).check_string_dtype(dtype) is not None


def _text(value: Any, what: str) -> str:
    with hdf5_errors(what):
        return value.decode() if isinstance(value, bytes) else str(value)


def write_texts(h5: Any, name: str, texts: Sequence[str]) -> None:
    """Write a list of texts as an attribute, or a long list as several, as Group.texts() reads."""
    array = np.array([text.encode() for text in texts]) if texts else np.empty(0)
    parts = -(-array.nbytes // _ATTRIBUTE) if texts else 1
    for k, part in enumerate(np.array_split(array, parts)):
        h5.attrs[f"{name}{k}" if parts > 1 else name] = part


# ---------------------------------------------------------------------------------------- opening


@contextmanager
def open_hdf5(source: Path | bytes, what: str = "") -> Iterator[Group]:
    """Yield the tree of an HDF5 file, or of one in memory. what: its name in messages.

    All of it has been checked: hard links only and one to each object, no dataset in another file,
    no size that check_claim() refuses. Raises FileError otherwise, or if the file is malformed;
    MissingExtraError if h5py is not installed.
    """
    what = what or str(source)
    h5py = import_h5py(f"{what}: an HDF5 file")
    with ExitStack() as stack:
        stack.enter_context(h5py._hl.base.phil)
        stack.enter_context(_no_plugins(h5py))
        with hdf5_errors(what):
            if isinstance(source, bytes):
                file: Any = io.BytesIO(source)
            else:
                file = stack.enter_context(open(source, "rb"))
            h5 = h5py.File(file, "r")  # which gets no path
            stack.callback(_close, h5, what)
            size = file.seek(0, io.SEEK_END)
            root = _Walk(h5py, what, size).group(h5, "", 0)
        yield root


def _close(h5: Any, what: str) -> None:
    with hdf5_errors(what):
        h5.close()


@contextmanager
def new_hdf5(file: Output | IO[bytes], what: str = "an HDF5 file") -> Iterator[Any]:
    """Yield a new HDF5 file of h5py's. what: its name in messages."""
    h5py = import_h5py(what)
    with hdf5_errors(what), ExitStack() as files:
        if isinstance(file, Output):  # libhdf5 itself wants a file that has a name
            file = files.enter_context(open(file, "w+b"))
        yield files.enter_context(h5py.File(file, "w"))


def import_h5py(what: str) -> Any:
    """Return the package h5py. Raises MissingExtraError if it is not installed."""
    try:
        import h5py  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise missing("h5py", "h5", what) from None
    return h5py


@contextmanager
def hdf5_errors(what: str) -> Iterator[None]:
    """Turn the errors that h5py raises for a malformed file into a FileError."""
    try:
        yield
    except (FileError, MemoryError):
        raise
    except Exception as error:
        raise FileError(f"{what}: {error or type(error).__name__}") from None


@contextmanager
def _no_plugins(h5py: Any) -> Iterator[None]:
    """Take libhdf5's folders of plugins away. It would load libraries from them for filters, which
    groups too may be stored through, and all of them for a file that it cannot open."""
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
    """Checks every object of a file once."""

    def __init__(self, h5py: Any, what: str, size: int) -> None:
        self.h5py, self.what, self.size = h5py, what, size
        self.seen: dict[Any, str] = {}
        self.claimed = 0

    def group(self, h5: Any, path: str, depth: int) -> Group:
        if depth > _DEPTH:
            raise FileError(f"{self.what}: {path[:80]!r}... is {depth} groups deep: refused")
        found = Group(path or "/", h5, self.size)
        for name in h5:
            child = f"{path}/{name}"
            if not isinstance(h5.get(name, getlink=True), self.h5py.HardLink):
                raise FileError(f"{self.what}: {child!r} is a link to another place: refused")
            opened = h5[name]
            self._once(self.h5py.h5o.get_info(opened.id), child)
            if isinstance(opened, self.h5py.Group):
                found.groups[name] = self.group(opened, child, depth + 1)
            elif isinstance(opened, self.h5py.Dataset):
                found.datasets[name] = self._dataset(opened, child)
        return found

    def _once(self, info: Any, path: str) -> None:
        """Refuse a second hard link: it could close a circle, and many could multiply the tree."""
        key = (info.fileno, info.addr)
        if key in self.seen:
            raise FileError(f"{self.what}: {path!r} is the same as {self.seen[key]!r}: refused")
        self.seen[key] = path

    def _dataset(self, h5: Any, path: str) -> Dataset:
        what, properties = f"{self.what}: {path!r}", h5.id.get_create_plist()
        # first of all: asking a virtual dataset for its shape opens the files that it names
        is_virtual = properties.get_layout() == self.h5py.h5d.VIRTUAL
        if is_virtual or properties.get_external_count():
            raise FileError(f"{what} is stored in another file: refused as unsafe")
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
    """Return the dtype. Keras stores bfloat16 as two opaque bytes, and its name in an attribute."""
    if h5.dtype.kind == "V" and h5.dtype.itemsize == 2 and "dtype" in h5.attrs:
        attribute = h5.attrs.get_id("dtype")
        if attribute.shape == () and h5.attrs["dtype"] in ("bfloat16", b"bfloat16"):
            return "bfloat16"
    return str(h5.dtype.newbyteorder("="))


# ----------------------------------------------------------------------------------------- chunks


def _read_chunks(h5: Any, path: str) -> np.ndarray:
    """Return a dataset in chunks, plain or deflated, without using libhdf5's filters."""
    properties = h5.id.get_create_plist()
    filters = [properties.get_filter(k)[0] for k in range(properties.get_nfilters())]
    if unknown := [f for f in filters if f not in (_DEFLATE, _SHUFFLE)]:
        raise FileError(
            f"{path}: HDF5 filter {unknown[0]} is not supported: h5repack -f NONE removes it"
        )
    array = np.full(h5.shape, h5.fillvalue, h5.dtype)
    stored: list[Any] = []
    if array.size and h5.id.get_num_chunks():
        h5.id.chunk_iter(stored.append)
    for chunk in stored:
        if chunk.size > h5.id.get_storage_size():
            raise FileError(f"{path}: a chunk is longer than all of them together")
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
