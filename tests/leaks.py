"""What a leak would add to."""

import ctypes
import gc
import sys

import numpy as np


class MallInfo(ctypes.Structure):
    """struct mallinfo2 of glibc."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks",
                     "uordblks", "fordblks", "keepcost")
    ]  # fmt: skip


def malloced():
    """Bytes that the C library has given out, 0 where it does not tell."""
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        return 0
    mallinfo.restype = MallInfo
    return mallinfo().uordblks


def counts():
    """Objects, blocks of Python's allocator, bytes of the C library's."""
    for _ in range(2):  # the first time makes what the second finds
        gc.collect()
        found = len(gc.get_objects()), sys.getallocatedblocks(), malloced()
    return np.array(found)


def growth(do, batches=3):
    """What each of some batches adds, the least of them: a leak adds to all, a table of the
    interpreter's that grows (ValueError's dict of subclasses, of interned names) to one."""
    do()  # what is kept: free lists, caches
    gc.collect()
    gc.freeze()  # what other tests have imported need not be counted
    try:
        found = [counts()]
        for _ in range(batches):
            do()
            found.append(counts())
    finally:
        gc.unfreeze()
    return np.diff(found, axis=0).min(axis=0)
