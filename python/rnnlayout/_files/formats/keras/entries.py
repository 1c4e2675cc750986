"""The RNNs of a Keras file: arrays of cells, and what the config says about them, as Weights."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rnnlayout._files.bags.bag import Hints
from rnnlayout._files.bags.found import Found
from rnnlayout._files.bags.naming import distinct
from rnnlayout._files.bags.stacks import stacked
from rnnlayout._model.dtypes import Bits
from rnnlayout._model.errors import FileError
from rnnlayout._model.given import Given
from rnnlayout._model.layout import known_layouts
from rnnlayout._native import LayoutError, SpecError
from rnnlayout._sources.keras_config import SIGMOID_SINCE, Description
from rnnlayout._sources.keras_tree import Recurrent, Version
from rnnlayout._sources.places import is_under
from rnnlayout._sources.read import read
from rnnlayout._weights.weights import Weights, weights_of

from .hdf5 import Dataset, Group

LEAVES = ("kernel", "recurrent_kernel", "bias")
Cell = Mapping[str, Dataset]  # by LEAVES, or by the names of Keras 1: W, U_i, b_o ...

# Keras 1 has an array per gate, named by letters, of which two are its own.
_KERAS_1 = {"kernel": "W", "recurrent_kernel": "U", "bias": "b"}
_KERAS_1_LETTER = {"g": "c", "n": "h"}
_DEFAULTS = "the file does not record activations: taken as tanh and sigmoid, Keras's defaults"


@dataclass
class Entries:
    """The RNNs of a file, collected one by one, with the errors of those that cannot be read."""

    hints: Hints
    version: Version = (3, 0)  # of the Keras that wrote the file
    entries: list[tuple[str, Weights | Exception]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _used: set[str] = field(default_factory=set)  # paths of the arrays that belong to an RNN

    def add_layer(self, layer: Recurrent, cells: Sequence[Cell]) -> None:
        """Add a layer of the config. Raises FileError if it is malformed or does not fit."""
        try:
            described = layer.descriptions(self.version)
        except FileError:
            raise
        except ValueError as error:
            if is_under(layer.name, self.hints.prefix):
                self.entries.append((layer.name, error))
            return
        check_cells(layer, cells)
        self.add(layer.name, cells, layer.both, described)

    def add(
        self, name: str, cells: Sequence[Cell], both: bool, described: list[Description] | None
    ) -> None:
        """Add an RNN. cells: of its layers, bottom first; of both directions, forward first.

        described: what the config says about each layer; None if the file has no config.
        """
        if not is_under(name, self.hints.prefix):
            return
        self._used |= {data.path for cell in cells for data in cell.values()}
        each = 1 + both
        rows = [cells[k : k + each] for k in range(0, len(cells), each)]
        try:
            layers = [
                self._layer(name, row, described[k] if described else None)
                for k, row in enumerate(rows)
            ]
            parts = _stacked(name, layers)
        except FileError:
            raise
        except ValueError as error:
            self.entries.append((name, error))
            return
        self.entries += parts.items()

    def found(self, root: Group) -> Found:
        """Return the result. root: of the file, whose other arrays are named too, but not an
        optimizer's."""
        layers = [group for name, group in root.groups.items() if not name.startswith("optimizer")]
        paths = (data.path for group in layers for data in group.all_datasets())
        others = [path.lstrip("/") for path in paths if path not in self._used]
        names = distinct([name for name, _ in self.entries])
        found = dict(zip(names, (one for _, one in self.entries), strict=True))
        weights = {name: one for name, one in found.items() if isinstance(one, Weights)}
        refused = {name: one for name, one in found.items() if isinstance(one, Exception)}
        return Found(weights, refused, self.notes, others)

    def _layer(self, name: str, cells: Sequence[Cell], own: Description | None) -> Weights:
        parts = [_arrays(name, cell) for cell in cells]
        tensors = parts[0]
        if len(parts) == 2:
            sides = zip(("forward", "backward"), parts, strict=True)
            tensors = {f"0/{side}/{leaf}": a for side, part in sides for leaf, a in part.items()}
        if own is None:
            return weights_of(replace(self._by_shapes(name, tensors), batch_first=True))
        given = read(tensors, None, own.layout, **own.hints)
        return weights_of(replace(given, config=own.config, batch_first=own.batch_first))

    def _by_shapes(self, name: str, tensors: dict[str, Bits]) -> Given:
        """Read a layer of a file without a config; hints are for what its shapes do not show."""
        layout, spec = self.hints.layout, self.hints.spec
        if spec is not None:
            return read(tensors, None, layout, cell=spec.cell, reset=spec.reset,
                        recurrent_activation=spec.recurrent_activation)  # fmt: skip
        activation = self.hints.recurrent_activation
        try:
            given = read(tensors, None, layout, recurrent_activation=activation)
        except SpecError:
            given = read(tensors, None, layout, **self.hints.hidden)
        if activation is not None:
            return given
        if given.layout.name == "keras" and given.spec.cell in ("lstm", "gru"):
            if self.version < SIGMOID_SINCE:
                raise SpecError(
                    f"{name}: the file does not record its recurrent activation, and before Keras"
                    " 2.3 hard_sigmoid was the default: pass"
                    " recurrent_activation='hard_sigmoid_keras2' or recurrent_activation='sigmoid',"
                    f" with prefix={name!r} if the layers differ"
                )
            if _DEFAULTS not in self.notes:
                self.notes.append(_DEFAULTS)
        return given


def _stacked(name: str, layers: list[Weights]) -> dict[str, Weights]:
    """Return a stack of cells as one RNN, or as one RNN per cell if they do not fit."""
    entries = {f"{name}/{k}": layer for k, layer in enumerate(layers)}
    return stacked(entries, list(entries), name)


def _arrays(name: str, cell: Cell) -> dict[str, Bits]:
    """Return the arrays of a cell by LEAVES."""
    arrays = {leaf: data.floats(name) for leaf, data in cell.items()}
    if cell.keys() <= set(LEAVES):
        return {leaf: arrays[leaf] for leaf in LEAVES if leaf in arrays}
    if arrays.keys() <= set(_KERAS_1.values()):  # consume_less="gpu", and SimpleRNN
        return {leaf: arrays[old] for leaf, old in _KERAS_1.items() if old in arrays}
    gates = known_layouts()["keras"]["gates"]
    for order in (gates["lstm"], gates["gru"]):
        letters = [_KERAS_1_LETTER.get(gate, gate) for gate in order]
        if arrays.keys() == {f"{old}_{k}" for old in _KERAS_1.values() for k in letters}:
            return {
                leaf: _joined([arrays[f"{old}_{letter}"] for letter in letters], name)
                for leaf, old in _KERAS_1.items()
            }
    raise LayoutError(f"{name}: its arrays are {', '.join(arrays)}: not an LSTM, GRU or SimpleRNN")


def _joined(parts: list[Bits], name: str) -> Bits:
    shapes = {(part.array.shape, part.dtype) for part in parts}
    if len(shapes) != 1 or parts[0].array.ndim not in (1, 2):
        raise LayoutError(f"{name}: the arrays of its gates differ in shape or dtype")
    return Bits(np.concatenate([part.array for part in parts], axis=-1), parts[0].dtype)


def check_cells(layer: Recurrent, cells: Sequence[Cell]) -> None:
    """Raise FileError if the file and the config have different numbers of cells."""
    if len(cells) != len(layer.cells):
        raise FileError(
            f"{layer.name!r}: the file has weights of {len(cells)} cells, its config has"
            f" {len(layer.cells)} cells"
        )


def natural(name: str) -> tuple[str, int]:
    """Return a sort key for lstm, lstm_1, lstm_2, lstm_10."""
    match = re.fullmatch(r"(.*?)(?:_(\d{1,9}))?", name, re.DOTALL)
    return (match[1], int(match[2] or 0)) if match else (name, 0)
