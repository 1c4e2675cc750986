"""One call on arrays in the host's memory: check them, copy what has to be copied, and run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnlayout import _native
from rnnlayout._model.dtypes import as_carrier, check_in_place, present, storage, take
from rnnlayout._model.spec import Spec
from rnnlayout._native import STEP, LayoutError

from .shapes import Part, Shapes, check, check_outputs, kind, read_lengths, states_of


def run(
    native: _native.Rnn | _native.GpuRnn,
    spec: Spec,
    axes: int,
    x: Any,
    state: Any,
    lengths: Any,
    out: Any,
    h_out: Any,
    c_out: Any,
) -> Any:
    """Run an RNN on the CPU or a GPU. Raises LayoutError if an array does not fit."""
    call = _Call(spec, axes, x, widens=isinstance(native, _native.Rnn))
    call.read_state(state)
    call.lengths = read_lengths(lengths, call.shapes)
    call.set_outputs(out, h_out, c_out)
    call.separate()
    return call.run(native)


@dataclass
class _Slot:
    """One array of the state, before and after the call. Arrays carry bits."""

    part: Part
    first: np.ndarray | None = None
    given: Any = None  # the caller's own output
    last: np.ndarray | None = None  # an array on its memory, or a new one


class _Call:
    """The arrays of one call. widens: x may be float32 if the weights are narrower."""

    def __init__(self, spec: Spec, axes: int, x: Any, widens: bool) -> None:
        self.spec, self.axes = spec, axes
        widens = widens and spec.dtype in ("float16", "bfloat16")
        needed = f"{spec.dtype} like the weights{', or float32' if widens else ''}"
        self.x, self.dtype = _take(x, "x", needed)
        if self.dtype != spec.dtype and not (widens and self.dtype == "float32"):
            raise LayoutError(f"x is {self.dtype}, need {needed}")
        self.shapes = Shapes(spec, axes, self.x.shape)
        if not _has_even_rows(self.x):
            self.x = np.array(self.x, order="C", copy=True)
        self.slots = [_Slot(part) for part in self.shapes.state]
        self.lengths: np.ndarray | None = None
        self.outs: list[tuple[str, np.ndarray]] = []  # the caller's own, by name

    def read_state(self, state: Any) -> None:
        for slot, value in zip(self.slots, states_of(state, self.spec), strict=False):
            part = slot.part
            slot.first = as_carrier(self._take(value, f"{part.letter}_0", part.shape, part.meaning))

    def _take(self, value: Any, what: str, shape: tuple[int, ...], meaning: str) -> np.ndarray:
        """Return the bits of an array, which must have this shape and the dtype of x."""
        array, dtype = _take(value, what, f"{self.dtype} like x")
        check(what, array.shape, dtype, shape, self.dtype, meaning)
        return array

    def set_outputs(self, out: Any, h_out: Any, c_out: Any) -> None:
        self.out = out
        self.y = self._output(out, "out", self.shapes.y, "")
        if out is not None and not _has_even_rows(self.y):
            raise LayoutError(
                "out must be aligned and contiguous in its last axis, as a C-contiguous array is"
            )
        check_outputs(self.spec, c_out)
        for slot, given in zip(self.slots, (h_out, c_out), strict=False):
            part = slot.part
            slot.given = given
            slot.last = self._output(given, f"{part.letter}_out", part.shape, part.meaning)

    def _output(self, given: Any, what: str, shape: tuple[int, ...], meaning: str) -> np.ndarray:
        if given is None:
            return np.empty(shape, storage(self.dtype))
        array = self._take(given, what, shape, meaning)
        check_in_place(array, given, what)
        if not array.flags.writeable:
            raise LayoutError(f"{what} is read-only")
        if _overlaps_itself(array):
            raise LayoutError(f"{what}: its elements share memory with each other")
        self.outs.append((what, array))
        return array

    def separate(self) -> None:
        """Refuse outputs that overlap; copy inputs that would be overwritten too early."""
        for k, (name, array) in enumerate(self.outs):
            for other, before in self.outs[:k]:
                if _overlap(array, before):
                    raise LayoutError(f"{other} and {name} share memory: each needs its own")
            if self.axes != STEP and _overlap(array, self.x):
                raise LayoutError(f"{name} must not share memory with x")
        if self._is_overwritten(self.x, self.y):
            self.x = self.x.copy()
        for slot in self.slots:
            if slot.first is not None and self._is_overwritten(slot.first, slot.last):
                slot.first = slot.first.copy()

    def _is_overwritten(self, first: np.ndarray, last: np.ndarray | None) -> bool:
        """Return whether an output overlaps an input, other than `last` in exactly its place."""
        return any(
            _overlap(array, first) and not (array is last and _same_place(array, first))
            for _, array in self.outs
        )

    def run(self, native: _native.Rnn | _native.GpuRnn) -> Any:
        # before the work: it fails if bfloat16 arrays need a package that is not installed
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


def _take(value: Any, what: str, needed: str) -> tuple[np.ndarray, str]:
    if not any(hasattr(value, name) for name in ("__array__", "__array_interface__")):
        raise LayoutError(f"{what} is a {kind(value)}, need an array of {needed}")
    return take(value, what, needed)


def _has_even_rows(array: np.ndarray) -> bool:
    """Return whether it is aligned, with whole elements as strides and a contiguous last axis."""
    width, nbytes = array.shape[-1], array.itemsize
    return bool(
        array.flags.aligned
        and (width == 1 or array.strides[-1] == nbytes or not array.size)
        and not any(stride % nbytes for stride in array.strides)
    )


def _overlaps_itself(array: np.ndarray) -> bool:
    """Return whether an axis, by rising stride, does not step over all of those before it."""
    end = array.itemsize
    for stride, n in sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True)):
        if n > 1 and stride < end:
            return bool(array.size)
        end += (n - 1) * stride
    return False


def _overlap(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether they share an element, or whether that takes too long to find out."""
    enough: Any = 10_000  # steps of the search; NumPy's stub allows -1 and 0 only
    try:
        return bool(np.shares_memory(a, b, max_work=enough))
    except np.exceptions.TooHardError:
        return True


def _same_place(a: np.ndarray, b: np.ndarray) -> bool:
    return a.__array_interface__["data"] == b.__array_interface__["data"] and a.strides == b.strides
