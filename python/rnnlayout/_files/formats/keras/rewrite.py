"""Files of Keras 2, changed so that Keras 3 loads them and computes the same.

A file has cells of recurrent layers, and mostly the config of a model. .h5 and .keras differ in the
places of cells and config, and in the names of the groups of variables.
"""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rnnlayout._files.tensor_sets.file_limits import InputFile, open_zip, read_member
from rnnlayout._files.tensor_sets.file_rnns import Found
from rnnlayout._files.tensor_sets.find_rnns import apply_reading
from rnnlayout._files.tensor_sets.output_file import Output
from rnnlayout._files.tensor_sets.record import Record
from rnnlayout._files.tensor_sets.tensor_set import Converted
from rnnlayout._model.errors import Ask, FileError, Message, join_parts
from rnnlayout._model.layout import Layout
from rnnlayout._model.spec import HARD_SIGMOIDS
from rnnlayout._native import LayoutError, LossyError
from rnnlayout._sources.keras_tree import SIGMOID_SINCE, Node, Version
from rnnlayout._sources.reading import Reading

from .carried_optimizer import CarriedOptimizer, carry_optimizer
from .config import KERAS_3, note_lambda_layers, parse_config
from .entries import LEAVES, KerasEntries, LayerCells, cell_names, check_activation
from .hdf5_tree import Hdf5Group, copy_tree, new_hdf5, open_hdf5, write_record_attribute
from .rewrite_parts import (
    ASIDE,
    COMPILE,
    ChangedCells,
    config_errors,
    count_cudnn_layers,
    is_gated,
    modernize_model,
)
from .stored_layers import (
    CONFIG,
    METADATA,
    VARIABLES,
    described_layers,
    find_legacy_layers,
    keras_version_of,
    legacy_layers,
    read_archive,
    read_legacy_weights,
    trainable_shapes,
    walk_layers,
)

_TRAINING = "training_config"


def rewrite_h5(
    file: InputFile, out: Output, reading: Reading, to: Layout, dtype: Any, exact: bool
) -> Converted:
    """Write the model or the weights in `file` to `out`, for Keras 3.

    CuDNNLSTM and CuDNNGRU become LSTM and GRU, in the config and in the weights. The weights of
    LSTMs and GRUs compensate for Keras 3's different hard_sigmoid. Parts of the config that Keras 3
    would misread, in a model with recurrent layers, are written in the form of Keras 3. Everything
    else is copied, except that the training_config, which Keras 3 fails to read, gets a new name.

    dtype, exact: as for convert(), for the layers that change. Raises FileError if Keras did not
    write the file, LossyError if no layer of Keras 3 computes the same, or weights would be rounded
    and exact is set."""
    _check_whole_model(reading, to)
    changed = ChangedCells(str(file), dtype, exact)
    records: dict[str, Record] = {}
    new: dict[str, str] = {}  # attributes of the root
    with open_hdf5(file, file.budget) as root:
        layers = find_legacy_layers(root)
        if layers is None:
            raise FileError(
                f"{file} has no attribute 'layer_names': Keras 2 did not write it,"
                " and only its models are rewritten; write the RNNs to another format, .keras"
            )
        config = root.text("model_config")
        if config is None:
            records = _change_weights(root, layers, changed, reading)
            new = {"keras_version": KERAS_3} if records else {}
        else:
            if reading.fields or reading.keras_config is not None:
                # reads and charges arrays that _change_model() reads and charges again
                rnns = read_legacy_weights(root, layers, KerasEntries.of_hdf5(root, reading))
                _check_agreement(rnns, reading)
            version = keras_version_of(root, layers)
            if version < (2, 0):
                raise LossyError(
                    f"{file}: the config of Keras 1 is not converted: read its layers with load()"
                )
            label = f"{file}: model_config"
            model = parse_config(config, label)
            changed.notes += note_lambda_layers(model)
            if version < (3, 0):
                _change_model(model, legacy_layers(layers, model), version, changed, label)
                new = {"model_config": json.dumps(model), "keras_version": KERAS_3}
                if (training := root.text(_TRAINING)) is not None:
                    new[f"{_TRAINING}{ASIDE}"] = training
                    reason = (
                        "Keras 3 does not restore one from an .h5 file; if Keras 2.11 or later"
                        " wrote the file, load it there, save it as .keras, and convert that"
                    )
                    changed.notes.append(_not_carried(_TRAINING, reason))
        changed.check_dtype_used()
        if not changed.arrays and not new:
            return _copy_unchanged(file, out, changed)
        with new_hdf5(out, str(file)) as h5:
            copy_tree(root, h5, changed.arrays)
            for name, text in new.items():
                as_bytes = isinstance(h5.attrs.get(name), bytes)
                h5.attrs[name] = text.encode() if as_bytes else text
                if name.startswith(_TRAINING):
                    del h5.attrs[_TRAINING]
            if records:
                write_record_attribute(h5, records)
    return changed.result()


def rewrite_archive(
    file: InputFile, out: Output, reading: Reading, to: Layout, dtype: Any, exact: bool
) -> Converted:
    """Write the model in `file` to `out`, for Keras 3: as rewrite_h5(). Groups of variables get the
    names that Keras 3 expects. All further variables and members of the archive are copied;
    compile_config gets a name that Keras 3 does not read, and a new one has the optimizer if Keras
    3 can go on with it."""
    _check_whole_model(reading, to)
    changed = ChangedCells(str(file), dtype, exact)
    with open_zip(file) as archive:
        old = read_archive(file, archive, reading)
        changed.notes += note_lambda_layers(old.model)
        label = f"{file}: {VARIABLES}"
        with open_hdf5(old.variables, file.budget, label) as root:
            if reading.fields or old.version >= (3, 0):
                # reads and charges arrays that _change_model() reads and charges again
                entries = KerasEntries.of_hdf5(root, reading, old.version)
                rnns = entries.read_layers(described_layers(root, old.model))
                _check_agreement(rnns, reading)
            if old.version < (3, 0):
                moves = _group_moves(root, old.model)  # before the config changes
                shapes = [*trainable_shapes(root, old.model)]
                layers = described_layers(root, old.model)
                _change_model(old.model, layers, old.version, changed, f"{file}: {CONFIG}")
                cell_paths = {cell["kernel"].path.rpartition("/")[0] for _, cell in changed.cudnn}
                # the arrays move from the cuDNN layer's group to the group of the layer's cell
                cell_moves = [
                    (path, f"{path.rpartition('/')[0]}/cell/vars") for path in sorted(cell_paths)
                ]
                optimizer = _optimizer_for_keras_3(root, old.model, shapes, changed)
                moves = [*cell_moves, *moves]
                variables = new_variables(root, changed.arrays, label, moves, optimizer)
        changed.check_dtype_used()
        if old.version >= (3, 0):
            return _copy_unchanged(file, out, changed)
        if old.model.get(COMPILE) is not None:
            old.model[f"{COMPILE}{ASIDE}"] = old.model.pop(COMPILE)
        if optimizer is not None:
            old.model[COMPILE] = optimizer.compile_config
        members = {
            METADATA: json.dumps({**old.metadata, "keras_version": KERAS_3}).encode(),
            CONFIG: json.dumps(old.model).encode(),
            VARIABLES: variables,
        }
        copy_members(archive, out, members)
    return changed.result()


# ------------------------------------------------------------------------------------- both forms


def _change_model(
    model: Node, layers: Iterable[LayerCells], version: Version, changed: ChangedCells, label: str
) -> None:
    """Collect the cells of a model of Keras 2 that change, and change the model's config, in place.
    label: the config's name in messages."""
    for layer in layers:
        changed.add(layer, version, Reading())
    with config_errors(label):
        count = count_cudnn_layers(model)
        compiled = modernize_model(model, changed.scaled)
    changed.notes += [
        f"{path}: {COMPILE} is kept as {COMPILE}{ASIDE}: compile this model again to train it alone"
        for path in compiled
    ]
    num_stored = len({id(node or cell) for node, cell in changed.cudnn})
    has_nodes = all(node for node, _ in changed.cudnn)  # False if only weights show a layer
    if num_stored != count if has_nodes else bool(num_stored) != bool(count):
        raise FileError(
            f"{changed.label}: its config has {count} cuDNN layers, {num_stored} have weights"
        )


def _check_whole_model(reading: Reading, to: Layout) -> None:
    """Raise LayoutError for options that the conversion of a whole model cannot use."""
    if to.name != "keras":
        raise LayoutError(
            f"a whole Keras model can be converted to 'keras', not to {str(to)!r}: to convert only"
            " its RNNs, give the new file the suffix of another format"
        )
    has_keras_layout = reading.layout is None or reading.layout.name in ("keras", "keras-cudnn")
    if reading.spec or reading.prefix or not has_keras_layout:
        options = {"spec": reading.spec, "prefix": reading.prefix, "layout": reading.layout}
        asks = [Ask(name, None) for name, value in options.items() if value]
        raise LayoutError("a Keras model is converted as a whole: omit ", join_parts(" and ", asks))
    if reading.as_class:
        raise LayoutError(
            "a whole Keras model keeps its layers of other classes as they are: omit ",
            Ask("as_class", None),
        )


def _check_agreement(rnns: Found, reading: Reading) -> None:
    """Raise SpecError if the caller's reading contradicts the file's record of an RNN."""
    for name, error in apply_reading(rnns, reading).refused.items():
        if name not in rnns.refused:
            raise error


def _optimizer_for_keras_3(
    root: Hdf5Group, model: Node, shapes: Sequence[tuple[int, ...]], changed: ChangedCells
) -> CarriedOptimizer | None:
    """Return the optimizer of an archive of Keras 2, None if Keras 3 cannot go on with it. Adds a
    note. shapes: of the trainable variables."""
    if model.get(COMPILE) is None:
        return None
    try:
        if changed.arrays:
            raise LossyError("weights that it trains have another form in Keras 3")
        optimizer = carry_optimizer(root, model, shapes)
    except LossyError as error:
        changed.notes.append(_not_carried(COMPILE, str(error)))
        return None
    changed.notes.append(
        f"the optimizer, {optimizer.class_name}, goes on in Keras 3 if you compile the model with"
        " it, as in model.compile(model.optimizer, 'mse'): Keras 3 does not read Keras 2's losses"
        f" and metrics, {COMPILE} is kept as {COMPILE}{ASIDE}"
    )
    return optimizer


def _not_carried(name: str, reason: str) -> str:
    """Return a note on a config of training, whose optimizer the new file lacks."""
    return (
        f"{name} is kept as {name}{ASIDE}: Keras 3 does not read Keras 2's, compile the model"
        f" again; its optimizer is not converted: {reason}; rl.load() of the old file has the"
        " states that can be read, .optimizer of each RNN"
    )


def _copy_unchanged(file: InputFile, out: Output, changed: ChangedCells) -> Converted:
    shutil.copyfile(file, out)
    changed.notes.append("copied unchanged: nothing in it needs to change for Keras 3")
    return changed.result()


# ------------------------------------------------------------------------------------------- .h5


def _change_weights(
    root: Hdf5Group, layers: Hdf5Group, changed: ChangedCells, reading: Reading
) -> dict[str, Record]:
    """Collect the changed cells of a file without a config; return the new record of each layer, {}
    if nothing changes. Raises the error that asks for the activation if a Keras before 2.3 wrote
    the file, because the default was hard_sigmoid.

    Each array is read twice, to compare the file with the reading and to change the array, and is
    charged twice: a file whose arrays are stored has a hundred times this budget."""
    entries = KerasEntries.of_hdf5(root, reading)
    rnns = read_legacy_weights(root, layers, entries)
    _check_agreement(rnns, reading)
    activation = reading.fields.get("recurrent_activation")
    check_activation(activation, entries.version)
    architecture, before_sigmoid = entries.architecture, entries.version < SIGMOID_SINCE
    is_decided = architecture is not None or activation is not None
    for question in rnns.undecided.values() if is_decided or before_sigmoid else ():
        if question.specs[0].cell in ("lstm", "gru") and question.arguments != ("as_class",):
            raise question
    has_unscaled_gates = False
    for file_layer in legacy_layers(layers, architecture.model if architecture else {}):
        if not all(cell.keys() <= set(LEAVES) for cell in file_layer.cells):
            raise LossyError(
                f"{changed.label}: the weights of Keras 1 are not converted: read its layers with"
                " load()"
            )
        changed.add(file_layer, entries.version, reading)
        has_unscaled_gates |= any(
            is_gated(cell) and cell["kernel"].path not in changed.arrays
            for cell in file_layer.cells
        )
    if architecture is not None and entries.version < (3, 0):
        with config_errors(architecture.name):  # raises errors of layers that Keras 3 lacks, too
            modernize_model(architecture.model, changed.scaled)
    if has_unscaled_gates and not is_decided and not entries.records and entries.version < (3, 0):
        note = Message(
            "the file does not record activations: an LSTM or GRU with Keras 2's hard_sigmoid"
            " needs other weights in Keras 3: if the model has one, pass ",
            Ask("recurrent_activation", HARD_SIGMOIDS[1]),
            ", or convert the whole model",
        )
        changed.notes.append(note.text)
    outdated = changed.arrays and (entries.records or before_sigmoid)
    if not is_decided and not outdated:
        return {}
    records = {}
    for name, whole in rnns.items():
        parts = zip(cell_names(name, whole.spec.num_layers), whole.split(), strict=True)
        for cell, layer in parts:
            spec = layer.spec
            if spec.recurrent_activation == HARD_SIGMOIDS[1]:
                spec = spec.replace(recurrent_activation=HARD_SIGMOIDS[0])
            records[cell] = Record("", Layout("keras"), spec, layer.config, layer.batch_first)
    return records


# ----------------------------------------------------------------------------------------- .keras


def new_variables(
    root: Hdf5Group,
    arrays: Mapping[str, np.ndarray],
    label: str,
    moves: Sequence[tuple[str, str]] = (),
    optimizer: CarriedOptimizer | None = None,
) -> bytes:
    """Return the archive's HDF5 file with new arrays. moves: (old, new) names of groups. optimizer:
    of Keras 3, if its variables are in the file as those of Keras 2."""
    with io.BytesIO() as file:
        with new_hdf5(file, label) as h5:
            copy_tree(root, h5, arrays)
            for old, new in moves:
                h5.move(old, new)
            if optimizer is not None:
                optimizer.renumber(h5)
        return file.getvalue()


def _group_moves(root: Hdf5Group, model: Node) -> list[tuple[str, str]]:
    """Return (old, new) pairs that give the groups of layers the names of Keras 3, inner groups
    first."""
    renamed: dict[str, list[tuple[str, str]]] = {}  # group of layers -> old and new names
    for _, layer in walk_layers(root, model):
        parent, _, name = layer.group.path.rpartition("/")
        if layer.group_name != name:
            renamed.setdefault(parent, []).append((name, layer.group_name))
    moves = []
    for parent, names in reversed(renamed.items()):
        aside = [f"{parent}/rnnlayout {k}" for k in range(len(names))]
        # via temporary names: a new name may still be the old name of a second group
        for temporary, (old, _) in zip(aside, names, strict=True):
            moves.append((f"{parent}/{old}", temporary))
        for temporary, (_, new) in zip(aside, names, strict=True):
            moves.append((temporary, f"{parent}/{new}"))
    return moves


def copy_members(archive: zipfile.ZipFile, out: Output, new: dict[str, bytes]) -> None:
    """Write all members in the archive's order and compression, with the contents in `new`."""
    with zipfile.ZipFile(out, "w") as target:
        for old in archive.infolist():
            member = zipfile.ZipInfo(old.filename, old.date_time)
            member.compress_type, member.external_attr = old.compress_type, old.external_attr
            content = new.get(old.filename)
            target.writestr(
                member, read_member(archive, old.filename) if content is None else content
            )
