"""A Keras model's config as a tree: which layers of it are recurrent, and where they lie.

A node is what Keras writes of a layer, {"class_name": ..., "config": {...}}, and of a whole model
just as well. All of it is data: nothing that it names is ever looked up, imported or made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rnnlayout._model.errors import FileError
from rnnlayout._native import LossyError
from rnnlayout._sources.keras_config import CELLS, MAY_DIFFER, Told, both, name_of, short, told

Version = tuple[int, int]  # major and minor, of a Keras

_DEPTH = 64  # models in models
_MODULES = ("keras", "tf_keras", "tensorflow")


@dataclass(frozen=True)
class Recurrent:
    """A recurrent layer in a model's config: one of CELLS, an RNN of cells, or a Bidirectional.

    path: the names of the layers that it lies in, and its own. node: the very part of the config.
    trainable: neither it nor what it lies in is frozen.
    """

    path: tuple[str, ...]
    node: dict[str, Any]
    trainable: bool = True

    @property
    def name(self) -> str:
        return "/".join(self.path)

    @property
    def both(self) -> bool:
        """Is it one layer each way?"""
        return class_of(self.node) == "Bidirectional"

    @property
    def cells(self) -> list[dict[str, Any]]:
        """The node of each of its cells, in the order of its weights: bottom first, forward first.

        One that stands for both directions is there twice; a layer that has no cell of its own is
        its cell. FileError: the config makes no sense.
        """
        return [cell for side in self._sides() for cell, _ in _cells(side)]

    def told(self, version: Version) -> list[Told]:
        """One for each layer of its RNN, bottom first: several only of StackedRNNCells.

        version: of the Keras that wrote it. LossyError, LayoutError: it is none that has a form
        here. FileError: it makes no sense.
        """
        sides = [[_told(*cell, version) for cell in _cells(side)] for side in self._sides()]
        if not self.both:
            return sides[0]
        forward, backward = sides
        config = config_of(self.node)
        if len(forward) != 1 or len(backward) != 1:
            raise LossyError(
                f"{name_of(config)!r} runs a stack of cells in each direction: each reads only its"
                " own direction's outputs, which no layer of other frameworks does"
            )
        mode = config.get("merge_mode", "concat")
        return [both(forward[0], backward[0], name_of(config), mode)]

    def _sides(self) -> list[dict[str, Any]]:
        if not self.both:
            return [self.node]
        config = config_of(self.node)
        forward = _node(config.get("layer"))
        backward = config.get("backward_layer")
        return [forward, forward if backward is None else _node(backward)]


def kind_of(cell: dict[str, Any]) -> str:
    """The class of a cell, or of a layer with such a cell: one of CELLS, if it is known."""
    return class_of(cell).removesuffix("Cell")


def _cells(node: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The cells of a layer of one direction, and what the layer around each says of it."""
    if class_of(node) != "RNN":
        return [(node, {})]
    config = config_of(node)
    cell = _node(config.get("cell"))
    cells = [cell]
    if class_of(cell) == "StackedRNNCells":
        cells = [_node(c) for c in _list(config_of(cell).get("cells"))]
    around = {key: config[key] for key in MAY_DIFFER if key in config}
    return [(c, around) for c in cells]


def _told(cell: dict[str, Any], around: dict[str, Any], version: Version) -> Told:
    if kind_of(cell) not in CELLS:
        raise LossyError(
            f"{name_of(config_of(cell))!r} is a cell of class {short(cell.get('class_name'))}: no"
            " other layout has it"
        )
    return told(kind_of(cell), {**config_of(cell), **around}, version)


def recurrent_in(layer: dict[str, Any]) -> Iterator[Recurrent]:
    """A layer of a model, if it is one, or all that lie in it."""
    yield from _walk(layer, (), True)


def _walk(node: dict[str, Any], around: tuple[str, ...], trainable: bool) -> Iterator[Recurrent]:
    if len(around) > _DEPTH:
        raise FileError(f"the config has models in models, {len(around)} deep: refused")
    path = (*around, layer_name(node))
    trainable = trainable and _trainable(node)
    if is_recurrent(node):
        yield Recurrent(path, node, trainable)
        return
    for child in children(node):
        yield from _walk(child, path, trainable)


def is_recurrent(node: dict[str, Any]) -> bool:
    """Is it a recurrent layer of Keras's own?"""
    kind = class_of(node)
    if kind == "Bidirectional":
        inside = config_of(node).get("layer")
        return isinstance(inside, dict) and is_recurrent(inside)
    return kind in CELLS or kind == "RNN"


def class_of(node: dict[str, Any]) -> str:
    """The class of a layer of Keras's own, "" for other ones, whatever they call themselves."""
    name, registered = node.get("class_name"), node.get("registered_name")
    module = str(node.get("module") or "keras").split(".")[0]
    own = isinstance(name, str) and registered in (None, name) and module in _MODULES
    return str(name) if own else ""


def config_of(node: dict[str, Any]) -> dict[str, Any]:
    """A node's config; Keras 1 and early 2 write a Sequential's as the bare list of its layers."""
    config = node.get("config")
    return {"layers": config} if isinstance(config, list) else _dict(config)


def layer_name(node: dict[str, Any]) -> str:
    """What the user calls the layer."""
    name = config_of(node).get("name", node.get("name"))
    return name if isinstance(name, str) and name else str(node.get("class_name")).lower()


def children(node: dict[str, Any]) -> list[dict[str, Any]]:
    """The layers of a model, the one layer in a wrapper; none of what only looks like that."""
    config = node.get("config")
    if isinstance(config, list):
        config = {"layers": config}
    if not isinstance(config, dict):
        return []
    layers = config.get("layers")
    inside = [*(layers if isinstance(layers, list) else []), config.get("layer")]
    return [child for child in inside if isinstance(child, dict) and "class_name" in child]


def _trainable(node: dict[str, Any]) -> bool:
    config = node.get("config")
    return not isinstance(config, dict) or bool(config.get("trainable", True))


# ------------------------------------------------------------------------------------ malformed


def parse(text: str | bytes, what: str) -> dict[str, Any]:
    """The config of a model or layer from its JSON. FileError: it is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{what} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise FileError(f"{what} is a {type(found).__name__}, need an object")
    return found


def version(text: str | None) -> Version:
    """What a file says as its keras_version; Keras 1.0 said nothing."""
    match = re.match(r"(\d{1,9})(?:\.(\d{1,9}))?", text or "1")
    return (int(match[1]), int(match[2] or 0)) if match else (1, 0)


def _node(value: Any) -> dict[str, Any]:
    found = _dict(value)
    if "class_name" not in found:
        raise FileError("the model's config has a layer without class_name")
    return found


def _dict(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FileError(f"the model's config has a {type(value).__name__} where a dict should be")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise FileError(f"the model's config has a {type(value).__name__} where a list should be")
    return value
