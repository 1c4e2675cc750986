"""Pickles read as data: what they name is never imported, what they call is never called.

A pickle is a program for a small machine. This is such a machine, with the harmless instructions
only. Whatever a pickle names, and whatever it would make by calling that, is an UnreadObject,
except where the caller knows how to make it from data. NumPy's arrays and numbers are made from
their bytes without NumPy's own functions.

Python's own unpickler is unsafe even if it imports nothing: it computes the hash of each key, and
that of a tuple in 100,000 others overflows the stack of the process.
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
_COPIED_NBYTES = 4096  # longer byte strings are views of the file
# How protocols 2 and 3 name a nested class, and Python 3.11.2 a member of an enum.
_GETATTR = ("builtins.getattr", "__builtin__.getattr")

Makers = Mapping[str, Callable[..., Any]]
Persistent = Callable[[Any], Any]


class UnreadObject:
    """Something that a pickle names, or that it would make by calling what it names."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name[:_LONGEST_NAME]

    def build(self, state: Any) -> None:
        """Take no notice of its state."""


class PickledSet(UnreadObject):
    """A set. texts: the texts in it."""

    __slots__ = ("texts",)

    def __init__(self, items: Any = ()) -> None:
        super().__init__("set")
        self.texts: set[str] = set()
        self.build(items)

    def build(self, state: Any) -> None:
        """Take more items."""
        self.texts.update(one for one in state if isinstance(one, str))


class PickledDict(dict[Any, Any]):
    """An OrderedDict, a defaultdict or a Counter. attributes: the state pickled with it."""

    attributes: Any = None

    def build(self, state: Any) -> None:
        """Keep the state."""
        self.attributes = state


def ordered_dict(pairs: Any = ()) -> PickledDict:
    """Make collections.OrderedDict. Python 2 gives it a list of pairs."""
    made = PickledDict()
    for key, value in pairs.items() if isinstance(pairs, dict) else pairs:
        _put_item(made, key, value)
    return made


def load_pickle(
    data: Any,
    at: int,
    makers: Makers,
    persistent: Persistent,
    file: InputFile,
    encoding: str = "utf-8",
    unknown: Callable[[str], Any] = UnreadObject,
) -> tuple[Any, int]:
    """Return the object of the pickle that begins at data[at], and where it ends.

    data: bytes, or a memory map. makers: by the name of a function or class, the function to call
    instead. persistent: returns the object for a persistent id. encoding: how to decode the byte
    strings of Python 2. unknown: makes an object of any other class, given its name. Raises
    FileError for an instruction that is not harmless, for a pickle that is cut short or wrong, and
    for one that exceeds the budget of its file."""
    what = str(file)
    machine = _PickleMachine(makers, persistent, encoding, unknown, file.budget)
    try:
        with name_file(file):
            return machine.run(memoryview(data), at, what)
    except FileError:
        raise
    except (  # all errors of harmless steps in a wrong order
        AttributeError, TypeError, ValueError, KeyError, IndexError, OverflowError, RecursionError,
        struct.error,
    ) as error:  # fmt: skip
        raise FileError(f"{what}: its pickle is damaged ({str(error)[:200]})") from None


@dataclass
class _PickleMachine:
    makers: Makers
    persistent: Persistent
    encoding: str
    unknown: Callable[[str], Any]
    budget: Budget
    stack: list[Any] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def run(self, data: memoryview, at: int, what: str) -> tuple[Any, int]:
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
                module, name, *rest = bytes(data[at : at + 2000]).split(b"\n", 2)
                if not rest:
                    break
                self.name(module.decode(), name.decode())
                at += len(module) + len(name) + 2
                continue
            if code in _LINES:
                line, *rest = bytes(data[at : at + _LONGEST_LINE]).split(b"\n", 1)
                if not rest:
                    break
                self.push(_LINES[code](line))
                at += len(line) + 1
                continue
            if code not in _INSTRUCTIONS:
                byte = at - 1 - start
                raise FileError(f"{what} is not plain data: opcode 0x{code:02x} at byte {byte}")
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
        raise FileError(f"{what}: its pickle is cut short")

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def items(self) -> list[Any]:
        """Take what was pushed since the last mark."""
        at = self.marks.pop()
        found = self.stack[at:]
        del self.stack[at:]
        return found

    def append(self, values: list[Any]) -> None:
        if isinstance(self.stack[-1], list):
            self.stack[-1].extend(values)
        else:
            self.build(values)

    def set(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, dict):
            for key, value in zip(values[::2], values[1::2], strict=True):
                _put_item(target, key, value)
        else:
            self.build(values)

    def build(self, state: Any) -> None:
        """Give the last object its state, or items that it may take."""
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
        make, name = self.makers.get(target.name), target.name
        if make:
            self.count_copied(args)
        elif name in _GETATTR and isinstance(args[0], UnreadObject) and isinstance(args[1], str):
            name = f"{args[0].name}.{args[1][:_LONGEST_NAME]}"
        self.stack.append(make(*args) if make else self.unknown(name))

    def count_copied(self, values: Any) -> None:
        """Count what may be copied: a pickle can pass one long text or tuple again and again."""
        sizes = (len(one) for one in values if isinstance(one, (str, dict, list, tuple)))
        self.budget.charge("copied", len(values) + sum(sizes))

    def pop(self, count: int) -> list[Any]:
        found = self.stack[-count:]
        if len(found) < count:
            raise IndexError("its stack is empty")
        del self.stack[-count:]
        return found


def _put_item(target: dict[Any, Any], key: Any, value: Any) -> None:
    """Set an item whose key can be a part of a tensor's name. Other items are left out: the hash of
    a tuple may need any depth of calls, and among long integers many have the same."""
    if type(key) is str or (type(key) is int and key.bit_length() < 64):
        target[key] = value


def _uint_argument(argument: memoryview) -> int:
    return int.from_bytes(argument, "little")


def _keep_in_memo(machine: _PickleMachine, number: int) -> None:
    machine.memo[number] = machine.stack[-1]


# What the harmless instructions do: with the machine m and their argument a.
_STEPS: dict[str, Callable[[_PickleMachine, memoryview], Any]] = {
    **dict.fromkeys(("PROTO", "FRAME"), lambda m, a: None),
    "MARK": lambda m, a: m.marks.append(len(m.stack)),
    "NONE": lambda m, a: m.push(None),
    "NEWTRUE": lambda m, a: m.push(True),
    "NEWFALSE": lambda m, a: m.push(False),
    **dict.fromkeys(("BININT", "LONG1"),
                    lambda m, a: m.push(int.from_bytes(a, "little", signed=True))),
    **dict.fromkeys(("BININT1", "BININT2"), lambda m, a: m.push(_uint_argument(a))),
    "BINFLOAT": lambda m, a: m.push(struct.unpack(">d", a)[0]),
    **dict.fromkeys(("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
                    lambda m, a: m.push(str(a, "utf-8", "surrogatepass"))),
    **dict.fromkeys(("BINSTRING", "SHORT_BINSTRING"), lambda m, a: m.push(str(a, m.encoding))),
    **dict.fromkeys(("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
                    lambda m, a: m.push(a if len(a) > _COPIED_NBYTES else bytes(a))),
    "EMPTY_TUPLE": lambda m, a: m.push(()),
    "TUPLE1": lambda m, a: m.push(tuple(m.pop(1))),
    "TUPLE2": lambda m, a: m.push(tuple(m.pop(2))),
    "TUPLE3": lambda m, a: m.push(tuple(m.pop(3))),
    "TUPLE": lambda m, a: m.push(tuple(m.items())),
    "EMPTY_LIST": lambda m, a: m.push([]),
    "APPEND": lambda m, a: m.append(m.pop(1)),
    "APPENDS": lambda m, a: m.append(m.items()),
    "EMPTY_DICT": lambda m, a: m.push({}),
    "SETITEM": lambda m, a: m.set(m.pop(2)),
    "SETITEMS": lambda m, a: m.set(m.items()),
    "EMPTY_SET": lambda m, a: m.push(PickledSet()),
    "ADDITEMS": lambda m, a: m.append(m.items()),
    "FROZENSET": lambda m, a: m.call(UnreadObject("frozenset"), m.items()),
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
}  # fmt: skip
_STOP, _GLOBAL = pickle.STOP[0], pickle.GLOBAL[0]
# The numbers of protocol 1, as text: 01 is True.
_LINES: dict[int, Callable[[bytes], Any]] = {
    pickle.INT[0]: lambda line: bool(int(line)) if len(line) == 2 and line[0] == 48 else int(line),
    pickle.LONG[0]: lambda line: int(line.removesuffix(b"L")),
}
# The bytes of an argument's length, where the instruction has one.
_LENGTHS = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
# code -> the bytes of its argument or of the argument's length, whether it is a length, the step
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
        self.array = flat.reshape(shape, order="F" if order == "F" else "C")
        self.dtype = dtype.found


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


# What is made of the containers of the standard library, and of NumPy's names.
MAKERS: Makers = {
    "collections.OrderedDict": ordered_dict,
    "collections.Counter": ordered_dict,
    "collections.defaultdict": lambda *_: PickledDict(),
    **dict.fromkeys(("builtins.set", "__builtin__.set"), PickledSet),
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
            read.skipped[name] = value.name
        else:
            read.add_value(name)
    kinds: dict[str, list[str]] = {}
    for name, kind in read.skipped.items():
        kinds.setdefault(kind, []).append(name)
    advice = {
        kind: next((text for begin, text in _ADVICE.items() if kind.startswith(begin)), "")
        for kind in kinds
    }
    if not read.tensors and kinds:
        why = next(filter(None, advice.values()), _OTHERWISE)
        raise FileError(
            f"{file} has no tensors, and asks for {list_names(read.skipped.values())}: {why}"
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
