"""assign: put tensors into a torch module or a Keras layer."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

from rnnlayout._convert import engine
from rnnlayout._convert.convert import Tensors
from rnnlayout._model.dtypes import dtype_name, present, torch_of
from rnnlayout._model.given import Given
from rnnlayout._model.layout import Layout
from rnnlayout._native import LayoutError
from rnnlayout._sources import frameworks
from rnnlayout._sources.inside import only_rnn
from rnnlayout._sources.read import read

from .weights import Weights


def assign(target: Any, tensors: Any) -> None:
    """Put weights into a torch module or a Keras layer, in place.

    target: a torch nn.LSTM / GRU / RNN or cell, a Keras layer (or Bidirectional), or a list of
        Keras layers, one per layer of the RNN. Keras layers that are not built yet are built.
    tensors: a dict in the target's own layout, as convert() returns it, or a Weights in any
        layout. The dtype is the target's, or one that the target's represents exactly.

    Raises LayoutError or LossyError if they do not fit; the target is unchanged then.
    """
    targets = list(target) if isinstance(target, (list, tuple)) else [target]
    if not targets:
        raise LayoutError("no target: the list is empty")
    if all(map(frameworks.is_keras_layer, targets)):
        _assign_keras(targets, tensors)
    elif frameworks.is_torch_module(target):
        _assign_torch(target, tensors)
    else:
        raise LayoutError(
            f"{type(target).__name__} is not a torch module, Keras layer or list of Keras layers"
        )


def _fitting(tensors: Any, layout: Layout, hints: dict[str, Any], dtype: str) -> Given:
    """Return the weights in the target's layout. hints: the fields of the target's spec."""
    tensors = only_rnn(tensors)
    if isinstance(tensors, Weights):
        if "bias" in hints and hints["bias"] != (tensors.spec.bias != "none"):
            tensors = Weights(tensors, tensors.spec.replace(bias=hints["bias"]))
        tensors = tensors.to(layout)
    own = asdict(tensors.spec) if isinstance(tensors, Weights | Tensors) else hints
    given = read(tensors, None, layout, cell=own["cell"], reset=own.get("reset"))
    if given.dtype != dtype:  # a wider target takes them exactly, a narrower one is refused
        given = engine.run(given, layout, dtype, exact=True)[0]
    found = {**asdict(given.spec), "bias": given.spec.bias != "none"}
    if isinstance(tensors, Weights | Tensors):
        known = tensors.spec
        found |= {key: getattr(known, key) for key in ("cell", "reset", "recurrent_activation")}
    else:  # a plain dict of arrays does not record its activations
        found["recurrent_activation"] = hints.get("recurrent_activation")
    for key, value in hints.items():
        if found[key] != value:
            raise LayoutError(f"the weights have {key} {found[key]!r}, the target {value!r}")
    return given


def _assign_torch(module: Any, tensors: Any) -> None:
    own_spec = frameworks.own_spec(module)
    torch = sys.modules["torch"]
    own = dict(module.named_parameters(recurse=False))
    dtype = dtype_name(next(iter(own.values())).dtype) if own else "float32"
    given = _fitting(tensors, Layout(own_spec.layout), own_spec.hints, dtype)
    if missing := [n for n in given.names if n not in own]:
        raise LayoutError(
            f"{missing[0]} is not a plain parameter of {type(module).__name__}: remove weight norm,"
            " pruning or another parametrization first"
        )
    with torch.no_grad():
        for name, array in zip(given.names, given.arrays, strict=True):
            own[name].copy_(torch_of(array, given.dtype))


def _assign_keras(layers: list[Any], tensors: Any) -> None:
    described = [frameworks.own_spec(layer) for layer in layers]
    layout, hints = described[0].layout, described[0].hints
    if any((x.layout, x.hints) != (layout, hints) for x in described):
        raise LayoutError("the layers differ: they are several RNNs, assign each on its own")
    own = layers[0].get_weights()
    dtype = dtype_name(own[0].dtype if own else layers[0].dtype or "float32")
    given = _fitting(tensors, Layout(layout), {**hints, "num_layers": len(layers)}, dtype)
    parts = given.layers()
    for layer, part in zip(layers, parts, strict=True):
        _build(layer, part)
    for layer, part in zip(layers, parts, strict=True):
        layer.set_weights([present(a, given.dtype) for a in part.arrays])


def _build(layer: Any, given: Given) -> None:
    """Build a layer if it is not, and check that its weights have the same shapes."""
    if not layer.get_weights():
        layer.build((None, None, given.spec.input_size))
    own, shapes = [tuple(w.shape) for w in layer.get_weights()], [a.shape for a in given.arrays]
    if own != shapes:
        raise LayoutError(f"{layer.name!r} has weights of shapes {own}, the tensors are {shapes}")
