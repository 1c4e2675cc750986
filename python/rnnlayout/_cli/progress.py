"""Show on a terminal how far long work has come: "converting  43 %  412 of 958 MB"."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_AFTER = 0.5  # seconds: shorter work shows nothing
_EVERY = 0.2  # seconds between two updates

Tick = Callable[[int, int], None]


@contextmanager
def show_progress(verb: str) -> Iterator[Tick | None]:
    """Yield a function to call with the bytes done and in all; None without a terminal.

    The line it writes is erased at the end.
    """
    if not sys.stderr.isatty():
        yield None
        return
    due, line = time.monotonic() + _AFTER, ""

    def tick(done: int, total: int) -> None:
        nonlocal due, line
        now = time.monotonic()
        if now < due:
            return
        due = now + _EVERY
        percent = 100 * done // max(total, 1)
        line = f"{verb} {percent:3} %  {done / 1e6:.0f} of {total / 1e6:.0f} MB"
        print(f"\r{line}", end="", file=sys.stderr, flush=True)

    try:
        yield tick
    finally:
        if line:
            print(f"\r{' ' * len(line)}\r", end="", file=sys.stderr, flush=True)
