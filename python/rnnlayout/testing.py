"""For your own tests: are two sets of weights the same, and if not, which gate differs?

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
    a and b are different: gates f and g swapped in the input matrices
    2 of 16 blocks differ between a (torch-cell) and b (torch-cell), lstm, input_size 3, hidden_size 2, dtype float64
      layer 0, input matrix of gate f: 6 of 6 differ, largest 6.0 at (0, 0): 6.0 and 12.0
      layer 0, input matrix of gate g: 6 of 6 differ, largest 6.0 at (0, 0): 12.0 and 6.0
    likely cause: gates f and g swapped in the input matrices (explains all 2)

`import rnnlayout` does not load this module. The module does not need pytest.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rnnlayout._compare.blocks import GateKey, gates_with_one_bias
from rnnlayout._compare.gradients import compare_gradients
from rnnlayout._compare.verify import compare_pair, verify
from rnnlayout._model.layout import Layout, as_layout
from rnnlayout._model.report import Report
from rnnlayout._model.spec import Spec
from rnnlayout._model.weights import Weights
from rnnlayout._native import LossyError

__all__ = ["assert_roundtrip", "assert_same"]


def assert_same(
    a: Any, b: Any, *, rtol: float = 0, atol: float = 0, gradients: bool = False
) -> None:
    """Assert that two sources have the same RNNs, in the same or in different layouts.

    a, b: torch modules, Keras layers, dicts of arrays, Weights, files. A flat weight space, or
        tensors that do not record all facts (tanh or relu, a GRU's reset), take the spec of the
        opposite source.
    rtol, atol, and the rules of the comparison: see verify().
    gradients: compare also the gradients of one loss, which both frameworks compute, gate by gate:
        for two modules of torch, or layers or lists of layers of Keras. The loss is the sum of the
        outputs times random numbers, for a random input and zero states, without dropout. Gradients
        may differ by what rounding explains. Parameters, their gradients and modes stay as they
        are.

    Raises AssertionError with a line per differing block, with the size and position of the
    largest difference, and the likely cause: gates swapped, a matrix transposed, input and
    recurrent bias swapped, directions swapped, a gate negated ...; see diagnose().

        >>> import numpy as np
        >>> keras = {"kernel": np.ones((3, 8)), "recurrent_kernel": np.ones((2, 8)),
        ...          "bias": np.arange(8.0)}
        >>> assert_same(keras, Weights(keras).to("onnx"))
    """
    __tracebackhide__ = True  # pytest then shows the caller's line
    comparison = verify(a, b, rtol=rtol, atol=atol)
    if not comparison:
        raise AssertionError(str(comparison))
    if gradients and (differences := compare_gradients(a, b, rtol, atol)):
        raise AssertionError(differences)


def assert_roundtrip(
    source: Any,
    via: Iterable[str | Layout],
    *,
    spec: Spec | None = None,
    layout: str | Layout | None = None,
    exact: bool = False,
) -> Report:
    """Assert that weights are the same after conversion through several layouts and back.

    source, spec, layout: see Weights().
    via: the layouts to convert to, in order.
    exact: refuse sums of two biases.

    All bits must be equal, except where a layout on the way has one bias per gate and the source
    two: two biases come back as the rounded sum and zero, which is the same function.

    Returns a Report: "exact", or "rounds" with the number of rounded sums and the reason. Raises
    AssertionError as assert_same() does, or if a layout cannot represent the weights.

        >>> import numpy as np
        >>> cell = {"weight_ih": np.ones((8, 3)), "weight_hh": np.ones((8, 2)),
        ...         "bias_ih": np.ones(8), "bias_hh": np.ones(8)}
        >>> assert_roundtrip(cell, ["cudnn", "onnx"])
        Report(grade='exact', rounded_sums=0, reason='', settings='')
        >>> print(assert_roundtrip(cell, ["cudnn", "keras"]))
        rounds: keras: 8 sums of two non-zero biases
    """
    __tracebackhide__ = True
    start = Weights(source, spec, layout)
    way = [as_layout(stop) for stop in ([via] if isinstance(via, (str, Layout)) else via)]
    stops = " -> ".join(str(stop) for stop in (start.layout, *way, start.layout))
    current, reports = start, []
    summed = frozenset[GateKey]()
    for stop in (*way, start.layout):
        try:
            current = current.to(stop, exact=exact)
        except LossyError as error:
            raise AssertionError(f"{stops}: {error}") from error
        reports.append((stop, current.report or Report("exact")))
        summed |= gates_with_one_bias(current) - gates_with_one_bias(start)
    names = f"between before and after {stops}"
    if difference := compare_pair(start, current, names, summed=summed):
        raise AssertionError(difference.text)
    sums = sum(report.rounded_sums for _, report in reports)
    reason = "; ".join(f"{stop}: {report.reason}" for stop, report in reports if report.reason)
    return Report("rounds", sums, reason) if reason else Report("exact")
