"""A Keras model's config as a tree: which of its layers are recurrent.

It is in the file of the weights, or it is what the caller has of Keras's to_json().

A class that is not Keras's own may look recurrent: a subclass of LSTM. What it computes is unknown.
Its config has the arguments of the class that it extends, so its layers are listed; they are read
as layers of that class if the caller says so with as_class=.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rnnlayout._files.tensor_sets.file_limits import require_regular_file
from rnnlayout._model.errors import Ask, FileError
from rnnlayout._native import SpecError
from rnnlayout._sources.keras_tree import (
    CELLS,
    Node,
    RecurrentLayer,
    Version,
    any_config,
    class_of,
    config_of,
    kind_of,
    object_of,
    short_repr,
)
from rnnlayout._sources.reading import Reading

KERAS_3 = "3.0.0"  # the first Keras with the form of file that is written
KERAS_2 = "2.0.9"  # the first with CuDNNLSTM and CuDNNGRU
CUDNN = {"CuDNNLSTM": "LSTM", "CuDNNGRU": "GRU"}  # cuDNN's layers -> those of Keras 3
# The keys of a config under which a node has other layers, and those under which it has cells.
_LAYERS, _CELLS = ("layers", "layer", "backward_layer"), ("cell", "cells")
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


def nodes_inside(node: Node) -> Iterator[tuple[str, Node]]:
    """Yield the layers and cells in a node, each with the key of the config that it is under."""
    config = any_config(node)
    for key in (*_LAYERS, *_CELLS):
        found = config.get(key)
        for one in found if isinstance(found, list) else [found]:
            if isinstance(one, dict):
                yield key, one


def child_layers(node: Node) -> list[Node]:
    """Return the layers of a model, or the layer in a wrapper; [] for other nodes."""
    inside = (one for key, one in nodes_inside(node) if key in ("layers", "layer"))
    return [one for one in inside if "class_name" in one]


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
    version of the Keras that wrote it; None if that is not recorded."""

    name: str
    model: Node
    version: Version | None

    def check_names(
        self, known: Collection[str], wanted: Collection[str], found: Collection[str]
    ) -> None:
        """Raise FileError if recurrent layers of the config and of the weights are not the same.
        known: the names of all layers in the config. wanted: those of its recurrent layers. found:
        those of the recurrent layers in the file of the weights."""
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
    """Return what to_json() of a model returned: in a file, the text itself, or parsed. Raises
    FileError if it is not a model's config."""
    name = _NAME
    json_text: str | bytes
    if isinstance(config, Mapping):
        try:
            json_text = json.dumps(dict(config))
        except (TypeError, ValueError, RecursionError) as error:
            raise FileError(f"{_NAME} is not what model.to_json() returned: {error}") from None
    elif isinstance(config, str) and config.lstrip().startswith("{"):
        json_text = config
    else:
        name = str(require_regular_file(config))
        with open(name, "rb") as stream:
            json_text = stream.read(_MOST + 1)
    if len(json_text) > _MOST:
        raise FileError(f"{name} has more than {_MOST} bytes: a config has at most so many")
    model = parse_config(json_text, name)
    if not child_layers(model):
        raise FileError(f"{name} is not a model's config, as model.to_json() returns it")
    text = model.get("keras_version")
    known = (3, 0) if "module" in model else None
    if isinstance(text, str):
        known = parse_keras_version(text)
    return Architecture(name, model, known)


# ---------------------------------------------------------------------------------- unknown classes

_FILES = "class_name in the file"  # keys of a node: its class before it was read as another one,
_UNKNOWN = "class_name to accept"  # and the same until the caller accepts it


def read_unknown_classes(model: Node, reading: Reading) -> None:
    """Give the layers of unknown classes in a model, in place, the class that they look like.
    Raises SpecError if the caller's as_class names a class that the model lacks."""
    unknown, accepted = set[str](), reading.as_class or {}
    left = [("", model)]
    while left:
        key, node = left.pop()
        is_cell = key in _CELLS
        node.pop(_FILES, None)
        node.pop(_UNKNOWN, None)
        kind = _looks_like(node.get("config"), is_cell)
        if not kind or (kind_of(node) if is_cell else class_of(node)) in CELLS:
            left += nodes_inside(node)
            continue
        name = str(node.get("registered_name") or node.get("class_name"))
        node[_FILES] = str(node.get("class_name"))
        if name not in accepted:
            node[_UNKNOWN] = name
        read_as = accepted.get(name, kind).removesuffix("Cell")
        node["class_name"] = ("SimpleRNN" if read_as == "RNN" else read_as) + "Cell" * is_cell
        node["module"], node["registered_name"] = "keras.layers", None
        unknown.add(name)
    for name in accepted:
        if name not in unknown:
            others = ", ".join(map(short_repr, sorted(unknown)))
            why = f"no recurrent layer or cell of the file has class {name!r}: "
            if not others:
                raise SpecError(why, "omit ", Ask("as_class", None))
            raise SpecError(why, "pass ", Ask("as_class"), f" with its unknown classes: {others}")


def _looks_like(config: Any, is_cell: bool) -> str:
    """Return the class of Keras with such a config, "" if it is not a recurrent one's."""
    if not isinstance(config, dict) or type(config.get("units")) is not int:
        return ""
    if "recurrent_initializer" not in config or ("return_sequences" in config) == is_cell:
        return ""
    gated = "GRU" if "reset_after" in config else "LSTM"
    kind = gated if "recurrent_activation" in config else "SimpleRNN"
    return f"{kind}Cell" if is_cell else kind


def class_in_file(node: Node) -> str:
    """Return the class of a layer in the file, after which its variables are named."""
    return str(node.get(_FILES, node["class_name"]))


def unknown_classes_in(layer: RecurrentLayer) -> dict[str, str]:
    """Return the unknown classes of a layer, its directions and its cells: {name: read as}."""
    return {cell[_UNKNOWN]: cell["class_name"] for cell in layer.cells if _UNKNOWN in cell}
