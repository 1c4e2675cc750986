"""Messages and errors that ask for arguments, which each front end spells in its own way."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeVar

from rnnlayout._native import CudnnNotFoundError, Error, SpecError

from .checked_rnn import CheckedRNN
from .layout import Layout
from .printable import LONGEST, cut_middle, printable
from .spec import Spec, call_of_spec


@dataclass(frozen=True)
class Ask:
    """An argument that a message asks for; str() writes it as Python does: cell='gru'.

    value: what to pass; ... if only the caller knows it, None to omit the argument.
    also: the fields of a spec to write even if they are at their defaults.
    """

    name: str
    value: Any = ...
    also: Collection[str] = ()

    def __str__(self) -> str:
        value = "" if self.value is ... or self.value is None else repr(self.value)
        if self.value is ... and self.name == "spec":
            value = "rl.Spec(...)"
        elif isinstance(self.value, Spec):
            value = f"rl.{call_of_spec(self.value, self.also)}"
        elif isinstance(self.value, Layout):
            value = f"rl.{self.value!r}" if self.value.options else repr(self.value.name)
        return f"{self.name}={value}"

    def __radd__(self, text: str) -> Message:
        return Message(text, self)


class Message(str):
    """A text that asks for arguments: pieces of text and Asks, in `parts`.

    "omit " + Ask("spec", None) is one; so is the sum of a message and a text. An f-string keeps
    only the text. str() returns the message itself, so that str(error) is what it was raised with.
    """

    parts: tuple[str | Ask, ...]

    def __new__(cls, *parts: str | Ask) -> Message:
        message = super().__new__(cls, "".join(map(str, parts)))
        pieces = (part.parts if isinstance(part, Message) else (part,) for part in parts)
        message.parts = tuple(piece for some in pieces for piece in some)
        return message

    def __str__(self) -> str:
        return self

    def __add__(self, other: str | Ask) -> Message:
        return Message(self, other)

    def __radd__(self, other: str) -> Message:
        return Message(other, self)

    def removeprefix(self, prefix: str) -> Message:
        """Return the message without a text that it starts with."""
        first, *rest = self.parts
        return Message(first.removeprefix(prefix) if isinstance(first, str) else first, *rest)


def join_messages(separator: str, parts: Iterable[str | Ask]) -> Message:
    """Return the message of all parts, with the separator between them."""
    pieces = [piece for part in parts for piece in (separator, part)]
    return Message(*pieces[1:])


def spell_message(text: str, spell: Callable[[Ask], str]) -> str:
    """Return a text with the arguments that it asks for as `spell` writes them."""
    parts = text.parts if isinstance(text, Message) else (text,)
    return "".join(spell(part) if isinstance(part, Ask) else part for part in parts)


_Error = TypeVar("_Error", bound=Exception)


class UndecidedError(SpecError):
    """The source does not record something that changes outputs; the message asks for it.

    arguments: what to pass. reason: what is not known, and why. repair: what decides it, as it is
    passed. givens: the RNNs that fit, each as it would be read; they have the same tensors.
    """

    def __init__(
        self,
        message: str,
        givens: Sequence[CheckedRNN] = (),
        arguments: Sequence[str] = (),
        reason: str = "",
        repair: str = "",
    ) -> None:
        super().__init__(message)
        self.givens, self.arguments, self.reason = tuple(givens), tuple(arguments), reason
        self.repair = repair or join_messages(" and ", map(Ask, arguments))

    @property
    def specs(self) -> tuple[Spec, ...]:
        """The specs that fit."""
        return tuple(given.spec for given in self.givens)

    @property
    def layout(self) -> str:
        """The layout's name."""
        return self.givens[0].layout.name

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the tensors by name."""
        return {name: array.shape for name, array in self.givens[0].tensors.items()}


def error_with_name(error: _Error, name: str) -> _Error:
    """Return a copy of the error with a name before its message."""
    return error_with_text(error, f"{name}: " + str(error))


def error_with_text(error: _Error, text: str) -> _Error:
    """Return a copy of the error with another message."""
    new = copy(error)
    new.args = (text,)
    return new


def _shown_message(error: Error) -> str:
    """The message in at most LONGEST characters that control no terminal. args[0] has all of it."""
    text = Exception.__str__(error)
    if len(text) <= LONGEST and text.replace("\n", "").isprintable():
        return text
    parts: list[str | Ask] = []
    for part in text.parts if isinstance(text, Message) else (text,):
        if isinstance(part, str) and parts and isinstance(before := parts[-1], str):
            parts[-1] = before + part
        else:
            parts.append(part)
    asks = [part for part in parts if isinstance(part, Ask)]
    if sum(len(str(ask)) for ask in asks) > LONGEST // 2:  # nobody types that
        asks = [Ask(ask.name) for ask in asks]
    each = (LONGEST - sum(len(str(ask)) for ask in asks)) // max(1, len(parts) - len(asks))
    left = iter(asks)
    return Message(
        *(_printable_lines(part, each) if isinstance(part, str) else next(left) for part in parts)
    )


def _printable_lines(text: str, longest: int) -> str:
    lines = cut_middle(text, longest).split("\n")
    return cut_middle("\n".join(printable(line) for line in lines), longest)


def _asks_of(error: Error) -> tuple[tuple[str, Any], ...]:
    """What the message asks for: pairs of an argument's name and the value to pass, which is ... if
    only the caller knows it, and None for an argument to omit."""
    parts = getattr(error.args[0], "parts", ()) if error.args else ()
    return tuple((part.name, part.value) for part in parts if isinstance(part, Ask))


# The class itself is made by the core, which raises most errors and asks for nothing.
Error.__str__ = _shown_message  # type: ignore[method-assign, assignment]
# It lists the places of this machine that were searched, a line each, and nothing from a file.
CudnnNotFoundError.__str__ = Exception.__str__  # type: ignore[method-assign]
Error.asks = property(_asks_of)  # type: ignore[method-assign, assignment]
