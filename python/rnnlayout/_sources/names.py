"""Names of tensors as they come: prefixes of a state_dict, Keras's own paths."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from rnnlayout._model.describe import describe
from rnnlayout._model.layout import Layout
from rnnlayout._model.spec import Spec

# Layouts whose tensors may come under the paths that Keras itself writes.
_KERAS_PATHS = ("keras", "keras-cudnn")
_DIRECTION = re.compile(r"(forward|backward)(_.*)?$")
_SEPARATORS = re.compile(r"[./]")


@cache
def leaf_names(layout: Layout) -> list[str]:
    """What the tensors of one layer are called, for any cell that the layout holds."""
    names: dict[str, None] = {}
    for cell in ("lstm", "gru", "rnn_tanh"):
        for reset in ("after", "before"):
            try:
                names.update(dict.fromkeys(describe(layout, Spec(cell, 2, 3, reset=reset))))
            except ValueError:
                continue
    return list(names)


def strip_prefix(names: Iterable[str], prefix: str) -> dict[str, str]:
    """name -> its rest, for the names under a prefix (with or without its last dot or slash)."""
    prefix = prefix.rstrip("./")
    cut = len(prefix) + 1
    return {
        name: name[cut:]
        for name in names
        if name.startswith(prefix) and len(name) > cut and name[cut - 1] in "./"
    }


def canonical(layout: Layout, names: Iterable[str]) -> dict[str, str]:
    """name -> the name that describe() gives the tensor; names that are unknown stay.

    Keras's own paths of one layer (`bidirectional/forward_lstm/lstm_cell/kernel:0`,
    `layers/lstm/cell/vars/0`) become `kernel`, or `0/forward/kernel`.
    """
    names = list(names)
    if layout.name not in _KERAS_PATHS:
        return {name: name for name in names}
    parsed = {name: parse_keras(name, leaf_names(layout)) for name in names}
    if any(p is None or _is_stacked(p[0]) for p in parsed.values()):
        return {name: name for name in names}
    groups = {p[0] for p in parsed.values() if p}
    directions = {p[1] for p in parsed.values() if p}
    if len(groups) != 1:
        return {name: name for name in names}
    both = directions == {"forward", "backward"}
    return {
        name: f"0/{p[1]}/{p[2]}" if both else p[2] for name, p in parsed.items() if p is not None
    }


def _is_stacked(path: str) -> bool:
    """Is this the path of our own naming of stacks: 0, 1/forward ...?"""
    return path.split("/")[0].isdigit()


def parse_keras(name: str, leaves: list[str]) -> tuple[str, str, str] | None:
    """(path of the layer, direction or "", leaf) of one of Keras's names."""
    parts = name.removesuffix(":0").split("/")
    leaf = parts.pop()
    if leaf.isdigit() and parts and parts[-1] == "vars" and int(leaf) < len(leaves):
        leaf = leaves[int(leaf)]
        parts.pop()
    elif leaf not in leaves:
        return None
    for k, part in enumerate(parts):
        if match := _DIRECTION.match(part):
            if parts[0].isdigit():
                return name, "", leaf
            return "/".join(parts[:k]), match[1], leaf
    return "/".join(parts), "", leaf


def prefixes_that_fit(layouts: Iterable[Layout], names: Iterable[str]) -> list[str]:
    """The prefixes under which a whole RNN lies, shortest first."""
    names = list(names)
    found: dict[str, None] = {}
    for layout in layouts:
        leaves = set(leaf_names(layout))
        for name in names:
            ends = [m.end() for m in _SEPARATORS.finditer(name)]
            tail = name[ends[-1] :].removesuffix(":0") if ends else ""
            if tail not in leaves and not tail.isdigit():
                continue
            for end in ends:
                prefix = name[: end - 1]
                if prefix not in found and _fits(layout, strip_prefix(names, prefix).values()):
                    found[prefix] = None
    return sorted(found, key=lambda prefix: (len(_SEPARATORS.findall(prefix)), prefix))


def _fits(layout: Layout, names: Iterable[str]) -> bool:
    from .infer import candidates

    wanted = set(canonical(layout, names).values())
    return any(set(c.names(layout)) == wanted for c in candidates(layout, len(wanted)))
