"""Awkward arrays: the same numbers, but not in one plain block of memory."""

import ml_dtypes
import numpy as np
import torch


def carrier(a):
    """Return bfloat16 as bits, because NumPy's own functions do not know the dtype."""
    return a.view("u2") if a.dtype == ml_dtypes.bfloat16 else a


def kept(change):
    """Return a change of memory or class that works for every dtype."""
    return lambda a: change(carrier(a)).view(a.dtype)


# ------------------------------------------------------------------------- kinds that are the same


def spread(a, step=3):
    wide = np.zeros((*a.shape[:-1], step * a.shape[-1]), a.dtype)
    wide[..., ::step] = a
    return wide[..., ::step]


def unaligned(a):
    copy = np.empty(a.nbytes + 1, "u1")[1:].view(a.dtype).reshape(a.shape)
    copy[...] = a
    return copy


def read_only(a):
    a = a.copy()
    a.flags.writeable = False
    return a


def window(a):
    """The middle of a larger array."""
    wide = np.zeros([n + 2 for n in a.shape], a.dtype)
    inside = wide[(slice(1, -1),) * a.ndim]
    inside[...] = a
    return inside


class Loud(np.ndarray):
    """A subclass that raises an error when it is used."""

    def __array_ufunc__(self, *args, **kwargs):
        raise AssertionError("no arithmetic with weights")

    def __getitem__(self, item):
        raise AssertionError("no indexing of weights")


class Interface:
    """An object with only NumPy's interface."""

    def __init__(self, a):
        self._keep = a
        self.__array_interface__ = a.__array_interface__


class Converts:
    """An object that converts to an array."""

    def __init__(self, a):
        self._array = a

    def __array__(self, dtype=None, copy=None):
        return self._array


SAME = {
    "strided": lambda a: spread(a),
    "backwards": lambda a: a[::-1].copy()[::-1],
    "backwards in both": lambda a: np.flip(np.flip(a).copy()),
    "Fortran": lambda a: np.asfortranarray(a),
    "a transposed view": lambda a: a.T.copy().T,
    "a window": window,
    "unaligned": unaligned,
    "unaligned and strided": lambda a: np.swapaxes(unaligned(np.swapaxes(a, 0, -1)), 0, -1),
    "read-only": read_only,
    "read-only and strided": lambda a: read_only(spread(a, 2)),
    "a subclass": lambda a: a.view(Loud),
    "a record array": lambda a: a.view(np.recarray),
    "__array__": Converts,
}
NOT_BFLOAT16 = {
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "big-endian and backwards": lambda a: a[::-1].astype(a.dtype.newbyteorder(">"))[::-1],
    "big-endian and unaligned": lambda a: unaligned(a.astype(a.dtype.newbyteorder(">"))),
    "a matrix": lambda a: a.view(np.matrix) if a.ndim == 2 else a,
    "__array_interface__": Interface,
    "a buffer": memoryview,
    "torch": lambda a: torch.from_numpy(a.copy()),
    "a parameter of torch": lambda a: torch.nn.Parameter(torch.from_numpy(a.copy())),
    "torch transposed": lambda a: torch.from_numpy(np.array(a.T, order="C")).permute(
        *range(a.ndim)[::-1]
    ),
    "torch strided": lambda a: torch.from_numpy(np.repeat(a, 2, -1))[..., ::2],
    "torch negated": lambda a: torch._neg_view(torch.from_numpy(-a)),
}
