"""Tape: a recorded call of an RNN on the CPU, and its backward pass."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from rnnlayout import _native
from rnnlayout._model.dtypes import storage_dtype
from rnnlayout._model.spec import Spec
from rnnlayout._native import LayoutError

from . import call_arrays, host
from .settings import CPU, SourceSettings

ALIGNMENT = 64  # of a tape, bytes


class Tape:
    """A recorded call, made by RNN.record().

    y: the outputs of the call. state: h_n, or (h_n, c_n) for an LSTM. nbytes: the memory of the
    tape. backward() runs the backward pass, any number of times.
    """

    __slots__ = ("_arrays", "_memory", "_native", "_present", "_spec", "state", "y")

    def __init__(
        self, native: _native.Rnn, spec: Spec, arrays: host.HostArrays, present: Any
    ) -> None:
        self._native, self._spec, self._arrays, self._present = native, spec, arrays, present
        shapes, dtype = arrays.shapes, arrays.dtype
        self._memory = new_tape(_native.tape_nbytes(native, shapes.T, shapes.N))
        outputs = [np.empty(need.shape, storage_dtype(dtype)) for need in shapes.outputs.values()]
        _native.record(
            native,
            self._by_time(arrays.x),
            *_two([self._batched(first) for first in arrays.first_states]),
            arrays.steps,
            self._by_time(outputs[0]),
            *_two([self._batched(last) for last in outputs[1:]]),
            self._memory,
        )
        self.y, *states = (present(output, dtype) for output in outputs)
        self.state = host.one_or_both(states)

    @property
    def nbytes(self) -> int:
        """The memory of the tape."""
        return self._memory.nbytes

    def __repr__(self) -> str:
        shapes = self._arrays.shapes
        return f"<Tape of {shapes.T} steps of {shapes.N} sequences, {self.nbytes:,} bytes>"

    def backward(
        self, dy: Any = None, dstate: Any = None, *, add_to: np.ndarray | None = None
    ) -> tuple[Any, Any, Any]:
        """Return the gradients of x, of the first state and of the weights: dx, dstate, dweights.

        dy, dstate: the gradients of y and of the last state, in their shapes; None: zeros. Values
            of dy past the end of a sequence are ignored.
        add_to: an array to which the gradient of the weights is added; it is then dweights.

        Gradients are float32, float64 if the weights are float64. dstate has the form of the state
        of a call. dweights is (n,), in the layout "the forward pass", which is that of cuDNN's
        weight space:

            rl.convert(dweights, rnn.spec, layout="the forward pass", to="torch", kind="gradient")

        The results have the same bits in each run, with any number of threads.

        Raises LayoutError if a shape or dtype does not fit.
        """
        arrays, spec = self._arrays, self._spec
        shapes = arrays.shapes
        dtype = "float64" if spec.dtype == "float64" else "float32"
        named = call_arrays.name_arrays(spec, None, dstate, dy, None, None)
        needs = {"out": shapes.outputs["out"], **shapes.states}
        labels = {"out": "dy", "h_0": "dstate h", "c_0": "dstate c"}
        call_arrays.refuse_unreadable({labels[k]: a for k, a in named.items() if k in labels})
        gradients = {
            name: np.ascontiguousarray(_read_gradient(named[name], labels[name], need, dtype))
            for name, need in needs.items()
            if named.get(name) is not None
        }
        dx = np.empty(shapes.x, dtype)
        dstates = [np.empty(need.shape, dtype) for need in shapes.states.values()]
        num_params = num_weights(spec)
        dweights = np.empty(num_params, dtype) if add_to is None else add_to
        if add_to is not None and not _is_vector(add_to, num_params, dtype):
            raise LayoutError(
                f"add_to must be a writable, contiguous NumPy array of {num_params} {dtype}"
            )
        dy_array = gradients.pop("out", None)
        _native.backward(
            self._native,
            self._memory,
            shapes.T,
            shapes.N,
            arrays.steps,
            None if dy_array is None else self._by_time(dy_array),
            *_two([self._batched(gradient) for gradient in gradients.values()]),
            self._by_time(dx),
            *_two([self._batched(gradient) for gradient in dstates]),
            dweights,
            add_to is not None,
        )
        shown = [self._present(gradient, dtype) for gradient in dstates]
        result = dweights if add_to is not None else self._present(dweights, dtype)
        return self._present(dx, dtype), host.one_or_both(shown), result

    def _by_time(self, array: np.ndarray) -> np.ndarray:
        """Return x, y or a gradient of them as (T, N, ...)."""
        shapes = self._arrays.shapes
        if not shapes.batched:
            return array[:, None]
        return array.swapaxes(0, 1) if shapes.batch_first else array

    def _batched(self, state: np.ndarray) -> np.ndarray:
        return state if self._arrays.shapes.batched else state[:, None]


@lru_cache(maxsize=256)  # a step of training asks once
def num_weights(spec: Spec) -> int:
    """Return the elements of the weight space, also of an RNN that cuDNN lacks."""
    ((_, (nelems,)),) = _native.tensors(CPU, spec)
    return nelems


def new_tape(nbytes: int) -> np.ndarray:
    """Return aligned memory."""
    memory = np.empty(nbytes + ALIGNMENT, np.uint8)
    return memory[-memory.__array_interface__["data"][0] % ALIGNMENT :][:nbytes]


def _read_gradient(source: Any, label: str, need: call_arrays.ArrayNeed, dtype: str) -> np.ndarray:
    array, array_dtype = host.take_array(source, label, f"{dtype}, as all gradients")
    if array_dtype != dtype:
        raise LayoutError(f"{label} is {array_dtype}, need {dtype}, as all gradients")
    call_arrays.check_array_shape(label, array.shape, need)
    return array


def record_call(
    native: _native.Rnn,
    spec: Spec,
    axes: int,
    use: SourceSettings,
    x: Any,
    state: Any,
    lengths: Any,
) -> Tape:
    """Run an RNN on the CPU and return the Tape. Raises LayoutError if an array does not fit."""
    named = call_arrays.name_arrays(spec, x, state, None, None, None)
    call_arrays.refuse_unreadable(named)
    arrays = host.read_arrays(native, spec, axes, use, named, lengths, None)
    return Tape(native, spec, arrays, call_arrays.presenter_like(x))


def _two(states: list[np.ndarray]) -> tuple[np.ndarray | None, np.ndarray | None]:
    h, c = (*states, None, None)[:2]
    return h, c


def _is_vector(array: Any, n: int, dtype: str) -> bool:
    return (
        type(array) is np.ndarray
        and array.shape == (n,)
        and array.dtype == dtype
        and array.dtype.isnative
        and array.flags.carray
    )
