"""Errors, whose texts consist of parts: strings, and arguments that the caller has to pass.

Python and the command line write arguments differently. This file imports nothing that needs the
core: the core raises most of the errors, and the binding takes the classes from this file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from importlib import import_module
from itertools import groupby
from typing import Any, NamedTuple, NoReturn, TypeVar

from .printable import LONGEST, cut_middle, printable


class Ask(NamedTuple):
    """An argument that a text asks for: a part of an Error or a Message.

    value: the value to pass; ... if only the caller knows the value, None to omit the argument.
    also: the fields of a spec to write even at the default.
    """

    name: str
    value: Any = ...
    also: Collection[str] = ()

    @property
    def text(self) -> str:
        """The argument in the syntax of the front end."""
        return _writer.get()(self)

    def __str__(self) -> NoReturn:
        """Refuse to become part of a string, also of an f-string: .asks would lack the argument."""
        raise TypeError(f"a string would lose {self!r}: pass it as a part")


def write_in_python(ask: Ask) -> str:
    """Return an argument in the syntax of Python: cell='gru'."""
    value = ask.value
    if value is ...:
        text = "rl.Spec(...)" if ask.name == "spec" else ""
    elif value is None:
        text = ""
    else:
        text = value._in_call(ask.also) if hasattr(value, "_in_call") else repr(value)
    return f"{ask.name}={text}"


def load_in_python(path: Any, options: Mapping[str, Any]) -> str:
    """Return the call of load() that reads a file. options: other arguments, and defaults."""
    asks = [Ask(name, v) for name, v in options.items() if v and v is not True]
    return f"rl.load({', '.join([repr(os.fspath(path)), *map(write_in_python, asks)])})"


_writer: ContextVar[Callable[[Ask], str]] = ContextVar("_writer", default=write_in_python)


@contextmanager
def asks_written_by(write: Callable[[Ask], str]) -> Iterator[None]:
    """Write the arguments of all texts in the syntax of a front end, within this context."""
    token = _writer.set(write)
    try:
        yield
    finally:
        _writer.reset(token)


class Message:
    """A text of several parts, for an error, a warning or a note.

    parts: strings and Asks. Messages and errors among the arguments are replaced by the parts of
    the message or error.
    """

    def __init__(self, *parts: TextPart) -> None:
        self.parts: tuple[str | Ask, ...] = tuple(_join_strings(parts))

    @property
    def text(self) -> str:
        """The whole text, with arguments in the syntax of the front end."""
        return "".join(part if isinstance(part, str) else part.text for part in self.parts)

    def __str__(self) -> NoReturn:
        """Refuse to become part of a string, as an Ask does."""
        raise TypeError(f"a string would lose {self.parts!r}: pass the message as a part")


def join_parts(separator: str, parts: Iterable[TextPart]) -> Message:
    """Return the message of all parts, with a separator between neighbours."""
    separated = [piece for part in parts for piece in (separator, part)]
    return Message(*separated[1:])


def _join_strings(parts: Iterable[TextPart]) -> Iterator[str | Ask]:
    """Yield the strings and Asks of parts, with neighbouring strings joined."""
    for kind, pieces in groupby(_flatten(parts), type):
        if kind is Ask:
            yield from pieces
        else:
            yield "".join(map(str, pieces))


def _flatten(parts: Iterable[TextPart]) -> Iterator[str | Ask]:
    for part in parts:
        if isinstance(part, (Message, Error)):
            yield from part.parts
        else:
            yield part if isinstance(part, Ask) else str(part)


class Error(Exception):
    """The base of all errors of rnnlayout."""

    __module__ = "rnnlayout"

    def __init__(self, *parts: TextPart) -> None:
        super().__init__(*_join_strings(parts))

    @property
    def parts(self) -> tuple[str | Ask, ...]:
        """The strings and Asks of the text."""
        return self.args

    @property
    def asks(self) -> tuple[tuple[str, Any], ...]:
        """The arguments that the text asks for: pairs of name and value to pass. The value is ...
        if only the caller knows the value, and None for an argument to omit."""
        return tuple((part.name, part.value) for part in self.parts if isinstance(part, Ask))

    @property
    def text(self) -> str:
        """The whole text, of which str() shows at most 600 characters."""
        return Message(*self.parts).text

    def __str__(self) -> str:
        return _shown_text(Message(*self.parts))


class AssumedWarning(UserWarning):
    """An RNN runs with settings that its source does not record; the message lists the assumed
    values, and the arguments that name them."""

    __module__ = "rnnlayout"


TextPart = str | Ask | Message | BaseException
_Exception = TypeVar("_Exception", bound=Exception)


class SpecError(Error, ValueError):
    """The description of an RNN contradicts itself, the weights or a limit."""

    __module__ = "rnnlayout"


class LayoutError(Error, ValueError):
    """Weights do not fit: the text names the tensor, the actual shape or dtype, the expected shape
    or dtype, and the likely cause."""

    __module__ = "rnnlayout"


class LossyError(LayoutError):
    """The target cannot represent a value or the whole RNN; or a value would be rounded although
    the caller passed exact=True."""

    __module__ = "rnnlayout"


class FileError(Error, ValueError):
    """A file is malformed, unsafe to read, or of no known format."""

    __module__ = "rnnlayout"


class UnknownNameError(Error, KeyError):
    """No RNN of a file has this name."""

    __module__ = "rnnlayout"


class MissingExtraError(Error, ImportError):
    """A package that a format needs is not installed. The message has the command to install."""

    __module__ = "rnnlayout"


class CudnnNotFoundError(Error, RuntimeError):
    """No cuDNN, driver or GPU is usable: the text lists each searched place, why the place was
    rejected, and the repair."""

    __module__ = "rnnlayout"

    def __str__(self) -> str:
        """Return the whole text: a line for each place, and nothing from a file."""
        return self.text


class CudnnError(Error, RuntimeError):
    """A call of cuDNN or of the driver failed: the text names the call, the result and the repair;
    .call is the call's name, .status the result."""

    __module__ = "rnnlayout"
    call: str
    status: int


def error_with_parts(error: _Exception, *parts: TextPart) -> _Exception:
    """Return a copy of the error with another text."""
    renamed = copy(error)
    renamed.args = Message(*parts).parts
    return renamed


def error_with_name(error: _Exception, name: str) -> _Exception:
    """Return a copy of the error with a name before the text."""
    return error_with_parts(error, f"{name}: ", error)


def import_extra(module: str, extra: str, user: str) -> Any:
    """Return a module of a package that is not a dependency. user: the part of rnnlayout, in the
    message, that needs the package. Raises MissingExtraError if the package is not installed."""
    try:
        return import_module(module)
    except ImportError:
        raise MissingExtraError(
            f"{user} needs the package {module.partition('.')[0]}, which is not installed: pip"
            f' install "rnnlayout[{extra}]"'
        ) from None


def _shown_text(message: Message) -> str:
    """Return a text in at most LONGEST characters that control no terminal."""
    text = message.text
    if len(text) <= LONGEST and text.replace("\n", "").isprintable():
        return text
    parts = message.parts
    if sum(len(part.text) for part in parts if isinstance(part, Ask)) > LONGEST // 2:
        # nobody types such values
        parts = tuple(Ask(part.name) if isinstance(part, Ask) else part for part in parts)
    asks = [part.text for part in parts if isinstance(part, Ask)]
    longest = (LONGEST - sum(map(len, asks))) // max(1, len(parts) - len(asks))
    return "".join(
        part.text if isinstance(part, Ask) else _printable_lines(part, longest) for part in parts
    )


def _printable_lines(text: str, longest: int) -> str:
    lines = cut_middle(text, longest).split("\n")
    return cut_middle("\n".join(printable(line) for line in lines), longest)
