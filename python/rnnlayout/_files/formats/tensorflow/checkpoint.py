""".index: a checkpoint of TensorFlow, with the numbers in NAME.data-00000-of-00001 beside it.

The index maps names to dtypes, shapes and places in the data (tensor_bundle.proto and
tensor_bundle.cc in tensorflow/core, 2.21). Only files whose names follow from that of the index are
opened.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from rnnlayout._files.formats.registry import TensorFormat
from rnnlayout._files.formats.safetensors import FLOAT8
from rnnlayout._files.tensor_sets.file_limits import check_numpy_shape, map_file
from rnnlayout._files.tensor_sets.tensor_set import FileTensor, TensorSet
from rnnlayout._model.dtypes import storage_dtype
from rnnlayout._model.errors import FileError

from .table import message_fields, table_entries

# DataType of tensorflow/core/framework/types.proto
_DTYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 8: "complex64",
    9: "int64", 10: "bool", 14: "bfloat16", 17: "uint16", 18: "complex128", 19: "float16",
    22: "uint32", 23: "uint64", 24: FLOAT8["float8_e5m2"], 25: FLOAT8["float8_e4m3fn"],
}  # fmt: skip
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"  # behind the path of a variable, in TensorFlow 2
_MOST_VALUES = 100  # named in what a conversion leaves out
_MOST_SHARDS = 100_000

Data = Callable[[int], memoryview]


def _read_index(path: Path) -> TensorSet:
    with open(path, "rb") as file:
        index = memoryview(map_file(file.fileno(), path))
    tensors: dict[str, FileTensor] = {}
    values: list[str] = []
    unread: dict[str, str] = {}
    data: Data | None = None
    try:
        for key, value in table_entries(index, str(path)):
            if data is None:  # the first key is empty: the header
                data = _map_shards(path, value)
                continue
            name = str(key, "utf-8", "backslashreplace").removesuffix(_VALUE)
            found = _tensor_of_entry(value, data, f"{path}: {name[:200]}")
            if name in tensors:
                raise FileError(f"{path} has {name!r} twice")
            if isinstance(found, FileTensor):
                tensors[name] = found
            elif found:
                unread[name] = found
            elif len(values) < _MOST_VALUES:
                values.append(name)
    except FileError as error:
        text = str(error)
        raise error if text.startswith(str(path)) else FileError(f"{path}: {text}") from None
    if not tensors:
        raise FileError(f"{path} has no tensors")
    notes = [f"{name} is in slices and was not read" for name in list(unread)[:3]]
    return TensorSet(tensors, notes=notes, unread=unread, values=values)


def _map_shards(path: Path, header: memoryview) -> Data:
    """Return a function that maps the file of data with a number. header: the bytes of a
    BundleHeaderProto.
    """
    told = dict(message_fields(header))
    count, big = told.get(1, 0), told.get(2, 0)
    if not isinstance(count, int) or not 0 < count <= _MOST_SHARDS or big:
        raise FileError(f"{path}: its header is damaged, or of a big-endian machine")

    @cache
    def data(number: int) -> memoryview:
        stem = path.name.removesuffix(".index")
        own = path.with_name(f"{stem}.data-{number:05d}-of-{count:05d}")
        if number >= count or not own.is_file():
            raise FileError(f"{path} needs {own.name} beside it: it does not exist")
        with open(own, "rb") as file:
            return memoryview(map_file(file.fileno(), own))

    return data


def _tensor_of_entry(value: memoryview, data: Data, what: str) -> FileTensor | str:
    """Return the tensor of a BundleEntryProto; why it was not read; "" if it has no numbers."""
    told = dict(message_fields(value))  # if an optional field occurs twice, the last one counts
    numbers = [told.get(k, 0) for k in (1, 3, 4, 5)]
    shape, message = [], told.get(2, memoryview(b""))
    if not all(isinstance(n, int) for n in numbers) or isinstance(message, int):
        raise FileError(f"{what}: its entry is damaged")
    kind, shard, begin, size = (int(n) for n in numbers if isinstance(n, int))
    for number, dim in message_fields(message):
        if number == 2 and not isinstance(dim, int):
            shape.append(dict(message_fields(dim)).get(1, 0))
    if 7 in told:
        return "a variable in slices"
    if kind not in _DTYPES:
        return ""
    sizes = tuple(n for n in shape if isinstance(n, int) and n < 1 << 63)
    if len(sizes) != len(shape) or len(sizes) > 32:
        raise FileError(f"{what}: its shape is not a list of sizes")
    check_numpy_shape(sizes, what)
    return _tensor_in_shard(_DTYPES[kind], sizes, shard, begin, size, data, what)


def _tensor_in_shard(
    dtype: str, shape: tuple[int, ...], shard: int, begin: int, size: int, data: Data, what: str
) -> FileTensor:
    is_float8 = dtype in FLOAT8.values()
    stored = np.dtype(np.uint8) if is_float8 else storage_dtype(dtype).newbyteorder("<")
    if math.prod(shape) * stored.itemsize != size:
        raise FileError(f"{what}: {size} bytes do not fit shape {shape} in {dtype}")
    if not size:
        return FileTensor(dtype, shape, lambda: np.empty(shape, stored))
    bits = data(shard)[begin : begin + size]
    if len(bits) != size:
        raise FileError(f"{what} is beyond the end of its data, which are cut short")
    if is_float8:
        return FileTensor(dtype, shape, lambda: np.frombuffer(bits, np.uint8))
    return FileTensor(dtype, shape, lambda: np.frombuffer(bits, stored).reshape(shape))


FORMAT = TensorFormat(".index", _read_index, None)
