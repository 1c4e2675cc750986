"""Conversions: pack, unpack, convert, check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from rnnlayout import _mismatch, _native
from rnnlayout._dtypes import dtype_name, present, storage, take
from rnnlayout._layouts import CUDNN, Layout, as_layout
from rnnlayout._native import LayoutError, LossyError
from rnnlayout._recipes import Recipe, find, key_of, remember
from rnnlayout._sources import Read, read
from rnnlayout._spec import Spec, flag


@dataclass(frozen=True)
class Report:
    """What a conversion does to these values.

    grade: "exact" (every bit is moved; a changed sign counts as moved), "rounds" (a sum of two
        non-zero biases, or a dtype that cannot hold every value), or "unrepresentable".
    rounded_sums: how many elements are the sum of two non-zero biases.
    reason: why it rounds or cannot be done; "" when exact.
    """

    grade: str
    rounded_sums: int = 0
    reason: str = ""


EXACT = Report("exact")
FLAT = [name for name, _ in _native.tensors(CUDNN, Spec("rnn_tanh", 1, 1))]


class Tensors(dict[str, np.ndarray]):
    """A dict of arrays by name, in the framework's order; `report` says how they were made, `spec`
    what RNN they are of."""

    report: Report
    spec: Spec


@lru_cache(maxsize=128)
def plan_for(spec: Spec, src: Layout, has: int, dst: Layout) -> _native.Plan:
    """The plan of a conversion, kept: in a loop it is made once."""
    return _native.Plan(spec, src, has, dst)


def plan_of(source: Read, dst: Layout, dtype: Any) -> tuple[_native.Plan, str]:
    """The plan for what was read, and the dtype of its result."""
    name = dtype_name(dtype) if dtype is not None else source.dtype
    spec = source.spec if name == source.dtype else source.spec.replace(dtype=name)
    return plan_for(spec, source.layout, source.has, dst), name


def run(
    source: Read, dst: Layout, dtype: Any = None, exact: bool = False, out: Any = None
) -> tuple[list[str], list[np.ndarray], str, Report]:
    """Convert what was read. Returns names, arrays that carry the bits, their dtype, report."""
    plan, name = plan_of(source, dst, dtype)
    targets = plan.targets
    if out is None:
        arrays = [np.empty(shape, storage(name)) for _, shape in targets]
    else:
        arrays = _given(out, targets, name, dst)
    report = _run(plan, source.arrays, arrays, source.dtype, name, exact, out is None)
    return [n for n, _ in targets], arrays, name, report


def run_into(
    source: Read, dst: Layout, dtype: str, exact: bool, targets: list[np.ndarray]
) -> Report:
    """run() into arrays that carry the bits, which hold nothing of use where it fails."""
    plan, name = plan_of(source, dst, dtype)
    return _run(plan, source.arrays, targets, source.dtype, name, exact, True)


def _run(
    plan: _native.Plan,
    sources: list[np.ndarray],
    targets: list[np.ndarray] | None,
    src_dtype: str,
    dst_dtype: str,
    exact: bool,
    new: bool,
) -> Report:
    exact = flag("exact", exact)
    grade, sums = plan.run(sources, targets, src_dtype, dst_dtype, exact, new)
    if grade == "exact":
        return EXACT
    return Report(grade, sums, reason(sums, src_dtype, dst_dtype))


def _run_known(recipe: Recipe, source: Any, exact: bool, out: Any) -> Any:
    """The result of a call like an earlier one; None if its arrays are not as plain."""
    targets = recipe.outputs(out)
    if targets is None:
        return None
    try:
        report = _run(
            recipe.plan,
            recipe.sources(source),
            targets,
            recipe.src_dtype,
            recipe.spec.dtype,
            exact,
            out is None,
        )
    except TypeError:  # strided, unaligned, read-only: said or mended on the long way
        return None
    if out is not None:
        return out
    return _result(recipe.spec, [n for n, _ in recipe.targets], targets, report)


def _result(spec: Spec, names: list[str], arrays: list[np.ndarray], report: Report) -> Any:
    """What a user sees: the flat array, or the tensors by name."""
    if names == FLAT:
        return present(arrays[0], spec.dtype)
    result = Tensors(zip(names, (present(a, spec.dtype) for a in arrays), strict=True))
    result.report = report
    result.spec = spec
    return result


def reason(sums: int, src: str, dst: str) -> str:
    """Why a conversion rounds."""
    reasons = [f"{sums} sums of two non-zero biases"] if sums else []
    if src != dst:
        reasons.append(f"{src} to {dst}")
    return " and ".join(reasons)


def _given(
    out: Any, targets: list[tuple[str, tuple[int, ...]]], dtype: str, dst: Layout
) -> list[np.ndarray]:
    """The caller's own arrays, checked."""
    if dst.name == "cudnn":
        given = {targets[0][0]: out}
    elif isinstance(out, Mapping):
        given = dict(out)
        if given.keys() != {name for name, _ in targets}:
            raise _mismatch.wrong_names([dst], list(given), [name for name, _ in targets])
    else:
        raise LayoutError(f"out is a {type(out).__name__}, need a dict of arrays for {dst}")
    return [_writable(given[name], name, shape, dtype) for name, shape in targets]


def _writable(value: Any, name: str, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    what = f"out[{name!r}]"
    array, found = take(value, what)
    if found != dtype:
        raise LayoutError(f"{what} is {found}, the result is {dtype}")
    if array.shape != shape:
        raise LayoutError(f"{what}: shape {array.shape}, expected {shape}")
    check_in_place(array, value, what)
    flags = array.flags
    if not (flags.writeable and flags.c_contiguous and flags.aligned):
        wrong = "read-only" if not flags.writeable else "not C-contiguous and aligned"
        raise LayoutError(f"{what} is {wrong}: need a writable, C-contiguous, aligned array")
    return array


def check_in_place(array: np.ndarray, value: Any, what: str) -> None:
    """Refuse an output whose array, as take() gave it, is a copy of the caller's value."""
    memory = value if isinstance(value, np.ndarray) else take(value, "out")[0]
    if array.size and not np.may_share_memory(array, memory):
        raise LayoutError(
            f"{what} cannot be written in place: pass a NumPy array of native byte order, or a"
            " torch tensor on the CPU"
        )


def convert(
    source: Any,
    spec: Spec | None = None,
    *,
    src: str | Layout | None = None,
    dst: str | Layout,
    prefix: str = "",
    dtype: Any = None,
    exact: bool = False,
    out: Any = None,
) -> Any:
    """Rewrite the weights of one RNN from layout `src` to layout `dst`.

    source: a dict of arrays (a state_dict() with prefix=), a list in the framework's order
        (get_weights(); for several layers concatenated, or a list of lists), a torch module or
        cell, a Keras layer or a list of them, a Weights, or cuDNN's flat weight space with a spec.
    spec, src: inferred where they can be; the error asks for what cannot.
    prefix: take only the keys that begin so, "encoder.rnn"; the dot after it may be left out.
    dtype: of the result; by default that of the source. A narrower one rounds once, to nearest
        even.
    exact: refuse what would round.
    out: the array ("cudnn") or dict of arrays to fill, in memory of its own.

    Returns a 1-D array for "cudnn", else a dict of arrays (Tensors, with .report), all new.
    LayoutError: names, shapes or dtypes do not fit. LossyError: the target has no place for a
    value, or would round and `exact` is set. SpecError: the RNN is not known or contradicts
    itself. Nothing is written then.

        >>> import numpy as np
        >>> cell = {"weight_ih": np.ones((6, 4), "f4"), "weight_hh": np.ones((6, 2), "f4")}
        >>> {name: w.shape for name, w in convert(cell, dst="keras").items()}
        {'kernel': (4, 6), 'recurrent_kernel': (2, 6)}
    """
    key = key_of(source, spec, src, dst, prefix, dtype)
    recipe = find(key)
    if recipe is not None and (known := _run_known(recipe, source, exact, out)) is not None:
        return known
    target = as_layout(dst)
    given = read(source, spec, src, prefix, dtype_free=dtype is not None)
    names, arrays, name, report = run(given, target, dtype, exact, out)
    made = given.spec.replace(dtype=name)
    if recipe is None:
        remember(key, source, given, plan_of(given, target, dtype)[0], made)
    return out if out is not None else _result(made, names, arrays, report)


def pack(
    source: Any,
    spec: Spec | None = None,
    *,
    layout: str | Layout | None = None,
    prefix: str = "",
    dtype: Any = None,
    exact: bool = False,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """cuDNN's weight space of an RNN: a new 1-D array, or `out`.

    layout: of the source, which convert() calls src. Other arguments and errors as convert(), of
    which this is the case dst="cudnn".

        >>> import numpy as np
        >>> pack([np.eye(2), np.eye(2)], Spec("rnn_relu", 2, 2, bias=False, dtype="f8"),
        ...      layout="keras").tolist()
        [1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0]
    """
    flat: np.ndarray = convert(
        source, spec, src=layout, dst=CUDNN, prefix=prefix, dtype=dtype, exact=exact, out=out
    )
    return flat


def unpack(
    flat: Any,
    spec: Spec,
    *,
    layout: str | Layout,
    dtype: Any = None,
    exact: bool = False,
    out: Any = None,
) -> Any:
    """The tensors in another layout of an RNN that lies in cuDNN's weight space.

    flat: 1-D, spec.num_params elements.
    layout: of the result, which convert() calls dst.

    Other arguments, the result and errors as convert(), of which this is the case src="cudnn".

        >>> import numpy as np
        >>> spec = Spec("gru", 1, 1, bias="none")
        >>> unpack(np.arange(6, dtype="f4"), spec, layout="keras")["kernel"]  # z r h
        array([[1., 0., 2.]], dtype=float32)
    """
    return convert(flat, spec, src=CUDNN, dst=layout, dtype=dtype, exact=exact, out=out)


def check(
    source: Any,
    spec: Spec | None = None,
    *,
    src: str | Layout | None = None,
    dst: str | Layout,
    prefix: str = "",
    dtype: Any = None,
) -> Report:
    """What convert() would do to these values, without doing it.

    Returns a Report; a LossyError becomes its grade "unrepresentable", other errors are raised.

        >>> import numpy as np
        >>> gru = {"weight_ih_l0": np.ones((6, 1)), "weight_hh_l0": np.ones((6, 2)),
        ...        "bias_ih_l0": np.ones(6), "bias_hh_l0": np.ones(6)}
        >>> check(gru, dst="keras").grade
        'exact'
        >>> check(gru, dst="concat").grade
        'unrepresentable'
    """
    given = read(source, spec, src, prefix, dtype_free=dtype is not None)
    try:
        return dry_run(given, as_layout(dst), dtype)
    except LossyError as error:
        return Report("unrepresentable", 0, str(error))


def dry_run(source: Read, dst: Layout, dtype: Any = None, exact: bool = False) -> Report:
    """run() without its result; the same errors."""
    plan, name = plan_of(source, dst, dtype)
    return _run(plan, source.arrays, None, source.dtype, name, exact, False)
