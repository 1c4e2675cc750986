"""Names of tensors in models: prefixes of a state_dict, paths of Keras and Flax."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

from rnnlayout._model.layout import Layout

from .candidates import candidates_with_names, tensor_leaf, tensor_leaves

# Layouts whose tensors may have the paths that Keras writes.
KERAS = ("keras", "keras-cudnn")
_NUMBERED = {"0": "kernel", "1": "recurrent_kernel", "2": "bias"}  # as Keras 3 numbers them
# Start of the names of layouts of flax.linen and flax.nnx.
FLAX = "flax-"
_FLAX_SIDE = re.compile(r"(?:(.*)/)?(forward|backward)_rnn/(?:cell/)?([^/]+/[^/]+)")
_DIRECTION = re.compile(r"(forward|backward)(_.*)?$")
_SIDES = ("_forward", "_backward")  # suffixes in formats that store an RNN per direction
_SIDE = re.compile(r"0/(?:forward|backward)/")
_SEPARATOR = re.compile(r"[./]")
LONGEST_NAME = 1000  # characters; a longer name of dots alone would have too many parts


def has_paths(layout: Layout) -> bool:
    """Are the names of a layout's tensors paths, of Flax or Haiku? Many files join the paths by
    dots: flatten_dict(params, sep="."), or dicts in a pickle."""
    return layout.name.startswith(FLAX) or layout.name == "haiku"


def has_cells(layout: Layout) -> bool:
    """May a layout's tensors have the path of a layer with a cell, of Keras or Flax?"""
    return layout.name in KERAS or layout.name.startswith(FLAX)


def is_under(name: str, prefix: str) -> bool:
    """Is a name equal to the prefix, or below the prefix? A dot or slash at the end of the prefix
    makes no difference."""
    prefix = prefix.rstrip("./")
    return not prefix or (name.startswith(prefix) and name[len(prefix) :][:1] in ("", ".", "/"))


def is_under_with_direction(name: str, prefix: str) -> bool:
    """Is a name under the prefix, or under the prefix with a direction: lstm_forward for lstm?"""
    prefix = prefix.rstrip("./")
    return any(is_under(name, f"{prefix}{side}") for side in ("", *(_SIDES if prefix else ())))


def strip_prefix(names: Iterable[str], prefix: str) -> dict[str, str]:
    """Return name -> name without the prefix, for the names below the prefix."""
    prefix = prefix.rstrip("./")
    if not prefix:
        return {name: name for name in names}
    start = len(prefix) + 1
    return {name: name[start:] for name in names if is_under(name, prefix) and len(name) > start}


def starting_with(ordered: Sequence[str], start: str) -> Iterator[str]:
    """Yield the names that start with a text, from names in sorted order: found by bisection."""
    for name in islice(ordered, bisect_left(ordered, start), None):
        if not name.startswith(start):
            break
        yield name


def prefixes_that_fit(layouts: Iterable[Layout], names: Iterable[str]) -> list[str]:
    """Return the prefixes with exactly the names of one RNN below, shortest first."""
    below: dict[str, list[str]] = {}
    for name in names:
        for separator in _SEPARATOR.finditer(name) if len(name) <= LONGEST_NAME else ():
            if tail := name[separator.end() :]:
                below.setdefault(name[: separator.start()], []).append(tail)
    prefixes = [
        prefix
        for prefix, tails in below.items()
        if prefix.rstrip("./") == prefix != ""
        and any(match_layout_names(layout, tails) for layout in layouts)
    ]
    return sorted(prefixes, key=lambda prefix: (len(_SEPARATOR.findall(prefix)), prefix))


def match_layout_names(layout: Layout, names: Collection[str]) -> dict[str, str]:
    """Return name -> tensor of the layout if the names fit one RNN, else {}."""
    flax, joined_by_dots = layout.name.startswith(FLAX), has_paths(layout)
    renamed = {name: name.replace(".", "/") if joined_by_dots else name for name in names}
    layers: dict[str, dict[str, str]] = {}  # of Keras or Flax: path of a layer -> tensor -> name
    for name in names if has_cells(layout) else ():
        if path := cell_path(layout, name):
            layers.setdefault(path[0], {})[path[1]] = name
    for layer, below in layers.items():
        names_by_tensor = below if flax else drop_direction(below)
        if (
            len(names_by_tensor) == len(names) and not layer.split("/")[0].isdigit()
        ):  # 0/kernel is of a stack
            renamed = {name: tensor for tensor, name in names_by_tensor.items()}
            break
    leaves = tensor_leaves(layout)
    if not all(tensor_leaf(tensor) in leaves for tensor in renamed.values()):
        return {}
    tensors = frozenset(renamed.values())
    is_rnn = len(tensors) == len(names) and candidates_with_names(layout, tensors)
    return renamed if is_rnn else {}


def cell_path(layout: Layout, name: str) -> tuple[str, str] | None:
    """Return (path of the layer, tensor) for a name that Keras may have written, or of a tensor in
    a Bidirectional of Flax; None for another name.

    The tensor of `bidirectional/forward_lstm/lstm_cell/kernel:0` is `0/forward/kernel`, that of
    `layers/lstm/cell/vars/0` is `kernel`, that of `encoder/forward_rnn/cell/hi/kernel` is
    `0/forward/hi/kernel`.
    """
    if layout.name.startswith(FLAX):
        match = "ward_rnn" in name and _FLAX_SIDE.fullmatch(name.replace(".", "/"))
        return (match[1] or "", f"0/{match[2]}/{match[3]}") if match else None
    if layout.name not in KERAS:
        return None
    parts = name.removesuffix(":0").split("/")
    leaf = parts.pop()
    if parts[-1:] == ["vars"] and leaf in _NUMBERED:
        leaf = _NUMBERED[leaf]
        parts.pop()
    elif leaf not in _NUMBERED.values():
        return None
    for k, part in enumerate(parts):
        if match := _DIRECTION.match(part):
            if parts[0].isdigit():  # 0/forward/kernel is of a stack
                return None
            return "/".join(parts[:k]), f"0/{match[1]}/{leaf}"
    return "/".join(parts), leaf


def drop_direction(names: dict[str, str]) -> dict[str, str]:
    """Drop the direction from the names if only one direction occurs: a layer named forward_... may
    be a layer of one direction."""
    sides = {match[0]: match.end() for name in names if (match := _SIDE.match(name))}
    if len(sides) != 1:
        return names
    ((side, end),) = sides.items()
    return {name[end:] if name.startswith(side) else name: stored for name, stored in names.items()}
