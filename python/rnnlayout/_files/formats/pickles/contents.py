"""The tensors in the containers of a pickle, and the notes about what was not read.

NumPy's arrays and numbers are made from their bytes without NumPy's own functions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from reprlib import repr as short
from typing import Any

import numpy as np

from rnnlayout._files.tensor_sets.file_limits import InputFile
from rnnlayout._files.tensor_sets.tensor_set import FileTensor, TensorSet, sizes_of
from rnnlayout._model.dtypes import storage_dtype
from rnnlayout._model.errors import FileError
from rnnlayout._sources.mismatch import list_names

from .machine import CONTAINERS, Makers, UnreadObject

_PLAIN = re.compile(r"b1|[iu][1248]|f[248]|c8|c16")


class PickledDtype(UnreadObject):
    """numpy.dtype. found: None for one that is not of numbers. bits: their dtype in NumPy."""

    __slots__ = ("bits", "found")

    def __init__(self, kind: Any, *_: Any) -> None:
        super().__init__("numpy.dtype")
        self.found: str | None = None
        self.bits = np.dtype(np.uint8)
        if isinstance(kind, UnreadObject) and kind.name == "ml_dtypes.bfloat16":
            self.found = "bfloat16"
        elif isinstance(kind, str) and _PLAIN.fullmatch(kind):
            self.found = np.dtype(kind).name
        if self.found:
            self.bits = storage_dtype(self.found)

    def build(self, state: Any) -> None:
        """Set the byte order, the second item of the state."""
        if state[1] == ">":
            self.bits = self.bits.newbyteorder(">")


class PickledArray(UnreadObject):
    """A NumPy array in a pickle. array: the array; None if its elements are not numbers. dtype: the
    name of its dtype."""

    __slots__ = ("array", "dtype")

    def __init__(self) -> None:
        super().__init__("numpy.ndarray")
        self.array: np.ndarray | None = None
        self.dtype = ""

    def build(self, state: Any) -> None:
        """Take the version, the shape, the dtype, whether it is in Fortran order, the bytes."""
        _, shape, dtype, fortran, data = state
        self.fill(shape, dtype, "F" if fortran else "C", data)

    def fill(self, shape: Any, dtype: Any, order: Any, data: Any) -> None:
        """Set the values. Raises FileError if the bytes are not those of the shape."""
        shape = sizes_of(shape, "a NumPy array")
        if not isinstance(dtype, PickledDtype) or dtype.found is None:
            self.name = "numpy.ndarray of objects or texts"
            return
        data = data.encode("latin-1") if isinstance(data, str) else memoryview(data)
        if len(data) != math.prod(shape) * dtype.bits.itemsize:
            raise FileError(f"a NumPy array of shape {short(shape)} has {len(data)} bytes")
        flat = np.frombuffer(data, dtype.bits) if len(data) else np.empty(0, dtype.bits)
        self.array, self.dtype = (
            flat.reshape(shape, order="F" if order == "F" else "C"),
            dtype.found,
        )


def _reconstruct(kind: Any, *_: Any) -> UnreadObject:
    """Make an empty array, which gets its values later; of a subclass nothing is known."""
    is_plain = isinstance(kind, UnreadObject) and kind.name in ("numpy.ndarray", "numpy.memmap")
    return PickledArray() if is_plain else UnreadObject(getattr(kind, "name", "numpy.ndarray"))


def _make_from_buffer(data: Any, dtype: Any, shape: Any, order: Any, *_: Any) -> PickledArray:
    made = PickledArray()
    made.fill(shape, dtype, order, data)
    return made


def _make_scalar(dtype: Any, data: Any = b"") -> Any:
    one = PickledArray()
    one.fill((), dtype, "C", data)
    return UnreadObject("a NumPy scalar") if one.array is None else one.array.item()


def _encode_text(text: str, encoding: str) -> Any:
    """Return the bytes that Python 3 writes as a text for Python 2."""
    if encoding not in ("latin1", "latin-1"):
        return UnreadObject("_codecs.encode")
    return text.encode("latin-1")


MAKERS: Makers = {
    **CONTAINERS,
    "numpy.dtype": PickledDtype,
    "_codecs.encode": _encode_text,
    **dict.fromkeys(("builtins.bytes", "__builtin__.bytes"), lambda: b""),
    **{f"numpy.{core}.{name}": make
       for core in ("core", "_core")
       for name, make in (("multiarray._reconstruct", _reconstruct),
                          ("multiarray.scalar", _make_scalar),
                          ("numeric._frombuffer", _make_from_buffer))},
}  # fmt: skip


# -------------------------------------------------------------------------------------- the tensors

_MOST_KINDS, _MOST_NAMES = 20, 3  # in notes

_ADVICE = {
    "__torch__.": "the tensors of a program have no names after torch.jit.freeze(); save the"
    " program that it was made from",
    "packed weights": "a state_dict does not say which; save the whole module, torch.save(module)",
    "torch.ScriptObject": "it is a quantized module with packed weights; save the state_dict of the"
    " module that it was made from",
    "torch.storage._load_from_bytes": "it is a tensor that pickle.dump() wrote; if you trust the"
    " file, unpickle it and write it with torch.save()",
}
_OTHERWISE = (
    "only tensors, numbers, strings and containers are read; if you trust the file, load it with"
    " the program that wrote it and save a state_dict"
)


def tensors_of_pickle(
    file: InputFile,
    leaves: Iterable[tuple[str, Any]],
    tensor_of: Callable[[Any], FileTensor | None],
) -> TensorSet:
    """Return the tensors of a pickle. leaves: what it has, each with the keys that lead to it,
    joined by dots. tensor_of: returns the tensor that an object is, None if it is not one. Raises
    FileError if there are none, or two would have the same name."""
    read = TensorSet({})
    for name, value in leaves:
        tensor = tensor_of(value)
        if tensor is not None:
            file.budget.charge("arrays", tensor.nbytes)  # many may be views of one storage
            read.add(name, tensor, file)
        elif isinstance(value, UnreadObject):
            file.budget.charge("names", len(name))
            read.unread[name] = value.name
        else:
            read.add_value(name)
    kinds: dict[str, list[str]] = {}
    for name, kind in read.unread.items():
        kinds.setdefault(kind, []).append(name)
    advice = {
        kind: next((text for begin, text in _ADVICE.items() if kind.startswith(begin)), "")
        for kind in kinds
    }
    if not read.tensors and kinds:
        why = next(filter(None, advice.values()), _OTHERWISE)
        raise FileError(
            f"{file} has no tensors, and asks for {list_names(read.unread.values())}: {why}"
        )
    if not read.tensors:
        raise FileError(f"{file} has no tensors")
    read.notes = [
        f"{kind} in {list_names(names, _MOST_NAMES)} was not read"
        + f": {advice[kind]}" * bool(advice[kind])
        for kind, names in list(kinds.items())[:_MOST_KINDS]
    ]
    if len(kinds) > _MOST_KINDS:
        read.notes.append(f"objects of {len(kinds) - _MOST_KINDS} other classes were not read")
    return read
