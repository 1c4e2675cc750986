"""The four element types, and arrays that carry the bits of elements."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnlayout._native import LayoutError, SpecError, bfloat16

FLOATS = ("float16", "bfloat16", "float32", "float64")
# Bits of the significand, and the smallest exponent that frexp gives for a normal number.
_PRECISION = {"float16": (11, -13), "bfloat16": (8, -125), "float32": (24, -125)}
_NATIVE = {np.dtype(name): name for name in FLOATS if name != "bfloat16"}


@dataclass(frozen=True)
class Bits:
    """An array that carries the bits of a dtype, which take_bits() accepts as an array.

    rounded: whether computing the values from the stored tensors rounded the values.
    """

    array: np.ndarray
    dtype: str
    rounded: bool = False


def dtype_name(dtype: Any) -> str:
    """Return the name of a dtype of NumPy, torch, MLX, Paddle or ml_dtypes: "float32", "bfloat16".
    Raises SpecError for a name that is not in FLOATS."""
    name = str(dtype).removeprefix("torch.").removeprefix("mlx.core.").removeprefix("paddle.")
    if name not in FLOATS and dtype is not None:  # None is float64 to NumPy
        try:
            name = np.dtype(dtype).name
        except (TypeError, ValueError, SyntaxError):  # NumPy raises all three
            name = repr(dtype)
    if name not in FLOATS:
        raise SpecError(f"dtype is {name}, need one of: {', '.join(FLOATS)}")
    return name


def storage_dtype(name: str) -> np.dtype:
    """Return the NumPy dtype that carries the bits: uint16 for bfloat16."""
    return np.dtype("uint16" if name == "bfloat16" else name)


def widen_bits(bits: np.ndarray, name: str) -> np.ndarray:
    """Return the values in float64 of an array that carries bits."""
    floats = (bits.astype("u4") << 16).view("f4") if name == "bfloat16" else bits
    return floats.astype("f8")


def round_values(values: np.ndarray, name: str) -> np.ndarray:
    """Round float64 values to the nearest of the dtype, ties to even. The result is float64."""
    if name == "float64":
        return values
    digits, least = _PRECISION[name]
    unit = np.ldexp(1.0, np.maximum(np.frexp(values)[1], least) - digits)
    return np.where(np.isfinite(values), np.rint(values / unit) * unit, values)


def narrow_values(values: np.ndarray, name: str) -> np.ndarray:
    """Round float64 values once; return an array that carries the bits."""
    if name != "bfloat16":
        return values.astype(name)
    exact = round_values(values, name).astype("f4")  # astype alone would round a first time
    return np.where(np.isnan(values), 0x7FC0, exact.view("u4") >> 16).astype("u2")


def present_array(array: np.ndarray, name: str) -> np.ndarray:
    """Return the array that a user sees, on the memory of an array that carries the bits."""
    return array.view(bfloat16()) if name == "bfloat16" else array


def take_bits(source: Any, label: str, needed: str = "") -> tuple[np.ndarray, str]:
    """Return the bits of an array-like, in native byte order, and the name of its dtype.

    label: the array's name in messages. needed: the dtypes that the message asks for if the dtype
    is not in FLOATS; the caller then compares the returned dtype with the needed dtypes. Raises
    LayoutError if the source is not an array of floating-point numbers.
    """
    if isinstance(source, getattr(sys.modules.get("torch"), "Tensor", ())):
        source = _torch_values(source, label)
    if isinstance(source, Bits):
        return source.array, source.dtype
    if isinstance(source, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ())):
        raise LayoutError(f"{label} is a masked array: fill it first with .filled(value)")
    try:
        array = np.asarray(source)
    except MemoryError:
        raise
    except Exception as error:
        if str(getattr(source, "dtype", "")) == "mlx.core.bfloat16":  # NumPy lacks bfloat16
            return np.asarray(source.view(sys.modules["mlx.core"].uint16)), "bfloat16"
        raise LayoutError(f"{label} is not an array: {type(source).__name__} ({error})") from None
    name = _NATIVE.get(array.dtype)
    if name:
        return array, name
    if array.dtype.name == "bfloat16":
        return array.view(np.uint16), "bfloat16"
    if str(getattr(source, "dtype", "")) == "paddle.bfloat16" and array.dtype == np.uint16:
        return array, "bfloat16"
    swapped = array.dtype.newbyteorder("=")
    if swapped in _NATIVE:
        return array.astype(swapped), _NATIVE[swapped]
    if needed:
        raise LayoutError(f"{label} is {array.dtype}, need {needed}")
    if array.dtype.names:
        raise LayoutError(
            f"{label}: a structured array with fields {', '.join(array.dtype.names[:5])}: pass a"
            " dict with one plain array per field"
        )
    if array.dtype.kind == "O":
        if not isinstance(source, (np.ndarray, list, tuple)):  # None, or jax.ShapeDtypeStruct
            repair = ": pass its .numpy()" if hasattr(source, "numpy") else ""  # tinygrad
            if hasattr(source, "unbox"):  # with names of axes
                repair = ": pass flax.linen.meta.unbox(params), the parameters without boxes"
            raise LayoutError(
                f"{label} is a {type(source).__name__}, need an array of numbers{repair}"
            )
        raise LayoutError(
            f"{label}: dtype object, an array of Python objects: the list is ragged, or contains"
            " several arrays; pass each array under its own name"
        )
    raise wrong_dtype(label, str(array.dtype))


def wrong_dtype(label: str, dtype: str) -> LayoutError:
    """Return the error for a tensor whose dtype is not in FLOATS."""
    text = f"{label}: dtype {dtype}, need one of {', '.join(FLOATS)}"
    if "int" in dtype or dtype == "bool":
        text += ": quantized weights must be dequantized with their scale first"
    elif dtype.startswith("complex"):
        text += ": no layout has complex weights"
    elif dtype.startswith(("float8", "float4", "F8", "F6", "F4")):  # names of torch, safetensors
        text += ": convert it first, and multiply it by its scale if it has one"
    return LayoutError(text)


def _torch_values(tensor: Any, label: str) -> np.ndarray | Bits:
    """Return the values of a torch tensor, or of a user's subclass, as a NumPy array or Bits."""
    torch = sys.modules["torch"]
    _check_has_values(tensor, label)
    if tensor.dtype.is_complex:  # NumPy refuses a conjugated tensor
        raise wrong_dtype(label, str(tensor.dtype).removeprefix("torch."))
    try:
        tensor = tensor.detach()
        if type(tensor) is not torch.Tensor:
            tensor = tensor.as_subclass(torch.Tensor)
        tensor = tensor.cpu().resolve_neg()
        if tensor.dtype == torch.bfloat16:
            return Bits(tensor.view(torch.int16).numpy().view(np.uint16), "bfloat16")
        array: np.ndarray = tensor.numpy()
        return array
    except TypeError:  # NumPy lacks the dtype: float8
        raise wrong_dtype(label, str(tensor.dtype).removeprefix("torch.")) from None
    except RuntimeError as error:  # a wrapper, as in torch.func.vmap
        raise LayoutError(
            f"{label} is a tensor that has no array of its own ({error}): pass a plain torch.Tensor"
        ) from None


def _check_has_values(tensor: Any, label: str) -> None:
    """Raise LayoutError for a torch tensor that does not store one dense array of numbers."""
    torch = sys.modules["torch"]
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        kinds = {c.__name__ for c in type(tensor).__mro__ if c.__module__.startswith("torch")}
        if "UninitializedTensorMixin" in kinds:
            raise LayoutError(
                f"{label} is uninitialized: call its lazy module once, which then knows its sizes"
            )
        if "FakeTensor" in kinds:
            raise LayoutError(
                f"{label} is a fake tensor: it has a shape but no values; pass the real one,"
                " outside FakeTensorMode and torch.compile"
            )
    if tensor.is_nested:
        raise LayoutError(
            f"{label} is a nested tensor, need a dense one: pass one of its .unbind()"
        )
    if tensor.is_meta:
        raise LayoutError(
            f"{label} is on the meta device: it has a shape but no values; load its weights first"
        )
    if tensor.is_quantized or tensor.layout != torch.strided:
        kind, method = str(tensor.layout).removeprefix("torch."), "to_dense"
        if tensor.is_quantized:
            kind, method = "quantized", "dequantize"
        raise LayoutError(
            f"{label} is a {kind} tensor, need a dense one of floats: pass its .{method}()"
        )


def torch_of(array: np.ndarray, name: str) -> Any:
    """Return a torch tensor that shares the memory of an array of bits, or a copy if read-only."""
    torch = sys.modules["torch"]
    if not array.flags.writeable:  # torch has no read-only tensors, and warns
        array = array.copy()
    if name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def as_carrier(array: np.ndarray) -> np.ndarray:
    """Return the array C-contiguous and aligned, copied only if needed, with the same shape."""
    flags = array.flags
    if flags.c_contiguous and flags.aligned:
        return array
    return np.array(array, order="C", copy=True)


def check_in_place(array: np.ndarray, output: Any, label: str) -> None:
    """Raise LayoutError if the array that take_bits() returned is a copy of an output."""
    memory = output if isinstance(output, np.ndarray) else take_bits(output, "out")[0]
    if array.size and not np.may_share_memory(array, memory):
        raise LayoutError(
            f"{label} cannot be written in place: pass a NumPy array in native byte order, or a"
            " torch tensor on the CPU"
        )
