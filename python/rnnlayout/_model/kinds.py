"""The kinds of values that a conversion moves. Each kind has rules of its own: csrc/plan/join.c."""

from __future__ import annotations

from typing import Any, Literal, get_args

from rnnlayout._model.errors import Ask, TextPart
from rnnlayout._native import LayoutError, SpecError

Kind = Literal["weights", "gradient", "squared_gradient"]
KINDS: tuple[Kind, ...] = get_args(Kind)


def check_kind(kind: Any) -> None:
    """Raise SpecError for an unknown kind."""
    if not isinstance(kind, str) or kind not in KINDS:
        raise SpecError(f"kind is {kind!r}, need one of: {', '.join(KINDS)}")


def check_kind_of(source: Any, kind: Kind, name: str = "source") -> None:
    """Raise LayoutError if Weights, or a result of convert(), are not of the kind."""
    if source.kind == kind:
        return
    repair: list[TextPart] = [
        "convert it with ",
        Ask("kind", source.kind),
        "; only weights are run and compared",
    ]
    if source.kind == "weights":
        repair = ["pass the arrays, dict(source)"]
    raise LayoutError(f"{name} is of kind {source.kind!r}, need {kind!r}: ", *repair)
