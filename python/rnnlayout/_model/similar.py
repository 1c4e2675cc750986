"""Suggest an existing name for a name that does not exist."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from .errors import Message, TextPart


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return the end of a message that suggests a known name, "" if no name is similar.

    Names may be paths: a name that is similar to the last part of a path is similar to the path.

    >>> did_you_mean("torhc", ["torch", "keras"]), did_you_mean("LSTM", ["model/lstm"])
    ("; did you mean 'torch'?", "; did you mean 'model/lstm'?")
    """
    names = list(names)
    ends = {re.split("[./]", path)[-1].lower(): path for path in names}
    lower = ends | {path.lower(): path for path in names}
    matches = get_close_matches(name.lower(), lower, n=1)
    return f"; did you mean {lower[matches[0]]!r}?" if matches else ""


def unknown_name(problem: TextPart, name: str, names: Iterable[str], *listing: TextPart) -> Message:
    """Return a message about a name that does not exist: the suggestion, then the list.

    >>> unknown_name("no 'torhc'", "torhc", ["torch"], "need one of: torch").text
    "no 'torhc'; did you mean 'torch'? Need one of: torch"
    """
    suggestion = did_you_mean(name, names)
    if not suggestion:
        return Message(problem, ": ", *listing)
    first, *rest = listing
    capital = first[0].upper() + first[1:] if isinstance(first, str) else first
    return Message(problem, suggestion, " ", capital, *rest)
