"""A Keras model's config as a tree: which of its layers are recurrent.

It is in the file of the weights, or it is what the caller has of Keras's to_json().
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rnnlayout._files.tensor_sets.file_limits import require_regular_file
from rnnlayout._model.errors import FileError
from rnnlayout._sources.keras_config import CELLS, short_repr
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
_MOST = 4 << 20  # bytes; a model of a thousand layers has about one million
_NAME = "the config"  # in messages, if it has no file


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


@dataclass(frozen=True)
class Architecture:
    """The config of a model. name: the name of the file that it is from, else _NAME. version: the
    version of the Keras that wrote it; None if that is not recorded.
    """

    name: str
    model: Node
    version: Version | None

    def check_names(
        self, known: Collection[str], wanted: Collection[str], found: Collection[str]
    ) -> None:
        """Raise FileError if recurrent layers of the config and of the weights are not the same.

        known: the names of all layers in the config. wanted: those of its recurrent layers. found:
        those of the recurrent layers in the file of the weights.
        """
        for name in wanted:
            if name not in found:
                raise FileError(
                    f"{self.name}: its layer {short_repr(name)} is not in the weights' file"
                )
        for name in found:
            if name not in known:
                raise FileError(
                    f"{self.name}: it lacks layer {short_repr(name)} of the weights' file"
                )


def read_architecture(config: object) -> Architecture:
    """Return what to_json() of a model returned: in a file, the text itself, or parsed.

    Raises FileError if it is not a model's config.
    """
    name, json_text = _read_config_text(config)
    if len(json_text) > _MOST:
        raise FileError(f"{name} has more than {_MOST} bytes: a config has at most so many")
    model = parse_config(json_text, name)
    if not child_layers(model):
        raise FileError(f"{name} is not a model's config, as model.to_json() returns it")
    text = model.get("keras_version")
    known = (
        parse_keras_version(text)
        if isinstance(text, str)
        else (3, 0)
        if "module" in model
        else None
    )
    return Architecture(name, model, known)


def _read_config_text(config: object) -> tuple[str, str | bytes]:
    """Return what messages call a config, and its JSON."""
    if isinstance(config, Mapping):
        try:
            return _NAME, json.dumps(dict(config))
        except (TypeError, ValueError, RecursionError) as error:
            raise FileError(f"{_NAME} is not what model.to_json() returned: {error}") from None
    if isinstance(config, str) and config.lstrip().startswith("{"):
        return _NAME, config
    file = require_regular_file(config)
    with open(file, "rb") as stream:
        return str(file), stream.read(_MOST + 1)
