"""Which name was meant by one that does not exist."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a message that suggests a known name, "" if none is similar.

    >>> did_you_mean("torhc", ["torch", "keras"]), did_you_mean("LSTM", ["lstm"])
    ("; did you mean 'torch'?", "; did you mean 'lstm'?")
    """
    lower = {one.lower(): one for one in known}
    found = get_close_matches(name.lower(), lower, n=1)
    return f"; did you mean {lower[found[0]]!r}?" if found else ""
