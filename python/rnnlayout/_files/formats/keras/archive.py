"""A .keras archive, read; and one of Keras 2 changed so that Keras 3 loads it and computes so too.

Late Keras 2 wrote the form of Keras 3, with its own classes and words, and groups named by them.
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

from rnnlayout._files.bags.bag import Ask, Converted
from rnnlayout._files.bags.limits import open_zip, read_member
from rnnlayout._model.errors import FileError
from rnnlayout._model.layout import Layout

from .cells import Changed
from .entry import Entries, check_cells
from .hdf5 import Group, hdf5_errors, import_h5py, open_hdf5
from .hdf5_copy import copy_tree
from .model import AS_IT_IS, check_whole
from .modern import CUDNN, config_errors, cudnn_layers, modernize
from .tree import Version, children, is_recurrent, kind_of, parse, version
from .variables import group_names, layers_of, pairs, placed, read_told
from .write import KERAS_3

METADATA, CONFIG, VARIABLES = "metadata.json", "config.json", "model.weights.h5"
_SET_ASIDE = "compile_config_of_keras_2"


@dataclass(frozen=True)
class Archive:
    """What a .keras archive holds of a model. version: of the Keras that wrote it."""

    metadata: dict[str, Any]
    version: Version
    model: dict[str, Any]
    variables: bytes


def read_archive(path: Path, archive: zipfile.ZipFile) -> Archive:
    """FileError: it is none of Keras."""
    metadata = parse(read_member(archive, METADATA), f"{path}: {METADATA}")
    said = metadata.get("keras_version")
    if not isinstance(said, str):
        raise FileError(f"{path}: {METADATA} says keras_version {said!r}, need a text")
    model = parse(read_member(archive, CONFIG), f"{path}: {CONFIG}")
    return Archive(metadata, version(said), model, read_member(archive, VARIABLES))


def rewrite_archive(
    path: Path, out: Path, ask: Ask, to: Layout, *, dtype: Any = None, exact: bool = False
) -> Converted:
    """Write the model at `path` to `out`, for Keras 3: as _keras_model.rewrite().

    Groups of variables get the names by which Keras 3 looks for them. Other variables and other
    members of the archive stay; compile_config gets a name where Keras 3 does not look.
    """
    check_whole(ask, to)
    with open_zip(path) as archive:
        old = read_archive(path, archive)
        cells = Changed(str(path), dtype, exact)
        if old.version >= (3, 0):
            with open_hdf5(old.variables, f"{path}: {VARIABLES}") as root:
                read_told(root, old.model, Entries(ask, old.version))  # is it one that can be read?
            shutil.copyfile(path, out)
            return Converted({}, notes=(AS_IT_IS,))
        variables = _rewritten(old, f"{path}: {VARIABLES}", cells)
        with config_errors(f"{path}: its {CONFIG}"):
            modernize(old.model, scaled=cells.scaled)
        notes = _set_aside(old.model)
        new = {
            METADATA: json.dumps({**old.metadata, "keras_version": KERAS_3}).encode(),
            CONFIG: json.dumps(old.model).encode(),
            VARIABLES: variables,
        }
        _copy(archive, out, new)
    return Converted(cells.reports, notes=tuple(notes))


def _set_aside(model: dict[str, Any]) -> list[str]:
    if model.get("compile_config") is None:
        return []
    model[_SET_ASIDE] = model.pop("compile_config")
    return [
        f"compile_config is kept as {_SET_ASIDE}: Keras 3 does not read Keras 2's, compile the"
        " model anew; the optimizer's variables, if there are any, stay as they are"
    ]


def _copy(archive: zipfile.ZipFile, out: Path, new: dict[str, bytes]) -> None:
    """All members, in their order and compressed as they are, but for the new ones."""
    with zipfile.ZipFile(out, "w") as target:
        for old in archive.infolist():
            member = zipfile.ZipInfo(old.filename, old.date_time)
            member.compress_type, member.external_attr = old.compress_type, old.external_attr
            content = new.get(old.filename)
            target.writestr(
                member, read_member(archive, old.filename) if content is None else content
            )


# -------------------------------------------------------------------------------------- variables


def _rewritten(old: Archive, what: str, cells: Changed) -> bytes:
    """The archive's HDF5 file with other cells, and with other names of groups."""
    moves: list[tuple[str, str]] = []
    met: set[int] = set()
    with open_hdf5(old.variables, what) as root:
        for layer, found in pairs(root, old.model):
            cells.add_hard(layer, found, old.version)
            if any(kind_of(node) in CUDNN for node in layer.cells):
                check_cells(layer, found)
            for node, cell in zip(layer.cells, found, strict=False):
                if kind_of(node) in CUDNN:
                    cells.add_cudnn(layer.name, cell)
                    moves.append(_into_cell(cell["kernel"].path))
                    met.add(id(node))
        _check_met(old.model, met, cells.what)
        moves += _names(root, old.model)
        with io.BytesIO() as file:
            with hdf5_errors(what), import_h5py(what).File(file, "w") as h5:
                copy_tree(root, h5, cells.arrays)
                for source, target in moves:
                    h5.move(source, target)
            return file.getvalue()


def _check_met(model: dict[str, Any], met: set[int], what: str) -> None:
    with config_errors(f"{what}: its {CONFIG}"):
        told = len(list(cudnn_layers(model)))
    if len(met) != told:
        raise FileError(
            f"{what}: its config has {told} cuDNN layers, of which {len(met)} have weights"
        )


def _into_cell(path: str) -> tuple[str, str]:
    """A cuDNN layer has its arrays itself, others have them in their cell."""
    variables = path.rpartition("/")[0]
    return variables, f"{variables.rpartition('/')[0]}/cell/vars"


def _names(group: Group, model: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Moves that give the groups of a model's layers the names of Keras 3, inner ones first."""
    layers = layers_of(group)
    if layers is None:
        return
    nodes = children(model)
    classes = [str(node["class_name"]) for node in nodes]
    names = dict(zip(map(id, nodes), group_names([CUDNN.get(c, c) for c in classes]), strict=True))
    found = list(placed(layers, nodes))
    for node, inner in found:
        yield from _names_inside(inner, node)
    renamed = [(inner.path, f"{layers.path}/{names[id(node)]}") for node, inner in found]
    renamed = [(source, target) for source, target in renamed if source != target]
    for k, (source, _) in enumerate(renamed):  # a name may be another's yet
        yield source, f"{layers.path}/rnnlayout {k}"
    for k, (_, target) in enumerate(renamed):
        yield f"{layers.path}/rnnlayout {k}", target


def _names_inside(group: Group, node: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if is_recurrent(node):
        return
    if "layer" in group.groups:  # of a wrapper
        for child in children(node):
            yield from _names_inside(group.groups["layer"], child)
    else:
        yield from _names(group, node)
