"""identify: read the tensors, and the possible meanings of x, y and the state."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rnnlayout._files.files import load
from rnnlayout._files.formats.npz import read_npy
from rnnlayout._files.formats.registry import (
    TensorFormat,
    explain_wrong_suffix,
    file_to_read,
    format_to_read,
    read_tensor_set,
)
from rnnlayout._files.tensor_sets.file_limits import InputFile, require_regular_file
from rnnlayout._model.dtypes import as_carrier, take_bits, widen_bits
from rnnlayout._model.errors import Ask, FileError
from rnnlayout._model.layout import Layout, known_layouts
from rnnlayout._model.spec import CELLS, Spec
from rnnlayout._model.weights import Weights
from rnnlayout._native import LayoutError
from rnnlayout._run.settings import MERGES
from rnnlayout._sources.frameworks import framework_of
from rnnlayout._sources.mismatch import check_prefix, list_names
from rnnlayout._sources.read_tensors import flatten_dicts
from rnnlayout._sources.tensor_paths import prefixes_that_fit, strip_prefix

from .blocks import UNITS
from .sides import check_not_for_files

_MOST_TENSORS = 4096
_AXES = {3: ("TNI", "NTI"), 2: ("TI", "NI"), 1: ("I",)}  # of x, by the number of dimensions


@dataclass(frozen=True, eq=False)
class UnknownTensors:
    """The tensors of an RNN of unknown layout, as bits, in the order of the source.

    names: the names without the prefix; None for a list and for a vector. prefix: the beginning
    that all names of the RNN share in the source. keys: the full names in the source; None for
    nested dicts.
    """

    arrays: tuple[np.ndarray, ...]
    dtype: str
    names: tuple[str, ...] | None = None
    prefix: str = ""
    keys: tuple[str, ...] | None = None

    @property
    def is_flat(self) -> bool:
        """Whether this is a single vector, which may hold all tensors of a layout in sequence."""
        return len(self.arrays) == 1 and self.arrays[0].ndim == 1


def tensors_to_try(
    source: Any, prefix: str, format: str | None, mmap: bool
) -> Iterator[UnknownTensors]:
    """Yield the tensors under each prefix that fits, then all tensors.

    Raises LayoutError for an array that is not of finite floats, or mixed dtypes.
    """
    check_prefix(prefix)
    has_keys = isinstance(source, Mapping) and not any(
        isinstance(value, Mapping) for value in source.values()
    )
    if isinstance(source, (str, os.PathLike)):
        source, prefix = _read_file(source, prefix, format, mmap)
    elif format is not None:
        check_not_for_files({"format": format}, source)
    if framework_of(source):
        raise LayoutError(
            f"a {type(source).__name__} describes its RNN itself: rl.Weights() reads it; pass its"
            " state_dict() or get_weights() to identify the tensors alone"
        )
    if isinstance(source, Weights):
        is_cudnn = source.layout.name == "cudnn"
        source = source[source.names[0]] if is_cudnn else source.tensors
    if not isinstance(source, Mapping):
        yield _check_tensors(_list_arrays(source, prefix))
        return
    tensors = flatten_dicts(source)
    keys = {rest: key for key, rest in strip_prefix(tensors, prefix).items()}
    if not keys:
        have = f" are under {prefix!r}: there are {list_names(list(tensors))}" if tensors else ""
        raise LayoutError(f"no tensors{have or ' in the dict'}")
    if len(keys) > _MOST_TENSORS:
        why = f"more than {_MOST_TENSORS} tensors: pass "
        raise LayoutError(why, Ask("prefix"), " to choose an RNN")
    inner = prefixes_that_fit([Layout(name) for name in known_layouts()], list(keys))
    for part in [*inner, ""]:
        under = {rest: keys[name] for name, rest in strip_prefix(keys, part).items()}
        rest, key = next(iter(under.items()))
        try:
            yield _check_tensors(
                {rest: tensors[key] for rest, key in under.items()},
                key.removesuffix(rest).rstrip("./"),
                tuple(under.values()) if has_keys else None,
            )
        except LayoutError:
            if part or not inner:
                raise


def _list_arrays(source: Any, prefix: str) -> Sequence[Any]:
    """Return the arrays of a list; a single vector becomes a list."""
    if prefix:
        why = f"prefix {prefix!r} chooses tensors by their names: omit "
        raise LayoutError(why, Ask("prefix", None))
    if isinstance(source, (list, tuple)):
        arrays: list[Any] = []
        for entry in source:
            is_list = isinstance(entry, (list, tuple)) and entry and hasattr(entry[0], "shape")
            arrays += entry if is_list else [entry]
        if not arrays:
            raise LayoutError("the list of tensors is empty")
        return arrays
    if getattr(source, "ndim", None) != 1:
        raise LayoutError(
            f"tensors is a {type(source).__name__}, need a dict of arrays, a list of them, or one"
            " 1-D array"
        )
    return [source]


def _read_file(path: Any, prefix: str, name: str | None, mmap: bool) -> tuple[Any, str]:
    """Return the tensors of a file, and the prefix that the caller still has to apply. name: the
    format's name; None to use the suffix of the file.
    """
    path = file_to_read(path)
    if name == "npy" or (name is None and path.suffix.lower() == ".npy"):
        return read_npy(InputFile(path, mmap)).reshape(-1), prefix
    format = format_to_read(path, name)
    if isinstance(format, TensorFormat):
        with explain_wrong_suffix(path, format):
            tensors = read_tensor_set(format, InputFile(path, mmap)).tensors
            return {
                key: tensor.floats(key) for key, tensor in tensors.items() if tensor.dtype in UNITS
            }, prefix
    rnns = load(path, prefix=prefix, format=name, mmap=mmap)
    if len(rnns.names) != 1:
        several = f"{path} has several RNNs: pass "
        raise FileError(several, Ask("prefix"), f", one of {list_names(rnns.names)}")
    return rnns[rnns.names[0]], ""


def _check_tensors(
    tensors: Mapping[str, Any] | Sequence[Any],
    prefix: str = "",
    keys: tuple[str, ...] | None = None,
) -> UnknownTensors:
    names = tuple(tensors) if isinstance(tensors, Mapping) else None
    values = tensors.values() if isinstance(tensors, Mapping) else tensors
    arrays: list[np.ndarray] = []
    dtypes: dict[str, str] = {}
    for k, value in enumerate(values):
        name = names[k] if names else f"array {k}"
        array, dtype = take_bits(value, name)
        dtypes.setdefault(dtype, name)
        if not array.size:
            raise LayoutError(f"{name}: shape {array.shape} has no elements")
        _check_finite(widen_bits(array, dtype), name)
        arrays.append(as_carrier(array))
    if len(dtypes) > 1:
        (a, first), (b, second) = list(dtypes.items())[:2]
        raise LayoutError(f"{first} is {a} but {second} is {b}: all tensors need one dtype")
    unknown = UnknownTensors(tuple(arrays), next(iter(dtypes)), names, prefix, keys)
    return UnknownTensors(unknown.arrays, unknown.dtype) if unknown.is_flat else unknown


def _check_finite(values: np.ndarray, label: str) -> None:
    if bad := int(values.size - np.isfinite(values).sum()):
        raise LayoutError(
            f"{label}: {bad} of {values.size} values are NaN or infinite, which agree with nothing:"
            " pass finite ones"
        )


# --------------------------------------------------------------------------------- x, y and state


@dataclass(frozen=True, eq=False)
class Observed:
    """A way to read x and y.

    axes: the axes of the caller's x: "TNI", "NTI", "TI", "NI" or "I"; the field x is always (T, N,
    I). form: the outputs in y: "steps", all steps, (T, N, D P); "last", the last step, (N, D P);
    "states", h_n, (L D, N, P). settings: if x is reversed for an RNN of a single direction that
    reads x from the end, the setting of Keras or ONNX for reversed reading.
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

    @property
    def batch_first(self) -> bool | None:
        """Whether x is (N, T, I); None without a batch."""
        return self.axes == "NTI" if len(self.axes) == 3 else None

    def part(self, steps: int, rows: int) -> Observed:
        """Return the first steps and rows of the batch; all steps if y shows only the last."""
        if self.form == "steps":
            return replace(self, x=self.x[:steps, :rows], y=self.y[:steps, :rows])
        y = self.y[:rows] if self.form == "last" else self.y[:, :rows]
        return replace(self, x=self.x[:, :rows], y=y)

    def turned(self) -> Iterator[Observed]:
        """Yield the readings for a single direction: forward, and backward as in Keras and ONNX."""
        yield self
        if len(self.x) > 1:
            back = self.x[::-1]
            yield replace(self, x=back, settings=(("go_backwards", True),))
            if self.form == "steps":
                turned = (("direction", "reverse"),)
                yield replace(self, x=back, y=self.y[::-1], settings=turned)

    def joins(self, spec: Spec) -> list[str]:
        """Return how the two directions of this RNN may be joined in y.

        "" stands for one direction. The list is empty if x or y does not have this RNN's shape.
        """
        P = spec.proj_size or spec.hidden_size
        if self.x.shape[-1] != spec.input_size:
            return []
        if self.form == "states":
            rows = spec.num_layers * spec.num_directions
            return [""] if self.width == P and len(self.y) == rows else []
        if not spec.bidirectional:
            return [""] if self.width == P else []
        concat = ["concat", "swapped"]
        joins = concat if self.width == 2 * P else [*MERGES] if self.width == P else []
        return joins + [f"{join} at T - 1" for join in joins if self.form == "last"]

    def predict(self, y: np.ndarray, h_n: np.ndarray, join: str) -> np.ndarray:
        """Return the y that follows from the outputs y and h_n of a network."""
        if self.form == "states":
            return h_n
        if self.form == "last":  # the last state of each direction, or the output of step T - 1
            y = y[-1] if join.endswith("T - 1") else np.concatenate([*h_n[-1 - bool(join) :]], -1)
        join = join.partition(" ")[0]
        if join in ("", "concat"):
            return y
        first, second = np.split(y, 2, -1)
        return (
            np.concatenate([second, first], -1)
            if join == "swapped"
            else MERGES[join](first, second)
        )


def read_numbers(value: Any, label: str) -> tuple[np.ndarray, str]:
    """Return finite numbers in float64, and the original dtype, "" for integers."""
    if isinstance(value, (str, os.PathLike)):
        value = read_npy(InputFile(require_regular_file(value), mmap=False))
    if isinstance(value, (list, tuple, int)):
        try:
            value = np.asarray(value)
        except ValueError:
            raise LayoutError(f"{label} has arrays of several shapes: pass one array") from None
    if "int" in str(getattr(value, "dtype", "")):  # one-hot, of torch too
        value = np.asarray(value.cpu() if hasattr(value, "cpu") else value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "iub":
        array, dtype = value.astype("f8"), ""
    else:
        bits, dtype = take_bits(value, label)
        array = widen_bits(bits, dtype)
    if not array.size or not 1 <= array.ndim <= 3:
        raise LayoutError(f"{label}: shape {array.shape}, need 1 to 3 dimensions and elements")
    _check_finite(array, label)
    return array, dtype


def read_x_and_y(x: np.ndarray, y: np.ndarray) -> list[Observed]:
    """Return every way to read x and y. Raise LayoutError if y cannot belong to x."""
    readings = []
    for axes in _AXES[x.ndim]:
        steps_first = _arrange(x, axes, "TNI")
        T, N, _ = steps_first.shape
        all_steps = y.shape[:-1] == x.shape[:-1]
        if all_steps:
            readings.append(Observed(axes, "steps", steps_first, _arrange(y, axes, "TNI")))
        last = tuple(n for n, axis in zip(x.shape, axes, strict=True) if axis == "N")
        if "T" in axes and y.shape[:-1] == last:
            arranged = _arrange(y, axes.replace("T", ""), "NI")
            readings.append(Observed(axes, "last", steps_first, arranged))
        has_rows = y.ndim == 3 and y.shape[1] == N
        if (has_rows or (y.ndim == 2 and "N" not in axes)) and not (T == 1 and all_steps):
            readings.append(Observed(axes, "states", steps_first, y.reshape(len(y), N, -1)))
    if not readings:
        raise LayoutError(
            f"y: shape {y.shape} does not belong to x of shape {x.shape}: need y for all steps,"
            " with the axes of x and another last one; of the last step, without T; or h_n"
        )
    return readings


def _arrange(array: np.ndarray, axes: str, wanted: str) -> np.ndarray:
    """Return an array with the wanted axes; axes that the array lacks have length 1."""
    transposed = array.transpose([axes.index(axis) for axis in wanted if axis in axes])
    return np.expand_dims(transposed, [k for k, axis in enumerate(wanted) if axis not in axes])


def read_states(state: Any) -> list[np.ndarray]:
    """Return the parts of an initial state: h_0, h_0 and c_0, or none."""
    if state is None:
        return []
    is_pair = isinstance(state, (tuple, list)) and len(state) == 2
    parts = zip(("h_0", "c_0"), state if is_pair else [state], strict=False)
    return [read_numbers(part, name)[0] for name, part in parts]


def initial_state(spec: Spec, state: Sequence[np.ndarray], N: int, used: int) -> Any:
    """Return the state of the first rows of the batch, as the forward pass needs it; None if the
    shapes are not of this RNN. used: the number of rows."""
    sizes = [spec.proj_size or spec.hidden_size, spec.hidden_size][: 1 + CELLS[spec.cell].has_c]
    shapes = [(spec.num_layers * spec.num_directions, N, size) for size in sizes]
    sizes_of_state = [(part.size, part.shape[-1]) for part in state]
    if sizes_of_state != [(math.prod(shape), shape[-1]) for shape in shapes]:
        return None
    parts = zip(state, shapes, strict=True)
    reshaped = [np.ascontiguousarray(part.reshape(shape)[:, :used]) for part, shape in parts]
    return tuple(reshaped) if len(reshaped) > 1 else reshaped[0]
