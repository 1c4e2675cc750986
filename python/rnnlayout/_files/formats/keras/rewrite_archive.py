"""A .keras archive: read, or one of Keras 2 changed so that Keras 3 loads and computes the same.

Late Keras 2 wrote this form of Keras 3, but with its own classes and arguments in the config, and
groups named after them.
"""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rnnlayout._files.tensor_sets.file_limits import open_zip, read_member
from rnnlayout._files.tensor_sets.output_file import Output
from rnnlayout._files.tensor_sets.tensor_set import Converted, Hints
from rnnlayout._model.asks import Ask
from rnnlayout._model.errors import FileError
from rnnlayout._model.layout import Layout
from rnnlayout._native import SpecError
from rnnlayout._sources.keras_tree import Node, Version, kind_of

from .config import CUDNN, parse_config, parse_keras_version
from .entries import KerasEntries, check_cells
from .hdf5_copy import copy_tree
from .hdf5_tree import Hdf5Group, open_hdf5
from .hdf5_write import new_hdf5
from .rewrite_cells import ChangedCells
from .rewrite_config import config_errors, cudnn_layers, modernize_layer
from .rewrite_h5 import UNCHANGED, aside_name, check_dtype_used, check_whole_model
from .rewrite_weights import check_agreement
from .variables import read_with_config, variable_layers_with_cells, walk_layers
from .write import KERAS_3

METADATA, CONFIG, VARIABLES = "metadata.json", "config.json", "model.weights.h5"


@dataclass(frozen=True)
class KerasArchive:
    """The model in a .keras archive. version: the version of the Keras that wrote it."""

    metadata: dict[str, Any]
    version: Version
    model: Node
    variables: bytes


def read_archive(path: Path, archive: zipfile.ZipFile) -> KerasArchive:
    """Return the model. Raises FileError if Keras did not write it."""
    metadata = parse_config(read_member(archive, METADATA), f"{path}: {METADATA}")
    text = metadata.get("keras_version")
    if not isinstance(text, str):
        raise FileError(f"{path}: {METADATA} has keras_version {text!r}, need a string")
    model = parse_config(read_member(archive, CONFIG), f"{path}: {CONFIG}")
    return KerasArchive(metadata, parse_keras_version(text), model, read_member(archive, VARIABLES))


def rewrite_archive(
    path: Path, out: Output, hints: Hints, to: Layout, dtype: Any, exact: bool
) -> Converted:
    """Write the model at `path` to `out`, for Keras 3: as rewrite_h5().

    Groups of variables get the names under which Keras 3 looks for them. Other variables and other
    members of the archive are copied; compile_config gets a name where Keras 3 does not look.
    """
    check_whole_model(hints, to)
    changed = ChangedCells(str(path), dtype, exact)
    with open_zip(path) as archive:
        old = read_archive(path, archive)
        if hints.config is not None:
            raise SpecError(f"{path} has a config of its own: omit " + Ask("config", None))
        _check_agreement(old, path, hints)
        if old.version >= (3, 0):
            with open_hdf5(old.variables, f"{path}: {VARIABLES}") as root:
                # raises the errors of the config
                read_with_config(root, old.model, KerasEntries(hints, old.version))
            check_dtype_used(changed)
            shutil.copyfile(path, out)
            changed.notes.append(UNCHANGED)
            return changed.result()
        variables = _changed_variables(old, f"{path}: {VARIABLES}", changed)
        check_dtype_used(changed)
        with config_errors(f"{path}: {CONFIG}"):
            modernize_layer(old.model, scaled=changed.scaled)
        if old.model.get("compile_config") is not None:
            name = aside_name("compile_config", changed.notes)
            old.model[name] = old.model.pop("compile_config")
        new = {
            METADATA: json.dumps({**old.metadata, "keras_version": KERAS_3}).encode(),
            CONFIG: json.dumps(old.model).encode(),
            VARIABLES: variables,
        }
        _copy_members(archive, out, new)
    return changed.result()


def _check_agreement(old: KerasArchive, path: Path, hints: Hints) -> None:
    """Raise SpecError if a hint contradicts the config."""
    if hints.hidden:
        with open_hdf5(old.variables, f"{path}: {VARIABLES}") as root:
            entries = KerasEntries(hints, old.version)
            read_with_config(root, old.model, entries)
            check_agreement(entries.found(root), hints)


def _copy_members(archive: zipfile.ZipFile, out: Output, new: dict[str, bytes]) -> None:
    """Write all members in their order, compressed as they are, with new contents for some."""
    with zipfile.ZipFile(out, "w") as target:
        for old in archive.infolist():
            member = zipfile.ZipInfo(old.filename, old.date_time)
            member.compress_type, member.external_attr = old.compress_type, old.external_attr
            content = new.get(old.filename)
            target.writestr(
                member, read_member(archive, old.filename) if content is None else content
            )


def _changed_variables(old: KerasArchive, what: str, changed: ChangedCells) -> bytes:
    """Return the archive's HDF5 file with other cells, and with other names of groups."""
    moves: list[tuple[str, str]] = []
    found: set[int] = set()  # ids of the nodes of cuDNN layers
    with open_hdf5(old.variables, what) as root:
        for layer, cells in variable_layers_with_cells(root, old.model):
            changed.add_hard(layer, cells, old.version)
            if any(kind_of(node) in CUDNN for node in layer.cells):
                check_cells(layer, cells)
            for node, cell in zip(layer.cells, cells, strict=False):
                if kind_of(node) in CUDNN:
                    changed.add_cudnn(layer.name, cell)
                    # a cuDNN layer has its arrays itself, others have them in their cell
                    arrays = cell["kernel"].path.rpartition("/")[0]
                    moves.append((arrays, f"{arrays.rpartition('/')[0]}/cell/vars"))
                    found.add(id(node))
        with config_errors(f"{changed.what}: {CONFIG}"):
            count = len(list(cudnn_layers(old.model)))
        if len(found) != count:
            raise FileError(
                f"{changed.what}: its config has {count} cuDNN layers, {len(found)} have weights"
            )
        moves += _group_moves(root, old.model)
        with io.BytesIO() as file:
            with new_hdf5(file, what) as h5:
                copy_tree(root, h5, changed.arrays)
                for source, target in moves:
                    h5.move(source, target)
            return file.getvalue()


def _group_moves(root: Hdf5Group, model: Node) -> Iterator[tuple[str, str]]:
    """Yield the moves that give the groups of layers the names of Keras 3, inner groups first."""
    renamed: dict[str, list[tuple[str, str]]] = {}  # group of layers -> old and new names
    for _, layer in walk_layers(root, model):
        parent, _, name = layer.group.path.rpartition("/")
        if layer.group_name != name:
            renamed.setdefault(parent, []).append((name, layer.group_name))
    for parent, names in reversed(renamed.items()):
        for k, (old, _) in enumerate(names):  # a new name may still be the name of another
            yield f"{parent}/{old}", f"{parent}/rnnlayout {k}"
        for k, (_, new) in enumerate(names):
            yield f"{parent}/rnnlayout {k}", f"{parent}/{new}"
