"""Cells and layers of Flax's nnx and of Equinox, recognized by their classes: nothing is imported.

Modules of flax.linen and Haiku have no arrays of their own: their parameters are nested dicts.
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
# Where the parameters of the cells are in a layer of nnx.
_INSIDE = {"RNN": ("cell/",), "Bidirectional": ("forward_rnn/cell/", "backward_rnn/cell/")}
# Where the cells and layers are that a layer of nnx runs.
_RUNS = ("cell", "forward_rnn", "backward_rnn")
_DEPTH = 8  # of modules in modules
MOST_DICTS = 12  # in each other


def is_jax_module(value: Any) -> bool:
    """Is it a module of flax.nnx, flax.linen or Equinox?"""
    return "Module" in class_names(value, _NNX, _LINEN, _EQUINOX)


def jax_cell_class(value: Any) -> str | None:
    """Return the class of a cell or layer that has arrays, None of anything else."""
    own = class_among(value, ("LSTMCell", "GRUCell"), _EQUINOX)
    return own or class_among(value, (*_CELLS, "RNN", "Bidirectional"), _NNX)


def jax_rnns(value: Any, path: str = "", depth: int = _DEPTH) -> Iterator[tuple[str, Any]]:
    """Yield the cells and layers in a module with their paths: layers/0/cell."""
    children: Iterable[tuple[Any, Any]] = ()
    if jax_cell_class(value):
        yield path, value
    elif isinstance(value, Mapping):
        children = value.items()
    elif isinstance(value, (list, tuple)) or "List" in class_names(value, _NNX):
        children = enumerate(value)
    elif is_jax_module(value):
        children = vars(value).items()
    for name, inside in children if depth else ():
        yield from jax_rnns(inside, f"{path}/{name}" if path else str(name), depth - 1)


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
    hints, batch_first = {"num_layers": 1, "bidirectional": kind == "Bidirectional"}, None
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
    described = [_describe_jax_cell(cell) for cell in cells]
    if described[0] != described[-1]:
        raise LayoutError(
            f"the two directions differ ({described[0]}, {described[1]}): they are two RNNs"
        )
    hints |= described[0]
    return RNNDescription(_layout_of(module, kind, described[0]), hints, config, batch_first)


def module_with_cells(module: Any) -> Iterator[Any]:
    """Yield a cell or layer, and the layers and cells that it runs."""
    yield module
    for one in (getattr(module, name, None) for name in _RUNS):
        if is_jax_module(one):
            yield from module_with_cells(one)


def jax_arrays(module: Any, own: RNNDescription) -> list[tuple[str, Any]]:
    """Return the arrays as a Framework does. Those of Equinox may be None."""
    paths = dict(walk_parameters(nested_arrays_of(module)))
    _, needed = own.spec_and_names()
    if class_names(module, _EQUINOX):
        if missing := [name for name in needed if name not in paths]:
            raise LayoutError(
                f"{type(module).__name__} with use_bias={module.use_bias} has no array"
                f" {mismatch.list_names(missing)}: pass a cell that has all its arrays"
                " (eqx.combine() joins the parts of one), or one that is made with use_bias=False"
            )
        return [(name, paths[name]) for name in needed]
    names = match_layout_names(Layout(own.layout), list(paths))
    arrays = {names[path]: array for path, array in paths.items()}
    return [(name, arrays[name]) for name in needed]


def jax_expression(module: Any) -> str:
    """Return code for the arrays of a cell or layer, in messages."""
    if class_names(module, _EQUINOX):
        return f"{{name: getattr(module, name) for name in {[*nested_arrays_of(module)]}}}"
    return "nnx.state(module, nnx.Param)"


def nested_arrays_of(module: Any) -> Any:
    """Return the arrays of a cell or layer as its framework names them, nested."""
    if class_names(module, _EQUINOX):
        return {
            k: v for k, v in vars(module).items() if hasattr(v, "shape") and hasattr(v, "dtype")
        }
    return _state(_cell_of_rnn(module))


def _state(module: Any) -> Any:
    nnx = sys.modules["flax.nnx"]
    return nnx.to_pure_dict(nnx.state(module, nnx.Param))


def _cell_of_rnn(module: Any) -> Any:
    """Return the cell of an RNN of nnx, anything else as it is."""
    return module.cell if jax_cell_class(module) == "RNN" else module


def set_arrays(module: Any, new: Callable[[str, Any], Any]) -> Any:
    """Give a cell or layer new arrays; return it, of Equinox a new one. new: a function that
    returns the new array for a name of the layout and the old array."""
    own = jax_spec(module)
    if class_names(module, _EQUINOX):
        changed = {name: new(name, old) for name, old in jax_arrays(module, own)}
        return sys.modules["equinox"].tree_at(
            lambda cell: [getattr(cell, name) for name in changed], module, list(changed.values())
        )
    arrays = nested_arrays_of(module)
    names = match_layout_names(Layout(own.layout), [path for path, _ in walk_parameters(arrays)])
    state = map_leaves(arrays, lambda path, old: new(names[path], old))
    sys.modules["flax.nnx"].update(_cell_of_rnn(module), state)
    return module


def is_branch(value: Any) -> bool:
    """Is it a dict, or a cell or layer, which is the dict of its arrays?"""
    if hasattr(type(value), "shape"):  # an array: most dicts have nothing else
        return False
    return isinstance(value, Mapping) or jax_cell_class(value) is not None


def walk_parameters(
    tree: Mapping[Any, Any], above: str = "", depth: int = MOST_DICTS, whole_cells: bool = False
) -> Iterator[tuple[str, Any]]:
    """Yield the paths and values of nested dicts. whole_cells: a cell is one value."""
    for key, value in tree.items():
        if depth and is_branch(value) and not (whole_cells and jax_cell_class(value)):
            inside = value if isinstance(value, Mapping) else nested_arrays_of(value)
            yield from walk_parameters(inside, f"{above}{key}/", depth - 1, whole_cells)
        else:
            kinds = class_names(value, _NNX)
            if "Variable" in kinds and "Param" not in kinds:
                continue  # no weight: the state of a random number generator
            yield f"{above}{key}", value


def map_leaves(tree: Mapping[str, Any], new: Callable[[str, Any], Any], above: str = "") -> Any:
    """Return nested dicts with new leaves, made from the old ones and their paths."""
    made = {
        key: map_leaves(value, new, f"{above}{key}/")
        if isinstance(value, Mapping)
        else new(f"{above}{key}", value)
        for key, value in tree.items()
    }
    return made if type(tree) is dict else type(tree)(made)  # type: ignore[call-arg]


def _function_name(function: Any, module: str) -> str:
    """Return the name of a function of this module, "" of another function."""
    own = str(getattr(function, "__module__", "")).startswith(module)
    return str(getattr(function, "__name__", "")) if own else ""


def _describe_jax_cell(cell: Any) -> dict[str, Any]:
    """Return the fields of the spec that a cell records."""
    kind = jax_cell_class(cell) or ""
    if class_names(cell, _EQUINOX):
        return {"cell": _CELLS[kind], "input_size": cell.input_size,
                "hidden_size": cell.hidden_size, "bias": cell.use_bias}  # fmt: skip
    if kind not in _CELLS:
        raise LayoutError(f"{type(cell).__name__} is not one of Flax's cells {', '.join(_CELLS)}")
    hints = {"cell": _CELLS[kind], "input_size": cell.in_features,
             "hidden_size": cell.hidden_features}  # fmt: skip
    curve = _function_name(cell.activation_fn, "jax")
    if kind == "SimpleCell":
        if cell.residual:
            raise LossyError("a SimpleCell with residual=True: no layout can represent it")
        hints["cell"] = f"rnn_{curve}"
    else:
        hints["recurrent_activation"] = gate = _function_name(cell.gate_fn, "jax")
        if gate not in _SIGMOIDS:
            raise _unknown("gate_fn", cell.gate_fn, "sigmoid or hard_sigmoid")
    allowed = ("tanh", "relu") if kind == "SimpleCell" else ("tanh",)
    if curve not in allowed:
        raise _unknown("activation_fn", cell.activation_fn, " or ".join(allowed))
    return hints


def _unknown(name: str, function: Any, need: str) -> LossyError:
    called = getattr(function, "__name__", type(function).__name__)
    return LossyError(
        f"{name} is {called}, no layout can represent it: need JAX's {need}; if it computes the"
        " same, pass nnx.state(cell, nnx.Param), its weights alone"
    )


def _layout_of(module: Any, kind: str, hints: dict[str, Any]) -> str:
    """Return the layout that has the names of a module's arrays. hints: of a cell. Raises
    LayoutError if none has, or if a subclass has more."""
    if class_names(module, _EQUINOX):
        util = sys.modules["jax"].tree_util
        leaves, _ = util.tree_flatten_with_path(module)
        paths = [util.keystr(path).lstrip(".") for path, leaf in leaves if hasattr(leaf, "shape")]
        layout, known = "equinox", {*describe(Spec(**hints | {"bias": True}), "equinox")}
    else:
        paths = [path for path, _ in walk_parameters(_state(module))]
        spec = Spec(hints["cell"], hints["input_size"], hints["hidden_size"])
        layout, known = "", set()
        for one in filter(lambda name: name.startswith(FLAX), known_layouts()):
            with suppress(ValueError):  # it lacks this cell
                known = {at + n for at in _INSIDE.get(kind, ("",)) for n in describe(spec, one)}
                if known <= set(paths):
                    layout = one
                    break
    if not layout:
        raise LayoutError(f"no layout has the tensors of this {kind}: {', '.join(paths)}")
    if more := [path for path in paths if path not in known]:
        raise mismatch.more_parameters(module, kind, more)
    return layout
