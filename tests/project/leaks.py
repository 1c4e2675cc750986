"""What a leak would add to."""

import ctypes
import gc
import sys
import weakref

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
    """Objects, blocks of Python's allocator, bytes of the C library's.

    A type that dies while there is no memory stays in its base's dict of subclasses (CPython 3.11,
    remove_subclass): a dead weak reference and the address that is its key, which do not count."""
    for _ in range(2):  # the first time makes what the second finds
        gc.collect()
        objects = gc.get_objects()
        dead = sum(type(o) is weakref.ref and o() is None for o in objects)
        found = len(objects) - dead, sys.getallocatedblocks() - 2 * dead, malloced()
        del objects
    return np.array(found)


def growth(do, limits, batches=10):
    """What each of some batches adds, the least of them: a leak adds to all, a table of the
    interpreter's that grows (a dict of subclasses, of interned names) to one. No more batches are
    done once all that is counted is below its limit."""
    gc.collect()
    gc.freeze()  # what other tests have imported need not be counted
    try:
        do()  # what is kept: free lists, caches
        least, before = None, counts()
        for _ in range(batches):
            do()
            after = counts()
            more = after - before
            least, before = more if least is None else np.minimum(least, more), after
            if (least < limits).all():
                break
    finally:
        gc.unfreeze()
    return least
