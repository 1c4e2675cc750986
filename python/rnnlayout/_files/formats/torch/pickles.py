"""Pickles read as data: what they name is never imported, what they call is never called.

torch.save() writes pickles. A pickle is a program; this module runs only the part that builds
containers, and puts a `Named` in the place of each name that the caller allows.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import struct
from collections.abc import Callable, Collection, Mapping
from typing import Any

from rnnlayout._model.errors import FileError

# Each step makes at most one object of 72 bytes and takes a third of a microsecond: at most 60 MB
# and 0.3 s. A tensor takes 40 steps.
MOST_STEPS = 800_000

# The harmless opcodes. pickletools.genops() would read them too, but lines and texts of any length.
_HARMLESS = {
    "PROTO", "FRAME", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2",
    "LONG1",
    "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINSTRING", "SHORT_BINSTRING", "BINBYTES",
    "SHORT_BINBYTES", "EMPTY_TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "TUPLE", "EMPTY_LIST", "APPEND",
    "APPENDS", "EMPTY_DICT", "SETITEM", "SETITEMS", "BINGET", "LONG_BINGET", "BINPUT",
    "LONG_BINPUT", "MEMOIZE", "STACK_GLOBAL", "REDUCE", "BUILD", "BINPERSID",
}  # fmt: skip
# opcode -> bytes of its argument; below 0 a key of _LENGTH_NBYTES
_ARGUMENT_NBYTES = {
    ord(op.code): op.arg.n if op.arg else 0 for op in pickletools.opcodes if op.name in _HARMLESS
}
_LENGTH_NBYTES = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
}
_STOP, _LONG1, _LONG_BINPUT = pickle.STOP[0], pickle.LONG1[0], pickle.LONG_BINPUT[0]
_GLOBAL, _INST, _FRAME = pickle.GLOBAL[0], pickle.INST[0], pickle.FRAME[0]

_WHOLE = "it is a whole module; if you trust it, load it with torch and save module.state_dict()"
_ADVICE = {
    "torch.nn.": _WHOLE,
    "__main__.": _WHOLE,
    "torch.ScriptObject": "it is a quantized module with packed weights; save the state_dict of the"
    " module that it was made from",
}


class Named:
    """Something that a pickle names, such as "collections.OrderedDict". A call of it calls `make`,
    or returns a Made."""

    __slots__ = ("_make", "name")

    def __init__(self, name: str, make: Callable[..., Any] | None) -> None:
        self.name = name
        self._make = make

    def __call__(self, *args: Any) -> Any:
        return self._make(*args) if self._make else Made(self.name)

    def __setstate__(self, state: Any) -> None:
        raise FileError(f"its pickle changes {self.name}")


class Made:
    """An object that is not used here."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __setstate__(self, state: Any) -> None:
        pass


class Dict(dict[Any, Any]):
    """An OrderedDict. attributes: the state that was pickled with it."""

    attributes: Any = None

    def __setstate__(self, state: Any) -> None:
        self.attributes = state


def _refused(what: str, name: str) -> FileError:
    advice = next(
        (text for begin, text in _ADVICE.items() if name.startswith(begin)),
        "only tensors, numbers, strings and containers are read; if you trust the file, load it"
        " with torch and save a state_dict",
    )
    return FileError(f"{what} asks for {name[:200]!r}, which would run code: {advice}")


def scan(data: Any, at: int, allowed: Collection[str], what: str) -> int:
    """Return the end of the pickle that begins at data[at], if all its steps are harmless.

    Raises FileError for other opcodes, a name that is not allowed, a length beyond the data, or
    more than MOST_STEPS steps. (Names from STACK_GLOBAL are checked by load().)
    """
    start, end = at, len(data)
    for _ in range(MOST_STEPS):
        if at >= end:
            break
        code = data[at]
        at += 1
        n = _ARGUMENT_NBYTES.get(code)
        if n is not None:
            if n < 0:
                width = _LENGTH_NBYTES[n]
                n = int.from_bytes(data[at : at + width], "little")
                if code == _LONG1 and n > 8:  # keys that collide can be made of longer ones
                    raise FileError(f"{what}: an integer of {n} bytes in its pickle")
                at += width
            elif code == _LONG_BINPUT and int.from_bytes(data[at : at + n], "little") > MOST_STEPS:
                raise FileError(f"{what}: its pickle's memo has more than {MOST_STEPS} objects")
            elif code == _FRAME and int.from_bytes(data[at : at + n], "little") > end - at - n:
                break
            at += n
        elif code in (_GLOBAL, _INST):
            line = data.find(b"\n", at, at + 1000)
            stop = data.find(b"\n", line + 1, line + 1000)
            if line < 0 or stop < 0:
                break
            module, name = data[at:line], data[line + 1 : stop]
            full = (module + b"." + name).decode("utf-8", "backslashreplace")
            if full not in allowed or code == _INST:
                raise _refused(what, full)
            at = stop + 1
        elif code == _STOP:
            return at
        else:
            byte = at - 1 - start
            raise FileError(f"{what} is not plain data: opcode 0x{code:02x} at byte {byte}")
    else:
        raise FileError(f"{what}: a pickle of more than {MOST_STEPS} steps is not a state_dict")
    raise FileError(f"{what}: its pickle is cut short")


Makers = Mapping[str, Callable[..., Any] | None]
Persistent = Callable[[Any], Any]


def load(data: bytes, makers: Makers, persistent: Persistent, what: str) -> Any:
    """Return the object that a pickle describes. scan() must have accepted it.

    makers: the names that it may use -> what a call of each calls; None: it returns a Made.
    persistent: returns the object for a persistent id.
    """
    try:
        return _Reader(data, makers, persistent, what).load()
    except FileError as error:
        text = str(error)
        raise error if text.startswith(what) else FileError(f"{what}: {text}") from None
    except (  # all errors of harmless steps in a wrong order
        pickle.UnpicklingError, EOFError, AttributeError, TypeError, ValueError, KeyError,
        IndexError, OverflowError, struct.error,
    ) as error:  # fmt: skip
        raise FileError(f"{what}: its pickle is damaged ({str(error)[:200]})") from None


class _Reader(pickle.Unpickler):
    def __init__(self, data: bytes, makers: Makers, persistent: Persistent, what: str) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8")
        self._makers, self._persistent, self._what = makers, persistent, what

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if full not in self._makers:
            raise _refused(self._what, full)
        return Named(full, self._makers[full])

    def persistent_load(self, pid: Any) -> Any:
        return self._persistent(pid)
