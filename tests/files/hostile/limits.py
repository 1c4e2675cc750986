"""The limits for reading a hostile file, whatever it claims: 100 MB and the work of a second.

Tests of a plain run count work in calls, which other processes do not change; long ones and
tools/fuzz in seconds of CPU time, which grow if others share the caches and cores.
"""

import cProfile
import gc
import math
import os
import re
import resource
import time

MOST_NBYTES = 100_000_000  # more than the process had before
MOST_CALLS = 8_000_000  # of functions; the 800,000 steps that any file may take are 5.5 million
MOST_SECONDS = 1


def count_calls():
    """Start to count calls of functions, Python's and C's. Return a function that ends it and
    returns their number."""
    profile = cProfile.Profile(subcalls=False)
    profile.enable()

    def end():
        try:
            profile.disable()
        except MemoryError:  # during the calls, which were then not all counted
            return math.inf
        return sum(entry.callcount for entry in profile.getstats())

    return end


def measure_seconds():
    """Start to measure CPU time. Return a function that returns the seconds since then."""
    start = time.process_time()
    return lambda: time.process_time() - start


def longest():
    """Return the limit of CPU time: a second, more on a machine that at this moment is slower than
    the one where it was set, as a piece of Python shows. Never less: a processor that is twice as
    fast at that piece is not so at giving a file its memory."""
    end, table = measure_seconds(), {}
    for k in range(400_000):  # 1/16 s
        table[k % 1000] = str(k)
    return MOST_SECONDS * max(1, 16 * end())


CALLS, SECONDS = "calls", "seconds of CPU time"
COLLECTED = "seconds of CPU time with Python's garbage collector"
# A reading beyond the limit is measured again: other processes make a reading slower, never faster.
MOST_READINGS = {CALLS: 1, SECONDS: 3, COLLECTED: 3}
# How to measure; an amount that no limit is below; the limit, which is asked for beyond it.
UNITS = {
    CALLS: (count_calls, MOST_CALLS, lambda: MOST_CALLS),
    SECONDS: (measure_seconds, MOST_SECONDS, longest),
    COLLECTED: (measure_seconds, MOST_SECONDS, longest),
}


class Meter:
    """`with Meter(unit) as meter`: afterwards .work in this unit, .is_too_much_work, and .nbytes of
    memory at the most.

    Inside, nothing can be allocated beyond the limit: RLIMIT_DATA, which counts private writable
    memory, but not a map of a file. Unless the unit is COLLECTED, Python's garbage collector is
    off: with all frameworks in the process a collection takes a second.
    """

    def __init__(self, unit):
        self._unit = unit
        self._start, self._enough, self._limit = UNITS[unit]
        self._status = os.open("/proc/self/status", os.O_RDONLY)
        self._peak = os.open("/proc/self/clear_refs", os.O_WRONLY)

    def __enter__(self):
        self._limits = resource.getrlimit(resource.RLIMIT_DATA)
        os.write(self._peak, b"5")  # the peak is now the present size
        self._before, most = self._nbytes(b"VmRSS"), self._nbytes(b"VmData") + MOST_NBYTES
        resource.setrlimit(resource.RLIMIT_DATA, (most, self._limits[1]))
        self._collects = gc.isenabled()
        if self._unit != COLLECTED:
            gc.disable()
        self._end = self._start()
        return self

    def __exit__(self, *_):
        self.work = self._end()
        if self._collects:
            gc.enable()
        resource.setrlimit(resource.RLIMIT_DATA, self._limits)
        self.nbytes = self._nbytes(b"VmHWM") - self._before
        self.is_too_much_work = self.work >= self._enough and self.work >= self._limit()

    def __del__(self):
        os.close(self._status)
        os.close(self._peak)

    def _nbytes(self, what):
        (found,) = re.findall(what + rb":\s+(\d+) kB", os.pread(self._status, 4096, 0))
        return int(found) * 1024

    def excess(self):
        """Return what exceeded a limit, in words."""
        amounts = {
            f"{round(self.work, 2):,} {self._unit}": self.is_too_much_work,
            f"{self.nbytes:,} bytes": self.nbytes >= MOST_NBYTES,
        }
        return [words for words, is_too_much in amounts.items() if is_too_much]


class limited(Meter):
    """A Meter that asserts the limits at its end."""

    def __exit__(self, *error):
        super().__exit__(*error)
        assert error[0] is not None or not self.excess(), self.excess()


def environment():
    """Return the environment of a process that measures: freed memory returns to the system."""
    return os.environ | {
        "MALLOC_ARENA_MAX": "1",
        "MALLOC_MMAP_THRESHOLD_": "131072",
        "MALLOC_TRIM_THRESHOLD_": "131072",
        "OPENBLAS_NUM_THREADS": "1",
        "RNNLAYOUT_DEBUG": "1",  # a bug would show its traceback
    }
