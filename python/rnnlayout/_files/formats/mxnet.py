""".params: arrays from MXNet 1, with or without names.

mx.nd.save(), HybridBlock.export() ("arg:" before the names), Block.save_parameters()
(NDArray::Save in src/ndarray/ndarray.cc, 1.9.1). Gluon has two names for a parameter of an RNN:
net0_lstm0_l0_i2h_weight, and 0._unfused.0.l_cell.i2h_weight of save_parameters(). Both become the
name in layout mxnet-gluon after a dot. MXNet 2 writes .npz files with the suffix .params.
"""

from __future__ import annotations

import math
import re
import struct

from rnnlayout._files.tensor_sets.file_limits import InputFile
from rnnlayout._files.tensor_sets.tensor_set import FileTensor, TensorSet, sizes_of, stored_tensor
from rnnlayout._model.dtypes import storage_dtype
from rnnlayout._model.errors import FileError

from . import npz
from .content import MXNET, ZIP
from .registry import TensorFormat

_V1, _V2, _V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
_DTYPES = {
    0: "float32",
    1: "float64",
    2: "float16",
    3: "uint8",
    4: "int32",
    5: "int8",
    6: "int64",
    7: "bool",
    8: "int16",
    9: "uint16",
    10: "uint32",
    11: "uint64",
    12: "bfloat16",
}
_LONGEST = 1000  # bytes of a name
_KIND = re.compile(r"(?:arg|aux):")
_LAYER = re.compile(r"(?:(.*)[._])?([lr]\d+_(?:i2h|h2h|h2r)_(?:weight|bias))")
_UNFUSED = re.compile(r"(?:(.*)\.)?_unfused\.(\d+)\.(?:([lr])_cell\.)?([ih]2[hr]_(?:weight|bias))")


def _read_params(file: InputFile) -> TensorSet:
    data = memoryview(file.data())
    if data[:4] == ZIP:
        return npz.FORMAT.read(file)
    if data[: len(MXNET)] != MXNET:
        raise FileError(f"{file} is not a file of arrays that MXNet wrote")
    reader = _ParamsReader(data, file)
    tensors = [reader.tensor(k) for k in range(*reader.numbers("Q"))]
    names = [reader.name() for _ in range(*reader.numbers("Q"))]
    names = names or [str(k) for k in range(len(tensors))]
    if len(names) != len(tensors):
        raise FileError(f"{file} has {len(tensors)} arrays and {len(names)} names")
    if reader.at != len(data):
        raise FileError(f"{file}: {len(data) - reader.at} bytes after its end")
    tensor_set = TensorSet({})
    for name, tensor in zip(names, tensors, strict=True):
        if tensor is not None:
            tensor_set.add(name, tensor, file)
    if not tensor_set.tensors:
        raise FileError(f"{file} has no arrays")
    return tensor_set


class _ParamsReader:
    def __init__(self, data: memoryview, file: InputFile) -> None:
        self.data, self.file, self.at = data, file, len(MXNET)

    def take(self, nbytes: int) -> memoryview:
        if nbytes > len(self.data) - self.at:
            raise FileError(f"{self.file} is cut short")
        self.at += nbytes
        return self.data[self.at - nbytes : self.at]

    def numbers(self, form: str) -> tuple[int, ...]:
        return struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))

    def name(self) -> str:
        """Return the name of a parameter; of an RNN: layer, dot, name in layout mxnet-gluon."""
        (size,) = self.numbers("Q")
        if size > _LONGEST:
            raise FileError(f"{self.file}: a name of {size} bytes: refused")
        name = _KIND.sub("", str(self.take(size), "utf-8", "backslashreplace"), count=1)
        if match := _UNFUSED.fullmatch(name):
            prefix, layer, side, tensor = match.groups()
            return f"{prefix}." * bool(prefix) + f"{side or 'l'}{layer}_{tensor}"
        if match := _LAYER.fullmatch(name):
            return ".".join(filter(None, match.groups()))
        return name

    def tensor(self, k: int) -> FileTensor | None:
        """Return an array, None for an empty array."""
        label = f"{self.file}: array {k}"
        (magic,) = self.numbers("I")
        if magic not in (_V1, _V2, _V3):
            raise FileError(
                f"{label} was written by MXNet 0.x, or is damaged: load it with MXNet 1"
            )
        if magic != _V1 and self.numbers("i") != (0,):
            raise FileError(f"{label} is sparse: make it dense with .tostype('default')")
        (ndim,) = self.numbers("i")
        if ndim < 0 or (ndim == 0 and magic != _V3):
            return None
        if ndim > 32:
            raise FileError(f"{label} has {ndim} dimensions, at most 32 are possible")
        shape = self.numbers(f"{ndim}q")
        _, _, kind = self.numbers("iii")  # the first two: the device of the array
        if min(shape, default=0) < 0 or kind not in _DTYPES:
            raise FileError(f"{label}: shape {shape} or dtype {kind} is damaged")
        dtype, count = _DTYPES[kind], math.prod(sizes_of(shape, label))
        bits = self.take(count * storage_dtype(dtype).itemsize)
        return stored_tensor(dtype, shape, bits, label)


FORMAT = TensorFormat(".params", _read_params, None)
