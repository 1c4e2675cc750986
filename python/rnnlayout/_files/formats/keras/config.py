"""A Keras model's config as a tree: which of its layers are recurrent, and what they are.

A node is what Keras writes about a layer or a whole model: {"class_name": ..., "config": {...}}.
It is only data: nothing that it names is ever looked up, imported or created.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rnnlayout._model.errors import FileError
from rnnlayout._native import LossyError
from rnnlayout._sources.keras_config import (
    CELLS,
    MAY_DIFFER,
    Description,
    both,
    name_of,
    read_config,
    short,
)

Version = tuple[int, int]  # major and minor version of Keras
Node = dict[str, Any]

CUDNN = {"CuDNNLSTM": "LSTM", "CuDNNGRU": "GRU"}  # cuDNN's layers -> those of Keras 3
_DEPTH = 64  # models in models
_MODULES = ("keras", "tf_keras", "tensorflow")


@dataclass(frozen=True)
class Recurrent:
    """A recurrent layer in a model's config: one of CELLS, an RNN of cells, or a Bidirectional.

    path: its name, after those of the models and wrappers that it is in. node: its part of the
    config, not a copy. trainable: neither it nor what it is in is frozen.
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
        """The node of each of its cells in the order of its weights: bottom first, forward first.

        A cell for both directions is in the list twice. A layer without a cell of its own is its
        cell. Raises FileError if the config is malformed.
        """
        return [cell for side in self._sides() for cell, _ in _cells(side)]

    def descriptions(self, version: Version) -> list[Description]:
        """Return what each layer of its RNN is, bottom first; several only for StackedRNNCells.

        version: of the Keras that wrote it. Raises LossyError or LayoutError if no layout can
        represent it, FileError if the config is malformed.
        """
        sides = [[_description(*cell, version) for cell in _cells(side)] for side in self._sides()]
        if not self.both:
            return sides[0]
        forward, backward = sides
        config = config_of(self.node)
        if len(forward) != 1 or len(backward) != 1:
            raise LossyError(
                f"{name_of(config)!r} has a stack of cells per direction, which reads only outputs"
                " of that direction: no layout can represent it"
            )
        mode = config.get("merge_mode", "concat")
        return [both(forward[0], backward[0], name_of(config), mode)]

    def _sides(self) -> list[Node]:
        if not self.both:
            return [self.node]
        config = config_of(self.node)
        forward = _node(config.get("layer"))
        backward = config.get("backward_layer")
        return [forward, forward if backward is None else _node(backward)]


def kind_of(cell: Node) -> str:
    """Return the class of a cell, or of a layer with such a cell: one of CELLS if it is known."""
    return class_of(cell).removesuffix("Cell")


def _cells(layer: Node) -> list[tuple[Node, dict[str, Any]]]:
    """Return the cells of a layer of one direction, each with the options of the layer."""
    if class_of(layer) != "RNN":
        return [(layer, {})]
    config = config_of(layer)
    cell = _node(config.get("cell"))
    cells = [cell]
    if class_of(cell) == "StackedRNNCells":
        stack = config_of(cell).get("cells")
        if not isinstance(stack, list):
            raise FileError("the model's config has StackedRNNCells without a list of cells")
        cells = [_node(c) for c in stack]
    around = {key: config[key] for key in MAY_DIFFER if key in config}
    return [(c, around) for c in cells]


def _description(cell: Node, around: dict[str, Any], version: Version) -> Description:
    if kind_of(cell) not in CELLS:
        kind, name = short(cell.get("class_name")), name_of(config_of(cell))
        raise LossyError(f"{name!r} is a cell of class {kind}, which no layout can represent")
    return read_config(kind_of(cell), {**config_of(cell), **around}, version)


def recurrent_in(
    node: Node, around: tuple[str, ...] = (), trainable: bool = True
) -> Iterator[Recurrent]:
    """Yield a layer of a model if it is recurrent, else all recurrent layers in it."""
    if len(around) > _DEPTH:
        raise FileError(f"the config has models nested {len(around)} deep: refused")
    path = (*around, layer_name(node))
    trainable = trainable and bool(_any_config(node).get("trainable", True))
    if is_recurrent(node):
        yield Recurrent(path, node, trainable)
        return
    for child in children(node):
        yield from recurrent_in(child, path, trainable)


def is_recurrent(node: Node) -> bool:
    """Return whether it is one of Keras's own recurrent layers."""
    kind = class_of(node)
    if kind == "Bidirectional":
        inside = config_of(node).get("layer")
        return isinstance(inside, dict) and is_recurrent(inside)
    return kind in CELLS or kind == "RNN"


def class_of(node: Node) -> str:
    """Return the class of one of Keras's own layers, "" for other layers of the same name too."""
    name, registered = node.get("class_name"), node.get("registered_name")
    module = str(node.get("module") or "keras").split(".")[0]
    own = isinstance(name, str) and registered in (None, name) and module in _MODULES
    return str(name) if own else ""


def config_of(node: Node) -> dict[str, Any]:
    """Return a node's config. Raises FileError if it has none."""
    config = node.get("config")
    return _any_config(node) if isinstance(config, list) else _dict(config)


def _any_config(node: Node) -> dict[str, Any]:
    """Return a node's config, {} if it has none that makes sense."""
    config = node.get("config")
    if isinstance(config, list):  # a Sequential of Keras 1 and early 2: the list of its layers
        config = {"layers": config}
    return config if isinstance(config, dict) else {}


def layer_name(node: Node) -> str:
    """Return the name that the user gave to the layer."""
    name = config_of(node).get("name", node.get("name"))
    return name if isinstance(name, str) and name else str(node.get("class_name")).lower()


def children(node: Node) -> list[Node]:
    """Return the layers of a model, or the layer in a wrapper; [] for other nodes."""
    config = _any_config(node)
    layers = config.get("layers")
    inside = [*(layers if isinstance(layers, list) else []), config.get("layer")]
    return [child for child in inside if isinstance(child, dict) and "class_name" in child]


def parse(text: str | bytes, what: str) -> dict[str, Any]:
    """Return an object from its JSON. Raises FileError if it is not one."""
    try:
        return _dict(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise FileError(f"{what} is malformed: {error}") from None


def version(text: str | None) -> Version:
    """Return the version in a file's keras_version, which Keras 1.0 did not write."""
    match = re.match(r"(\d{1,9})(?:\.(\d{1,9}))?", text or "1")
    return (int(match[1]), int(match[2] or 0)) if match else (1, 0)


def _node(value: Any) -> Node:
    found = _dict(value)
    if "class_name" not in found:
        raise FileError("the model's config has a layer without class_name")
    return found


def _dict(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FileError(f"the model's config has a {type(value).__name__}, need an object")
    return value
