"""Pickles read as data: what they name is never imported, what they call is never called.

torch.save() writes pickles. A pickle is a program; this module runs only the part of it that puts
containers together, and stands `Named` for each thing that it names, if a caller allows the name.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable, Collection, Mapping
from typing import Any

from rnnlayout._model.errors import FileError

# Each step makes at most one object of 72 bytes and takes a third of a microsecond: 60 MB and
# 0.3 s at the most. A tensor takes 40 steps.
MOST_STEPS = 800_000

# opcode -> how many bytes of argument follow.
_PLAIN = {
    "PROTO": 1, "NONE": 0, "NEWTRUE": 0, "NEWFALSE": 0, "BININT": 4, "BININT1": 1, "BININT2": 2,
    "BINFLOAT": 8, "EMPTY_TUPLE": 0, "TUPLE1": 0, "TUPLE2": 0, "TUPLE3": 0, "TUPLE": 0, "MARK": 0,
    "EMPTY_LIST": 0, "APPEND": 0, "APPENDS": 0, "EMPTY_DICT": 0, "SETITEM": 0, "SETITEMS": 0,
    "BINGET": 1, "LONG_BINGET": 4, "BINPUT": 1, "LONG_BINPUT": 4, "MEMOIZE": 0, "FRAME": 8,
    "STACK_GLOBAL": 0, "REDUCE": 0, "BUILD": 0, "BINPERSID": 0,
}  # fmt: skip
_LENGTHS = {getattr(pickle, name)[0]: n for name, n in _PLAIN.items()}
# opcode -> how many bytes of a length come before the argument.
_COUNTED = {
    getattr(pickle, name)[0]: n
    for name, n in {
        "LONG1": 1, "SHORT_BINUNICODE": 1, "BINUNICODE": 4, "SHORT_BINSTRING": 1, "BINSTRING": 4,
        "SHORT_BINBYTES": 1, "BINBYTES": 4,
    }.items()
}  # fmt: skip
_STOP, _LONG1, _LONG_BINPUT = pickle.STOP[0], pickle.LONG1[0], pickle.LONG_BINPUT[0]
_GLOBAL, _INST, _FRAME = pickle.GLOBAL[0], pickle.INST[0], pickle.FRAME[0]

_WHOLE = "this is a whole module; where it is trusted, load it and save module.state_dict()"
_ADVICE = {
    "torch.nn.": _WHOLE,
    "__main__.": _WHOLE,
    "torch.ScriptObject": "this is a quantized module with packed weights; save the state_dict of"
    " the module that it was made from",
}


class Named:
    """What a pickle names, "collections.OrderedDict". Called, it makes what `makers` says."""

    __slots__ = ("_make", "name")

    def __init__(self, name: str, make: Callable[..., Any] | None) -> None:
        self.name = name
        self._make = make

    def __call__(self, *args: Any) -> Any:
        return self._make(*args) if self._make else Made(self.name)

    def __setstate__(self, state: Any) -> None:
        raise FileError(f"a pickle that changes {self.name}")


class Made:
    """Something of no interest here."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __setstate__(self, state: Any) -> None:
        pass


class Dict(dict[Any, Any]):
    """An OrderedDict; attributes: what it had besides."""

    attributes: Any = None

    def __setstate__(self, state: Any) -> None:
        self.attributes = state


def refused(what: str, name: str) -> FileError:
    """The error for a pickle that names what it must not."""
    advice = next(
        (text for begin, text in _ADVICE.items() if name.startswith(begin)),
        "only tensors, numbers, texts and containers are read; where the file is trusted, load it"
        " there and save a state_dict",
    )
    return FileError(f"{what} asks for {name[:200]!r}, which would run code: {advice}")


def scan(data: Any, at: int, allowed: Collection[str], what: str) -> int:
    """The end of the pickle that begins at data[at], if all its steps are harmless.

    FileError: an opcode that has no place in a state dict, a name that is not allowed, a length
    beyond the data, or more than MOST_STEPS steps. (Names that STACK_GLOBAL puts together are
    left to load().)
    """
    start, end = at, len(data)
    for _ in range(MOST_STEPS):
        if at >= end:
            break
        code = data[at]
        at += 1
        if code in _LENGTHS:
            n = _LENGTHS[code]
            if code == _LONG_BINPUT and int.from_bytes(data[at : at + 4], "little") > MOST_STEPS:
                raise FileError(f"{what}: a pickle with a memo of more than {MOST_STEPS} objects")
            if code == _FRAME and int.from_bytes(data[at : at + 8], "little") > end - at - 8:
                break
        elif code in _COUNTED:
            n = int.from_bytes(data[at : at + _COUNTED[code]], "little")
            if code == _LONG1 and n > 8:  # keys that collide can be made of longer ones
                raise FileError(f"{what}: an integer of {n} bytes in its pickle")
            at += _COUNTED[code]
        elif code in (_GLOBAL, _INST):
            line = data.find(b"\n", at, at + 1000)
            stop = data.find(b"\n", line + 1, line + 1000)
            if line < 0 or stop < 0:
                break
            module, name = data[at:line], data[line + 1 : stop]
            full = (module + b"." + name).decode("utf-8", "backslashreplace")
            if full not in allowed or code == _INST:
                raise refused(what, full)
            at, n = stop + 1, 0
        elif code == _STOP:
            return at
        else:
            raise FileError(
                f"{what}: no pickle of plain data (opcode 0x{code:02x} at byte {at - 1 - start})"
            )
        at += n
    else:
        raise FileError(f"{what}: a pickle of more than {MOST_STEPS} steps is no state dict")
    raise FileError(f"{what}: its pickle ends early")


def load(
    data: bytes,
    makers: Mapping[str, Callable[..., Any] | None],
    persistent: Callable[[Any], Any],
    what: str,
) -> Any:
    """What a pickle that passed scan() describes.

    makers: the names that it may use, and what a call of each gives; None: a Made.
    persistent: gives the object for a persistent id.
    """
    try:
        return _Reader(data, makers, persistent, what).load()
    except FileError as error:
        text = str(error)
        raise error if text.startswith(what) else FileError(f"{what}: {text}") from None
    except (  # all that a wrong order of harmless steps can come to
        pickle.UnpicklingError, EOFError, AttributeError, TypeError, ValueError, KeyError,
        IndexError, OverflowError, struct.error,
    ) as error:  # fmt: skip
        raise FileError(f"{what}: a damaged pickle ({str(error)[:200]})") from None


class _Reader(pickle.Unpickler):
    def __init__(
        self,
        data: bytes,
        makers: Mapping[str, Callable[..., Any] | None],
        persistent: Callable[[Any], Any],
        what: str,
    ) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8")
        self._makers, self._persistent, self._what = makers, persistent, what

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if full not in self._makers:
            raise refused(self._what, full)
        return Named(full, self._makers[full])

    def persistent_load(self, pid: Any) -> Any:
        return self._persistent(pid)
