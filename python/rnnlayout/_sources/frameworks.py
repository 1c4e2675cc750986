"""Modules and layers that have weights, recognized by their classes: nothing is imported here.

What a subclass overrides, so that it may compute something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rnnlayout._model.describe import describe
from rnnlayout._model.spec import Spec
from rnnlayout._native import LayoutError

from . import jax_modules, mismatch, torch_modules
from .keras_config import CELLS, RNNDescription
from .keras_tree import Node, RecurrentLayer
from .torch_modules import class_names

_OWN = (torch_modules.RNNS, "keras.", "tf_keras.", "tensorflow.", "flax.nnx.", "equinox.")
_INSIDE = ("cell", "forward_layer", "backward_layer", "forward_rnn", "backward_rnn")
_KERAS_CLASSES = (*CELLS, "LSTMCell", "GRUCell", "SimpleRNNCell", "StackedRNNCells", "RNN",
                  "Bidirectional")  # fmt: skip
_KERAS_WEIGHTS = ("kernel", "recurrent_kernel", "bias")
_KERAS_2 = ("tf_keras", "keras.engine", "keras.src.engine", "tensorflow.python.keras")


def is_module(value: Any) -> bool:
    """Is it a torch module, a Keras layer, or a module of Flax or Equinox?"""
    return is_keras_layer(value) or is_torch_module(value) or jax_modules.is_jax_module(value)


def is_torch_module(value: Any) -> bool:
    """Is it a torch module? With torch as backend each Keras layer is one too: those are not."""
    is_module = "Module" in class_names(value, "torch.nn.modules.module")
    return is_module and not is_keras_layer(value)


def is_keras_layer(value: Any) -> bool:
    return hasattr(value, "get_weights") and hasattr(value, "get_config")


def own_spec(module: Any) -> RNNDescription:
    """Return how a module or layer describes its RNN.

    Raises LayoutError if it is not an RNN itself, LossyError if no cell has its activations.
    """
    if jax_modules.is_jax_module(module):
        return jax_modules.jax_spec(module)
    return _describe_keras(module) if is_keras_layer(module) else torch_modules.torch_spec(module)


def own_arrays(module: Any, own: RNNDescription) -> list[tuple[str, Any]]:
    """Return the arrays in the layout's order, each with a name for messages.

    Raises LayoutError if a subclass has more.
    """
    if jax_modules.is_jax_module(module):
        arrays = jax_modules.jax_arrays(module, own)
        return [(name, arrays[name]) for name in describe(Spec(**own.hints), own.layout)]
    if not is_keras_layer(module):
        return torch_modules.torch_arrays(module, describe(Spec(**own.hints), own.layout))
    if more := _more_weights(module):
        raise mismatch.more_parameters(module, _keras_class(module) or "", more)
    name, weights = getattr(module, "name", module), module.get_weights()
    if not weights:
        raise LayoutError(
            f"{name!r} has no weights yet: build it first (layer.build((None, None, input_size)),"
            " or call it once)"
        )
    return [(f"{name} weight {k}", value) for k, value in enumerate(weights)]


def overridden(module: Any) -> str:
    """Return which method of a layer or cell a subclass replaces, "" if none.

    A framework's own subclasses, such as those of parametrizations in torch, replace none.
    """
    calls = ("call", "inner_loop") if is_keras_layer(module) else ("forward",)
    for layer in _with_cells(torch_modules.rnn_in(module)):
        own = (c for c in type(layer).__mro__ if str(c.__module__).startswith(_OWN))
        base = next(own, object)
        for name in (*calls, "__call__"):
            changed = getattr(type(layer), name, None) is not getattr(base, name, None)
            if changed or name in vars(layer):
                return f"{type(layer).__name__} overrides {name}() of {base.__name__}"
    return ""


def _with_cells(layer: Any) -> Iterator[Any]:
    """Yield a layer, and the layers and cells that it runs."""
    yield layer
    inside = [getattr(layer, name, None) for name in _INSIDE]
    for one in filter(is_module, [*inside, *getattr(layer, "cells", ())]):
        yield from _with_cells(one)


def expression(module: Any, names: Iterable[str]) -> str:
    """Return code for the arrays of a module's RNN, in messages. names: of its layout."""
    if is_torch_module(module):
        return torch_modules.torch_expression(module, names)
    return "layer.get_weights()" if is_keras_layer(module) else jax_modules.jax_expression(module)


def _more_weights(layer: Any) -> list[str]:
    """Return the names of weights of a Keras layer that are not its cells'."""
    own = {id(getattr(one, name, None)) for one in _with_cells(layer) for name in _KERAS_WEIGHTS}
    return [getattr(w, "path", w.name) for w in layer.weights if id(w) not in own]


def _describe_keras(layer: Any) -> RNNDescription:
    if _keras_class(layer) is None:
        raise mismatch.not_recurrent(
            layer, f"an {', '.join(CELLS)}, RNN or Bidirectional layer or a cell of these",
            _keras_layers_in(layer, ""),
        )  # fmt: skip
    # A layer records what Keras before 2.3 left out. Keras 2's hard_sigmoid is another function.
    version = (2, 3) if class_names(layer, *_KERAS_2) else (3, 0)
    return RecurrentLayer((layer.name,), _layer_node(layer)).description(version)


def _keras_layers_in(layer: Any, above: str) -> Iterator[tuple[str, Any]]:
    """Yield the recurrent layers of a model or a wrapper such as TimeDistributed, with paths."""
    children = [(child.name, child) for child in getattr(layer, "layers", ())]
    children += [("layer", layer.layer)] if hasattr(layer, "layer") else []
    for name, child in children:
        if _keras_class(child):
            yield f"{above}{name}", child
        else:
            yield from _keras_layers_in(child, f"{above}{name}.")


def _keras_class(layer: Any) -> str | None:
    """Return the first class of a layer that Keras's configs of recurrent layers name, if any."""
    classes = class_names(layer, "keras.", "tf_keras.", "tensorflow.")
    return next((name for name in classes if name in _KERAS_CLASSES), None)


def _layer_node(layer: Any) -> Node:
    """Return a layer as a node of a tree, as if Keras had written it.

    Unlike in what get_config() returns, a user's subclass of a layer or cell is that of Keras.
    """
    own, config = _keras_class(layer), dict(layer.get_config())
    name, module = (own, "keras") if own else (type(layer).__name__, type(layer).__module__)
    if name == "Bidirectional":
        config["layer"] = _layer_node(layer.forward_layer)
        config["backward_layer"] = _layer_node(layer.backward_layer)
    elif name == "RNN":
        config["cell"] = _layer_node(layer.cell)
    elif name == "StackedRNNCells":
        config["cells"] = [_layer_node(cell) for cell in layer.cells]
    return {"class_name": name, "module": module, "config": config}
