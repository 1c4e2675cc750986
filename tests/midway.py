"""Act in the middle of a long call: when it has filled its first element but not its last.

No clock is involved. If a thread gets a processor too late, the call has ended; then it is tried
again. The answer is no if this happens every time.
"""

import _thread
import threading
import time

import numpy as np
import pytest

TRIES = 100


def is_midway(first, last):
    return not np.isnan(first) and np.isnan(last)  # begun, and after that not ended


def is_interrupted(call, first, last):
    """Does Ctrl-C end call() before its end? It fills views of one element, first and last."""

    def send():
        while np.isnan(first):
            time.sleep(0.0001)
        _thread.interrupt_main()

    for _ in range(TRIES):
        first[...] = last[...] = np.nan
        thread = threading.Thread(target=send)
        with pytest.raises(KeyboardInterrupt):
            thread.start()
            call()
            thread.join()
            time.sleep(0)  # an interrupt after the call is raised here at the latest
        thread.join()
        if is_midway(first, last):
            return True
    return False


def lets_others_run(call, first, last):
    """Does another thread see call() in its middle? It fills views of one element."""
    seen, done = [], threading.Event()

    def look():
        while not seen and not done.is_set():
            if is_midway(first, last):
                seen.append(True)

    for _ in range(TRIES):
        first[...] = last[...] = np.nan
        done.clear()
        thread = threading.Thread(target=look)
        thread.start()
        call()
        done.set()
        thread.join()
        if seen:
            return True
    return False
