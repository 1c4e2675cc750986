"""assign: put tensors into a module, a Keras layer or a tree of parameters."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from itertools import islice
from typing import Any

import numpy as np

from rnnlayout._model.config import changes_outputs, stack_config
from rnnlayout._model.dtypes import dtype_name, torch_of
from rnnlayout._model.errors import Ask, error_with_parts, write_in_python
from rnnlayout._model.layout import Layout
from rnnlayout._model.reading_options import UNRECORDED
from rnnlayout._model.tensors import Tensors
from rnnlayout._model.undecided import UndecidedError
from rnnlayout._model.weights import Weights
from rnnlayout._native import LayoutError, LossyError
from rnnlayout._sources import frameworks, jax_modules, torch_modules
from rnnlayout._sources.read_source import read_source
from rnnlayout._sources.read_tensors import prefix_around_rnn, flatten_dicts, only_rnn
from rnnlayout._sources.reading import Reading
from rnnlayout._sources.self_description import RNNDescription, class_names
from rnnlayout._sources.tensor_paths import match_layout_names

from .engine import run_conversion


def assign(target: Any, tensors: Any) -> Any:
    """Put weights into a module or layer, in place; return it, or a new one if it is immutable.

    target: a torch nn.LSTM / GRU / RNN or cell, a Keras layer (or Bidirectional), a list of Keras
        layers, one per layer of the RNN, an LSTM, GRU or RNN of MLX, a model of one of these three
        that contains one RNN, or a cell, RNN or Bidirectional of flax.nnx: they are changed. Keras
        layers that are not built yet are built. A cell of Equinox, or the parameters of one RNN of
        Flax or Haiku (a dict or nnx.State, nested or not, of JAX or NumPy arrays) stay as they are:
        the result is a new one, with arrays on the same device. A subclass may override the call,
        as what it computes from its weights is its own; it may not have more parameters.
    tensors: a Weights, what convert() returned, or a module or layer, in any layout; or a plain
        dict or list of arrays in the target's own. The dtype is the target's, or one that the
        target's represents exactly.

    Raises LayoutError or LossyError if they do not fit, or if the tensors record settings
    (activations, Weights.config) that the target lacks; all weights of the target are unchanged
    then.
    """
    targets = list(target) if isinstance(target, (list, tuple)) else [target]
    if not targets:
        raise LayoutError("no target: the list is empty")
    framework = frameworks.framework_of(target)
    if framework is frameworks.JAX:
        rnn = _in_layout_of(target, frameworks.JAX, tensors)
        return jax_modules.set_arrays(target, _maker_like(rnn))
    if framework:
        targets = [frameworks.rnn_of_model(target, framework)]
        if not framework.owns(targets[0]):
            raise LayoutError(
                "a traced RNN is not changed: assign to the module that was traced, and trace it"
                " again"
            )
    if all(map(frameworks.KERAS.owns, targets)):
        _assign_keras(targets, tensors)
    elif framework is frameworks.TORCH:
        _assign_torch(targets[0], tensors)
    elif framework is frameworks.MLX:
        rnn, mlx = _in_layout_of(targets[0], framework, tensors), sys.modules["mlx.core"]
        targets[0].update({name: mlx.array(array) for name, array in rnn.items()})
    elif "State" in class_names(target, "flax.nnx."):
        nnx, jax = sys.modules["flax.nnx"], sys.modules["jax"]
        state = jax.tree.map(lambda value: value, target)  # a copy, whose variables are its own
        nnx.replace_by_pure_dict(state, _assigned_tree(nnx.to_pure_dict(target), tensors))
        return state
    elif isinstance(target, Mapping) and not isinstance(target, Weights | Tensors):
        return _assigned_tree(target, tensors)
    elif isinstance(getattr(target, "params", None), Mapping):
        raise LayoutError(
            f"a {type(target).__name__} is more than weights: its copy with new ones is"
            " target.replace(params=rl.assign(target.params, tensors))"
        )
    else:
        raise LayoutError(
            f"{type(target).__name__} is not a torch module, a Keras layer, a list of Keras layers,"
            " a layer of MLX, or a cell or parameters of Flax, Equinox or Haiku"
        )
    return target


def _assigned_tree(tree: Mapping[Any, Any], tensors: Any) -> Any:
    """Return the parameters of one RNN with new values. Their structure stays."""
    leaves = flatten_dicts(tree)
    if kinds := {type(a).__name__ for a in leaves.values()} - {"ndarray", "ArrayImpl"}:
        boxed = any(hasattr(a, "unbox") for a in leaves.values())
        raise LayoutError(
            f"the target is a dict with values of {', '.join(sorted(kinds))}, need arrays of JAX or"
            f" NumPy: pass {'flax.linen.meta.unbox(params)' if boxed else 'the module itself'}"
        )
    target = _rnn_of(tree, tensors)
    spec = asdict(target.spec) | {"bias": target.spec.bias != "none"}
    hints = {key: spec[key] for key in spec.keys() - {"dtype", "skip_input"}}
    description = RNNDescription(target.layout.name, hints, {}, None)
    rnn = _in_target_layout(tensors, description, target.spec.dtype)
    around = prefix_around_rnn(leaves, "", [rnn.layout]) or ""
    names = match_layout_names(rnn.layout, [path.removeprefix(around) for path in leaves])
    new = _maker_like(rnn)
    return jax_modules.map_leaves(
        tree, lambda path, old: new(names[path.removeprefix(around)], old)
    )


def _rnn_of(tree: Mapping[Any, Any], tensors: Any) -> Weights:
    """Read parameters. Facts that they do not record are those of the new tensors."""
    try:
        return read_source(tree, Reading())
    except UndecidedError as error:
        if not _knows_its_rnn(tensors):
            calls = (
                f"rl.Weights(tensors, {write_in_python(part)})" if isinstance(part, Ask) else part
                for part in error.parts
            )
            raise error_with_parts(error, *calls) from None
        spec = Weights(tensors).spec
        for rnn in error.candidates:
            if all(getattr(rnn.spec, key) == getattr(spec, key) for key in UNRECORDED):
                return rnn
        fits = " or ".join(str(one) for one in error.specs)
        raise LayoutError(f"the weights are {spec}, but the target is {fits}") from None


def _maker_like(rnn: Weights) -> Callable[[str, Any], Any]:
    """Return a function of a tensor's name and the old array that makes the new array, of JAX or
    NumPy."""

    def new(name: str, old: Any) -> Any:
        array = rnn[name]
        if isinstance(old, np.ndarray):
            return array.copy()
        return sys.modules["jax"].device_put(array, old.sharding)

    return new


def _in_layout_of(target: Any, framework: frameworks.Framework, tensors: Any) -> Weights:
    """Return the weights in the layout and dtype of a cell or layer."""
    description = framework.describe(target)
    dtype = _one_dtype(array.dtype for _, array in framework.arrays(target, description))
    return _in_target_layout(tensors, description, dtype)


def _in_target_layout(tensors: Any, target: RNNDescription, dtype: str) -> Weights:
    """Return the weights in the layout and dtype of a target that describes itself."""
    layout, hints, tensors = Layout(target.layout), target.hints, only_rnn(tensors)
    if known := _knows_its_rnn(tensors):
        weights = Weights(tensors)
        if "bias" in hints and hints["bias"] != (weights.spec.bias != "none"):
            weights = Weights(weights, weights.spec.replace(bias=hints["bias"]))
        rnn = weights.to(layout)
    else:
        rnn = read_source(tensors, Reading(None, layout, _unrecorded(hints)))
    if rnn.spec.dtype != dtype:  # a wider target takes them exactly, a narrower one is refused
        try:
            rnn = run_conversion(rnn, rnn.layout, dtype, exact=True)
        except LossyError as error:
            raise LossyError(
                error,
                f": to round them to the target's dtype, pass rl.Weights(tensors, dtype={dtype!r})",
            ) from None
    fields = {**asdict(rnn.spec), "bias": rnn.spec.bias != "none"}
    fields |= {} if known else _unrecorded(hints)
    for key, value in hints.items():
        if fields[key] != value:
            raise LayoutError(f"the weights have {key} {fields[key]!r}, the target {value!r}")
    # Weights without a setting may be from a source that does not record it: they fit any target.
    ours, theirs = (changes_outputs(used.config, rnn.spec) for used in (rnn, target))
    for key, value in rnn.config.items():
        if ours.get(key, ...) != theirs.get(key, ...):
            use = f"with {target.config[key]!r}" if key in target.config else "without it"
            raise LayoutError(
                f"the weights are used with {key}={value!r}, the target {use}: remove {key!r}"
                " from the config of the weights to apply it yourself"
            )
    return rnn


def _knows_its_rnn(tensors: Any) -> bool:
    """Return whether it is more than arrays: a Weights, what convert() returns, modules."""
    if isinstance(tensors, (list, tuple)):
        return all(map(frameworks.framework_of, tensors))
    return isinstance(tensors, Weights | Tensors) or bool(frameworks.framework_of(tensors))


def _unrecorded(hints: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the target's spec that a plain dict of arrays does not record."""
    return {name: hints[name] for name in UNRECORDED if name in hints}


def _assign_torch(module: Any, tensors: Any) -> None:
    described = torch_modules.torch_spec(module)
    torch = sys.modules["torch"]
    parameters = dict(module.named_parameters(recurse=False, remove_duplicate=False))
    dtype = _one_dtype(parameter.dtype for parameter in parameters.values())
    rnn = _in_target_layout(tensors, described, dtype)
    if missing := [name for name in rnn.names if name not in parameters]:
        raise LayoutError(
            f"{missing[0]} is not a plain parameter of {type(module).__name__}: remove weight norm,"
            " pruning, weight dropout or another parametrization first"
        )
    torch_modules.check_parameters(module, rnn.names)
    for name, array in rnn.bits.items():
        if parameters[name].is_meta:
            raise LayoutError(
                f"{name} of the target is on the meta device and has no memory: call"
                " module.to_empty(device='cpu') first"
            )
        if (shape := tuple(parameters[name].shape)) != array.shape:
            raise LayoutError(f"{name} of the target: shape {shape}, expected {array.shape}")
    first: dict[int, str] = {}
    for name in rnn.names:  # one parameter may have two names
        other = first.setdefault(id(parameters[name]), name)
        if other != name and rnn.bits[other].tobytes() != rnn.bits[name].tobytes():
            raise LayoutError(
                f"{other} and {name} of the target are one parameter, and their values differ:"
                f" give it two first: module.{name} = torch.nn.Parameter(module.{name}.clone())"
            )
    with torch.no_grad():
        for name, array in rnn.bits.items():
            parameters[name].copy_(torch_of(array, rnn.spec.dtype))


def _one_dtype(dtypes: Iterable[Any]) -> str:
    """Return the dtype of all parameters of a target. Raises LayoutError if there are several."""
    names = sorted({dtype_name(dtype) for dtype in dtypes})
    if len(names) > 1:
        raise LayoutError(f"the target has parameters of {' and '.join(names)}: it needs one dtype")
    return names[0] if names else "float32"


def _assign_keras(layers: list[Any], tensors: Any) -> None:
    if len({id(layer) for layer in layers}) < len(layers):
        raise LayoutError(
            "a layer is in the list twice: each layer of the RNN needs a Keras layer of its own"
        )
    described = [frameworks.KERAS.describe(layer) for layer in layers]
    first = described[0]
    total = {"num_layers": sum(one.hints["num_layers"] for one in described)}
    if any((x.layout, x.hints | total) != (first.layout, first.hints | total) for x in described):
        raise LayoutError("the layers differ: they are several RNNs, assign each on its own")
    directions = 1 + bool(first.hints["bidirectional"])
    config = stack_config([one.config for one in described], directions)
    whole = replace(first, hints=first.hints | total, config=config)
    built = [w.dtype for layer in layers for w in layer.get_weights()]
    dtype = _one_dtype(built or [layer.dtype or "float32" for layer in layers])
    rnn = _in_target_layout(tensors, whole, dtype)
    parts, weights = iter(rnn.split()), []
    for layer, description in zip(layers, described, strict=True):
        count = description.hints["num_layers"]  # several of StackedRNNCells
        weights.append([array for part in islice(parts, count) for array in part.values()])
        _check_shapes(layer, weights[-1])
    width = rnn.spec.num_directions * rnn.spec.hidden_size
    for k, (layer, new) in enumerate(zip(layers, weights, strict=True)):
        if not layer.get_weights():
            layer.build((None, None, width if k else rnn.spec.input_size))
            _check_shapes(layer, new)
    old = [layer.get_weights() for layer in layers]
    try:
        for layer, new in zip(layers, weights, strict=True):
            layer.set_weights(new)
    except BaseException:  # then all keep their old weights
        for layer, kept in zip(layers, old, strict=True):
            layer.set_weights(kept)
        raise


def _check_shapes(layer: Any, weights: list[Any]) -> None:
    """Check that the weights of a layer, if it is built, have the shapes of the new ones."""
    own, shapes = [tuple(w.shape) for w in layer.get_weights()], [a.shape for a in weights]
    if own and own != shapes:
        raise LayoutError(f"{layer.name!r} has weights of shapes {own}, the tensors are {shapes}")
