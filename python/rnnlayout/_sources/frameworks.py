"""Torch modules and Keras layers, recognized by their classes: nothing is imported here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rnnlayout._model.describe import describe
from rnnlayout._model.spec import Spec
from rnnlayout._native import LayoutError

from . import keras_config

_TORCH_CELLS = {"LSTM": "lstm", "GRU": "gru", "RNN_TANH": "rnn_tanh", "RNN_RELU": "rnn_relu"}
_KERAS_2 = ("tf_keras", "keras.engine", "keras.src.engine", "tensorflow.python.keras")


def is_module(value: Any) -> bool:
    """Is it a torch module or a Keras layer?"""
    return is_keras_layer(value) or is_torch_module(value)


def contents(module: Any) -> tuple[str, dict[str, Any], Iterable[tuple[str, Any]]]:
    """Return the layout of a torch module or Keras layer, fields of its spec, and its arrays.

    The arrays are in the layout's order, each with a name for messages.
    """
    if is_keras_layer(module):
        named = ((f"{module.name} weight {k}", w) for k, w in enumerate(_keras_weights(module)))
        return *keras_hints(module), named
    layout, hints = torch_hints(module)
    # getattr returns what the module computes with, weight norm and pruning applied
    return (
        layout,
        hints,
        ((name, getattr(module, name)) for name in describe(layout, Spec(**hints))),
    )


def _class_names(value: Any, *modules: str) -> list[str]:
    """Return the names of the value's classes from modules whose names start with one of these."""
    return [c.__name__ for c in type(value).__mro__ if c.__module__.startswith(modules)]


def _listing(children: Iterable[tuple[str, Any]], which: str) -> str:
    """Return the hint of an error that lists the layers inside a model."""
    found = [f"{name} ({type(child).__name__})" for name, child in children]
    return f"; it contains {', '.join(found[:12])}: pass {which}" if found else ""


# ---------------------------------------------------------------------------------------- torch


def is_torch_module(value: Any) -> bool:
    """Is it a torch module? With torch as backend each Keras layer is one too: those are not."""
    is_module = "Module" in _class_names(value, "torch.nn.modules.module")
    return is_module and not is_keras_layer(value)


def torch_hints(module: Any) -> tuple[str, dict[str, Any]]:
    """Return the layout of a module and the fields of its spec.

    Raises LayoutError if it is not an RNN itself.
    """
    names = _class_names(module, "torch.nn.modules.rnn")
    if "RNNBase" in names:
        layout, mode = "torch", module.mode
    elif "RNNCellBase" in names:
        layout, mode = "torch-cell", names[names.index("RNNCellBase") - 1].removesuffix("Cell")
        mode = f"RNN_{module.nonlinearity.upper()}" if mode == "RNN" else mode
    else:
        inside = [
            (name, child)
            for name, child in module.named_modules()
            if name and _class_names(child, "torch.nn.modules.rnn")
        ]
        raise LayoutError(
            f"{type(module).__name__} is not an nn.LSTM, GRU, RNN or one of their cells"
            + _listing(inside, "one of these")
        )
    return layout, {
        "cell": _TORCH_CELLS[mode],
        "input_size": module.input_size,
        "hidden_size": module.hidden_size,
        "num_layers": getattr(module, "num_layers", 1),
        "bidirectional": bool(getattr(module, "bidirectional", False)),
        "proj_size": getattr(module, "proj_size", 0),
        "bias": bool(module.bias),
    }


# ---------------------------------------------------------------------------------------- Keras


def is_keras_layer(value: Any) -> bool:
    return hasattr(value, "get_weights") and hasattr(value, "get_config")


def keras_hints(layer: Any) -> tuple[str, dict[str, Any]]:
    """Return the layout of a layer or its Bidirectional wrapper, and fields of its spec.

    Raises LayoutError if it is not recurrent, LossyError if no cell has its activations.
    """
    told = _keras_told(layer)
    return told.layout, told.hints


def _keras_told(layer: Any) -> keras_config.Told:
    if hasattr(layer, "forward_layer") and hasattr(layer, "backward_layer"):
        forward, backward = _keras_told(layer.forward_layer), _keras_told(layer.backward_layer)
        return keras_config.both(forward, backward, layer.name)
    classes = _class_names(layer, "keras.", "tf_keras.", "tensorflow.")
    name = next((n for n in classes if n in keras_config.CELLS), None)
    if name is None:
        inside = [(child.name, child) for child in getattr(layer, "layers", [])]
        raise LayoutError(
            f"{type(layer).__name__} is not a layer of class {', '.join(keras_config.CELLS)} or"
            f" Bidirectional{_listing(inside, 'the recurrent ones')}"
        )
    # A layer records what Keras before 2.3 left out. Keras 2's hard_sigmoid is another function.
    version = (2, 3) if _class_names(layer, *_KERAS_2) else (3, 0)
    return keras_config.told(name, layer.get_config(), version)


def _keras_weights(layer: Any) -> list[Any]:
    weights: list[Any] = layer.get_weights()
    if not weights:
        raise LayoutError(
            f"{getattr(layer, 'name', layer)!r} has no weights yet: build it first"
            " (layer.build((None, None, input_size)), or call it once)"
        )
    return weights
