"""The RNNs of a Keras file: arrays of cells and their description in the config, as Weights."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from posixpath import commonpath
from typing import NamedTuple, TypeVar

import numpy as np

from rnnlayout._files.tensor_sets.account import RNNTensors, account_for_tensors
from rnnlayout._files.tensor_sets.choose_rnns import stack_entries
from rnnlayout._files.tensor_sets.file_limits import Budget
from rnnlayout._files.tensor_sets.file_rnns import Found, distinct_names
from rnnlayout._files.tensor_sets.find_rnns import (
    DEFAULT_ACTIVATIONS,
    assume_keras_options,
    note_one_direction,
    unknown_class_question,
)
from rnnlayout._files.tensor_sets.record import KEY, Record, read_records
from rnnlayout._files.tensor_sets.tensor_set import FileTensor
from rnnlayout._model.dtypes import Bits
from rnnlayout._model.errors import Ask, FileError, Message, TextPart, error_with_name
from rnnlayout._model.layout import Layout, known_layouts
from rnnlayout._model.spec import CELLS, HARD_SIGMOIDS, differing_fields
from rnnlayout._model.undecided import UndecidedError
from rnnlayout._model.weights import Weights, changed_weights
from rnnlayout._native import LayoutError, LossyError, SpecError
from rnnlayout._sources.accounting import is_ignored
from rnnlayout._sources.keras_tree import (
    SIGMOID_SINCE,
    Node,
    RecurrentLayer,
    Version,
    child_layers,
    short_repr,
)
from rnnlayout._sources.read_source import read_source
from rnnlayout._sources.read_tensors import read_described
from rnnlayout._sources.reading import Reading
from rnnlayout._sources.self_description import RNNDescription
from rnnlayout._sources.tensor_paths import is_under_with_direction

from .config import (
    read_architecture,
    read_unknown_classes,
    unknown_classes_in,
    unread_layers_in,
)
from .hdf5_tree import Hdf5Group

LEAVES = ("kernel", "recurrent_kernel", "bias")


class CellArray(NamedTuple):
    """An array of a cell in a file. path: the array's path in the file."""

    path: str
    tensor: FileTensor


_Array = TypeVar("_Array")
CellArrays = Mapping[str, CellArray]  # by LEAVES, or by the names of Keras 1: W, U_i, b_o ...
IS_CELL = re.compile(r"(\w*_)?(cell|stacked_rnn_cells)(_\d+)?")  # a part of a path
_SIDE = re.compile(r"(forward|backward)(?:_.*)?", re.DOTALL)  # of a Bidirectional, in a path
_Rows = Sequence[Sequence[CellArrays]]  # for each layer, bottom first, the cells of its directions

# Keras 1 has an array per gate, named by letters; two letters differ from ours.
_KERAS_1 = {"kernel": "W", "recurrent_kernel": "U", "bias": "b"}
_KERAS_1_LETTER = {"g": "c", "n": "h"}


@dataclass(frozen=True)
class LayerCells:
    """A recurrent layer of a file. cells: bottom first; in a bidirectional layer each forward cell
    before its backward cell. layer: the layer in the config; None if no config describes it."""

    name: str
    cells: Sequence[CellArrays]
    both: bool
    layer: RecurrentLayer | None = None

    @property
    def paths(self) -> set[str]:
        return {array.path for cell in self.cells for array in cell.values()}

    def has_matrices(self) -> bool:
        """Return whether all kernels are matrices, unlike those of ConvLSTM2D."""
        ranks = (len(cell[leaf].tensor.shape) for cell in self.cells for leaf in LEAVES[:2])
        return all(rank == 2 for rank in ranks)

    def check_sides(self) -> None:
        """Raise LayoutError if a direction of a Bidirectional without a config lacks a matrix."""
        if not self.layer and self.both and len(self.cells) % 2:
            raise LayoutError(
                f"{self.name}: the kernel or recurrent kernel is missing in forward_layer or"
                " backward_layer of this Bidirectional"
            )

    def check_count(self) -> None:
        """Raise FileError if the file and the config have different numbers of cells."""
        if self.layer and len(self.cells) != len(self.layer.cells):
            raise FileError(
                f"{self.name!r}: the file has weights of {len(self.cells)} cells, its config has"
                f" {len(self.layer.cells)} cells"
            )


class KerasEntries:
    """The RNNs of a Keras file, collected layer by layer, with the errors of unreadable RNNs.

    paths: of all arrays of the file's model. records: rnnlayout's records in the file. version: of
    the Keras that wrote the file. architecture: the config that the caller passes, None without.
    optimizer_paths: of the arrays of an optimizer.
    budget: of the file.
    """

    def __init__(
        self,
        paths: Iterable[str],
        records: Mapping[str, Record],
        reading: Reading,
        version: Version,
        budget: Budget,
        optimizer_paths: Iterable[str] = (),
    ) -> None:
        self._optimizer_paths = optimizer_paths
        self._budget = budget
        self.reading, self.version, self._paths, self.records = reading, version, paths, records
        self.architecture = (
            None if reading.keras_config is None else read_architecture(reading.keras_config)
        )
        self._entries: list[tuple[str, Weights | Exception, _Rows]] = []
        self._rows: dict[str, _Rows] = {}  # the cells of each RNN, by the RNN's name
        self._all_rows: list[Sequence[CellArrays]] = []  # also of RNNs that the caller left out
        self._guessed: list[Weights] = []  # layers without a config and a record
        self._used: set[str] = set()  # paths of the arrays that belong to an RNN

    @classmethod
    def of_hdf5(cls, root: Hdf5Group, reading: Reading, version: Version = (3, 0)) -> KerasEntries:
        """Return an empty collection for the RNNs of an HDF5 file. The arrays of an optimizer are
        not arrays of the model."""
        models = [group for name, group in root.groups.items() if not name.startswith("optimizer")]
        paths = (dataset.path for group in models for dataset in group.all_datasets())
        others = [group for name, group in root.groups.items() if name.startswith("optimizer")]
        optimizer_paths = [d.path for group in others for d in group.all_datasets()]
        record_texts = root.texts(KEY)  # records by the names of the layers
        records = read_records({KEY: "".join(record_texts)}, root.label) if record_texts else {}
        return cls(paths, records, reading, version, root.budget, optimizer_paths)

    def _add(self, file_layer: LayerCells) -> None:
        cells, num_sides = file_layer.cells, 1 + file_layer.both
        rows = [cells[k : k + num_sides] for k in range(0, len(cells), num_sides)]
        self._all_rows += rows
        if not is_under_with_direction(file_layer.name, self.reading.prefix):
            return
        self._used |= file_layer.paths
        names = cell_names(file_layer.name, len(rows))
        layers: dict[str, Weights] = {}
        questions: dict[str, Exception] = {}
        try:
            described = file_layer.layer.descriptions(self.version) if file_layer.layer else None
            file_layer.check_count()
            file_layer.check_sides()
            for k, (layer_name, row) in enumerate(zip(names, rows, strict=True)):
                try:
                    description = described[k] if described else None
                    layers[layer_name] = self._read_layer(layer_name, row, description)
                except UndecidedError as error:
                    questions[layer_name] = error_with_name(error, layer_name)
        except FileError:
            raise
        except ValueError as error:
            self._entries.append((file_layer.name, error, rows))
            return
        unknown = unknown_classes_in(file_layer.layer) if file_layer.layer else {}
        classes = " and ".join(
            f"class {short_repr(name)}, read as {kind}" for name, kind in unknown.items()
        )
        rows_of = {layer_name: [row] for layer_name, row in zip(names, rows, strict=True)}
        for name, weights in stack_entries(layers, names, file_layer.name).items():
            result: Weights | Exception = weights
            if unknown:
                result = unknown_class_question(name, weights, classes, unknown)
            self._entries.append((name, result, rows_of.get(name, rows)))
        self._entries += [(name, question, rows_of[name]) for name, question in questions.items()]

    def read_classes(self, model: Node) -> None:
        """Accept the unknown classes of a model that the caller names, and refuse the recurrent
        layers of classes that are not read."""
        read_unknown_classes(model, self.reading)
        for child in child_layers(model):
            for path, kind in unread_layers_in(child):
                self.refuse(path, kind)

    def refuse(self, path: tuple[str, ...], kind: str) -> None:
        """Refuse a recurrent layer of a class that is not read."""
        name = self._joined(path)
        if is_under_with_direction(name, self.reading.prefix):
            why = "the file does not show what it computes: load it with Keras, and pass the layer"
            if kind.startswith("ConvLSTM"):
                why = "no layout can represent it"
            label = f"{name!r} is a recurrent layer of class {short_repr(kind)}"
            self._entries.append((name, LossyError(f"{label}: {why}"), ()))

    def refuse_layers(self, paths: Iterable[tuple[str, ...]]) -> None:
        """Refuse the recurrent layers of a config that the file lacks."""
        for path in paths:
            name = self._joined(path)
            if is_under_with_direction(name, self.reading.prefix):
                why = "its config describes this layer, and the file lacks its weights"
                self._entries.append((name, LayoutError(f"{name}: {why}"), []))

    def _joined(self, path: tuple[str, ...]) -> str:
        """Return the name of a layer inside models."""
        self._budget.charge("names", sum(map(len, path)))
        return "/".join(path)

    def read_layers(self, layers: Iterable[LayerCells]) -> Found:
        """Return the RNNs of all recurrent layers, and the names of the file's arrays that belong
        to no RNN. Raises FileError if the config of a layer is malformed or does not fit."""
        for layer in layers:
            self._add(layer)
        unused_paths = [path.lstrip("/") for path in self._paths if path not in self._used]
        names = distinct_names([name for name, *_ in self._entries])
        self._rows = dict(zip(names, (rows for *_, rows in self._entries), strict=True))
        read = dict(zip(names, (result for _, result, _ in self._entries), strict=True))
        further = [path for path in unused_paths if not is_ignored(path, self.reading.ignore)]
        places = {name: _place_of(self.paths_of(name)) for name in names}
        results, notes = account_for_tensors(further, (), places, read)
        weights = {name: result for name, result in results.items() if isinstance(result, Weights)}
        unread = {name: result for name, result in results.items() if isinstance(result, Exception)}
        for name in weights:
            notes += self._note_side(name)
        notes += assume_keras_options(self._guessed, self.reading, ("keras_config",))
        unused_paths += [path.lstrip("/") for path in self._optimizer_paths]
        return Found(weights, unread, notes, unused_paths)

    def paths_of(self, name: str) -> list[str]:
        """Return the paths of the arrays of an RNN in the file."""
        return [array.path for row in self._rows[name] for cell in row for array in cell.values()]

    def paths_by_tensor(self, name: str, weights: Weights) -> dict[str, str]:
        """Return name in the layout -> path of the array in the file; {} if the file has the RNN in
        arrays of other names."""
        layers, rows = weights.split(), self._rows.get(name, ())
        if len(rows) != len(layers):
            return {}
        paths: list[str] = []
        for row, layer in zip(rows, layers, strict=True):
            stored = _tensors_of_cells(row)
            if {*stored} != {*layer.names}:
                return {}
            paths += [stored[tensor].path for tensor in layer.names]
        return dict(zip(weights.names, paths, strict=True))

    def rows_in_order(self) -> list[dict[str, FileTensor]]:
        """Return the arrays of each layer of the file, by path, in the order of the model."""
        return [
            {array.path: array.tensor for cell in row for array in cell.values()}
            for row in self._all_rows
        ]

    def _note_side(self, name: str) -> list[str]:
        """Return a note on an RNN whose arrays are of one side of a Bidirectional."""
        parts = {part for path in self.paths_of(name) for part in path.split("/")}
        sides = {match[1] for part in parts - {name} if (match := _SIDE.fullmatch(part))}
        return [note_one_direction(name, *sides)] if len(sides) == 1 else []

    def new_arrays(self, new: Mapping[str, Weights]) -> dict[str, np.ndarray]:
        """Return the arrays of new weights, by the paths of the old arrays in the file. Raises
        LayoutError if the file stores the RNN in arrays of different names, as Keras 1 does."""
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

    def _read_layer(
        self, name: str, cells: Sequence[CellArrays], description: RNNDescription | None
    ) -> Weights:
        tensors = _tensors_of_cells([cell_bits(name, cell) for cell in cells])
        record = self.records.get(name)
        if description is not None:
            layout = Layout(description.layout)
            rnn = read_source(tensors, Reading(None, layout, fields=description.fields))
            use_bias, has_bias = description.fields.get("bias", True), rnn.spec.bias != "none"
            if use_bias != has_bias:
                raise LayoutError(
                    f"{name}: its config has use_bias {use_bias}, the file has"
                    f" {'its' if has_bias else 'no'} biases"
                )
            difference = differing_fields(record.spec, rnn.spec) if record else ""
            if self.architecture and difference:
                raise FileError(
                    f"{name}: the file records another RNN than {self.architecture.name} describes"
                    f" ({difference}): omit ",
                    Ask("keras_config", None),
                )
            if record and not difference:
                rnn = changed_weights(rnn, spec=record.spec)  # the record has the bias mode
            return changed_weights(
                rnn, config=description.config, batch_first=description.batch_first
            )
        if record is not None:  # with the present dtype of the arrays
            spec = record.spec.replace(dtype=next(iter(tensors.values())).dtype)
            try:
                rnn = read_described(tensors, spec, record.layout)
            except (LayoutError, SpecError) as error:
                raise FileError(
                    f"{name}: ",
                    error,
                    f"; the file's record is of {record.spec}: the file was changed after rnnlayout"
                    " wrote it",
                ) from None
            return changed_weights(rnn, config=record.config, batch_first=record.batch_first)
        weights = changed_weights(self._read_by_shapes(tensors), batch_first=True)
        self._guessed.append(weights)
        return weights

    def _read_by_shapes(self, tensors: dict[str, Bits]) -> Weights:
        """Read a layer without a config and a record. The caller's reading has the facts that the
        shapes do not show."""
        layout, spec = self.reading.layout, self.reading.spec
        fields = dict(self.reading.fields)
        if spec is not None:
            fields |= {"cell": spec.cell, "reset": spec.reset}
            for key, default in DEFAULT_ACTIVATIONS.items():
                if getattr(spec, key) != default:
                    fields[key] = getattr(spec, key)
        shapes = (bits.array.shape for leaf, bits in tensors.items() if leaf.endswith(LEAVES[1]))
        if not any(count_gates(shape) > 1 for shape in shapes):
            fields = {key: value for key, value in fields.items() if key not in DEFAULT_ACTIVATIONS}
        activation = fields.get("recurrent_activation")
        check_activation(activation, self.version)

        def lacks_activation(rnn: Weights) -> bool:  # sigmoid or hard_sigmoid
            is_gated = rnn.layout.name == "keras" and CELLS[rnn.spec.cell].is_gated
            return activation is None and is_gated and self.version < SIGMOID_SINCE

        try:
            activations = {key: fields[key] for key in DEFAULT_ACTIVATIONS if key in fields}
            rnn = read_source(tensors, Reading(None, layout, fields=activations))
        except UndecidedError as question:
            try:
                rnn = read_source(tensors, Reading(None, layout, fields=fields))
            except LayoutError:  # the fields are meant for a different RNN
                raise question from None
            except UndecidedError as question:
                if lacks_activation(question.candidates[0]):
                    raise _activation_question(question.candidates, question) from None
                raise
        if lacks_activation(rnn):
            raise _activation_question([rnn])
        return rnn


def _place_of(array_paths: Iterable[str]) -> RNNTensors:
    """Return the path of the cells of an RNN, without "vars" and the names of cells, and the paths
    of the arrays."""
    paths = [path.lstrip("/") for path in array_paths]
    shared = commonpath([path.rpartition("/")[0] for path in paths]) if paths else ""
    *outer, last = shared.split("/")
    while outer and (last == "vars" or IS_CELL.fullmatch(last)):
        *outer, last = outer
    return RNNTensors("/".join((*outer, last)), paths)


def _tensors_of_cells(cells: Sequence[Mapping[str, _Array]]) -> dict[str, _Array]:
    """Return the arrays of a layer with one or two directions, by their names in a layout."""
    if len(cells) == 1:
        return dict(cells[0])
    sides = zip(("forward", "backward"), cells, strict=True)
    return {f"0/{side}/{leaf}": array for side, cell in sides for leaf, array in cell.items()}


def _activation_question(
    rnns: Sequence[Weights], previous: UndecidedError | None = None
) -> UndecidedError:
    """Return the question for the recurrent activation, after a previous question about the RNN."""
    message = Message(
        "the file does not record its recurrent activation, and before Keras 2.3 hard_sigmoid was"
        " the default: pass ",
        Ask("recurrent_activation", HARD_SIGMOIDS[1]),
        " or ",
        Ask("recurrent_activation", "sigmoid"),
        ", or ",
        Ask("keras_config"),
        " with the file of the model's to_json() if the layers differ",
    )
    reason = "recurrent activation, not stored in Keras files before 2.3"
    fit = [
        changed_weights(rnn, spec=rnn.spec.replace(recurrent_activation=activation))
        for rnn in rnns
        for activation in (HARD_SIGMOIDS[1], "sigmoid")
    ]
    parts: list[TextPart] = [previous, "; and ", message] if previous else [message]
    return UndecidedError(
        *parts,
        candidates=fit,
        arguments=[*(previous.arguments if previous else ()), "recurrent_activation"],
        reason=f"{previous.reason}; {reason}" if previous else reason,
    )


def check_activation(activation: str | None, version: Version) -> None:
    """Raise SpecError if the caller passes Keras 3's hard_sigmoid for a file of an older Keras."""
    if activation == HARD_SIGMOIDS[0] and version < (3, 0):
        raise SpecError(
            f"recurrent activation {activation!r} is the function of Keras 3, and an earlier Keras"
            " wrote the file: for its hard_sigmoid pass ",
            Ask("recurrent_activation", HARD_SIGMOIDS[1]),
        )


def cell_names(name: str, count: int) -> list[str]:
    return [f"{name}/{k}" for k in range(count)] if count > 1 else [name]


def count_gates(shape: tuple[int, ...]) -> int:
    """Return G of a recurrent kernel (H, G H), 0 of a different shape; 1 for a plain RNN."""
    return shape[1] // shape[0] if len(shape) == 2 and shape[0] else 0


def cell_bits(name: str, cell: CellArrays) -> dict[str, Bits]:
    """Return the arrays of a cell by LEAVES. name: the layer's name in messages."""
    arrays = {key: array.tensor.floats(f"{name}: {array.path}") for key, array in cell.items()}
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
