"""HDF5 files for Keras, written with h5py: new ones, and copies with some of it changed.

libhdf5 must not write to a file that cannot be trusted, nor copy its objects directly, because a
damaged object can crash it. So everything is read by rnnlayout, one part at a time, and written to
a new file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, Any

import numpy as np

from rnnlayout._files.formats.hdf5.datasets import DEFLATE, SHUFFLE, StoredArray
from rnnlayout._files.formats.hdf5.types import Hdf5Type
from rnnlayout._files.tensor_sets.output_file import Output, full_disk_error
from rnnlayout._files.tensor_sets.record import KEY, Record, write_records
from rnnlayout._files.tensor_sets.tensor_set import CHUNK_NBYTES
from rnnlayout._model.errors import FileError, import_extra
from rnnlayout._native import Error

from .hdf5_tree import Hdf5Dataset, Hdf5Group, Hdf5Object

_RECORD_PART = 1000  # characters
_ATTRIBUTE = 60_000  # bytes; libhdf5 stores a little less than 64 KiB in one


@contextmanager
def new_hdf5(file: Output | IO[bytes], what: str = "an HDF5 file") -> Iterator[Any]:
    """Yield a new HDF5 file of h5py's. what: the file's name in messages.

    Errors of h5py become a FileError, except that of a full disk. Raises MissingExtraError if h5py
    is not installed.
    """
    h5py = import_h5py()
    try:
        with ExitStack() as files:
            if isinstance(file, Output):  # libhdf5 itself wants a file that has a name
                file = files.enter_context(open(file, "w+b"))
            yield files.enter_context(h5py.File(file, "w"))
    except (Error, MemoryError):
        raise
    except Exception as error:
        if full_disk_error(error):
            raise
        raise FileError(f"{what}: {error or type(error).__name__}") from None


def import_h5py() -> Any:
    """Return the package h5py. Raises MissingExtraError if it is not installed."""
    return import_extra("h5py", "h5", "writing an HDF5 file")


def write_texts(h5: Any, name: str, texts: Sequence[str]) -> None:
    """Write a list of texts as an attribute, or a long list as several, as Hdf5Object.texts()
    reads.
    """
    array = np.array([text.encode() for text in texts]) if texts else np.empty(0)
    parts = -(-array.nbytes // _ATTRIBUTE) if texts else 1
    for k, part in enumerate(np.array_split(array, parts)):
        h5.attrs[f"{name}{k}" if parts > 1 else name] = part


def write_record_attribute(h5: Any, records: Mapping[str, Record]) -> None:
    """Write the records of RNNs as an attribute of the root, which Keras ignores.

    It is in parts: libhdf5 limits its size.
    """
    for name in [name for name in h5.attrs if re.fullmatch(rf"{KEY}\d*", name)]:
        del h5.attrs[name]  # of the file that it is a copy of
    text = write_records(records)[KEY]
    parts = [text[at : at + _RECORD_PART] for at in range(0, len(text), _RECORD_PART)]
    write_texts(h5, KEY, parts)


def copy_tree(group: Hdf5Group, new: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """Copy the attributes, datasets and groups of a group into a new one of h5py's.

    arrays: the new ones, by path. Raises FileError if it is damaged or has what Keras never writes.
    """
    _copy_attributes(group, new)
    for name, data in group.datasets.items():
        array = arrays.get(data.path)
        copy = (
            _copy_dataset(data, new, name)
            if array is None
            else _replace_dataset(data, new, name, array)
        )
        _copy_attributes(data, copy)
    for name, inner in group.groups.items():
        copy_tree(inner, new.create_group(name), arrays)


def _copy_dataset(data: Hdf5Dataset, new: Any, name: str) -> Any:
    old = data.stored
    if old.type.dtype is None or old.type.is_variable:
        raise FileError(f"{data.what} is {old.type.name}, which cannot be copied")
    dtype = _h5py_dtype(old.type)
    if old.shape is None:
        return new.create_dataset(name, data=import_h5py().Empty(dtype))
    if old.place.chunk:
        storage = {**_storage_options(old, old.place.chunk), "maxshape": old.most}
        return new.create_dataset(name, data=data.read(), dtype=dtype, **storage)
    copy = new.create_dataset(name, old.shape, dtype)
    if not old.shape:
        copy[()] = data.read()
    elif math.prod(old.shape):
        row = old.type.nbytes * math.prod(old.shape[1:])
        step = max(1, CHUNK_NBYTES // row)
        for at in range(0, old.shape[0], step):
            copy[at : at + step] = data.read(at, min(at + step, old.shape[0]))
    return copy


def _replace_dataset(data: Hdf5Dataset, new: Any, name: str, array: np.ndarray) -> Any:
    chunks: Any = data.stored.place.chunk or None
    if chunks and array.shape != data.shape:
        chunks = True  # h5py chooses
    return new.create_dataset(name, data=array, **_storage_options(data.stored, chunks))


def _storage_options(old: StoredArray, chunks: Any) -> dict[str, Any]:
    """Return the options with which a dataset is stored."""
    filters = dict(old.filters)
    options: dict[str, Any] = {"chunks": chunks, "shuffle": SHUFFLE in filters}
    if DEFLATE in filters:
        options |= {"compression": "gzip", "compression_opts": next(iter(filters[DEFLATE]), None)}
    return options


def _copy_attributes(old: Hdf5Object, new: Any) -> None:
    """Copy the attributes of an object."""
    for name, attribute in old.attributes.items():
        if attribute.type.dtype is None or attribute.type.dtype.kind == "V":
            what = f"{old.what}: attribute {name!r}"
            raise FileError(f"{what} is {attribute.type.name}, which cannot be copied")
        dtype = _h5py_dtype(attribute.type)
        if attribute.shape is None:
            new.attrs[name] = import_h5py().Empty(dtype)
        else:
            new.attrs.create(name, old.values(name), attribute.shape, dtype)


def _h5py_dtype(old: Hdf5Type) -> Any:
    """Return the dtype for h5py, which knows the character set of a text."""
    if old.charset is None:
        return old.dtype
    length = None if old.is_variable else old.nbytes
    return import_h5py().string_dtype(old.charset, length)
