"""A copy of an HDF5 file with some of it changed.

libhdf5 must not write to a file that cannot be trusted, nor copy its objects directly, because a
damaged object can crash it. So everything is read by rnnlayout, one part at a time, and written to
a new file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rnnlayout._files.formats.hdf5.datasets import DEFLATE, SHUFFLE, StoredArray
from rnnlayout._files.formats.hdf5.types import Hdf5Type
from rnnlayout._files.tensor_sets.tensor_set import CHUNK_NBYTES
from rnnlayout._model.errors import FileError

from .hdf5_tree import Hdf5Dataset, Hdf5Group, ObjectAttributes
from .hdf5_write import import_h5py


def copy_tree(group: Hdf5Group, new: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """Copy the attributes, datasets and groups of a group into a new one of h5py's.

    arrays: the new ones, by path. Raises FileError if it is damaged or has what Keras never writes.
    """
    _copy_attributes(group.attributes, new)
    for name, data in group.datasets.items():
        array = arrays.get(data.path)
        copy = (
            _copy_dataset(data, new, name)
            if array is None
            else _replace_dataset(data, new, name, array)
        )
        _copy_attributes(data.attributes, copy)
    for name, inner in group.groups.items():
        copy_tree(inner, new.create_group(name), arrays)


def _copy_dataset(data: Hdf5Dataset, new: Any, name: str) -> Any:
    old = data.stored
    if old.type.dtype is None or old.type.is_variable:
        raise FileError(f"{data.attributes.what} is {old.type.name}, which cannot be copied")
    dtype = _h5py_dtype(old.type)
    if old.shape is None:
        return new.create_dataset(name, data=import_h5py().Empty(dtype))
    if grid := old.place.grid:
        storage = {**_storage_options(old, grid.chunk), "maxshape": old.most}
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
    grid = data.stored.place.grid
    chunks: Any = grid and grid.chunk
    if chunks is not None and array.shape != data.shape:
        chunks = True  # h5py chooses
    return new.create_dataset(name, data=array, **_storage_options(data.stored, chunks))


def _storage_options(old: StoredArray, chunks: Any) -> dict[str, Any]:
    """Return the options with which a dataset is stored."""
    filters = {one.number: one.values for one in old.filters}
    options: dict[str, Any] = {"chunks": chunks, "shuffle": SHUFFLE in filters}
    if DEFLATE in filters:
        options |= {"compression": "gzip", "compression_opts": next(iter(filters[DEFLATE]), None)}
    return options


def _copy_attributes(old: ObjectAttributes, new: Any) -> None:
    """Copy the attributes of an object."""
    for name, attribute in old.by_name.items():
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
