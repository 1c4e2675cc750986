"""The recurrent layers that a Keras file stores, with their cells.

A legacy .h5 of Keras 1, 2 and 3 has lists of named arrays, one per layer. .weights.h5 and .keras
have a tree of objects, each with numbered arrays. A group of it has the name of its layer's class:
lstm, lstm_1 ... The name that the user gave is in an attribute that Keras 3 writes and late Keras 2
does not. Some versions of late Keras 2 call the layers of a model _layer_checkpoint_dependencies,
with gaps in the numbers.
"""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rnnlayout._files.tensor_sets.file_limits import InputFile, read_json_member, read_member
from rnnlayout._files.tensor_sets.found import Found
from rnnlayout._model.errors import Ask, FileError
from rnnlayout._native import SpecError
from rnnlayout._sources.keras_tree import Node, RecurrentLayer, Version
from rnnlayout._sources.reading import Reading

from .config import (
    CUDNN,
    Architecture,
    child_layers,
    class_in_file,
    is_recurrent,
    layer_name,
    parse_config,
    parse_keras_version,
    read_unknown_classes,
    recurrent_layers_in,
)
from .entries import LEAVES, CellArray, CellArrays, KerasEntries, LayerCells
from .hdf5_tree import Hdf5Group

# kernel:0, or kernel_1:0 if TensorFlow had to make names differ; Keras 1: lstm_1_W_i:0
_LEAF = re.compile(r"(recurrent_kernel|kernel|bias)(_\d+)?(:\d+)?")
_LEAF_1 = re.compile(r"(.*)_([WUb](?:_[icfozrh])?)(:\d+)?", re.DOTALL)
_IS_CELL = re.compile(r"(\w*_)?(cell|stacked_rnn_cells)(_\d+)?")
_DIRECTION = re.compile(r"(forward|backward)_")


def find_legacy_layers(root: Hdf5Group) -> Hdf5Group | None:
    """Return the group with a group for each layer, None in a file of another kind."""
    for group in (root.groups.get("model_weights"), root):
        if group and group.texts("layer_names") is not None:
            return group
    return None


def keras_version_of(root: Hdf5Group, layers: Hdf5Group) -> Version:
    return parse_keras_version(root.text("keras_version") or layers.text("keras_version"))


def read_legacy_weights(root: Hdf5Group, layers: Hdf5Group, entries: KerasEntries) -> Found:
    """Return the RNNs. Raises FileError if the file contradicts itself."""
    beside = entries.beside
    entries.version = (beside and beside.version) or keras_version_of(root, layers)
    config = root.text("model_config")
    if beside is not None and config is not None:
        why = f"{root.what}: the file has a config of its own: omit "
        raise SpecError(why, Ask("keras_config", None))
    model = (
        beside.model if beside else {} if config is None else parse_config(config, "model_config")
    )
    read_unknown_classes(model, entries.reading)
    if beside is not None:
        nodes = {layer_name(node): node for node in child_layers(model)}
        wanted = [name for name, node in nodes.items() if any(recurrent_layers_in(node))]
        beside.check_names(
            nodes, wanted, [name for name, g in _named_layer_groups(layers) if _recurrent_cells(g)]
        )
    return entries.found(legacy_layers(layers, model))


def legacy_layers(layers: Hdf5Group, model: Node) -> Iterator[LayerCells]:
    """Yield the recurrent layers of a file: those of a config, and others by their arrays' names.
    Raises FileError if a layer or an array is missing."""
    children = list(child_layers(model))
    count = Counter(map(layer_name, children))  # Keras 2.1 gives no name to models in a model
    nodes = {name: node for node in children if count[name := layer_name(node)] == 1}
    for name, group in _named_layer_groups(layers):
        cells = _recurrent_cells(group)
        if name not in nodes:
            yield from _layers_by_name(name, cells)
            continue
        # Keras lists weights in the order of its layers, those of frozen layers last
        own_layers = sorted(recurrent_layers_in(nodes[name]), key=lambda one: not one.trainable)
        complete = sum(len(layer.cells) for layer in own_layers) == len(cells)
        left = iter(cells.values())
        for layer in own_layers:
            own = [*cells.values()]
            if complete:
                own = [next(left) for _ in layer.cells]
            elif len(layer.path) > 1:  # the cells that have the layer's name in their paths
                own = [one for (*path, _), one in cells.items() if layer.path[-1] in path]
            yield LayerCells(layer.name, own, layer.both, layer)


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


def _recurrent_cells(group: Hdf5Group) -> dict[tuple[str, ...], CellArrays]:
    """Return the recurrent cells of a layer, in the order of the layer's list of arrays: the parts
    of their paths, of which the last is a number or "", -> their arrays."""
    found: dict[tuple[str, ...], dict[str, CellArray]] = {}
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
        found.setdefault((*path, number), {})[leaf] = CellArray(data.path, data.tensor)
    return {
        path: cell
        for path, cell in found.items()
        if {len(one.tensor.shape) for leaf, one in cell.items() if leaf[0] in "rU"} == {2}
    }


def _layers_by_name(name: str, found: Mapping[tuple[str, ...], CellArrays]) -> Iterator[LayerCells]:
    """Yield the RNNs in a layer without a config. Cells of one RNN have the same path, except for
    their own last part. Several RNNs may have the same name."""
    layers: dict[str, dict[str, list[CellArrays]]] = {}  # path -> direction or "" -> cells
    for (*parts, _), arrays in found.items():
        side = ""
        while len(parts) > 1 and _IS_CELL.fullmatch(parts[-1]):
            parts.pop()
        if parts and (match := _DIRECTION.match(parts[-1])):
            parts[-1], side = parts[-1][match.end() :], match[1]
        layers.setdefault("/".join(parts), {}).setdefault(side, []).append(arrays)
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


# ----------------------------------------------------- the variables of Keras 3 and of .keras files

METADATA, CONFIG, VARIABLES = "metadata.json", "config.json", "model.weights.h5"  # of an archive
_LAYERS = ("layers", "_layer_checkpoint_dependencies")


def _natural_order(name: str) -> tuple[str, int]:
    """Return a sort key for lstm, lstm_1, lstm_2, lstm_10."""
    match = re.fullmatch(r"(.*?)(?:_(\d{1,9}))?", name, re.DOTALL)
    return (match[1], int(match[2] or 0)) if match else (name, 0)


@dataclass(frozen=True)
class KerasArchive:
    """The model in a .keras archive. version: the version of the Keras that wrote it."""

    metadata: dict[str, Any]
    version: Version
    model: Node
    variables: bytes


def read_archive(file: InputFile, archive: zipfile.ZipFile, reading: Reading) -> KerasArchive:
    """Return the model. Raises FileError if Keras did not write it."""
    metadata = parse_config(read_json_member(file, archive, METADATA), f"{file}: {METADATA}")
    text = metadata.get("keras_version")
    if not isinstance(text, str):
        raise FileError(f"{file}: {METADATA} has keras_version {text!r}, need a string")
    model = parse_config(read_json_member(file, archive, CONFIG), f"{file}: {CONFIG}")
    if reading.keras_config is not None:
        raise SpecError(f"{file} has a config of its own: omit ", Ask("keras_config", None))
    return KerasArchive(metadata, parse_keras_version(text), model, read_member(archive, VARIABLES))


@dataclass(frozen=True)
class LayerGroup:
    """A layer of the config and its group. group_name: the group's name in Keras 3."""

    node: Node
    group: Hdf5Group
    group_name: str


def read_beside(root: Hdf5Group, beside: Architecture, entries: KerasEntries) -> Found:
    """Return the RNNs of a config in another file. Raises FileError if they differ."""
    model = beside.model
    read_unknown_classes(model, entries.reading)
    entries.version = beside.version or entries.version
    names = {}
    for path, layer in walk_layers(root, model):
        if is_recurrent(layer.node):
            own = layer.group.groups.get("vars")
            names[path[-1]] = (own and own.text("name")) or path[-1]
    wanted = {layer.path[-1] for layer in recurrent_layers_in(model)}
    beside.check_names(wanted, wanted, set(names.values()))
    described = {array for one in described_layers(root, model) for array in one.paths}
    for array in sorted({array for one in found_layers(root) for array in one.paths} - described):
        raise FileError(f"{beside.name}: it lacks the layer of {array} in the weights' file")
    return entries.found(described_layers(root, model))


def described_layers(root: Hdf5Group, model: Node) -> Iterator[LayerCells]:
    """Yield the recurrent layers of a config. Raises FileError if the file contradicts it."""
    for path, layer in walk_layers(root, model):
        if is_recurrent(layer.node):
            found = RecurrentLayer(path, layer.node)
            cells = _cells_of_group(layer.group, found.cells)
            yield LayerCells(found.name, cells, found.both, found)


def walk_layers(
    group: Hdf5Group, node: Node, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], LayerGroup]]:
    """Yield the layers of a model, and those in its models and wrappers after each of them. path:
    the names of the layers that it is in, and its own."""
    inside: list[LayerGroup] = []
    if path and "layer" in group.groups:  # of a wrapper
        inside = [LayerGroup(child, group.groups["layer"], "layer") for child in child_layers(node)]
    elif layers := [group.groups[name] for name in _LAYERS if name in group.groups]:
        inside = match_layer_groups(layers[0], child_layers(node))
    for layer in inside:
        here = (*path, layer_name(layer.node))
        yield here, layer
        if not is_recurrent(layer.node):
            yield from walk_layers(layer.group, layer.node, here)


def match_layer_groups(layers: Hdf5Group, nodes: Sequence[Node]) -> list[LayerGroup]:
    """Return each layer of a config that has a group: the k-th of its class."""
    classes = [class_in_file(node) for node in nodes]
    # Keras 2 called a nested model Model; Keras 3 reads that as a Functional, and saves it so
    classes = ["Functional" if name == "Model" else name for name in classes]
    new_names = _group_names([CUDNN.get(name, name) for name in classes])
    names, by_class = _group_names(classes), dict[str, list[int]]()
    for k, kind in enumerate(map(snake_case, classes)):
        by_class.setdefault(kind, []).append(k)
    group_names: dict[str, list[str]] = {}  # without their numbers
    for name in sorted(layers.groups, key=_natural_order):
        group_names.setdefault(_natural_order(name)[0], []).append(name)
    groups: dict[int, Hdf5Group] = {}
    for kind, alike in by_class.items():
        expected = [names[k] for k in alike]
        found = group_names.get(_natural_order(kind)[0], [])
        if len(found) == len(alike) and not set(expected) <= set(found):
            expected = found
        for k, name in zip(alike, expected, strict=True):
            if name in layers.groups:  # otherwise it is shared, and has its group elsewhere
                groups[k] = layers.groups[name]
    return [LayerGroup(nodes[k], groups[k], new_names[k]) for k in sorted(groups)]


def _group_names(classes: Sequence[str]) -> list[str]:
    names: list[str] = []
    counts: Counter[str] = Counter()
    for name in map(snake_case, classes):
        names.append(f"{name}_{counts[name]}" if counts[name] else name)
        counts[name] += 1
    return names


def snake_case(name: str) -> str:
    """Return a class's name as Keras writes it: simple_rnn, cu_dnnlstm."""
    name = re.sub(r"\W+", "", name.split(">")[-1])
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def found_layers(group: Hdf5Group, path: tuple[str, ...] = ()) -> Iterator[LayerCells]:
    """Yield whatever looks like a recurrent layer, in a file without a config."""
    for name in sorted(group.groups, key=_natural_order):
        child = group.groups[name]
        variables = child.groups.get("vars")
        users_name = variables.text("name") if variables else None
        called = users_name or ("" if name in (*_LAYERS, "layer") else name)
        here = (*path, called) if called else path
        is_cudnn = name.startswith(("cu_dnnlstm", "cu_dnngru"))
        cells = _cells_of_group(child) if "cell" in child.groups or is_cudnn else []
        sides = [child.groups.get("forward_layer"), child.groups.get("backward_layer")]
        both = [cell for side in sides if side for cell in _cells_of_group(side)]
        if len(both) == 2:
            yield LayerCells("/".join(here), both, both=True)
        elif cells:
            yield LayerCells("/".join(here), cells, both=False)
        elif name not in ("vars", "optimizer"):
            yield from found_layers(child, here)


def _cells_of_group(layer: Hdf5Group, nodes: Sequence[Node] = ()) -> list[CellArrays]:
    """Return the cells of a Bidirectional, a stack, a layer with a cell or with its own arrays.
    nodes: the config's nodes of all its cells. Without a config there are none, and the cells of a
    stack are taken in the order of their classes."""
    if "forward_layer" in layer.groups:
        sides = [layer.groups["forward_layer"], layer.groups.get("backward_layer")]
        half = len(nodes) // 2
        own = (nodes[:half], nodes[half:])
        return [
            c for side, n in zip(sides, own, strict=True) if side for c in _cells_of_group(side, n)
        ]
    cell = layer.groups.get("cell", layer)
    groups = [cell]
    if stack := cell.groups.get("cells"):
        groups = [stack.groups[name] for name in sorted(stack.groups, key=_natural_order)]
        if nodes:
            groups = [one.group for one in match_layer_groups(stack, nodes)]
    cells: list[CellArrays] = []
    for variables in (group.groups.get("vars") for group in groups):
        numbered = variables.datasets if variables else {}
        found = {
            leaf: CellArray(data.path, data.tensor)
            for number, leaf in enumerate(LEAVES)
            if (data := numbered.get(str(number)))
        }
        matrices = [found[leaf] for leaf in LEAVES[:2] if leaf in found]
        if len(matrices) == 2 and all(len(one.tensor.shape) == 2 for one in matrices):
            cells.append(found)
    return cells
