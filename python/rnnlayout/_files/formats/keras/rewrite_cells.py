"""New weights for recurrent cells, with which Keras 3 computes what Keras 2 did.

CuDNNLSTM and CuDNNGRU become LSTM and GRU. A gate's hard_sigmoid was clip(0.2 x + 0.5) and now is
clip(x / 6 + 0.5), which is the same for 1.2 times x; and x is a sum of the gate's biases and of
products of its weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from rnnlayout import _native
from rnnlayout._convert import engine
from rnnlayout._files.tensor_sets.tensor_set import Converted
from rnnlayout._model.asks import Ask
from rnnlayout._model.cells import CELLS
from rnnlayout._model.checked_rnn import CheckedRNN, checked_rnn_of
from rnnlayout._model.dtypes import Bits
from rnnlayout._model.layout import Layout
from rnnlayout._model.spec import HARD_TIMES as _TIMES
from rnnlayout._native import LayoutError, LossyError
from rnnlayout._sources.keras_config import read_config, recurrent_activation
from rnnlayout._sources.keras_tree import Node, RecurrentLayer, Version, config_of, kind_of
from rnnlayout._sources.read_source import read_source
from rnnlayout._weights.weights import Weights, weights_of

from .entries import LEAVES, CellDatasets, check_cells

_KERAS = Layout("keras")
_GATED = ("LSTM", "GRU")


@dataclass
class _CellChange:
    """How the weights of an RNN were changed. src, dst: the old and the new dtype. sums: how many
    sums of two biases were rounded. scaled: how many weights were multiplied. rounds: whether the
    new dtype rounds.
    """

    src: str
    dst: str
    sums: int = 0
    scaled: int = 0
    rounds: bool = False

    @property
    def report(self) -> engine.Report:
        if not self.rounds:
            return engine.EXACT
        reasons = [engine.rounding_reason(self.sums, False, self.src, self.dst)]
        if self.scaled:
            reasons.insert(0, f"{self.scaled} weights times {_TIMES}, for Keras 3's hard_sigmoid")
        return engine.Report("rounds", self.sums, " and ".join(filter(None, reasons)))


@dataclass
class ChangedCells:
    """The cells of a file that change.

    what: the file's name in messages. dtype, exact: the arguments of convert(). arrays: the new
    arrays by path. scaled: the ids of the nodes whose weights compensate for the other
    hard_sigmoid. notes: messages about the file.
    """

    what: str
    dtype: Any
    exact: bool
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    scaled: set[int] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    _done: dict[str, _CellChange] = field(default_factory=dict)

    @property
    def reports(self) -> dict[str, engine.Report]:
        """The report of each RNN that changes."""
        return {entry: done.report for entry, done in self._done.items()}

    def result(self) -> Converted:
        """Return what convert_file() returns."""
        return Converted(self.reports, notes=tuple(self.notes))

    def add_cudnn(self, entry: str, cell: CellDatasets) -> None:
        """Add a CuDNNLSTM's or CuDNNGRU's cell. Raises LossyError if exact is set and it rounds."""
        given = Weights(_cell_bits(entry, cell), layout="keras-cudnn")
        new = given.to(_KERAS, dtype=self.dtype, exact=self.exact)
        self._put(entry, cell, given.spec.dtype, new, new.report or engine.EXACT)

    def add_hard(
        self, layer: RecurrentLayer, cells: Sequence[CellDatasets], version: Version
    ) -> None:
        """Add the cells of a layer of Keras 2 that have hard_sigmoid, if there are any.

        Raises LossyError if a weight becomes infinite, or is rounded and exact is set.
        """
        nodes = layer.cells
        hard = [_is_hard(node, version) for node in nodes]
        if any(hard):
            check_cells(layer, cells)
        for node, cell, is_hard in zip(nodes, cells, hard, strict=False):
            if is_hard:
                config = config_of(node)
                config["recurrent_activation"] = "hard_sigmoid"  # in case it was the default
                # the other activation is unchanged, so it may be one that rnnlayout lacks
                hints = read_config(kind_of(node), {**config, "activation": "tanh"}, version).hints
                self._add_scaled(layer.name, cell, hints)
                self.scaled.add(id(node))

    def add_unrecorded(self, entry: str, cell: CellDatasets, reset: str | None) -> None:
        """Add an LSTM's or GRU's cell with hard_sigmoid, of a file without a config.

        reset: the reset of a GRU without biases, whose tensors do not show it. Raises LossyError if
        exact is set and it rounds.
        """
        hints = {"recurrent_activation": "hard_sigmoid_keras2"}
        if reset is not None and "bias" not in cell:
            hints["reset"] = reset
        self._add_scaled(entry, cell, hints)

    def _add_scaled(self, entry: str, cell: CellDatasets, hints: dict[str, Any]) -> None:
        given = weights_of(read_source(_cell_bits(entry, cell), None, _KERAS, **hints))
        unscaled = given.to(_KERAS, dtype=self.dtype, exact=self.exact)
        wide = given.to(_KERAS, dtype="float64")
        try:
            scaled = _scale_gates(checked_rnn_of(wide))
            new = wide.to(_KERAS, dtype=unscaled.spec.dtype)
        except (FloatingPointError, LossyError):
            raise LossyError(
                f"{self.what}: a weight of {entry!r} is infinite, times {_TIMES} for hard_sigmoid"
            ) from None
        if scaled and self.exact:
            raise LossyError(
                f"exact conversion refused: {entry!r} has the hard_sigmoid of Keras 2, and for that"
                f" of Keras 3 {scaled} weights would be multiplied by {_TIMES}, which rounds them"
            )
        self._put(entry, cell, given.spec.dtype, new, unscaled.report or engine.EXACT, scaled)

    def _put(
        self,
        entry: str,
        cell: CellDatasets,
        src: str,
        new: Weights,
        report: engine.Report,
        scaled: int = 0,
    ) -> None:
        if new.spec.dtype == "bfloat16":
            why = f"{self.what}: a model of Keras 2 cannot store bfloat16: omit "
            raise LayoutError(why + Ask("dtype", None))
        done = self._done.setdefault(entry, _CellChange(src, new.spec.dtype))
        done.sums += report.rounded_sums
        done.scaled += scaled
        done.rounds |= bool(scaled) or report.grade != "exact"
        self.arrays |= {cell[leaf].path: new[leaf] for leaf in new}


def _cell_bits(entry: str, cell: CellDatasets) -> dict[str, Bits]:
    return {leaf: cell[leaf].floats(entry) for leaf in LEAVES if leaf in cell}


def _is_hard(node: Node, version: Version) -> bool:
    """Return whether the activation of its gates is Keras 2's hard_sigmoid."""
    activation = recurrent_activation(config_of(node), version)
    return kind_of(node) in _GATED and activation == "hard_sigmoid"


def _scale_gates(wide: CheckedRNN) -> int:
    """Multiply, in place, what is summed for a hard_sigmoid; return the number of changed weights.

    Raises FloatingPointError if one is too large.
    """
    count = 0
    for block, (tensor, at, rows, cols, row, col, _) in _native.blocks(
        wide.layout, wide.spec, wide.optional_tensors
    ):
        if block[-1] != CELLS[wide.spec.cell].candidate:
            array = wide.arrays[tensor].reshape(-1)[at:]
            view = as_strided(array, (rows, cols), (row * array.itemsize, col * array.itemsize))
            with np.errstate(over="raise"):
                view *= _TIMES
            count += int(np.count_nonzero(view))
    return count
