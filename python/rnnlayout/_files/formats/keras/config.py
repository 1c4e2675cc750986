"""A Keras model's config as a tree: which of its layers are recurrent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from rnnlayout._model.errors import FileError
from rnnlayout._sources.keras_config import CELLS
from rnnlayout._sources.keras_tree import (
    Node,
    RecurrentLayer,
    Version,
    any_config,
    class_of,
    config_of,
    object_of,
)

CUDNN = {"CuDNNLSTM": "LSTM", "CuDNNGRU": "GRU"}  # cuDNN's layers -> those of Keras 3
_DEPTH = 64  # models in models


def recurrent_layers_in(
    node: Node, around: tuple[str, ...] = (), trainable: bool = True
) -> Iterator[RecurrentLayer]:
    """Yield a layer of a model if it is recurrent, else all recurrent layers in it."""
    if len(around) > _DEPTH:
        raise FileError(f"the config has models nested {len(around)} deep: refused")
    path = (*around, layer_name(node))
    trainable = trainable and bool(any_config(node).get("trainable", True))
    if is_recurrent(node):
        yield RecurrentLayer(path, node, trainable)
        return
    for child in child_layers(node):
        yield from recurrent_layers_in(child, path, trainable)


def is_recurrent(node: Node) -> bool:
    """Return whether it is one of Keras's own recurrent layers."""
    kind = class_of(node)
    if kind == "Bidirectional":
        inside = config_of(node).get("layer")
        return isinstance(inside, dict) and is_recurrent(inside)
    return kind in CELLS or kind == "RNN"


def layer_name(node: Node) -> str:
    """Return the name that the user gave to the layer."""
    name = config_of(node).get("name", node.get("name"))
    return name if isinstance(name, str) and name else str(node.get("class_name")).lower()


def child_layers(node: Node) -> list[Node]:
    """Return the layers of a model, or the layer in a wrapper; [] for other nodes."""
    config = any_config(node)
    layers = config.get("layers")
    inside = [*(layers if isinstance(layers, list) else []), config.get("layer")]
    return [child for child in inside if isinstance(child, dict) and "class_name" in child]


def parse_config(text: str | bytes, what: str) -> dict[str, Any]:
    """Return an object from its JSON. Raises FileError if it is not one."""
    try:
        return object_of(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise FileError(f"{what} is malformed: {error}") from None


def parse_keras_version(text: str | None) -> Version:
    """Return the version in a file's keras_version, which Keras 1.0 did not write."""
    match = re.match(r"(\d{1,9})(?:\.(\d{1,9}))?", text or "1")
    return (int(match[1]), int(match[2] or 0)) if match else (1, 0)
