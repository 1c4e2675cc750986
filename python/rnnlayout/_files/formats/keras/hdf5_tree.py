"""HDF5 files of Keras as a tree of groups and datasets.

rnnlayout reads HDF5 without libhdf5, which loops forever on some damaged files. The whole tree is
checked when a file is opened, before any array is read. The format can name further files (links,
external and virtual datasets) and code (filters); both are refused.

h5py writes new files, and copies with some arrays changed. libhdf5 must not write to an untrusted
file, nor copy the file's objects directly, because a damaged object can crash libhdf5. So rnnlayout
reads everything, part by part, and writes to a new file.
"""

from __future__ import annotations

import io
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import IO, Any

import numpy as np

from rnnlayout._files.formats.hdf5.bounded import (
    BoundedFile,
    Hdf5Type,
    HeaderMessages,
    MessageKind,
    name_damaged,
    nelems,
    root_address,
)
from rnnlayout._files.formats.hdf5.objects import (
    DEFLATE,
    OF_GROUPS,
    SHUFFLE,
    Hdf5Attribute,
    StoredArray,
    read_attributes,
    read_links,
    read_stored_array,
)
from rnnlayout._files.tensor_sets.file_limits import Budget, InputFile
from rnnlayout._files.tensor_sets.output_file import Output, full_disk_error, ran_out_of_memory
from rnnlayout._files.tensor_sets.record import KEY, Record, write_records
from rnnlayout._files.tensor_sets.tensor_set import CHUNK_NBYTES, FileTensor
from rnnlayout._model.errors import Error, FileError, import_extra

_DEPTH = 64  # groups in groups: more than any real file has, and few enough for Python's stack


@dataclass(frozen=True)
class Hdf5Object:
    """A group or a dataset with its attributes. label: the object's name in messages."""

    path: str
    label: str
    attributes: Mapping[str, Hdf5Attribute]

    def text(self, name: str) -> str | None:
        """Return an attribute that is a single text, None if no attribute has the name."""
        if name not in self.attributes:
            return None
        if self.attributes[name].shape != ():
            raise FileError(f"{self.label}: attribute {name!r} is a list, need one text")
        return "".join(self.texts(name) or ())

    def texts(self, name: str) -> list[str] | None:
        """Return an attribute that is a list of texts, None if no attribute has the name. Keras
        splits a list of more than 64 KiB into `name0`, `name1` ..."""
        parts = takewhile(self.attributes.__contains__, (f"{name}{k}" for k in count()))
        names = [name] if name in self.attributes else [*parts]
        texts: list[str] = []
        for part in names:
            attribute = self.attributes[part]
            if not nelems(attribute.shape):
                continue
            if not attribute.type.charset:
                raise FileError(
                    f"{self.label}: attribute {part!r} is {attribute.type.name}, need text"
                )
            try:
                texts += [text.decode() for text in attribute.values.reshape(-1).tolist()]
            except UnicodeDecodeError as error:
                raise FileError(f"{self.label}: attribute {part!r}: {error}") from None
        return texts if names else None


@dataclass(frozen=True)
class Hdf5Dataset(Hdf5Object):
    """An array of a file. The array is read by bits()."""

    stored: StoredArray

    @property
    def dtype(self) -> str:
        """The name of the array's dtype or HDF5 type. Keras stores a bfloat16 as two opaque bytes,
        and the name bfloat16 in an attribute."""
        if self.stored.shape is None:
            return "nothing"
        name = self.stored.type.name
        if name == "|V2" and (attribute := self.attributes.get("dtype")) is not None:
            is_text = attribute.type.charset and attribute.shape == ()
            if is_text and attribute.values.item() == b"bfloat16":
                return "bfloat16"
        return name

    def bits(self) -> np.ndarray:
        """Return the array, bfloat16 as uint16. Raises FileError if the array is damaged or does
        not consist of numbers."""
        kind = self.stored.type
        if self.dtype == "bfloat16":
            return self.stored.read().view(np.uint16)
        if kind.dtype is None or kind.dtype.kind not in "fiub":
            raise FileError(f"{self.label} is {kind.name}, need an array of numbers")
        array = self.stored.read()
        return array.astype(array.dtype.newbyteorder("="), copy=False)

    @property
    def tensor(self) -> FileTensor:
        budget = self.stored.source.budget
        return FileTensor(self.dtype, self.stored.shape or (), self.bits, budget=budget)


@dataclass(frozen=True)
class Hdf5Group(Hdf5Object):
    """A group of a file. budget: of the file."""

    budget: Budget
    groups: dict[str, Hdf5Group] = field(default_factory=dict)
    datasets: dict[str, Hdf5Dataset] = field(default_factory=dict)

    def group(self, path: str) -> Hdf5Group | None:
        """Return the group at a path below this group, None if no group has the path."""
        group: Hdf5Group | None = self
        for name in path.split("/") if path else ():  # a//b is not a name of a/b
            group = group.groups.get(name) if group else None
        return group

    def dataset(self, path: str) -> Hdf5Dataset | None:
        """Return the dataset at a path below this group, None if no dataset has the path."""
        folder, _, name = path.rpartition("/")
        group = self.group(folder)
        return group.datasets.get(name) if group else None

    def all_datasets(self) -> Iterator[Hdf5Dataset]:
        yield from self.datasets.values()
        for group in self.groups.values():
            yield from group.all_datasets()


# ---------------------------------------------------------------------------------------- opening


@contextmanager
def open_hdf5(source: InputFile | bytes, budget: Budget, label: str = "") -> Iterator[Hdf5Group]:
    """Yield the tree of an HDF5 file, on disk or in memory.

    budget: of the file, or of the archive with the file. label: the file's name in messages, by
    default the budget's name.

    The whole tree has been checked: all links are hard, each object has a single link, no dataset
    is in a second file, and all sizes are in the budget. Raises FileError otherwise, or if the file
    is malformed."""
    with io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb") as file:
        yield _read_hdf5_tree(BoundedFile(file, budget), label or budget.name)


def _read_hdf5_tree(file: BoundedFile, label: str) -> Hdf5Group:
    """Return the tree, after checking every object once."""
    with name_damaged(label):
        at = root_address(file)
        messages = HeaderMessages(file, at)
    with name_damaged(f"{label}: '/'"):
        attributes = read_attributes(file, messages, f"{label}: /")
        root = Hdf5Group("/", f"{label}: /", attributes, file.budget)
    paths = {at: "/"}
    waiting = [(root, messages, 0)]
    while waiting:
        group, messages, depth = waiting.pop()
        if depth > _DEPTH:
            raise FileError(f"{label}: {group.path[:80]!r}... is {depth} groups deep: refused")
        with name_damaged(f"{label}: {group.path!r}"):
            links = read_links(file, messages)
        for link in links:
            path = f"{group.path.rstrip('/')}/{link.name}"
            object_label = f"{label}: {path}"
            file.budget.charge("names", len(path))
            if link.at is None:
                raise FileError(f"{label}: {path!r} is a link to another place: refused")
            # A second link could close a circle, and many links could multiply the tree.
            if link.at in paths:
                raise FileError(f"{label}: {path!r} is the same as {paths[link.at]!r}: refused")
            paths[link.at] = path
            with name_damaged(f"{label}: {path!r}"):
                messages = HeaderMessages(file, link.at)
                is_dataset = MessageKind.LAYOUT in messages
                if not is_dataset and OF_GROUPS.isdisjoint(messages):
                    continue
                stored = read_stored_array(file, messages, object_label) if is_dataset else None
                arguments = path, object_label, read_attributes(file, messages, object_label)
            if stored:
                group.datasets[link.name] = Hdf5Dataset(*arguments, stored)
            else:
                group.groups[link.name] = inner = Hdf5Group(*arguments, file.budget)
                waiting.append((inner, messages, depth + 1))
    return root


# ------------------------------------------------------------------------------------------ writing

_RECORD_PART = 1000  # characters
_ATTRIBUTE = 60_000  # bytes; libhdf5 limits an attribute to a little less than 64 KiB


@contextmanager
def new_hdf5(file: Output | IO[bytes], label: str = "an HDF5 file") -> Iterator[Any]:
    """Yield a new h5py.File. label: the file's name in messages. Errors of h5py become a FileError,
    except the error of a full disk. Raises MissingExtraError if h5py is not installed."""
    h5py = import_extra("h5py", "h5", "writing an HDF5 file")
    try:
        with ExitStack() as files:
            if isinstance(file, Output):  # libhdf5 needs a file that has a name
                file = files.enter_context(open(file, "w+b"))
            yield files.enter_context(h5py.File(file, "w"))
    except (Error, MemoryError):
        raise
    except Exception as error:
        if full_disk_error(error):
            raise
        if ran_out_of_memory(error):
            raise MemoryError from None
        raise FileError(f"{label}: {error or type(error).__name__}") from None


def write_texts(h5: Any, name: str, texts: Sequence[str]) -> None:
    """Write a list of texts as an attribute, or a long list as several attributes. The inverse of
    Hdf5Object.texts()."""
    array = np.array([text.encode() for text in texts]) if texts else np.empty(0)
    parts = -(-array.nbytes // _ATTRIBUTE) if texts else 1
    for k, part in enumerate(np.array_split(array, parts)):
        h5.attrs[f"{name}{k}" if parts > 1 else name] = part


def write_record_attribute(h5: Any, records: Mapping[str, Record]) -> None:
    """Write the records of RNNs as an attribute of the root, which Keras ignores. The text is
    written in parts, because libhdf5 limits the size of a text."""
    for name in [name for name in h5.attrs if re.fullmatch(rf"{KEY}\d*", name)]:
        del h5.attrs[name]  # copied from the old file
    text = write_records(records)[KEY]
    parts = [text[at : at + _RECORD_PART] for at in range(0, len(text), _RECORD_PART)]
    write_texts(h5, KEY, parts)


def copy_tree(group: Hdf5Group, new: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """Copy the attributes, datasets and groups of a group into a new group of h5py. arrays: the
    changed arrays, by path. Raises FileError if the group is damaged or has types that Keras never
    writes."""
    _copy_attributes(group, new)
    for name, dataset in group.datasets.items():
        array, chunk = arrays.get(dataset.path), dataset.stored.place.chunk
        if array is None:
            copy = _copy_dataset(dataset, new, name)
        else:  # for a new shape, h5py chooses the chunks
            chunks = chunk if array.shape == dataset.stored.shape else bool(chunk)
            options = _storage_options(dataset.stored, chunks or None)
            copy = new.create_dataset(name, data=array, **options)
        _copy_attributes(dataset, copy)
    for name, inner in group.groups.items():
        copy_tree(inner, new.create_group(name), arrays)


def _copy_dataset(dataset: Hdf5Dataset, new: Any, name: str) -> Any:
    old = dataset.stored
    if old.type.dtype is None or old.type.dtype.hasobject:
        raise FileError(f"{dataset.label} is {old.type.name}, which cannot be copied")
    dtype = _h5py_dtype(old.type)
    if old.shape is None:
        return new.create_dataset(name, data=sys.modules["h5py"].Empty(dtype))
    if old.place.chunk:
        storage = {**_storage_options(old, old.place.chunk), "maxshape": old.max_shape}
        return new.create_dataset(name, data=old.read(), dtype=dtype, **storage)
    copy = new.create_dataset(name, old.shape, dtype)
    if not old.shape:
        copy[()] = old.read()
    elif math.prod(old.shape):
        row = old.type.nbytes * math.prod(old.shape[1:])
        step = max(1, CHUNK_NBYTES // row)
        for at in range(0, old.shape[0], step):
            copy[at : at + step] = old.read(at, min(at + step, old.shape[0]))
    return copy


def _storage_options(old: StoredArray, chunks: Any) -> dict[str, Any]:
    filters = dict(old.filters)
    options: dict[str, Any] = {"chunks": chunks, "shuffle": SHUFFLE in filters}
    if DEFLATE in filters:
        options |= {"compression": "gzip", "compression_opts": next(iter(filters[DEFLATE]), None)}
    return options


def _copy_attributes(old: Hdf5Object, new: Any) -> None:
    for name, attribute in old.attributes.items():
        if attribute.type.dtype is None or attribute.type.dtype.kind == "V":
            label = f"{old.label}: attribute {name!r}"
            raise FileError(f"{label} is {attribute.type.name}, which cannot be copied")
        dtype = _h5py_dtype(attribute.type)
        if attribute.shape is None:
            new.attrs[name] = sys.modules["h5py"].Empty(dtype)
        else:
            new.attrs.create(name, attribute.values, attribute.shape, dtype)


def _h5py_dtype(old: Hdf5Type) -> Any:
    """Return the dtype for h5py, which knows the character set of a text."""
    if not old.charset:
        return old.dtype
    length = None if old.dtype == object else old.nbytes
    return sys.modules["h5py"].string_dtype(old.charset, length)
