"""The weights of a legacy .h5 of Keras 1, 2 and 3: lists of named arrays, one per layer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rnnlayout._files.tensor_sets.found import Found
from rnnlayout._model.asks import Ask
from rnnlayout._model.errors import FileError
from rnnlayout._native import SpecError
from rnnlayout._sources.keras_tree import Node, Version

from .config import child_layers, layer_name, parse_config, parse_keras_version, recurrent_layers_in
from .entries import CellArray, CellArrays, KerasEntries, LayerCells
from .hdf5_tree import Hdf5Group

# kernel:0, or kernel_1:0 if TensorFlow had to make names differ; Keras 1: lstm_1_W_i:0
_LEAF = re.compile(r"(recurrent_kernel|kernel|bias)(_\d+)?(:\d+)?")
_LEAF_1 = re.compile(r"(.*)_([WUb](?:_[icfozrh])?)(:\d+)?", re.DOTALL)
_IS_CELL = re.compile(r"(\w*_)?(cell|stacked_rnn_cells)(_\d+)?")
_DIRECTION = re.compile(r"(forward|backward)_")


@dataclass
class NamedCell:
    """The arrays of one cell. path: the parts of their names before the name of the array."""

    path: list[str]
    arrays: dict[str, CellArray] = field(default_factory=dict)

    @property
    def is_recurrent(self) -> bool:
        matrices = [a for leaf, a in self.arrays.items() if leaf[0] in "rU"]
        return bool(matrices) and all(len(a.shape) == 2 for a in matrices)


def find_legacy_layers(root: Hdf5Group) -> Hdf5Group | None:
    """Return the group with a group for each layer, None in a file of another kind."""
    for group in (root.groups.get("model_weights"), root):
        if group and group.texts("layer_names") is not None:
            return group
    return None


def keras_version_of(root: Hdf5Group, layers: Hdf5Group) -> Version:
    """Return the version of the Keras that wrote the file."""
    return parse_keras_version(root.text("keras_version") or layers.text("keras_version"))


def read_legacy_weights(root: Hdf5Group, layers: Hdf5Group, entries: KerasEntries) -> Found:
    """Return the RNNs. Raises FileError if the file contradicts itself."""
    beside = entries.beside
    entries.version = (beside and beside.version) or keras_version_of(root, layers)
    config = root.text("model_config")
    if beside is not None and config is not None:
        why = f"{root.what}: the file has a config of its own: omit "
        raise SpecError(why + Ask("config", None))
    model = (
        beside.model if beside else {} if config is None else parse_config(config, "model_config")
    )
    entries.take_classes(model)
    if beside is not None:
        nodes = {layer_name(node): node for node in child_layers(model)}
        wanted = [name for name, node in nodes.items() if any(recurrent_layers_in(node))]
        beside.check_names(
            nodes, wanted, [name for name, g in _named_layer_groups(layers) if _recurrent_cells(g)]
        )
    return entries.found(legacy_layers(layers, model))


def legacy_layers(layers: Hdf5Group, model: Node) -> Iterator[LayerCells]:
    """Yield the recurrent layers of a file: those of a config, and others by their arrays' names.

    Raises FileError if a layer or an array is missing.
    """
    children = list(child_layers(model))
    count = Counter(map(layer_name, children))  # Keras 2.1 gives no name to models in a model
    nodes = {name: node for node in children if count[name := layer_name(node)] == 1}
    for name, group in _named_layer_groups(layers):
        found = _recurrent_cells(group)
        yield from (
            _layers_of_config(nodes[name], found) if name in nodes else _layers_by_name(name, found)
        )


def _listed_once(group: Hdf5Group, attribute: str) -> list[str]:
    """Return the names in a list. Raises FileError if one is repeated."""
    names = group.texts(attribute) or []
    if len(set(names)) < len(names):
        raise FileError(f"{group.what}: {attribute} has a name twice")
    return names


def _named_layer_groups(layers: Hdf5Group) -> Iterator[tuple[str, Hdf5Group]]:
    for name in _listed_once(layers, "layer_names"):
        group = layers.group(name)
        if group is None:
            raise FileError(f"layer {name!r} is listed, but not in the file")
        yield name, group


def _recurrent_cells(group: Hdf5Group) -> list[NamedCell]:
    """Return the recurrent cells of a layer, in the order of the layer's list of arrays."""
    found: dict[str, NamedCell] = {}
    for name in _listed_once(group, "weight_names"):
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
        scope = found.setdefault("/".join([*path, number]), NamedCell(path))
        scope.arrays[leaf] = CellArray(data.path, data.tensor)
    return [scope for scope in found.values() if scope.is_recurrent]


def _layers_of_config(node: Node, found: list[NamedCell]) -> Iterator[LayerCells]:
    """Yield the recurrent layers in a layer of the config, each with its cells.

    Keras lists weights in the order of its layers, those of frozen layers last.
    """
    layers = sorted(recurrent_layers_in(node), key=lambda layer: not layer.trainable)
    complete = sum(len(layer.cells) for layer in layers) == len(found)
    at = 0
    for layer in layers:
        own = found
        if complete:
            own, at = found[at : at + len(layer.cells)], at + len(layer.cells)
        elif len(layer.path) > 1:  # the cells that have the layer's name in their paths
            own = [scope for scope in found if layer.path[-1] in scope.path]
        yield LayerCells.of(layer, [scope.arrays for scope in own])


def _layers_by_name(name: str, found: list[NamedCell]) -> Iterator[LayerCells]:
    """Yield the RNNs in a layer without a config.

    Cells of one RNN have the same path, except for their own last part. Several RNNs may have the
    same name.
    """
    layers: dict[str, dict[str, list[CellArrays]]] = {}  # path -> direction or "" -> cells
    for scope in found:
        path, side = _layer_path(scope.path)
        layers.setdefault(path, {}).setdefault(side, []).append(scope.arrays)
    if [[*sides] for sides in layers.values()] == [["forward"], ["backward"]]:
        first, second = layers.values()  # of a Bidirectional whose layers have two names
        layers = {"": first | second}
    for path, sides in layers.items():
        own = name if len(layers) == 1 else f"{name}/{path.rpartition('/')[2]}"
        if sides.keys() == {"forward", "backward"} and len(sides["forward"]) == 1:
            yield LayerCells(own, [sides["forward"][0], sides["backward"][0]], both=True)
        else:
            for side, cells in sides.items():
                part = own if len(sides) == 1 else f"{own}/{side or 'other'}"
                yield LayerCells(part, cells, both=False)


def _layer_path(path: Sequence[str]) -> tuple[str, str]:
    """Return the path of the layer and its direction or "", from the path of a cell."""
    path = list(path)
    while path and _IS_CELL.fullmatch(path[-1]) and len(path) > 1:
        path.pop()
    if path and (match := _DIRECTION.match(path[-1])):
        return "/".join([*path[:-1], path[-1][match.end() :]]), match[1]
    return "/".join(path), ""
