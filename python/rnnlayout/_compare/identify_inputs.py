"""identify: the tensors that are given, and what x, y and the state may be."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rnnlayout._files.files import load
from rnnlayout._files.formats.npz import read_npy
from rnnlayout._files.formats.registry import TensorFormat, explain_wrong_suffix, format_to_read
from rnnlayout._files.tensor_sets.file_limits import InputFile, require_regular_file
from rnnlayout._model.asks import Ask
from rnnlayout._model.checked_rnn import checked_rnn_of
from rnnlayout._model.dtypes import as_carrier, take_bits, widen_bits
from rnnlayout._model.errors import FileError
from rnnlayout._native import LayoutError
from rnnlayout._sources.frameworks import framework_of
from rnnlayout._sources.mismatch import check_prefix, list_names
from rnnlayout._sources.read_tensors import flatten_dicts
from rnnlayout._sources.tensor_paths import strip_prefix
from rnnlayout._weights.weights import Weights

from .blocks import UNITS
from .sides import check_not_for_files

_MOST_TENSORS = 4096
_AXES = {3: ("TNI", "NTI"), 2: ("TI", "NI"), 1: ("I",)}  # of x, by its number of dimensions


@dataclass(frozen=True, eq=False)
class UnknownTensors:
    """The tensors of one RNN of unknown layout: their bits, in the order in which they were passed.

    names: the names without the prefix; None for a list. is_flat: whether there is only one vector,
    which may be all tensors of a layout one after another. prefix: what the names of these tensors
    begin with among all tensors that were passed. keys: their whole names there; None if they are
    in nested dicts.
    """

    names: tuple[str, ...] | None
    arrays: tuple[np.ndarray, ...]
    dtype: str
    is_flat: bool = False
    prefix: str = ""
    keys: tuple[str, ...] | None = None

    def values(self) -> list[np.ndarray]:
        """Return the numbers in float64, which represents those of every dtype."""
        return [widen_bits(array, self.dtype) for array in self.arrays]


def read_tensor_values(
    source: Any, prefix: str, format: str | None = None, mmap: bool = True
) -> tuple[Any, str]:
    """Return what a user passes as a dict by name, a list, or a 1-D array, and the prefix if it is
    still to be applied.
    """
    check_prefix(prefix)
    if isinstance(source, (str, os.PathLike)):
        source, prefix = _read_values_from_file(source, prefix, format, mmap)
    elif format is not None:
        check_not_for_files({"format": format}, source)
    if framework_of(source):
        raise LayoutError(
            f"a {type(source).__name__} describes its RNN itself: rl.Weights() reads it; pass its"
            " state_dict() or get_weights() to identify the tensors alone"
        )
    if isinstance(source, Weights):
        given = checked_rnn_of(source)
        one = source.layout.name == "cudnn"
        source = source.tensors if not one else source[given.names[0]]
    if isinstance(source, Mapping):
        found = flatten_dicts(source)
        under = strip_prefix(found, prefix)
        if not under:
            have = f" are under {prefix!r}: there are {list_names(list(found))}" if found else ""
            raise LayoutError(f"no tensors{have or ' in the dict'}")
        if len(under) > _MOST_TENSORS:
            why = f"more than {_MOST_TENSORS} tensors: pass "
            raise LayoutError(why + Ask("prefix") + " to choose an RNN")
        return found, prefix
    if prefix:
        why = f"prefix {prefix!r} chooses tensors by their names: omit "
        raise LayoutError(why + Ask("prefix", None))
    if isinstance(source, (list, tuple)):
        arrays = [array for one in source for array in (one if _is_list(one) else [one])]
        if not arrays:
            raise LayoutError("the list of tensors is empty")
        return arrays, ""
    if getattr(source, "ndim", None) != 1:
        raise LayoutError(
            f"tensors is a {type(source).__name__}, need a dict of arrays, a list of them, or one"
            " 1-D array"
        )
    return source, ""


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and hasattr(value[0], "shape")


def _read_values_from_file(path: Any, prefix: str, name: str | None, mmap: bool) -> tuple[Any, str]:
    """Return the tensors of a file, and the prefix if it is still to be applied. name: the format's
    name, None if the file's name shows it.
    """
    path = require_regular_file(path)
    if name == "npy" or (name is None and path.suffix.lower() == ".npy"):
        return read_npy(InputFile(path, mmap)).reshape(-1), prefix
    format = format_to_read(path, name)
    if isinstance(format, TensorFormat):
        with explain_wrong_suffix(path, format):
            tensor_set = format.read(InputFile(path, mmap))
            floats = {name: one for name, one in tensor_set.tensors.items() if one.dtype in UNITS}
            return {name: one.floats(name) for name, one in floats.items()}, prefix
    found = load(path, prefix=prefix, format=name, mmap=mmap)
    if len(found.names) != 1:
        several = f"{path} has several RNNs: pass " + Ask("prefix")
        raise FileError(several + f", one of {list_names(found.names)}")
    return found[found.names[0]], ""


def checked_tensors(values: Any, prefix: str = "", is_nested: bool = False) -> UnknownTensors:
    """Check arrays, those under a prefix.

    Raises LayoutError for one that is not of finite floats, or mixed dtypes.
    """
    rest = strip_prefix(values, prefix) if isinstance(values, dict) else {}
    named = {rest[key]: values[key] for key in rest}
    is_flat = not named and not isinstance(values, list)
    items = [(name, value) for name, value in named.items()] if named else [
        (f"array {k}", value) for k, value in enumerate([values] if is_flat else values)
    ]  # fmt: skip
    arrays: list[np.ndarray] = []
    dtypes: dict[str, str] = {}
    for name, value in items:
        array, dtype = take_bits(value, name)
        dtypes.setdefault(dtype, name)
        if not array.size:
            raise LayoutError(f"{name}: shape {array.shape} has no elements")
        check_finite(widen_bits(array, dtype), name)
        arrays.append(as_carrier(array))
    if len(dtypes) > 1:
        (a, first), (b, second) = list(dtypes.items())[:2]
        raise LayoutError(f"{first} is {a} but {second} is {b}: all tensors need one dtype")
    if len(arrays) == 1 and arrays[0].ndim == 1:
        return UnknownTensors(None, tuple(arrays), next(iter(dtypes)), True)
    names, keys = (tuple(names) if names else None for names in (named, rest))
    keys = None if is_nested else keys
    return UnknownTensors(names, tuple(arrays), next(iter(dtypes)), is_flat, prefix, keys)


def check_finite(values: np.ndarray, what: str) -> None:
    """Raise LayoutError if a value is NaN or infinite."""
    if bad := int(values.size - np.isfinite(values).sum()):
        raise LayoutError(
            f"{what}: {bad} of {values.size} values are NaN or infinite, which agree with nothing:"
            " pass finite ones"
        )


# --------------------------------------------------------------------------------- x, y and state


@dataclass(frozen=True, eq=False)
class Observed:
    """One way to read x and y.

    axes: the axes that the caller's x has: "TNI", "NTI", "TI", "NI" or "I"; x here is always (T, N,
    I). form: which outputs y has: "steps", all of them, (T, N, D P); "last", those of the last
    step, (N, D P); "states", h_n, (L D, N, P). settings: if x is reversed for an RNN of one
    direction that reads it from its end, the setting that Keras or ONNX has for that.
    """

    axes: str
    form: str
    x: np.ndarray
    y: np.ndarray
    settings: tuple[tuple[str, Any], ...] = ()

    @property
    def width(self) -> int:
        """The length of the last axis of y."""
        return int(self.y.shape[-1])

    def part(self, steps: int, rows: int) -> Observed:
        """Return the first steps and rows of the batch; all steps if y shows only the last."""
        steps = steps if self.form == "steps" else len(self.x)
        y = self.y[:rows] if self.form == "last" else self.y[:, :rows]
        return replace(self, x=self.x[:steps, :rows], y=y[:steps] if self.form == "steps" else y)

    def turned(self) -> Iterator[Observed]:
        """Yield it for one direction: as it is, and read from its end, as Keras and ONNX do."""
        yield self
        if len(self.x) > 1:
            back = self.x[::-1]
            yield replace(self, x=back, settings=(("go_backwards", True),))
            if self.form == "steps":
                turned = (("direction", "reverse"),)
                yield replace(self, x=back, y=self.y[::-1], settings=turned)


def read_numbers(value: Any, what: str) -> tuple[np.ndarray, str]:
    """Return finite numbers in float64, and their dtype, "" for integers."""
    if isinstance(value, (str, os.PathLike)):
        value = read_npy(InputFile(require_regular_file(value), mmap=False))
    if isinstance(value, (list, tuple, int)):
        try:
            value = np.asarray(value)
        except ValueError:
            raise LayoutError(f"{what} has arrays of several shapes: pass one array") from None
    if "int" in str(getattr(value, "dtype", "")):  # one-hot, of torch too
        value = np.asarray(value.cpu() if hasattr(value, "cpu") else value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "iub":
        array, dtype = value.astype("f8"), ""
    else:
        bits, dtype = take_bits(value, what)
        array = widen_bits(bits, dtype)
    if not array.size or not 1 <= array.ndim <= 3:
        raise LayoutError(f"{what}: shape {array.shape}, need 1 to 3 dimensions and elements")
    check_finite(array, what)
    return array, dtype


def read_x_and_y(x: np.ndarray, y: np.ndarray) -> list[Observed]:
    """Return every way to read x and y. Raise LayoutError if y cannot belong to x."""
    found = []
    for axes in _AXES[x.ndim]:
        steps_first = x
        if axes == "NTI":
            steps_first = x.swapaxes(0, 1)
        elif axes == "TI":
            steps_first = x[:, None]
        elif axes in ("NI", "I"):
            steps_first = x.reshape(1, -1, x.shape[-1])
        for form, arranged in _forms_of_y(axes, y, *steps_first.shape[:2]):
            found.append(Observed(axes, form, steps_first, arranged))
    if not found:
        raise LayoutError(
            f"y: shape {y.shape} does not belong to x of shape {x.shape}: need y for all steps,"
            " with the axes of x and another last one; of the last step, without T; or h_n"
        )
    return found


def _forms_of_y(axes: str, y: np.ndarray, T: int, N: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield what y may be if x has these axes: the form, and y with the axes that Observed
    needs.
    """
    whole = {"TNI": (T, N), "NTI": (N, T), "TI": (T,), "NI": (N,), "I": ()}[axes]
    last = tuple(n for n, axis in zip(whole, axes, strict=False) if axis == "N")
    if y.shape[:-1] == whole:
        steps = y.swapaxes(0, 1) if axes == "NTI" else y
        yield "steps", steps.reshape(T, N, -1)
    if y.shape[:-1] == last and last != whole:
        yield "last", y.reshape(N, -1)
    if T == 1 and y.shape[:-1] == whole:  # h_n is the same
        return
    if y.ndim == 3 and y.shape[1] == N:
        yield "states", y
    elif y.ndim == 2 and axes in ("TI", "I"):
        yield "states", y[:, None]
