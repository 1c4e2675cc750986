"""The recurrent layers that a Keras file stores, with their cells.

A legacy .h5 of Keras 1, 2 and 3 has a list of named arrays per layer. .weights.h5 and .keras have a
tree of objects, each with numbered arrays. A group of the tree has the name of the layer's class:
lstm, lstm_1 ... Keras 3 writes the user's name of the layer in an attribute, late Keras 2 does not.
Some versions of late Keras 2 call the layers of a model _layer_checkpoint_dependencies, with gaps
in the numbers.
"""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rnnlayout._files.tensor_sets.file_limits import InputFile, read_json_member, read_member
from rnnlayout._files.tensor_sets.file_rnns import Found
from rnnlayout._model.errors import Ask, FileError
from rnnlayout._native import SpecError
from rnnlayout._sources.keras_masks import mark_masks
from rnnlayout._sources.keras_tree import (
    Node,
    RecurrentLayer,
    Version,
    any_config,
    child_layers,
    class_of,
    is_recurrent,
    layer_name,
)
from rnnlayout._sources.reading import Reading

from .config import (
    CUDNN,
    Architecture,
    class_in_file,
    parse_config,
    parse_keras_version,
    recurrent_layers_in,
)
from .entries import IS_CELL, LEAVES, CellArray, CellArrays, KerasEntries, LayerCells
from .hdf5_tree import Hdf5Group

# kernel:0, or kernel_1:0 if TensorFlow had to make names differ; Keras 1: lstm_1_W_i:0
_LEAF = re.compile(r"(recurrent_kernel|kernel|bias)(_\d+)?(:\d+)?")
_LEAF_1 = re.compile(r"(.*)_([WUb](?:_[icfozrh])?)(:\d+)?", re.DOTALL)
_DIRECTION = re.compile(r"(forward|backward)_")


def find_legacy_layers(root: Hdf5Group) -> Hdf5Group | None:
    """Return the group with a group for each layer, None in a file that is not a legacy file."""
    for group in (root.groups.get("model_weights"), root):
        if group and group.texts("layer_names") is not None:
            return group
    return None


def keras_version_of(root: Hdf5Group, layers: Hdf5Group) -> Version:
    return parse_keras_version(root.text("keras_version") or layers.text("keras_version"))


def read_legacy_weights(root: Hdf5Group, layers: Hdf5Group, entries: KerasEntries) -> Found:
    """Return the RNNs. Raises FileError if the config, the caller's config and the lists of arrays
    contradict each other."""
    architecture = entries.architecture
    entries.version = (architecture and architecture.version) or keras_version_of(root, layers)
    config = root.text("model_config")
    if architecture is not None and config is not None:
        why = f"{root.label}: the file has a config of its own: omit "
        raise SpecError(why, Ask("keras_config", None))
    model: Node = {}
    if architecture:
        model = architecture.model
    elif config is not None:
        model = parse_config(config, "model_config")
    entries.read_classes(model)
    mark_masks(model)
    if architecture is not None:
        nodes = {layer_name(node): node for node in child_layers(model)}
        recurrent_names = [name for name, node in nodes.items() if any(recurrent_layers_in(node))]
        stored_names = [
            name for name, group in _named_layer_groups(layers) if _recurrent_cells(group)
        ]
        architecture.check_names(nodes, recurrent_names, stored_names)
    return entries.read_layers(legacy_layers(layers, model))


def legacy_layers(layers: Hdf5Group, model: Node) -> Iterator[LayerCells]:
    """Yield the recurrent layers of a file: the layers of a config, and layers that only the names
    of arrays show. Raises FileError if a layer or an array is missing."""
    children = list(child_layers(model))
    count = Counter(map(layer_name, children))  # Keras 2.1 gives no name to models in a model
    nodes = {name: node for node in children if count[name := layer_name(node)] == 1}
    for name, group in _named_layer_groups(layers):
        if name not in nodes:
            yield from _layers_by_name(name, _recurrent_cells(group, of_any_rank=True))
            continue
        cells = _recurrent_cells(group)
        # Keras lists weights in the order of the layers, weights of frozen layers last
        inner = sorted(recurrent_layers_in(nodes[name]), key=lambda layer: not layer.trainable)
        is_complete = sum(len(layer.cells) for layer in inner) == len(cells)
        remaining = iter(cells.values())
        for layer in inner:
            layer_cells = [*cells.values()]
            if is_complete:
                layer_cells = [next(remaining) for _ in layer.cells]
            elif len(layer.path) > 1:  # the cells with the layer's name in their paths
                layer_cells = [cell for (*path, _), cell in cells.items() if layer.path[-1] in path]
            yield LayerCells(layer.name, layer_cells, layer.both, layer)


def _listed_once(group: Hdf5Group, attribute: str) -> list[str]:
    """Return the names in a list. Raises FileError if a name is repeated."""
    names = group.texts(attribute) or []
    if len(set(names)) < len(names):
        raise FileError(f"{group.label}: {attribute} has a name twice")
    return names


def _named_layer_groups(layers: Hdf5Group) -> Iterator[tuple[str, Hdf5Group]]:
    for name in _listed_once(layers, "layer_names"):
        group = layers.group(name)
        if group is None:
            raise FileError(f"layer {name!r} is listed, but not in the file")
        yield name, group


def _recurrent_cells(
    group: Hdf5Group, *, of_any_rank: bool = False
) -> dict[tuple[str, ...], CellArrays]:
    """Return the recurrent cells of a layer as cells_of_arrays() does."""
    arrays = {}
    for name in _listed_once(group, "weight_names"):
        dataset = group.dataset(name)
        if dataset is None:
            raise FileError(f"{group.path}: weight {name!r} is listed, but not in the file")
        arrays[name] = CellArray(dataset.path, dataset.tensor)
    return cells_of_arrays(arrays, of_any_rank=of_any_rank)


def cells_of_arrays(
    arrays: Mapping[str, CellArray], *, of_any_rank: bool = False
) -> dict[tuple[str, ...], CellArrays]:
    """Return {parts of the path: arrays} of the recurrent cells among named arrays, in order. The
    last part of a path is a number or "". of_any_rank: also of cells without matrices, which are
    refused by name (of ConvLSTM2D)."""
    cells: dict[tuple[str, ...], dict[str, CellArray]] = {}
    for name, array in arrays.items():
        *path, last = name.split("/")
        if match := _LEAF.fullmatch(last):
            leaf, number = match[1], match[2] or ""
        elif match := _LEAF_1.fullmatch(last):
            leaf, number, path = match[2], "", [*path, match[1]]
        else:
            continue
        cells.setdefault((*path, number), {})[leaf] = array
    ranks = {
        path: {len(array.tensor.shape) for leaf, array in cell.items() if leaf[0] in "rU"}
        for path, cell in cells.items()
    }
    return {
        path: cell
        for path, cell in cells.items()
        if ranks[path] == {2} or (of_any_rank and ranks[path])
    }


def _layers_by_name(
    name: str, cells_by_path: Mapping[tuple[str, ...], CellArrays]
) -> Iterator[LayerCells]:
    """Yield the RNNs in a layer without a config. The paths of the cells of an RNN are equal except
    for the last part. Several RNNs may have the same name."""
    layers: dict[str, dict[str, list[CellArrays]]] = {}  # path -> direction or "" -> cells
    for (*parts, _), arrays in cells_by_path.items():
        side = ""
        while len(parts) > 1 and IS_CELL.fullmatch(parts[-1]):
            parts.pop()
        if parts and (match := _DIRECTION.match(parts[-1])):
            parts[-1], side = parts[-1][match.end() :], match[1]
        layers.setdefault("/".join(parts), {}).setdefault(side, []).append(arrays)
    if [[*sides] for sides in layers.values()] == [["forward"], ["backward"]]:
        first, second = layers.values()  # of a Bidirectional, with a path per direction
        layers = {"": first | second}
    for path, sides in layers.items():
        rnn_name = name if len(layers) == 1 else f"{name}/{path.rpartition('/')[2]}"
        if sides.keys() == {"forward", "backward"} and len(sides["forward"]) == 1:
            yield LayerCells(rnn_name, [sides["forward"][0], sides["backward"][0]], both=True)
        else:
            for side, cells in sides.items():
                part = rnn_name if len(sides) == 1 else f"{rnn_name}/{side or 'other'}"
                yield LayerCells(part, cells, both=False)


# ----------------------------------------------------- the variables of Keras 3 and of .keras files

METADATA, CONFIG, VARIABLES = "metadata.json", "config.json", "model.weights.h5"  # of an archive
_LAYERS = ("layers", "_layer_checkpoint_dependencies")
# the last variables of a layer: moving averages; mean, variance and count
_NON_TRAINABLE = {"BatchNormalization": 2, "SyncBatchNormalization": 2, "Normalization": 3}


def _natural_order(name: str) -> tuple[str, int]:
    """Return a sort key for lstm, lstm_1, lstm_2, lstm_10."""
    match = re.fullmatch(r"(.*?)(?:_(\d{1,9}))?", name, re.DOTALL)
    return (match[1], int(match[2] or 0)) if match else (name, 0)


@dataclass(frozen=True)
class KerasArchive:
    """The model in a .keras archive. version: the version of the Keras that wrote the archive."""

    metadata: dict[str, Any]
    version: Version
    model: Node
    variables: bytes


def read_archive(file: InputFile, archive: zipfile.ZipFile, reading: Reading) -> KerasArchive:
    """Return the model in an archive. Raises FileError if Keras did not write the archive."""
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
    """A layer of the config and the layer's group. group_name: the group's name in Keras 3."""

    node: Node
    group: Hdf5Group
    group_name: str


def read_with_architecture(
    root: Hdf5Group, architecture: Architecture, entries: KerasEntries
) -> Found:
    """Return the RNNs of a file of variables, described by the caller's config. Raises FileError if
    file and config have different recurrent layers."""
    model = architecture.model
    entries.read_classes(model)
    mark_masks(model)
    entries.version = architecture.version or entries.version
    names = {}
    for path, layer in walk_layers(root, model):
        if is_recurrent(layer.node):
            variables = layer.group.groups.get("vars")
            names[path[-1]] = (variables and variables.text("name")) or path[-1]
    recurrent = {layer.path[-1] for layer in recurrent_layers_in(model)}
    architecture.check_names(recurrent, recurrent, set(names.values()))
    described_paths = {array for layer in described_layers(root, model) for array in layer.paths}
    stored_layers = filter(LayerCells.has_matrices, layers_without_config(root))
    stored_paths = {array for layer in stored_layers for array in layer.paths}
    for array in sorted(stored_paths - described_paths):
        raise FileError(f"{architecture.name}: it lacks the layer of {array} in the weights' file")
    return entries.read_layers(described_layers(root, model))


def described_layers(root: Hdf5Group, model: Node) -> Iterator[LayerCells]:
    """Yield the recurrent layers of a config. Raises FileError if the config is malformed."""
    for path, layer in walk_layers(root, model):
        if is_recurrent(layer.node):
            recurrent = RecurrentLayer(path, layer.node)
            cells = _cells_of_group(layer.group, recurrent.cells)
            yield LayerCells(recurrent.name, cells, recurrent.both, recurrent)


def trainable_shapes(root: Hdf5Group, model: Node) -> Iterator[tuple[int, ...]]:
    """Yield the shapes of the variables that Keras 2 trains, in its order. A layer of an unknown
    class may have further variables, in groups of layers inside."""
    frozen: set[tuple[str, ...]] = set()  # paths
    for path, layer in walk_layers(root, model):
        if path[:-1] in frozen or any_config(layer.node).get("trainable") is False:
            frozen.add(path)
        elif is_recurrent(layer.node):
            nodes = RecurrentLayer(path, layer.node).cells
            for node, cell in zip(nodes, _cells_of_group(layer.group, nodes), strict=False):
                if any_config(node).get("trainable") is not False:
                    yield from (array.tensor.shape for array in cell.values())
        elif variables := layer.group.groups.get("vars"):
            count = len(variables.datasets) - _NON_TRAINABLE.get(class_of(layer.node), 0)
            arrays = map(variables.datasets.get, map(str, range(count)))
            yield from (array.tensor.shape for array in arrays if array is not None)


def paths_without_groups(root: Hdf5Group, model: Node) -> Iterator[tuple[str, ...]]:
    """Yield the paths of the recurrent layers of a config that have no group in the file."""
    stored = {path[-1] for path, _ in walk_layers(root, model)}
    for layer in recurrent_layers_in(model):
        path = layer.path[1:]  # without the model's name
        if path and path[-1] not in stored:  # a shared layer has a group in one of its places
            yield path


def walk_layers(
    group: Hdf5Group, node: Node, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], LayerGroup]]:
    """Yield (path, layer) of each layer in a model; after an inner model or wrapper, also the
    layers inside. path: the names of the layers around, then the model's name."""
    layers: list[LayerGroup] = []
    if path and "layer" in group.groups:  # of a wrapper
        layers = [LayerGroup(child, group.groups["layer"], "layer") for child in child_layers(node)]
    elif containers := [group.groups[name] for name in _LAYERS if name in group.groups]:
        layers = match_layer_groups(containers[0], child_layers(node))
    for layer in layers:
        layer_path = (*path, layer_name(layer.node))
        yield layer_path, layer
        if not is_recurrent(layer.node):
            yield from walk_layers(layer.group, layer.node, layer_path)


def match_layer_groups(layers: Hdf5Group, nodes: Sequence[Node]) -> list[LayerGroup]:
    """Return the layers of a config that have groups. The k-th layer of a class has the k-th group
    of that class."""
    classes = [class_in_file(node) for node in nodes]
    # Keras 2 called a nested model Model; Keras 3 reads and saves a Model as a Functional
    classes = ["Functional" if name == "Model" else name for name in classes]
    new_names = _group_names([CUDNN.get(name, name) for name in classes])
    names, by_class = _group_names(classes), dict[str, list[int]]()
    for k, kind in enumerate(map(snake_case, classes)):
        by_class.setdefault(kind, []).append(k)
    group_names: dict[str, list[str]] = {}  # name without a number -> names
    for name in sorted(layers.groups, key=_natural_order):
        group_names.setdefault(_natural_order(name)[0], []).append(name)
    groups: dict[int, Hdf5Group] = {}
    for kind, alike in by_class.items():
        expected = [names[k] for k in alike]
        stored_names = group_names.get(_natural_order(kind)[0], [])
        if len(stored_names) == len(alike) and not set(expected) <= set(stored_names):
            expected = stored_names
        for k, name in zip(alike, expected, strict=True):
            if name in layers.groups:  # otherwise the layer is shared, with the group elsewhere
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
    """Return a class's name in the spelling of Keras's groups: simple_rnn, cu_dnnlstm."""
    name = re.sub(r"\W+", "", name.split(">")[-1])
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def layers_without_config(group: Hdf5Group, path: tuple[str, ...] = ()) -> Iterator[LayerCells]:
    """Yield all groups that look like a recurrent layer, in a file without a config."""
    for name in sorted(group.groups, key=_natural_order):
        child = group.groups[name]
        variables = child.groups.get("vars")
        user_name = variables.text("name") if variables else None
        path_name = user_name or ("" if name in (*_LAYERS, "layer") else name)
        layer_path = (*path, path_name) if path_name else path
        is_cudnn = name.startswith(("cu_dnnlstm", "cu_dnngru"))
        cells = _cells_of_group(child) if "cell" in child.groups or is_cudnn else []
        sides = [child.groups.get("forward_layer"), child.groups.get("backward_layer")]
        side_cells = [cell for side in sides if side for cell in _cells_of_group(side)]
        if all(sides) and side_cells:
            yield LayerCells("/".join(layer_path), side_cells, both=True)
        elif cells:
            yield LayerCells("/".join(layer_path), cells, both=False)
        elif name not in ("vars", "optimizer"):
            yield from layers_without_config(child, layer_path)


def _cells_of_group(layer: Hdf5Group, nodes: Sequence[Node] = ()) -> list[CellArrays]:
    """Return the cells of a Bidirectional, a stack, a layer with a cell, or a layer with arrays.
    nodes: the config's nodes of all cells. Without a config nodes is empty, and the cells of a
    stack are sorted by the names of their groups."""
    if "forward_layer" in layer.groups:
        sides = [layer.groups["forward_layer"], layer.groups.get("backward_layer")]
        middle = len(nodes) // 2
        halves = (nodes[:middle], nodes[middle:])
        return [
            cell
            for side, half in zip(sides, halves, strict=True)
            if side
            for cell in _cells_of_group(side, half)
        ]
    cell = layer.groups.get("cell", layer)
    groups = [cell]
    if stack := cell.groups.get("cells"):
        groups = [stack.groups[name] for name in sorted(stack.groups, key=_natural_order)]
        if nodes:
            groups = [layer.group for layer in match_layer_groups(stack, nodes)]
    cells: list[CellArrays] = []
    for variables in (group.groups.get("vars") for group in groups):
        numbered = variables.datasets if variables else {}
        arrays = {
            leaf: CellArray(dataset.path, dataset.tensor)
            for number, leaf in enumerate(LEAVES)
            if (dataset := numbered.get(str(number)))
        }
        if all(leaf in arrays for leaf in LEAVES[:2]):
            cells.append(arrays)
    return cells
