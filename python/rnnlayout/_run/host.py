"""A call on arrays in the host's memory: check them, copy what has to be copied, and run. And what
a Stepper of the core does not read by itself.
"""

from __future__ import annotations

from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from rnnlayout import _native
from rnnlayout._model.dtypes import as_carrier, check_in_place, storage_dtype, take_bits
from rnnlayout._model.errors import Ask
from rnnlayout._model.spec import Spec
from rnnlayout._native import STEP, LayoutError

from . import call_arrays
from .settings import SourceSettings


def run_host_arrays(
    native: _native.Rnn | _native.GpuRnn,
    spec: Spec,
    axes: int,
    use: SourceSettings,
    named: dict[str, Any],
    lengths: Any,
) -> Any:
    """Run an RNN on the CPU or a GPU. Raises LayoutError if an array does not fit. named: the
    arrays, by name. On the CPU x may be float32 if the weights are narrower."""
    widens = isinstance(native, _native.Rnn) and spec.dtype in ("float16", "bfloat16")
    needed = f"{spec.dtype} like the weights{', or float32' if widens else ''}"
    x, dtype = take_array(named["x"], "x", needed)
    if dtype != spec.dtype and not (widens and dtype == "float32"):
        raise LayoutError(f"x is {dtype}, need {needed}")
    shapes = call_arrays.CallShapes(spec, axes, x.shape, use.merges)
    if not _has_even_rows(x):
        x = np.array(x, order="C", copy=True)
    firsts = [as_carrier(read_array(named[what], what, part, dtype))
              for what, part in shapes.states.items() if what in named]  # fmt: skip
    if not firsts:
        firsts = [as_carrier(first) for first in use.first_states(shapes, dtype).values()]
    steps = None if lengths is None else call_arrays.read_lengths(lengths)
    call_arrays.check_lengths(steps, shapes)
    outs = {what: read_output(named[what], what, part, dtype)
            for what, part in shapes.outputs.items() if what in named}  # fmt: skip
    for (name, array), (other, before) in combinations(outs.items(), 2):
        if _may_overlap(array, before):
            raise LayoutError(f"{name} and {other} share memory: each needs its own")
    for name, array in outs.items():
        if axes != STEP and _may_overlap(array, x):
            raise LayoutError(f"{name} must not share memory with x")
    if outs:  # outputs may overwrite these
        firsts = [first.copy() for first in firsts]
        x = x.copy() if axes == STEP else x
    y = outs.get("out")
    if y is None:
        y = np.empty(shapes.outputs["out"].shape, storage_dtype(dtype))
    show = call_arrays.presenter_like(named["x"])
    shown = {"out": show(y, dtype)} | named  # before the work: it fails without ml_dtypes
    into = np.empty((*y.shape[:-1], 2 * y.shape[-1]), y.dtype) if use.merges else y
    time_axis = int(shapes.batch_first)
    if use.go_backwards != use.keeps_order:
        x = np.flip(x, time_axis)
    if use.keeps_order:
        into = np.flip(into, time_axis)
    if isinstance(native, _native.Rnn):
        state = tuple(firsts) if len(firsts) == 2 else next(iter(firsts), None)
        _, last = native.run(x, state, steps, into, None, None, axes, True)
        lasts = last if isinstance(last, tuple) else (last,)
    else:
        lasts = tuple(np.empty(part.shape, storage_dtype(dtype)) for part in shapes.states.values())
        h0, c0 = (*firsts, None, None)[:2]
        h, c = (*lasts, None)[:2]
        dense = as_carrier(into)
        native.run(shapes.T, shapes.N, shapes.batch_first, as_carrier(x), steps, h0, c0,
                   dense, h, c)  # fmt: skip
        if dense is not into:
            into[...] = dense
    if use.merges:
        y[...] = use.merged(into, dtype)
    for what, last in zip(("h_out", "c_out"), lasts, strict=False):
        if what in outs:
            outs[what][...] = last
        else:
            shown[what] = show(last, dtype)
    states = [shown[what] for what in shapes.outputs if what != "out"]
    return shown["out"], states[0] if len(states) == 1 else tuple(states)


def read_array(value: Any, what: str, part: call_arrays.ArrayNeed, dtype: str) -> np.ndarray:
    """Return the bits of a state or an output."""
    array, found = take_array(value, what, f"{dtype} like x")
    if found != dtype:
        raise LayoutError(f"{what} is {found}, need {dtype} like x")
    call_arrays.check_array_shape(what, array.shape, part)
    return array


def take_array(value: Any, what: str, needed: str) -> tuple[np.ndarray, str]:
    if not any(hasattr(value, name) for name in ("__array__", "__array_interface__")):
        text = f"{what} is a {call_arrays.type_name(value)}, need an array of {needed}"
        if call_arrays.type_name(value) == "PackedSequence":
            text += ": pass both results of torch.nn.utils.rnn.pad_packed_sequence, x and "
            raise LayoutError(text, Ask("lengths"))
        raise LayoutError(text)
    return take_bits(value, what, needed)


def read_output(value: Any, what: str, part: call_arrays.ArrayNeed, dtype: str) -> np.ndarray:
    """Return an array on the memory of an output."""
    array = read_array(value, what, part, dtype)
    check_in_place(array, value, what)
    if not array.flags.writeable:
        raise LayoutError(f"{what} is read-only")
    if _overlaps_itself(array):
        raise LayoutError(f"{what}: its elements share memory with each other")
    if what == "out" and not _has_even_rows(array):
        raise LayoutError(
            "out must be aligned and contiguous in its last axis, as a C-contiguous array is"
        )
    return array


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


def _may_overlap(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether they share an element, or whether that takes too long to find out."""
    enough: Any = 10_000  # steps of the search; NumPy's stub allows -1 and 0 only
    try:
        return bool(np.shares_memory(a, b, max_work=enough))
    except np.exceptions.TooHardError:
        return True


# ----------------------------------------- live signals: what a Stepper does not read by itself


def make_stepper(
    native: _native.Rnn, spec: Spec, use: SourceSettings, state: Any
) -> _native.Stepper:
    """Return a stepper with a first state, None for the source's own."""
    dtype = "float64" if spec.dtype == "float64" else "float32"
    shapes = call_arrays.CallShapes(spec, STEP, (spec.input_size,))
    if state is None:
        first = tuple(use.first_states(shapes, dtype).values())
        state = (first if len(first) > 1 else first[0]) if first else None

    def read_state(state: Any) -> tuple[np.ndarray, ...]:
        named = call_arrays.name_arrays(spec, None, state, None, None, None)
        call_arrays.refuse_unreadable(named)
        return tuple(
            np.array(read_array(named[what], what, part, dtype), order="C", copy=True)
            for what, part in shapes.states.items()
        )

    stepper = _native.Stepper(native, partial(_step_on_copies, spec, dtype), read_state)
    stepper.state = state
    return stepper


def _step_on_copies(spec: Spec, wanted: str, stepper: _native.Stepper, x: Any, out: Any) -> Any:
    """Run a stepper on copies of arrays that it cannot read, or raise LayoutError."""
    call_arrays.refuse_unreadable({"x": x} if out is None else {"x": x, "out": out})
    width = spec.input_size
    array, dtype = take_array(x, "x", wanted)
    if dtype != wanted:
        raise LayoutError(f"x is {dtype}, need {wanted}: a stepper computes in {wanted}")
    if array.ndim not in (1, 2) or array.shape[-1] != width:
        raise LayoutError(
            f"x: shape {array.shape}, expected ({width},) or, for n steps, (n, {width}), with"
            f" I = {width}"
        )
    shape = (*array.shape[:-1], spec.proj_size or spec.hidden_size)
    into = None if out is None else read_output(out, "out", call_arrays.ArrayNeed(shape, ""), dtype)
    y = stepper(np.array(array, order="C", copy=True))
    if into is None:
        return call_arrays.presenter_like(x)(y, dtype)
    into[...] = y
    return out
