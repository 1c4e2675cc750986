"""HDF5 files of Keras as a tree of groups and datasets.

They are read by rnnlayout itself: libhdf5 loops for ever on some damaged files. The whole tree is
checked when a file is opened, before any array is read. The format can name other files (links,
external and virtual datasets) and code (filters), all of which is refused.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import count, takewhile

import numpy as np

from rnnlayout._files.formats.hdf5.attributes import (
    OF_GROUPS,
    Hdf5Attribute,
    read_attributes,
    read_links,
)
from rnnlayout._files.formats.hdf5.bounded import (
    BoundedFile,
    DamagedError,
    HeaderMessages,
    MessageKind,
    root_address,
)
from rnnlayout._files.formats.hdf5.datasets import StoredArray, read_stored_array
from rnnlayout._files.formats.hdf5.heaps import GlobalHeap
from rnnlayout._files.formats.hdf5.types import nelems
from rnnlayout._files.tensor_sets.file_limits import Budget, InputFile
from rnnlayout._files.tensor_sets.record import KEY, Record, read_records
from rnnlayout._files.tensor_sets.tensor_set import FileTensor
from rnnlayout._model.errors import FileError

_TEXT_NBYTES = 64  # of an object of Python for a text
_DEPTH = 64  # groups in groups: more than any real file has, and few enough for Python's stack


@dataclass(frozen=True)
class Hdf5Object:
    """A group or a dataset with its attributes. what: its name in messages."""

    path: str
    what: str
    heap: GlobalHeap
    attributes: Mapping[str, Hdf5Attribute]
    _read: dict[str, np.ndarray] = field(default_factory=dict, kw_only=True)

    def values(self, name: str) -> np.ndarray:
        """Return an attribute's values, text as bytes."""
        if name not in self._read:
            with _name_damaged(f"{self.what}: attribute {name!r}"):
                self._read[name] = self.attributes[name].values(self.heap)
        return self._read[name]

    def text(self, name: str) -> str | None:
        """Return an attribute that is one text, None if it does not exist."""
        if name not in self.attributes:
            return None
        if self.attributes[name].shape != ():
            raise FileError(f"{self.what}: attribute {name!r} is a list, need one text")
        return self._texts(name)[0]

    def texts(self, name: str) -> list[str] | None:
        """Return an attribute that is a list of texts, None if it does not exist.

        Keras splits a list of more than 64 KiB into `name0`, `name1` ...
        """
        if name in self.attributes:
            return self._texts(name)
        parts = [*takewhile(self.attributes.__contains__, (f"{name}{k}" for k in count()))]
        return [text for part in parts for text in self._texts(part)] if parts else None

    def _texts(self, name: str) -> list[str]:
        found = self.attributes[name]
        if found.shape is None or 0 in found.shape:
            return []
        if not found.type.is_text:
            raise FileError(f"{self.what}: attribute {name!r} is {found.type.name}, need text")
        try:
            return [text.decode() for text in self.values(name).reshape(-1).tolist()]
        except UnicodeDecodeError as error:
            raise FileError(f"{self.what}: attribute {name!r}: {error}") from None


@dataclass(frozen=True)
class Hdf5Dataset(Hdf5Object):
    """An array of a file, read when it is asked for."""

    stored: StoredArray
    shape: tuple[int, ...]
    dtype: str  # "float32" ..., or the name of another type

    def bits(self) -> np.ndarray:
        """Return the array, bfloat16 as uint16. Raises FileError if damaged, or not of numbers."""
        kind = self.stored.type
        if self.dtype != "bfloat16" and (kind.dtype is None or kind.dtype.kind not in "fiub"):
            raise FileError(f"{self.what} is {kind.name}, need an array of numbers")
        array = self.read()
        if self.dtype == "bfloat16":
            return array.view(np.uint16)
        return array.astype(array.dtype.newbyteorder("="), copy=False)

    def read(self, first: int = 0, last: int | None = None) -> np.ndarray:
        """Return the array as it is stored, or of one without chunks some of its rows."""
        with _name_damaged(self.what):
            return self.stored.read(first, last)

    @property
    def tensor(self) -> FileTensor:
        return FileTensor(self.dtype, self.shape, self.bits)


@dataclass(frozen=True)
class Hdf5Group(Hdf5Object):
    """A group of a file."""

    groups: dict[str, Hdf5Group] = field(default_factory=dict)
    datasets: dict[str, Hdf5Dataset] = field(default_factory=dict)

    def group(self, path: str) -> Hdf5Group | None:
        """Return the group at a path below this one, None if it does not exist."""
        found: Hdf5Group | None = self
        for name in path.split("/"):
            found = found.groups.get(name) if found and name else found
        return found

    def dataset(self, path: str) -> Hdf5Dataset | None:
        """Return the dataset at a path below this group, None if it does not exist."""
        folder, _, name = path.rpartition("/")
        group = self.group(folder)
        return group.datasets.get(name) if group else None

    def all_datasets(self) -> Iterator[Hdf5Dataset]:
        """Yield its datasets, and those of the groups in it."""
        yield from self.datasets.values()
        for group in self.groups.values():
            yield from group.all_datasets()


def read_record_attribute(root: Hdf5Group) -> dict[str, Record]:
    """Return rnnlayout's records by the names of the layers, {} if the file has none."""
    parts = root.texts(KEY)
    return read_records({KEY: "".join(parts)}, root.what) if parts else {}


# ---------------------------------------------------------------------------------------- opening


@contextmanager
def open_hdf5(source: InputFile | bytes, budget: Budget, what: str = "") -> Iterator[Hdf5Group]:
    """Yield the tree of an HDF5 file, or of one in memory.

    budget: of the file, or of the archive that it is in. what: its name in messages, by default
    that of the budget.

    The whole tree has been checked: it has only hard links and one to each object, no dataset is in
    another file, and all sizes are in the budget of the file. Raises FileError otherwise, or if the
    file is malformed.
    """
    with io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb") as file:
        yield _Hdf5Walk(what or budget.name, BoundedFile(file, budget)).tree()


@contextmanager
def _name_damaged(what: str) -> Iterator[None]:
    """Name what is damaged."""
    try:
        yield
    except DamagedError as error:
        raise FileError(f"{what}: {error}") from None


class _Hdf5Walk:
    """Checks every object of a file once."""

    def __init__(self, what: str, source: BoundedFile) -> None:
        self.what, self.source, self.heap = what, source, GlobalHeap(source)

    def tree(self) -> Hdf5Group:
        """Return the root, with all groups and datasets in it."""
        with _name_damaged(self.what):
            at = root_address(self.source)
            messages = HeaderMessages(self.source, at)
        with self._naming("/"):
            root = Hdf5Group(*self._own("/", messages))
        seen = {at: "/"}
        waiting = [(root, messages, 0)]
        while waiting:
            group, messages, depth = waiting.pop()
            if depth > _DEPTH:
                raise FileError(
                    f"{self.what}: {group.path[:80]!r}... is {depth} groups deep: refused"
                )
            with self._naming(group.path):
                links = read_links(self.source, messages)
            for link in links:
                path = f"{group.path.rstrip('/')}/{link.name}"
                self.source.budget.charge("names", len(path))
                if link.at is None:
                    raise FileError(f"{self.what}: {path!r} is a link to another place: refused")
                # A second link could close a circle, and many could multiply the tree.
                if link.at in seen:
                    first = seen[link.at]
                    raise FileError(f"{self.what}: {path!r} is the same as {first!r}: refused")
                seen[link.at] = path
                with self._naming(path):
                    opened = HeaderMessages(self.source, link.at)
                    if MessageKind.LAYOUT in opened:
                        group.datasets[link.name] = self._dataset(opened, path)
                    elif not OF_GROUPS.isdisjoint(opened):
                        inner = Hdf5Group(*self._own(path, opened))
                        group.groups[link.name] = inner
                        waiting.append((inner, opened, depth + 1))
        return root

    def _naming(self, path: str) -> AbstractContextManager[None]:
        return _name_damaged(f"{self.what}: {path!r}")

    def _own(
        self, path: str, messages: HeaderMessages
    ) -> tuple[str, str, GlobalHeap, dict[str, Hdf5Attribute]]:
        """Return the fields of an Hdf5Object."""
        found = read_attributes(self.source, messages)
        self._charge_texts(*found.values())
        return path, f"{self.what}: {path}", self.heap, found

    def _charge_texts(self, *arrays: Hdf5Attribute | StoredArray) -> None:
        count = sum(nelems(one.shape) for one in arrays if one.type.is_text)
        self.source.budget.charge("texts", _TEXT_NBYTES * count)

    def _dataset(self, messages: HeaderMessages, path: str) -> Hdf5Dataset:
        array, own = read_stored_array(self.source, messages), self._own(path, messages)
        if array.shape is None:
            return Hdf5Dataset(*own, array, (), "nothing")
        self.source.budget.charge("arrays", array.claims)
        self._charge_texts(array)
        dtype, named = array.type.name, Hdf5Object(*own)
        told = named.attributes.get("dtype")
        # Keras stores bfloat16 as two opaque bytes, and its name in an attribute
        is_text = told is not None and told.type.is_text and told.shape == ()
        if dtype == "|V2" and is_text and named.values("dtype").item() == b"bfloat16":
            dtype = "bfloat16"
        return Hdf5Dataset(*own, array, array.shape, dtype)
