"""Files of Keras 2, changed so that Keras 3 loads them and computes the same.

A file has cells of recurrent layers, and mostly the config of a model. .h5 and .keras differ in
where these are, and in how the groups of variables are named.
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
from rnnlayout._files.tensor_sets.find_rnns import apply_reading
from rnnlayout._files.tensor_sets.found import Found
from rnnlayout._files.tensor_sets.output_file import Output
from rnnlayout._files.tensor_sets.record import Record
from rnnlayout._files.tensor_sets.tensor_set import Converted
from rnnlayout._model.errors import Ask, FileError, Message, join_parts
from rnnlayout._model.layout import Layout
from rnnlayout._model.spec import HARD_SIGMOIDS
from rnnlayout._native import LayoutError, LossyError
from rnnlayout._sources.keras_tree import SIGMOID_SINCE, Node, Version
from rnnlayout._sources.reading import Reading

from .config import KERAS_3, parse_config
from .entries import LEAVES, KerasEntries, LayerCells, cell_names, check_activation
from .hdf5_tree import Hdf5Group, copy_tree, new_hdf5, open_hdf5, write_record_attribute
from .rewrite_parts import (
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
    walk_layers,
)

_TRAINING, _COMPILE = "training_config", "compile_config"


def rewrite_h5(
    file: InputFile, out: Output, reading: Reading, to: Layout, dtype: Any, exact: bool
) -> Converted:
    """Write the model or the weights in `file` to `out`, for Keras 3.

    CuDNNLSTM and CuDNNGRU become LSTM and GRU, in the config and in the weights. The weights of
    LSTMs and GRUs compensate for Keras 3's other hard_sigmoid. What else Keras 3 would misread in a
    model with recurrent layers is written in its form. Everything else is copied, except that the
    training_config, which Keras 3 fails to read, gets another name.

    dtype, exact: as for convert(), for the layers that change. Raises FileError if it is not a file
    of Keras, LossyError if no layer of Keras 3 computes the same, or weights would be rounded and
    exact is set."""
    _check_whole_model(reading, to)
    changed = ChangedCells(str(file), dtype, exact)
    records: dict[str, Record] = {}
    new: dict[str, str] = {}  # attributes of the root
    with open_hdf5(file, file.budget) as root:
        layers = find_legacy_layers(root)
        if layers is None:
            raise FileError(f"{file} has no attribute 'layer_names': Keras 2 did not write it")
        config = root.text("model_config")
        if config is None:
            records = _change_weights(root, layers, changed, reading)
            new = {"keras_version": KERAS_3} if records else {}
        else:
            if reading.fields or reading.keras_config is not None:
                found = read_legacy_weights(root, layers, KerasEntries.of_hdf5(root, reading))
                _check_agreement(found, reading)
            version = keras_version_of(root, layers)
            if version < (2, 0):
                raise LossyError(
                    f"{file}: the config of Keras 1 is not converted: read its layers with load()"
                )
            if version < (3, 0):
                what = f"{file}: model_config"
                model = parse_config(config, what)
                _change_model(model, legacy_layers(layers, model), version, changed, what)
                new = {"model_config": json.dumps(model), "keras_version": KERAS_3}
                if (training := root.text(_TRAINING)) is not None:
                    new[_aside_name(_TRAINING, changed)] = training
        changed.check_dtype_used()
        if not changed.arrays and not new:
            return _copied(file, out, changed)
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
    names under which Keras 3 looks for them. Other variables and other members of the archive are
    copied; compile_config gets a name where Keras 3 does not look."""
    _check_whole_model(reading, to)
    changed = ChangedCells(str(file), dtype, exact)
    with open_zip(file) as archive:
        old = read_archive(file, archive, reading)
        what = f"{file}: {VARIABLES}"
        with open_hdf5(old.variables, file.budget, what) as root:
            if reading.fields or old.version >= (3, 0):
                entries = KerasEntries.of_hdf5(root, reading, old.version)
                found = entries.found(described_layers(root, old.model))
                _check_agreement(found, reading)
            if old.version < (3, 0):
                moves = _group_moves(root, old.model)  # before the config changes
                layers = described_layers(root, old.model)
                _change_model(old.model, layers, old.version, changed, f"{file}: {CONFIG}")
                own = {cell["kernel"].path.rpartition("/")[0] for _, cell in changed.cudnn}
                # a cuDNN layer has its arrays itself, others have them in their cell
                cells = [(path, f"{path.rpartition('/')[0]}/cell/vars") for path in sorted(own)]
                variables = new_variables(root, changed.arrays, what, [*cells, *moves])
        changed.check_dtype_used()
        if old.version >= (3, 0):
            return _copied(file, out, changed)
        if old.model.get(_COMPILE) is not None:
            old.model[_aside_name(_COMPILE, changed)] = old.model.pop(_COMPILE)
        copy_members(archive, out, {
            METADATA: json.dumps({**old.metadata, "keras_version": KERAS_3}).encode(),
            CONFIG: json.dumps(old.model).encode(),
            VARIABLES: variables,
        })  # fmt: skip
    return changed.result()


# ------------------------------------------------------------------------------------- both forms


def _change_model(
    model: Node, layers: Iterable[LayerCells], version: Version, changed: ChangedCells, what: str
) -> None:
    """Collect the cells of a model of Keras 2 that change, and change its config, in place. what:
    the config in messages."""
    for one in layers:
        changed.add(one, version, Reading())
    with config_errors(what):
        count = count_cudnn_layers(model)
        modernize_model(model, changed.scaled)
    found = len({id(node or cell) for node, cell in changed.cudnn})
    named = all(node for node, _ in changed.cudnn)  # else the weights alone show their layers
    if found != count if named else bool(found) != bool(count):
        raise FileError(
            f"{changed.what}: its config has {count} cuDNN layers, {found} have weights"
        )


def _check_whole_model(reading: Reading, to: Layout) -> None:
    """Raise LayoutError for options that a whole model cannot be converted with."""
    if to.name != "keras":
        raise LayoutError(
            f"a whole Keras model can be converted to 'keras', not to {str(to)!r}: to convert only"
            " its RNNs, give the new file the suffix of another format"
        )
    known = reading.layout is None or reading.layout.name in ("keras", "keras-cudnn")
    if reading.spec or reading.prefix or not known:
        given = {"spec": reading.spec, "prefix": reading.prefix, "layout": reading.layout}
        why = "a Keras model is converted as a whole: omit "
        omit = [Ask(name, None) for name, value in given.items() if value]
        raise LayoutError(why, join_parts(" and ", omit))
    if reading.as_class:
        raise LayoutError(
            "a whole Keras model keeps its layers of other classes as they are: omit ",
            Ask("as_class", None),
        )


def _check_agreement(found: Found, reading: Reading) -> None:
    """Raise SpecError if a hint contradicts what a file records of its RNNs."""
    for name, error in apply_reading(found, reading).refused.items():
        if name not in found.refused:
            raise error


def _aside_name(name: str, changed: ChangedCells) -> str:
    """Return the new name of a config for training, which Keras 3 does not look for."""
    changed.notes.append(
        f"{name} is kept as {name}_of_keras_2: Keras 3 does not read Keras 2's, compile the model"
        " again; the variables of an optimizer are unchanged and of no use to Keras 3"
    )
    return f"{name}_of_keras_2"


def _copied(file: InputFile, out: Output, changed: ChangedCells) -> Converted:
    shutil.copyfile(file, out)
    changed.notes.append("copied unchanged: nothing in it needs to change for Keras 3")
    return changed.result()


# ------------------------------------------------------------------------------------------- .h5


def _change_weights(
    root: Hdf5Group, layers: Hdf5Group, changed: ChangedCells, reading: Reading
) -> dict[str, Record]:
    """Collect the changed cells of a file without a config; return what is then recorded of each
    layer, {} if none changes. Raises the error that asks for the activation if the file is of a
    Keras before 2.3, whose default was hard_sigmoid."""
    entries = KerasEntries.of_hdf5(root, reading)
    found = read_legacy_weights(root, layers, entries)
    _check_agreement(found, reading)
    activation = reading.fields.get("recurrent_activation")
    check_activation(activation, entries.version)
    beside, before_sigmoid = entries.beside, entries.version < SIGMOID_SINCE
    told = beside is not None or activation is not None
    for question in found.undecided.values() if told or before_sigmoid else ():
        if question.specs[0].cell in ("lstm", "gru") and question.arguments != ("as_class",):
            raise question
    gated = False
    for one in legacy_layers(layers, beside.model if beside else {}):
        if not all(cell.keys() <= set(LEAVES) for cell in one.cells):
            raise LossyError(
                f"{changed.what}: the weights of Keras 1 are not converted: read its layers with"
                " load()"
            )
        changed.add(one, entries.version, reading)
        gated |= any(
            is_gated(cell) and cell["kernel"].path not in changed.arrays for cell in one.cells
        )
    if beside is not None and entries.version < (3, 0):
        with config_errors(beside.name):  # and those of what Keras 3 cannot compute
            modernize_model(beside.model, changed.scaled)
    if gated and not told and not entries.records and entries.version < (3, 0):
        note = Message(
            "the file does not record activations: an LSTM or GRU with Keras 2's hard_sigmoid"
            " needs other weights in Keras 3: if the model has one, pass ",
            Ask("recurrent_activation", HARD_SIGMOIDS[1]),
            ", or convert the whole model",
        )
        changed.notes.append(note.text)
    outdated = changed.arrays and (entries.records or before_sigmoid)
    if not told and not outdated:
        return {}
    records = {}
    for name, whole in found.items():
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
    what: str,
    moves: Sequence[tuple[str, str]] = (),
) -> bytes:
    """Return the archive's HDF5 file with new arrays. moves: the new names of groups."""
    with io.BytesIO() as file:
        with new_hdf5(file, what) as h5:
            copy_tree(root, h5, arrays)
            for old, new in moves:
                h5.move(old, new)
        return file.getvalue()


def _group_moves(root: Hdf5Group, model: Node) -> list[tuple[str, str]]:
    """Return the moves that give the groups of layers the names of Keras 3, inner groups first."""
    renamed: dict[str, list[tuple[str, str]]] = {}  # group of layers -> old and new names
    for _, layer in walk_layers(root, model):
        parent, _, name = layer.group.path.rpartition("/")
        if layer.group_name != name:
            renamed.setdefault(parent, []).append((name, layer.group_name))
    moves = []
    for parent, names in reversed(renamed.items()):
        aside = [f"{parent}/rnnlayout {k}" for k in range(len(names))]
        # a new name may still be the name of another
        moves += [(f"{parent}/{old}", own) for own, (old, _) in zip(aside, names, strict=True)]
        moves += [(own, f"{parent}/{new}") for own, (_, new) in zip(aside, names, strict=True)]
    return moves


def copy_members(archive: zipfile.ZipFile, out: Output, new: dict[str, bytes]) -> None:
    """Write all members in their order, compressed as they are, with new contents for some."""
    with zipfile.ZipFile(out, "w") as target:
        for old in archive.infolist():
            member = zipfile.ZipInfo(old.filename, old.date_time)
            member.compress_type, member.external_attr = old.compress_type, old.external_attr
            content = new.get(old.filename)
            target.writestr(
                member, read_member(archive, old.filename) if content is None else content
            )
