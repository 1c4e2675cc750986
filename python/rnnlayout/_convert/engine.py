"""Run a conversion of checked arrays, into new arrays or arrays of the caller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rnnlayout import _native
from rnnlayout._model.config import changes_outputs, describe_config, facts_of, settings_lost
from rnnlayout._model.dtypes import check_in_place, dtype_name, storage_dtype, take_bits
from rnnlayout._model.layout import Layout
from rnnlayout._model.report import EXACT, Report
from rnnlayout._model.sized_cache import cached_by_size
from rnnlayout._model.spec import Spec, check_flag, optional_tensors_of
from rnnlayout._model.weights import Weights, checked_weights
from rnnlayout._native import LayoutError
from rnnlayout._sources.mismatch import wrong_names
from rnnlayout._sources.torch_names import rounded_weights


@cached_by_size(lambda spec, *_: 8 * spec.num_layers * spec.num_directions)
def plan_for(
    spec: Spec, src: Layout, optional_tensors: int, dst: Layout, kind: str
) -> _native.Plan:
    """Return the plan of a conversion. A loop builds each plan only once."""
    return _native.Plan(spec, src, optional_tensors, dst, kind)


def plan_for_source(source: Weights, dst: Layout, dtype: Any) -> tuple[_native.Plan, Spec]:
    """Return the plan that converts `source`, and the spec of the result."""
    spec = source.spec
    if dtype is not None and (name := dtype_name(dtype)) != spec.dtype:
        spec = spec.replace(dtype=name)
    spec = result_spec(dst, spec)
    return plan_for(spec, source.layout, source.optional_tensors, dst, source.kind), spec


def result_spec(dst: Layout, spec: Spec) -> Spec:
    """Return the Spec of the result: without peepholes if `dst` lacks peepholes (which must be
    zero)."""
    if not spec.peepholes or dst.facts["peepholes"]:
        return spec
    return spec.replace(peepholes=False)


def run_conversion(
    source: Weights, dst: Layout, dtype: Any = None, exact: bool = False, out: Any = None
) -> Weights:
    """Convert to `dst`, into new arrays or into `out` (a dict; for cudnn one array). The result
    has the report."""
    plan, spec = plan_for_source(source, dst, dtype)
    if out is None:
        arrays = [np.empty(shape, storage_dtype(spec.dtype)) for _, shape in plan.targets]
    else:
        arrays = _check_outputs(out, plan.targets, spec.dtype, dst)
    report = run_plan(plan, source, arrays, spec.dtype, exact, new=out is None)
    return checked_weights(
        spec,
        dst,
        optional_tensors_of(spec),
        [name for name, _ in plan.targets],
        arrays,
        source.config,
        source.batch_first,
        report=complete_report(report, source, dst),
        assumed=source.assumed,
        kind=source.kind,
    )


def dry_run_conversion(
    source: Weights, dst: Layout, dtype: Any = None, exact: bool = False
) -> Report:
    """Return the report of run_conversion(), or raise its errors, without converting."""
    plan, spec = plan_for_source(source, dst, dtype)
    report = run_plan(plan, source, None, spec.dtype, exact)
    return complete_report(report, source, dst)


def complete_report(report: Report, source: Weights, dst: Layout) -> Report:
    """Return the report with facts from outside the plan: weights computed from weight norm, and
    the settings that `dst` cannot represent."""
    lost = _describe_lost(source, dst) if source.config else []
    if source.spec.recurrent_activation == "hard_sigmoid_keras2" and dst.name == "keras":
        lost.append(
            "with Keras 2's hard_sigmoid, which Keras 3 cannot represent: convert the whole model"
            " in its own format"
        )
    settings = "; ".join(lost)
    if not source.rounded:
        return replace(report, settings=settings) if settings else report
    reasons = [f"{', '.join(source.rounded)} computed from weight norm", report.reason]
    return Report("rounds", report.rounded_sums, " and ".join(filter(None, reasons)), settings)


def _describe_lost(source: Weights, dst: Layout) -> list[str]:
    """Return a text for each setting that changes outputs and that `dst` cannot represent."""
    settings = changes_outputs(source.config, source.spec)
    return [
        f"with {describe_config({key: value})}, which {dst.name} cannot represent:"
        f" {facts_of(key).advice}"
        for key, value in settings_lost(settings, source.spec, dst.name).items()
    ]


def run_plan(
    plan: _native.Plan,
    source: Weights,
    targets: list[np.ndarray] | None,
    dtype: str,
    exact: bool,
    new: bool = False,
) -> Report:
    """Run a plan into arrays that carry bits; without targets, only return the report. new: whether
    the targets are new arrays: a failure may leave new arrays partly written."""
    exact = check_flag("exact", exact)
    if source.rounded and exact:
        raise rounded_weights(source.rounded)
    source_dtype = source.spec.dtype
    grade, sums = plan.run(source.arrays, targets, source_dtype, dtype, exact, new)
    if grade == "exact":
        return EXACT
    return Report(grade, sums, rounding_reason(sums, source.kind, plan.shifts, source_dtype, dtype))


def rounding_reason(sums: int, kind: str, shifts: bool, src: str, dst: str) -> str:
    """Return the reason for rounding. shifts: whether a forget bias is part of the sums."""
    words = "rounded sums of biases and a forget bias" if shifts else "sums of two non-zero biases"
    if kind != "weights":
        words = "gradients of two biases that are equal only up to rounding"
    reasons = [f"{sums} {words}"] if sums else []
    if src != dst:
        reasons.append(f"{src} to {dst}")
    return " and ".join(reasons)


def _check_outputs(
    out: Any, targets: list[tuple[str, tuple[int, ...]]], dtype: str, dst: Layout
) -> list[np.ndarray]:
    """Return the checked arrays of `out`."""
    if dst.name == "cudnn":
        outputs = {targets[0][0]: out}
    elif isinstance(out, Mapping):
        outputs = dict(out)
        if outputs.keys() != {name for name, _ in targets}:
            raise wrong_names([dst], list(outputs), [name for name, _ in targets])
    else:
        raise LayoutError(f"out is a {type(out).__name__}, need a dict of arrays for {dst}")
    arrays = []
    for name, shape in targets:
        label = f"out[{name!r}]"
        array, array_dtype = take_bits(outputs[name], label)
        if array_dtype != dtype:
            raise LayoutError(f"{label} is {array_dtype}, need {dtype}, the dtype of the result")
        if array.shape != shape:
            raise LayoutError(f"{label}: shape {array.shape}, expected {shape}")
        check_in_place(array, outputs[name], label)
        flags = array.flags
        if not (flags.writeable and flags.c_contiguous and flags.aligned):
            wrong = "read-only" if not flags.writeable else "not C-contiguous and aligned"
            raise LayoutError(f"{label} is {wrong}: need a writable, C-contiguous, aligned array")
        arrays.append(array)
    return arrays
