"""The named tensors of a file, the walk through nested dicts and lists, the progress of writing,
and the report on a converted file."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import zip_longest
from typing import Any

import numpy as np

from rnnlayout._model.dtypes import FLOATS, Bits, storage_dtype, wrong_dtype
from rnnlayout._model.errors import FileError

from .file_limits import Budget, InputFile

_MOST_VALUES = 100  # named in Converted.left_out
CHUNK_NBYTES = 8 << 20  # Ctrl-C takes effect between two chunks
# Dtypes that NumPy lacks: name in torch and JAX -> name in safetensors and in a FileTensor.
FLOAT8 = {"float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0"}
# The bits of an element.
_BITS = {
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    **dict.fromkeys(FLOAT8.values(), 8),
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "qint32": 32,
}


@dataclass(frozen=True)
class FileTensor:
    """A tensor of a file, whose elements are read when bits() or pieces() is called.

    dtype: a name of NumPy, "bfloat16", or the format's name for a dtype that NumPy lacks.
    bits: returns the array, as uint16 for bfloat16, as bytes for dtypes that NumPy lacks.
    pieces: yields the same elements as flat arrays in order, if this takes less memory. A piece is
        valid until the next piece of any tensor of the file is read.
    budget: of the file, which is charged for each use as a weight; None for a tensor in memory.
    """

    dtype: str
    shape: tuple[int, ...]
    bits: Callable[[], np.ndarray]
    pieces: Callable[[], Iterator[np.ndarray]] | None = None
    budget: Budget | None = None

    @property
    def nbytes(self) -> int:
        try:
            bits = 8 * storage_dtype(self.dtype).itemsize
        except TypeError:
            bits = _BITS.get(self.dtype, 8)
        return bits * math.prod(self.shape) // 8

    def chunks(self) -> Iterator[memoryview]:
        """Yield the bytes in C order, little-endian, at most CHUNK_NBYTES at a time."""
        for piece in self.pieces() if self.pieces else [self.bits()]:
            flat = np.ascontiguousarray(piece).reshape(-1)
            flat = flat.astype(flat.dtype.newbyteorder("<"), copy=False)
            step = max(1, CHUNK_NBYTES // max(1, flat.itemsize))
            for at in range(0, flat.size, step):
                yield flat[at : at + step].view(np.uint8).data

    def floats(self, name: str, arrays: int = 1) -> Bits:
        """Return the array of a weight, in native byte order, and charge the budget. name: the name
        of the tensor in messages. arrays: the number of arrays in a vector of a whole RNN. Raises
        LayoutError if the dtype is not a float."""
        if self.dtype not in FLOATS:
            raise wrong_dtype(name, self.dtype)
        if self.budget is not None:
            self.budget.charge_weights(self.nbytes, arrays)
        array = self.bits()
        return Bits(array.astype(array.dtype.newbyteorder("="), copy=False), self.dtype)

    def same_as(self, tensor: FileTensor) -> bool:
        if (self.dtype, self.shape) != (tensor.dtype, tensor.shape):
            return False
        pairs = zip_longest(self.chunks(), tensor.chunks(), fillvalue=memoryview(b""))
        return all(bytes(chunk) == bytes(other) for chunk, other in pairs)

    @classmethod
    def of(cls, array: np.ndarray, dtype: str) -> FileTensor:
        """Return a tensor in memory. array: the bits of the elements, as bits() returns bits."""
        return cls(dtype, array.shape, lambda: array)


def sizes_of(shape: Any, label: str) -> tuple[int, ...]:
    """Return a shape from a file as a tuple. Raises FileError if the shape is not a list of sizes,
    or if NumPy cannot represent the shape, even without elements."""
    is_list = isinstance(shape, (list, tuple)) and len(shape) <= 32
    if not is_list or any(type(n) is not int or not 0 <= n < 1 << 63 for n in shape):
        raise FileError(f"{label}: its shape is not a list of sizes")
    if math.prod(n or 1 for n in shape) >= 1 << 56:
        raise FileError(f"{label}: shape {tuple(shape)} is too large")
    return tuple(shape)


@lru_cache(maxsize=256)
def stored_dtype(dtype: str) -> np.dtype | None:
    """Return NumPy's dtype for the bits of a dtype in a file, None if NumPy lacks it."""
    try:
        numpy_dtype = storage_dtype(dtype).newbyteorder("<")
    except (TypeError, ValueError, SyntaxError):  # all raised by NumPy for unknown names
        return None
    return (
        numpy_dtype
        if numpy_dtype.kind in "biufc" and dtype in (numpy_dtype.name, "bfloat16")
        else None
    )


def stored_tensor(dtype: str, shape: Any, data: memoryview | bytes, label: str) -> FileTensor:
    """Return a tensor whose bytes are a part of a file, little-endian and in C order. label: the
    tensor, in messages. Raises FileError if the shape is malformed, or does not fit the bytes."""
    sizes, stored = sizes_of(shape, label), stored_dtype(dtype)
    bits = 8 * stored.itemsize if stored else _BITS.get(dtype)
    if bits is not None and bits * math.prod(sizes) != 8 * len(data):
        raise FileError(f"{label}: {len(data)} bytes do not fit shape {sizes} in {dtype}")
    if stored is None:
        return FileTensor(dtype, sizes, lambda: np.frombuffer(data, np.uint8))
    return FileTensor(dtype, sizes, lambda: np.frombuffer(data, stored).reshape(sizes))


@dataclass(frozen=True)
class ModuleClass:
    """The class of a module in a file, and the facts that the module records about an RNN.

    name: with the Python module of the class. is_torch: whether torch defines the class; a
    class of a user may compute anything. fields: fields of a Spec. batch_first: whether x is
    (N, T, I); None if not recorded. hook: the name of a forward hook, which may compute anything.
    """

    name: str
    is_torch: bool
    fields: Mapping[str, Any]
    batch_first: bool | None
    hook: str = ""


@dataclass(frozen=True)
class StoredOptimizer:
    """What a file records of an optimizer, by the name of the model's tensor.

    path: where the optimizer is in the file. slots: tensor -> slot -> array. steps: tensor ->
    number of steps. hyperparameters: tensor -> hyperparameters. problems: tensor -> why the tensor
    has no slots. doubts: module -> another module, to which its slots may belong. taken: the names
    of the optimizer's arrays in the file, which are not read as tensors of an RNN.
    """

    path: str
    slots: Mapping[str, Mapping[str, FileTensor]] = field(default_factory=dict)
    steps: Mapping[str, int] = field(default_factory=dict)
    hyperparameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    doubts: Mapping[str, str] = field(default_factory=dict)
    taken: Collection[str] = frozenset()


@dataclass
class TensorSet:
    """Tensors by name, in the file's order, and the metadata of the file.

    notes: messages for users of the result ("weight_norm of lstm.weight_hh_l0 folded").
    skipped: name -> class of each object that was not read ("argparse.Namespace").
    advice: class of a skipped object -> how to make the object readable.
    elsewhere: name -> message, for each tensor of the model that another file has.
    values: names of the first contents that are not tensors (epoch).
    modules: path -> class of each module with tensors, if the file has modules.
    derived: names of tensors that the file does not store under these names: tensors of modules,
        and computed tensors.
    roots: paths of whole models: the root of the file, and dicts such as "state_dict".
    optimizers: the optimizers of the file.
    forget: frees the memory of tensors that can be read again.
    copy(fd, chunk): let the system copy a chunk of a tensor from the source file to a file
        descriptor. Returns the number of copied bytes, 0 if the system cannot copy.
    """

    tensors: dict[str, FileTensor]
    metadata: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    advice: dict[str, str] = field(default_factory=dict)
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    values: list[str] = field(default_factory=list)
    modules: Mapping[str, ModuleClass] = field(default_factory=dict)
    derived: Collection[str] = frozenset()
    roots: Collection[str] = ("",)
    optimizers: Sequence[StoredOptimizer] = ()
    forget: Callable[[], object] = lambda: None
    copy: Callable[[int, memoryview], int] = lambda out, chunk: 0

    def add(self, name: str, tensor: FileTensor, file: InputFile) -> None:
        """Add a tensor of a file. Raises FileError if the name exists already."""
        if name in self.tensors:
            raise FileError(f"{file}: two tensors would both be named {name[:100]!r}")
        file.budget.charge("tensors", 1)
        file.budget.charge("names", len(name))
        self.tensors[name] = replace(tensor, budget=file.budget)

    def why_skipped(self, name: str) -> str:
        """Return the error for a skipped object with the name of a weight."""
        kind = self.skipped[name]
        advice = self.advice.get(kind)
        return f"{name} is {kind}, need a tensor of floats" + (f": {advice}" if advice else "")

    def add_value(self, name: str) -> None:
        """Record the name of a content that is not a tensor, up to a limit."""
        if len(self.values) < _MOST_VALUES:
            self.values.append(name)

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())


Progress = Callable[[int, int], Any]  # called with the bytes written so far, and the total


class ProgressCount:
    """A sum of the bytes written so far, which calls `progress` at each increase."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._done, self._total = progress, 0, total
        self(0)

    def __call__(self, nbytes: int) -> None:
        self._done = min(self._done + nbytes, self._total)
        if self._progress is not None:
            self._progress(self._done, self._total)


@dataclass(frozen=True)
class Converted:
    """The result of convert_file().

    reports: the Report of each conversion, by the name of the RNN.
    left_out: names of tensors, numbers and texts of the source that the new file lacks.
    notes: further messages about the conversion.
    """

    reports: Mapping[str, Any]
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


# --------------------------------------------------------------------------- nested dicts and lists

MOST_DEEP, LONGEST = 32, 1000  # levels of nested dicts; characters of a name
ALONE = "weight_space"  # the name of a tensor that is the whole file


def _is_not_container(value: Any) -> bool:
    return not isinstance(value, (dict, list, tuple))


def walk_leaves(
    file: InputFile,
    root: Any,
    is_leaf: Callable[[Any], bool] = _is_not_container,
    separator: str = ".",
) -> Iterator[tuple[str, Any, Any, Any]]:
    """Yield (name, container, key, leaf) in order. A container that occurs twice is walked once."""
    entered: set[int] = set()
    inside: list[tuple[str, Any, Iterator[tuple[Any, Any]]]] = []  # from the outermost container

    def enter(name: str, container: Any) -> None:
        if _is_not_container(container) or id(container) in entered:
            return
        entered.add(id(container))
        if len(inside) > MOST_DEEP or len(name) > LONGEST:
            raise FileError(
                f"{file}: dicts nested {len(inside)} deep, or keys of {len(name)} characters:"
                " refused"
            )
        items = container.items() if isinstance(container, dict) else enumerate(container)
        inside.append((name, container, iter(items)))

    if is_leaf(root):
        yield ALONE, None, None, root
    else:
        enter("", root)
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
