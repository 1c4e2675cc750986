"""The RNNs of a Keras file: arrays of cells, and what the config says about them, as Weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from rnnlayout._files.tensor_sets.choose_rnns import stack_entries
from rnnlayout._files.tensor_sets.find_rnns import (
    DEFAULT_ACTIVATIONS,
    unknown_class_question,
    unrecorded,
)
from rnnlayout._files.tensor_sets.found import Found, distinct_names
from rnnlayout._files.tensor_sets.record import KEY, Record, read_records
from rnnlayout._files.tensor_sets.tensor_set import FileTensor
from rnnlayout._model.dtypes import Bits
from rnnlayout._model.errors import Ask, FileError, Message, TextPart, error_with_name
from rnnlayout._model.layout import Layout, known_layouts
from rnnlayout._model.spec import CELLS, HARD_SIGMOIDS, differing_fields
from rnnlayout._model.undecided import UndecidedError
from rnnlayout._model.weights import Weights, changed_weights
from rnnlayout._native import LayoutError, SpecError
from rnnlayout._sources.keras_tree import SIGMOID_SINCE, RecurrentLayer, Version, short_repr
from rnnlayout._sources.read_source import read_source
from rnnlayout._sources.read_tensors import read_described
from rnnlayout._sources.reading import Reading
from rnnlayout._sources.self_description import RNNDescription
from rnnlayout._sources.tensor_paths import is_under_with_direction

from .config import read_architecture, unknown_classes_in
from .hdf5_tree import Hdf5Group

LEAVES = ("kernel", "recurrent_kernel", "bias")


class CellArray(NamedTuple):
    """An array of a cell in a file. path: where it is in the file."""

    path: str
    tensor: FileTensor


_Array = TypeVar("_Array")
CellArrays = Mapping[str, CellArray]  # by LEAVES, or by the names of Keras 1: W, U_i, b_o ...
_Rows = Sequence[Sequence[CellArrays]]  # for each layer, bottom first, the cells of its directions

# Keras 1 has an array per gate, named by letters, of which two are its own.
_KERAS_1 = {"kernel": "W", "recurrent_kernel": "U", "bias": "b"}
_KERAS_1_LETTER = {"g": "c", "n": "h"}


@dataclass(frozen=True)
class LayerCells:
    """A recurrent layer of a file. cells: bottom first, of a bidirectional layer the forward one
    before the backward one. layer: its part of the config; None if no config describes it."""

    name: str
    cells: Sequence[CellArrays]
    both: bool
    layer: RecurrentLayer | None = None

    @property
    def paths(self) -> set[str]:
        return {data.path for cell in self.cells for data in cell.values()}

    def check_count(self) -> None:
        """Raise FileError if the file and the config have different numbers of cells."""
        if self.layer and len(self.cells) != len(self.layer.cells):
            raise FileError(
                f"{self.name!r}: the file has weights of {len(self.cells)} cells, its config has"
                f" {len(self.layer.cells)} cells"
            )


class KerasEntries:
    """The RNNs of a Keras file, collected one by one, with the errors of those that cannot be read.

    paths: of all arrays of the file's model. records: what rnnlayout recorded in the file. version:
    of the Keras that wrote the file. beside: the config that the caller has in a file of its own.
    """

    def __init__(
        self,
        paths: Iterable[str],
        records: Mapping[str, Record],
        reading: Reading,
        version: Version,
    ) -> None:
        self.reading, self.version, self._paths, self.records = reading, version, paths, records
        self.beside = (
            None if reading.keras_config is None else read_architecture(reading.keras_config)
        )
        self._entries: list[tuple[str, Weights | Exception, _Rows]] = []
        self._rows: dict[str, _Rows] = {}  # the cells of each RNN, by its name
        self._guessed: list[Weights] = []  # those without a config and a record
        self._used: set[str] = set()  # paths of the arrays that belong to an RNN

    @classmethod
    def of_hdf5(cls, root: Hdf5Group, reading: Reading, version: Version = (3, 0)) -> KerasEntries:
        """Return those of an HDF5 file; the arrays of an optimizer are not the model's."""
        models = [group for name, group in root.groups.items() if not name.startswith("optimizer")]
        paths = (data.path for group in models for data in group.all_datasets())
        told = root.texts(KEY)  # what rnnlayout recorded, by the names of the layers
        records = read_records({KEY: "".join(told)}, root.what) if told else {}
        return cls(paths, records, reading, version)

    def _add(self, found: LayerCells) -> None:
        if not is_under_with_direction(found.name, self.reading.prefix):
            return
        self._used |= found.paths
        each = 1 + found.both
        rows = [found.cells[k : k + each] for k in range(0, len(found.cells), each)]
        names = cell_names(found.name, len(rows))
        layers: dict[str, Weights] = {}
        questions: dict[str, Exception] = {}
        try:
            described = found.layer.descriptions(self.version) if found.layer else None
            found.check_count()
            for k, (one, row) in enumerate(zip(names, rows, strict=True)):
                try:
                    layers[one] = self._layer(one, row, described[k] if described else None)
                except UndecidedError as error:
                    questions[one] = error_with_name(error, one)
        except FileError:
            raise
        except ValueError as error:
            self._entries.append((found.name, error, rows))
            return
        unknown = unknown_classes_in(found.layer) if found.layer else {}
        what = " and ".join(f"class {short_repr(n)}, read as {kind}" for n, kind in unknown.items())
        own = {one: [row] for one, row in zip(names, rows, strict=True)}
        for one, weights in stack_entries(layers, names, found.name).items():
            asked = unknown_class_question(one, weights, what, unknown) if unknown else None
            self._entries.append((one, asked or weights, own.get(one, rows)))
        self._entries += [(one, question, own[one]) for one, question in questions.items()]

    def found(self, layers: Iterable[LayerCells]) -> Found:
        """Return the RNNs of all recurrent layers. The result names the arrays of the file that
        belong to no RNN. Raises FileError if the config of a layer is malformed or does not fit."""
        for layer in layers:
            self._add(layer)
        others = [path.lstrip("/") for path in self._paths if path not in self._used]
        names = distinct_names([name for name, *_ in self._entries])
        found = dict(zip(names, (one for _, one, _ in self._entries), strict=True))
        self._rows = dict(zip(names, (rows for *_, rows in self._entries), strict=True))
        weights = {name: one for name, one in found.items() if isinstance(one, Weights)}
        unread = {name: one for name, one in found.items() if isinstance(one, Exception)}
        return Found(weights, unread, unrecorded(self._guessed, self.reading), others)

    def new_arrays(self, new: Mapping[str, Weights]) -> dict[str, np.ndarray]:
        """Return the arrays of new weights for RNNs, by their paths in the file. Raises LayoutError
        if the file stores others than these, as Keras 1 does."""
        arrays: dict[str, np.ndarray] = {}
        for name, weights in new.items():
            layers = weights.split()
            for row, layer in zip(self._rows.get(name, [[{}]] * len(layers)), layers, strict=True):
                old = _tensors_of_cells(row)
                if {*layer.names} != {*old} or layer.spec.dtype == "bfloat16":
                    raise LayoutError(
                        f"{name}: the file stores {', '.join(old) or 'it in another form'}: no"
                        f" place for {', '.join(layer.names)} in {layer.spec.dtype}"
                    )
                places = (old[tensor].path for tensor in layer.names)
                arrays |= zip(places, layer.arrays, strict=True)
        return arrays

    def _layer(self, name: str, cells: Sequence[CellArrays], own: RNNDescription | None) -> Weights:
        tensors = _tensors_of_cells([cell_bits(name, cell) for cell in cells])
        record = self.records.get(name)
        if own is not None:
            weights = read_source(tensors, Reading(None, Layout(own.layout), fields=own.hints))
            different = differing_fields(record.spec, weights.spec) if record else ""
            if self.beside and different:
                raise FileError(
                    f"{name}: the file records another RNN than {self.beside.name} describes"
                    f" ({different}): omit ",
                    Ask("keras_config", None),
                )
            if record and not different:
                weights = changed_weights(weights, spec=record.spec)  # it also has the bias mode
            return changed_weights(weights, config=own.config, batch_first=own.batch_first)
        if record is not None:  # in the dtype that it has now
            spec = record.spec.replace(dtype=next(iter(tensors.values())).dtype)
            try:
                weights = read_described(tensors, spec, record.layout)
            except (LayoutError, SpecError) as error:
                raise FileError(
                    f"{name}: ",
                    error,
                    f"; the file's record is of {record.spec}: the file was changed after rnnlayout"
                    " wrote it",
                ) from None
            return changed_weights(weights, config=record.config, batch_first=record.batch_first)
        weights = changed_weights(self._by_shapes(name, tensors), batch_first=True)
        self._guessed.append(weights)
        return weights

    def _by_shapes(self, name: str, tensors: dict[str, Bits]) -> Weights:
        """Read a layer of a file without a config. The reading has what its shapes do not show."""
        layout, spec = self.reading.layout, self.reading.spec
        fields = dict(self.reading.fields)
        if spec is not None:
            fields |= {"cell": spec.cell, "reset": spec.reset}
            fields |= {key: found for key, default in DEFAULT_ACTIVATIONS.items()
                      if (found := getattr(spec, key)) != default}  # fmt: skip
        shapes = (a.array.shape for leaf, a in tensors.items() if leaf.endswith(LEAVES[1]))
        if not any(count_gates(shape) > 1 for shape in shapes):
            fields = {key: value for key, value in fields.items() if key not in DEFAULT_ACTIVATIONS}
        activation = fields.get("recurrent_activation")
        check_activation(activation, self.version)

        def lacks_activation(weights: Weights) -> bool:  # it may be another than sigmoid
            is_gated = weights.layout.name == "keras" and CELLS[weights.spec.cell].is_gated
            return activation is None and is_gated and self.version < SIGMOID_SINCE

        try:
            known = {key: fields[key] for key in DEFAULT_ACTIVATIONS if key in fields}
            weights = read_source(tensors, Reading(None, layout, fields=known))
        except UndecidedError as question:
            try:
                weights = read_source(tensors, Reading(None, layout, fields=fields))
            except LayoutError:  # the fields are meant for another RNN
                raise question from None
            except UndecidedError as question:
                if lacks_activation(question.candidates[0]):
                    raise _without_activation(question.candidates, question) from None
                raise
        if lacks_activation(weights):
            raise _without_activation([weights])
        return weights


def _tensors_of_cells(cells: Sequence[Mapping[str, _Array]]) -> dict[str, _Array]:
    """Return the arrays of a layer, of one direction or both, by their names in a layout."""
    if len(cells) == 1:
        return dict(cells[0])
    sides = zip(("forward", "backward"), cells, strict=True)
    return {f"0/{side}/{leaf}": array for side, cell in sides for leaf, array in cell.items()}


def _without_activation(
    rnns: Sequence[Weights], other: UndecidedError | None = None
) -> UndecidedError:
    """Return the question for the recurrent activation, after another question about the RNN."""
    message = Message(
        "the file does not record its recurrent activation, and before Keras 2.3 hard_sigmoid was"
        " the default: pass ", Ask("recurrent_activation", HARD_SIGMOIDS[1]), " or ",
        Ask("recurrent_activation", "sigmoid"), ", or ", Ask("keras_config"),
        " with the file of the model's to_json() if the layers differ",
    )  # fmt: skip
    reason = "recurrent activation, not stored in Keras files before 2.3"
    fit = [
        changed_weights(rnn, spec=rnn.spec.replace(recurrent_activation=activation))
        for rnn in rnns
        for activation in (HARD_SIGMOIDS[1], "sigmoid")
    ]
    parts: list[TextPart] = [other, "; and ", message] if other else [message]
    return UndecidedError(
        *parts,
        candidates=fit,
        arguments=[*(other.arguments if other else ()), "recurrent_activation"],
        reason=f"{other.reason}; {reason}" if other else reason,
    )


def check_activation(activation: str | None, version: Version) -> None:
    """Raise SpecError if the caller means Keras 3's hard_sigmoid in a file of an earlier Keras."""
    if activation == HARD_SIGMOIDS[0] and version < (3, 0):
        raise SpecError(
            f"recurrent activation {activation!r} is the function of Keras 3, and an earlier Keras"
            " wrote the file: for its hard_sigmoid pass ",
            Ask("recurrent_activation", HARD_SIGMOIDS[1]),
        )


def cell_names(name: str, count: int) -> list[str]:
    return [f"{name}/{k}" for k in range(count)] if count > 1 else [name]


def count_gates(shape: tuple[int, ...]) -> int:
    """Return G of a recurrent kernel (H, G H), 0 if it has no such shape; 1 for a plain RNN."""
    return shape[1] // shape[0] if len(shape) == 2 and shape[0] else 0


def cell_bits(name: str, cell: CellArrays) -> dict[str, Bits]:
    """Return the arrays of a cell by LEAVES. name: the layer's, for messages."""
    arrays = {key: data.tensor.floats(f"{name}: {data.path}") for key, data in cell.items()}
    if cell.keys() <= set(LEAVES):
        return {leaf: arrays[leaf] for leaf in LEAVES if leaf in arrays}
    if arrays.keys() <= set(_KERAS_1.values()):  # consume_less="gpu", and SimpleRNN
        return {leaf: arrays[old] for leaf, old in _KERAS_1.items() if old in arrays}
    gates = known_layouts()["keras"]["gates"]
    for order in (gates["lstm"], gates["gru"]):
        letters = [_KERAS_1_LETTER.get(gate, gate) for gate in order]
        if arrays.keys() == {f"{old}_{k}" for old in _KERAS_1.values() for k in letters}:
            joined = {}
            for leaf, old in _KERAS_1.items():
                parts = [arrays[f"{old}_{letter}"] for letter in letters]
                shapes = {(part.array.shape, part.dtype) for part in parts}
                if len(shapes) != 1 or parts[0].array.ndim not in (1, 2):
                    raise LayoutError(f"{name}: the arrays of its gates differ in shape or dtype")
                whole = np.concatenate([part.array for part in parts], axis=-1)
                joined[leaf] = Bits(whole, parts[0].dtype)
            return joined
    raise LayoutError(f"{name}: its arrays are {', '.join(arrays)}: not an LSTM, GRU or SimpleRNN")
