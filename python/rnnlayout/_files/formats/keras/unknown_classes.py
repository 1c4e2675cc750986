"""Layers and cells of a class that is not Keras's own but looks recurrent: a subclass of LSTM.

What such a class computes is unknown. Its config has the arguments of the class that it extends, so
its layers are listed; they are read as layers of that class if the caller says so with as_class=.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rnnlayout._model.asks import Ask, Message
from rnnlayout._model.checked_rnn import checked_rnn_of
from rnnlayout._model.undecided import UndecidedError
from rnnlayout._native import SpecError
from rnnlayout._sources.keras_config import CELLS, short_repr
from rnnlayout._sources.keras_tree import Node, RecurrentLayer, class_of, kind_of
from rnnlayout._weights.weights import Weights

_FILES = "class_name in the file"  # keys of a node: its class before it was read as another one,
_UNKNOWN = "class_name to accept"  # and the same until the caller accepts it
_AROUND = ("config", "layers", "layer", "backward_layer")  # where a node has other layers,
_CELLS = ("cell", "cells")  # and where it has cells


def read_unknown_classes(model: Node, accepted: Mapping[str, str]) -> set[str]:
    """Give the layers of unknown classes in a model, in place, the class that they look like.

    accepted: the caller's as_class. Returns the names of the unknown classes.
    """
    unknown: set[str] = set()
    left: list[tuple[Any, bool]] = [(model, False)]
    while left:
        node, is_cell = left.pop()
        if isinstance(node, list):
            left += [(one, is_cell) for one in node]
        elif isinstance(node, dict):
            node.pop(_FILES, None)
            node.pop(_UNKNOWN, None)
            kind = _looks_like(node.get("config"), is_cell)
            if kind and (kind_of(node) if is_cell else class_of(node)) not in CELLS:
                unknown.add(_read_unknown_class(node, kind, accepted))
            else:
                left += [(node[key], key in _CELLS) for key in (*_AROUND, *_CELLS) if key in node]
    return unknown


def _read_unknown_class(node: Node, kind: str, accepted: Mapping[str, str]) -> str:
    """Give a layer or cell the class that it looks like; return the name of its own."""
    name = str(node.get("registered_name") or node.get("class_name"))
    node[_FILES] = str(node.get("class_name"))
    if name not in accepted:
        node[_UNKNOWN] = name
    suffix = "Cell" if kind.endswith("Cell") else ""
    node["class_name"] = accepted.get(name, kind).removesuffix("Cell") + suffix
    node["module"], node["registered_name"] = "keras.layers", None
    return name


def _looks_like(config: Any, is_cell: bool) -> str:
    """Return the class of Keras with such a config, "" if it is not a recurrent one's."""
    if not isinstance(config, dict) or type(config.get("units")) is not int:
        return ""
    if "recurrent_initializer" not in config or ("return_sequences" in config) == is_cell:
        return ""
    gated = "GRU" if "reset_after" in config else "LSTM"
    kind = gated if "recurrent_activation" in config else "SimpleRNN"
    return f"{kind}Cell" if is_cell else kind


def check_accepted(accepted: Mapping[str, str], unknown: set[str]) -> None:
    """Raise SpecError if as_class names a class that a file does not have."""
    for name in accepted:
        if name not in unknown:
            others = ", ".join(map(short_repr, sorted(unknown)))
            raise SpecError(
                f"no recurrent layer or cell of the file has class {name!r}: "
                + ("omit " + Ask("as_class", None) if not others else
                   "pass " + Ask("as_class") + f" with its unknown classes: {others}")
            )  # fmt: skip


def class_in_file(node: Node) -> str:
    """Return the class of a layer in the file, after which its variables are named."""
    return str(node.get(_FILES, node["class_name"]))


def unknown_classes_in(layer: RecurrentLayer) -> dict[str, str]:
    """Return the unknown classes of a layer, its directions and its cells: {name: read as}."""
    return {cell[_UNKNOWN]: cell["class_name"] for cell in layer.cells if _UNKNOWN in cell}


def unknown_class_question(
    name: str, weights: Weights, unknown: Mapping[str, str]
) -> UndecidedError:
    """Return the error that asks whether the classes may be read as those of Keras."""
    what = " and ".join(f"class {short_repr(one)}, read as {kind}" for one, kind in unknown.items())
    repair = Message(Ask("as_class", dict(unknown)))
    return UndecidedError(
        f"{name}: {what}: rnnlayout does not know what another class computes; if it"
        " computes the same from its weights, pass " + repair,
        [checked_rnn_of(weights)],
        ["as_class"],
        what,
        repair,
    )
