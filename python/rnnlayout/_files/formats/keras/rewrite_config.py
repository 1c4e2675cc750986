"""The config of a Keras 2 model in the form of Keras 3.

CuDNNLSTM and CuDNNGRU become LSTM and GRU wherever they are, and what Keras 3 reads differently in
models with recurrent layers is written so that it means the same. Other layers are unchanged; if
Keras 3 lacks one, it reports that itself. Nothing that a config names is imported or called.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from rnnlayout._model.errors import FileError
from rnnlayout._native import LayoutError, LossyError

from .config import CUDNN

_RECURRENT = {"LSTM", "GRU", "SimpleRNN", "RNN"}
_MODELS = {"Model", "Functional", "Sequential"}


# names of classes -> keys that Keras 3 does not have
_DROPPED = {
    ".*": ("batch_input_shape",),
    "SpatialDropout.*": ("trainable", "noise_shape"),
    "LSTM|GRU|SimpleRNN|RNN|CuDNN(LSTM|GRU)|ConvLSTM.*": ("time_major",),
}
# what cuDNN's layers do, which Keras 2's config did not record
_CUDNNS_WAY = {
    "CuDNNLSTM": {
        "activation": "tanh", "recurrent_activation": "sigmoid", "use_bias": True, "dropout": 0.0,
        "recurrent_dropout": 0.0, "unroll": False,
    },
}  # fmt: skip
_CUDNNS_WAY["CuDNNGRU"] = {**_CUDNNS_WAY["CuDNNLSTM"], "reset_after": True}
# names of classes in TensorFlow 1 and of cuDNN's layers -> those of Keras 3
_CLASSES = {**{f"BatchNormalizationV{k}": "BatchNormalization" for k in (1, 2)}, **CUDNN}


@contextmanager
def config_errors(what: str) -> Iterator[None]:
    """Turn the errors that Python raises for a malformed config into a FileError."""
    try:
        yield
    except LayoutError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise FileError(f"{what} is not a config written by Keras: {error!r}") from None


def count_cudnn_layers(node: Any) -> int:
    """Return the number of cuDNN layers in a part of a config; a Bidirectional has one."""
    if isinstance(node, dict):
        own = node.get("class_name") in CUDNN
        return own + sum(map(count_cudnn_layers, node.values()))
    return sum(map(count_cudnn_layers, node)) if isinstance(node, list) else 0


def modernize_layer(
    layer: Any,
    path: str = "",
    at: int = 0,
    *,
    wrapped: bool = False,
    scaled: Collection[int] = (),
) -> None:
    """Change a layer's or model's node of a config, in place, into one for Keras 3.

    path: of the model it is in; at: its position there. wrapped: it is the layer of another one,
    so Keras 3 looks for its class in the module that the node names. scaled: ids of the nodes whose
    weights compensate for Keras 3's hard_sigmoid. Raises LossyError if no layer of Keras 3 computes
    the same, and any error of Python if the config is malformed.
    """
    config = _changeable_config(layer, at)
    if config is None:
        return
    kind = layer["class_name"]
    layer["class_name"] = _CLASSES.get(kind, kind)
    path = f"{path}/{config.get('name', layer['class_name'])}".lstrip("/")
    if kind == "Sequential":
        _add_input(config["layers"])
    elif kind in _MODELS:
        _count_calls(config)
        _unpack_single(config)
    inside = [config.get(key) for key in ("layer", "backward_layer", "cell")]
    for inner in [*inside, *config.get("cells", [])]:
        modernize_layer(inner, path, wrapped=True, scaled=scaled)
    for k, inner in enumerate(config.get("layers", [])):
        modernize_layer(inner, path, k, scaled=scaled)
    _refuse_hard_sigmoid(config, path, id(layer) in scaled)
    _change_keys(kind, config, path)
    _change_values(layer["class_name"], config)
    if layer["class_name"] in (*_RECURRENT, "Bidirectional"):
        layer.pop("build_config", None)  # its shapes count the states as inputs
        if "inbound_nodes" in layer:
            layer["inbound_nodes"] = [_name_call_states(node) for node in layer["inbound_nodes"]]
    if wrapped or "module" in layer:
        _set_module(layer)


def _changeable_config(layer: Any, at: int = 0) -> dict[str, Any] | None:
    """Return the config of a node; None if it has none, or has code, which is not changed."""
    if not isinstance(layer, dict) or layer.get("class_name") in (None, "Lambda"):
        return None
    if layer["class_name"] == "Sequential" and isinstance(layer.get("config"), list):
        name = layer.get("name", f"sequential_{at}")
        layer["config"] = {"name": name, "layers": layer["config"]}  # before Keras 2.2.3
    config = layer.get("config")
    return config if isinstance(config, dict) else None


def _set_module(layer: dict[str, Any]) -> None:
    """Set where Keras 3 finds the class; a user's own class is registered and found before that."""
    if layer["class_name"] in _MODELS:
        layer["module"] = "keras"
        layer["registered_name"] = None
        if layer["class_name"] == "Functional":
            layer["class_name"] = "Model"
    elif layer["class_name"] in _RECURRENT:
        layer["module"] = "keras.layers"
        layer["registered_name"] = None
    else:
        layer.setdefault("module", "keras.layers")


# ------------------------------------------------------------------------------------- one layer


def _refuse_hard_sigmoid(config: dict[str, Any], path: str, scaled: bool) -> None:
    for key, value in config.items():
        is_scaled = scaled and key == "recurrent_activation"
        if key.endswith("activation") and "hard_sigmoid" in str(value) and not is_scaled:
            raise LossyError(
                f"{path} has {key}='hard_sigmoid', clip(0.2 x + 0.5) in Keras 2; in Keras 3 that is"
                " clip(x / 6 + 0.5), which would produce different outputs"
            )


def _change_keys(kind: str, config: dict[str, Any], path: str) -> None:
    if kind == "InputLayer" and config.get("batch_input_shape") is not None:
        config["batch_shape"] = config["batch_input_shape"]
    if kind == "GRU":
        config.setdefault("reset_after", False)  # the default of Keras 2; that of Keras 3 is True
    config.update(_CUDNNS_WAY.get(kind, {}))
    for classes, keys in _DROPPED.items():
        for key in keys if re.fullmatch(classes, kind) else ():
            if config.pop(key, None) and key == "time_major":
                raise LossyError(f"{path} has time_major=True, which Keras 3 does not have")


def _change_values(kind: str, config: dict[str, Any]) -> None:
    if kind == "BatchNormalization" and isinstance(config.get("axis"), list):
        config["axis"] = config["axis"][0]  # TensorFlow 1 wrote a list
    for key, value in config.items():
        inner = value.get("config") if isinstance(value, dict) else None
        if key.endswith("_initializer") and isinstance(inner, dict):
            inner.pop("dtype", None)  # from TensorFlow 1; Keras 3 asks the layer
        elif key == "dtype" and isinstance(inner, dict):
            config[key] = inner.get("name")  # of a policy


# --------------------------------------------------------------------------------------- a model


def _add_input(layers: list[Any]) -> None:
    """Add an InputLayer if the first layer of a Sequential records the shape of its input, of which
    Keras 3 would take the batch size for the number of steps."""
    first = _changeable_config(layers[0]) if layers else None
    if not first or "batch_input_shape" not in first or layers[0]["class_name"] == "InputLayer":
        return
    config = {"batch_shape": first["batch_input_shape"], "name": f"{first.get('name')}_input"}
    if isinstance(first.get("dtype"), str):
        config["dtype"] = first["dtype"]
    layers.insert(0, {"class_name": "InputLayer", "config": config})


def _count_calls(config: dict[str, Any]) -> None:
    """Number the calls of inner models as Keras 3 does: from 0, but from 1 in the list of outputs
    for a functional model. Keras 2 began with 1 if a model had called itself when it was created;
    each call is the input of a layer, or an output."""
    inner = {entry.get("name"): entry for entry in config["layers"] if isinstance(entry, dict)}
    inputs = [
        ref for entry in inner.values() for ref in _walk_references(entry.get("inbound_nodes"))
    ]
    outputs = list(_walk_references(config.get("output_layers")))
    for name, entry in inner.items():
        if entry.get("class_name") in _MODELS:
            calls = [ref for ref in inputs if ref[0] == name]
            results = [ref for ref in outputs if ref[0] == name]
            first = min((ref[1] for ref in calls + results), default=0)
            for ref in calls:
                ref[1] -= first
            for ref in results:
                ref[1] -= first - (entry["class_name"] != "Sequential")


def _unpack_single(config: dict[str, Any]) -> None:
    """Unpack a list of one input or output: Keras 2 took it for that one, Keras 3 for a list."""
    for key in ("input_layers", "output_layers"):
        if isinstance(config[key], list) and len(config[key]) == 1:
            (config[key],) = config[key]


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
