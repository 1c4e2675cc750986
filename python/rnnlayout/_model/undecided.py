"""UndecidedError: what a source does not record about its RNN, and what is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TypeVar

from rnnlayout._native import SpecError

from .asks import Ask, join_messages
from .checked_rnn import CheckedRNN
from .spec import Spec

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
