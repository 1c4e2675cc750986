"""What Keras's config says of a recurrent layer: the one place that knows.

A config is data here, of a file (JSON) or of a layer's get_config(); nothing that it names is ever
looked up, imported or made. A node is what Keras writes of a layer, {"class_name": ..., "config":
{...}}, and of a whole model just as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rnnlayout._errors import FileError
from rnnlayout._native import LayoutError, LossyError
from rnnlayout._spec import Spec

CELLS = {"LSTM": "lstm", "GRU": "gru", "SimpleRNN": "rnn_tanh", "CuDNNLSTM": "lstm",
         "CuDNNGRU": "gru"}  # fmt: skip
_DEPTH = 64  # models in models
_MODULES = ("keras", "tf_keras", "tensorflow")
# What a layer does otherwise than cuDNN. zero_output_for_mask is what cuDNN does with lengths.
_MAY_DIFFER = ("go_backwards", "stateful", "time_major")


@dataclass(frozen=True)
class Told:
    """What one RNN is. hints: fields of its Spec; config: as Weights.config."""

    layout: str
    hints: dict[str, Any]
    config: dict[str, Any]


# ------------------------------------------------------------------------------- one layer or cell


def told(class_name: str, config: Mapping[str, Any], major: int) -> Told:
    """Of a layer (LSTM, GRU, SimpleRNN, CuDNNLSTM, CuDNNGRU), or a cell without the Cell.

    major: of the Keras that wrote it; 1, 2 and 3 have not the same defaults and hard_sigmoid.
    LossyError: an activation that no cell has. FileError: the config makes no sense.
    """
    units = _first(config, "units", "output_dim")
    if not isinstance(units, int) or isinstance(units, bool):
        raise FileError(f"{_name(config)!r}: units is {units!r}, need a number")
    hints: dict[str, Any] = {"cell": CELLS[class_name], "bidirectional": False, "num_layers": 1,
             "hidden_size": units}  # fmt: skip
    changes = {key: True for key in _MAY_DIFFER if config.get(key)}
    if class_name.startswith("CuDNN"):
        return Told("keras-cudnn", hints, changes)
    hints["cell"] = _with_activation(config, hints["cell"])
    hints["bias"] = bool(config.get("use_bias", True))
    if class_name == "GRU":
        hints["reset"] = _reset(config, major)
    if class_name != "SimpleRNN":
        hints["recurrent_activation"] = _recurrent_activation(config, major)
    return Told("keras", hints, changes)


def both(forward: Told, backward: Told, name: str, merge_mode: Any = "concat") -> Told:
    """Of Bidirectional. LayoutError: its two layers are not alike."""
    if (forward.layout, forward.hints) != (backward.layout, backward.hints):
        raise LayoutError(
            f"the two directions of {name!r} differ ({forward.hints}, {backward.hints}): they are"
            " two RNNs, convert forward_layer and backward_layer each by itself"
        )
    changes = {} if merge_mode == "concat" else {"merge_mode": merge_mode}
    return Told(forward.layout, {**forward.hints, "bidirectional": True}, forward.config | changes)


def _first(config: Mapping[str, Any], *keys: str) -> Any:
    """What Keras 2 calls by the first name, and Keras 1 by the second."""
    return next((config[key] for key in keys if key in config), None)


def _name(config: Mapping[str, Any]) -> str:
    return str(config.get("name", "a layer"))


def _reset(config: Mapping[str, Any], major: int) -> str:
    """Before there was such an argument, there was but one form."""
    return "after" if config.get("reset_after", major >= 3) else "before"


def _with_activation(config: Mapping[str, Any], cell: str) -> str:
    activation = config.get("activation", "tanh")
    if activation == "relu" and cell == "rnn_tanh":
        return "rnn_relu"
    if activation != "tanh":
        raise LossyError(
            f"{_name(config)!r} has activation {_short(activation)}: no other layout has that, an"
            " LSTM or GRU needs tanh, a SimpleRNN tanh or relu"
        )
    return cell


def _recurrent_activation(config: Mapping[str, Any], major: int) -> str:
    default = "sigmoid" if major >= 2 else "hard_sigmoid"
    activation = _first({**config, "": default}, "recurrent_activation", "inner_activation", "")
    if activation == "hard_sigmoid":  # Keras 3's is another function
        return "hard_sigmoid" if major >= 3 else "hard_sigmoid_keras2"
    if activation != "sigmoid":
        raise LossyError(
            f"{_name(config)!r} has recurrent_activation {_short(activation)}, need sigmoid or"
            " hard_sigmoid"
        )
    return "sigmoid"


def _short(value: Any) -> str:
    """A custom activation is a dict."""
    return repr(value)[:80]


# -------------------------------------------------------------------------------------- in return


def class_name_of(spec: Spec, layout: str = "keras") -> str:
    """The class of a layer, without a Bidirectional around it."""
    cell = "rnn_tanh" if spec.cell == "rnn_relu" else spec.cell
    own = layout == "keras-cudnn"
    return next(n for n, c in CELLS.items() if c == cell and n.startswith("CuDNN") == own)


def layer_node(name: str, spec: Spec, bias: bool, changes: Mapping[str, Any]) -> dict[str, Any]:
    """What Keras 3 writes of a layer in layout keras that puts out its sequence.

    changes: as Weights.config. LossyError: Keras 3 has no such layer.
    """
    class_name = class_name_of(spec)
    config = {"name": name, "dtype": spec.dtype, "units": spec.hidden_size, "use_bias": bias,
              "return_sequences": True,
              "activation": "relu" if spec.cell == "rnn_relu" else "tanh"}  # fmt: skip
    if spec.recurrent_activation == "hard_sigmoid_keras2":
        raise LossyError(
            f"{name!r} has the hard_sigmoid of Keras 2, 0.2 x + 0.5: Keras 3 has another by that"
            " name; to save the weights alone take .weights.h5"
        )
    if class_name != "SimpleRNN":
        config["recurrent_activation"] = spec.recurrent_activation
    if class_name == "GRU":
        config["reset_after"] = spec.reset == "after"
    merge_mode = {"merge_mode": "concat"} if spec.bidirectional else {}
    for key, value in changes.items():
        if key in merge_mode:
            merge_mode[key] = value
        elif key == "go_backwards":
            config[key] = value
        else:
            raise LossyError(
                f"{name!r} is used with {key}={value!r}, which is not written to a model here: take"
                " it out of w.config, or save the weights alone as .weights.h5"
            )
    node: dict[str, Any] = {"class_name": class_name, "config": config}
    if spec.bidirectional:
        inner = {"module": "keras.layers", "registered_name": None, **node}
        around = {"name": name, "dtype": spec.dtype, "layer": inner, **merge_mode}
        node = {"class_name": "Bidirectional", "config": around}
    return node


# ---------------------------------------------------------------------------------- a whole model


@dataclass(frozen=True)
class Recurrent:
    """A recurrent layer in a model's config: one of CELLS, an RNN of cells, or a Bidirectional.

    path: the names of the layers that it lies in, and its own. node: the very part of the config.
    trainable: neither it nor what it lies in is frozen.
    """

    path: tuple[str, ...]
    node: dict[str, Any]
    trainable: bool

    @property
    def name(self) -> str:
        return "/".join(self.path)

    def told(self, major: int) -> list[Told]:
        """One for each layer of its RNN, bottom first: several only of StackedRNNCells.

        LossyError, LayoutError: it is none that has a form here. FileError: it makes no sense.
        """
        return _told(self.node, major)


def _told(node: dict[str, Any], major: int) -> list[Told]:
    kind, config = class_of(node), config_of(node)
    if kind == "Bidirectional":
        return _of_bidirectional(config, major)
    if kind != "RNN":
        return [told(kind, config, major)]
    cell = _node(config.get("cell"))
    cells = [cell]
    if class_of(cell) == "StackedRNNCells":
        cells = [_node(c) for c in _list(config_of(cell).get("cells"))]
    around = {key: config[key] for key in _MAY_DIFFER if key in config}
    return [_of_cell(c, around, major) for c in cells]


def _of_cell(cell: dict[str, Any], around: dict[str, Any], major: int) -> Told:
    kind = class_of(cell).removesuffix("Cell")
    if kind not in CELLS or not class_of(cell).endswith("Cell"):
        raise LossyError(
            f"{_name(config_of(cell))!r} is a cell of class {_short(cell.get('class_name'))}: no"
            " other layout has it"
        )
    return told(kind, {**config_of(cell), **around}, major)


def _of_bidirectional(config: dict[str, Any], major: int) -> list[Told]:
    forward = _told(_node(config.get("layer")), major)
    given = config.get("backward_layer")
    backward = forward if given is None else _told(_node(given), major)
    if len(forward) != 1 or len(backward) != 1:
        raise LossyError(
            f"{_name(config)!r} runs a stack of cells in each direction: each reads only its own"
            " direction's outputs, which no layer of other frameworks does"
        )
    return [both(forward[0], backward[0], _name(config), config.get("merge_mode", "concat"))]


def recurrent_layers(model: dict[str, Any]) -> Iterator[Recurrent]:
    """All of a model, in the order of its config."""
    for layer in children(model):
        yield from recurrent_in(layer)


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


def version(text: str | None) -> tuple[int, int]:
    """(major, minor) of what a file says as its keras_version; Keras 1.0 said nothing."""
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
