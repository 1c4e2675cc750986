"""Find RNNs among the names of many tensors. Only names are looked at, each once.

A name is PREFIX SEPARATOR TENSOR: of a torch module (`encoder.lstm.weight_ih_l0`), of a Keras
variable (`bidirectional/forward_lstm/lstm_cell/kernel:0`), of Flax's parameters
(`params/encoder/cell/hi/kernel`), of rnnlayout (`lstm.1/kernel`); or torch's names abbreviated
(`enc_w_ih`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from rnnlayout import _native
from rnnlayout._model.layout import Layout, known_layouts
from rnnlayout._sources.candidates import (
    LAYER,
    is_one_vector,
    one_layer_candidates,
    tensor_leaf,
    tensor_leaves,
)
from rnnlayout._sources.tensor_paths import (
    FLAX,
    KERAS,
    LONGEST_NAME,
    cell_path,
    drop_direction,
    is_under,
    is_under_with_direction,
    match_layout_names,
)

_STACKED = re.compile(rf"(.*\.)?({LAYER}(?:[^./]+/)?[^./]+)")
_IN_PARTS = re.compile(rf"(.*\.)?({LAYER}(?:[^./]+[./])+[^./]+)")  # 1/gates/kernel
_SEPARATOR = re.compile(r"[./]")
_MOST_PARTS = 8  # of a tensor's name in a layout: 0/forward/hi/kernel has 4
_NUMBERED = re.compile(LAYER)
_SHORT = re.compile(r"(?:(.*)[._/])?([wbWB])_((?:ih|hh)(?:_l\d+(?:_reverse)?)?)")
_LONG = {"w": "weight", "b": "bias"}
_KERAS_CELL = re.compile(r"(^|/)([^/]*_)?cell(_\d+)?/$")
_DOTTED_CELL = re.compile(r"(^|\.)cell\.$")
_NO_CELL = re.compile(r"(?<!cell)/vars/\d+$")  # variables of some other Keras layer
_LISTED = re.compile(r"(?:arr_)?(\d{1,9})")  # the arrays of a list: np.savez, a pickle


@dataclass(frozen=True)
class RNNPlace:
    """Tensors that look like one RNN. prefix: what the names begin with, and the separator. names:
    the layout's name of each tensor -> its name in the file; a list has "0", "1" ... in the place
    of the layout's names. short: whether the file's names are abbreviated."""

    prefix: str
    names: dict[str, str]
    short: bool = False

    @property
    def entry(self) -> str:
        """The prefix without the name of a cell of Keras or Flax: `lstm` for `lstm/lstm_cell/`."""
        tensor, name = next(iter(self.names.items()))
        dots = "/" in tensor and "/" not in name  # Flax's path, joined by dots
        return (_DOTTED_CELL if dots else _KERAS_CELL).sub("", self.prefix).rstrip("./")


def find_places(names: Iterable[str], asked: Layout | None, prefix: str = "") -> list[RNNPlace]:
    """Return the places that may be RNNs, in the order of their first names. asked: their layout,
    if it is known. prefix: the places must be under it."""
    names = list(names)
    read = [(name, list(_read_name(name))) for name in names]
    places: dict[tuple[str, ...], RNNPlace] = {}
    for layout in [asked] if asked else _layouts(must_name=False):
        for place in _places_of_layout(layout, read):
            if is_under_with_direction(place.prefix, prefix) and _is_recurrent(
                layout, place, bool(asked)
            ):
                places.setdefault(tuple(sorted(place.names.values())), place)
    if not places and asked:  # a flat vector, or a list
        under = [name for name in names if is_under(name, prefix)]
        numbers = {match[1]: name for name in under if (match := _LISTED.fullmatch(name))}
        if asked.name == "cudnn" and len(under) == 1:
            return [RNNPlace("", {"weight_space": under[0]})]
        listed = {number: numbers[number] for number in sorted(numbers, key=int)}
        return [RNNPlace("", listed)] if under and len(numbers) == len(under) else []
    order = {name: k for k, name in enumerate(names)}
    found = [*places.values(), *([] if asked else _places_to_name(places.values(), read))]
    beside: dict[str, list[set[str]]] = {}  # by prefix
    for place in found:
        beside.setdefault(place.prefix, []).append(set(place.names.values()))
    # Equinox's tensors without their biases are those of a torch cell
    whole = [
        place
        for place in found
        if not any(set(place.names.values()) < other for other in beside[place.prefix])
    ]
    return sorted(whole, key=lambda p: min(order[n] for n in p.names.values()))


def _places_to_name(
    places: Collection[RNNPlace], read: list[tuple[str, list[NameReading]]]
) -> Iterator[RNNPlace]:
    """Yield the RNNs of which a place is only a part, and whose layout the caller has to name:
    Haste's tensors without recurrent_bias are Keras's. Reading one is an error that names it."""
    parts: dict[str, list[set[str]]] = {}  # by the first name of each
    for place in places:
        names = place.names.values()
        parts.setdefault(next(iter(names)), []).append({*names})
    for layout in _layouts(must_name=True) if parts else ():
        for place in _places_of_layout(layout, read):
            own = set(place.names.values())
            is_more = any(part < own for name in own for part in parts.get(name, ()))
            if is_more and match_layout_names(layout, place.names):
                yield place


# -------------------------------------------------------------------------------------- the names

NameReading = tuple[str, str, str, bool]  # prefix, tensor, leaf, is it abbreviated


def _read_name(name: str) -> Iterator[NameReading]:
    """Yield what a name may mean. In which layout depends on its leaf."""
    if len(name) > LONGEST_NAME:
        return
    for pattern in (_STACKED, _IN_PARTS):
        if match := pattern.fullmatch(name):
            yield match[1] or "", match[2], tensor_leaf(match[2]), False
    starts = [0, *(separator.end() for separator in _SEPARATOR.finditer(name))]
    for at in starts[-_MOST_PARTS:]:
        tensor = name[at:]  # the longest first: hi/kernel of a part of the cell before kernel
        if tensor:
            yield name[:at], tensor, tensor_leaf(tensor), False
    if match := _SHORT.fullmatch(name):
        tensor = f"{_LONG[match[2].lower()]}_{match[3]}"
        yield f"{match[1]}." if match[1] else "", tensor, tensor_leaf(tensor), True


def _places_of_layout(
    layout: Layout, read: list[tuple[str, list[NameReading]]]
) -> Iterator[RNNPlace]:
    leaves, flax = tensor_leaves(layout), layout.name.startswith(FLAX)
    has_paths = flax or layout.name in KERAS
    found: dict[tuple[str, bool], dict[str, str]] = {}
    for name, readings in read:
        plain = "/" not in name or _STACKED.fullmatch(name) or _NO_CELL.search(name)
        path = cell_path(layout, name) if has_paths and (flax or not plain) else None
        if path:  # that Keras or Flax made, of a layer with a cell
            prefix = name[: len(path[0]) + 1] if path[0] else ""
            found.setdefault((prefix, False), {})[path[1]] = name
            continue
        for prefix, tensor, leaf, short in readings:
            if flax:
                tensor, leaf = tensor.replace(".", "/"), leaf.replace(".", "/")
            if leaf not in leaves:
                continue
            begins = bool(_NUMBERED.match(tensor))  # with the number of a layer
            of_path = begins and prefix.endswith("/")  # which may count anything
            if begins if _is_numbered(layout) else not of_path:
                found.setdefault((prefix, short), {})[tensor] = name
                break
    for (prefix, short), names in found.items():
        own = drop_direction(names)
        if flax and own is not names:  # one RNN of a Bidirectional, or its shared cell
            tensor, name = next(iter(own.items()))
            prefix = name[: -len(tensor)]
        yield RNNPlace(prefix, own, short)


# ------------------------------------------------------------------------- what the layouts have


@cache
def _layouts(must_name: bool) -> list[Layout]:
    """Return the layouts that tensors are in only if the caller names them, or all others."""
    return [
        Layout(name) for name, info in known_layouts().items() if info["must_name"] == must_name
    ]


@cache
def _is_numbered(layout: Layout) -> bool:
    """Do all names begin with the number of a layer, also if there is only one?"""
    return all(map(_NUMBERED.match, _native.names(layout)))


@cache
def _recurrent_leaves(layout: Layout) -> frozenset[tuple[frozenset[str], bool]]:
    """Return for each cell the tensors with recurrent matrices, which every RNN has, and whether
    they contain the input matrices too."""
    names = [one.names_by_role for one in one_layer_candidates(layout)]
    return frozenset((frozenset(map(tensor_leaf, of["R"])), of["R"] <= of["W"]) for of in names)


def _is_recurrent(layout: Layout, place: RNNPlace, asked: bool) -> bool:
    """Are its names those of an RNN, and not of another layer that has a kernel or a W_o? A single
    tensor that would contain all matrices may be the kernel of any layer, unless the layout is one
    vector, whose name says what it is."""
    one_vector = is_one_vector(layout)
    if len(place.names) == 1 and not one_vector:
        return False
    found = {tensor_leaf(name) for name in place.names}
    return any(
        own <= found and (one_vector or asked or not joins or len(own) > 1)
        for own, joins in _recurrent_leaves(layout)
    )
