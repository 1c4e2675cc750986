"""The config of a Keras 2 model in the form of Keras 3: a walk over its layers, and a table of what
changes in them.

CuDNNLSTM and CuDNNGRU become LSTM and GRU wherever they are, and what Keras 3 reads differently in
models with recurrent layers is written so that it means the same. Other layers are unchanged; if
Keras 3 lacks one, it reports that itself. Nothing that a config names is imported or called.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rnnlayout._model.errors import FileError
from rnnlayout._native import LayoutError, LossyError
from rnnlayout._sources.keras_tree import Node

from .config import CUDNN, nodes_inside

_MODELS = ("Model", "Functional", "Sequential")
# what cuDNN's layers do, which Keras 2's config did not record
_CUDNNS_WAY = {"activation": "tanh", "recurrent_activation": "sigmoid", "use_bias": True,
               "dropout": 0.0, "recurrent_dropout": 0.0, "unroll": False}  # fmt: skip


@dataclass(frozen=True)
class ChangedLayer:
    """A layer, model or cell, whose node is changed in place. kind: its class in the old config.

    path: its name after those of the models it is in. wrapped: whether it is the layer or cell of
    another one, so that Keras 3 looks for its class in the module that the node names. scaled:
    whether its weights compensate for Keras 3's hard_sigmoid.
    """

    node: Node
    kind: str
    path: str
    wrapped: bool
    scaled: bool

    @property
    def config(self) -> dict[str, Any]:
        """Its part of the config."""
        config: dict[str, Any] = self.node["config"]
        return config


def modernize_model(model: Node, scaled: Collection[int]) -> None:
    """Change the config of a model, in place, into one for Keras 3.

    scaled: ids of the nodes whose weights compensate for Keras 3's hard_sigmoid. Raises LossyError
    if no layer of Keras 3 computes the same, and any error of Python if the config is malformed.
    """
    for layer in _walk_changed_layers(model, scaled):
        for classes, change in _CHANGES:
            if re.fullmatch(classes, layer.kind):
                change(layer)


def _walk_changed_layers(model: Node, scaled: Collection[int]) -> Iterator[ChangedLayer]:
    """Yield a model, and the layers and cells in it: each before those in it, which may change."""
    waiting = [("", "", 0, model)]
    while waiting:
        above, key, at, node = waiting.pop()
        kind, config = node.get("class_name"), node.get("config")
        if kind == "Sequential" and isinstance(config, list):  # before Keras 2.2.3
            config = {"name": node.get("name", f"sequential_{at}"), "layers": config}
            node["config"] = config
        if kind in (None, "Lambda") or not isinstance(config, dict):  # a Lambda has code
            continue
        path = f"{above}/{config.get('name', _new_class(kind))}".lstrip("/")
        yield ChangedLayer(node, kind, path, key not in ("", "layers"), id(node) in scaled)
        inside = list(nodes_inside(node))
        waiting += [(path, key, k, one) for k, (key, one) in reversed([*enumerate(inside)])]


def count_cudnn_layers(node: Any) -> int:
    """Return the number of cuDNN layers in a part of a config, also where the walk does not look:
    in a user's own wrapper. A Bidirectional has one."""
    if isinstance(node, dict):
        own = node.get("class_name") in CUDNN
        return own + sum(map(count_cudnn_layers, node.values()))
    return sum(map(count_cudnn_layers, node)) if isinstance(node, list) else 0


@contextmanager
def config_errors(what: str) -> Iterator[None]:
    """Turn the errors that Python raises for a malformed config into a FileError."""
    try:
        yield
    except LayoutError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise FileError(f"{what} is not a config written by Keras: {error!r}") from None


# ------------------------------------------------------------------------------------ the changes


def _add_input(layer: ChangedLayer) -> None:
    """Add an InputLayer if the first layer of a Sequential records the shape of its input, of which
    Keras 3 would take the batch size for the number of steps."""
    layers = layer.config["layers"]
    first = layers[0].get("config") if layers and isinstance(layers[0], dict) else None
    if not isinstance(first, dict) or "batch_input_shape" not in first:
        return
    if layers[0].get("class_name") in (None, "InputLayer", "Lambda"):
        return
    config = {"batch_shape": first["batch_input_shape"], "name": f"{first.get('name')}_input"}
    if isinstance(first.get("dtype"), str):
        config["dtype"] = first["dtype"]
    layers.insert(0, {"class_name": "InputLayer", "config": config})


def _count_calls(layer: ChangedLayer) -> None:
    """Number the calls of inner models as Keras 3 does: from 0, but from 1 in the list of outputs
    for a functional model. Keras 2 began with 1 if a model had called itself when it was created;
    each call is the input of a layer, or an output."""
    inner = {one.get("name"): one for one in layer.config["layers"] if isinstance(one, dict)}
    inputs = [ref for one in inner.values() for ref in _walk_references(one.get("inbound_nodes"))]
    outputs = list(_walk_references(layer.config.get("output_layers")))
    for name, one in inner.items():
        if one.get("class_name") in _MODELS:
            calls = [ref for ref in inputs if ref[0] == name]
            results = [ref for ref in outputs if ref[0] == name]
            first = min((ref[1] for ref in calls + results), default=0)
            for ref in calls:
                ref[1] -= first
            for ref in results:
                ref[1] -= first - (one["class_name"] != "Sequential")


def _walk_references(value: Any) -> Iterator[list[Any]]:
    """Yield the tensors that a part of a config names: lists of a layer, its call, its output."""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return
    if len(value) in (3, 4) and [type(part) for part in value[:3]] == [str, int, int]:
        yield value
    for part in value:
        yield from _walk_references(part)


def _unpack_single(layer: ChangedLayer) -> None:
    """Unpack a list of one input or output: Keras 2 took it for that one, Keras 3 for a list."""
    for key in ("input_layers", "output_layers"):
        if isinstance(layer.config[key], list) and len(layer.config[key]) == 1:
            (layer.config[key],) = layer.config[key]


def _refuse_hard_sigmoid(layer: ChangedLayer) -> None:
    for key, value in layer.config.items():
        is_scaled = layer.scaled and key == "recurrent_activation"
        if key.endswith("activation") and "hard_sigmoid" in str(value) and not is_scaled:
            raise LossyError(
                f"{layer.path} has {key}='hard_sigmoid', clip(0.2 x + 0.5) in Keras 2; in Keras 3"
                " that is clip(x / 6 + 0.5), which would produce different outputs"
            )


def _refuse_time_major(layer: ChangedLayer) -> None:
    if layer.config.pop("time_major", False):
        raise LossyError(f"{layer.path} has time_major=True, which Keras 3 does not have")


def _rename_shape(layer: ChangedLayer) -> None:
    if layer.config.get("batch_input_shape") is not None:
        layer.config["batch_shape"] = layer.config["batch_input_shape"]


def _drop_keys(*keys: str) -> Callable[[ChangedLayer], None]:
    def drop(layer: ChangedLayer) -> None:
        for key in keys:
            layer.config.pop(key, None)

    return drop


def _unlist_axis(layer: ChangedLayer) -> None:
    if isinstance(layer.config.get("axis"), list):  # TensorFlow 1 wrote a list
        layer.config["axis"] = layer.config["axis"][0]


def _change_values(layer: ChangedLayer) -> None:
    for key, value in layer.config.items():
        inner = value.get("config") if isinstance(value, dict) else None
        if key.endswith("_initializer") and isinstance(inner, dict):
            inner.pop("dtype", None)  # from TensorFlow 1; Keras 3 asks the layer
        elif key == "dtype" and isinstance(inner, dict):
            layer.config[key] = inner.get("name")  # of a policy


def _name_states(layer: ChangedLayer) -> None:
    if "inbound_nodes" in layer.node:
        layer.node["inbound_nodes"] = [*map(_name_call_states, layer.node["inbound_nodes"])]


def _name_call_states(node: Any) -> Any:
    """Return a call of a recurrent layer with its states named; Keras 2 lists them as inputs."""
    if not isinstance(node, list) or len(node) < 2:
        return node
    inputs, *states = [_tensor_reference(ref) for ref in node]
    arguments = {key: value for ref in node for key, value in (ref[3:] or [{}])[0].items()}
    kwargs = {key: value for key, value in arguments.items() if value is not None}
    return {"args": [inputs], "kwargs": {**kwargs, "initial_state": states}}


def _tensor_reference(ref: list[Any]) -> dict[str, Any]:
    """Return a tensor by its layer, call and output, from which Keras 3 finds its shape."""
    config = {"shape": [None], "dtype": "float32", "keras_history": ref[:3]}
    return {"class_name": "__keras_tensor__", "config": config}


def _set_class(layer: ChangedLayer) -> None:
    """Set the class, and where Keras 3 finds it; a user's own class is registered, and found before
    that."""
    node, kind = layer.node, _new_class(layer.kind)
    node["class_name"] = kind
    if not layer.wrapped and "module" not in node:
        return
    if kind in _MODELS:
        node["class_name"] = "Model" if kind == "Functional" else kind
        node["module"], node["registered_name"] = "keras", None
    elif re.fullmatch(_RECURRENT, kind):
        node["module"], node["registered_name"] = "keras.layers", None
    else:
        node.setdefault("module", "keras.layers")


def _new_class(kind: str) -> str:
    """Return the class in Keras 3, of one in TensorFlow 1 too."""
    return CUDNN.get(kind, re.sub(r"^(BatchNormalization)V[12]$", r"\1", kind))


_RECURRENT = "LSTM|GRU|SimpleRNN|RNN|CuDNN(LSTM|GRU)"
# What changes, in this order: the classes of Keras 2 that it concerns, and the change.
_CHANGES: tuple[tuple[str, Callable[[ChangedLayer], None]], ...] = (
    ("Sequential", _add_input),
    ("Model|Functional", _count_calls),
    ("Model|Functional", _unpack_single),
    (".*", _refuse_hard_sigmoid),
    ("InputLayer", _rename_shape),
    (".*", _drop_keys("batch_input_shape")),
    ("SpatialDropout.*", _drop_keys("trainable", "noise_shape")),
    (f"{_RECURRENT}|ConvLSTM.*", _refuse_time_major),
    # the default of Keras 2 was False, that of Keras 3 is True
    ("GRU", lambda layer: layer.config.setdefault("reset_after", False)),
    ("CuDNN(LSTM|GRU)", lambda layer: layer.config.update(_CUDNNS_WAY)),
    ("CuDNNGRU", lambda layer: layer.config.update(reset_after=True)),
    ("BatchNormalization(V[12])?", _unlist_axis),
    (".*", _change_values),
    # its shapes count the states as inputs
    (f"{_RECURRENT}|Bidirectional", lambda layer: layer.node.pop("build_config", None)),
    (f"{_RECURRENT}|Bidirectional", _name_states),
    (".*", _set_class),
)
