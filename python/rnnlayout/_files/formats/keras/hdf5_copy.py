"""A new HDF5 file with what another holds, some of it changed.

libhdf5 must not write to a file that nobody vouches for, nor copy its objects as they are: it can
crash over a damaged one. So all that goes over goes through arrays, a part at a time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rnnlayout._files.bags.bag import CHUNK_NBYTES
from rnnlayout._files.bags.limits import check_claim
from rnnlayout._model.errors import FileError

from .hdf5 import Dataset, Group, import_h5py


def copy_tree(group: Group, new: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """Put the attributes, datasets and groups of a group into a new one of h5py's.

    arrays: by path, those that take the place of others. FileError: what no file of Keras has, or
    damaged.
    """
    _copy_attributes(group.path, group.h5, new, group.nbytes)
    for name, data in group.datasets.items():
        array = arrays.get(data.path)
        made = _copy(data, new, name) if array is None else _replace(data, new, name, array)
        _copy_attributes(data.path, data.h5, made, group.nbytes)
    for name, inner in group.groups.items():
        copy_tree(inner, new.create_group(name), arrays)


def _copy(data: Dataset, new: Any, name: str) -> Any:
    old = data.h5
    if old.dtype.kind not in "fiubSV" or old.dtype.names:
        raise FileError(f"{data.path} is {old.dtype}, which is not copied here")
    if old.shape is None:
        return new.create_dataset(name, data=import_h5py(name).Empty(old.dtype))
    if old.chunks is not None:
        carried = data.bits()  # which knows the filters
        carried = carried.view(old.dtype) if data.dtype == "bfloat16" else carried
        how = {**_how(old, old.chunks), "maxshape": old.maxshape}
        return new.create_dataset(name, data=carried, dtype=old.dtype, **how)
    made = new.create_dataset(name, old.shape, old.dtype)
    if not old.shape:
        made[()] = old[()]
    elif old.size:
        row = old.dtype.itemsize * math.prod(old.shape[1:])
        step = max(1, CHUNK_NBYTES // row)
        for at in range(0, old.shape[0], step):
            made[at : at + step] = old[at : at + step]
    return made


def _replace(data: Dataset, new: Any, name: str, array: np.ndarray) -> Any:
    chunks = data.h5.chunks
    if chunks is not None and array.shape != data.shape:
        chunks = True  # as h5py thinks best
    return new.create_dataset(name, data=array, **_how(data.h5, chunks))


def _how(old: Any, chunks: Any) -> dict[str, Any]:
    """How a dataset is stored."""
    how = {"compression": old.compression, "compression_opts": old.compression_opts}
    return {**how, "shuffle": old.shuffle, "chunks": chunks}


def _copy_attributes(path: str, old: Any, new: Any, nbytes: int) -> None:
    """nbytes: of the file."""
    h5py = import_h5py(path)
    for name in old.attrs:
        attribute, what = old.attrs.get_id(name), f"{path}: attribute {name!r}"
        dtype, shape = attribute.dtype, attribute.shape
        if shape is None:
            new.attrs[name] = h5py.Empty(dtype)
            continue
        is_text = h5py.check_string_dtype(dtype) is not None
        if dtype.kind not in "fiub" and not is_text:
            raise FileError(f"{what} is {dtype}, which is not copied here")
        # texts of no fixed length lie elsewhere, each perhaps as long as the file
        each = nbytes if dtype.kind == "O" else dtype.itemsize
        check_claim(math.prod(shape) * each, nbytes, what)
        new.attrs.create(name, old.attrs[name], shape, dtype)
