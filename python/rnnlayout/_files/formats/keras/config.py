"""The config of a Keras model as a tree, and the recurrent layers in the tree.

The config is in the file of the weights, or the caller passes the result of model.to_json().

A class that Keras does not define may look recurrent, such as a user's subclass of LSTM. Its
outputs are unknown, but its config has the arguments of the extended class. So layers of such a
class are listed, and read as layers of the extended class if the caller passes as_class=.
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
    CELLS_INSIDE,
    Node,
    RecurrentLayer,
    Version,
    any_config,
    child_layers,
    class_of,
    is_recurrent,
    kind_of,
    layer_name,
    nodes_inside,
    object_of,
    short_repr,
)
from rnnlayout._sources.mismatch import list_names
from rnnlayout._sources.reading import Reading

KERAS_3 = "3.0.0"  # the first Keras with the form of file that is written
KERAS_2 = "2.0.9"  # the first with CuDNNLSTM and CuDNNGRU
CUDNN = {"CuDNNLSTM": "LSTM", "CuDNNGRU": "GRU"}  # cuDNN's layers -> those of Keras 3
_DEPTH = 64  # models in models
_MOST = 4 << 20  # bytes; a model of a thousand layers has about a million
_NAME = "the config"  # in messages, if it has no file


def recurrent_layers_in(
    node: Node, parents: tuple[str, ...] = (), trainable: bool = True
) -> Iterator[RecurrentLayer]:
    """Yield the layer of a node if the layer is recurrent, else all recurrent layers below the
    node. parents: the names of the layers around the node."""
    if len(parents) > _DEPTH:
        raise FileError(f"the config has models nested {len(parents)} deep: refused")
    path = (*parents, layer_name(node))
    trainable = trainable and bool(any_config(node).get("trainable", True))
    if is_recurrent(node):
        yield RecurrentLayer(path, node, trainable)
        return
    for child in child_layers(node):
        yield from recurrent_layers_in(child, path, trainable)


def unread_layers_in(
    node: Node, parents: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path and class of each recurrent layer that is not read."""
    if is_recurrent(node):
        return
    path = (*parents, layer_name(node))
    if kind := unread_class(node):
        yield path, kind
    for child in child_layers(node) if len(path) <= _DEPTH else ():
        yield from unread_layers_in(child, path)


def unread_class(node: Node) -> str:
    """Return the class of a recurrent layer that is not read, such as ConvLSTM2D or a user's
    subclass of RNN; "" for other nodes. Only recurrent layers have both of these options."""
    config = any_config(node)
    if is_recurrent(node) or not {"return_sequences", "go_backwards"} <= config.keys():
        return ""
    return str(node.get("registered_name") or node.get("class_name"))


def note_lambda_layers(model: Node) -> list[str]:
    """Return a note on the Lambda layers of a model, whose code Keras runs, [] without them."""
    waiting, names = [(0, model)], list[str]()
    while waiting:
        depth, node = waiting.pop()
        names += [layer_name(node)] if class_of(node) == "Lambda" else []
        inner = child_layers(node) if depth <= _DEPTH else []
        waiting += [(depth + 1, child) for child in reversed(inner)]
    if not names:
        return []
    return [f"{list_names(names)}: Lambda layers, copied with their code, which Keras may run"]


def parse_config(text: str | bytes, label: str) -> dict[str, Any]:
    """Return the object in a JSON text, bytes in UTF-8. label: the text's name in messages. Raises
    FileError if the text is not the JSON of an object."""
    try:
        return object_of(json.loads(text if isinstance(text, str) else text.decode("utf-8-sig")))
    except (ValueError, RecursionError) as error:
        raise FileError(f"{label} is malformed: {error}") from None


def parse_keras_version(text: str | None) -> Version:
    """Return the version in a file's keras_version; None is a file of Keras 1.0."""
    match = re.match(r"(\d{1,9})(?:\.(\d{1,9}))?", text or "1")
    return (int(match[1]), int(match[2] or 0)) if match else (1, 0)


@dataclass(frozen=True)
class Architecture:
    """The config of a model. name: the name of the config's file, else _NAME. version: the version
    of the Keras that wrote the config; None if no version is recorded."""

    name: str
    model: Node
    version: Version | None

    def check_names(
        self,
        all_names: Collection[str],
        recurrent_names: Collection[str],
        stored_names: Collection[str],
    ) -> None:
        """Raise FileError if recurrent layers of the config and of the weights are not the same.
        all_names: of all layers in the config. recurrent_names: of the recurrent layers in the
        config. stored_names: of the recurrent layers in the file of the weights."""
        for name in recurrent_names:
            if name not in stored_names:
                raise FileError(
                    f"{self.name}: its layer {short_repr(name)} is not in the weights' file"
                )
        for name in stored_names:
            if name not in all_names:
                raise FileError(
                    f"{self.name}: it lacks layer {short_repr(name)} of the weights' file"
                )


def read_architecture(config: object) -> Architecture:
    """Return the architecture in the result of model.to_json(). config: the path of a file with the
    text, the text, or the parsed text. Raises FileError if the text is not a model's config."""
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
    version = (3, 0) if "module" in model else None
    if isinstance(text, str):
        version = parse_keras_version(text)
    return Architecture(name, model, version)


# ---------------------------------------------------------------------------------- unknown classes

# Keys of a node that is read as a node of a known class: the node's class in the file, and the same
# class again until the caller accepts the known class.
_CLASS_IN_FILE = "class_name in the file"
_CLASS_TO_ACCEPT = "class_name to accept"


def read_unknown_classes(model: Node, reading: Reading) -> None:
    """Give each layer of an unknown class, in place, the class of Keras whose config looks alike.
    Raises SpecError if the caller's as_class names a class that the model lacks."""
    unknown, accepted = set[str](), reading.as_class or {}
    waiting = [("", model)]
    while waiting:
        key, node = waiting.pop()
        is_cell = key in CELLS_INSIDE
        node.pop(_CLASS_IN_FILE, None)
        node.pop(_CLASS_TO_ACCEPT, None)
        kind = _similar_class(node.get("config"), is_cell)
        if not kind or (kind_of(node) if is_cell else class_of(node)) in CELLS:
            waiting += nodes_inside(node)
            continue
        name = str(node.get("registered_name") or node.get("class_name"))
        node[_CLASS_IN_FILE] = str(node.get("class_name"))
        if name not in accepted:
            node[_CLASS_TO_ACCEPT] = name
        read_as = accepted.get(name, kind).removesuffix("Cell")
        node["class_name"] = ("SimpleRNN" if read_as == "RNN" else read_as) + "Cell" * is_cell
        node["module"], node["registered_name"] = "keras.layers", None
        unknown.add(name)
    for name in accepted:
        if name not in unknown:
            unknown_names = ", ".join(map(short_repr, sorted(unknown)))
            why = f"no recurrent layer or cell of the file has class {name!r}: "
            if not unknown_names:
                raise SpecError(why, "omit ", Ask("as_class", None))
            raise SpecError(
                why, "pass ", Ask("as_class"), f" with its unknown classes: {unknown_names}"
            )


def _similar_class(config: Any, is_cell: bool) -> str:
    """Return the recurrent class of Keras with such a config, "" without such a class."""
    if not isinstance(config, dict) or type(config.get("units")) is not int:
        return ""
    if "recurrent_initializer" not in config or ("return_sequences" in config) == is_cell:
        return ""
    gated_class = "GRU" if "reset_after" in config else "LSTM"
    kind = gated_class if "recurrent_activation" in config else "SimpleRNN"
    return f"{kind}Cell" if is_cell else kind


def class_in_file(node: Node) -> str:
    """Return the class of a layer in the file; the layer's variables are named after the class."""
    return str(node.get(_CLASS_IN_FILE, node["class_name"]))


def unknown_classes_in(layer: RecurrentLayer) -> dict[str, str]:
    """Return {unknown class: class of Keras that replaces the unknown class} of a layer's cells."""
    return {
        cell[_CLASS_TO_ACCEPT]: cell["class_name"]
        for cell in layer.cells
        if _CLASS_TO_ACCEPT in cell
    }
