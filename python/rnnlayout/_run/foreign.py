"""Arrays in a GPU's memory, read by DLPack or __cuda_array_interface__, and streams."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rnnlayout import _native
from rnnlayout._native import DeviceArray, LayoutError, SpecError

from .shapes import kind

LEGACY = 1  # the legacy default stream, as both protocols number it
_CPU, _CUDA, _PINNED, _MANAGED = 1, 2, 3, 13
_NOWHERE = (_CUDA, -1)  # an array without elements
_DEVICES = {7: "Vulkan", 8: "Metal", 10: "ROCm", 11: "ROCm", 14: "oneAPI", 15: "WebGPU"}
_DTYPES = {"f2": "float16", "f4": "float32", "f8": "float64"}


class Foreign(NamedTuple):
    """An array as its owner describes it; the binding takes it for the array itself."""

    what: str
    value: Any  # the caller's own object
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None  # in elements; None: compact
    dtype: str
    device: tuple[int, int]  # kind and number, as in DLPack
    read_only: bool
    stream: int | None  # in which its owner works with it; None: not known
    keeps: Any = None  # the object that keeps its memory alive

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * _native.itemsize(self.dtype)

    def overlaps(self, other: Foreign) -> bool:
        return bool(self.nbytes and other.nbytes) and (
            self.address < other.address + other.nbytes
            and other.address < self.address + self.nbytes
        )

    def check_place(self, device: int) -> None:
        """Raise LayoutError unless it is in the memory of this GPU."""
        if self.device not in ((_CUDA, device), _NOWHERE):
            raise LayoutError(f"{self.what} is {_place(self.device)}, this RNN is on cuda:{device}")

    def check(self, writes: bool) -> None:
        """Raise LayoutError unless it can be used in place. Check dtype and shape before."""
        if writes and self.read_only:
            raise LayoutError(f"{self.what} is read-only")
        if not self._is_compact():
            raise LayoutError(
                f"{self.what}: strides {self.strides} (in elements) with shape {self.shape}: it"
                " must be C-contiguous, use x.contiguous() in PyTorch, ascontiguousarray(x) in CuPy"
            )
        if self.address % _native.itemsize(self.dtype):
            raise LayoutError(f"{self.what}: its address is not aligned for {self.dtype}")
        if not self.address and self.nbytes:
            raise LayoutError(f"{self.what}: its address is 0, but it has elements")

    def _is_compact(self) -> bool:
        if self.strides is None or not self.nbytes:
            return True
        stride = 1
        for n, found in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if n > 1 and found != stride:
                return False
            stride *= n
        return True


def is_on_device(value: Any) -> bool:
    """Return whether an array is in the memory of some device, not in the host's."""
    if isinstance(value, np.ndarray):
        return False
    try:
        return value.__dlpack_device__()[0] not in (_CPU, _PINNED)
    except Exception:  # it has no DLPack, or DLPack cannot represent it
        return hasattr(value, "__cuda_array_interface__")


def look(value: Any, what: str) -> Callable[[int], Foreign] | Foreign:
    """Return the array, or a function that asks for it in a stream if the owner needs one."""
    if isinstance(value, DeviceArray):
        device = int(value.device.partition(":")[2])
        return Foreign(what, value, value.address, value.shape, None, value.dtype,
                       (_CUDA, device), False, value.stream)  # fmt: skip
    if not is_on_device(value):
        raise LayoutError(
            f"{what} is a {kind(value)} that is not on a GPU, but other arrays are: all arrays of a"
            " call must be in the same memory"
        )
    exchanged = _ask(what, value, lambda: _native.exchange(value))
    if exchanged:
        taken, stream = exchanged
        return _foreign(what, value, taken, (stream or LEGACY) if stream is not None else None)
    interface = _interface(value)
    if interface is not None and interface.get("stream") is not None:
        return _from_interface(what, value, interface)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return lambda stream: _from_dlpack(what, value, stream)
    if interface is not None:
        return _from_interface(what, value, interface)
    raise LayoutError(f"{what} is a {kind(value)}, which has neither __dlpack__ nor"
                      " __cuda_array_interface__")  # fmt: skip


def stream_of(stream: Any) -> int:
    """Return the number of a stream, which may be that number or an object that has it.

    Raises SpecError if it is neither, or 0.
    """
    try:
        if hasattr(stream, "__cuda_stream__"):
            version, number = stream.__cuda_stream__()
            if version != 0:
                raise SpecError(
                    f"stream: __cuda_stream__() has version {version}, only 0 is supported"
                )
            return _number(number) or LEGACY
        for name in ("cuda_stream", "ptr"):
            if hasattr(stream, name):
                return _number(getattr(stream, name)) or LEGACY
        number = _number(stream)
    except SpecError:
        raise
    except (TypeError, ValueError):
        raise SpecError(
            f"stream is {stream!r}, need the number of a stream, or an object with __cuda_stream__,"
            " cuda_stream or ptr"
        ) from None
    if not number:
        raise SpecError(f"stream is 0, {_AMBIGUOUS}")
    return number


_AMBIGUOUS = "which is ambiguous: 1 is the legacy default stream, 2 the per-thread one"


def _number(value: Any) -> int:
    number = operator.index(value)
    if isinstance(value, bool) or not 0 <= number < 1 << 64:
        raise ValueError
    return number


# -------------------------------------------------------------------------------------- protocols


def _place(device: tuple[int, int]) -> str:
    if device[0] == _CUDA:
        return f"on cuda:{device[1]}"
    if device[0] == _MANAGED:
        return "in managed memory, which is not supported"
    if device[0] in (_CPU, _PINNED):
        return "in the host's memory"
    return f"on {_DEVICES.get(device[0], f'a device of kind {device[0]}')} device {device[1]}"


def _ask(what: str, value: Any, ask: Callable[[], Any]) -> Any:
    """Return what an exporter returns, or raise LayoutError if it raises an error."""
    try:
        return ask()
    except (MemoryError, LayoutError):
        raise
    except Exception as error:
        raise LayoutError(f"{what}: {kind(value)} does not export its memory: {error}") from error


def _foreign(what: str, value: Any, taken: Any, stream: int | None) -> Foreign:
    keeps, address, shape, strides, dtype, kind_of_device, device, read_only = taken
    return Foreign(what, value, address, shape, strides, dtype, (kind_of_device, device),
                   read_only, stream, keeps)  # fmt: skip


def _from_dlpack(what: str, value: Any, stream: int) -> Foreign:
    device = _ask(what, value, value.__dlpack_device__)
    if device[0] != _CUDA:  # a CUDA stream means nothing to another kind of device
        return Foreign(what, value, 0, (), None, "", (int(device[0]), int(device[1])), False, None)

    def capsule() -> Any:
        try:
            return value.__dlpack__(stream=stream, max_version=(1, 1))
        except TypeError:  # from before DLPack 1.0
            return value.__dlpack__(stream=stream)

    given = _ask(what, value, capsule)
    try:
        taken = _native.take_dlpack(given)
    except LayoutError as error:
        raise LayoutError(f"{what}: {error}") from None
    return _foreign(what, value, taken, None)  # its owner has made our stream wait for its own


def _interface(value: Any) -> dict[str, Any] | None:
    try:
        interface = value.__cuda_array_interface__
    except Exception:  # none, or none for such an array, which may have DLPack's
        return None
    return interface if isinstance(interface, dict) else None


def _from_interface(what: str, value: Any, interface: dict[str, Any]) -> Foreign:
    try:
        shape = tuple(operator.index(n) for n in interface["shape"])
        address, read_only = operator.index(interface["data"][0]), bool(interface["data"][1])
        typestr = str(interface["typestr"])
        strides = interface.get("strides")
        nbytes = None if strides is None else tuple(operator.index(n) for n in strides)
        stream = interface.get("stream")
        number = None if stream is None else _number(stream)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise LayoutError(f"{what}: its __cuda_array_interface__ is invalid: {error!r}") from None
    if number == 0:
        raise LayoutError(f"{what}: its __cuda_array_interface__ gives stream 0, {_AMBIGUOUS}")
    if interface.get("mask") is not None:
        raise LayoutError(f"{what} has a mask, which would be lost: fill it first")
    if nbytes is not None and len(nbytes) != len(shape):
        raise LayoutError(f"{what}: {len(nbytes)} strides with shape {shape}")
    dtype = _DTYPES.get(typestr[1:], typestr)
    if dtype in _DTYPES.values() and not np.dtype(typestr).isnative:
        raise LayoutError(f"{what} is {typestr}, need native byte order, as GPUs compute in")
    elements = nbytes
    if nbytes is not None and dtype in _DTYPES.values():
        size = np.dtype(typestr).itemsize
        elements = tuple(n // size if n % size == 0 else -1 for n in nbytes)
    device = _device_of(what, address) if math.prod(shape) else _NOWHERE
    return Foreign(what, value, address, shape, elements, dtype, device, read_only, number)


def _device_of(what: str, address: int) -> tuple[int, int]:
    """Ask the driver, because the interface does not say."""
    try:
        device = _native.gpu_device_of(address)
    except SpecError as error:
        raise LayoutError(f"{what}: {error}") from None
    return (_CPU, 0) if device < 0 else (_CUDA, device)
