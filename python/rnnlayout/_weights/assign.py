"""assign: put tensors into a module, a Keras layer or a tree of parameters."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from rnnlayout._convert import engine
from rnnlayout._model.checked_rnn import CheckedRNN, HasRNN, TensorDict, checked_rnn_of
from rnnlayout._model.config import changes_outputs, stack_config
from rnnlayout._model.dtypes import dtype_name, present_array, torch_of
from rnnlayout._model.errors import Ask, error_with_parts, write_in_python
from rnnlayout._model.layout import Layout
from rnnlayout._model.undecided import UndecidedError
from rnnlayout._native import LayoutError, LossyError
from rnnlayout._sources import frameworks, jax_modules, torch_modules
from rnnlayout._sources.read_source import read_source
from rnnlayout._sources.read_tensors import around_rnn, flatten_dicts, only_rnn
from rnnlayout._sources.reading import Reading
from rnnlayout._sources.reading_options import UNRECORDED
from rnnlayout._sources.self_description import RNNDescription, class_names
from rnnlayout._sources.tensor_paths import match_layout_names

from .weights import Weights


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
        given = _in_layout_of(target, frameworks.JAX, tensors)
        return jax_modules.set_arrays(target, _maker_like(given))
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
        given, mlx = _in_layout_of(targets[0], framework, tensors), sys.modules["mlx.core"]
        new = {
            name: present_array(array, given.spec.dtype) for name, array in given.tensors.items()
        }
        targets[0].update({name: mlx.array(array) for name, array in new.items()})
    elif "State" in class_names(target, "flax.nnx."):
        nnx, jax = sys.modules["flax.nnx"], sys.modules["jax"]
        state = jax.tree.map(lambda value: value, target)  # a copy, whose variables are its own
        nnx.replace_by_pure_dict(state, _assigned_tree(nnx.to_pure_dict(target), tensors))
        return state
    elif isinstance(target, Mapping) and not isinstance(target, HasRNN | TensorDict):
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
    found = _rnn_of(tree, tensors)
    spec = asdict(found.spec) | {"bias": found.spec.bias != "none"}
    own = {key: spec[key] for key in spec.keys() - {"dtype", "skip_input"}}
    given = _in_target_layout(
        tensors, RNNDescription(found.layout.name, own, {}, None), found.spec.dtype
    )
    around = around_rnn(leaves, "", [given.layout]) or ""
    names = match_layout_names(given.layout, [path.removeprefix(around) for path in leaves])
    new = _maker_like(given)
    return jax_modules.map_leaves(
        tree, lambda path, old: new(names[path.removeprefix(around)], old)
    )


def _rnn_of(tree: Mapping[Any, Any], tensors: Any) -> CheckedRNN:
    """Read parameters; what they do not record is that of the tensors to be put there."""
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


def _maker_like(given: CheckedRNN) -> Callable[[str, Any], Any]:
    """Return what makes a new array of JAX or NumPy, from the tensor's name and the old array."""

    def new(name: str, old: Any) -> Any:
        array = present_array(given.tensors[name], given.spec.dtype)
        if isinstance(old, np.ndarray):
            return array.copy()
        return sys.modules["jax"].device_put(array, old.sharding)

    return new


def _in_layout_of(target: Any, framework: frameworks.Framework, tensors: Any) -> CheckedRNN:
    """Return the weights in the layout and dtype of a cell or layer."""
    own = framework.describe(target)
    dtype = _one_dtype(array.dtype for _, array in framework.arrays(target, own))
    return _in_target_layout(tensors, own, dtype)


def _in_target_layout(tensors: Any, own: RNNDescription, dtype: str) -> CheckedRNN:
    """Return the weights in the layout and dtype of a target that describes itself."""
    layout, hints, tensors = Layout(own.layout), own.hints, only_rnn(tensors)
    if known := _knows_its_rnn(tensors):
        weights = Weights(tensors)
        if "bias" in hints and hints["bias"] != (weights.spec.bias != "none"):
            weights = Weights(weights, weights.spec.replace(bias=hints["bias"]))
        given = checked_rnn_of(weights.to(layout))
    else:
        given = read_source(tensors, Reading(None, layout, _unrecorded(hints)))
    if given.spec.dtype != dtype:  # a wider target takes them exactly, a narrower one is refused
        try:
            given = engine.run_conversion(given, given.layout, dtype, exact=True)[0]
        except LossyError as error:
            raise LossyError(
                error,
                f": to round them to the target's dtype, pass rl.Weights(tensors, dtype={dtype!r})",
            ) from None
    found = {**asdict(given.spec), "bias": given.spec.bias != "none"}
    found |= {} if known else _unrecorded(hints)
    for key, value in hints.items():
        if found[key] != value:
            raise LayoutError(f"the weights have {key} {found[key]!r}, the target {value!r}")
    # Weights without a setting may be from a source that does not record it: they fit any target.
    spec = given.spec
    ours, theirs = changes_outputs(given.config, spec), changes_outputs(own.config, spec)
    for key, value in given.config.items():
        if ours.get(key, ...) != theirs.get(key, ...):
            target = f"with {own.config[key]!r}" if key in own.config else "without it"
            raise LayoutError(
                f"the weights are used with {key}={value!r}, the target {target}: remove {key!r}"
                " from the config of the weights to apply it yourself"
            )
    return given


def _knows_its_rnn(tensors: Any) -> bool:
    """Return whether it is more than arrays: a Weights, what convert() returns, modules."""
    if isinstance(tensors, (list, tuple)):
        return all(map(frameworks.framework_of, tensors))
    return isinstance(tensors, HasRNN | TensorDict) or bool(frameworks.framework_of(tensors))


def _unrecorded(hints: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the target's spec that a plain dict of arrays does not record."""
    return {name: hints[name] for name in UNRECORDED if name in hints}


def _assign_torch(module: Any, tensors: Any) -> None:
    described = torch_modules.torch_spec(module)
    torch = sys.modules["torch"]
    own = dict(module.named_parameters(recurse=False, remove_duplicate=False))
    given = _in_target_layout(tensors, described, _one_dtype(p.dtype for p in own.values()))
    if missing := [n for n in given.names if n not in own]:
        raise LayoutError(
            f"{missing[0]} is not a plain parameter of {type(module).__name__}: remove weight norm,"
            " pruning, weight dropout or another parametrization first"
        )
    torch_modules.check_parameters(module, given.names)
    values = given.tensors
    for name, array in values.items():
        if own[name].is_meta:
            raise LayoutError(
                f"{name} of the target is on the meta device and has no memory: call"
                " module.to_empty(device='cpu') first"
            )
        if own[name].shape != array.shape:
            raise LayoutError(
                f"{name} of the target: shape {tuple(own[name].shape)}, expected {array.shape}"
            )
    first: dict[int, str] = {}
    for name in given.names:  # one parameter may have two names
        other = first.setdefault(id(own[name]), name)
        if other != name and values[other].tobytes() != values[name].tobytes():
            raise LayoutError(
                f"{other} and {name} of the target are one parameter, and their values differ:"
                f" give it two first: module.{name} = torch.nn.Parameter(module.{name}.clone())"
            )
    with torch.no_grad():
        for name, array in values.items():
            own[name].copy_(torch_of(array, given.spec.dtype))


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
    given = _in_target_layout(tensors, whole, dtype)
    parts, weights = iter(given.layers()), []
    for layer, one in zip(layers, described, strict=True):
        own = [next(parts) for _ in range(one.hints["num_layers"])]  # several of StackedRNNCells
        weights.append([present_array(a, given.spec.dtype) for part in own for a in part.arrays])
        _check_shapes(layer, weights[-1])
    width = given.spec.num_directions * given.spec.hidden_size
    for k, (layer, new) in enumerate(zip(layers, weights, strict=True)):
        if not layer.get_weights():
            layer.build((None, None, width if k else given.spec.input_size))
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
