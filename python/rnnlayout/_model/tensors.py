"""Tensors: the result of convert()."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from .dtypes import present_array
from .kinds import Kind
from .layout import Layout
from .report import Report
from .spec import Spec
from .weights import Weights, changed_weights


class Tensors(dict[str, np.ndarray]):
    """A dict of arrays by name, in the framework's order, with the RNN and the conversion's report.

    Attributes: report, of the conversion; spec; layout; kind, see Weights; config, the settings
    that change outputs but not shapes, see Weights; batch_first, whether the source's x is
    (N, T, I), None if the source records no order of axes; weights, the same tensors as Weights.
    Passed as a source, spec and layout are used: contradicting arguments and changed shapes are
    errors.
    """

    spec: Spec
    layout: Layout
    kind: Kind
    report: Report
    config: dict[str, Any]
    batch_first: bool | None

    def __init__(self, rnn: Weights, report: Report) -> None:
        arrays = (present_array(array, rnn.spec.dtype) for array in rnn.arrays)
        super().__init__(zip(rnn.names, arrays, strict=True))
        self.spec, self.layout, self.report = rnn.spec, rnn.layout, report
        self.kind = rnn.kind
        self.config, self.batch_first = dict(rnn.config), rnn.batch_first

    @property
    def weights(self) -> Weights:
        """The current tensors as Weights, with the same report."""
        return changed_weights(Weights(self, kind=self.kind), report=self.report)

    def __repr__(self) -> str:
        """Return the RNN, the shapes and the grade: the numbers would fill a screen."""
        shapes = ", ".join(f"{name} {array.shape}" for name, array in self.items())
        return f"<Tensors of {self.spec} in {self.layout}: {shapes}; {self.report}>"

    def _repr_html_(self) -> str:
        from .picture.html import html_table

        shapes = [(name, str(array.shape), str(array.dtype)) for name, array in self.items()]
        table = html_table(f"{self.spec} in {self.layout}", shapes, ("tensor", "shape", "dtype"))
        return table + self.report._repr_html_()

    def copy(self) -> Tensors:
        """Return a copy with the same arrays and attributes."""
        return copy(self)
