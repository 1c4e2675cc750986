"""Read modules and layers of frameworks: one row per framework.

Modules are recognized by class: nothing is imported here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnlayout._model.errors import Ask
from rnnlayout._model.weights import Weights
from rnnlayout._native import LayoutError

from . import jax_modules, keras_masks, keras_tree, mlx_modules, paddle_modules, torch_modules
from .mismatch import choose_under_prefix
from .self_description import RNNDescription


@dataclass(frozen=True)
class Framework:
    """Functions that read the modules of a framework.

    owns(value): whether a value is a module of the framework.
    inside(module): (path, RNN) pairs of all RNNs in a module. An RNN contains itself.
    describe(module): the description of an RNN, or of an RNN with weight dropout; raise LayoutError
        for another module, LossyError if no layout can represent the RNN.
    arrays(module, description): (name for messages, array) pairs in the order of the layout; raise
        LayoutError if a subclass has further arrays.
    runs(module): the layers and cells that compute in a call of the module.
    calls: the methods that compute. modules: starts of the names of the framework's Python modules.
    expression(module, names): code for the arrays of these names, in messages.
    hook(module): the name of a function of the user that runs with each call of a module, or "".
    around(model, rnn): the settings, as in Weights.config, that a model gives to an RNN in it.
    """

    owns: Callable[[Any], bool]
    inside: Callable[[Any], Iterable[tuple[str, Any]]]
    describe: Callable[[Any], RNNDescription]
    arrays: Callable[[Any, RNNDescription], list[tuple[str, Any]]]
    runs: Callable[[Any], Iterable[Any]]
    calls: tuple[str, ...]
    modules: tuple[str, ...]
    expression: Callable[[Any, Iterable[str]], str]
    hook: Callable[[Any], str] = lambda module: ""
    around: Callable[[Any, Any], dict[str, Any]] = lambda model, rnn: {}


KERAS = Framework(
    owns=keras_tree.is_keras_layer,
    inside=keras_tree.keras_rnns,
    describe=keras_tree.describe_keras_layer,
    arrays=keras_tree.keras_arrays,
    runs=keras_tree.layer_with_cells,
    calls=("call", "inner_loop", "__call__"),
    modules=("keras.", "tf_keras.", "tensorflow."),
    expression=lambda layer, names: "layer.get_weights()",
    around=keras_masks.settings_in_model,
)
TORCH = Framework(
    owns=torch_modules.is_torch_module,
    inside=torch_modules.torch_rnns,
    describe=torch_modules.torch_spec,
    arrays=torch_modules.torch_arrays,
    runs=torch_modules.modules_with_calls,
    calls=("forward", "__call__"),
    modules=(torch_modules.RNNS,),
    expression=torch_modules.torch_expression,
    hook=torch_modules.forward_hook,
)
JAX = Framework(
    owns=jax_modules.is_jax_module,
    inside=jax_modules.jax_rnns,
    describe=jax_modules.jax_spec,
    arrays=jax_modules.jax_arrays,
    runs=jax_modules.module_with_cells,
    calls=("__call__",),
    modules=("flax.nnx.", "equinox."),
    expression=lambda module, names: jax_modules.jax_expression(module),
)
MLX = Framework(
    owns=mlx_modules.is_mlx_module,
    inside=mlx_modules.mlx_rnns,
    describe=mlx_modules.mlx_spec,
    arrays=mlx_modules.mlx_arrays,
    runs=lambda layer: [layer],
    calls=("__call__",),
    modules=("mlx.nn.",),
    expression=lambda layer, names: f"{{name: layer[name] for name in {list(names)}}}",
)
PADDLE = Framework(
    owns=paddle_modules.is_paddle_layer,
    inside=paddle_modules.paddle_rnns,
    describe=paddle_modules.paddle_spec,
    arrays=paddle_modules.paddle_arrays,
    runs=paddle_modules.layer_and_cells,
    calls=("forward", "__call__"),
    modules=("paddle.nn.",),
    expression=paddle_modules.paddle_expression,
    hook=paddle_modules.paddle_hook,
)
# Keras first: with the torch backend, a Keras layer is a torch module too.
_FRAMEWORKS = (KERAS, TORCH, JAX, MLX, PADDLE)
# Types of most sources (OrderedDict: torch's state_dict()), which need no search.
_NO_MODULES = (dict, OrderedDict, list, tuple, np.ndarray)


def framework_of(value: Any) -> Framework | None:
    """Return the framework of a module or layer; None for a source of another kind."""
    if type(value) in _NO_MODULES or isinstance(value, Weights):
        return None
    return next((framework for framework in _FRAMEWORKS if framework.owns(value)), None)


def rnn_of_model(module: Any, framework: Framework, prefix: str = "") -> Any:
    """Return the only RNN that a module contains under the prefix; a module without RNNs as is.
    Raises LayoutError if the module contains several RNNs, or none under the prefix."""
    distinct: dict[int, tuple[str, Any]] = {}
    for name, rnn in framework.inside(module):
        distinct.setdefault(id(rnn), (name, rnn))  # a shared RNN has its first name
    rnns = [(name, type(rnn).__name__, rnn) for name, rnn in distinct.values()]
    if not prefix and len(rnns) < 2:
        return rnns[0][2] if rnns else module
    if [name for name, *_ in rnns] in ([], [""]):
        raise LayoutError(
            f"prefix {prefix!r} chooses an RNN of a model by its name, found a"
            f" {type(module).__name__}: omit ",
            Ask("prefix", None),
        )
    return choose_under_prefix(rnns, prefix, type(module).__name__)


def overridden(module: Any, framework: Framework) -> str:
    """Return "Subclass overrides method() of Base" if a subclass overrides the computation, "Class
    has the forward hook name" if a hook may change the computation, else "". Subclasses that the
    framework makes (parametrizations in torch) override nothing."""
    for layer in framework.runs(module):
        bases = (c for c in type(layer).__mro__ if str(c.__module__).startswith(framework.modules))
        base = next(bases, object)
        for name in framework.calls:
            changed = getattr(type(layer), name, None) is not getattr(base, name, None)
            if changed or name in vars(layer):
                return f"{type(layer).__name__} overrides {name}() of {base.__name__}"
    hook = framework.hook(module)
    return f"{type(module).__name__} has the forward hook {hook}" if hook else ""
