"""Masks: the steps that count are gathered, run as sequences with lengths, and put back."""

from __future__ import annotations

from typing import Any

import numpy as np

from rnnlayout._native import LayoutError

from .call_arrays import CallShapes, is_on_device, type_name


def read_mask(mask: Any, shapes: CallShapes) -> np.ndarray:
    """Return a mask as an array (T, N), or (T,) without a batch. Raises LayoutError unless the mask
    is of bools, has the shape of x without the last axis, and is in the host's memory."""
    if is_on_device(mask):
        raise LayoutError(
            f"mask is a {type_name(mask)} on a GPU, but is needed on the host: pass mask.cpu() in"
            " PyTorch, mask.get() in CuPy"
        )
    try:
        array = np.asarray(mask)
    except MemoryError:
        raise
    except Exception as error:  # of any class: the object's code may raise any error
        raise LayoutError(f"mask is not an array: {type_name(mask)} ({error})") from None
    if array.dtype != bool:
        raise LayoutError(
            f"mask is {array.dtype}, need bool, True where a step counts: pass mask != 0"
        )
    if array.shape != shapes.x[:-1]:
        turned = array.shape == shapes.x[-2::-1] and array.ndim == 2
        advice = ": pass mask.T, the mask has the axes of x" if turned else ""
        raise LayoutError(
            f"mask: shape {array.shape}, expected {shapes.x[:-1]}, the shape of x without its last"
            f" axis{advice}"
        )
    return array.T if shapes.batch_first else array


class MaskedSteps:
    """The steps of a call that count, in the order of computation.

    mask: (T, N), or (T,) without a batch. time_axis: of x and y. lengths: the number of steps of
    each sequence; None without a batch. num_steps: of the gathered x.
    """

    def __init__(self, mask: np.ndarray, time_axis: int) -> None:
        self._mask, self._time_axis = mask, time_axis
        self._counts = mask.cumsum(0)  # of steps that count, up to a step
        self.num_steps = int(self._counts[-1:].max(initial=0))
        self.lengths = mask.sum(0, dtype=np.int64) if mask.ndim == 2 else None
        self._columns = () if self.lengths is None else (np.arange(mask.shape[1]),)

    def gather(self, x: np.ndarray) -> np.ndarray:
        """Return x of the steps that count, at the beginning of each sequence."""
        first = np.argsort(~self._mask, axis=0, kind="stable")[: self.num_steps]
        return self._turned(self._turned(x)[(first, *self._columns)])

    def scatter(self, y: np.ndarray, out: np.ndarray, repeats: bool) -> None:
        """Write y of the gathered steps to the steps of `out`. A masked step repeats the output of
        the step before, zero at first, or is zero."""
        target = self._turned(out)
        if self.num_steps == 0:
            target[...] = 0
            return
        target[...] = self._turned(y)[(np.maximum(self._counts, 1) - 1, *self._columns)]
        target[self._counts == 0 if repeats else ~self._mask] = 0

    def _turned(self, array: np.ndarray) -> np.ndarray:
        """Return an array with the time first; and a time-first array with the axes of x."""
        return array.swapaxes(0, 1) if self._time_axis else array
