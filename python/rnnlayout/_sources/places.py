"""Where RNNs may lie among many names of tensors. Names alone are looked at, each once.

A name is PREFIX SEPARATOR TENSOR: of a torch module (`encoder.lstm.weight_ih_l0`), of a Keras
variable (`bidirectional/forward_lstm/lstm_cell/kernel:0`), of ours (`lstm.1/kernel`); or torch's
names cut short (`enc_w_ih`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

from rnnlayout import _native
from rnnlayout._model.layout import Layout, known_layouts
from rnnlayout._model.spec import Spec

from .names import leaf_names, parse_keras

_STACKED = re.compile(r"(.*\.)?(\d+/(?:forward/|backward/)?[^./]+)")  # as we name those of a stack
_PLAIN = re.compile(r"(.*[./])?([^./]+)")
_SHORT = re.compile(r"(?:(.*)[._/])?([wbWB])_((?:ih|hh)(?:_l\d+(?:_reverse)?)?)")
_LONG = {"w": "weight", "b": "bias"}
_KERAS_CELL = re.compile(r"(^|/)([^/]*_)?cell(_\d+)?/$")
_SAVEZ = re.compile(r"arr_(\d+)")  # what np.savez calls the arrays of a list


@dataclass(frozen=True)
class Place:
    """What looks like one RNN.

    prefix: with its separator. names: the layout's name of a tensor -> its name in the file; of a
    bare list "0", "1" ... short: the names in the file are cut short.
    """

    prefix: str
    names: dict[str, str]
    short: bool = False

    @property
    def entry(self) -> str:
        """The prefix without what is Keras's own: `lstm` of `lstm/lstm_cell/`."""
        return _KERAS_CELL.sub("", self.prefix).rstrip("./")


def find_places(names: Iterable[str], asked: Layout | None, prefix: str = "") -> list[Place]:
    """Where RNNs may lie, in the order of their first names.

    asked: the layout they have, where that is known. prefix: only what lies under it.
    """
    names = list(names)
    read = [(name, list(_readings(name))) for name in names]
    places: dict[tuple[str, ...], Place] = {}
    for layout in [asked] if asked else map(Layout, known_layouts()):
        for place in _of_layout(layout, read):
            if is_under(place.prefix, prefix) and _tells(layout, place, bool(asked)):
                places.setdefault(tuple(sorted(place.names.values())), place)
    if not places and asked:
        return list(_unnamed(names, asked, prefix))
    order = {name: k for k, name in enumerate(names)}
    return sorted(places.values(), key=lambda p: min(order[name] for name in p.names.values()))


def is_under(prefix: str, asked: str) -> bool:
    """Is a place's prefix the one that was asked for, or below it?"""
    asked = asked.rstrip("./")
    return not asked or (prefix.startswith(asked) and prefix[len(asked) :][:1] in ("", ".", "/"))


# -------------------------------------------------------------------------------------- the names

Reading = tuple[str, str, str, bool]  # prefix, tensor, leaf, whether cut short


def _readings(name: str) -> Iterator[Reading]:
    """What a name may mean; its leaf decides for which layout."""
    for pattern in (_STACKED, _PLAIN):
        if match := pattern.fullmatch(name):
            yield match[1] or "", match[2], _leaf(match[2]), False
    if match := _SHORT.fullmatch(name):
        tensor = f"{_LONG[match[2].lower()]}_{match[3]}"
        yield f"{match[1]}." if match[1] else "", tensor, _leaf(tensor), True


def _leaf(tensor: str) -> str:
    """A tensor's name without its layer and direction."""
    return re.sub(r"\d+", "#", tensor.rpartition("/")[2].removesuffix("_reverse"))


def _of_layout(layout: Layout, read: list[tuple[str, list[Reading]]]) -> Iterator[Place]:
    leaves, keras = _leaves(layout), leaf_names(layout)
    found: dict[tuple[str, bool], dict[str, str]] = {}
    for name, readings in read:
        if "keras" in layout.name and (path := _keras_path(name, keras)):
            found.setdefault((path[0], False), {})[path[1]] = name
            continue
        for prefix, tensor, leaf, short in readings:
            if leaf in leaves:
                found.setdefault((prefix, short), {})[tensor] = name
                break
    for (prefix, short), names in found.items():
        yield Place(prefix, _one_direction(names), short)


def _keras_path(name: str, leaves: list[str]) -> tuple[str, str] | None:
    """(prefix, tensor) of a path that Keras wrote."""
    if "/" not in name or _STACKED.fullmatch(name):
        return None
    parsed = parse_keras(name, leaves)
    if parsed is None or re.search(r"(?<!cell)/vars/\d+$", name):  # vars of a layer without a cell
        return None
    path, direction, leaf = parsed
    return f"{path}/" if path else "", f"0/{direction}/{leaf}" if direction else leaf


def _one_direction(names: dict[str, str]) -> dict[str, str]:
    """A Keras layer that is named forward_... and has no other is one of one direction."""
    if len({name.split("/")[1] for name in names if name.count("/") == 2}) == 1:
        return {name.split("/")[-1]: full for name, full in names.items()}
    return names


def _unnamed(names: list[str], layout: Layout, prefix: str) -> Iterator[Place]:
    """What only the layout that was asked for tells: one flat vector, or the list of np.savez."""
    under = [name for name in names if is_under(name, prefix)]
    numbers = {match[1]: name for name in under if (match := _SAVEZ.fullmatch(name))}
    if layout.name == "cudnn" and len(under) == 1:
        yield Place("", {"weight_space": under[0]})
    elif under and len(numbers) == len(under):
        yield Place("", {number: numbers[number] for number in sorted(numbers, key=int)})


# ----------------------------------------------------------------------------- what the core says


@cache
def _leaves(layout: Layout) -> frozenset[str]:
    return frozenset(_leaf(name) for names, _ in _one_layer(layout) for name in names)


@cache
def _recurrent(layout: Layout) -> frozenset[frozenset[str]]:
    """For each cell the tensors that hold R: without them nothing is an RNN."""
    return frozenset(frozenset(map(_leaf, recurrent)) for _, recurrent in _one_layer(layout))


def _one_layer(layout: Layout) -> Iterator[tuple[list[str], list[str]]]:
    """The names of the tensors, and of those that hold R, of any RNN of one layer."""
    cells = product(
        known_layouts()[layout.name]["cells"], ("after", "before"), (0, 2), (0, 1, 2, 3)
    )
    for cell, reset, proj, has in cells:
        try:
            spec = Spec(cell, 5, 3, proj_size=proj, reset=reset)
            names = [name for name, _ in _native.tensors(layout, spec, has)]
            blocks = _native.blocks(layout, spec, has)
        except ValueError:
            continue
        yield names, [names[view[0]] for (_, _, role, _, _), view in blocks if role == "R"]


def _tells(layout: Layout, place: Place, asked: bool) -> bool:
    """Are its names those of an RNN, rather than of some other layer that has a kernel or a W_o?"""
    found = {_leaf(name) for name in place.names}
    alone = layout.name == "cudnn" or len(place.names) > 1
    few = 2 if layout.name == "concat" and not asked else 1
    return alone and any(len(r) >= few and r <= found for r in _recurrent(layout))
