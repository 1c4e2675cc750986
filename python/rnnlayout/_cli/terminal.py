"""Printing: results to stdout, messages to stderr, and no control characters from a file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any, TextIO


def shown(text: Any) -> str:
    """Return text on one line, with characters escaped that are not printable.

    These include control characters, escape sequences of terminals, and characters that change the
    direction of writing. Use it for all text that may come from a file.

        >>> shown("lstm\\x1b[2J\\u202e")
        'lstm\\\\x1b[2J\\\\u202e'
    """
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in str(text)
    )


def put(text: str, stream: TextIO | None = None) -> None:
    """Print lines, by default to stdout. Characters that the encoding lacks are escaped."""
    stream = stream or sys.stdout
    encoding = stream.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), file=stream)


def say(text: str) -> None:
    """Print a message to stderr."""
    put(text, sys.stderr)


def say_lines(head: str, text: str) -> None:
    """Print a message of one or more lines to stderr, the first one after `head`."""
    first, *others = [shown(line) for line in text.split("\n")]
    say("\n".join([f"{head}{first}", *(f"  {line}" for line in others)]))


def put_json(name: str, version: int, values: dict[str, Any]) -> None:
    """Print one JSON object, whose schema is schemas/NAME-VERSION.json."""
    put(json.dumps({"schema": f"rnnlayout.{name}/{version}", **values}, indent=2, default=str))


def strong(text: str, stream: TextIO | None = None) -> str:
    """Return the text in bold, if the stream shows colours."""
    return f"\x1b[1m{text}\x1b[0m" if _colours(stream or sys.stdout) else text


def _colours(stream: TextIO) -> bool:
    """Respect NO_COLOR and FORCE_COLOR (no-color.org, force-color.org); NO_COLOR comes first."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def columns(rows: Sequence[tuple[str, ...]], indent: int = 0) -> list[str]:
    """Return rows as lines with aligned cells."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        " " * indent + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
