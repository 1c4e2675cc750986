"""A copy of an HDF5 file with some of it changed.

libhdf5 must not write to a file that cannot be trusted, nor copy its objects directly, because a
damaged object can crash it. So everything is copied through arrays, one part at a time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rnnlayout._files.bags.bag import CHUNK_NBYTES
from rnnlayout._model.errors import FileError

from .hdf5 import Dataset, Group, check_attribute, import_h5py


def copy_tree(group: Group, new: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """Copy the attributes, datasets and groups of a group into a new one of h5py's.

    arrays: the new ones, by path. Raises FileError if it is damaged or has what Keras never writes.
    """
    _copy_attributes(group.path, group.h5, new, group.nbytes)
    for name, data in group.datasets.items():
        array = arrays.get(data.path)
        copy = _copy(data, new, name) if array is None else _replace(data, new, name, array)
        _copy_attributes(data.path, data.h5, copy, group.nbytes)
    for name, inner in group.groups.items():
        copy_tree(inner, new.create_group(name), arrays)


def _copy(data: Dataset, new: Any, name: str) -> Any:
    old = data.h5
    if old.dtype.kind not in "fiubSV" or old.dtype.names:
        raise FileError(f"{data.path} is {old.dtype}, which cannot be copied")
    if old.shape is None:
        return new.create_dataset(name, data=import_h5py(name).Empty(old.dtype))
    if old.chunks is not None:
        array = data.bits()  # which undoes the filters
        array = array.view(old.dtype) if data.dtype == "bfloat16" else array
        storage = {**_storage(old, old.chunks), "maxshape": old.maxshape}
        return new.create_dataset(name, data=array, dtype=old.dtype, **storage)
    copy = new.create_dataset(name, old.shape, old.dtype)
    if not old.shape:
        copy[()] = old[()]
    elif old.size:
        row = old.dtype.itemsize * math.prod(old.shape[1:])
        step = max(1, CHUNK_NBYTES // row)
        for at in range(0, old.shape[0], step):
            copy[at : at + step] = old[at : at + step]
    return copy


def _replace(data: Dataset, new: Any, name: str, array: np.ndarray) -> Any:
    chunks = data.h5.chunks
    if chunks is not None and array.shape != data.shape:
        chunks = True  # h5py chooses
    return new.create_dataset(name, data=array, **_storage(data.h5, chunks))


def _storage(old: Any, chunks: Any) -> dict[str, Any]:
    """Return the options with which a dataset is stored."""
    options = {"compression": old.compression, "compression_opts": old.compression_opts}
    return {**options, "shuffle": old.shuffle, "chunks": chunks}


def _copy_attributes(path: str, old: Any, new: Any, nbytes: int) -> None:
    """Copy the attributes of an object. nbytes: the size of the file."""
    h5py = import_h5py(path)
    for name in old.attrs:
        attribute, what = old.attrs.get_id(name), f"{path}: attribute {name!r}"
        if attribute.shape is None:
            new.attrs[name] = h5py.Empty(attribute.dtype)
            continue
        if not check_attribute(attribute, nbytes, what) and attribute.dtype.kind not in "fiub":
            raise FileError(f"{what} is {attribute.dtype}, which cannot be copied")
        new.attrs.create(name, old.attrs[name], attribute.shape, attribute.dtype)
