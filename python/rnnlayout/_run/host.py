"""A call on arrays in the host's memory: check the arrays, copy some, and run. And a step of a
Stepper on arrays that the core does not read.
"""

from __future__ import annotations

from dataclasses import dataclass
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
from .masks import MaskedSteps, read_mask
from .settings import SourceSettings


@dataclass(frozen=True)
class HostArrays:
    """The checked arrays of a call, as bits. outs: the outputs of the caller, by name."""

    x: np.ndarray
    dtype: str
    shapes: call_arrays.CallShapes
    first_states: list[np.ndarray]
    steps: np.ndarray | None
    counts: np.ndarray | None
    outs: dict[str, np.ndarray]


def read_arrays(
    native: _native.Rnn | _native.GpuRnn,
    spec: Spec,
    axes: int,
    use: SourceSettings,
    arrays: dict[str, Any],
    lengths: Any,
    mask: Any,
) -> HostArrays:
    widens = isinstance(native, _native.Rnn) and spec.dtype in ("float16", "bfloat16")
    needed = f"{spec.dtype} like the weights{', or float32' if widens else ''}"
    x, dtype = take_array(arrays["x"], "x", needed)
    if dtype != spec.dtype and not (widens and dtype == "float32"):
        raise LayoutError(f"x is {dtype}, need {needed}")
    shapes = call_arrays.CallShapes(spec, axes, x.shape, use.merges)
    if not _has_even_rows(x):
        x = np.array(x, order="C", copy=True)
    first_states = [
        as_carrier(read_array(arrays[name], name, need, dtype))
        for name, need in shapes.states.items()
        if name in arrays
    ]
    if not first_states:
        first_states = [as_carrier(first) for first in use.first_states(shapes, dtype).values()]
    steps = None if lengths is None else call_arrays.read_lengths(lengths)
    call_arrays.check_lengths(steps, shapes)
    counts = None if mask is None else read_mask(mask, shapes)
    outs = {
        name: read_output(arrays[name], name, need, dtype)
        for name, need in shapes.outputs.items()
        if name in arrays
    }
    for (name, array), (earlier_name, earlier_array) in combinations(outs.items(), 2):
        if _may_overlap(array, earlier_array):
            raise LayoutError(f"{name} and {earlier_name} share memory: each needs its own")
    for name, array in outs.items():
        if axes != STEP and _may_overlap(array, x):
            raise LayoutError(f"{name} must not share memory with x")
    return HostArrays(x, dtype, shapes, first_states, steps, counts, outs)


def run_host_arrays(
    native: _native.Rnn | _native.GpuRnn,
    spec: Spec,
    axes: int,
    use: SourceSettings,
    arrays: dict[str, Any],
    lengths: Any,
    mask: Any = None,
) -> Any:
    """Run an RNN on the CPU or a GPU. Raises LayoutError if an array does not fit. arrays: by name.
    On the CPU x may be float32 if the weights are narrower."""
    read = read_arrays(native, spec, axes, use, arrays, lengths, mask)
    x, dtype, shapes, first_states = read.x, read.dtype, read.shapes, read.first_states
    steps, counts, outs = read.steps, read.counts, read.outs
    if outs:  # outputs may overwrite x and the first states
        first_states = [first.copy() for first in first_states]
        x = x.copy() if axes == STEP else x
    y = outs.get("out")
    if y is None:
        y = np.empty(shapes.outputs["out"].shape, storage_dtype(dtype))
    present = call_arrays.presenter_like(arrays["x"])
    results = {"out": present(y, dtype)} | arrays  # before run(): present() fails without ml_dtypes
    whole_y = np.empty((*y.shape[:-1], 2 * y.shape[-1]), y.dtype) if use.merges else y
    time_axis = int(shapes.batch_first)
    if use.go_backwards != use.keeps_order:
        x = np.flip(x, time_axis)
        counts = None if counts is None else np.flip(counts, time_axis)
    if use.keeps_order:
        whole_y = np.flip(whole_y, time_axis)
    repeats = use.repeats_masked
    last_states: tuple[np.ndarray, ...]
    if isinstance(native, _native.Rnn):
        state = tuple(first_states) if len(first_states) == 2 else next(iter(first_states), None)
        _, last = native.run(x, state, steps, counts, whole_y, None, None, axes, repeats, True)
        last_states = last if isinstance(last, tuple) else (last,)
    else:
        last_states = tuple(
            np.empty(need.shape, storage_dtype(dtype)) for need in shapes.states.values()
        )
        states_of_run = [*(*first_states, None, None)[:2], *(*last_states, None)[:2]]
        if counts is None:
            _run_on_gpu(native, shapes.T, shapes, x, steps, whole_y, states_of_run)
        else:
            masked_steps = MaskedSteps(counts, shapes.batch_first)
            x, steps = masked_steps.gather(x), masked_steps.lengths
            some_y = masked_steps.new_y(whole_y.shape[-1], y.dtype)
            _run_on_gpu(native, masked_steps.num_steps, shapes, x, steps, some_y, states_of_run)
            masked_steps.scatter(whole_y, repeats)
    if use.merges:
        y[...] = use.merged(whole_y, dtype)
    for name, last in zip(("h_out", "c_out"), last_states, strict=False):
        if name in outs:
            outs[name][...] = last
        else:
            results[name] = present(last, dtype)
    states = [results[name] for name in shapes.outputs if name != "out"]
    return results["out"], one_or_both(states)


def bind_host_arrays(
    rnn: Any,
    native: _native.Rnn,
    spec: Spec,
    axes: int,
    use: SourceSettings,
    arrays: dict[str, Any],
    lengths: Any,
    mask: Any,
) -> _native.BoundCall:
    """Return a call of an RNN on the CPU that uses these arrays in place. Raises LayoutError if a
    call would copy an array. rnn: the rl.RNN. arrays: by name."""
    read = read_arrays(native, spec, axes, use, arrays, lengths, mask)
    present = call_arrays.presenter_like(arrays["x"])
    outs = {
        name: read.outs.get(name, np.empty(need.shape, storage_dtype(read.dtype)))
        for name, need in read.shapes.outputs.items()
    }
    results = {name: arrays.get(name, present(array, read.dtype)) for name, array in outs.items()}
    inputs = {"x": read.x, **dict(zip(read.shapes.states, read.first_states, strict=False))}
    lasts = dict(zip(read.shapes.states, ("h_out", "c_out"), strict=False))
    in_place = {**inputs, **{name: as_carrier(outs[name]) for name in lasts.values()}}
    for name, array in in_place.items():
        original = arrays.get(name)
        if original is not None and not _is_in_place(array, original):
            raise LayoutError(
                f"{name} cannot be used in place by each call of bind(): pass a C-contiguous NumPy"
                " array in native byte order, or a torch tensor on the CPU"
            )
    for name, first in inputs.items():
        for output_name, output in outs.items():
            is_same = output_name == lasts.get(name) and _is_in_place(output, first)
            if not is_same and _may_overlap(output, first):
                raise LayoutError(f"{output_name} must not share memory with {name}")
    state = one_or_both(read.first_states) if read.first_states else None
    counts = None if read.counts is None else read.counts.copy()
    result = results.pop("out"), one_or_both([*results.values()])
    y, h, c = outs["out"], outs["h_out"], outs.get("c_out")
    return native.bind(
        read.x, state, read.steps, counts, y, h, c, axes, use.repeats_masked, rnn, result
    )


def _is_in_place(array: np.ndarray, original: Any) -> bool:
    """Return whether an array has the memory of an argument and may be read by the core."""
    memory = original if isinstance(original, np.ndarray) else take_bits(original, "x")[0]
    starts = [a.__array_interface__["data"][0] for a in (array, memory)]
    return not array.size or (starts[0] == starts[1] and array.strides == memory.strides)


def one_or_both(states: list[Any]) -> Any:
    return states[0] if len(states) == 1 else tuple(states)


def _run_on_gpu(
    native: _native.GpuRnn,
    num_steps: int,
    shapes: call_arrays.CallShapes,
    x: np.ndarray,
    lengths: np.ndarray | None,
    y: np.ndarray,
    states: list[np.ndarray | None],
) -> None:
    """Run a GPU on arrays of the host. y may have any strides. states: h_0, c_0, h_n, c_n."""
    h0, c0, h, c = states
    dense_x, dense_y = as_carrier(x), as_carrier(y)
    native.run(num_steps, shapes.N, shapes.batch_first, dense_x, lengths, h0, c0, dense_y, h, c)
    if dense_y is not y:
        y[...] = dense_y


def read_array(source: Any, label: str, need: call_arrays.ArrayNeed, dtype: str) -> np.ndarray:
    """Return the bits of a state or an output."""
    array, array_dtype = take_array(source, label, f"{dtype} like x")
    if array_dtype != dtype:
        raise LayoutError(f"{label} is {array_dtype}, need {dtype} like x")
    call_arrays.check_array_shape(label, array.shape, need)
    return array


def take_array(source: Any, label: str, needed: str) -> tuple[np.ndarray, str]:
    if not any(hasattr(source, name) for name in ("__array__", "__array_interface__")):
        text = f"{label} is a {call_arrays.type_name(source)}, need an array of {needed}"
        if call_arrays.type_name(source) == "PackedSequence":
            text += ": pass both results of torch.nn.utils.rnn.pad_packed_sequence, x and "
            raise LayoutError(text, Ask("lengths"))
        raise LayoutError(text)
    return take_bits(source, label, needed)


def read_output(source: Any, label: str, need: call_arrays.ArrayNeed, dtype: str) -> np.ndarray:
    """Return an array on the memory of an output."""
    array = read_array(source, label, need, dtype)
    check_in_place(array, source, label)
    if not array.flags.writeable:
        raise LayoutError(f"{label} is read-only")
    if _overlaps_itself(array):
        raise LayoutError(f"{label}: its elements share memory with each other")
    if label == "out" and not _has_even_rows(array):
        raise LayoutError(
            "out must be aligned and contiguous in its last axis, as a C-contiguous array is"
        )
    return array


def _has_even_rows(array: np.ndarray) -> bool:
    """Return whether an array is aligned, with strides of whole elements and contiguous rows."""
    width, nbytes = array.shape[-1], array.itemsize
    return bool(
        array.flags.aligned
        and (width == 1 or array.strides[-1] == nbytes or not array.size)
        and not any(stride % nbytes for stride in array.strides)
    )


def _overlaps_itself(array: np.ndarray) -> bool:
    """Return whether an axis, by rising stride, does not step over all axes of smaller stride."""
    end = array.itemsize
    for stride, n in sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True)):
        if n > 1 and stride < end:
            return bool(array.size)
        end += (n - 1) * stride
    return False


def _may_overlap(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two arrays share an element, True if the answer takes too long."""
    max_steps: Any = 10_000  # steps of the search; NumPy's stub allows -1 and 0 only
    try:
        return bool(np.shares_memory(a, b, max_work=max_steps))
    except np.exceptions.TooHardError:
        return True


# ------------------------------------ live signals: arrays that a Stepper of the core does not read


def make_stepper(
    native: _native.Rnn | _native.GpuRnn, spec: Spec, use: SourceSettings, state: Any
) -> _native.Stepper:
    """Return a stepper with a first state. state: None for the initial state of the source."""
    widens = isinstance(native, _native.Rnn) and spec.dtype in ("float16", "bfloat16")
    dtype = "float32" if widens else spec.dtype
    shapes = call_arrays.CallShapes(spec, STEP, (spec.input_size,))
    if state is None:
        states = tuple(use.first_states(shapes, dtype).values())
        state = (states if len(states) > 1 else states[0]) if states else None

    def read_state(state: Any) -> tuple[np.ndarray, ...]:
        arrays = call_arrays.name_arrays(spec, None, state, None, None, None)
        call_arrays.refuse_unreadable(arrays)
        return tuple(
            np.array(read_array(arrays[name], name, need, dtype), order="C", copy=True)
            for name, need in shapes.states.items()
        )

    stepper = _native.Stepper(native, partial(_step_on_copies, spec, dtype), read_state)
    stepper.state = state
    return stepper


def _step_on_copies(spec: Spec, needed: str, stepper: _native.Stepper, x: Any, out: Any) -> Any:
    """Run a stepper on copies of arrays that the core does not read, or raise LayoutError."""
    call_arrays.refuse_unreadable({"x": x} if out is None else {"x": x, "out": out})
    width = spec.input_size
    array, dtype = take_array(x, "x", needed)
    if dtype != needed:
        raise LayoutError(f"x is {dtype}, need {needed}: a stepper computes in {needed}")
    if array.ndim not in (1, 2) or array.shape[-1] != width:
        raise LayoutError(
            f"x: shape {array.shape}, expected ({width},) or, for n steps, (n, {width}), with"
            f" I = {width}"
        )
    shape = (*array.shape[:-1], spec.proj_size or spec.hidden_size)
    need = call_arrays.ArrayNeed(shape, "")
    output = None if out is None else read_output(out, "out", need, dtype)
    y = stepper(np.array(array, order="C", copy=True))
    if output is None:
        return call_arrays.presenter_like(x)(y, dtype)
    output[...] = y
    return out
