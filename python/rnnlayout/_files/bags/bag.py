"""A bag of named tensors, and what else passes between the formats and the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rnnlayout._model.dtypes import storage

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
