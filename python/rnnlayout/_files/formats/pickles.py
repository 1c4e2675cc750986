"""Read pickles as data: names in a pickle are never imported, calls in a pickle are never made.

A pickle is a program for a small machine. The machine here has the harmless instructions only. A
name in a pickle becomes an UnreadObject, and so does a call of a name, unless the caller of
load_pickle() has a maker for the name. NumPy's arrays and numbers are made from bytes without
NumPy's own functions.

Python's own unpickler is unsafe even if nothing is imported: the unpickler computes the hash of
each key, and the hash of 100,000 nested tuples overflows the stack of the process.
"""

from __future__ import annotations

import math
import pickle
import pickletools
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from reprlib import repr as short
from typing import Any

import numpy as np

from rnnlayout._files.tensor_sets.file_limits import Budget, InputFile, name_file
from rnnlayout._files.tensor_sets.tensor_set import FileTensor, TensorSet, sizes_of
from rnnlayout._model.dtypes import storage_dtype
from rnnlayout._model.errors import FileError
from rnnlayout._sources.mismatch import list_names

_CHARGED = 1024  # steps at once
_CALL_STEPS = 12  # of a name or a call
_LONGEST_NAME = 200  # characters
_LONGEST_LINE = 100  # characters of a number
_COPIED_TYPES = (str, dict, list, tuple)  # of arguments
_OTHER_KEY = "an item with a key of type"
_COPIED_NBYTES = 4096  # longer byte strings are views of the file
# Function by which protocols 2 and 3 name a nested class, and Python 3.11.2 a member of an enum.
_GETATTR = ("builtins.getattr", "__builtin__.getattr")

# All errors of harmless instructions in a wrong order.
_WRONG_ORDER = (
    AttributeError,
    TypeError,
    ValueError,
    KeyError,
    IndexError,
    OverflowError,
    RecursionError,
    struct.error,
)

Makers = Mapping[str, Callable[..., Any]]
Persistent = Callable[[Any], Any]


class UnreadObject:
    """A class or function that a pickle names, or the result of calling a class or function."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name[:_LONGEST_NAME]

    def build(self, state: Any) -> None:
        """Ignore the state."""


class PickledSet(UnreadObject):
    """A set. texts: the texts in the set."""

    __slots__ = ("texts",)

    def __init__(self, elements: Any = ()) -> None:
        super().__init__("set")
        self.texts: set[str] = set()
        self.build(elements)

    def build(self, state: Any) -> None:
        """Add elements."""
        self.texts.update(text for text in state if isinstance(text, str))


class PickledDict(dict[Any, Any]):
    """An OrderedDict, a defaultdict or a Counter. attributes: the pickled state of the dict."""

    attributes: Any = None

    def build(self, state: Any) -> None:
        """Keep the state."""
        self.attributes = state


def ordered_dict(pairs: Any = ()) -> PickledDict:
    """Make collections.OrderedDict. Python 2 passes a list of pairs."""
    result = PickledDict()
    for key, value in pairs.items() if isinstance(pairs, dict) else pairs:
        _put_item(result, key, value)
    return result


def load_pickle(
    data: Any,
    at: int,
    makers: Makers,
    persistent: Persistent,
    file: InputFile,
    encoding: str = "utf-8",
    make_object: Callable[[str], Any] = UnreadObject,
) -> tuple[Any, int]:
    """Return the contents of the pickle that begins at data[at], and the index of the pickle's end.

    data: bytes, or a memory map. makers: name of a function or class -> function to call instead.
    persistent: persistent id -> object. encoding: the encoding of byte strings of Python 2.
    make_object: name of a class without a maker -> object. Raises FileError for an instruction that
    is not harmless, and if the pickle is damaged, cut short or exceeds the budget of the file."""
    label = str(file)
    machine = _PickleMachine(makers, persistent, encoding, make_object, file.budget)
    try:
        with name_file(file):
            return machine.run(memoryview(data), at, label)
    except FileError:
        raise
    except _WRONG_ORDER as error:
        raise FileError(f"{label}: its pickle is damaged ({str(error)[:200]})") from None


@dataclass
class _PickleMachine:
    makers: Makers
    persistent: Persistent
    encoding: str
    make_object: Callable[[str], Any]
    budget: Budget
    stack: list[Any] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def run(self, data: memoryview, at: int, label: str) -> tuple[Any, int]:
        start, end = at, len(data)
        for done in count():
            if at >= end:
                break
            if done % _CHARGED == 0:
                self.budget.charge("steps", _CHARGED)
            code = data[at]
            at += 1
            if code == _STOP:
                return self.stack.pop(), at
            if code == _GLOBAL:
                module, name, *following = bytes(data[at : at + 2000]).split(b"\n", 2)
                if not following:
                    break
                self.name(module.decode(), name.decode())
                at += len(module) + len(name) + 2
                continue
            if code in _LINES:
                line, *following = bytes(data[at : at + _LONGEST_LINE]).split(b"\n", 1)
                if not following:
                    break
                self.push(_LINES[code](line))
                at += len(line) + 1
                continue
            if code not in _INSTRUCTIONS:
                byte = at - 1 - start
                raise FileError(f"{label} is not plain data: opcode 0x{code:02x} at byte {byte}")
            width, is_length, step = _INSTRUCTIONS[code]
            argument = data[at : at + width] if width else data[:0]
            at += width
            if is_length:
                n = int.from_bytes(argument, "little")
                argument = data[at : at + n]
                at += n
            if at > end:
                break
            step(self, argument)
        raise FileError(f"{label}: its pickle is cut short")

    def push(self, element: Any) -> None:
        self.stack.append(element)

    def pop_mark(self) -> list[Any]:
        """Pop everything above the last mark."""
        at = self.marks.pop()
        elements = self.stack[at:]
        del self.stack[at:]
        return elements

    def append(self, elements: list[Any]) -> None:
        if isinstance(self.stack[-1], list):
            self.stack[-1].extend(elements)
        else:
            self.build(elements)

    def set(self, pairs: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, dict):
            for key, value in zip(pairs[::2], pairs[1::2], strict=True):
                _put_item(target, key, value)
        else:
            self.build(pairs)

    def build(self, state: Any) -> None:
        """Set the state of the last object, or add elements to the last object."""
        if isinstance(state, (tuple, list)):
            self.count_copied(state)
        self.stack[-1].build(state)

    def name(self, module: Any, name: Any) -> None:
        if type(module) is not str or type(name) is not str or len(module) + len(name) > 2000:
            raise TypeError("a name that is not a text, or too long")
        self.budget.charge("steps", _CALL_STEPS)
        self.stack.append(UnreadObject(f"{module}.{name}"))

    def call(self, target: Any, args: Any) -> None:
        if not isinstance(target, UnreadObject):
            raise TypeError(f"a call of a {type(target).__name__}")
        self.budget.charge("steps", _CALL_STEPS)
        maker, name = self.makers.get(target.name), target.name
        if maker:
            self.count_copied(args)
        elif name in _GETATTR and isinstance(args[0], UnreadObject) and isinstance(args[1], str):
            name = f"{args[0].name}.{args[1][:_LONGEST_NAME]}"
        self.stack.append(maker(*args) if maker else self.make_object(name))

    def count_copied(self, arguments: Any) -> None:
        """Charge for copies of arguments: a pickle can pass the same long text again and again."""
        nested = (argument for argument in arguments if isinstance(argument, _COPIED_TYPES))
        self.budget.charge("copied", len(arguments) + sum(map(len, nested)))

    def pop(self, count: int) -> list[Any]:
        elements = self.stack[-count:]
        if len(elements) < count:
            raise IndexError("its stack is empty")
        del self.stack[-count:]
        return elements


_NUMBERS = (str, int, float, type(None))  # values that cannot have tensors


def _put_item(target: dict[Any, Any], key: Any, value: Any) -> None:
    """Set a dict's item if the key can be a part of a tensor's name. Items with tuples as keys are
    not read because a hash may need any depth of calls, items with long integers because many long
    integers have the same hash. An item that is not read, and may have tensors, is named."""
    if type(key) is str or (type(key) is int and key.bit_length() < 64):
        target[key] = value
    elif not isinstance(value, _NUMBERS):
        kind = key.name if isinstance(key, UnreadObject) else type(key).__name__
        target[f"<{kind}>"] = UnreadObject(f"{_OTHER_KEY} {kind}")


def _uint_argument(argument: memoryview) -> int:
    return int.from_bytes(argument, "little")


def _push_int(machine: _PickleMachine, argument: memoryview) -> None:
    machine.push(int.from_bytes(argument, "little", signed=True))


def _push_text(machine: _PickleMachine, argument: memoryview) -> None:
    machine.push(str(argument, "utf-8", "surrogatepass"))


def _push_bytes(machine: _PickleMachine, argument: memoryview) -> None:
    machine.push(argument if len(argument) > _COPIED_NBYTES else bytes(argument))


def _keep_in_memo(machine: _PickleMachine, number: int) -> None:
    machine.memo[number] = machine.stack[-1]


# The harmless instructions: functions of the machine m and the argument a.
_STEPS: dict[str, Callable[[_PickleMachine, memoryview], Any]] = {
    **dict.fromkeys(("PROTO", "FRAME"), lambda m, a: None),
    "MARK": lambda m, a: m.marks.append(len(m.stack)),
    "NONE": lambda m, a: m.push(None),
    "NEWTRUE": lambda m, a: m.push(True),
    "NEWFALSE": lambda m, a: m.push(False),
    **dict.fromkeys(("BININT", "LONG1"), _push_int),
    **dict.fromkeys(("BININT1", "BININT2"), lambda m, a: m.push(_uint_argument(a))),
    "BINFLOAT": lambda m, a: m.push(struct.unpack(">d", a)[0]),
    **dict.fromkeys(("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"), _push_text),
    **dict.fromkeys(("BINSTRING", "SHORT_BINSTRING"), lambda m, a: m.push(str(a, m.encoding))),
    **dict.fromkeys(("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"), _push_bytes),
    "EMPTY_TUPLE": lambda m, a: m.push(()),
    "TUPLE1": lambda m, a: m.push(tuple(m.pop(1))),
    "TUPLE2": lambda m, a: m.push(tuple(m.pop(2))),
    "TUPLE3": lambda m, a: m.push(tuple(m.pop(3))),
    "TUPLE": lambda m, a: m.push(tuple(m.pop_mark())),
    "EMPTY_LIST": lambda m, a: m.push([]),
    "APPEND": lambda m, a: m.append(m.pop(1)),
    "APPENDS": lambda m, a: m.append(m.pop_mark()),
    "EMPTY_DICT": lambda m, a: m.push({}),
    "SETITEM": lambda m, a: m.set(m.pop(2)),
    "SETITEMS": lambda m, a: m.set(m.pop_mark()),
    "EMPTY_SET": lambda m, a: m.push(PickledSet()),
    "ADDITEMS": lambda m, a: m.append(m.pop_mark()),
    "FROZENSET": lambda m, a: m.call(UnreadObject("frozenset"), m.pop_mark()),
    "BINGET": lambda m, a: m.push(m.memo[a[0]]),
    "LONG_BINGET": lambda m, a: m.push(m.memo[_uint_argument(a)]),
    "BINPUT": lambda m, a: _keep_in_memo(m, a[0]),
    "LONG_BINPUT": lambda m, a: _keep_in_memo(m, _uint_argument(a)),
    "MEMOIZE": lambda m, a: _keep_in_memo(m, len(m.memo)),
    "STACK_GLOBAL": lambda m, a: m.name(*m.pop(2)),
    **dict.fromkeys(("REDUCE", "NEWOBJ"), lambda m, a: m.call(*m.pop(2))),
    "NEWOBJ_EX": lambda m, a: m.call(*m.pop(3)[:2]),
    "BUILD": lambda m, a: m.build(*m.pop(1)),
    "BINPERSID": lambda m, a: m.push(m.persistent(m.pop(1)[0])),
}
_STOP, _GLOBAL = pickle.STOP[0], pickle.GLOBAL[0]
# The numbers of protocol 1, as text: 01 is True.
_LINES: dict[int, Callable[[bytes], Any]] = {
    pickle.INT[0]: lambda line: bool(int(line)) if len(line) == 2 and line[0] == 48 else int(line),
    pickle.LONG[0]: lambda line: int(line.removesuffix(b"L")),
}
# The number of bytes of an argument's length, for instructions with an argument of any length.
_LENGTHS = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
# code -> (number of bytes of the argument or length, True for a length, function)
_INSTRUCTIONS = {
    ord(op.code): (
        _LENGTHS.get(op.arg.n, op.arg.n) if op.arg else 0,
        op.arg is not None and op.arg.n in _LENGTHS,
        _STEPS[op.name],
    )
    for op in pickletools.opcodes
    if op.name in _STEPS
}


# ----------------------------------------------------------------------- NumPy's arrays and numbers

_PLAIN = re.compile(r"b1|[iu][1248]|f[248]|c8|c16")


class PickledDtype(UnreadObject):
    """numpy.dtype. dtype: a name, None if elements are not numbers. carrier: NumPy's dtype of the
    bits."""

    __slots__ = ("carrier", "dtype")

    def __init__(self, kind: Any, *_: Any) -> None:
        super().__init__("numpy.dtype")
        self.dtype: str | None = None
        self.carrier = np.dtype(np.uint8)
        if isinstance(kind, UnreadObject) and kind.name == "ml_dtypes.bfloat16":
            self.dtype = "bfloat16"
        elif isinstance(kind, str) and _PLAIN.fullmatch(kind):
            self.dtype = np.dtype(kind).name
        if self.dtype:
            self.carrier = storage_dtype(self.dtype)

    def build(self, state: Any) -> None:
        """Set the byte order, the second element of the state."""
        if state[1] == ">":
            self.carrier = self.carrier.newbyteorder(">")


class PickledArray(UnreadObject):
    """A NumPy array in a pickle. array: None if the elements are not numbers. dtype: a name.
    objects: the elements if they are Python objects."""

    __slots__ = ("array", "dtype", "objects")

    def __init__(self) -> None:
        super().__init__("numpy.ndarray")
        self.array: np.ndarray | None = None
        self.objects: list[Any] = []
        self.dtype = ""

    def build(self, state: Any) -> None:
        """Fill the array. state: version, shape, dtype, True for Fortran order, bytes."""
        _, shape, dtype, fortran, data = state
        self.fill(shape, dtype, "F" if fortran else "C", data)

    def fill(self, shape: Any, dtype: Any, order: Any, data: Any) -> None:
        """Set the elements. Raises FileError if the number of bytes does not fit the shape."""
        shape = sizes_of(shape, "a NumPy array")
        if not isinstance(dtype, PickledDtype) or dtype.dtype is None:
            self.name = "numpy.ndarray of objects or texts"
            self.objects = data if isinstance(data, list) else []
            return
        data = data.encode("latin-1") if isinstance(data, str) else memoryview(data)
        if len(data) != math.prod(shape) * dtype.carrier.itemsize:
            raise FileError(f"a NumPy array of shape {short(shape)} has {len(data)} bytes")
        flat = np.frombuffer(data, dtype.carrier) if len(data) else np.empty(0, dtype.carrier)
        self.array = flat.reshape(shape, order="F" if order == "F" else "C")
        self.dtype = dtype.dtype


def _reconstruct(kind: Any, *_: Any) -> UnreadObject:
    """Make an empty array, filled later by build(). Subclasses of ndarray are not read."""
    is_plain = isinstance(kind, UnreadObject) and kind.name in ("numpy.ndarray", "numpy.memmap")
    return PickledArray() if is_plain else UnreadObject(getattr(kind, "name", "numpy.ndarray"))


def _make_from_buffer(data: Any, dtype: Any, shape: Any, order: Any, *_: Any) -> PickledArray:
    array = PickledArray()
    array.fill(shape, dtype, order, data)
    return array


def _make_jax_array(_: Any, arguments: Any, state: Any, *__: Any) -> Any:
    """Make JAX's array from the arguments and the state of NumPy's."""
    array = _reconstruct(*arguments)
    array.build(state)
    return array


def _make_scalar(dtype: Any, data: Any = b"") -> Any:
    array = PickledArray()
    array.fill((), dtype, "C", data)
    return UnreadObject("a NumPy scalar") if array.array is None else array.array.item()


def _encode_text(text: str, encoding: str) -> Any:
    """Return bytes that Python 3 wrote as a text, for Python 2."""
    if encoding not in ("latin1", "latin-1"):
        return UnreadObject("_codecs.encode")
    return text.encode("latin-1")


_CORE_MAKERS: Makers = {
    "multiarray._reconstruct": _reconstruct,
    "multiarray.scalar": _make_scalar,
    "numeric._frombuffer": _make_from_buffer,
}
_JAX_ARRAYS = (
    "jax._src.array._reconstruct_array",  # until 0.4.1 the second name
    "jax._src.device_array.reconstruct_device_array",
)
_JAX_DICTS = (
    "flax.core.frozen_dict.FrozenDict",
    "haiku._src.data_structures.FlatMapping",
    "haiku._src.data_structures.frozendict",
)
# Makers of containers of the standard library, Flax and Haiku, and of the arrays and numbers of
# NumPy and JAX.
MAKERS: Makers = {
    **dict.fromkeys(_JAX_ARRAYS, _make_jax_array),
    **dict.fromkeys(_JAX_DICTS, ordered_dict),
    "collections.OrderedDict": ordered_dict,
    "collections.Counter": ordered_dict,
    "collections.defaultdict": lambda *_: PickledDict(),
    **dict.fromkeys(("builtins.set", "__builtin__.set"), PickledSet),
    "numpy.dtype": PickledDtype,
    "_codecs.encode": _encode_text,
    **dict.fromkeys(("builtins.bytes", "__builtin__.bytes"), lambda: b""),
    **{f"numpy.core.{name}": maker for name, maker in _CORE_MAKERS.items()},
    **{f"numpy._core.{name}": maker for name, maker in _CORE_MAKERS.items()},
}


# -------------------------------------------------------------------------------------- the tensors

_MOST_KINDS, _MOST_NAMES = 20, 3  # in notes

_ADVICE = {
    _OTHER_KEY: "give it a text as key, and save it again",
    "__torch__.": "it is a program without named tensors, as torch.jit.freeze() makes it; save the"
    " program that it was made from",
    "packed weights": "a state_dict does not say which; save the whole module, torch.save(module)",
    "a sparse tensor": "make it dense in torch, x.to_dense(), and save it again",
    "a quantized tensor": "make it floats in torch, x.dequantize(), and save it again",
    "a nested tensor": "save the tensors of its x.unbind() instead",
    "a negative view": "make it plain in torch, x.resolve_neg(), and save it again",
    "a tensor on the meta device": "it has a shape but no values; load the weights into the module,"
    " and save it again",
    "a complex tensor": "no layout has complex weights",
    "torch.ScriptObject": "it is a quantized module with packed weights; save the state_dict of the"
    " module that it was made from",
    "torch.storage._load_from_bytes": "it is a tensor that pickle.dump() wrote; if you trust the"
    " file, unpickle it and write it with torch.save()",
}
_GENERAL_ADVICE = (
    "only tensors, numbers, strings and containers are read; if you trust the file, load it with"
    " the program that wrote it and save a state_dict"
)


def tensors_of_pickle(
    file: InputFile,
    leaves: Iterable[tuple[str, Any]],
    tensor_of: Callable[[Any], FileTensor | None],
) -> TensorSet:
    """Return the tensors of a pickle. leaves: (name, leaf) pairs; a name is the keys on the path to
    the leaf, joined by dots. tensor_of: leaf -> tensor, None if the leaf is not a tensor. Raises
    FileError without tensors, or if two tensors would have the same name."""
    tensor_set = TensorSet({})
    for name, value in leaves:
        tensor = tensor_of(value)
        if tensor is not None:
            file.budget.charge("arrays", tensor.nbytes)  # many tensors may share a storage
            tensor_set.add(name, tensor, file)
        elif isinstance(value, UnreadObject):
            file.budget.charge("names", len(name))
            tensor_set.skipped[name] = value.name
        else:
            tensor_set.add_value(name)
    kinds: dict[str, list[str]] = {}
    for name, kind in tensor_set.skipped.items():
        kinds.setdefault(kind, []).append(name)
    advice = tensor_set.advice = {
        kind: next((text for begin, text in _ADVICE.items() if kind.startswith(begin)), "")
        for kind in kinds
    }
    if not tensor_set.tensors and kinds:
        why = next(filter(None, advice.values()), _GENERAL_ADVICE)
        raise FileError(
            f"{file} has no tensors that are read, but {list_names(tensor_set.skipped.values())}:"
            f" {why}"
        )
    if not tensor_set.tensors:
        raise FileError(f"{file} has no tensors")
    tensor_set.notes = [
        f"{kind} in {list_names(names, _MOST_NAMES)} was not read"
        + f": {advice[kind]}" * bool(advice[kind])
        for kind, names in list(kinds.items())[:_MOST_KINDS]
    ]
    if len(kinds) > _MOST_KINDS:
        more_kinds = len(kinds) - _MOST_KINDS
        tensor_set.notes.append(f"objects of {more_kinds} other classes were not read")
    return tensor_set
