"""The variables of Keras 3 and of .keras files: a tree of objects, each with numbered arrays.

A group is named by its layer's class, lstm, lstm_1 ...; the name that the user gave is in an
attribute that Keras 3 writes and late Keras 2 does not. Late Keras 2 calls the layers of a model
_layer_checkpoint_dependencies for a while, with numbers that have gaps.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from .entry import LEAVES, Cell, Entries, natural
from .hdf5 import Dataset, Group
from .tree import Recurrent, children, is_recurrent, layer_name

Pair = tuple[Recurrent, list[Cell]]

_LAYERS = ("layers", "_layer_checkpoint_dependencies")


def layers_of(root: Group) -> Group | None:
    """The group of a model's layers, None in a file of another kind."""
    return next((root.groups[name] for name in _LAYERS if name in root.groups), None)


# ------------------------------------------------------------------------------- with a config


def read_told(root: Group, model: dict[str, Any], entries: Entries) -> None:
    """Every recurrent layer of the config. FileError: the file contradicts it."""
    for layer, cells in pairs(root, model):
        entries.add_told(layer, cells)


def pairs(root: Group, model: dict[str, Any]) -> Iterator[Pair]:
    """The recurrent layers of a config, each with its cells."""
    yield from _model(root, model, ())


def _model(group: Group, model: dict[str, Any], around: tuple[str, ...]) -> Iterator[Pair]:
    if layers := layers_of(group):
        for node, found in placed(layers, children(model)):
            yield from _layer(found, node, (*around, layer_name(node)))


def _layer(found: Group, node: dict[str, Any], path: tuple[str, ...]) -> Iterator[Pair]:
    if is_recurrent(node):
        layer = Recurrent(path, node)
        yield layer, _cells(found, layer.cells)
    elif "layer" in found.groups:  # what a wrapper wraps
        for child in children(node):
            yield from _layer(found.groups["layer"], child, (*path, layer_name(child)))
    else:
        yield from _model(found, node, path)


def placed(layers: Group, nodes: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], Group]]:
    """Each layer of a config with its group: the k-th of its class."""
    of_class: dict[str, list[tuple[dict[str, Any], str]]] = {}
    names = group_names([str(node["class_name"]) for node in nodes])
    for node, name in zip(nodes, names, strict=True):
        of_class.setdefault(snake_case(str(node["class_name"])), []).append((node, name))
    groups: dict[int, Group] = {}
    for name, alike in of_class.items():
        expected = [group_name for _, group_name in alike]
        there = [n for n in sorted(layers.groups, key=natural) if natural(n)[0] == natural(name)[0]]
        if len(there) == len(alike) and not set(expected) <= set(there):
            expected = there
        for (node, _), group_name in zip(alike, expected, strict=True):
            if group_name in layers.groups:  # else it is shared, and lies elsewhere
                groups[id(node)] = layers.groups[group_name]
    for node in nodes:
        if id(node) in groups:
            yield node, groups[id(node)]


def group_names(classes: Sequence[str]) -> list[str]:
    """What Keras 3 calls the groups of layers of these classes, one beside the other."""
    found: list[str] = []
    counts: Counter[str] = Counter()
    for name in map(snake_case, classes):
        found.append(f"{name}_{counts[name]}" if counts[name] else name)
        counts[name] += 1
    return found


def snake_case(name: str) -> str:
    """A class's name as Keras writes it: simple_rnn, cu_dnnlstm."""
    name = re.sub(r"\W+", "", name.split(">")[-1])
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


# ---------------------------------------------------------------------------- without a config


def read_untold(root: Group, entries: Entries) -> None:
    """Whatever looks like a recurrent layer."""
    _untold(root, (), entries)


def _untold(group: Group, path: tuple[str, ...], entries: Entries) -> None:
    for name in sorted(group.groups, key=natural):
        child = group.groups[name]
        called = _user_name(child) or ("" if name in (*_LAYERS, "layer") else name)
        here = (*path, called) if called else path
        cells = _cells(child) if "cell" in child.groups or _is_cudnn(name) else []
        if both := _both(child):
            entries.add("/".join(here), both, True, None)
        elif cells:
            entries.add("/".join(here), cells, False, None)
        elif name not in ("vars", "optimizer"):
            _untold(child, here, entries)


def _user_name(group: Group) -> str | None:
    variables = group.groups.get("vars")
    return variables.text("name") if variables else None


def _is_cudnn(name: str) -> bool:
    return name.startswith(("cu_dnnlstm", "cu_dnngru"))


def _both(group: Group) -> list[Cell]:
    sides = [group.groups.get("forward_layer"), group.groups.get("backward_layer")]
    cells = [cell for side in sides if side for cell in _cells(side)]
    return cells if len(cells) == 2 else []


# ---------------------------------------------------------------------------------------- cells


def _cells(layer: Group, nodes: Sequence[dict[str, Any]] = ()) -> list[Cell]:
    """Of a Bidirectional, a stack, a layer with a cell, or one that has its arrays itself.

    nodes: of all its cells, where there is a config; without, those of a stack come by class.
    """
    if "forward_layer" in layer.groups:
        sides = [layer.groups["forward_layer"], layer.groups.get("backward_layer")]
        half = len(nodes) // 2
        own = (nodes[:half], nodes[half:])
        return [c for side, n in zip(sides, own, strict=True) if side for c in _cells(side, n)]
    cell = layer.groups.get("cell", layer)
    if stack := cell.groups.get("cells"):
        groups = [stack.groups[name] for name in sorted(stack.groups, key=natural)]
        if nodes:
            groups = [group for _, group in placed(stack, list(nodes))]
        return [found for group in groups if (found := _variables(group))]
    return [found] if (found := _variables(cell)) else []


def _variables(cell: Group) -> Cell | None:
    """The arrays of a cell by what stands for their numbers; None where it has no matrices."""
    variables = cell.groups.get("vars")
    found: dict[str, Dataset] = {}
    for number, leaf in enumerate(LEAVES):
        if variables and str(number) in variables.datasets:
            found[leaf] = variables.datasets[str(number)]
    matrices = [found[leaf] for leaf in LEAVES[:2] if leaf in found]
    is_cell = len(matrices) == 2 and all(len(matrix.shape) == 2 for matrix in matrices)
    return found if is_cell else None
