"""Keras's configs of recurrent layers, read and written: no other module interprets them.

A config is data, from a file (JSON) or from a layer's get_config(); nothing that it names is ever
looked up, imported or instantiated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rnnlayout._model.config import unwritten_settings
from rnnlayout._model.errors import FileError
from rnnlayout._model.spec import Spec
from rnnlayout._native import LayoutError, LossyError

from .self_description import RNNDescription

CELLS = {"LSTM": "lstm", "GRU": "gru", "SimpleRNN": "rnn_tanh", "CuDNNLSTM": "lstm",
         "CuDNNGRU": "gru"}  # fmt: skip
SIGMOID_SINCE = (2, 3)  # before that hard_sigmoid was the default of an LSTM or GRU
# Settings with which a layer differs from cuDNN. zero_output_for_mask is cuDNN's with lengths.
MAY_DIFFER = ("go_backwards", "stateful", "time_major")


# ------------------------------------------------------------------------------- one layer or cell


def read_config(
    class_name: str, config: Mapping[str, Any], version: tuple[int, int]
) -> RNNDescription:
    """Read the config of a layer (LSTM, GRU, SimpleRNN, CuDNNLSTM, CuDNNGRU) or of its cell.

    class_name: the name of the layer's class; of a cell's, without the "Cell" at its end.
    version: (major, minor) of the Keras that wrote it, which determines the defaults and the
        meaning of hard_sigmoid.
    Raises LossyError for an activation that no cell has, FileError if the config is malformed.
    """
    units = config.get("units", config.get("output_dim"))  # Keras 1's name
    if not isinstance(units, int) or isinstance(units, bool):
        raise FileError(f"{config_name(config)!r}: units is {units!r}, need a number")
    hints: dict[str, Any] = {"cell": CELLS[class_name], "bidirectional": False, "num_layers": 1,
             "hidden_size": units}  # fmt: skip
    changes = {key: True for key in MAY_DIFFER if config.get(key)}
    if class_name.startswith("CuDNN"):
        return RNNDescription("keras-cudnn", hints, changes, not config.get("time_major"))
    activation = config.get("activation", "tanh")
    if activation not in ("tanh", "relu"):
        raise LossyError(
            f"{config_name(config)!r} has activation {_activation_name(activation)}, which no other"
            " layout has: need tanh or relu"
        )
    if class_name == "SimpleRNN":
        hints["cell"] = f"rnn_{activation}"
    else:
        hints["activation"] = activation
    hints["bias"] = bool(config.get("use_bias", True))
    if class_name == "GRU":
        after = config.get("reset_after", version >= (3, 0))  # without the field it was "before"
        hints["reset"] = "after" if after else "before"
    if class_name != "SimpleRNN":
        gate = recurrent_activation(config, version)
        if gate == "hard_sigmoid" and version < (3, 0):  # Keras 3's is another function
            gate = "hard_sigmoid_keras2"
        elif gate not in ("sigmoid", "hard_sigmoid"):
            raise LossyError(
                f"{config_name(config)!r} has recurrent_activation {_activation_name(gate)}, need"
                " sigmoid or hard_sigmoid"
            )
        hints["recurrent_activation"] = gate
    return RNNDescription("keras", hints, changes, not config.get("time_major"))


def join_directions(
    forward: RNNDescription, backward: RNNDescription, name: str, merge_mode: Any = "concat"
) -> RNNDescription:
    """Join the two layers of a Bidirectional. Raises LayoutError if they differ. Its go_backwards
    is that of the forward layer: then all of it reads x from the end."""
    if what := layer_differences(forward, backward):
        raise LayoutError(
            f"the two directions of {name!r} differ: {what}. They are two RNNs, convert"
            " forward_layer and backward_layer each on its own"
        )
    changes = {} if merge_mode == "concat" else {"merge_mode": merge_mode}
    hints = {**forward.hints, "bidirectional": True}
    return replace(forward, hints=hints, config=forward.config | changes)


def layer_differences(a: RNNDescription, b: RNNDescription) -> str:
    """Return what differs between two layers or cells, "" if nothing but go_backwards does."""
    first, second = ({"layout": x.layout, **x.hints, **x.config, "go_backwards": 0} for x in (a, b))
    keys = [key for key in {**first, **second} if first.get(key) != second.get(key)]
    return ", ".join(f"{key} {first.get(key)!r} and {second.get(key)!r}" for key in keys)


def check_opposite(forward: RNNDescription, backward: RNNDescription, name: str) -> None:
    """Raise LayoutError if both layers of a Bidirectional go in the same direction."""
    if forward.config.get("go_backwards") == backward.config.get("go_backwards"):
        raise LayoutError(
            f"both layers of {name!r} go in the same direction, which Keras does not run: set"
            " go_backwards of one of them"
        )


def config_name(config: Mapping[str, Any]) -> str:
    return str(config.get("name", "a layer"))


def recurrent_activation(config: Mapping[str, Any], version: tuple[int, int]) -> Any:
    """Return that of an LSTM or GRU, as the Keras that wrote it calls it."""
    default = "sigmoid" if version >= SIGMOID_SINCE else "hard_sigmoid"
    return config.get("recurrent_activation", config.get("inner_activation", default))


def _activation_name(value: Any) -> str:
    """Return how messages name an activation: Keras describes one of a user's own by a dict."""
    if not isinstance(value, Mapping):
        return short_repr(value)
    names = [name for name in (value.get("config"), value.get("class_name"))
             if isinstance(name, str) and name != "__lambda__"]  # fmt: skip
    return short_repr(names[0]) if names else "a lambda"


def short_repr(value: Any) -> str:
    """Return a value, cut short, for messages."""
    return repr(value)[:80]


# ---------------------------------------------------------------------------------------- writing


def class_name_of(spec: Spec, layout: str = "keras") -> str:
    """Return the class of a layer, without a Bidirectional around it."""
    cell = "rnn_tanh" if spec.cell == "rnn_relu" else spec.cell
    own = layout == "keras-cudnn"
    return next(n for n, c in CELLS.items() if c == cell and n.startswith("CuDNN") == own)


def layer_node(name: str, spec: Spec, bias: bool, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config that Keras 3 writes for a layer that returns its sequence. changes: the
    settings that change outputs but not shapes, as in Weights.config. Raises LossyError if Keras 3
    has no such layer."""
    class_name = class_name_of(spec)
    config = {"name": name, "dtype": spec.dtype, "units": spec.hidden_size, "use_bias": bias,
              "return_sequences": True,
              "activation": "relu" if spec.cell == "rnn_relu" else spec.activation}  # fmt: skip
    if spec.recurrent_activation == "hard_sigmoid_keras2":
        raise LossyError(
            f"{name!r} has the hard_sigmoid of Keras 2, 0.2 x + 0.5, which Keras 3 lacks: convert"
            " the whole model to its own format, where changed weights compensate for it, or save"
            " only the weights as .weights.h5"
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
            why = "which cannot be written to a model: save only the weights as .weights.h5, or, to"
            raise unwritten_settings(name, {key: value}, why + " leave it out")
    node: dict[str, Any] = {"class_name": class_name, "config": config}
    if spec.bidirectional:
        inner = {"module": "keras.layers", "registered_name": None, **node}
        around = {"name": name, "dtype": spec.dtype, "layer": inner, **merge_mode}
        if config.get("go_backwards"):  # Keras 3 makes a backward layer that goes backwards
            back = {**config, "name": f"backward_{name}", "go_backwards": False}
            around["backward_layer"] = {**inner, "config": back}
        node = {"class_name": "Bidirectional", "config": around}
    return node
