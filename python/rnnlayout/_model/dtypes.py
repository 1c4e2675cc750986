"""The four element types, by whatever name they come."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnlayout._native import LayoutError, SpecError, bfloat16

FLOATS = ("float16", "bfloat16", "float32", "float64")
# Bits of the significand, and the least exponent that frexp gives for a normal number.
_PRECISION = {"float16": (11, -13), "bfloat16": (8, -125), "float32": (24, -125)}
_NATIVE = {np.dtype(name): name for name in FLOATS if name != "bfloat16"}


@dataclass(frozen=True)
class Bits:
    """An array that carries the bits of a dtype: what take() gives, and takes."""

    array: np.ndarray
    dtype: str


def dtype_name(dtype: Any) -> str:
    """ "float32" of "float32", np.float32, np.dtype("f4"), torch.float32, ml_dtypes.bfloat16 ..."""
    if isinstance(dtype, str) and dtype in FLOATS:
        return dtype
    name = str(dtype).removeprefix("torch.")
    if name not in FLOATS and dtype is not None:  # None is float64 to NumPy
        try:
            name = np.dtype(dtype).name
        except (TypeError, ValueError, SyntaxError):  # what NumPy makes of texts and objects
            name = repr(dtype)
    if name not in FLOATS:
        raise SpecError(f"dtype is {name}, need one of: {', '.join(FLOATS)}")
    return name


def storage(name: str) -> np.dtype:
    """The NumPy dtype that carries the bits: bfloat16 is carried as uint16."""
    return np.dtype("uint16" if name == "bfloat16" else name)


def widened(bits: np.ndarray, name: str) -> np.ndarray:
    """The values, in float64, of an array that carries the bits."""
    floats = (bits.astype("u4") << 16).view("f4") if name == "bfloat16" else bits
    return floats.astype("f8")


def rounded(values: np.ndarray, name: str) -> np.ndarray:
    """Values in float64, each the nearest that the dtype has, of two such the even one."""
    if name == "float64":
        return values
    digits, least = _PRECISION[name]
    unit = np.ldexp(1.0, np.maximum(np.frexp(values)[1], least) - digits)
    return np.where(np.isfinite(values), np.rint(values / unit) * unit, values)


def narrowed(values: np.ndarray, name: str) -> np.ndarray:
    """An array that carries the bits of values in float64, rounded once."""
    if name != "bfloat16":
        return values.astype(name)
    exact = rounded(values, name).astype("f4")  # which alone would be a first rounding
    return np.where(np.isnan(values), 0x7FC0, exact.view("u4") >> 16).astype("u2")


def present(array: np.ndarray, name: str) -> np.ndarray:
    """The array that a user sees, from one that carries the bits."""
    return array.view(bfloat16()) if name == "bfloat16" else array


def take(value: Any, what: str, needed: str = "") -> tuple[np.ndarray, str]:
    """The bits of an array-like and the name of its dtype; native byte order, any strides.

    what: its name in messages. needed: which dtypes, of an array that is no weight; it is for the
    caller to look whether it is one of them. LayoutError: no array of floating-point numbers.
    """
    if isinstance(value, Bits):
        return value.array, value.dtype
    if _is_torch(value):
        return _take_torch(value, what, needed)
    if isinstance(value, np.ma.MaskedArray):
        raise LayoutError(f"{what} is a masked array: fill it first, its mask would be lost")
    try:
        array = np.asarray(value)
    except MemoryError:
        raise
    except Exception as error:
        raise LayoutError(f"{what} is no array: {type(value).__name__} ({error})") from None
    name = _NATIVE.get(array.dtype)
    if name:
        return array, name
    if array.dtype.name == "bfloat16":
        return array.view(np.uint16), "bfloat16"
    swapped = array.dtype.newbyteorder("=")
    if swapped in _NATIVE:
        return array.astype(swapped), _NATIVE[swapped]
    if needed:
        raise LayoutError(f"{what} is {array.dtype}, need {needed}")
    raise LayoutError(f"{what}: {_why_not(array.dtype)}")


def _why_not(dtype: np.dtype) -> str:
    if dtype.names:
        return (
            f"a structured array with fields {', '.join(dtype.names[:5])}: pass its fields one by"
            " one, as a dict of plain arrays"
        )
    if dtype.kind == "O":
        return (
            "dtype object, an array of Python objects: a ragged list, or several arrays in one;"
            " pass each array under its own name"
        )
    if dtype.kind in "iub":
        return (
            f"dtype {dtype.name}, need one of {', '.join(FLOATS)}: quantized weights must be"
            " dequantized with their scale first"
        )
    return f"dtype {dtype}, need one of {', '.join(FLOATS)}"


def _is_torch(value: Any) -> bool:
    return type(value).__module__.split(".")[0] == "torch" and hasattr(value, "detach")


def _take_torch(tensor: Any, what: str, needed: str) -> tuple[np.ndarray, str]:
    torch = sys.modules["torch"]
    tensor = tensor.detach()
    if tensor.is_meta:
        raise LayoutError(f"{what} is on the meta device: it has a shape but no values")
    if tensor.is_quantized or tensor.layout != torch.strided:
        kind = "quantized" if tensor.is_quantized else str(tensor.layout).removeprefix("torch.")
        raise LayoutError(f"{what} is a {kind} tensor: make it a dense one of floats first")
    tensor = tensor.cpu().resolve_neg()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(np.uint16), "bfloat16"
    return take(tensor.numpy(), what, needed)


def torch_of(array: np.ndarray, name: str) -> Any:
    """A torch tensor over the bits of an array."""
    torch = sys.modules["torch"]
    if not array.flags.writeable:  # which torch does not know, and warns of
        array = array.copy()
    if name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def as_carrier(array: np.ndarray) -> np.ndarray:
    """C-contiguous and aligned, a copy only where needed; the shape stays."""
    flags = array.flags
    if flags.c_contiguous and flags.aligned:
        return array
    return np.array(array, order="C", copy=True)


def check_in_place(array: np.ndarray, value: Any, what: str) -> None:
    """Refuse an output whose array, as take() gave it, is a copy of the caller's value."""
    memory = value if isinstance(value, np.ndarray) else take(value, "out")[0]
    if array.size and not np.may_share_memory(array, memory):
        raise LayoutError(
            f"{what} cannot be written in place: pass a NumPy array of native byte order, or a"
            " torch tensor on the CPU"
        )
