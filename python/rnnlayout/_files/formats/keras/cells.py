"""What becomes of a recurrent cell's weights so that Keras 3 computes with them what Keras 2 did.

CuDNNLSTM and CuDNNGRU become LSTM and GRU. A gate's hard_sigmoid was clip(0.2 x + 0.5) and now is
clip(x / 6 + 0.5), the same where x is 1.2 times as large; and x is a sum of the gate's biases and
of products of its weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from rnnlayout import _native
from rnnlayout._convert import engine
from rnnlayout._model.dtypes import Bits
from rnnlayout._model.given import Given
from rnnlayout._model.layout import Layout
from rnnlayout._native import LayoutError, LossyError
from rnnlayout._sources.keras_config import recurrent_activation, told
from rnnlayout._sources.read import read
from rnnlayout._weights.weights import Weights

from .entry import LEAVES, Cell, check_cells
from .tree import Recurrent, Version, config_of, kind_of

_KERAS = Layout("keras")
_GATED = ("LSTM", "GRU")
_CANDIDATES = "gn"  # the gates that go through the other activation
_TIMES = 1.2  # 0.2 x + 0.5 = (1.2 x) / 6 + 0.5


@dataclass
class _Done:
    """What was done to an entry. sums: of biases; scaled: weights; src, dst: dtypes."""

    src: str
    dst: str
    sums: int = 0
    scaled: int = 0
    rounds: bool = False

    @property
    def report(self) -> engine.Report:
        if not self.rounds:
            return engine.EXACT
        reasons = [engine.reason(self.sums, self.src, self.dst)]
        if self.scaled:
            reasons.insert(0, f"{self.scaled} weights times {_TIMES}, for Keras 3's hard_sigmoid")
        return engine.Report("rounds", self.sums, " and ".join(filter(None, reasons)))


@dataclass
class Changed:
    """The cells of a file that change.

    what: the file; dtype, exact: as convert(). arrays: by path; scaled: the ids of the config's
    nodes whose weights make up for the other hard_sigmoid.
    """

    what: str
    dtype: Any
    exact: bool
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    scaled: set[int] = field(default_factory=set)
    _done: dict[str, _Done] = field(default_factory=dict)

    @property
    def reports(self) -> dict[str, engine.Report]:
        """By entry."""
        return {entry: done.report for entry, done in self._done.items()}

    def add_cudnn(self, entry: str, cell: Cell) -> None:
        """A cell of a CuDNNLSTM or CuDNNGRU. LossyError: it would be rounded, and exact is set."""
        given = Weights(_bits(cell), layout="keras-cudnn")
        made = given.to(_KERAS, dtype=self.dtype, exact=self.exact)
        self._put(entry, cell, given.spec.dtype, made)

    def add_hard(self, layer: Recurrent, cells: Sequence[Cell], version: Version) -> None:
        """A layer of Keras 2, of whose cells those with hard_sigmoid change.

        LossyError: a weight would become infinite; it would be rounded, and exact is set.
        """
        nodes = layer.cells
        hard = [_is_hard(node, version) for node in nodes]
        if any(hard):
            check_cells(layer, cells)
        for node, cell, is_hard in zip(nodes, cells, hard, strict=False):
            if is_hard:
                config = config_of(node)
                config["recurrent_activation"] = "hard_sigmoid"  # where it was the default
                # the other activation stays what it is, and need not be one that we have
                hints = told(kind_of(node), {**config, "activation": "tanh"}, version).hints
                self._add_scaled(layer.name, cell, hints)
                self.scaled.add(id(node))

    def _add_scaled(self, entry: str, cell: Cell, hints: dict[str, Any]) -> None:
        given = Weights._of(read(_bits(cell), None, _KERAS, **hints))
        as_they_are = given.to(_KERAS, dtype=self.dtype, exact=self.exact)
        wide = given.to(_KERAS, dtype="float64")
        try:
            scaled = _scale(wide._read())
            made = wide.to(_KERAS, dtype=as_they_are.spec.dtype)
        except (FloatingPointError, LossyError):
            raise LossyError(
                f"{self.what}: a weight of {entry!r} would become infinite, times {_TIMES} for"
                " Keras 3's hard_sigmoid"
            ) from None
        if scaled and self.exact:
            raise LossyError(
                f"exact conversion refused: {entry!r} has the hard_sigmoid of Keras 2, and for that"
                f" of Keras 3 {scaled} weights would be multiplied by {_TIMES}, and rounded"
            )
        self._put(entry, cell, given.spec.dtype, made, as_they_are.report, scaled)

    def _put(
        self,
        entry: str,
        cell: Cell,
        src: str,
        made: Weights,
        report: engine.Report | None = None,
        scaled: int = 0,
    ) -> None:
        if made.spec.dtype == "bfloat16":
            raise LayoutError(f"{self.what}: a model of Keras 2 holds no bfloat16")
        report = report or made.report or engine.EXACT
        done = self._done.setdefault(entry, _Done(src, made.spec.dtype))
        done.sums += report.rounded_sums
        done.scaled += scaled
        done.rounds |= bool(scaled) or report.grade != "exact"
        self.arrays |= {cell[leaf].path: made[leaf] for leaf in made}


def _bits(cell: Cell) -> dict[str, Bits]:
    return {leaf: Bits(cell[leaf].bits(), cell[leaf].dtype) for leaf in LEAVES if leaf in cell}


def _is_hard(node: dict[str, Any], version: Version) -> bool:
    """Do its gates go through Keras 2's hard_sigmoid?"""
    activation = recurrent_activation(config_of(node), version)
    return kind_of(node) in _GATED and activation == "hard_sigmoid"


def _scale(wide: Given) -> int:
    """Multiply, in place, what its gates' hard_sigmoid is given. How many weights that changes.

    FloatingPointError: one is too large.
    """
    count = 0
    for block, (tensor, at, rows, cols, row, col, _) in _native.blocks(
        wide.layout, wide.spec, wide.has
    ):
        if block[-1] not in _CANDIDATES:
            array = wide.arrays[tensor].reshape(-1)[at:]
            view = as_strided(array, (rows, cols), (row * array.itemsize, col * array.itemsize))
            with np.errstate(over="raise"):
                view *= _TIMES
            count += int(np.count_nonzero(view))
    return count
