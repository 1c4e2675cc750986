"""Does a call release the interpreter's lock, and how often does it ask for it?

Where threads are not switched (`sys.setswitchinterval`), only a thread that gives the lock away
lets another one run. So the answers do not depend on the machine's speed.
"""

import contextlib
import ctypes
import gc
import signal
import sys
import threading
import time

import numpy as np
from midway import TRIES, is_midway

NEVER = 3600.0  # seconds
POLL = 0.05  # seconds: a call polls at most so often


@contextlib.contextmanager
def no_switching():
    """Let threads give the lock away, but take it from none. The garbage collector is off: what
    other tests have left, an open file for example, gives the lock away when it is freed."""
    before, collects = sys.getswitchinterval(), gc.isenabled()
    gc.disable()
    sys.setswitchinterval(NEVER)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
        if collects:
            gc.enable()


class WatchedThread(threading.Thread):
    """A thread of which another one can see whether it sleeps, and keep the lock meanwhile."""

    _pread = ctypes.PyDLL(None).pread  # which PyDLL calls with the lock held

    def run(self):
        with open("/proc/thread-self/stat", "rb") as self._stat:
            super().run()

    def is_asleep(self):
        """Does it sleep in the call that it makes? To wait for a processor is not to sleep."""
        text = ctypes.create_string_buffer(4096)
        nbytes = self._pread(self._stat.fileno(), text, len(text), 0)
        return text.raw[:nbytes].rpartition(b") ")[2].startswith(b"S")


def ends_without_the_lock(call, first, last):
    """Does call() end in a thread while this thread keeps the lock, from its middle on? It fills
    views of one element, first and last. If this thread sees only its end, it is tried again.

    The call must last longer than POLL, and not use other threads: then it sleeps only to wait for
    the lock."""
    for _ in range(TRIES):
        first[...] = last[...] = np.nan
        with no_switching():
            thread = WatchedThread(target=call)
            thread.start()
            while np.isnan(first) and thread.is_alive():
                time.sleep(0)  # gives the lock away
            was_midway = is_midway(first, last)
            while was_midway and np.isnan(last) and not thread.is_asleep():
                pass
            has_ended = not np.isnan(last)
        thread.join()
        if was_midway:
            return has_ended
    return False


def keeps_the_lock(call):
    """Does no other thread run during call()?"""
    runs, done = [], []

    def look():
        while not done:
            runs.append(None)
            time.sleep(0)  # gives the lock away

    with no_switching():
        thread = threading.Thread(target=look)
        thread.start()
        before = len(runs)
        for _ in range(1000):
            call()
        after = len(runs)
        done.append(None)
    thread.join()
    return after == before


def polls_rarely(call):
    """Are signals handled at most once in POLL during call()? They arrive every millisecond; a
    few are handled before and after it. Reads a clock: for long tests."""
    handled = []
    before = signal.signal(signal.SIGALRM, lambda *_: handled.append(None))
    signal.setitimer(signal.ITIMER_REAL, 1e-3, 1e-3)
    try:
        start = time.monotonic()
        call()
        seconds = time.monotonic() - start
        num_handled = len(handled)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return num_handled <= seconds / POLL + 10
