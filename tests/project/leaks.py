"""Count what a leak would increase."""

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
    """Return the bytes allocated by the C library, 0 if it does not report them."""
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        return 0
    mallinfo.restype = MallInfo
    return mallinfo().uordblks


def counts():
    """Return the numbers of objects, blocks of Python's allocator, bytes of the C library's.

    A type that is freed while memory is refused stays in its base's dict of subclasses (CPython
    3.11, remove_subclass): a dead weak reference and its key, an address, are not counted."""
    for _ in range(2):  # the first time creates objects of its own
        gc.collect()
        objects = gc.get_objects()
        dead = sum(type(o) is weakref.ref and o() is None for o in objects)
        found = len(objects) - dead, sys.getallocatedblocks() - 2 * dead, malloced()
        del objects
    return np.array(found)


def growth(do, limits, batches=10):
    """Return what each of some batches adds, the least of them: a leak adds to all, a table of the
    interpreter that grows (a dict of subclasses, of interned names) only to one. The batches end
    once all counts are below their limits."""
    gc.collect()
    gc.freeze()  # existing objects are not counted, nor looked at, until gc.unfreeze()
    do()  # fills free lists and caches
    least, before = None, counts()
    for _ in range(batches):
        do()
        after = counts()
        more = after - before
        least, before = more if least is None else np.minimum(least, more), after
        if (least < limits).all():
            break
    return least
