"""Masks. On a GPU the steps that count are gathered, run as sequences with lengths, and put back.
On the CPU the core reads the mask."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rnnlayout._native import LayoutError

from .call_arrays import CallShapes, read_host_array


def read_mask(mask: Any, shapes: CallShapes) -> np.ndarray:
    """Return a mask as an array. Raises LayoutError unless the mask is of bools, has the shape of x
    without the last axis, and is in the host's memory."""
    array = read_host_array("mask", mask)
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
    return array


class MaskedSteps:
    """The steps of a call that count, in the order of computation.

    mask: of the axes of x and y. batch_first: of x and y. lengths: the number of steps of each
    sequence; None without a batch. num_steps: T of the gathered x.

    An array (T, N, width) is a list of T * N rows here, so that a step is the number of a row.
    """

    def __init__(self, mask: np.ndarray, batch_first: bool) -> None:
        self._batch_first, self._batched = batch_first, mask.ndim == 2
        batch = mask if self._batched else mask[:, None]
        self._rows = batch if batch_first else batch.T  # (N, T)
        counts = self._rows.sum(1, dtype=np.int64)
        self.lengths = counts if self._batched else None
        self.num_steps = int(counts.max(initial=0))
        self._is_filled = np.arange(self.num_steps) < counts[:, None]  # of the gathered steps

    def gather(self, x: np.ndarray) -> np.ndarray:
        """Return x of the steps that count, at the beginning of each sequence."""
        N, T = self._rows.shape
        sequence, step = divmod(np.flatnonzero(self._rows), max(T, 1))
        steps = np.zeros((N, self.num_steps), np.intp)
        steps[self._is_filled] = self._number(sequence, step, T)
        return _rows_of(x).take(self._as_in_call(steps), 0)

    def new_y(self, width: int, dtype: np.dtype[Any]) -> np.ndarray:
        """Return an array for y of the gathered steps. A row of zeros follows it."""
        N = len(self._rows)
        self._y = np.empty((N * self.num_steps + 1, width), dtype)
        self._y[-1] = 0
        shape = (N, self.num_steps) if self._batch_first else (self.num_steps, N)
        return self._y[:-1].reshape(*(shape if self._batched else shape[:1]), width)

    def scatter(self, out: np.ndarray, repeats: bool) -> None:
        """Write new_y() to the steps of `out`. A masked step repeats the output of the step before,
        zero at first, or is zero."""
        N, _ = self._rows.shape
        counts = self._rows.cumsum(1)  # of steps that count, up to a step
        numbers = self._number(np.arange(N)[:, None], counts - 1, self.num_steps)
        has_y = counts > 0 if repeats else self._rows
        steps = self._as_in_call(np.where(has_y, numbers, len(self._y) - 1))
        if out.flags.c_contiguous:
            self._y.take(steps, 0, out=out, mode="clip")  # without a copy of `out`
        else:
            out[...] = self._y.take(steps, 0)

    def _number(self, sequence: np.ndarray, step: np.ndarray, num_steps: int) -> np.ndarray:
        """Return the numbers of rows in an array of num_steps steps."""
        N = len(self._rows)
        return np.asarray(sequence * num_steps + step if self._batch_first else step * N + sequence)

    def _as_in_call(self, steps: np.ndarray) -> np.ndarray:
        """Return an array (N, T) with the axes of the call."""
        if not self._batched:
            return np.asarray(steps[0])
        return steps if self._batch_first else np.ascontiguousarray(steps.T)


def _rows_of(array: np.ndarray) -> np.ndarray:
    return array.reshape(math.prod(array.shape[:-1]), array.shape[-1])
