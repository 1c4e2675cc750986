"""One call on arrays in the host's memory: looked at, mended where that is possible, and run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnlayout import _native
from rnnlayout._model.dtypes import as_carrier, check_in_place, present, storage, take
from rnnlayout._model.spec import Spec
from rnnlayout._native import STEP, LayoutError

from .shapes import Part, Shapes, check, check_outputs, kind, read_lengths, states_of


@dataclass
class _Slot:
    """One array of a state: what goes in, what comes out. Arrays carry bits."""

    part: Part
    first: np.ndarray | None = None
    given: Any = None  # the caller's own output
    last: np.ndarray | None = None  # over its memory, or new


class HostCall:
    """The arrays of one call, checked one after the other.

    widens: may x be float32 where the weights are narrower?
    """

    def __init__(self, spec: Spec, axes: int, x: Any, widens: bool) -> None:
        self.spec, self.axes = spec, axes
        widens = widens and spec.dtype in ("float16", "bfloat16")
        needed = f"{spec.dtype}, as the weights are{', or float32' if widens else ''}"
        self.x, self.dtype = _input(x, "x", needed)
        if self.dtype != spec.dtype and not (widens and self.dtype == "float32"):
            raise LayoutError(f"x is {self.dtype}, need {needed}")
        self.shapes = Shapes(spec, axes, self.x.shape)
        self.x = _with_even_rows(self.x)
        self.slots = [_Slot(part) for part in self.shapes.state]
        self.lengths: np.ndarray | None = None

    def read(self, state: Any, lengths: Any, out: Any, h_out: Any, c_out: Any) -> None:
        self._read_state(state)
        self.lengths = read_lengths(lengths, self.shapes)
        self._set_outputs(out, h_out, c_out)
        self._part_overlaps()

    def _read_state(self, state: Any) -> None:
        for slot, value in zip(self.slots, states_of(state, self.spec), strict=False):
            what, part = f"{slot.part.letter}_0", slot.part
            array, found = _input(value, what, f"{self.dtype}, as x is")
            check(what, array.shape, found, part.shape, self.dtype, part.meaning)
            slot.first = as_carrier(array)

    def _set_outputs(self, out: Any, h_out: Any, c_out: Any) -> None:
        self.out = out
        self.y = self._output(out, "out", self.shapes.y, "")
        if out is not None and not _has_even_rows(self.y):
            raise LayoutError(
                "out has to be aligned and its last axis contiguous, as in a C-contiguous array"
            )
        check_outputs(self.spec, c_out)
        for slot, given in zip(self.slots, (h_out, c_out), strict=False):
            part = slot.part
            slot.given = given
            slot.last = self._output(given, f"{part.letter}_out", part.shape, part.meaning)

    def _output(self, given: Any, what: str, shape: tuple[int, ...], meaning: str) -> np.ndarray:
        if given is None:
            return np.empty(shape, storage(self.dtype))
        array, found = _input(given, what, f"{self.dtype}, as x is")
        check(what, array.shape, found, shape, self.dtype, meaning)
        check_in_place(array, given, what)
        if not array.flags.writeable:
            raise LayoutError(f"{what} is read-only")
        if _overlaps_itself(array):
            raise LayoutError(f"{what}: its elements share memory with each other")
        return array

    def _part_overlaps(self) -> None:
        """Refuse outputs that overlap, copy inputs that would be written over too early."""
        outs = list(self._given())
        for k, (name, array) in enumerate(outs):
            for other, before in outs[:k]:
                if _overlap(array, before):
                    raise LayoutError(f"{other} and {name} share memory: each needs its own")
            if self.axes != STEP and _overlap(array, self.x):
                raise LayoutError(
                    f"{name} shares memory with x, which is read while it is written: it needs its"
                    " own"
                )
        pairs = [(self.x, self.y), *((slot.first, slot.last) for slot in self.slots)]
        for k, (first, last) in enumerate(pairs):
            if first is not None and any(
                _overlap(array, first) and not (array is last and _same_place(array, first))
                for _, array in outs
            ):
                if k == 0:
                    self.x = first.copy()
                else:
                    self.slots[k - 1].first = first.copy()

    def _given(self) -> Iterator[tuple[str, np.ndarray]]:
        if self.out is not None:
            yield "out", self.y
        for slot in self.slots:
            if slot.given is not None and slot.last is not None:
                yield f"{slot.part.letter}_out", slot.last

    def run(self, native: _native.Rnn | _native.GpuRnn) -> Any:
        # first of all: bfloat16 may not be there to be shown
        y = present(self.y, self.dtype) if self.out is None else self.out
        firsts = [slot.first for slot in self.slots]
        lasts = [as_carrier(slot.last) for slot in self.slots if slot.last is not None]
        h, c = (*lasts, None)[:2]
        if isinstance(native, _native.Rnn):
            state = firsts[0] if len(firsts) == 1 else tuple(firsts)
            given = state if firsts[0] is not None else None
            native.run(self.x, given, self.lengths, self.y, h, c, self.axes, True)
        else:
            h0, c0 = (*firsts, None)[:2]
            dense, shapes = as_carrier(self.y), self.shapes
            native.run(shapes.T, shapes.N, shapes.batch_first, as_carrier(self.x), self.lengths,
                       h0, c0, dense, h, c, None)  # fmt: skip
            if dense is not self.y:
                self.y[...] = dense
        shown = []
        for slot, last in zip(self.slots, lasts, strict=True):
            if slot.last is not None and last is not slot.last:
                slot.last[...] = last
            shown.append(present(last, self.dtype) if slot.given is None else slot.given)
        return y, shown[0] if len(shown) == 1 else tuple(shown)


def _input(value: Any, what: str, needed: str) -> tuple[np.ndarray, str]:
    if not any(hasattr(value, name) for name in ("__array__", "__array_interface__")):
        raise LayoutError(f"{what} is a {kind(value)}, need an array of {needed}")
    return take(value, what, needed)


def _has_even_rows(array: np.ndarray) -> bool:
    """Aligned, strides in whole elements, the last axis contiguous."""
    width, nbytes = array.shape[-1], array.itemsize
    return bool(
        array.flags.aligned
        and (width == 1 or array.strides[-1] == nbytes or not array.size)
        and not any(stride % nbytes for stride in array.strides)
    )


def _with_even_rows(array: np.ndarray) -> np.ndarray:
    return array if _has_even_rows(array) else np.array(array, order="C", copy=True)


def _overlaps_itself(array: np.ndarray) -> bool:
    """Going up its strides, does an axis not go past all of those before it?"""
    end = array.itemsize
    for stride, n in sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True)):
        if n > 1 and stride < end:
            return bool(array.size)
        end += (n - 1) * stride
    return False


def _overlap(a: np.ndarray, b: np.ndarray) -> bool:
    """Have they an element in common? Where that is not soon found out, they have."""
    enough: Any = 10_000  # steps of the search; NumPy's stub knows none but -1 and 0
    try:
        return bool(np.shares_memory(a, b, max_work=enough))
    except np.exceptions.TooHardError:
        return True


def _same_place(a: np.ndarray, b: np.ndarray) -> bool:
    return a.__array_interface__["data"] == b.__array_interface__["data"] and a.strides == b.strides
