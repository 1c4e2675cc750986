"""The weights of a legacy .h5 of Keras 1, 2 and 3: lists of named arrays, one per layer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rnnlayout._model.errors import FileError
from rnnlayout._native import SpecError
from rnnlayout._sources.keras_tree import Node, Recurrent, Version

from .config import children, layer_name, parse, recurrent_in, version
from .entries import Cell, Entries
from .hdf5 import Dataset, Group

# kernel:0, or kernel_1:0 if TensorFlow had to make names differ; Keras 1: lstm_1_W_i:0
_LEAF = re.compile(r"(recurrent_kernel|kernel|bias)(_\d+)?(:\d+)?")
_LEAF_1 = re.compile(r"(.*)_([WUb](?:_[icfozrh])?)(:\d+)?", re.DOTALL)
_IS_CELL = re.compile(r"(\w*_)?(cell|stacked_rnn_cells)(_\d+)?")
_DIRECTION = re.compile(r"(forward|backward)_")


@dataclass
class Scope:
    """The arrays of one cell. path: the part of their names before their own."""

    path: list[str]
    arrays: dict[str, Dataset] = field(default_factory=dict)

    @property
    def is_recurrent(self) -> bool:
        matrices = [a for leaf, a in self.arrays.items() if leaf[0] in "rU"]
        return bool(matrices) and all(len(a.shape) == 2 for a in matrices)


def layers_of(root: Group) -> Group | None:
    """Return the group with a group for each layer, None in a file of another kind."""
    for group in (root.groups.get("model_weights"), root):
        if group and group.texts("layer_names") is not None:
            return group
    return None


def version_of(root: Group) -> Version:
    """Return the version of the Keras that wrote the file."""
    layers = layers_of(root)
    text = root.text("keras_version") or (layers.text("keras_version") if layers else None)
    return version(text)


def groups_of(layers: Group) -> Iterator[tuple[str, Group]]:
    """Yield each layer of a model by name. Raises FileError if one is missing."""
    for name in layers.texts("layer_names") or []:
        group = layers.group(name)
        if group is None:
            raise FileError(f"layer {name!r} is listed, but not in the file")
        yield name, group


def read(root: Group, layers: Group, entries: Entries) -> None:
    """Add every recurrent layer. Raises FileError if the file contradicts itself."""
    beside = entries.beside
    entries.version = (beside and beside.version) or version_of(root)
    config = root.text("model_config")
    if beside is not None and config is not None:
        raise SpecError(f"{root.attributes.what}: the file has a config of its own: omit config=")
    model = beside.model if beside else {} if config is None else parse(config, "model_config")
    entries.take_classes(model)
    nodes = {layer_name(node): node for node in children(model)}
    if beside is not None:
        wanted = [name for name, node in nodes.items() if any(recurrent_in(node))]
        beside.check_names(nodes, wanted, [name for name, g in groups_of(layers) if _recurrent(g)])
    for name, group in groups_of(layers):
        if name in nodes:
            for layer, cells in pairs(nodes[name], group):
                entries.add_layer(layer, cells)
        else:
            _read_by_names(name, group, entries)


def scopes(group: Group) -> list[Scope]:
    """Return the arrays of a layer by cell, in the order of the layer's list."""
    found: dict[str, Scope] = {}
    for name in group.texts("weight_names") or []:
        data = group.dataset(name)
        if data is None:
            raise FileError(f"{group.path}: weight {name!r} is listed, but not in the file")
        *path, last = name.split("/")
        if match := _LEAF.fullmatch(last):
            leaf, number = match[1], match[2] or ""
        elif match := _LEAF_1.fullmatch(last):
            leaf, number, path = match[2], "", [*path, match[1]]
        else:
            continue
        scope = found.setdefault("/".join([*path, number]), Scope(path))
        scope.arrays[leaf] = data
    return list(found.values())


def _recurrent(group: Group) -> list[Scope]:
    return [scope for scope in scopes(group) if scope.is_recurrent]


def pairs(node: Node, group: Group) -> Iterator[tuple[Recurrent, list[Cell]]]:
    """Yield the recurrent layers in a layer of the config, each with its cells in the group.

    Keras lists weights in the order of its layers, those of frozen layers last.
    """
    found = _recurrent(group)
    layers = sorted(recurrent_in(node), key=lambda layer: not layer.trainable)
    complete = sum(len(layer.cells) for layer in layers) == len(found)
    at = 0
    for layer in layers:
        count = len(layer.cells)
        own = found[at : at + count] if complete else _named(layer, found)
        yield layer, [scope.arrays for scope in own]
        at += count


def _named(layer: Recurrent, found: list[Scope]) -> list[Scope]:
    """Return those with the layer's name in their paths; all of them if the layer is
    at the top of the model."""
    return found if len(layer.path) == 1 else [s for s in found if layer.path[-1] in s.path]


def by_layer(name: str, group: Group) -> list[tuple[str, dict[str, list[Cell]]]]:
    """Return the name of each RNN in a layer, and its cells by direction ("": the only one).

    Cells of one RNN have the same path, except for their own last part. Several RNNs may have the
    same name.
    """
    layers: dict[str, dict[str, list[Cell]]] = {}
    for scope in _recurrent(group):
        path, side = _layer_path(scope.path)
        layers.setdefault(path, {}).setdefault(side, []).append(scope.arrays)
    alone = len(layers) == 1
    return [
        (name if alone else f"{name}/{path.rpartition('/')[2]}", sides)
        for path, sides in layers.items()
    ]


def _read_by_names(name: str, group: Group, entries: Entries) -> None:
    for entry, sides in by_layer(name, group):
        if sides.keys() == {"forward", "backward"} and len(sides["forward"]) == 1:
            entries.add(entry, [sides["forward"][0], sides["backward"][0]], True, None)
        else:
            for side, cells in sides.items():
                part = entry if len(sides) == 1 else f"{entry}/{side or 'other'}"
                entries.add(part, cells, False, None)


def _layer_path(path: Sequence[str]) -> tuple[str, str]:
    """Return the path of the layer and its direction or "", from the path of a cell."""
    path = list(path)
    while path and _IS_CELL.fullmatch(path[-1]) and len(path) > 1:
        path.pop()
    if path and (match := _DIRECTION.match(path[-1])):
        return "/".join([*path[:-1], path[-1][match.end() :]]), match[1]
    return "/".join(path), ""
