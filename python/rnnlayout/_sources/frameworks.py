"""The frameworks whose modules and layers are read: one row each.

They are recognized by their classes: nothing is imported here.
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

from . import jax_modules, keras_tree, mlx_modules, torch_modules
from .mismatch import choose_under_prefix
from .self_description import RNNDescription


@dataclass(frozen=True)
class Framework:
    """How the modules of a framework are read.

    owns(value): whether a value is one of them.
    inside(module): return the RNNs in a module, each with its name there. An RNN contains itself.
    describe(module): return how a module describes its RNN; raise LayoutError if it is not an RNN
        itself, nor one with dropout of its weights, LossyError if no layout can represent it.
    arrays(module, own): return its arrays in the layout's order, each with a name for messages;
        raise LayoutError if a subclass has more.
    runs(module): return the layers and cells that compute something when it is called.
    calls: the methods that compute it. modules: how the names of the framework's modules begin.
    expression(module, names): return code for the arrays of these names, in messages.
    """

    owns: Callable[[Any], bool]
    inside: Callable[[Any], Iterable[tuple[str, Any]]]
    describe: Callable[[Any], RNNDescription]
    arrays: Callable[[Any, RNNDescription], list[tuple[str, Any]]]
    runs: Callable[[Any], Iterable[Any]]
    calls: tuple[str, ...]
    modules: tuple[str, ...]
    expression: Callable[[Any, Iterable[str]], str]


KERAS = Framework(
    keras_tree.is_keras_layer, keras_tree.keras_rnns,
    keras_tree.describe_keras_layer, keras_tree.keras_arrays, keras_tree.layer_with_cells,
    ("call", "inner_loop", "__call__"), ("keras.", "tf_keras.", "tensorflow."),
    lambda layer, names: "layer.get_weights()",
)  # fmt: skip
TORCH = Framework(
    torch_modules.is_torch_module, torch_modules.torch_rnns,
    torch_modules.torch_spec, torch_modules.torch_arrays, torch_modules.modules_with_calls,
    ("forward", "__call__"), (torch_modules.RNNS,),
    torch_modules.torch_expression,
)  # fmt: skip
JAX = Framework(
    jax_modules.is_jax_module, jax_modules.jax_rnns,
    jax_modules.jax_spec, jax_modules.jax_arrays, jax_modules.module_with_cells,
    ("__call__",), ("flax.nnx.", "equinox."),
    lambda module, names: jax_modules.jax_expression(module),
)  # fmt: skip
MLX = Framework(
    mlx_modules.is_mlx_module, mlx_modules.mlx_rnns,
    mlx_modules.mlx_spec, mlx_modules.mlx_arrays, lambda layer: [layer],
    ("__call__",), ("mlx.nn.",),
    lambda layer, names: f"{{name: layer[name] for name in {list(names)}}}",
)  # fmt: skip
# With torch as backend each Keras layer is a torch module too: it is read as Keras's.
_FRAMEWORKS = (KERAS, TORCH, JAX, MLX)
# Most sources, OrderedDict as torch's state_dict(): a short way to the same answer.
_NO_MODULES = (dict, OrderedDict, list, tuple, np.ndarray)


def framework_of(value: Any) -> Framework | None:
    """Return the framework of a module or layer, None of anything else."""
    if type(value) in _NO_MODULES or isinstance(value, Weights):
        return None
    return next((one for one in _FRAMEWORKS if one.owns(value)), None)


def rnn_of_model(module: Any, framework: Framework, prefix: str = "") -> Any:
    """Return the one RNN that a module contains under the prefix, a module without RNNs as it is.
    Raises LayoutError if it contains several, or none under the prefix."""
    found: dict[int, tuple[str, Any]] = {}
    for name, rnn in framework.inside(module):
        found.setdefault(id(rnn), (name, rnn))  # one that is shared has its first name
    rnns = [(name, type(rnn).__name__, rnn) for name, rnn in found.values()]
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
    """Return which method of a layer or cell a subclass replaces, "" if none. A framework's own
    subclasses, such as those of parametrizations in torch, replace none."""
    for layer in framework.runs(module):
        own = (c for c in type(layer).__mro__ if str(c.__module__).startswith(framework.modules))
        base = next(own, object)
        for name in framework.calls:
            changed = getattr(type(layer), name, None) is not getattr(base, name, None)
            if changed or name in vars(layer):
                return f"{type(layer).__name__} overrides {name}() of {base.__name__}"
    return ""
