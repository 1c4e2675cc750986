"""Run a conversion of checked arrays, into new arrays or the caller's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from rnnlayout import _native
from rnnlayout._model.dtypes import check_in_place, dtype_name, storage, take
from rnnlayout._model.given import Given
from rnnlayout._model.layout import Layout, has_peepholes
from rnnlayout._model.optional import spec_has
from rnnlayout._model.spec import Spec, flag
from rnnlayout._native import LayoutError
from rnnlayout._sources.mismatch import wrong_names
from rnnlayout._sources.torch_names import rounded_weights

from .unrepresented import unrepresented


@dataclass(frozen=True)
class Report:
    """What a conversion does to these values.

    grade: "exact" (bits are only moved; a negation counts as moved), "rounds" (sums of two
        non-zero biases, a rounded sum with a forget bias, or a dtype that cannot represent every
        value), or "unrepresentable".
    rounded_sums: the number of elements that are such sums.
    reason: why it rounds or is not possible; "" if exact.
    settings: what changes the outputs and is not in the weights, if the target's framework cannot
        represent it (go_backwards in torch), and what to do about it; "" if there is nothing.

    The grade is about bits: an exact conversion has the same outputs only if settings is "".
    str() returns all of it as one line.
    """

    grade: str
    rounded_sums: int = 0
    reason: str = ""
    settings: str = ""

    def __str__(self) -> str:
        grade = f"{self.grade}: {self.reason}" if self.reason else self.grade
        return f"{grade}; {self.settings}" if self.settings else grade


EXACT = Report("exact")


@lru_cache(maxsize=128)
def plan_for(spec: Spec, src: Layout, has: int, dst: Layout) -> _native.Plan:
    """Return the plan of a conversion. Plans are cached, so a loop builds each only once."""
    return _native.Plan(spec, src, has, dst)


def plan_of(source: Given, dst: Layout, dtype: Any) -> tuple[_native.Plan, Spec]:
    """Return the plan that converts `source`, and the spec of its result."""
    name = dtype_name(dtype) if dtype is not None else source.dtype
    spec = source.spec if name == source.dtype else source.spec.replace(dtype=name)
    spec = spec_in(dst, spec)
    return plan_for(spec, source.layout, source.has, dst), spec


def spec_in(dst: Layout, spec: Spec) -> Spec:
    """Return the spec of the result: a layout without peepholes needs them to be zero."""
    return spec.replace(peepholes=False) if spec.peepholes and not has_peepholes(dst) else spec


def run(
    source: Given, dst: Layout, dtype: Any = None, exact: bool = False, out: Any = None
) -> tuple[Given, Report]:
    """Convert to `dst`, into new arrays or into `out` (a dict; for cudnn one array)."""
    plan, spec = plan_of(source, dst, dtype)
    if out is None:
        arrays = [np.empty(shape, storage(spec.dtype)) for _, shape in plan.targets]
    else:
        arrays = _outputs(out, plan.targets, spec.dtype, dst)
    _check_exact(source, exact)
    report = run_plan(plan, source.arrays, arrays, source.dtype, spec.dtype, exact, out is None)
    names = [name for name, _ in plan.targets]
    made = replace(source, spec=spec, layout=dst, has=spec_has(spec), names=names, arrays=arrays,
                   rounded=())  # fmt: skip
    return made, completed(report, source, dst)


def run_into(
    source: Given, dst: Layout, dtype: str, exact: bool, targets: list[np.ndarray]
) -> Report:
    """Convert into arrays that carry bits. Their contents are undefined if it fails."""
    plan, spec = plan_of(source, dst, dtype)
    return run_plan(plan, source.arrays, targets, source.dtype, spec.dtype, exact, True)


def dry_run(source: Given, dst: Layout, dtype: Any = None, exact: bool = False) -> Report:
    """Return the report of run(), or raise its errors, without converting."""
    plan, spec = plan_of(source, dst, dtype)
    _check_exact(source, exact)
    report = run_plan(plan, source.arrays, None, source.dtype, spec.dtype, exact, False)
    return completed(report, source, dst)


def _check_exact(source: Given, exact: bool) -> None:
    if source.rounded and exact:
        raise rounded_weights(source.rounded)


def completed(report: Report, source: Given, dst: Layout) -> Report:
    """Return the report with what the plan does not know: what was computed before it, and the
    settings that `dst` cannot represent."""
    settings = unrepresented(source, dst)
    if not source.rounded:
        return replace(report, settings=settings) if settings else report
    reasons = [f"{', '.join(source.rounded)} computed from weight norm", report.reason]
    return Report("rounds", report.rounded_sums, " and ".join(filter(None, reasons)), settings)


def run_plan(
    plan: _native.Plan,
    sources: list[np.ndarray],
    targets: list[np.ndarray] | None,
    src_dtype: str,
    dst_dtype: str,
    exact: bool,
    new: bool,
) -> Report:
    """Run a plan; without targets, only return its report.

    new: the targets are not the caller's: if it fails they may be partly written.
    """
    exact = flag("exact", exact)
    grade, sums = plan.run(sources, targets, src_dtype, dst_dtype, exact, new)
    if grade == "exact":
        return EXACT
    return Report(grade, sums, reason(sums, plan.shifts, src_dtype, dst_dtype))


def reason(sums: int, shifts: bool, src: str, dst: str) -> str:
    """Return why a conversion rounds. shifts: a forget bias is part of some sums."""
    kind = "rounded sums of biases and a forget bias" if shifts else "sums of two non-zero biases"
    reasons = [f"{sums} {kind}"] if sums else []
    if src != dst:
        reasons.append(f"{src} to {dst}")
    return " and ".join(reasons)


def _outputs(
    out: Any, targets: list[tuple[str, tuple[int, ...]]], dtype: str, dst: Layout
) -> list[np.ndarray]:
    """Return the arrays of `out`, checked."""
    if dst.name == "cudnn":
        given = {targets[0][0]: out}
    elif isinstance(out, Mapping):
        given = dict(out)
        if given.keys() != {name for name, _ in targets}:
            raise wrong_names([dst], list(given), [name for name, _ in targets])
    else:
        raise LayoutError(f"out is a {type(out).__name__}, need a dict of arrays for {dst}")
    return [_writable(given[name], name, shape, dtype) for name, shape in targets]


def _writable(value: Any, name: str, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    what = f"out[{name!r}]"
    array, found = take(value, what)
    if found != dtype:
        raise LayoutError(f"{what} is {found}, need {dtype}, the dtype of the result")
    if array.shape != shape:
        raise LayoutError(f"{what}: shape {array.shape}, expected {shape}")
    check_in_place(array, value, what)
    flags = array.flags
    if not (flags.writeable and flags.c_contiguous and flags.aligned):
        wrong = "read-only" if not flags.writeable else "not C-contiguous and aligned"
        raise LayoutError(f"{what} is {wrong}: need a writable, C-contiguous, aligned array")
    return array
