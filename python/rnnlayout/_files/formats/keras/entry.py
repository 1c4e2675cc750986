"""An entry of a Keras file: the arrays of its cells and what the config says, as Weights."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rnnlayout._files.bags.bag import Ask
from rnnlayout._files.bags.found import Found
from rnnlayout._model.dtypes import FLOATS, Bits
from rnnlayout._model.errors import FileError
from rnnlayout._model.given import Given
from rnnlayout._model.layout import known_layouts
from rnnlayout._native import LayoutError, SpecError
from rnnlayout._sources.keras_config import SIGMOID_SINCE, Told
from rnnlayout._sources.read import check_agrees, read
from rnnlayout._weights.weights import Weights, stack

from .hdf5 import Dataset, Group
from .tree import Recurrent

LEAVES = ("kernel", "recurrent_kernel", "bias")
Cell = Mapping[str, Dataset]  # by LEAVES, or by the names of Keras 1: W, U_i, b_o ...

# Keras 1 has an array a gate, named by letters, and its own letters for two of them.
_KERAS_1 = {"kernel": "W", "recurrent_kernel": "U", "bias": "b"}
_KERAS_1_LETTER = {"g": "c", "n": "h"}
_UNSAID = "the file does not say activations: taken as tanh and sigmoid, as Keras has them"


@dataclass
class Entries:
    """The RNNs of a file as they are found; those that cannot be had with the reason."""

    ask: Ask
    version: tuple[int, int] = (3, 0)  # of the Keras that wrote the file
    weights: dict[str, Weights] = field(default_factory=dict)
    refused: dict[str, Exception] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _read: set[str] = field(default_factory=set)  # paths of the arrays that belong to an RNN

    def wants(self, name: str) -> bool:
        """Does it lie under the prefix that was asked for?"""
        prefix = self.ask.prefix.rstrip("/.")
        return not prefix or name == prefix or name.startswith(prefix + "/")

    def refuse(self, name: str, why: Exception) -> None:
        if self.wants(name):
            self.refused[name] = why

    def add_told(self, layer: Recurrent, cells: Sequence[Cell]) -> None:
        """A layer of the config. FileError: it makes no sense, or the file contradicts it."""
        try:
            told = layer.told(self.version)
        except FileError:
            raise
        except ValueError as error:
            self.refuse(layer.name, error)
            return
        check_cells(layer, cells)
        self.add(layer.name, cells, layer.both, told)

    def add(self, name: str, cells: Sequence[Cell], both: bool, told: list[Told] | None) -> None:
        """cells: of the layers, bottom first; of both directions, forward and backward in turn.

        told: by the config, one a layer; None where the file has no config.
        """
        if not self.wants(name):
            return
        self._read |= {data.path for cell in cells for data in cell.values()}
        each = 1 + both
        rows = [cells[k : k + each] for k in range(0, len(cells), each)]
        try:
            layers = [
                self._layer(name, row, told[k] if told else None) for k, row in enumerate(rows)
            ]
            parts = _stacked(name, layers)
            for weights in parts.values() if self.ask.spec is not None else ():
                check_agrees(self.ask.spec, weights.spec)
        except FileError:
            raise
        except ValueError as error:
            self.refused[name] = error
            return
        self.weights |= parts

    def found(self, root: Group) -> Found:
        """root: of the file, whose other arrays are named too, but for the optimizer's."""
        layers = [group for name, group in root.groups.items() if not name.startswith("optimizer")]
        paths = (data.path for group in layers for data in group.all_datasets())
        others = [path.lstrip("/") for path in paths if path not in self._read]
        return Found(self.weights, self.refused, self.notes, others)

    def _layer(self, name: str, cells: Sequence[Cell], told: Told | None) -> Weights:
        parts = [_arrays(name, cell) for cell in cells]
        tensors = parts[0]
        if len(parts) == 2:
            sides = zip(("forward", "backward"), parts, strict=True)
            tensors = {f"0/{side}/{leaf}": a for side, part in sides for leaf, a in part.items()}
        if told is not None:
            given = read(tensors, None, told.layout, **told.hints)
        else:
            given = self._untold(name, tensors)
        return Weights._of(given, config=told.config if told else None)

    def _untold(self, name: str, tensors: dict[str, Bits]) -> Given:
        """By shapes; what the caller says is for those that they do not tell."""
        layout, spec = self.ask.layout, self.ask.spec
        if spec is not None:
            return read(tensors, None, layout, cell=spec.cell, reset=spec.reset,
                                 recurrent_activation=spec.recurrent_activation)  # fmt: skip
        try:
            given = read(tensors, None, layout)
        except SpecError:
            if self.ask.cell is None and self.ask.reset is None:
                raise
            given = read(tensors, None, layout, cell=self.ask.cell, reset=self.ask.reset)
        if given.layout.name == "keras" and given.spec.cell in ("lstm", "gru"):
            if self.version < SIGMOID_SINCE:
                raise SpecError(
                    f"{name}: the file does not say its recurrent activation, and before Keras 2.3"
                    " hard_sigmoid was usual: pass spec=Spec(..., recurrent_activation="
                    "'hard_sigmoid_keras2' or 'sigmoid') with prefix= the layer's name"
                )
            if _UNSAID not in self.notes:
                self.notes.append(_UNSAID)
        return given


def _stacked(name: str, layers: list[Weights]) -> dict[str, Weights]:
    """One RNN of a stack of cells; where they do not fit, one each."""
    for above in layers[1:]:  # the RNN around the cells goes backwards, and not each of them
        above.config.pop("go_backwards", None)
    try:
        return {name: stack(layers)}
    except LayoutError:
        return {f"{name}/{k}": layer for k, layer in enumerate(layers)}


def _arrays(name: str, cell: Cell) -> dict[str, Bits]:
    if cell.keys() <= set(LEAVES):
        return {leaf: _bits(name, cell[leaf]) for leaf in LEAVES if leaf in cell}
    return _from_keras_1(name, {leaf: _bits(name, data) for leaf, data in cell.items()})


def _bits(name: str, data: Dataset) -> Bits:
    if data.dtype not in FLOATS:
        raise LayoutError(f"{name}: {data.path} is {data.dtype}, need one of {', '.join(FLOATS)}")
    return Bits(data.bits(), data.dtype)


def _from_keras_1(name: str, arrays: Mapping[str, Bits]) -> dict[str, Bits]:
    """The arrays of today: those of the gates side by side, in the order of the layout's row."""
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
    raise LayoutError(f"{name}: its arrays are {', '.join(arrays)}: no LSTM, GRU or SimpleRNN")


def _joined(parts: list[Bits], name: str) -> Bits:
    shapes = {(part.array.shape, part.dtype) for part in parts}
    if len(shapes) != 1 or parts[0].array.ndim not in (1, 2):
        raise LayoutError(f"{name}: the arrays of its gates differ in shape or dtype")
    return Bits(np.concatenate([part.array for part in parts], axis=-1), parts[0].dtype)


def check_cells(layer: Recurrent, cells: Sequence[Cell]) -> None:
    """FileError: a layer's cells in the file are not as many as the config tells of."""
    if len(cells) != len(layer.cells):
        raise FileError(
            f"{layer.name!r} has {len(cells)} sets of recurrent weights, its config tells of"
            f" {len(layer.cells)}"
        )


def natural(name: str) -> tuple[str, int]:
    """Sorts lstm, lstm_1, lstm_2, lstm_10 so."""
    match = re.fullmatch(r"(.*?)(?:_(\d{1,9}))?", name, re.DOTALL)
    return (match[1], int(match[2] or 0)) if match else (name, 0)
