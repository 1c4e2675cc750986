"""assign: put tensors into a torch module or a Keras layer."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from rnnlayout._convert import engine
from rnnlayout._convert.convert import Tensors
from rnnlayout._model.dtypes import dtype_name, present, torch_of
from rnnlayout._model.given import Given, layer_spec
from rnnlayout._model.layout import Layout
from rnnlayout._native import LayoutError
from rnnlayout._sources import frameworks
from rnnlayout._sources.read import read

from .weights import Weights


def assign(target: Any, tensors: Any) -> None:
    """Put weights into a torch module or a Keras layer, in place.

    target: a torch nn.LSTM / GRU / RNN or cell, a Keras layer (Bidirectional too) or a list of
        them, one a layer of the RNN. A Keras layer that is not built yet is built.
    tensors: a dict in the target's own layout, as convert() returns it, or a Weights in any, of
        the target's dtype or one that it holds exactly.

    LayoutError, LossyError: they do not fit; the target is untouched then.
    """
    if isinstance(target, (list, tuple)):
        _assign_list(list(target), tensors)
    elif frameworks.is_torch_module(target):
        _assign_torch(target, tensors)
    elif frameworks.is_keras_layer(target):
        _assign_keras([target], tensors)
    else:
        raise LayoutError(f"{type(target).__name__} is no torch module and no Keras layer")


def _fitting(tensors: Any, layout: Layout, told: dict[str, Any], dtype: str) -> Given:
    """The weights in the target's layout; `told` is what the target says of its RNN."""
    if isinstance(tensors, Weights):
        if "bias" in told and told["bias"] != (tensors.spec.bias != "none"):
            tensors = Weights(tensors, tensors.spec.replace(bias=told["bias"]))
        tensors = tensors.to(layout)
    given = read(tensors, None, layout, cell=told["cell"], reset=told.get("reset"))
    if given.dtype != dtype:  # a wider target takes them exactly, a narrower one is refused
        given = engine.run(given, layout, dtype, exact=True)[0]
    # a plain dict of arrays says neither activations nor resets, the others know
    known = tensors.spec if isinstance(tensors, Weights | Tensors) else None
    for key, value in told.items():
        if key == "recurrent_activation" and known is None:
            continue
        asked = ("cell", "reset", "recurrent_activation")
        found = getattr(known if known and key in asked else given.spec, key)
        if key == "bias":
            found = found != "none"
        if found != value:
            raise LayoutError(f"the weights have {key} {found!r}, the target {value!r}")
    return given


def _assign_list(targets: list[Any], tensors: Any) -> None:
    if not targets:
        raise LayoutError("no target: the list is empty")
    if all(frameworks.is_keras_layer(t) for t in targets):
        _assign_keras(targets, tensors)
    else:
        raise LayoutError("a list of targets is one of Keras layers")


def _assign_torch(module: Any, tensors: Any) -> None:
    name, told = frameworks.torch_hints(module)
    torch = sys.modules["torch"]
    own = dict(module.named_parameters(recurse=False))
    dtype = dtype_name(next(iter(own.values())).dtype) if own else "float32"
    given = _fitting(tensors, Layout(name), told, dtype)
    if missing := [n for n in given.names if n not in own]:
        raise LayoutError(
            f"{missing[0]} is no plain parameter of {type(module).__name__} (weight norm, pruning"
            " or another parametrization): remove that first"
        )
    with torch.no_grad():
        for name, array in zip(given.names, given.arrays, strict=True):
            own[name].copy_(torch_of(array, given.dtype))


def _assign_keras(layers: list[Any], tensors: Any) -> None:
    hints = [frameworks.keras_hints(layer) for layer in layers]
    layout, told = hints[0]
    if any(h != hints[0] for h in hints):
        raise LayoutError("the layers differ: they are several RNNs, assign each by itself")
    told = {**told, "num_layers": len(layers)}
    given = _fitting(tensors, Layout(layout), told, _keras_dtype(layers))
    per_layer = len(given.names) // len(layers)
    weights = [given.arrays[k * per_layer : (k + 1) * per_layer] for k in range(len(layers))]
    for k, layer in enumerate(layers):
        _build(layer, layer_spec(given.spec, k).input_size, weights[k])
    for layer, arrays in zip(layers, weights, strict=True):
        layer.set_weights([present(a, given.dtype) for a in arrays])


def _keras_dtype(layers: list[Any]) -> str:
    """What the layers keep their weights in; the policy says it of one that is not built."""
    weights = layers[0].get_weights()
    return dtype_name(weights[0].dtype if weights else layers[0].dtype or "float32")


def _build(layer: Any, input_size: int, arrays: list[np.ndarray]) -> None:
    """Build a layer that is not, and see that it has the right shapes."""
    if not layer.get_weights():
        layer.build((None, None, input_size))
    own = [tuple(w.shape) for w in layer.get_weights()]
    if own != [a.shape for a in arrays]:
        raise LayoutError(
            f"{layer.name!r} has weights of shapes {own}, the tensors are"
            f" {[a.shape for a in arrays]}"
        )
