"""The error for a source that does not record all facts about the RNN."""

from __future__ import annotations

from collections.abc import Sequence

from .errors import Ask, Message, SpecError, TextPart, join_parts
from .spec import Spec
from .weights import Weights


class UndecidedError(SpecError):
    """The source lacks a fact that changes outputs; the message asks for an argument.

    arguments: names of the arguments to pass. reason: the missing fact. repair: the arguments as
    text. candidates: the RNNs that fit, with the same tensors.
    """

    __module__ = "rnnlayout"

    def __init__(
        self,
        *parts: TextPart,
        candidates: Sequence[Weights] = (),
        arguments: Sequence[str] = (),
        reason: str = "",
        repair: Message | None = None,
    ) -> None:
        super().__init__(*parts)
        self.candidates, self.arguments, self.reason = tuple(candidates), tuple(arguments), reason
        self._repair = repair or join_parts(" and ", map(Ask, arguments))

    @property
    def repair(self) -> str:
        """The arguments to pass, in the syntax of the front end."""
        return self._repair.text

    @property
    def specs(self) -> tuple[Spec, ...]:
        """The specs that fit."""
        return tuple(rnn.spec for rnn in self.candidates)

    @property
    def layout(self) -> str:
        """The layout's name."""
        return self.candidates[0].layout.name

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the tensors by name."""
        return {name: array.shape for name, array in self.candidates[0].bits.items()}
