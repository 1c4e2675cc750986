"""The config of a Keras 2 model in the words of Keras 3.

CuDNNLSTM and CuDNNGRU become LSTM and GRU wherever they are, and what Keras 3 reads otherwise in
models with recurrent layers is said so that it means the same. Other layers stay as they are, and
where Keras 3 does not know one, it says so itself. Nothing a config names is imported or called.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from rnnlayout._model.errors import FileError
from rnnlayout._native import LayoutError, LossyError

CUDNN = {"CuDNNLSTM": "LSTM", "CuDNNGRU": "GRU"}
_RECURRENT = {"LSTM", "GRU", "SimpleRNN", "RNN"}
_MODELS = {"Model", "Functional", "Sequential"}
_WRAPPED = ("layer", "backward_layer", "cell")
# by their names of TensorFlow 1
_RENAMED = {f"BatchNormalizationV{k}": "BatchNormalization" for k in (1, 2)}
# what cuDNN's layers do, and Keras 2's config did not say
_CUDNNS_WAY = {
    "activation": "tanh",
    "recurrent_activation": "sigmoid",
    "use_bias": True,
    "dropout": 0.0,
    "recurrent_dropout": 0.0,
    "unroll": False,
}


@contextmanager
def config_errors(what: str) -> Iterator[None]:
    """Whatever Python makes of a config that makes no sense becomes a FileError."""
    try:
        yield
    except LayoutError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise FileError(f"{what} is none of Keras: {error!r}") from None


def cudnn_layers(node: Any) -> Iterator[str]:
    """The classes of the cuDNN layers of a config, one for each; a Bidirectional holds one."""
    if isinstance(node, dict):
        if node.get("class_name") in CUDNN:
            yield node["class_name"]
        for value in node.values():
            yield from cudnn_layers(value)
    elif isinstance(node, list):
        for value in node:
            yield from cudnn_layers(value)


def modernize(
    layer: Any,
    path: str = "",
    at: int = 0,
    *,
    wrapped: bool = False,
    scaled: Collection[int] = (),
) -> None:
    """Change a layer's or model's entry of a config, in place, into what Keras 3 reads.

    path: of the model it is in; at: its place there. wrapped: it is the layer of another one, and
    Keras 3 looks for its class in the module that the entry names. scaled: the ids of the entries
    whose weights make up for Keras 3's hard_sigmoid. LossyError: Keras 3 has no
    layer that computes the same. Where the config makes no sense, any error that Python has.
    """
    config = _config(layer, at)
    if config is None:
        return
    kind = layer["class_name"] = _RENAMED.get(layer["class_name"], layer["class_name"])
    path = f"{path}/{config.get('name', kind)}".lstrip("/")
    if kind == "Sequential":
        _give_input(config["layers"])
    elif kind in _MODELS:
        _count_calls(config)
        _unpack_single(config)
    for key in _WRAPPED:
        modernize(config.get(key), path, wrapped=True, scaled=scaled)
    for cell in config.get("cells", []):
        modernize(cell, path, wrapped=True, scaled=scaled)
    for k, inner in enumerate(config.get("layers", [])):
        modernize(inner, path, k, scaled=scaled)
    _refuse_hard_sigmoid(config, path, id(layer) in scaled)
    _use_words_of_keras3(kind, config)
    if kind in CUDNN or kind in _RECURRENT:
        layer["class_name"] = CUDNN.get(kind, kind)
        _say_all(kind, config, path)
    if layer["class_name"] in _RECURRENT or kind == "Bidirectional":
        layer.pop("build_config", None)  # its shapes count the states as inputs
        if "inbound_nodes" in layer:
            layer["inbound_nodes"] = [_call(node) for node in layer["inbound_nodes"]]
    if wrapped or "module" in layer:
        _name_module(layer)


def _config(layer: Any, at: int = 0) -> dict[str, Any] | None:
    """The config proper of an entry; None if it is none, or holds code, which is left alone."""
    if not isinstance(layer, dict) or layer.get("class_name") in (None, "Lambda"):
        return None
    if layer["class_name"] == "Sequential" and isinstance(layer.get("config"), list):
        name = layer.get("name", f"sequential_{at}")
        layer["config"] = {"name": name, "layers": layer["config"]}  # before Keras 2.2.3
    config = layer.get("config")
    return config if isinstance(config, dict) else None


def _name_module(layer: dict[str, Any]) -> None:
    """Where Keras 3 finds the class; a class of its user's own is registered and found before."""
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


def _say_all(kind: str, config: dict[str, Any], path: str) -> None:
    """What a recurrent layer computes."""
    if config.pop("time_major", False):
        raise LossyError(f"{path} has time_major=True, which Keras 3 does not have")
    if kind in CUDNN:
        config.update(_CUDNNS_WAY)
        if kind == "CuDNNGRU":
            config["reset_after"] = True
    elif kind == "GRU":
        config.setdefault("reset_after", False)  # what it meant in Keras 2; Keras 3 takes True


def _refuse_hard_sigmoid(config: dict[str, Any], path: str, scaled: bool) -> None:
    for key, value in config.items():
        is_scaled = scaled and key == "recurrent_activation"
        if key.endswith("activation") and "hard_sigmoid" in str(value) and not is_scaled:
            raise LossyError(
                f"{path} has {key}='hard_sigmoid', clip(0.2 x + 0.5) in Keras 2; in Keras 3 that is"
                " clip(x / 6 + 0.5): the outputs would be other ones"
            )


def _use_words_of_keras3(kind: str, config: dict[str, Any]) -> None:
    shape = config.pop("batch_input_shape", None)
    if kind == "InputLayer" and shape is not None:
        config["batch_shape"] = shape
    if kind.startswith("SpatialDropout"):
        config.pop("trainable", None)
        config.pop("noise_shape", None)
    if kind == "BatchNormalization" and isinstance(config.get("axis"), list):
        config["axis"] = config["axis"][0]  # TensorFlow 1 wrote a list
    for key, value in config.items():
        inner = value.get("config") if isinstance(value, dict) else None
        if key.endswith("_initializer") and isinstance(inner, dict):
            inner.pop("dtype", None)  # of TensorFlow 1; Keras 3 asks the layer
        elif key == "dtype" and isinstance(inner, dict):
            config[key] = inner.get("name")  # of a policy


# --------------------------------------------------------------------------------------- a model


def _give_input(layers: list[Any]) -> None:
    """The first layer of a Sequential may have known the shape of its input; Keras 3 would take the
    batch for one of its steps."""
    first = _config(layers[0]) if layers else None
    if not first or "batch_input_shape" not in first or layers[0]["class_name"] == "InputLayer":
        return
    config = {"batch_shape": first["batch_input_shape"], "name": f"{first.get('name')}_input"}
    if isinstance(first.get("dtype"), str):
        config["dtype"] = first["dtype"]
    layers.insert(0, {"class_name": "InputLayer", "config": config})


def _count_calls(config: dict[str, Any]) -> None:
    """Number the calls of models in a model as Keras 3 does: from 0, but in the list of outputs a
    functional model's from 1. Keras 2 began with 1 where a model had called itself when it was
    made, and each call is the input of something, or an output."""
    inner = {entry.get("name"): entry for entry in config["layers"] if isinstance(entry, dict)}
    inputs = [ref for entry in inner.values() for ref in _references(entry.get("inbound_nodes"))]
    outputs = list(_references(config.get("output_layers")))
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
    """A list of one input or output was that one to Keras 2, and is a list to Keras 3."""
    for key in ("input_layers", "output_layers"):
        if isinstance(config[key], list) and len(config[key]) == 1:
            (config[key],) = config[key]


def _references(value: Any) -> Iterator[list[Any]]:
    """The tensors that a part of a config names: lists of a layer, its call, and its output."""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return
    if len(value) in (3, 4) and [type(part) for part in value[:3]] == [str, int, int]:
        yield value
    for part in value:
        yield from _references(part)


def _call(node: Any) -> Any:
    """A call of a recurrent layer: Keras 2 listed states as further inputs, Keras 3 names them."""
    if not isinstance(node, list) or len(node) < 2:
        return node
    inputs, *states = [_tensor(ref) for ref in node]
    words = {key: value for ref in node for key, value in (ref[3:] or [{}])[0].items()}
    kwargs = {key: value for key, value in words.items() if value is not None}
    return {"args": [inputs], "kwargs": {**kwargs, "initial_state": states}}


def _tensor(ref: list[Any]) -> dict[str, Any]:
    """A tensor by the layer, call and output it comes from, where Keras 3 looks for its shape."""
    config = {"shape": [None], "dtype": "float32", "keras_history": ref[:3]}
    return {"class_name": "__keras_tensor__", "config": config}
