"""What an array of the caller is: where it is, of which library, whether it has gradients."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from rnnlayout._model.dtypes import present_array, torch_of
from rnnlayout._native import DeviceArray, LayoutError

LEGACY = 1  # the legacy default stream, as DLPack numbers it
# By the package that defines a class of arrays: the module whose from_dlpack() makes such arrays.
_MAKERS = {"torch": "torch", "cupy": "cupy", "jaxlib": "jax.dlpack", "jax": "jax.dlpack"}
_CPU, _PINNED = 1, 3  # kinds of devices, by DLPack's numbers


def is_on_device(array: Any) -> bool:
    """Return whether an array is in the memory of some device, not in the host's."""
    if isinstance(array, np.ndarray) or getattr(array, "is_cpu", False) is True:
        return False  # is_cpu: torch's, whose __dlpack_device__() torch.compile() cannot trace
    try:
        return array.__dlpack_device__()[0] not in (_CPU, _PINNED)
    except Exception:  # it has no DLPack, or DLPack cannot represent it
        return hasattr(array, "__cuda_array_interface__")


def _maker_of(x: Any) -> str | None:
    """Return the name of the module that makes arrays like x, None for NumPy and for others."""
    packages = (c.__module__.partition(".")[0] for c in type(x).__mro__)
    return next((_MAKERS[name] for name in packages if name in _MAKERS), None)


def is_immutable(array: Any) -> bool:
    """Return whether its library promises that an array never changes."""
    return _maker_of(array) == "jax.dlpack"


def library_like(x: Any) -> tuple[Callable[[tuple[int, ...]], Any] | None, int | None]:
    """Return a function that makes a new array of x's library, dtype and GPU from a shape, and the
    number of the stream in which the library works; None if that is not known, or if the binding
    asks for it.
    """
    maker = _maker_of(x)
    if maker == "torch" and x.is_cuda:
        if hasattr(type(x), "__dlpack_c_exchange_api__"):  # which takes a tenth of the time
            return x.new_empty, None
        current = sys.modules["torch"].cuda.current_stream(x.device)
        return x.new_empty, current.cuda_stream or LEGACY
    if maker == "cupy" and maker in sys.modules:
        with x.device:
            current = sys.modules["cupy"].cuda.get_current_stream()
        # a graph would not keep CuPy's memory
        empty = None if current.is_capturing() else partial(_new_cupy, x)
        return empty, current.ptr or LEGACY
    return None, None


def _new_cupy(x: Any, shape: tuple[int, ...]) -> Any:
    with x.device:
        return sys.modules["cupy"].empty(shape, x.dtype)


def presenter_like(x: Any) -> Callable[[np.ndarray, str], Any]:
    """Return a function that makes of an array of bits, and a dtype, what a caller sees who passes
    x on the host.

    It becomes a torch tensor if x is one, otherwise a NumPy array, on the same memory.
    """
    return torch_of if _maker_of(x) == "torch" else present_array


def results_like(x: Any, result: tuple[Any, Any], own: Iterable[Any]) -> tuple[Any, Any]:
    """Return a call's result with new DeviceArrays made into arrays like x, if x's kind is known.

    own: the outputs that the caller has passed, which are returned as they are.
    """

    def turned(array: Any) -> Any:
        if type(array) is not DeviceArray or any(array is out for out in own):
            return array
        module = sys.modules.get(_maker_of(x) or "")
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
