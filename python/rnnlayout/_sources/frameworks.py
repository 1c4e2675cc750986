"""Objects of frameworks, told by their shape and class name: nothing is imported here."""

from __future__ import annotations

from typing import Any

from rnnlayout._native import LayoutError

from . import keras_config

_TORCH_CELLS = {"LSTM": "lstm", "GRU": "gru", "RNN_TANH": "rnn_tanh", "RNN_RELU": "rnn_relu"}


def _class_names(value: Any, module: str) -> list[str]:
    """Names of the value's classes that come from a module whose name begins so."""
    return [c.__name__ for c in type(value).__mro__ if c.__module__.startswith(module)]


# ---------------------------------------------------------------------------------------- torch


def is_torch_module(value: Any) -> bool:
    """A Keras layer is none, though with torch as its backend every one is a torch module too."""
    is_module = "Module" in _class_names(value, "torch.nn.modules.module")
    return is_module and not is_keras_layer(value)


def torch_hints(module: Any) -> tuple[str, dict[str, Any]]:
    """(layout, what the module says of its RNN). LayoutError: it is not one itself."""
    names = _class_names(module, "torch.nn.modules.rnn")
    if "RNNBase" in names:
        return "torch", {
            "cell": _TORCH_CELLS[module.mode],
            "input_size": module.input_size,
            "hidden_size": module.hidden_size,
            "num_layers": module.num_layers,
            "bidirectional": bool(module.bidirectional),
            "proj_size": getattr(module, "proj_size", 0),
            "bias": bool(module.bias),
        }
    if "RNNCellBase" in names:
        cell = next(n for n in names if n != "RNNCellBase").removesuffix("Cell")
        mode = f"RNN_{module.nonlinearity.upper()}" if cell == "RNN" else cell
        return "torch-cell", {
            "cell": _TORCH_CELLS[mode],
            "input_size": module.input_size,
            "hidden_size": module.hidden_size,
            "bias": bool(module.bias),
        }
    inside = [
        f"{name} ({type(child).__name__})"
        for name, child in module.named_modules()
        if _class_names(child, "torch.nn.modules.rnn") and name
    ]
    raise LayoutError(
        f"{type(module).__name__} is no nn.LSTM, GRU, RNN or one of their cells"
        + (f"; it holds: {', '.join(inside[:8])}: pass one of these" if inside else "")
    )


# ---------------------------------------------------------------------------------------- Keras


def is_keras_layer(value: Any) -> bool:
    return hasattr(value, "get_weights") and hasattr(value, "get_config")


def keras_hints(layer: Any) -> tuple[str, dict[str, Any]]:
    """(layout, what one layer or its Bidirectional wrapper says of its RNN).

    LayoutError: no recurrent layer; LossyError: activations that are not those of any cell here.
    """
    told = _keras_told(layer)
    return told.layout, told.hints


def _keras_told(layer: Any) -> keras_config.Told:
    if hasattr(layer, "forward_layer") and hasattr(layer, "backward_layer"):
        forward, backward = _keras_told(layer.forward_layer), _keras_told(layer.backward_layer)
        return keras_config.both(forward, backward, layer.name)
    names = [c.__name__ for c in type(layer).__mro__ if _is_keras(c)]
    name = next((n for n in names if n in keras_config.CELLS), None)
    if name is None:
        raise LayoutError(
            f"{type(layer).__name__} is no {', '.join(keras_config.CELLS)} or Bidirectional layer"
            + _inside(layer)
        )
    version = (2, 3) if _is_keras_2(layer) else (3, 0)  # a layer says all that 2.3 did not
    return keras_config.told(name, layer.get_config(), version)


def _is_keras(cls: type) -> bool:
    return cls.__module__.split(".")[0] in ("keras", "tf_keras", "tensorflow")


def _inside(layer: Any) -> str:
    held = [f"{child.name} ({type(child).__name__})" for child in getattr(layer, "layers", [])]
    return f"; it holds: {', '.join(held[:12])}: pass the recurrent ones" if held else ""


def _is_keras_2(layer: Any) -> bool:
    """Told by where its base class lives; its hard_sigmoid is another function than Keras 3's."""
    old = ("tf_keras", "keras.engine", "keras.src.engine", "tensorflow.python.keras")
    return any(c.__module__.startswith(old) for c in type(layer).__mro__)


def keras_weights(layer: Any) -> list[Any]:
    """get_weights(), or why there are none."""
    weights: list[Any] = layer.get_weights()
    if not weights:
        raise LayoutError(
            f"{getattr(layer, 'name', layer)!r} has no weights yet: build it first"
            " (layer.build((None, None, input_size)), or call it once)"
        )
    return weights
