"""Live signals: what a Stepper of the core does not read by itself."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from rnnlayout import _native
from rnnlayout._model.spec import Spec
from rnnlayout._native import STEP, LayoutError

from .call_arrays import ArrayNeed, CallShapes, name_arrays, refuse_devices
from .caller_arrays import presenter_like, refuse_gradients
from .host import read_array, read_output, take_array
from .source_settings import SourceSettings


def make_stepper(
    native: _native.Rnn, spec: Spec, use: SourceSettings, state: Any
) -> _native.Stepper:
    """Return a stepper with a first state, None for the source's own."""
    if state is None:
        shapes = CallShapes(spec, STEP, (spec.input_size,))
        first = tuple(use.first_states(shapes, _stepper_dtype(spec)).values())
        state = (first if len(first) > 1 else first[0]) if first else None
    stepper = _native.Stepper(native, partial(_step_on_copies, spec), partial(_read_state, spec))
    stepper.state = state
    return stepper


def _stepper_dtype(spec: Spec) -> str:
    return "float64" if spec.dtype == "float64" else "float32"


def _check_arrays(named: dict[str, Any]) -> None:
    refuse_gradients(named)
    refuse_devices(named)


def _step_on_copies(spec: Spec, stepper: _native.Stepper, x: Any, out: Any) -> Any:
    """Run a stepper on copies of arrays that it cannot read, or raise LayoutError."""
    _check_arrays({"x": x} if out is None else {"x": x, "out": out})
    wanted, width = _stepper_dtype(spec), spec.input_size
    array, dtype = take_array(x, "x", wanted)
    if dtype != wanted:
        raise LayoutError(f"x is {dtype}, need {wanted}: a stepper computes in {wanted}")
    if array.ndim not in (1, 2) or array.shape[-1] != width:
        raise LayoutError(
            f"x: shape {array.shape}, expected ({width},) or, for n steps, (n, {width}), with"
            f" I = {width}"
        )
    shape = (*array.shape[:-1], spec.proj_size or spec.hidden_size)
    into = None if out is None else read_output(out, "out", ArrayNeed(shape, ""), dtype)
    y = stepper(np.array(array, order="C", copy=True))
    if into is None:
        return presenter_like(x)(y, dtype)
    into[...] = y
    return out


def _read_state(spec: Spec, state: Any) -> tuple[np.ndarray, ...]:
    """Return the arrays of a state as the core reads them."""
    named = name_arrays(spec, None, state, None, None, None)
    _check_arrays(named)
    return tuple(
        np.array(read_array(named[what], what, part, _stepper_dtype(spec)), order="C", copy=True)
        for what, part in CallShapes(spec, STEP, (spec.input_size,)).states.items()
    )
