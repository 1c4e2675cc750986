"""Make text from a file harmless for a terminal."""

from __future__ import annotations

from typing import Any

_LEFT_OUT = " ... "

LONGEST = 600  # characters of a text that is shown


def printable(text: Any, longest: int = LONGEST) -> str:
    """Return text in one line of at most `longest` characters, with unprintable characters escaped.

    Unprintable are control characters, escape sequences of terminals, and characters that change
    the direction of writing. Use printable() for all text that may come from a file.

        >>> printable("lstm\\x1b[2J\\u202e")
        'lstm\\\\x1b[2J\\\\u202e'
    """
    short = cut_middle(str(text), longest)
    if short.isprintable():
        return short
    escaped = (c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in short)
    return cut_middle("".join(escaped), longest)


def cut_middle(text: str, longest: int) -> str:
    """Return text of at most `longest` characters, without the middle of a longer text.

    >>> cut_middle("a file with a very long name: rename it", 25)
    'a file wit ...  rename it'
    """
    if len(text) <= longest:
        return text
    end = max(0, longest - len(_LEFT_OUT)) // 2
    return f"{text[: longest - len(_LEFT_OUT) - end]}{_LEFT_OUT}{text[len(text) - end :]}"
