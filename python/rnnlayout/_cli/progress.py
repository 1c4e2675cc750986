"""How far long work has come, for who watches: by rich, if it is installed, on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from rnnlayout._files.ending import undone

_AFTER = 0.5  # seconds: what is done by then needs no bar

Tick = Callable[[int, int], None]


@contextmanager
def progress(words: str) -> Iterator[Tick | None]:
    """Something to call with the bytes that are done and all there are; None: nobody watches."""
    if not sys.stderr.isatty():
        yield None
        return
    began = time.monotonic()
    with ExitStack() as stack:
        bar: Any = None

        def tick(done: int, total: int) -> None:
            nonlocal bar
            if bar is None and time.monotonic() - began > _AFTER:
                bar = _bar(words, stack)
            if bar:
                bar(done, total)

        yield tick


def _bar(words: str, stack: ExitStack) -> Any:
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        return lambda done, total: None
    bar = Progress(console=Console(stderr=True), transient=True)
    stack.enter_context(undone(bar.stop))  # the cursor, which it hides, comes back
    stack.enter_context(bar)
    task = bar.add_task(words)
    return lambda done, total: bar.update(task, completed=done, total=total)
