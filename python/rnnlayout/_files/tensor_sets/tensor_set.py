"""The named tensors of a file, also from dicts and lists in each other, and other values that pass
between formats and callers."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rnnlayout._model.dtypes import FLOATS, Bits, storage_dtype
from rnnlayout._model.errors import FileError
from rnnlayout._native import LayoutError

from .file_limits import InputFile

_MOST_VALUES = 100  # named in what a conversion leaves out
CHUNK_NBYTES = 8 << 20  # at most so much between two moments at which Ctrl-C can be answered
# Dtypes that NumPy lacks: the names in torch and JAX -> those of safetensors, as in a FileTensor.
FLOAT8 = {"float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0"}
# The bits of an element.
_BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, **dict.fromkeys(FLOAT8.values(), 8),
         "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "qint32": 32}  # fmt: skip


@dataclass(frozen=True)
class FileTensor:
    """One tensor of a file, read when it is asked for.

    dtype: NumPy's name or "bfloat16"; the format's own name for a dtype that neither has.
    bits: returns the array, as uint16 for bfloat16, as bytes for dtypes that NumPy lacks.
    pieces: returns the same elements as flat arrays one after another, if that takes less memory;
        each is valid until the next piece of any tensor of the file is asked for.
    """

    dtype: str
    shape: tuple[int, ...]
    bits: Callable[[], np.ndarray]
    pieces: Callable[[], Iterator[np.ndarray]] | None = None

    @property
    def nbytes(self) -> int:
        try:
            bits = 8 * storage_dtype(self.dtype).itemsize
        except TypeError:
            bits = _BITS.get(self.dtype, 8)
        return bits * math.prod(self.shape) // 8

    def chunks(self) -> Iterator[memoryview]:
        """Yield its bytes in C order and little-endian, at most CHUNK_NBYTES at a time."""
        for piece in self.pieces() if self.pieces else [self.bits()]:
            flat = np.ascontiguousarray(piece).reshape(-1)
            flat = flat.astype(flat.dtype.newbyteorder("<"), copy=False)
            step = max(1, CHUNK_NBYTES // max(1, flat.itemsize))
            for at in range(0, flat.size, step):
                yield flat[at : at + step].view(np.uint8).data

    def floats(self, name: str) -> Bits:
        """Return the array of a tensor of floats, in native byte order. name: of the tensor in
        messages. Raises LayoutError for other dtypes."""
        if self.dtype not in FLOATS:
            raise LayoutError(
                f"{name} is {self.dtype}, need one of {', '.join(FLOATS)}: quantized weights must"
                " be dequantized with their scale first"
            )
        array = self.bits()
        return Bits(array.astype(array.dtype.newbyteorder("="), copy=False), self.dtype)

    def same_as(self, other: FileTensor) -> bool:
        kinds = (self.dtype, self.shape), (other.dtype, other.shape)
        return kinds[0] == kinds[1] and self.bits().tobytes() == other.bits().tobytes()

    @classmethod
    def of(cls, array: np.ndarray, dtype: str) -> FileTensor:
        """Return the tensor of an array in memory that carries the bits of a dtype."""
        return cls(dtype, array.shape, lambda: array)


def sizes_of(shape: Any, what: str) -> tuple[int, ...]:
    """Return the shape that a file has for a tensor. Raises FileError if it is not a list of sizes,
    or one that NumPy cannot represent, even without elements."""
    is_list = isinstance(shape, (list, tuple)) and len(shape) <= 32
    if not is_list or any(type(n) is not int or not 0 <= n < 1 << 63 for n in shape):
        raise FileError(f"{what}: its shape is not a list of sizes")
    if math.prod(n or 1 for n in shape) >= 1 << 56:
        raise FileError(f"{what}: shape {tuple(shape)} is too large")
    return tuple(shape)


def stored_dtype(dtype: str) -> np.dtype | None:
    """Return NumPy's dtype for the bits of a dtype in a file, None if NumPy lacks it."""
    try:
        found = storage_dtype(dtype).newbyteorder("<")
    except (TypeError, ValueError, SyntaxError):  # NumPy raises any of these
        return None
    return found if found.kind in "biufc" and dtype in (found.name, "bfloat16") else None


def stored_tensor(dtype: str, shape: Any, data: memoryview | bytes, what: str) -> FileTensor:
    """Return a tensor whose bytes are a part of a file, little-endian and in C order. Raises
    FileError if the shape is not one, or the bytes are not those of its elements."""
    sizes, stored = sizes_of(shape, what), stored_dtype(dtype)
    bits = 8 * stored.itemsize if stored else _BITS.get(dtype)
    if bits is not None and bits * math.prod(sizes) != 8 * len(data):
        raise FileError(f"{what}: {len(data)} bytes do not fit shape {sizes} in {dtype}")
    if stored is None:
        return FileTensor(dtype, sizes, lambda: np.frombuffer(data, np.uint8))
    return FileTensor(dtype, sizes, lambda: np.frombuffer(data, stored).reshape(sizes))


@dataclass(frozen=True)
class ModuleClass:
    """The class of a module in a file, and what the module says about the RNN that it is.

    name: with its Python module. is_torch: is it one of torch's own RNNs? Another class may compute
    anything. fields: of a Spec. batch_first: whether its x is (N, T, I); None if it does not say.
    """

    name: str
    is_torch: bool
    fields: Mapping[str, Any]
    batch_first: bool | None


@dataclass
class TensorSet:
    """Tensors by name, in the file's order, and the file's own metadata.

    notes: what a user of the result should know ("weight_norm of lstm.weight_hh_l0 folded").
    skipped: name -> class of each object that was not read ("argparse.Namespace").
    values: names of what the file has beside tensors (epoch), of which the first are enough.
    modules: the classes of the modules that have the tensors, by path, if the file has modules.
    derived: names of tensors that the file stores under other names or not at all: those of
        modules, and computed tensors.
    forget: gives back the memory of what was read, if it can be read again.
    copy: given a file descriptor and a chunk of a tensor, lets the system copy the chunk from the
        file it was read from; returns the number of bytes copied, 0 if that is not possible.
    """

    tensors: dict[str, FileTensor]
    metadata: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    values: list[str] = field(default_factory=list)
    modules: Mapping[str, ModuleClass] = field(default_factory=dict)
    derived: Collection[str] = frozenset()
    forget: Callable[[], object] = lambda: None
    copy: Callable[[int, memoryview], int] = lambda out, chunk: 0

    def add(self, name: str, tensor: FileTensor, file: InputFile) -> None:
        """Add a tensor of a file. Raises FileError if it has another of this name."""
        if name in self.tensors:
            raise FileError(f"{file}: two tensors would both be named {name[:100]!r}")
        file.budget.charge("tensors", 1)
        file.budget.charge("names", len(name))
        self.tensors[name] = tensor

    def add_value(self, name: str) -> None:
        """Remember something that is not a tensor, if it is one of the first."""
        if len(self.values) < _MOST_VALUES:
            self.values.append(name)

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())


Progress = Callable[[int, int], Any]  # called with the bytes written so far, and those of all


class ProgressCount:
    """Adds up the bytes that are written, and reports each increase."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._done, self._total = progress, 0, total
        self(0)

    def __call__(self, nbytes: int) -> None:
        self._done = min(self._done + nbytes, self._total)
        if self._progress is not None:
            self._progress(self._done, self._total)


@dataclass(frozen=True)
class Converted:
    """What convert_file() did.

    reports: the Report of each conversion, by the name of the RNN.
    left_out: names of tensors and numbers that the new file does not have, because its format has
        no place for them.
    notes: messages about what else was done.
    """

    reports: Mapping[str, Any]
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


# -------------------------------------------------------------------- dicts and lists in each other

MOST_DEEP, LONGEST = 32, 1000  # dicts in dicts; characters of a name
ALONE = "weight_space"  # the name of a tensor that is the whole file


def _is_no_container(value: Any) -> bool:
    return not isinstance(value, (dict, list, tuple))


def walk_leaves(
    file: InputFile,
    found: Any,
    is_leaf: Callable[[Any], bool] = _is_no_container,
    separator: str = ".",
) -> Iterator[tuple[str, Any, Any, Any]]:
    """Yield (name, container, key, leaf) in order, and each container only once."""
    seen: set[int] = set()
    inside: list[tuple[str, Any, Iterator[tuple[Any, Any]]]] = []  # from the outermost container

    def enter(name: str, container: Any) -> None:
        if _is_no_container(container) or id(container) in seen:
            return
        seen.add(id(container))
        if len(inside) > MOST_DEEP or len(name) > LONGEST:
            raise FileError(
                f"{file}: dicts nested {len(inside)} deep, or keys of {len(name)} characters:"
                " refused"
            )
        items = container.items() if isinstance(container, dict) else enumerate(container)
        inside.append((name, container, iter(items)))

    if is_leaf(found):
        yield ALONE, None, None, found
    else:
        enter("", found)
    while inside:
        name, container, items = inside[-1]
        for key, value in items:
            if type(key) not in (str, int):
                continue
            if isinstance(key, str) and len(name) + len(key) > LONGEST:
                raise FileError(f"{file}: a key of {len(key)} characters: refused")
            if not is_leaf(value):
                enter(f"{name}{key}{separator}", value)
                break
            yield f"{name}{key}", container, key, value
        else:
            inside.pop()
