"""The arrays of a call: required shapes, and the library, memory and gradients of an array."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from rnnlayout._model.dtypes import present_array, torch_of
from rnnlayout._model.errors import Ask
from rnnlayout._model.spec import CELLS, Spec
from rnnlayout._native import BATCH_FIRST, STEP, TIME_FIRST, DeviceArray, LayoutError, SpecError

INPUTS, OUTPUTS = ("x", "h_0", "c_0"), ("out", "h_out", "c_out")
_AXES = {STEP: "N", TIME_FIRST: "TN", BATCH_FIRST: "NT"}
_LEGACY = 1  # the legacy default stream, as DLPack numbers it
# package that defines a class of arrays: the module whose from_dlpack() makes arrays of the class
_MAKERS = {"torch": "torch", "cupy": "cupy", "jaxlib": "jax.dlpack", "jax": "jax.dlpack"}
_CPU, _PINNED = 1, 3  # DLPack's numbers for kinds of devices


def name_arrays(spec: Spec, x: Any, state: Any, out: Any, h_out: Any, c_out: Any) -> dict[str, Any]:
    """Return the arrays of a call by name. Arguments that are None are left out."""
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
        **{name: array for name, array in outs if array is not None},
    }


@dataclass(frozen=True)
class ArrayNeed:
    """The shape that an array of a call must have."""

    shape: tuple[int, ...]
    meaning: str  # of the shape


class CallShapes:
    """The shapes of the arrays of a call, computed from the shape of x.

    states, outputs: the required shapes by the name of the array. merges: whether the two
    directions of y are merged.
    """

    def __init__(self, spec: Spec, axes: int, x: tuple[int, ...], merges: bool = False) -> None:
        letters = _AXES[axes]
        self.x, self.batched = x, len(x) == len(letters) + 1
        if len(x) not in (len(letters) + 1, len(letters)) or x[-1] != spec.input_size:
            forms = [(*letters, str(spec.input_size))]
            forms.append(tuple(n for n in forms[0] if n != "N"))
            batched, single = (f"({', '.join(f)}{',' * (len(f) == 1)})" for f in forms)
            raise LayoutError(
                f"x: shape {x}, expected {batched} or, without a batch, {single}, with"
                f" I = {spec.input_size}"
            )
        sizes = dict(zip(letters if self.batched else letters.replace("N", ""), x, strict=False))
        self.T, self.N = sizes.get("T", 1), sizes.get("N", 1)
        self.batch_first = self.batched and axes == BATCH_FIRST
        D, H = spec.num_directions, spec.hidden_size
        P = spec.proj_size or H
        width = P if merges else D * P
        rows = (spec.num_layers * D, *((self.N,) if self.batched else ()))
        form = "(L * D, N, {})" if self.batched else "(L * D, {})"
        needs = [ArrayNeed((*rows, P), form.format("P" if spec.proj_size else "H"))]
        if CELLS[spec.cell].has_c:
            needs.append(ArrayNeed((*rows, H), form.format("H")))
        self.states = dict(zip(INPUTS[1:], needs, strict=False))
        self.outputs = dict(zip(OUTPUTS, [ArrayNeed((*x[:-1], width), ""), *needs], strict=False))


def refuse_unreadable(arrays: dict[str, Any]) -> None:
    """Raise LayoutError if an array requires gradients or is on a GPU, for an RNN on the CPU."""
    refuse_gradients(arrays)
    for name, array in arrays.items():
        if is_on_device(array):
            raise LayoutError(
                f"{name} is a {type_name(array)} on a GPU, but this RNN is on the CPU: pass ",
                Ask("device", "cuda"),
                " to rl.RNN, or copy the array to the host (in PyTorch"
                f" {name}.cpu(), in CuPy {name}.get())",
            )


def check_array_shape(label: str, shape: tuple[int, ...], need: ArrayNeed) -> None:
    """Raise LayoutError unless an array has the required shape."""
    if shape != need.shape:
        meaning = f" = {need.meaning}" if need.meaning else " for this x"
        raise LayoutError(f"{label}: shape {shape}, expected {need.shape}{meaning}")


def read_host_array(label: str, value: Any) -> np.ndarray:
    """Return an argument of a call that is needed in the host's memory, as an array."""
    if is_on_device(value):
        raise LayoutError(
            f"{label} is a {type_name(value)} on a GPU, but is needed on the host: pass"
            f" {label}.cpu() in PyTorch, {label}.get() in CuPy"
        )
    try:
        return np.asarray(value)
    except MemoryError:
        raise
    except Exception as error:  # of any class: the object's code may raise any error
        raise LayoutError(f"{label} is not an array: {type_name(value)} ({error})") from None


def read_lengths(lengths: Any) -> np.ndarray:
    """Return a copy of the lengths as int64, for the binding, which checks the range."""
    array = read_host_array("lengths", lengths)
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


def type_name(instance: Any) -> str:
    return type(instance).__name__


# ------------------------------------------------------------- arrays of any library, and streams


def is_on_device(array: Any) -> bool:
    """Return whether an array is in the memory of a device, not of the host."""
    if isinstance(array, np.ndarray) or getattr(array, "is_cpu", False) is True:
        return False  # is_cpu of torch: torch.compile() cannot trace __dlpack_device__()
    try:
        return array.__dlpack_device__()[0] not in (_CPU, _PINNED)
    except Exception:  # without DLPack, or with a device that DLPack lacks
        return hasattr(array, "__cuda_array_interface__")


def maker_of(x: Any) -> str | None:
    """Return the name of the module that makes arrays like x, None for NumPy and unknown arrays."""
    return _maker_of_class(type(x))  # type: ignore[arg-type]  # a class is hashable


@lru_cache(maxsize=64)  # a step looks up four arrays: 3 us of 30
def _maker_of_class(kind: type) -> str | None:
    packages = (c.__module__.partition(".")[0] for c in kind.__mro__)
    return next((_MAKERS[name] for name in packages if name in _MAKERS), None)


def library_like(x: Any) -> tuple[Callable[[tuple[int, ...]], Any] | None, int | None]:
    """Return a function that makes a new array of x's library, dtype and GPU from a shape, and the
    number of the stream in which the library works. The number is None if the stream is unknown, or
    if the binding looks up the stream."""
    maker = maker_of(x)
    if maker == "torch" and x.is_cuda:
        if hasattr(type(x), "__dlpack_c_exchange_api__"):  # ten times as fast in the binding
            return x.new_empty, None
        current = sys.modules["torch"].cuda.current_stream(x.device)
        return x.new_empty, current.cuda_stream or _LEGACY
    if maker == "cupy" and maker in sys.modules:
        with x.device:
            current = sys.modules["cupy"].cuda.get_current_stream()
        # a graph would not keep CuPy's memory
        empty = None if current.is_capturing() else partial(_new_cupy, x)
        return empty, current.ptr or _LEGACY
    return None, None


def _new_cupy(x: Any, shape: tuple[int, ...]) -> Any:
    with x.device:
        return sys.modules["cupy"].empty(shape, x.dtype)


def presenter_like(x: Any) -> Callable[[np.ndarray, str], Any]:
    """Return a function that presents an array of bits with a dtype to the caller who passed x on
    the host: as a torch tensor if x is a torch tensor, otherwise as a NumPy array, on the same
    memory."""
    return torch_of if maker_of(x) == "torch" else present_array


def results_like(x: Any, result: tuple[Any, Any], outputs: Iterable[Any]) -> tuple[Any, Any]:
    """Return a call's result, with new DeviceArrays as arrays of x's library, if the library is
    known. outputs: the arrays that the caller has passed, which are returned unchanged."""

    def like_x(array: Any) -> Any:
        if type(array) is not DeviceArray or any(array is output for output in outputs):
            return array
        module = sys.modules.get(maker_of(x) or "")
        return module.from_dlpack(array) if module else array

    y, state = result
    return like_x(y), tuple(map(like_x, state)) if isinstance(state, tuple) else like_x(state)


def may_need_gradients(*arrays: Any) -> bool:
    """Return whether torch would record a call of these arrays for a gradient."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.is_grad_enabled() and any(map(requires_gradient, arrays))


def requires_gradient(array: Any) -> bool:
    """Return whether an array is a tensor that requires grad."""
    return getattr(array, "requires_grad", False) is True


def refuse_gradients(arrays: dict[str, Any]) -> None:
    """Raise LayoutError if torch would record the call for a gradient."""
    for name, array in arrays.items():
        if may_need_gradients(array):
            raise LayoutError(
                f"{name} requires grad, but rl.RNN records no gradients: for training on the CPU"
                " use rnnlayout.torch.RNN, otherwise call the RNN in `with torch.no_grad():`, or"
                f" pass {name}.detach()"
            )


def stream_of(stream: Any) -> int:
    """Return the number of a stream. stream: the number, or an object with the number. Raises
    SpecError for anything else, and for 0."""
    try:
        if hasattr(stream, "__cuda_stream__"):
            version, number = stream.__cuda_stream__()
            if version != 0:
                raise SpecError(
                    f"stream: __cuda_stream__() has version {version}, only 0 is supported"
                )
            return _check_number(number) or _LEGACY
        for name in ("cuda_stream", "ptr"):
            if hasattr(stream, name):
                return _check_number(getattr(stream, name)) or _LEGACY
        number = _check_number(stream)
    except SpecError:
        raise
    except (TypeError, ValueError):
        raise SpecError(
            f"stream is {stream!r}, need the number of a stream, or an object with __cuda_stream__,"
            " cuda_stream or ptr"
        ) from None
    if not number:
        raise SpecError(
            "stream is 0, which is ambiguous: 1 is the legacy default stream, 2 the per-thread one"
        )
    return number


def _check_number(stream_number: Any) -> int:
    number = operator.index(stream_number)
    if isinstance(stream_number, bool) or not 0 <= number < 1 << 64:
        raise ValueError
    return number
