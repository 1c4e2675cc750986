"""The formats of files: one module each, found by the suffixes that it names.

A module of this folder whose name has no underscore in front is a format. It has

    SUFFIXES: tuple[str, ...]           # (".safetensors",); the longest that fits a name decides

and either, for a bag of named tensors (safetensors, npz, a state_dict),

    read_tensors(path) -> Bag
    write_tensors(path, bag) -> None    # a new file at this path; tensors by their chunks()
    rewrite_tensors(path, out, bag, made, progress) -> notes  # where a file is more than its bag

or, for what has a structure of its own (a Keras model, an ONNX graph),

    read(path, ask: Ask) -> Found
    write(path, entries: Mapping[str, Weights]) -> None       # what load() reads again
    rewrite(path, out, ask, to, **options) -> Converted       # where a whole model can be converted

Those that write may be missing. All of them raise FileError for what is
malformed or unsafe, MissingExtraError where a package is missing; they open no file but the one
named (and raw.py the one beside it), and allocate little more than it is long: _limits.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

import numpy as np

from rnnlayout._dtypes import storage
from rnnlayout._errors import FileError

CHUNK_NBYTES = 8 << 20  # so little at a time that Ctrl-C is answered at once


@dataclass(frozen=True)
class Ask:
    """What the caller knows of the RNNs in a file that the file may not say."""

    spec: Any = None
    layout: Any = None
    prefix: str = ""
    cell: str | None = None
    reset: str | None = None


@dataclass(frozen=True)
class Tensor:
    """One tensor of a file, not read before it is asked for.

    dtype: NumPy's name or "bfloat16"; of what neither knows the format's own word.
    bits: the array: of the dtype, of uint16 for bfloat16, of others their bytes.
    pieces: the same, flat, one after another, where that takes less memory; each is good until the
        next of the file is asked for. None: there is only bits.
    """

    dtype: str
    shape: tuple[int, ...]
    bits: Callable[[], np.ndarray]
    pieces: Callable[[], Iterator[np.ndarray]] | None = None

    @property
    def nbytes(self) -> int:
        """How many bytes it has."""
        try:
            return storage(self.dtype).itemsize * math.prod(self.shape)
        except TypeError:
            return self.bits().nbytes

    def chunks(self) -> Iterator[memoryview]:
        """Its bytes in C order and little-endian, a few at a time."""
        for piece in self.pieces() if self.pieces else [self.bits()]:
            flat = np.ascontiguousarray(piece).reshape(-1)
            flat = flat.astype(flat.dtype.newbyteorder("<"), copy=False)
            step = max(1, CHUNK_NBYTES // max(1, flat.itemsize))
            for at in range(0, flat.size, step):
                yield flat[at : at + step].view(np.uint8).data

    @classmethod
    def of(cls, array: np.ndarray, dtype: str) -> Tensor:
        """One that is in memory already."""
        return cls(dtype, array.shape, lambda: array)


@dataclass
class Bag:
    """Tensors by name, in the file's order, and the file's own metadata.

    notes: what a reader of the result should know ("weight_norm of lstm.weight_hh_l0 folded").
    forget: give back the memory that reading took, where it can be read again.
    copy: given a file's descriptor and a chunk of a tensor, have the system copy the chunk from
        where it was read; how many bytes it has copied, 0 where it cannot.
    """

    tensors: dict[str, Tensor]
    metadata: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    forget: Callable[[], None] = lambda: None
    copy: Callable[[int, memoryview], int] = lambda out, chunk: 0

    @property
    def nbytes(self) -> int:
        """Of all tensors."""
        return sum(tensor.nbytes for tensor in self.tensors.values())


@dataclass(frozen=True)
class Converted:
    """What convert_file() did.

    reports: entry -> the Report of its conversion.
    left_out: names of what the new file has not (tensors of no RNN, where it can hold none).
    notes: as words.
    """

    reports: Mapping[str, Any]
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@cache
def formats() -> dict[str, ModuleType]:
    """suffix -> the module that reads it."""
    return {
        suffix: module
        for info in iter_modules(__path__)
        if not info.name.startswith("_")
        for module in [import_module(f"{__name__}.{info.name}")]
        for suffix in module.SUFFIXES
    }


def format_of(path: Any) -> ModuleType:
    """The module for a path. FileError: no format has this suffix."""
    known = formats()
    name = str(path).lower()
    fits = [suffix for suffix in known if name.endswith(suffix)]
    if not fits:
        raise FileError(f"{path}: no known format; known are {', '.join(sorted(known))}")
    return known[max(fits, key=len)]
