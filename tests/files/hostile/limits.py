"""The limits for reading a hostile file: a second of CPU time and 100 MB, whatever it claims."""

import functools
import gc
import os
import re
import resource
import time

MOST_NBYTES = 100_000_000  # more than the process had before
MOST_SECONDS = 1


@functools.cache
def longest():
    """Return the limit of CPU time: a second, more on a machine that is slower than the one where
    it was set, as a piece of Python shows. Never less: a processor that is twice as fast at that
    piece is not so at giving a file its memory."""
    start, table = time.process_time(), {}
    for k in range(400_000):  # 1/16 s
        table[k % 1000] = str(k)
    return MOST_SECONDS * max(1, 16 * (time.process_time() - start))


class Meter:
    """`with Meter() as meter`: afterwards .seconds of CPU time, .nbytes of memory at the most.

    Inside, nothing can be allocated beyond the limit: RLIMIT_DATA, which counts private writable
    memory, but not a map of a file. Python's garbage collector is off: with all frameworks in the
    process a collection takes a second.
    """

    def __init__(self):
        self._status = os.open("/proc/self/status", os.O_RDONLY)
        self._peak = os.open("/proc/self/clear_refs", os.O_WRONLY)

    def __enter__(self):
        self._limits = resource.getrlimit(resource.RLIMIT_DATA)
        os.write(self._peak, b"5")  # the peak is now the present size
        self._before, most = self._nbytes(b"VmRSS"), self._nbytes(b"VmData") + MOST_NBYTES
        resource.setrlimit(resource.RLIMIT_DATA, (most, self._limits[1]))
        self._collects = gc.isenabled()
        gc.disable()
        self._start = time.process_time()
        return self

    def __exit__(self, *_):
        self.seconds = time.process_time() - self._start
        if self._collects:
            gc.enable()
        resource.setrlimit(resource.RLIMIT_DATA, self._limits)
        self.nbytes = self._nbytes(b"VmHWM") - self._before

    def __del__(self):
        os.close(self._status)
        os.close(self._peak)

    def _nbytes(self, what):
        (found,) = re.findall(what + rb":\s+(\d+) kB", os.pread(self._status, 4096, 0))
        return int(found) * 1024


class limited(Meter):
    """A Meter that asserts the limits at its end."""

    def __exit__(self, *error):
        super().__exit__(*error)
        if error[0] is None:
            assert self.seconds < longest(), f"{self.seconds} s of CPU time"
            assert self.nbytes < MOST_NBYTES, f"{self.nbytes} bytes"


def environment():
    """Return the environment of a process that measures: freed memory returns to the system."""
    return os.environ | {
        "MALLOC_ARENA_MAX": "1",
        "MALLOC_MMAP_THRESHOLD_": "131072",
        "MALLOC_TRIM_THRESHOLD_": "131072",
        "OPENBLAS_NUM_THREADS": "1",
        "RNNLAYOUT_DEBUG": "1",  # a bug would show its traceback
    }
