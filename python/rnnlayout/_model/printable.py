"""Text from a file, made harmless."""

from __future__ import annotations

from typing import Any


def printable(text: Any) -> str:
    """Return text on one line, with characters escaped that are not printable.

    These include control characters, escape sequences of terminals, and characters that change the
    direction of writing. Use it for all text that may come from a file.

        >>> printable("lstm\\x1b[2J\\u202e")
        'lstm\\\\x1b[2J\\\\u202e'
    """
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in str(text)
    )
