"""Put tensors into a module, a Keras layer or a tree of parameters."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from itertools import islice
from typing import Any

import numpy as np

from rnnlayout._model.config import before_value, changes_outputs, facts_of, stack_config
from rnnlayout._model.dtypes import dtype_name, torch_of
from rnnlayout._model.errors import Ask, error_with_parts, write_in_python
from rnnlayout._model.layout import Layout
from rnnlayout._model.reading_options import UNRECORDED
from rnnlayout._model.spec import Spec
from rnnlayout._model.tensors import Tensors
from rnnlayout._model.undecided import UndecidedError
from rnnlayout._model.weights import Weights
from rnnlayout._native import LayoutError, LossyError
from rnnlayout._sources import frameworks, jax_modules, paddle_modules, torch_modules
from rnnlayout._sources.accounting import harmful_names
from rnnlayout._sources.read_source import read_source
from rnnlayout._sources.read_tensors import flatten_dicts, only_rnn, prefix_around_rnn
from rnnlayout._sources.reading import Reading
from rnnlayout._sources.self_description import RNNDescription, class_names
from rnnlayout._sources.tensor_paths import match_layout_names

from .engine import run_conversion


def assign(target: Any, tensors: Any) -> Any:
    """Put weights into a module or layer; return the target, or a copy of an immutable target.

    target: a torch nn.LSTM / GRU / RNN or cell, a Keras layer (or Bidirectional), a list of Keras
        layers (one per layer of the RNN), an LSTM, GRU or RNN of MLX, a layer or cell of Paddle, a
        model of torch, Keras, MLX or Paddle that contains one RNN, or a cell, RNN or Bidirectional
        of flax.nnx: changed in place.
        Keras layers that are not built yet are built. A cell of Equinox, or the parameters of one
        RNN of Flax or Haiku (a dict or nnx.State, nested or not, of JAX or NumPy arrays), are
        copied: the result has the new arrays, on the same device. A subclass may override the call,
        but may not have further parameters.
    tensors: a Weights, a result of convert(), or a module or layer, in any layout; or a plain dict
        or list of arrays in the layout of the target; or cuDNN's weight space, a vector, of the
        target's RNN. The dtype is the target's, or a dtype that the target's represents exactly.

    Raises LayoutError or LossyError if the tensors do not fit, or if the tensors record settings
    (activations, Weights.config) that the target lacks. All weights of the target are unchanged
    then.
    """
    targets = list(target) if isinstance(target, (list, tuple)) else [target]
    if not targets:
        raise LayoutError("no target: the list is empty")
    framework = frameworks.framework_of(target)
    if framework is frameworks.JAX:
        rnn = _in_layout_of(target, frameworks.JAX, tensors)
        return jax_modules.set_arrays(target, _array_maker(rnn))
    if framework:
        targets = [frameworks.rnn_of_model(target, framework)]
        if torch_modules.is_traced(targets[0]):
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
    elif framework is frameworks.PADDLE:
        _assign_paddle(targets[0], tensors)
    elif "State" in class_names(target, "flax.nnx."):
        nnx, jax = sys.modules["flax.nnx"], sys.modules["jax"]
        state = jax.tree.map(lambda value: value, target)  # a copy with new variables
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
            " a layer of MLX or Paddle, or a cell or parameters of Flax, Equinox or Haiku"
        )
    return target


def _assigned_tree(tree: Mapping[Any, Any], tensors: Any) -> Any:
    """Return a tree of the same structure with new arrays. tree: the parameters of one RNN."""
    leaves = flatten_dicts(tree)
    leaves = {name: leaves[name] for name in harmful_names(leaves)}
    if kinds := {type(leaf).__name__ for leaf in leaves.values()} - {"ndarray", "ArrayImpl"}:
        boxed = any(hasattr(leaf, "unbox") for leaf in leaves.values())
        raise LayoutError(
            f"the target is a dict with values of {', '.join(sorted(kinds))}, need arrays of JAX or"
            f" NumPy: pass {'flax.linen.meta.unbox(params)' if boxed else 'the module itself'}"
        )
    target = _rnn_of(tree, tensors)
    spec = asdict(target.spec) | {"bias": target.spec.bias != "none"}
    fields = {key: spec[key] for key in spec.keys() - {"dtype", "skip_input"}}
    description = RNNDescription(target.layout.name, fields, {}, None)
    rnn = _in_target_layout(tensors, description, target.spec.dtype)
    outer = prefix_around_rnn(leaves, "", [rnn.layout]) or ""
    names = match_layout_names(rnn.layout, [path.removeprefix(outer) for path in leaves])
    new_array = _array_maker(rnn)

    def new_leaf(path: str, old_leaf: Any) -> Any:
        """Return the new array; the state of a random number generator as is."""
        if path not in leaves:
            return old_leaf
        return new_array(names[path.removeprefix(outer)], old_leaf)

    return jax_modules.map_leaves(tree, new_leaf)


def _rnn_of(tree: Mapping[Any, Any], tensors: Any) -> Weights:
    """Read the parameters of an RNN. The new tensors decide between several RNNs that fit."""
    try:
        return read_source(tree, Reading())
    except UndecidedError as error:
        if not _describes_rnn(tensors):
            calls = (
                f"rl.Weights(tensors, {write_in_python(part)})" if isinstance(part, Ask) else part
                for part in error.parts
            )
            raise error_with_parts(error, *calls) from None
        spec = Weights(tensors).spec
        for rnn in error.candidates:
            if all(getattr(rnn.spec, key) == getattr(spec, key) for key in UNRECORDED):
                return rnn
        candidates = " or ".join(str(spec) for spec in error.specs)
        raise LayoutError(f"the weights are {spec}, but the target is {candidates}") from None


def _array_maker(rnn: Weights) -> Callable[[str, Any], Any]:
    """Return a function of (tensor name, old array) that makes the new array, of JAX or NumPy."""

    def new_array(name: str, old_array: Any) -> Any:
        array = rnn[name]
        if isinstance(old_array, np.ndarray):
            return array.copy()
        return sys.modules["jax"].device_put(array, old_array.sharding)

    return new_array


def _in_layout_of(target: Any, framework: frameworks.Framework, tensors: Any) -> Weights:
    """Return the weights in the layout and dtype of a cell or layer."""
    description = framework.describe(target)
    dtype = _one_dtype(array.dtype for _, array in framework.arrays(target, description))
    return _in_target_layout(tensors, description, dtype)


def _in_target_layout(tensors: Any, target: RNNDescription, dtype: str) -> Weights:
    """Return the weights in the layout and dtype of a target that is described."""
    layout, target_fields, tensors = Layout(target.layout), target.fields, only_rnn(tensors)
    if is_described := _describes_rnn(tensors):
        weights = Weights(tensors)
        if "bias" in target_fields and target_fields["bias"] != (weights.spec.bias != "none"):
            weights = Weights(weights, weights.spec.replace(bias=target_fields["bias"]))
        rnn = weights.to(layout)
    elif _is_flat(tensors) and {"input_size", "hidden_size"} <= target_fields.keys():
        spec = Spec(**target_fields, dtype=dtype_name(tensors.dtype))
        rnn = Weights(tensors, spec, layout="cudnn").to(layout)
    else:
        rnn = read_source(tensors, Reading(None, layout, _unrecorded(target_fields)))
    if rnn.spec.dtype != dtype:  # a wider dtype is exact; rounding to a narrower dtype is refused
        try:
            rnn = run_conversion(rnn, rnn.layout, dtype, exact=True)
        except LossyError as error:
            raise LossyError(
                error,
                f": to round them to the target's dtype, pass rl.Weights(tensors, dtype={dtype!r})",
            ) from None
    fields = {**asdict(rnn.spec), "bias": rnn.spec.bias != "none"}
    fields |= {} if is_described else _unrecorded(target_fields)
    for key, value in target_fields.items():
        if fields[key] != value:
            raise LayoutError(f"the weights have {key} {fields[key]!r}, the target {value!r}")
    # Weights without a setting fit any target: their source may not record the setting.
    rnn_settings, target_settings = (
        changes_outputs(side.config, rnn.spec) for side in (rnn, target)
    )
    for key, value in rnn.config.items():
        facts = facts_of(key)
        if facts.place == "argument" and layout.name in facts.layouts:
            continue  # the layers around the target decide
        if rnn_settings.get(key, ...) != target_settings.get(key, ...):
            setting = f"with {target.config[key]!r}" if key in target.config else "without it"
            raise LayoutError(
                f"the weights are used with {before_value(key)}{value!r}, the target {setting}:"
                f" remove {key!r} from the config of the weights to apply it yourself, as in w ="
                f" rl.Weights(layer); del w.config[{key!r}]; rl.assign(target, w)"
            )
    return rnn


def _is_flat(tensors: Any) -> bool:
    """Return whether the tensors are a single vector, as pack() returns it."""
    return getattr(tensors, "ndim", None) == 1 and hasattr(tensors, "dtype")


def _describes_rnn(tensors: Any) -> bool:
    """Return whether the tensors record an RNN: a Weights, a result of convert(), modules."""
    if isinstance(tensors, (list, tuple)):
        return all(map(frameworks.framework_of, tensors))
    return isinstance(tensors, Weights | Tensors) or bool(frameworks.framework_of(tensors))


def _unrecorded(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a spec that a plain dict of arrays does not record."""
    return {name: fields[name] for name in UNRECORDED if name in fields}


def _assign_torch(module: Any, tensors: Any) -> None:
    description = torch_modules.torch_spec(module)
    torch = sys.modules["torch"]
    parameters = dict(module.named_parameters(recurse=False, remove_duplicate=False))
    dtype = _one_dtype(parameter.dtype for parameter in parameters.values())
    rnn = _in_target_layout(tensors, description, dtype)
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
    name_of: dict[int, str] = {}
    for name in rnn.names:  # one parameter may have two names
        first_name = name_of.setdefault(id(parameters[name]), name)
        if first_name != name and rnn.bits[first_name].tobytes() != rnn.bits[name].tobytes():
            raise LayoutError(
                f"{first_name} and {name} of the target are one parameter, and their values differ:"
                f" give it two first: module.{name} = torch.nn.Parameter(module.{name}.clone())"
            )
    with torch.no_grad():
        for name, array in rnn.bits.items():
            parameters[name].copy_(torch_of(array, rnn.spec.dtype))


def _assign_paddle(layer: Any, tensors: Any) -> None:
    description = paddle_modules.paddle_spec(layer)
    targets = paddle_modules.paddle_tensors(layer, description)
    dtype = _one_dtype(tensor.dtype for _, tensor in targets)
    rnn = _in_target_layout(tensors, description, dtype)
    for name, tensor in targets:
        array = rnn.bits[name]
        tensor.set_value(array.T if paddle_modules.is_projection(name) else array)


def _one_dtype(dtypes: Iterable[Any]) -> str:
    """Return the dtype of all parameters of a target. Raises LayoutError for different dtypes."""
    names = sorted({dtype_name(dtype) for dtype in dtypes})
    if len(names) > 1:
        raise LayoutError(f"the target has parameters of {' and '.join(names)}: it needs one dtype")
    return names[0] if names else "float32"


def _assign_keras(layers: list[Any], tensors: Any) -> None:
    if len({id(layer) for layer in layers}) < len(layers):
        raise LayoutError(
            "a layer is in the list twice: each layer of the RNN needs a Keras layer of its own"
        )
    descriptions = [frameworks.KERAS.describe(layer) for layer in layers]
    first = descriptions[0]
    total = {"num_layers": sum(description.fields["num_layers"] for description in descriptions)}
    if any(
        (description.layout, description.fields | total) != (first.layout, first.fields | total)
        for description in descriptions
    ):
        raise LayoutError("the layers differ: they are several RNNs, assign each on its own")
    directions = 1 + bool(first.fields["bidirectional"])
    config = stack_config([description.config for description in descriptions], directions)
    joined = replace(first, fields=first.fields | total, config=config)
    dtypes = [w.dtype for layer in layers for w in layer.get_weights()]
    dtype = _one_dtype(dtypes or [layer.dtype or "float32" for layer in layers])
    rnn = _in_target_layout(tensors, joined, dtype)
    parts, weights = iter(rnn.split()), []
    for layer, description in zip(layers, descriptions, strict=True):
        count = description.fields["num_layers"]  # more than 1 for StackedRNNCells
        weights.append([array for part in islice(parts, count) for array in part.values()])
        _check_shapes(layer, weights[-1])
    width = rnn.spec.num_directions * rnn.spec.hidden_size
    for k, (layer, layer_weights) in enumerate(zip(layers, weights, strict=True)):
        if not layer.get_weights():
            layer.build((None, None, width if k else rnn.spec.input_size))
            _check_shapes(layer, layer_weights)
    old_weights = [layer.get_weights() for layer in layers]
    try:
        for layer, layer_weights in zip(layers, weights, strict=True):
            layer.set_weights(layer_weights)
    except BaseException:  # an interrupt too leaves all layers with the old weights
        for layer, saved in zip(layers, old_weights, strict=True):
            layer.set_weights(saved)
        raise


def _check_shapes(layer: Any, weights: list[Any]) -> None:
    """Check that the weights of a layer, if the layer is built, have the shapes of the new
    weights."""
    old_shapes, shapes = (
        [tuple(w.shape) for w in layer.get_weights()],
        [array.shape for array in weights],
    )
    if old_shapes and old_shapes != shapes:
        raise LayoutError(
            f"{layer.name!r} has weights of shapes {old_shapes}, the tensors are {shapes}"
        )
