"""saved_model.pb: the variables of a SavedModel, the folder that contains saved_model.pb.

The variables are a checkpoint, variables/variables.index; a graph of objects in the checkpoint has
the names that Keras gave to the variables. SavedModels of Keras 2 also have keras_metadata.pb, the
configs of all layers. saved_model.pb itself, the description of the computation, is not read, and
no further file is opened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from rnnlayout._files.formats.content import message_fields
from rnnlayout._files.formats.keras.config import (
    parse_config,
    read_unknown_classes,
    recurrent_layers_in,
    unread_class,
)
from rnnlayout._files.formats.keras.entries import (
    LEAVES,
    CellArray,
    CellArrays,
    KerasEntries,
    LayerCells,
)
from rnnlayout._files.formats.registry import ModelFormat
from rnnlayout._files.tensor_sets.file_limits import InputFile
from rnnlayout._files.tensor_sets.file_rnns import Found
from rnnlayout._files.tensor_sets.find_rnns import find_rnns
from rnnlayout._files.tensor_sets.tensor_set import TensorSet
from rnnlayout._model.errors import Ask, FileError
from rnnlayout._model.reading_options import OF_FORMATS
from rnnlayout._native import SpecError
from rnnlayout._sources.keras_masks import mark_masks
from rnnlayout._sources.keras_tree import (
    MASK,
    Node,
    RecurrentLayer,
    child_layers,
    is_recurrent,
    layer_name,
)
from rnnlayout._sources.reading import Reading

from .checkpoint import METADATA, ObjectGraph, read_checkpoint, with_full_names

_VARIABLES = "variables/variables.index"
_SINCE = (2, 5)  # the first Keras that wrote keras_metadata.pb
_MOST_DEEP = 100  # layers in layers
_MOST_USES = 4  # cells per array: two layers may have one cell


def _read_saved_model(file: InputFile, reading: Reading) -> Found:
    path = file.path
    index, metadata = path.parent / _VARIABLES, path.parent / METADATA
    if not index.is_file():
        raise FileError(
            f"{path}: {_VARIABLES} does not exist beside it, so it is not a SavedModel with"
            " variables; the weights of a frozen graph are not read: pass the checkpoint or Keras"
            " file that it was made from"
        )
    tensor_set, graph = read_checkpoint(file.companion(index.name, index.parent.name))
    objects = ObjectGraph(graph, file)
    unused = OF_FORMATS[metadata.is_file() :]  # with metadata as_class is used
    for name in unused:
        if getattr(reading, name):
            have = "has a config of its own" if metadata.is_file() else f"has no {METADATA}"
            raise SpecError(f"{path.parent} {have}: omit ", Ask(name, None))
    if metadata.is_file():
        return _read_keras(file.companion(METADATA), objects, tensor_set, reading)
    return find_rnns(with_full_names(tensor_set, objects.full_names), reading, {})[1]


# ------------------------------------------------------------------------------- Keras's metadata


def _read_keras(
    metadata: InputFile, objects: ObjectGraph, tensor_set: TensorSet, reading: Reading
) -> Found:
    """Return the recurrent layers that the metadata describes."""
    nodes = dict[str, Node]()
    for path, node in _described_objects(metadata):
        if path in nodes:
            raise FileError(f"{metadata}: {path[:100]!r} is described twice: it is damaged")
        nodes[path] = node
    model = {"class_name": "Functional", "config": {"layers": [*nodes.values()]}}
    # "variables/3" does not show the layer of a variable
    names = {path: objects.full_names.get(path, path) for path in tensor_set.tensors}
    count = Counter(names.values())
    names = {path: name if count[name] == 1 else path for path, name in names.items()}
    shown = [name for path, name in names.items() if not path.startswith("optimizer")]
    entries = KerasEntries(shown, {}, reading, _SINCE, metadata.budget)
    read_unknown_classes(model, reading)
    _mark_masks(nodes)
    for node in nodes.values():
        if kind := unread_class(node):
            entries.refuse((layer_name(node),), kind)
    arrays = {path: CellArray(names[path], tensor) for path, tensor in tensor_set.tensors.items()}
    result = entries.read_layers(_recurrent_layers(metadata, nodes, objects, arrays))
    result.notes[:0] = tensor_set.notes
    return result


def _mark_masks(nodes: Mapping[str, Node]) -> None:
    """Write the masks of recurrent layers into their nodes. The config of the model shows the calls
    of the layers, and has nodes of its own for them."""
    model = nodes.get("root", {})
    if not child_layers(model):
        return
    mark_masks(model)
    masks = {layer.path[1:]: layer.node.get(MASK) for layer in recurrent_layers_in(model)}
    for inner_path, node in nodes.items():
        parts = inner_path.split(".")
        outer_paths = (".".join(parts[: k + 1]) for k in range(1, min(len(parts), _MOST_DEEP)))
        names = tuple(layer_name(nodes[outer]) for outer in outer_paths if outer in nodes)
        if names in masks:
            node[MASK] = masks[names]


def _described_objects(metadata: InputFile) -> Iterator[tuple[str, Node]]:
    """Yield the path of each layer or model, "root.layer-1", and the class with the config. The
    file is a SavedMetadata (saved_metadata.proto in Keras 2)."""
    for number, message in message_fields(memoryview(metadata.data())):
        if number == 1 and not isinstance(message, int):
            fields = dict(message_fields(message))
            path, text = fields.get(3), fields.get(5)
            if not isinstance(path, memoryview) or not isinstance(text, memoryview):
                raise FileError(f"{metadata}: a layer without a path or a config: it is damaged")
            node = parse_config(bytes(text), f"{metadata}: a layer")
            if "class_name" in node and "config" in node:
                yield str(path, "utf-8", "backslashreplace"), node


def _recurrent_layers(
    metadata: InputFile,
    nodes: Mapping[str, Node],
    objects: ObjectGraph,
    arrays: Mapping[str, CellArray],
) -> Iterator[LayerCells]:
    uses_left = _MOST_USES * len(arrays)
    for path, node in nodes.items():
        parts = path.split(".")
        if len(parts) > _MOST_DEEP:
            raise FileError(f"{metadata}: layers nested {len(parts)} deep: refused")
        prefixes = [".".join(parts[:k]) for k in range(2, len(parts))]
        outer_layers = [nodes[prefix] for prefix in prefixes if prefix in nodes]
        if is_recurrent(node) and not any(map(is_recurrent, outer_layers)):
            at = objects.find(parts[1:])
            cells = [] if at is None else list(_cells_of_object(objects, at, arrays))
            uses_left -= len(cells)
            if uses_left < 0:
                raise FileError(f"{metadata}: many layers have the same variables: refused")
            names = (*map(layer_name, outer_layers), layer_name(node))
            layer = RecurrentLayer(names, node)
            yield LayerCells(layer.name, cells, layer.both, layer)


def _cells_of_object(
    objects: ObjectGraph, layer: int, arrays: Mapping[str, CellArray]
) -> Iterator[CellArrays]:
    """Yield the cells of a layer, the cells of the forward layer first."""
    sides = [objects.children(layer).get(f"{side}_layer") for side in ("forward", "backward")]
    for side in (side for side in sides if side is not None) if any(sides) else [layer]:
        top_cell = objects.children(side).get("cell", side)
        stack = objects.children(objects.children(top_cell).get("cells", top_cell))
        numbers = sorted((name for name in stack if name.isdecimal()), key=lambda n: (len(n), n))
        for cell in [stack[name] for name in numbers] or [top_cell]:
            paths = {leaf: objects.variable(objects.children(cell).get(leaf)) for leaf in LEAVES}
            yield {
                leaf: arrays[path]
                for leaf, path in paths.items()
                if path is not None and path in arrays
            }


FORMAT = ModelFormat(".pb", ("keras", "keras-cudnn"), _read_saved_model, None, options=OF_FORMATS)
