"""Cells and layers of Flax's nnx and of Equinox, recognized by class: nothing is imported.

Modules of flax.linen and Haiku contain no arrays: the parameters are nested dicts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from rnnlayout._model.describe import describe
from rnnlayout._model.layout import Layout, known_layouts
from rnnlayout._model.spec import Spec
from rnnlayout._native import LayoutError, LossyError

from . import mismatch
from .self_description import RNNDescription, class_among, class_names
from .tensor_paths import FLAX, match_layout_names

_CELLS = {"OptimizedLSTMCell": "lstm", "LSTMCell": "lstm", "GRUCell": "gru", "SimpleCell": "rnn"}
_SIGMOIDS = ("sigmoid", "hard_sigmoid")  # jax.nn.hard_sigmoid is x / 6 + 0.5
_NNX, _LINEN, _EQUINOX = "flax.nnx.", "flax.linen.", "equinox."
# Paths of the parameters of the cells in a layer of nnx.
_INSIDE = {"RNN": ("cell/",), "Bidirectional": ("forward_rnn/cell/", "backward_rnn/cell/")}
# Attributes of a layer of nnx with the cells and layers that the layer runs.
_RUNS = ("cell", "forward_rnn", "backward_rnn")
_DEPTH = 8  # of modules in modules
MOST_DICTS = 12  # in each other


def is_jax_module(value: Any) -> bool:
    """Is `value` a module of flax.nnx, flax.linen or Equinox?"""
    return "Module" in class_names(value, _NNX, _LINEN, _EQUINOX)


def jax_cell_class(value: Any) -> str | None:
    """Return the class of a cell or layer that has arrays, None for other sources."""
    kind = class_among(value, ("LSTMCell", "GRUCell"), _EQUINOX)
    return kind or class_among(value, (*_CELLS, "RNN", "Bidirectional"), _NNX)


def jax_rnns(value: Any, path: str = "", depth: int = _DEPTH) -> Iterator[tuple[str, Any]]:
    """Yield (path, cell or layer) for all RNNs in a module. A path is layers/0/cell."""
    children: Iterable[tuple[Any, Any]] = ()
    if jax_cell_class(value):
        yield path, value
    elif isinstance(value, Mapping):
        children = value.items()
    elif isinstance(value, (list, tuple)) or "List" in class_names(value, _NNX):
        children = enumerate(value)
    elif is_jax_module(value):
        children = vars(value).items()
    for name, child in children if depth else ():
        yield from jax_rnns(child, f"{path}/{name}" if path else str(name), depth - 1)


def jax_spec(module: Any) -> RNNDescription:
    kind = jax_cell_class(module)
    if kind is None:
        name, need = type(module).__name__, "an LSTMCell or GRUCell of Equinox"
        if class_names(module, _LINEN):
            raise LayoutError(
                f"{name} is a module of flax.linen, which has no weights of its own: pass its part"
                " of the dict that init() returned, variables['params']"
            )
        if class_names(module, _NNX):
            need = f"one of Flax's {', '.join(_CELLS)}, RNN or Bidirectional"
        raise mismatch.not_recurrent(module, need)
    config: dict[str, Any] = {}
    fields, batch_first = {"num_layers": 1, "bidirectional": kind == "Bidirectional"}, None
    cells = [module]
    if kind == "Bidirectional":
        if _function_name(module.merge_fn, "flax.nnx") != "_concatenate":
            raise LayoutError(
                "this Bidirectional has a merge_fn of your own: pass nnx.state(layer, nnx.Param),"
                " its weights alone, and merge the two directions of y yourself"
            )
        cells = [module.forward_rnn.cell, module.backward_rnn.cell]
    elif kind == "RNN":
        cells = [module.cell]
        if module.reverse:
            config = {"direction": "reverse"} if module.keep_order else {"go_backwards": True}
    if kind in ("RNN", "Bidirectional"):
        batch_first = not module.time_major
    cell_fields = [_describe_jax_cell(cell) for cell in cells]
    if cell_fields[0] != cell_fields[-1]:
        raise LayoutError(
            f"the two directions differ ({cell_fields[0]}, {cell_fields[1]}): they are two RNNs"
        )
    fields |= cell_fields[0]
    return RNNDescription(_layout_of(module, kind, cell_fields[0]), fields, config, batch_first)


def module_with_cells(module: Any) -> Iterator[Any]:
    """Yield a cell or layer, and the layers and cells that the layer runs."""
    yield module
    for part in (getattr(module, name, None) for name in _RUNS):
        if is_jax_module(part):
            yield from module_with_cells(part)


def jax_arrays(module: Any, description: RNNDescription) -> list[tuple[str, Any]]:
    """Return the arrays, as described in Framework. Arrays of Equinox may be missing."""
    paths = dict(walk_parameters(nested_arrays_of(module)))
    _, needed = description.spec_and_names()
    if class_names(module, _EQUINOX):
        if missing := [name for name in needed if name not in paths]:
            raise LayoutError(
                f"{type(module).__name__} with use_bias={module.use_bias} has no array"
                f" {mismatch.list_names(missing)}: pass a cell that has all its arrays"
                " (eqx.combine() joins the parts of one), or one that is made with use_bias=False"
            )
        return [(name, paths[name]) for name in needed]
    names = match_layout_names(Layout(description.layout), list(paths))
    arrays = {names[path]: array for path, array in paths.items()}
    return [(name, arrays[name]) for name in needed]


def jax_expression(module: Any) -> str:
    """Return code for the arrays of a cell or layer, in messages."""
    if class_names(module, _EQUINOX):
        return f"{{name: getattr(module, name) for name in {[*nested_arrays_of(module)]}}}"
    return "nnx.state(module, nnx.Param)"


def nested_arrays_of(module: Any) -> Any:
    """Return the arrays of a cell or layer in nested dicts, with the names of the framework."""
    if class_names(module, _EQUINOX):
        return {
            k: v for k, v in vars(module).items() if hasattr(v, "shape") and hasattr(v, "dtype")
        }
    return _state(_cell_of_rnn(module))


def _state(module: Any) -> Any:
    nnx = sys.modules["flax.nnx"]
    return nnx.to_pure_dict(nnx.state(module, nnx.Param))


def _cell_of_rnn(module: Any) -> Any:
    """Return the cell of an RNN of nnx; another module as is."""
    return module.cell if jax_cell_class(module) == "RNN" else module


def set_arrays(module: Any, new_array: Callable[[str, Any], Any]) -> Any:
    """Set new arrays of a cell or layer, and return the module: a new module for Equinox.
    new_array: a function of (name in the layout, old array) that returns the new array."""
    description = jax_spec(module)
    if class_names(module, _EQUINOX):
        new_arrays = {name: new_array(name, old) for name, old in jax_arrays(module, description)}
        return sys.modules["equinox"].tree_at(
            lambda cell: [getattr(cell, name) for name in new_arrays],
            module,
            list(new_arrays.values()),
        )
    arrays = nested_arrays_of(module)
    names = match_layout_names(
        Layout(description.layout), [path for path, _ in walk_parameters(arrays)]
    )
    state = map_leaves(arrays, lambda path, old: new_array(names[path], old))
    sys.modules["flax.nnx"].update(_cell_of_rnn(module), state)
    return module


def is_branch(value: Any) -> bool:
    """Is `value` a dict, or a cell or layer, which counts as the dict of its arrays?"""
    if hasattr(type(value), "shape"):  # an array, like most values
        return False
    return isinstance(value, Mapping) or jax_cell_class(value) is not None


def is_boxed(value: Any) -> bool:
    """Is `value` a parameter of nnx that Orbax restored without a target, {"value": array}?"""
    is_alone = isinstance(value, Mapping) and value.keys() == {"value"}
    return is_alone and not is_branch(value["value"])


def walk_parameters(
    tree: Mapping[Any, Any], path: str = "", depth: int = MOST_DICTS, whole_cells: bool = False
) -> Iterator[tuple[str, Any]]:
    """Yield (path, leaf) for all leaves of nested dicts. whole_cells: a cell is a leaf."""
    for key, branch in tree.items():
        if is_boxed(branch):
            yield f"{path}{key}", branch["value"]
        elif depth and is_branch(branch) and not (whole_cells and jax_cell_class(branch)):
            subtree = branch if isinstance(branch, Mapping) else nested_arrays_of(branch)
            yield from walk_parameters(subtree, f"{path}{key}/", depth - 1, whole_cells)
        else:
            kinds = class_names(branch, _NNX)
            if "Variable" in kinds and "Param" not in kinds:
                continue  # not a weight: the state of a random number generator
            yield f"{path}{key}", branch


def map_leaves(tree: Mapping[str, Any], new_leaf: Callable[[str, Any], Any], path: str = "") -> Any:
    """Return nested dicts with new leaves. new_leaf: a function of (path, old leaf)."""
    if is_boxed(tree):
        return {"value": new_leaf(path[:-1], tree["value"])}
    new_tree = {
        key: map_leaves(branch, new_leaf, f"{path}{key}/")
        if isinstance(branch, Mapping)
        else new_leaf(f"{path}{key}", branch)
        for key, branch in tree.items()
    }
    return new_tree if type(tree) is dict else type(tree)(new_tree)  # type: ignore[call-arg]


def _function_name(function: Any, module: str) -> str:
    """Return the name of a function of this Python module; "" for another function."""
    in_module = str(getattr(function, "__module__", "")).startswith(module)
    return str(getattr(function, "__name__", "")) if in_module else ""


def _describe_jax_cell(cell: Any) -> dict[str, Any]:
    """Return the fields of a spec that a cell records."""
    kind = jax_cell_class(cell) or ""
    if class_names(cell, _EQUINOX):
        return {
            "cell": _CELLS[kind],
            "input_size": cell.input_size,
            "hidden_size": cell.hidden_size,
            "bias": cell.use_bias,
        }
    if kind not in _CELLS:
        raise LayoutError(f"{type(cell).__name__} is not one of Flax's cells {', '.join(_CELLS)}")
    fields = {
        "cell": _CELLS[kind],
        "input_size": cell.in_features,
        "hidden_size": cell.hidden_features,
    }
    curve = _function_name(cell.activation_fn, "jax")
    if kind == "SimpleCell":
        if cell.residual:
            raise LossyError("a SimpleCell with residual=True: no layout can represent it")
        fields["cell"] = f"rnn_{curve}"
    else:
        fields["recurrent_activation"] = gate = _function_name(cell.gate_fn, "jax")
        if gate not in _SIGMOIDS:
            raise _unknown("gate_fn", cell.gate_fn, "sigmoid or hard_sigmoid")
    allowed = ("tanh", "relu") if kind == "SimpleCell" else ("tanh",)
    if curve not in allowed:
        raise _unknown("activation_fn", cell.activation_fn, " or ".join(allowed))
    return fields


def _unknown(name: str, function: Any, need: str) -> LossyError:
    function_name = getattr(function, "__name__", type(function).__name__)
    return LossyError(
        f"{name} is {function_name}, no layout can represent it: need JAX's {need}; if it computes"
        " the same, pass nnx.state(cell, nnx.Param), its weights alone"
    )


def _layout_of(module: Any, kind: str, fields: dict[str, Any]) -> str:
    """Return the layout with the names of a module's arrays. fields: of a cell. Raises LayoutError
    if no layout has the names, or if a subclass has further arrays."""
    if class_names(module, _EQUINOX):
        util = sys.modules["jax"].tree_util
        leaves, _ = util.tree_flatten_with_path(module)
        paths = [util.keystr(path).lstrip(".") for path, leaf in leaves if hasattr(leaf, "shape")]
        layout, expected = "equinox", {*describe(Spec(**fields | {"bias": True}), "equinox")}
    else:
        paths = [path for path, _ in walk_parameters(_state(module))]
        spec = Spec(fields["cell"], fields["input_size"], fields["hidden_size"])
        layout, expected = "", set()
        for candidate in filter(lambda name: name.startswith(FLAX), known_layouts()):
            with suppress(ValueError):  # the layout lacks this cell
                expected = {
                    path + name
                    for path in _INSIDE.get(kind, ("",))
                    for name in describe(spec, candidate)
                }
                if expected <= set(paths):
                    layout = candidate
                    break
    if not layout:
        raise LayoutError(f"no layout has the tensors of this {kind}: {', '.join(paths)}")
    if extra := [path for path in paths if path not in expected]:
        raise mismatch.more_parameters(module, kind, extra)
    return layout
