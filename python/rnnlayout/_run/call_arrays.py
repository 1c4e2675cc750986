"""The arrays of one call by name, and the shapes and dtypes they need, on the host or on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnlayout._model.asks import Ask
from rnnlayout._model.spec import CELLS, Spec
from rnnlayout._native import BATCH_FIRST, STEP, TIME_FIRST, LayoutError

from .caller_arrays import is_on_device

INPUTS, OUTPUTS = ("x", "h_0", "c_0"), ("out", "h_out", "c_out")
_AXES = {STEP: "N", TIME_FIRST: "TN", BATCH_FIRST: "NT"}


def name_arrays(spec: Spec, x: Any, state: Any, out: Any, h_out: Any, c_out: Any) -> dict[str, Any]:
    """Return the arrays of a call by name, without those that are not given."""
    states = [] if state is None else [state]
    if CELLS[spec.cell].has_c and states:
        if not isinstance(state, (tuple, list)) or len(state) != 2:
            raise LayoutError(f"state is a {type_name(state)}, need (h_0, c_0): an LSTM has two")
        states = list(state)
    if not CELLS[spec.cell].has_c and c_out is not None:
        cell = "a GRU" if CELLS[spec.cell].is_gated else "a plain RNN"
        raise LayoutError(f"c_out is given, but {cell} has no cell state")
    outs = zip(OUTPUTS, (out, h_out, c_out), strict=True)
    return {
        **dict(zip(INPUTS, (x, *states), strict=False)),
        **{what: value for what, value in outs if value is not None},
    }


@dataclass(frozen=True)
class ArrayNeed:
    """What one array of a call needs."""

    shape: tuple[int, ...]
    meaning: str  # of the shape


class CallShapes:
    """The shapes of the arrays of a call, which follow from x. states, outputs: what each array
    needs, by its name.

    merges: whether the two directions of y become one.
    """

    def __init__(self, spec: Spec, axes: int, x: tuple[int, ...], merges: bool = False) -> None:
        letters = _AXES[axes]
        self.x, self.batched = x, len(x) == len(letters) + 1
        self._check_x(spec, letters)
        sizes = dict(zip(letters if self.batched else letters.replace("N", ""), x, strict=False))
        self.T, self.N = sizes.get("T", 1), sizes.get("N", 1)
        self.batch_first = self.batched and axes == BATCH_FIRST
        D, H = spec.num_directions, spec.hidden_size
        P = spec.proj_size or H
        width = P if merges else D * P
        rows = (spec.num_layers * D, *((self.N,) if self.batched else ()))
        form = "(L * D, N, {})" if self.batched else "(L * D, {})"
        parts = [ArrayNeed((*rows, P), form.format("P" if spec.proj_size else "H"))]
        if CELLS[spec.cell].has_c:
            parts.append(ArrayNeed((*rows, H), form.format("H")))
        self.states = dict(zip(INPUTS[1:], parts, strict=False))
        self.outputs = dict(zip(OUTPUTS, [ArrayNeed((*x[:-1], width), ""), *parts], strict=False))

    def _check_x(self, spec: Spec, letters: str) -> None:
        ndims = len(letters) + 1, len(letters)
        if len(self.x) not in ndims or self.x[-1] != spec.input_size:
            forms = [(*letters, str(spec.input_size))]
            forms.append(tuple(n for n in forms[0] if n != "N"))
            batched, single = (f"({', '.join(f)}{',' * (len(f) == 1)})" for f in forms)
            raise LayoutError(
                f"x: shape {self.x}, expected {batched} or, without a batch, {single}, with"
                f" I = {spec.input_size}"
            )


def refuse_devices(named: dict[str, Any]) -> None:
    """Raise LayoutError if an array is on a GPU, for an RNN on the CPU."""
    for what, value in named.items():
        if is_on_device(value):
            raise LayoutError(
                f"{what} is a {type_name(value)} on a GPU, but this RNN is on the CPU: pass "
                + Ask("device", "cuda")
                + " to rl.RNN, or copy the array to the host (in PyTorch"
                f" {what}.cpu(), in CuPy {what}.get())"
            )


def check_array_shape(what: str, shape: tuple[int, ...], part: ArrayNeed) -> None:
    """Raise LayoutError unless an array has the shape that it needs."""
    if shape != part.shape:
        means = f" = {part.meaning}" if part.meaning else " for this x"
        raise LayoutError(f"{what}: shape {shape}, expected {part.shape}{means}")


def read_lengths(lengths: Any) -> np.ndarray:
    """Return a copy of the lengths as the binding needs them, which checks their range: int64."""
    if is_on_device(lengths):
        raise LayoutError(
            f"lengths is a {type_name(lengths)} on a GPU, but is needed on the host: pass"
            " lengths.cpu() in PyTorch, lengths.get() in CuPy"
        )
    try:
        array = np.asarray(lengths)
    except MemoryError:
        raise
    except Exception as error:  # of any kind: it is the object's own code
        raise LayoutError(f"lengths is not an array: {type_name(lengths)} ({error})") from None
    if array.dtype.kind not in "iu" and array.size:  # [] is float64 to NumPy
        raise LayoutError(f"lengths is {array.dtype}, need integers")
    if array.size and array.max() > np.iinfo(np.int64).max:
        raise LayoutError(f"lengths has {array.max()}, need at most T")
    return array.astype(np.int64)


def check_lengths(steps: np.ndarray | None, shapes: CallShapes) -> None:
    """Raise LayoutError unless there is one length per sequence."""
    if steps is None:
        return
    if not shapes.batched:
        raise LayoutError(f"lengths need a batch, but x has shape {shapes.x}: cut x instead")
    if steps.shape != (shapes.N,):
        raise LayoutError(f"lengths: shape {steps.shape}, expected ({shapes.N},) = (N,)")


def type_name(value: Any) -> str:
    return type(value).__name__
