"""Which name was meant by one that does not exist."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a message that suggests a known name, "" if none is similar.

    Names may be paths, of which the end alone is similar too.

    >>> did_you_mean("torhc", ["torch", "keras"]), did_you_mean("LSTM", ["model/lstm"])
    ("; did you mean 'torch'?", "; did you mean 'model/lstm'?")
    """
    known = list(known)
    ends = {re.split("[./]", one)[-1].lower(): one for one in known}
    lower = ends | {one.lower(): one for one in known}
    found = get_close_matches(name.lower(), lower, n=1)
    return f"; did you mean {lower[found[0]]!r}?" if found else ""
