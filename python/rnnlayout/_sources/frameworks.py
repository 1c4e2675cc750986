"""Modules and layers that have weights, recognized by their classes: nothing is imported here."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from rnnlayout._model.describe import describe
from rnnlayout._model.spec import Spec
from rnnlayout._native import LayoutError

from . import jax_modules
from .keras_config import CELLS, Description
from .keras_tree import Node, Recurrent
from .torch_names import plain_names, value_of

_TORCH_CELLS = {"LSTM": "lstm", "GRU": "gru", "RNN_TANH": "rnn_tanh", "RNN_RELU": "rnn_relu"}
_KERAS_CLASSES = (*CELLS, "LSTMCell", "GRUCell", "SimpleRNNCell", "StackedRNNCells", "RNN",
                  "Bidirectional")  # fmt: skip
_KERAS_2 = ("tf_keras", "keras.engine", "keras.src.engine", "tensorflow.python.keras")


def is_module(value: Any) -> bool:
    """Is it a torch module, a Keras layer, or a module of Flax or Equinox?"""
    return is_keras_layer(value) or is_torch_module(value) or jax_modules.is_module(value)


def is_torch_module(value: Any) -> bool:
    """Is it a torch module? With torch as backend each Keras layer is one too: those are not."""
    is_module = "Module" in _class_names(value, "torch.nn.modules.module")
    return is_module and not is_keras_layer(value)


def is_keras_layer(value: Any) -> bool:
    return hasattr(value, "get_weights") and hasattr(value, "get_config")


def own_spec(module: Any) -> Description:
    """Return how a module or layer describes its RNN.

    Raises LayoutError if it is not an RNN itself, LossyError if no cell has its activations.
    """
    if jax_modules.is_module(module):
        return jax_modules.own_spec(module)
    return _keras(module) if is_keras_layer(module) else _torch(module)


def own_arrays(module: Any, own: Description) -> list[tuple[str, Any]]:
    """Return the arrays in the layout's order, each with a name for messages."""
    if jax_modules.is_module(module):
        arrays = jax_modules.own_arrays(module, own)
        return [(name, arrays[name]) for name in describe(Spec(**own.hints), own.layout)]
    if not is_keras_layer(module):
        return _torch_arrays(module, describe(Spec(**own.hints), own.layout))
    name, weights = getattr(module, "name", module), module.get_weights()
    if not weights:
        raise LayoutError(
            f"{name!r} has no weights yet: build it first (layer.build((None, None, input_size)),"
            " or call it once)"
        )
    return [(f"{name} weight {k}", value) for k, value in enumerate(weights)]


def _torch_arrays(module: Any, names: Iterable[str]) -> list[tuple[str, Any]]:
    """Return what the module computes with in evaluation.

    The older weight_norm, pruning and weight dropout store parts of a weight, and an attribute of
    its name that is only up to date after a call: it is computed from the parts.
    """
    kept = _kept(module)
    if inner := _dropped(module):
        kept |= {f"module.{name}": value for name, value in _kept(inner).items()}
    plain = plain_names(kept)
    return [
        (
            name,
            value_of(name, plain, kept) if name in plain.sources else _parametrized(module, name),
        )
        for name in names
    ]


def _kept(module: Any) -> dict[str, Any]:
    """Return the parameters and buffers of a module, without those of modules in it."""
    parameter = sys.modules["torch"].nn.Parameter  # a plain tensor in its place is computed
    owned = module.named_parameters(recurse=False, remove_duplicate=False)
    kept = {name: value for name, value in owned if isinstance(value, parameter)}
    return kept | dict(module.named_buffers(recurse=False))


def _dropped(module: Any) -> Any:
    """Return the RNN in a module that applies dropout to its weights, else None."""
    inner = getattr(module, "module", None)
    if not _class_names(inner, "torch.nn.modules.rnn"):
        return None
    names = [*_kept(module), *(f"module.{name}" for name in _kept(inner))]
    return inner if any(one.dropped for one in plain_names(names).computed.values()) else None


def _parametrized(module: Any, name: str) -> Any:
    """Return a weight that torch computes from its parametrizations when it is asked for.

    In training spectral norm would change its vectors each time. In evaluation it is what the last
    call in training used.
    """
    parametrizations = getattr(module, "parametrizations", {})
    if name not in parametrizations:
        raise LayoutError(
            f"{name} is not a parameter of {type(module).__name__}, which computes with a tensor"
            f" that another module sets: with weight dropout (a {name}_raw) pass the module around"
            " it"
        )
    training = [one for one in parametrizations[name].modules() if one.training]
    try:
        for one in training:
            one.training = False
        return getattr(module, name)
    finally:
        for one in training:
            one.training = True


def _class_names(value: Any, *modules: str) -> list[str]:
    """Return the names of the value's classes from modules whose names start with one of these."""
    return [c.__name__ for c in type(value).__mro__ if str(c.__module__).startswith(modules)]


def _torch(module: Any) -> Description:
    module = _dropped(module) or module
    names = _class_names(module, "torch.nn.modules.rnn")
    if "RNNBase" in names:
        layout, mode = "torch", module.mode
    elif "RNNCellBase" in names:
        layout, mode = "torch-cell", names[names.index("RNNCellBase") - 1].removesuffix("Cell")
        mode = f"RNN_{module.nonlinearity.upper()}" if mode == "RNN" else mode
    elif quantized := _class_names(module, "torch.ao.nn.quanti", "torch.nn.quanti"):
        raise LayoutError(
            f"{type(module).__module__.partition('.modules')[0]}.{quantized[0]} stores rounded"
            " weights: pass the module that it was quantized from"
        )
    else:
        inside = (x for x in module.named_modules() if x[0])
        rnns = [x for x in inside if _class_names(x[1], "torch.nn.modules.rnn")]
        raise _not_recurrent(module, "an nn.LSTM, GRU, RNN or one of their cells", rnns)
    hints = {
        "cell": _TORCH_CELLS[mode],
        "input_size": module.input_size,
        "hidden_size": module.hidden_size,
        "num_layers": getattr(module, "num_layers", 1),
        "bidirectional": bool(getattr(module, "bidirectional", False)),
        "proj_size": getattr(module, "proj_size", 0),
        "bias": bool(module.bias),
    }
    return Description(layout, hints, {}, getattr(module, "batch_first", None))


def _keras(layer: Any) -> Description:
    if _keras_class(layer) is None:
        raise _not_recurrent(
            layer, f"an {', '.join(CELLS)}, RNN or Bidirectional layer or a cell of these",
            _keras_inside(layer, ""),
        )  # fmt: skip
    # A layer records what Keras before 2.3 left out. Keras 2's hard_sigmoid is another function.
    version = (2, 3) if _class_names(layer, *_KERAS_2) else (3, 0)
    return Recurrent((layer.name,), _node(layer)).description(version)


def _keras_inside(layer: Any, above: str) -> Iterator[tuple[str, Any]]:
    """Yield the recurrent layers of a model or a wrapper such as TimeDistributed, with paths."""
    children = [(child.name, child) for child in getattr(layer, "layers", ())]
    children += [("layer", layer.layer)] if hasattr(layer, "layer") else []
    for name, child in children:
        if _keras_class(child):
            yield f"{above}{name}", child
        else:
            yield from _keras_inside(child, f"{above}{name}.")


def _keras_class(layer: Any) -> str | None:
    """Return the first class of a layer that Keras's configs of recurrent layers name, if any."""
    classes = _class_names(layer, "keras.", "tf_keras.", "tensorflow.")
    return next((name for name in classes if name in _KERAS_CLASSES), None)


def _node(layer: Any) -> Node:
    """Return a layer as a node of a tree, as if Keras had written it.

    Unlike in what get_config() returns, a user's subclass of a layer or cell is that of Keras.
    """
    own, config = _keras_class(layer), dict(layer.get_config())
    name, module = (own, "keras") if own else (type(layer).__name__, type(layer).__module__)
    if name == "Bidirectional":
        config["layer"] = _node(layer.forward_layer)
        config["backward_layer"] = _node(layer.backward_layer)
    elif name == "RNN":
        config["cell"] = _node(layer.cell)
    elif name == "StackedRNNCells":
        config["cells"] = [_node(cell) for cell in layer.cells]
    return {"class_name": name, "module": module, "config": config}


def _not_recurrent(module: Any, need: str, inside: Iterable[tuple[str, Any]]) -> LayoutError:
    text = f"{type(module).__name__} is not {need}"
    if found := [f"{name} ({type(child).__name__})" for name, child in inside]:
        text += f"; it contains {', '.join(found[:12])}: pass a recurrent one"
    return LayoutError(text)
