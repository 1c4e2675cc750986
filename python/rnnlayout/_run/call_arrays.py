"""The arrays of one call: what they need, on the host or on a GPU, and what each of them is: where
it is, of which library, whether it has gradients.
"""

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
# By the package that defines a class of arrays: the module whose from_dlpack() makes such arrays.
_MAKERS = {"torch": "torch", "cupy": "cupy", "jaxlib": "jax.dlpack", "jax": "jax.dlpack"}
_CPU, _PINNED = 1, 3  # kinds of devices, by DLPack's numbers


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
        parts = [ArrayNeed((*rows, P), form.format("P" if spec.proj_size else "H"))]
        if CELLS[spec.cell].has_c:
            parts.append(ArrayNeed((*rows, H), form.format("H")))
        self.states = dict(zip(INPUTS[1:], parts, strict=False))
        self.outputs = dict(zip(OUTPUTS, [ArrayNeed((*x[:-1], width), ""), *parts], strict=False))


def refuse_unreadable(named: dict[str, Any]) -> None:
    """Raise LayoutError if an array requires gradients or is on a GPU, for an RNN on the CPU."""
    refuse_gradients(named)
    for what, value in named.items():
        if is_on_device(value):
            raise LayoutError(
                f"{what} is a {type_name(value)} on a GPU, but this RNN is on the CPU: pass ",
                Ask("device", "cuda"),
                " to rl.RNN, or copy the array to the host (in PyTorch"
                f" {what}.cpu(), in CuPy {what}.get())",
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


# ------------------------------------------------------------- arrays of any library, and streams


def is_on_device(array: Any) -> bool:
    """Return whether an array is in the memory of some device, not in the host's."""
    if isinstance(array, np.ndarray) or getattr(array, "is_cpu", False) is True:
        return False  # is_cpu: torch's, whose __dlpack_device__() torch.compile() cannot trace
    try:
        return array.__dlpack_device__()[0] not in (_CPU, _PINNED)
    except Exception:  # it has no DLPack, or DLPack cannot represent it
        return hasattr(array, "__cuda_array_interface__")


def maker_of(x: Any) -> str | None:
    """Return the name of the module that makes arrays like x, None for NumPy and for others."""
    return _maker_of_class(type(x))  # type: ignore[arg-type]  # a class is hashable


@lru_cache(maxsize=64)  # a step asks for four arrays: 3 us of 30
def _maker_of_class(kind: type) -> str | None:
    packages = (c.__module__.partition(".")[0] for c in kind.__mro__)
    return next((_MAKERS[name] for name in packages if name in _MAKERS), None)


def library_like(x: Any) -> tuple[Callable[[tuple[int, ...]], Any] | None, int | None]:
    """Return a function that makes a new array of x's library, dtype and GPU from a shape, and the
    number of the stream in which the library works; None if that is not known, or if the binding
    asks for it."""
    maker = maker_of(x)
    if maker == "torch" and x.is_cuda:
        if hasattr(type(x), "__dlpack_c_exchange_api__"):  # which takes a tenth of the time
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
    """Return a function that makes of an array of bits, and a dtype, what a caller sees who passes
    x on the host. It becomes a torch tensor if x is one, otherwise a NumPy array, on the same
    memory."""
    return torch_of if maker_of(x) == "torch" else present_array


def results_like(x: Any, result: tuple[Any, Any], own: Iterable[Any]) -> tuple[Any, Any]:
    """Return a call's result with new DeviceArrays made into arrays like x, if x's kind is known.
    own: the outputs that the caller has passed, which are returned as they are."""

    def turned(array: Any) -> Any:
        if type(array) is not DeviceArray or any(array is out for out in own):
            return array
        module = sys.modules.get(maker_of(x) or "")
        return module.from_dlpack(array) if module else array

    y, state = result
    return turned(y), tuple(map(turned, state)) if isinstance(state, tuple) else turned(state)


def may_need_gradients(*arrays: Any) -> bool:
    """Return whether torch would record a call of these arrays for a gradient."""
    torch = sys.modules.get("torch")
    return (
        torch is not None
        and torch.is_grad_enabled()
        and any(getattr(array, "requires_grad", False) is True for array in arrays)
    )


def refuse_gradients(named: dict[str, Any]) -> None:
    """Raise LayoutError if torch would record the call for a gradient, which it cannot have."""
    for what, value in named.items():
        if may_need_gradients(value):
            raise LayoutError(
                f"{what} requires grad, but rnnlayout computes no gradients: call the RNN in"
                f" `with torch.no_grad():`, or pass {what}.detach()"
            )


def stream_of(stream: Any) -> int:
    """Return the number of a stream, which may be that number or an object that has it. Raises
    SpecError if it is neither, or 0."""
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


def _check_number(value: Any) -> int:
    number = operator.index(value)
    if isinstance(value, bool) or not 0 <= number < 1 << 64:
        raise ValueError
    return number
