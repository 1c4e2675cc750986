"""For your own tests: two sets of weights are the same, or which gate of which layer is not.

    >>> import numpy as np
    >>> from rnnlayout.testing import assert_roundtrip, assert_same
    >>> cell = {"weight_ih": np.arange(24.0).reshape(8, 3), "weight_hh": np.ones((8, 2)),
    ...         "bias_ih": np.zeros(8), "bias_hh": np.zeros(8)}
    >>> assert_roundtrip(cell, via=["cudnn", "keras", "onnx"]).grade
    'exact'
    >>> wrong = {**cell, "weight_ih": cell["weight_ih"][[0, 1, 4, 5, 2, 3, 6, 7]]}
    >>> try:
    ...     assert_same(cell, wrong)
    ... except AssertionError as error:
    ...     print(error)
    2 of 16 blocks differ between a (torch-cell) and b (torch-cell), lstm, input_size 3, hidden_size 2, dtype float64
      layer 0, input matrix of gate f: 6 of 6 differ, largest 6.0 at (0, 0): 6.0 and 12.0
      layer 0, input matrix of gate g: 6 of 6 differ, largest 6.0 at (0, 0): 12.0 and 6.0
    likely cause: gates f and g swapped (explains all 2)

Not loaded by `import rnnlayout`; needs no pytest.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from rnnlayout._causes import causes
from rnnlayout._compare import Compare, Gate, block, blocks_of, one_bias, with_sums
from rnnlayout._convert import Report
from rnnlayout._layouts import Layout, as_layout
from rnnlayout._native import LossyError, SpecError
from rnnlayout._spec import Spec
from rnnlayout._weights import Weights

__all__ = ["assert_roundtrip", "assert_same"]

_MOST = 40  # lines of a report
# What makes two RNNs two: the rest of a spec is about how their weights are kept.
_SAME = ("cell", "input_size", "hidden_size", "num_layers", "bidirectional", "proj_size", "reset",
         "recurrent_activation")  # fmt: skip


def assert_same(a: Any, b: Any, *, rtol: float = 0, atol: float = 0) -> None:
    """Are these the weights of the same RNN? They may be in different layouts.

    a, b: torch modules, Keras layers, dicts of arrays, Weights; a flat weight space, or what does
        not tell its RNN by itself (tanh or relu, a GRU's reset), takes its spec from the other.
    rtol, atol: how far b may be from a: atol + rtol * abs(b). 0, 0: bit for bit, in one dtype.

    Compared gate by gate, after conversion to one form. Where one layout has one bias a gate and
    the other two, their sum is compared, rounded as a conversion rounds it.

    AssertionError: a line a block that differs, with the largest difference and where it is, and
    the cause if it is a frequent one: gates swapped, a matrix transposed, biases in the other
    vector, directions exchanged, a gate negated.

        >>> import numpy as np
        >>> keras = {"kernel": np.ones((3, 8)), "recurrent_kernel": np.ones((2, 8)),
        ...          "bias": np.arange(8.0)}
        >>> assert_same(keras, Weights(keras).to("onnx"))
    """
    __tracebackhide__ = True  # pytest then shows the caller's line
    first, second = _both(a, b)
    names = f"between a ({first.layout}) and b ({second.layout})"
    if text := _report(first, second, names, rtol, atol):
        raise AssertionError(text)


def assert_roundtrip(
    source: Any,
    via: Iterable[str | Layout],
    *,
    spec: Spec | None = None,
    layout: str | Layout | None = None,
    exact: bool = False,
) -> Report:
    """Do these weights come back from a way through other layouts?

    source, spec, layout: as Weights() takes them.
    via: layouts, in the order in which to go through them.
    exact: refuse sums of two biases.

    They have to come back bit for bit. Where a layout on the way has one bias a gate and the source
    two, these come back as their sum, rounded once, and zero: the same function in other numbers.

    Returns the Report of the way: "exact", or "rounds" with how many sums were rounded and why.
    AssertionError: as assert_same(), or a layout on the way cannot hold these weights.

        >>> import numpy as np
        >>> cell = {"weight_ih": np.ones((8, 3)), "weight_hh": np.ones((8, 2)),
        ...         "bias_ih": np.ones(8), "bias_hh": np.ones(8)}
        >>> assert_roundtrip(cell, ["cudnn", "onnx"])
        Report(grade='exact', rounded_sums=0, reason='')
        >>> assert_roundtrip(cell, ["cudnn", "keras"])
        Report(grade='rounds', rounded_sums=8, reason='keras: 8 sums of two non-zero biases')
    """
    __tracebackhide__ = True
    start = Weights(source, spec, layout)
    way = [as_layout(x) for x in ([via] if isinstance(via, (str, Layout)) else via)]
    told = " -> ".join(str(x) for x in (start.layout, *way, start.layout))
    here, reports = start, []
    summed = frozenset[Gate]()
    for stop in (*way, start.layout):
        try:
            here = here.to(stop, exact=exact)
        except LossyError as error:
            raise AssertionError(f"{told}: {error}") from error
        reports.append((stop, here.report or Report("exact")))
        summed |= one_bias(here) - one_bias(start)
    names = f"between before and after {told}"
    if text := _report(start, here, names, 0, 0, summed):
        raise AssertionError(text)
    sums = sum(r.rounded_sums for _, r in reports)
    reason = "; ".join(f"{stop}: {r.reason}" for stop, r in reports if r.reason)
    return Report("rounds", sums, reason) if reason else Report("exact")


def _both(a: Any, b: Any) -> tuple[Weights, Weights]:
    """What one of them does not tell, the other may."""
    read: list[Weights | None] = []
    wrong: list[SpecError] = []
    for source in (a, b):
        try:
            read.append(source if isinstance(source, Weights) else Weights(source))
        except SpecError as error:
            read.append(None)
            wrong.append(error)
    first, second = read
    if first is None and second is None:
        raise wrong[0]
    if first is None:
        assert second is not None
        first = Weights(a, second.spec)
    return first, second if second is not None else Weights(b, first.spec)


def _report(
    a: Weights,
    b: Weights,
    names: str,
    rtol: float,
    atol: float,
    summed: frozenset[Gate] = frozenset(),
) -> str:
    """What differs, "" if nothing does. summed: gates whose biases count as their sum."""
    if unlike := [key for key in _SAME if getattr(a.spec, key) != getattr(b.spec, key)]:
        told = [f"{key} {getattr(a.spec, key)} and {getattr(b.spec, key)}" for key in unlike]
        return f"two different RNNs {names}: {', '.join(told)}"
    if a.spec.dtype != b.spec.dtype and not (rtol or atol):
        return f"{a.spec.dtype} and {b.spec.dtype} {names}: to compare their values pass rtol="
    dtypes = a.spec.dtype, b.spec.dtype
    summed |= one_bias(a) ^ one_bias(b)
    first = with_sums(blocks_of(a), a.spec, summed)
    second = with_sums(blocks_of(b), b.spec, summed)
    keys = list(dict.fromkeys([*first, *second]))
    for key in keys:  # peepholes
        for blocks, other in ((first, second), (second, first)):
            blocks.setdefault(key, block(np.zeros_like(other[key].values), "float64"))
    compared = Compare(a.spec, first, second, dtypes, rtol, atol)
    lines = [line for key in keys if (line := compared.line(key))]
    if not lines:
        return ""
    head = f"{len(lines)} of {len(keys)} blocks differ {names}, {a.spec}"
    shown = [f"  {line}" for line in lines[:_MOST]]
    if len(lines) > _MOST:
        shown.append(f"  and {len(lines) - _MOST} more")
    return "\n".join([head, *shown, *causes(compared)])
