"""Keras's recurrent layers and cells, recognized by their classes: nothing is imported here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rnnlayout._native import LayoutError

from . import mismatch
from .keras_config import CELLS
from .keras_tree import Node, RecurrentLayer
from .self_description import RNNDescription, class_names

_CLASSES = (*CELLS, "LSTMCell", "GRUCell", "SimpleRNNCell", "StackedRNNCells", "RNN",
            "Bidirectional")  # fmt: skip
_WEIGHTS = ("kernel", "recurrent_kernel", "bias")
_INSIDE = ("cell", "forward_layer", "backward_layer")
_KERAS_2 = ("tf_keras", "keras.engine", "keras.src.engine", "tensorflow.python.keras")


def is_keras_layer(value: Any) -> bool:
    own = type(value)  # a module of torch takes long to say what it lacks
    return hasattr(own, "get_weights") and hasattr(own, "get_config")


def describe_keras_layer(layer: Any) -> RNNDescription:
    if _keras_class(layer) is None:
        raise mismatch.not_recurrent(
            layer, f"an {', '.join(CELLS)}, RNN or Bidirectional layer or a cell of these"
        )
    # A layer records what Keras before 2.3 left out. Keras 2's hard_sigmoid is another function.
    version = (2, 3) if class_names(layer, *_KERAS_2) else (3, 0)
    return RecurrentLayer((layer.name,), _layer_node(layer)).description(version)


def keras_arrays(layer: Any, own: RNNDescription) -> list[tuple[str, Any]]:
    known = {id(getattr(one, name, None)) for one in layer_with_cells(layer) for name in _WEIGHTS}
    if more := [getattr(w, "path", w.name) for w in layer.weights if id(w) not in known]:
        raise mismatch.more_parameters(layer, _keras_class(layer) or "", more)
    name, weights = getattr(layer, "name", layer), layer.get_weights()
    if not weights:
        raise LayoutError(
            f"{name!r} has no weights yet: build it first (layer.build((None, None, input_size)),"
            " or call it once)"
        )
    return [(f"{name} weight {k}", value) for k, value in enumerate(weights)]


def layer_with_cells(layer: Any) -> Iterator[Any]:
    """Yield a layer, and the layers and cells that it runs."""
    yield layer
    inside = [getattr(layer, name, None) for name in _INSIDE]
    for one in filter(is_keras_layer, [*inside, *getattr(layer, "cells", ())]):
        yield from layer_with_cells(one)


def keras_rnns(layer: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the recurrent layers of a model or a wrapper such as TimeDistributed, with paths."""
    if _keras_class(layer):
        yield path, layer
        return
    children = [(child.name, child) for child in getattr(layer, "layers", ())]
    children += [("layer", layer.layer)] if hasattr(layer, "layer") else []
    for name, child in children:
        yield from keras_rnns(child, f"{path}/{name}" if path else name)


def _keras_class(layer: Any) -> str | None:
    """Return the first class of a layer that Keras's configs of recurrent layers name, if any."""
    classes = class_names(layer, "keras.", "tf_keras.", "tensorflow.")
    return next((name for name in classes if name in _CLASSES), None)


def _layer_node(layer: Any) -> Node:
    """Return a layer as a node of a tree, as if Keras had written it. Unlike in what get_config()
    returns, a user's subclass of a layer or cell is that of Keras."""
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
