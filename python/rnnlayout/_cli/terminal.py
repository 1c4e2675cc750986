"""Printing: results to stdout, messages to stderr, and no control characters from a file."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from shutil import get_terminal_size
from textwrap import wrap
from typing import Any, TextIO

from rnnlayout._model.printable import printable as printable

LABELS = {"error": "1;31", "hint": "1;36"}  # label of a line on stderr -> colour, red and cyan


def print_text(text: str, stream: TextIO | None = None) -> None:
    """Print lines, by default to stdout. Characters that the encoding lacks are escaped. A reader
    that has closed the stream needs no more: the command goes on to its exit code."""
    stream = stream or sys.stdout
    for line in _shown_lines:
        line.erase()
    encoding = stream.encoding or "utf-8"
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=True)
    except OSError as error:
        if not _is_broken_pipe(error):
            raise
        discard_text(stream)


def _is_broken_pipe(error: OSError) -> bool:
    """Return whether the reader of a stream has closed the stream. Windows reports EINVAL, for no
    file."""
    if sys.platform == "win32" and error.filename is None:
        return error.errno in (errno.EPIPE, errno.EINVAL)
    return isinstance(error, BrokenPipeError)


def discard_text(stream: TextIO) -> None:
    """Discard all text of a stream from now on."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def print_wrapped(text: str) -> None:
    """Print text to stdout, wrapped on a terminal."""
    print_text(wrap_text(text, sys.stdout))


def print_message(text: str) -> None:
    """Print a message to stderr, wrapped on a terminal."""
    print_text(wrap_text(text, sys.stderr), sys.stderr)


def print_error(text: str) -> None:
    """Print an error to stderr: lines labelled "error:" and "hint:", and more lines indented."""
    first, *more_lines = [printable(line) for line in text.split("\n")]
    for line in (f"error: {first}", *more_lines):
        label = line.partition(":")[0]
        if label in LABELS:
            coloured = bold_text(f"{label}:", sys.stderr, LABELS[label])
            print_text(coloured + wrap_text(line, sys.stderr)[len(label) + 1 :], sys.stderr)
        else:
            print_message(f"  {line}")


def terminal_width(stream: TextIO) -> int | None:
    """Return the number of columns of a terminal, None if the stream is not a terminal."""
    return get_terminal_size().columns if stream.isatty() else None


def wrap_text(text: str, stream: TextIO) -> str:
    """Return text with long lines wrapped if the stream is a terminal. Continued lines are
    indented to the second column of the line, or more than the line."""
    columns = terminal_width(stream)
    if columns is None:
        return text
    lines = []
    for line in text.split("\n"):
        start = len(line) - len(line.lstrip())
        second = re.match(r" *\S+(?: \S+)*  +", line)
        indent = second.end() if second and second.end() <= columns // 2 else start + 2
        lines += wrap(
            line,
            columns,
            subsequent_indent=" " * min(indent, columns // 2),
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
    return "\n".join(lines)


def print_json(name: str, version: int, values: dict[str, Any]) -> None:
    """Print a JSON object. Schema: schemas/NAME-VERSION.json."""
    document = _in_json({"schema": f"rnnlayout.{name}/{version}", **values})
    print_text(json.dumps(document, indent=2, default=str, allow_nan=False))


def _in_json(value: Any) -> Any:
    """Return a value with the texts "nan", "inf" and "-inf" for numbers that JSON lacks."""
    if isinstance(value, dict):
        return {key: _in_json(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_in_json(entry) for entry in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def bold_text(text: str, stream: TextIO | None = None, colour: str = "1") -> str:
    """Return the text in bold, or bold in a colour, if the stream shows colours."""
    return f"\x1b[{colour}m{text}\x1b[0m" if shows_colours(stream or sys.stdout) else text


def shows_colours(stream: TextIO) -> bool:
    """Respect NO_COLOR and FORCE_COLOR (no-color.org, force-color.org); NO_COLOR comes first."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def align_columns(rows: Sequence[tuple[str, ...]], indent: int = 0) -> list[str]:
    """Return rows as lines with aligned cells."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        " " * indent + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


_AFTER = 0.5  # seconds: shorter work shows nothing
_EVERY = 0.2  # seconds between two updates


class ProgressLine:
    """A line on a terminal that shows how far a command has come: "convert  43 %  412 of 958 MB",
    or the seconds so far. A thread writes the line: most work reports nothing on the way."""

    def __init__(self, command: str) -> None:
        self._command, self._began = command, time.monotonic()
        self._done = self._total = 0
        self._line = ""
        self._lock, self.ended = threading.Lock(), threading.Event()

    def report(self, done: int, total: int) -> None:
        """Take the number of bytes done so far and in all."""
        self._done, self._total = done, total

    def __str__(self) -> str:
        if not self._total:
            return f"{self._command} {time.monotonic() - self._began:3.0f} s"
        percent, megabytes = 100 * self._done // self._total, self._total / 1e6
        return f"{self._command} {percent:3} %  {self._done / 1e6:.0f} of {megabytes:.0f} MB"

    def update_until_end(self) -> None:
        wait = _AFTER
        while not self.ended.wait(wait):
            wait = _EVERY
            with self._lock:
                width = len(self._line)
                self._line = str(self)
                print(f"\r{self._line:{width}}", end="", file=sys.stderr, flush=True)

    def erase(self) -> None:
        with self._lock:
            if self._line:
                print(f"\r{' ' * len(self._line)}\r", end="", file=sys.stderr, flush=True)
                self._line = ""


_shown_lines: list[ProgressLine] = []  # at most one: of the command that runs


@contextmanager
def show_progress(command: str) -> Iterator[None]:
    """Show on stderr, if that is a terminal, how far a command has come."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return
    line = ProgressLine(command)
    thread = threading.Thread(target=line.update_until_end, daemon=True)
    _shown_lines.append(line)
    thread.start()
    try:
        yield
    finally:
        _shown_lines.remove(line)
        line.ended.set()
        thread.join()
        line.erase()


def report_progress(done: int, total: int) -> None:
    """Show the number of bytes done so far and in all."""
    for line in _shown_lines:
        line.report(done, total)
