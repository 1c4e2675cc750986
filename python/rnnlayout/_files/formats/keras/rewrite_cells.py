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
from rnnlayout._files.tensor_sets.tensor_set import Converted, Hints
from rnnlayout._model.asks import Ask
from rnnlayout._model.checked_rnn import CheckedRNN
from rnnlayout._model.dtypes import Bits
from rnnlayout._model.layout import Layout
from rnnlayout._model.spec import CELLS, HARD_SIGMOIDS, HARD_TIMES as _TIMES, Cell, Spec
from rnnlayout._native import LayoutError, LossyError
from rnnlayout._sources.caller_spec import CallerSpec
from rnnlayout._sources.keras_config import read_config, recurrent_activation
from rnnlayout._sources.keras_tree import Node, RecurrentLayer, Version, config_of, kind_of
from rnnlayout._sources.read_source import read_source
from rnnlayout._sources.read_tensors import read_described

from .config import CUDNN, unknown_classes_in
from .entries import LEAVES, CellArrays, LayerCells, count_gates

_KERAS = Layout("keras")
_GATED: dict[int, Cell] = {4: "lstm", 3: "gru"}  # the number of gates -> the cell


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
    arrays by path. cudnn: the changed cells of cuDNN's layers, each with its node of the config, if
    one describes it. scaled: the ids of the nodes whose weights compensate for the other
    hard_sigmoid. notes: messages about the file.
    """

    what: str
    dtype: Any
    exact: bool
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    cudnn: list[tuple[Node | None, CellArrays]] = field(default_factory=list)
    scaled: set[int] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    _done: dict[str, _CellChange] = field(default_factory=dict)

    def result(self) -> Converted:
        """Return what convert_file() returns."""
        reports = {entry: done.report for entry, done in self._done.items()}
        return Converted(reports, notes=tuple(self.notes))

    def add(self, found: LayerCells, version: Version, hints: Hints) -> None:
        """Add the cells of a layer that Keras 3 needs in another form, if there are any.

        version: of the Keras that wrote it. hints: what the caller knows of a layer without a
        config. Raises LossyError if a weight becomes infinite, or is rounded and exact is set.
        """
        nodes: Sequence[Node | None] = [None] * len(found.cells)
        hard = [_hard_by_hints(cell, hints) for cell in found.cells]
        if found.layer:
            nodes, hard = found.layer.cells, _hard_by_config(found.layer, version)
            if any(hard) or any(kind_of(node) in CUDNN for node in found.layer.cells):
                found.check_count()
        for node, cell, known in zip(nodes, found.cells, hard, strict=False):
            if spec := _cudnn_spec(cell):
                bits = _cell_bits(found.name, cell)
                spec = spec.replace(dtype=bits["kernel"].dtype)
                given = read_described(bits, spec, "keras-cudnn")
                new, report = engine.run_conversion(given, _KERAS, self.dtype, self.exact)
                self._put(found.name, cell, given.dtype, new, report)
                self.cudnn.append((node, cell))
            elif known:
                self._add_scaled(found.name, cell, known)
                self.scaled.add(id(node))

    def _add_scaled(self, entry: str, cell: CellArrays, hints: dict[str, Any]) -> None:
        given = read_source(_cell_bits(entry, cell), CallerSpec(None, _KERAS, hints=hints))
        unscaled, report = engine.run_conversion(given, _KERAS, self.dtype, self.exact)
        wide, _ = engine.run_conversion(given, _KERAS, "float64")
        try:
            scaled = _scale_gates(wide)
            new, _ = engine.run_conversion(wide, _KERAS, unscaled.dtype)
        except (FloatingPointError, LossyError):
            raise LossyError(
                f"{self.what}: a weight of {entry!r} is infinite, times {_TIMES} for hard_sigmoid"
            ) from None
        if scaled and self.exact:
            raise LossyError(
                f"exact conversion refused: {entry!r} has the hard_sigmoid of Keras 2, and for that"
                f" of Keras 3 {scaled} weights would be multiplied by {_TIMES}, which rounds them"
            )
        self._put(entry, cell, given.dtype, new, report, scaled)

    def _put(
        self,
        entry: str,
        cell: CellArrays,
        src: str,
        new: CheckedRNN,
        report: engine.Report,
        scaled: int = 0,
    ) -> None:
        if new.dtype == "bfloat16":
            why = f"{self.what}: a model of Keras 2 cannot store bfloat16: omit "
            raise LayoutError(why + Ask("dtype", None))
        done = self._done.setdefault(entry, _CellChange(src, new.dtype))
        done.sums += report.rounded_sums
        done.scaled += scaled
        done.rounds |= bool(scaled) or report.grade != "exact"
        for leaf, array in new.tensors.items():
            self.arrays[cell[leaf].path] = array


def _cell_bits(entry: str, cell: CellArrays) -> dict[str, Bits]:
    return {leaf: cell[leaf].floats(entry) for leaf in LEAVES if leaf in cell}


def _hard_by_config(layer: RecurrentLayer, version: Version) -> list[dict[str, Any]]:
    """Return how to read each cell whose gates have Keras 2's hard_sigmoid, {} for others."""
    hard: list[dict[str, Any]] = []
    for node in layer.cells:
        config, kind = config_of(node), kind_of(node)
        is_hard = recurrent_activation(config, version) == "hard_sigmoid" and version < (3, 0)
        hard.append({})
        if is_hard and kind.lower() in _GATED.values() and not unknown_classes_in(layer):
            config["recurrent_activation"] = "hard_sigmoid"  # in case it was the default
            # the other activation is unchanged, so it may be one that rnnlayout lacks
            hard[-1] = read_config(kind, {**config, "activation": "tanh"}, version).hints
    return hard


def _hard_by_hints(cell: CellArrays, hints: Hints) -> dict[str, Any]:
    """Return how to read a cell that has Keras 2's hard_sigmoid because the caller says so."""
    known = hints.asked.hints
    if known.get("recurrent_activation") != HARD_SIGMOIDS[1] or not is_gated(cell):
        return {}
    # tensors without biases do not show the reset
    keys = {"recurrent_activation", *(() if "bias" in cell else ("reset",))}
    return {key: known[key] for key in keys & known.keys()}


def is_gated(cell: CellArrays) -> bool:
    """Return whether the shape is that of an LSTM or a GRU."""
    return count_gates(cell["recurrent_kernel"].shape) in _GATED


def _cudnn_spec(cell: CellArrays) -> Spec | None:
    """Return the RNN of a cell of cuDNN's layers, whose shapes show two biases per gate, with any
    dtype; None of another cell.
    """
    shapes = [cell[leaf].shape for leaf in LEAVES if leaf in cell]
    if [len(shape) for shape in shapes] != [2, 2, 1] or 0 in shapes[0] + shapes[1]:
        return None
    (width, _), (hidden, wide), (biases,) = shapes
    kind = _GATED.get(biases // (2 * hidden))
    same = biases == 2 * wide and wide == shapes[0][1] and wide % hidden == 0
    return Spec(kind, width, hidden) if kind and same else None


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
