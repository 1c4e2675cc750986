"""What is printed: data on stdout, words on stderr, and nothing that a terminal would obey."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any, TextIO


def shown(text: Any) -> str:
    """Text that may come from a file, on one line: what is no printable character is escaped.

    So are control characters, the escape sequences of terminals, and what turns the direction of
    writing.

        >>> shown("lstm\\x1b[2J\\u202e")
        'lstm\\\\x1b[2J\\\\u202e'
    """
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in str(text)
    )


def put(text: str, stream: TextIO | None = None) -> None:
    """Print a line or several, by default to stdout; what the encoding has not is escaped."""
    stream = stream or sys.stdout
    encoding = stream.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), file=stream)


def say(text: str) -> None:
    """Words about the work, to stderr."""
    put(text, sys.stderr)


def say_lines(head: str, text: str) -> None:
    """A message that may have several lines; only the first one begins with who speaks."""
    first, *others = [shown(line) for line in text.split("\n")] or [""]
    say("\n".join([f"{head}{first}", *(f"  {line}" for line in others)]))


def put_json(name: str, version: int, values: dict[str, Any]) -> None:
    """One object for programs; its schema is schemas/NAME-VERSION.json."""
    put(json.dumps({"schema": f"rnnlayout.{name}/{version}", **values}, indent=2, default=str))


def strong(text: str, stream: TextIO | None = None) -> str:
    """The text in bold, where colours are wanted."""
    return f"\x1b[1m{text}\x1b[0m" if _colours(stream or sys.stdout) else text


def _colours(stream: TextIO) -> bool:
    """NO_COLOR and FORCE_COLOR as no-color.org and force-color.org have them, the first wins."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def columns(rows: Sequence[tuple[str, ...]], indent: int = 0) -> list[str]:
    """Rows as lines whose cells stand below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        " " * indent + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
