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
