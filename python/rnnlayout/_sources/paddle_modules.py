"""Recurrent layers and cells of Paddle, recognized by class, and the two names of their tensors.

A layer has each tensor in a cell, and a second time as an attribute with a name of torch: in a
state_dict, 0.cell.weight_ih and weight_ih_l0, 0.cell_bw.weight_ih and weight_ih_l0_reverse. Paddle
runs the cells, or a kernel with the tensors of the attributes (`could_use_cudnn`). The attributes
are named wrongly if the layer has a projection or lacks a bias (paddle/nn/layer/rnn.py, 3.3.1), so
the cells of a layer are read. Nothing is imported here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from rnnlayout._model.dtypes import Bits, dtype_name, take_bits
from rnnlayout._model.errors import Error
from rnnlayout._native import LayoutError

from . import mismatch
from .self_description import RNNDescription, class_among, class_names
from .tensor_paths import is_under

RNNS = "paddle.nn.layer.rnn"
_CELLS = {"LSTMCell": "lstm", "GRUCell": "gru", "SimpleRNNCell": "rnn"}
_LAYERS = ("LSTM", "GRU", "SimpleRNN")
_WRAPPERS = {"RNN": ("cell",), "BiRNN": ("cell_fw", "cell_bw")}  # of cells: one layer
_KINDS = (*_LAYERS, *_WRAPPERS, *_CELLS)
_TENSORS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")  # of a cell, in torch's order
_OF_CELL = re.compile(r"((?:.+\.)?)(\d+)\.cell(|_fw|_bw)\.((?:weight|bias)_(?:ih|hh))")


def is_paddle_layer(value: Any) -> bool:
    return "Layer" in class_names(value, "paddle.nn.layer.layers")


def paddle_rnns(layer: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (name in the state_dict(), RNN) for each RNN in a model."""
    if class_among(layer, _KINDS, RNNS):
        yield path, layer
        return
    for name, child in layer.named_children():
        yield from paddle_rnns(child, f"{path}.{name}" if path else name)


def paddle_spec(layer: Any) -> RNNDescription:
    kind = class_among(layer, _KINDS, RNNS)
    if kind is None:
        raise mismatch.not_recurrent(layer, f"one of Paddle's {', '.join(_KINDS)}")
    first, *others = cells = _cells_of(layer)
    fields = _cell_fields(first)
    for cell in others:
        if _cell_fields(cell) != fields:
            raise LayoutError(
                f"the cells differ ({fields}, {_cell_fields(cell)}): they are several RNNs"
            )
    bidirectional = kind == "BiRNN" or getattr(layer, "num_directions", 1) == 2
    fields |= {
        "input_size": first.input_size,
        "num_layers": len(cells) // (1 + bidirectional),
        "bidirectional": bidirectional,
        "bias": True,
    }
    if kind in _CELLS:
        return RNNDescription("torch-cell", fields, {}, None)
    config = {"direction": "reverse"} if getattr(layer, "is_reverse", False) else {}
    return RNNDescription("torch", fields, config, not layer.time_major)


def paddle_arrays(layer: Any, description: RNNDescription) -> list[tuple[str, Any]]:
    return [
        (name, Bits(tensor.numpy().T, dtype_name(tensor.dtype)) if is_projection(name) else tensor)
        for name, tensor in paddle_tensors(layer, description)
    ]


def is_projection(name: str) -> bool:
    """Is the tensor of this name in layout torch transposed in Paddle, (H, P)?"""
    return name.startswith("weight_hr")


def paddle_tensors(layer: Any, description: RNNDescription) -> list[tuple[str, Any]]:
    """Return (name in the layout, tensor of Paddle) pairs; raise LayoutError for a layer with
    further tensors, or one that Paddle cannot run."""
    _, names = description.spec_and_names()
    leaves = (*_TENSORS, "weight_ho") if description.fields["proj_size"] else _TENSORS
    tensors = [getattr(cell, leaf) for cell in _cells_of(layer) for leaf in leaves]
    of_cells = {id(tensor) for tensor in tensors}
    if extra := [name for name, tensor in layer.named_parameters() if id(tensor) not in of_cells]:
        raise mismatch.more_parameters(layer, class_among(layer, _KINDS, RNNS) or "", extra)
    attributes = {id(tensor) for tensor in layer.parameters(include_sublayers=False)}
    if getattr(layer, "could_use_cudnn", False) and attributes != of_cells:
        raise LayoutError(
            f"attributes of {type(layer).__name__} lack tensors of its cells, as after"
            " bias_ih_attr=False or bias_hh_attr=False, and Paddle cannot run such a layer: pass a"
            " dict of its tensors by the names of torch"
        )
    return list(zip(names, tensors, strict=True))


def layer_and_cells(layer: Any) -> list[Any]:
    """Return the layers and cells that compute in a call of a layer."""
    return [layer, *(part for part in layer.sublayers() if class_names(part, RNNS))]


def paddle_expression(layer: Any, names: Iterable[str]) -> str:
    """Return code for the tensors of an RNN without projection, in messages."""
    return f"dict(zip({list(names)}, layer.parameters()))"


def paddle_hook(layer: Any) -> str:
    """Return the name of a function of the user that runs with each call, "" without."""
    for part in layer_and_cells(layer):
        for hook in chain(part._forward_pre_hooks.values(), part._forward_post_hooks.values()):
            return str(getattr(hook, "__qualname__", type(hook).__qualname__))
    return ""


def _cells_of(layer: Any) -> list[Any]:
    """Return the cells of a layer: by layer, then by direction."""
    kind = class_among(layer, _KINDS, RNNS)
    if kind in _LAYERS:
        return [cell for part in layer for cell in _cells_of(part)]
    return [getattr(layer, name) for name in _WRAPPERS[kind]] if kind in _WRAPPERS else [layer]


def _cell_fields(cell: Any) -> dict[str, Any]:
    """Return the fields of a spec that all cells of a layer have in common."""
    kind = class_among(cell, _CELLS, RNNS)
    if kind is None:
        raise mismatch.not_recurrent(cell, f"one of Paddle's cells {', '.join(_CELLS)}")
    name = f"rnn_{cell.activation}" if kind == "SimpleRNNCell" else _CELLS[kind]
    return {
        "cell": name,
        "hidden_size": cell.hidden_size,
        "proj_size": getattr(cell, "proj_size", None) or 0,
    }


# ----------------------------------------------------------------------------------- second names


def second_names(names: Collection[str], prefix: str = "") -> dict[str, str]:
    """Return name of a cell's tensor -> name of the RNN's tensor, if both are under the prefix."""
    matches = (_OF_CELL.fullmatch(name) for name in names if ".cell" in name)
    pairs = {
        match[0]: f"{match[1]}{match[4]}_l{match[2]}{'_reverse' * (match[3] == '_bw')}"
        for match in matches
        if match
    }
    present = set(names) if pairs else ()
    return {
        name: first
        for name, first in pairs.items()
        if first in present and is_under(first, prefix) and is_under(name, prefix)
    }


def without_second_names(source: Mapping[Any, Any], prefix: str) -> Mapping[Any, Any]:
    """Return the tensors without the second names of equal tensors."""
    names = [name for name in source if isinstance(name, str)]
    doubles = {
        name
        for name, first in second_names(names, prefix).items()
        if _are_equal(source[first], source[name])
    }
    return {name: source[name] for name in source if name not in doubles} if doubles else source


def _are_equal(a: Any, b: Any) -> bool:
    if a is b:
        return True
    try:
        (a_array, a_dtype), (b_array, b_dtype) = take_bits(a, ""), take_bits(b, "")
    except Error:  # not tensors
        return False
    kinds = (a_dtype, a_array.shape), (b_dtype, b_array.shape)
    return kinds[0] == kinds[1] and a_array.tobytes() == b_array.tobytes()
