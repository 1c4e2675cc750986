"""One recurrent layer of Keras as a tree: the layer, its directions, its cells.

A node is what Keras writes about a layer or a whole model: {"class_name": ..., "config": {...}}.
It is from a file, or made of a live layer, which is recognized by its class. It is only data:
nothing that it names is ever looked up, imported or created.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from rnnlayout._model.errors import FileError
from rnnlayout._native import LayoutError, LossyError

from . import mismatch
from .keras_config import (
    CELLS,
    MAY_DIFFER,
    check_opposite,
    config_name,
    join_directions,
    layer_differences,
    read_config,
    short_repr,
)
from .self_description import RNNDescription, class_names

Version = tuple[int, int]  # major and minor version of Keras
Node = dict[str, Any]

_MODULES = ("keras", "tf_keras", "tensorflow")
_CLASSES = (*CELLS, "LSTMCell", "GRUCell", "SimpleRNNCell", "StackedRNNCells", "RNN",
            "Bidirectional")  # fmt: skip
_WEIGHTS = ("kernel", "recurrent_kernel", "bias")
_INSIDE = ("cell", "forward_layer", "backward_layer")
_KERAS_2 = ("tf_keras", "keras.engine", "keras.src.engine", "tensorflow.python.keras")


@dataclass(frozen=True)
class RecurrentLayer:
    """A recurrent layer: one of CELLS, an RNN of cells, cells alone, or a Bidirectional.

    path: its name, after the names of the models and wrappers that it is in. node: its part of the
    config, not a copy. trainable: whether neither the layer nor a model or wrapper around it is
    frozen.
    """

    path: tuple[str, ...]
    node: Node
    trainable: bool = True

    @property
    def name(self) -> str:
        return "/".join(self.path)

    @property
    def both(self) -> bool:
        """Whether it is bidirectional."""
        return class_of(self.node) == "Bidirectional"

    @property
    def cells(self) -> list[Node]:
        """The node of each of its cells in the order of its weights: bottom first, forward first. A
        cell for both directions is in the list twice. A layer without a cell of its own is its
        cell. Raises FileError if the config is malformed."""
        return [cell for side in self._sides() for cell, _ in _cells_of_layer(side)]

    def descriptions(self, version: Version) -> list[RNNDescription]:
        """Return what each layer of its RNN is, bottom first; several only for StackedRNNCells.
        version: (major, minor) of the Keras that wrote it. Raises LossyError or LayoutError if no
        layout can represent it, FileError if the config is malformed."""
        sides = [
            [_describe_cell(*cell, version) for cell in _cells_of_layer(side)]
            for side in self._sides()
        ]
        if not self.both:
            return sides[0]
        forward, backward = sides
        config = config_of(self.node)
        if len(forward) != 1 or len(backward) != 1:
            raise LossyError(
                f"{config_name(config)!r} has a stack of cells per direction, which reads only"
                " outputs of that direction: no layout can represent it"
            )
        name, mode = config_name(config), config.get("merge_mode", "concat")
        if mode is not None and not isinstance(mode, str):
            raise FileError(f"{name!r}: merge_mode is {short_repr(mode)}, need a name or null")
        if config.get("backward_layer") is not None:  # without one, Keras makes the opposite
            check_opposite(forward[0], backward[0], name)
        return [join_directions(forward[0], backward[0], name, mode)]

    def description(self, version: Version) -> RNNDescription:
        """Return what its RNN is. Raises LayoutError if it is several RNNs, and the errors of
        descriptions()."""
        layers = self.descriptions(version)
        first = layers[0]
        for other in layers[1:]:
            if what := layer_differences(first, other):
                raise LayoutError(
                    f"the cells of {self.name!r} differ: {what}. They are several RNNs, convert"
                    " each cell on its own"
                )
        return replace(first, hints={**first.hints, "num_layers": len(layers)})

    def _sides(self) -> list[Node]:
        if not self.both:
            return [self.node]
        config = config_of(self.node)
        forward = node_of(config.get("layer"))
        backward = config.get("backward_layer")
        return [forward, forward if backward is None else node_of(backward)]


def kind_of(cell: Node) -> str:
    """Return the class of a cell, or of a layer with such a cell: one of CELLS if it is known."""
    return class_of(cell).removesuffix("Cell")


def _cells_of_layer(layer: Node) -> list[tuple[Node, dict[str, Any]]]:
    """Return the cells of a layer of one direction, each with the options of the layer around."""
    if class_of(layer) != "RNN":
        return [(cell, {}) for cell in _cells_of_stack(layer)]
    config = config_of(layer)
    around = {key: config.get(key, False) for key in MAY_DIFFER}
    first, *above = _cells_of_stack(node_of(config.get("cell")))
    # the RNN goes backwards, not each cell: the cells above read what the first one returns
    return [(first, around), *((cell, {**around, "go_backwards": False}) for cell in above)]


def _cells_of_stack(cell: Node) -> list[Node]:
    """Return the cells of StackedRNNCells, bottom first; another node as it is."""
    if class_of(cell) != "StackedRNNCells":
        return [cell]
    cells = config_of(cell).get("cells")
    if not isinstance(cells, list) or not cells:
        raise FileError("the model's config has StackedRNNCells without a list of cells")
    return [node_of(one) for one in cells]


def _describe_cell(cell: Node, around: dict[str, Any], version: Version) -> RNNDescription:
    if kind_of(cell) not in CELLS:
        kind, name = short_repr(cell.get("class_name")), config_name(config_of(cell))
        raise LossyError(f"{name!r} is a cell of class {kind}, which no layout can represent")
    found = read_config(kind_of(cell), {**config_of(cell), **around}, version)
    alone = kind_of(cell) != class_of(cell) and not around
    return replace(found, batch_first=None) if alone else found


def class_of(node: Node) -> str:
    """Return the class of one of Keras's own layers, "" for other layers of the same name too."""
    name, registered = node.get("class_name"), node.get("registered_name")
    module = str(node.get("module") or "keras").split(".")[0]
    own = isinstance(name, str) and registered in (None, name) and module in _MODULES
    return str(name) if own else ""


def config_of(node: Node) -> dict[str, Any]:
    """Return a node's config. Raises FileError if it has none."""
    config = node.get("config")
    return any_config(node) if isinstance(config, list) else object_of(config)


def any_config(node: Node) -> dict[str, Any]:
    """Return a node's config, {} if it has none that makes sense."""
    config = node.get("config")
    if isinstance(config, list):  # a Sequential of Keras 1 and early 2: the list of its layers
        config = {"layers": config}
    return config if isinstance(config, dict) else {}


def node_of(value: Any) -> Node:
    found = object_of(value)
    if "class_name" not in found:
        raise FileError("the model's config has a layer without class_name")
    return found


def object_of(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FileError(f"the model's config has a {type(value).__name__}, need an object")
    return value


# -------------------------------------------------------------------------------------- live layers


def is_keras_layer(value: Any) -> bool:
    own = type(value)  # a module of torch takes long to say what it lacks
    return hasattr(own, "get_weights") and hasattr(own, "get_config")


def describe_keras_layer(layer: Any) -> RNNDescription:
    if _keras_class(layer) is None:
        raise mismatch.not_recurrent(
            layer, f"an {', '.join(CELLS)}, RNN or Bidirectional layer or a cell of these"
        )
    # A layer records what Keras before 2.3 left out. Keras 2's hard_sigmoid is another function.
    version = (2, 3) if class_names(layer, *_KERAS_2) else (3, 0)
    return RecurrentLayer((layer.name,), _layer_node(layer)).description(version)


def keras_arrays(layer: Any, own: RNNDescription) -> list[tuple[str, Any]]:
    known = {id(getattr(one, name, None)) for one in layer_with_cells(layer) for name in _WEIGHTS}
    if more := [getattr(w, "path", w.name) for w in layer.weights if id(w) not in known]:
        raise mismatch.more_parameters(layer, _keras_class(layer) or "", more)
    name, weights = getattr(layer, "name", layer), layer.get_weights()
    if not weights:
        raise LayoutError(
            f"{name!r} has no weights yet: build it first (layer.build((None, None, input_size)),"
            " or call it once)"
        )
    return [(f"{name} weight {k}", value) for k, value in enumerate(weights)]


def layer_with_cells(layer: Any) -> Iterator[Any]:
    """Yield a layer, and the layers and cells that it runs."""
    yield layer
    inside = [getattr(layer, name, None) for name in _INSIDE]
    for one in filter(is_keras_layer, [*inside, *getattr(layer, "cells", ())]):
        yield from layer_with_cells(one)


def keras_rnns(layer: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the recurrent layers of a model or a wrapper such as TimeDistributed, with paths."""
    if _keras_class(layer):
        yield path, layer
        return
    children = [(child.name, child) for child in getattr(layer, "layers", ())]
    children += [("layer", layer.layer)] if hasattr(layer, "layer") else []
    for name, child in children:
        yield from keras_rnns(child, f"{path}/{name}" if path else name)


def _keras_class(layer: Any) -> str | None:
    """Return the first class of a layer that Keras's configs of recurrent layers name, if any."""
    classes = class_names(layer, "keras.", "tf_keras.", "tensorflow.")
    return next((name for name in classes if name in _CLASSES), None)


def _layer_node(layer: Any) -> Node:
    """Return a layer as a node of a tree, as if Keras had written it. Unlike in what get_config()
    returns, a user's subclass of a layer or cell is that of Keras."""
    own, config = _keras_class(layer), dict(layer.get_config())
    name, module = (own, "keras") if own else (type(layer).__name__, type(layer).__module__)
    if name == "Bidirectional":
        config["layer"] = _layer_node(layer.forward_layer)
        config["backward_layer"] = _layer_node(layer.backward_layer)
    elif name == "RNN":
        config["cell"] = _layer_node(layer.cell)
    elif name == "StackedRNNCells":
        config["cells"] = [_layer_node(cell) for cell in layer.cells]
    return {"class_name": name, "module": module, "config": config}
