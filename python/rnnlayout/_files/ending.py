"""A command that is ended in the middle of its work, by Ctrl-C or another signal: at once, and
nothing half-written stays.

Python's own answer to Ctrl-C is an error, raised when it next runs a line of the main thread:
after whatever C code it is in, or inside an import, where NumPy makes another error of it. So
the command has a thread that waits for signals, undoes what is under way, and ends the process.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# Held while what there is to undo changes, and from the moment of the end on.
lock = threading.RLock()
_undo: list[Callable[[], None]] = []


@contextmanager
def undone(undo: Callable[[], None]) -> Iterator[None]:
    """If the process is ended in here, call this first. Entered with the lock held, it covers what
    was made under the lock."""
    with lock:
        _undo.append(undo)
    try:
        yield
    finally:
        with lock:
            _undo.remove(undo)


def answer_signals() -> None:
    """From now on they end the process, but for those that it is to ignore. Main thread alone.

    They are blocked here and in threads to come: who is busy writing to a disk could not take one.
    """
    ours = [n for n in SIGNALS if signal.getsignal(n) is not signal.SIG_IGN]
    signal.pthread_sigmask(signal.SIG_BLOCK, ours)
    threading.Thread(target=_wait, args=(ours,), daemon=True).start()


def _wait(ours: list[signal.Signals]) -> None:
    number = signal.sigwait(ours)
    with lock:
        for undo in reversed(_undo):
            with suppress(Exception):
                undo()
        with suppress(Exception):
            sys.stderr.flush()
        os._exit(128 + number)
