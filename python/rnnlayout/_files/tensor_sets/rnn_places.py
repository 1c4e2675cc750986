"""Find RNNs among the names of tensors. Only names are read, each once.

A name is PREFIX SEPARATOR TENSOR: of a torch module (`encoder.lstm.weight_ih_l0`), of a Keras
variable (`bidirectional/forward_lstm/lstm_cell/kernel:0`), of Flax's parameters
(`params/encoder/cell/hi/kernel`), of rnnlayout (`lstm.1/kernel`); or an abbreviated name of
torch (`enc_w_ih`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

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
    LONGEST_NAME,
    cell_path,
    drop_direction,
    has_cells,
    has_paths,
    is_under,
    is_under_with_direction,
    match_layout_names,
)

_STACKED = re.compile(rf"(.*\.)?({LAYER}(?:[^./]+/)?[^./]+)")
_IN_PARTS = re.compile(rf"(.*\.)?({LAYER}(?:[^./]+[./])+[^./]+)")  # 1/gates/kernel
_MOST_PARTS = 8  # of a tensor's name in a layout: 0/forward/hi/kernel has 4
_NUMBERED = re.compile(LAYER)
_SHORT = re.compile(r"(?:.*_)?([wbWB])_((?:ih|hh)(?:_l\d+(?:_reverse)?)?)")
_LONG = {"w": "weight", "b": "bias"}
_KERAS_CELL = re.compile(r"(^|/)([^/]*_)?cell(_\d+)?/$")
_CELL_OF_ANY_NAME = re.compile(r"(^|/)[^/]*(cell|lstm|gru|rnn)[^/]*/$", re.IGNORECASE)
_CELL_WORDS = ("cell", "lstm", "gru", "rnn")
_DOTTED_CELL = re.compile(r"(^|\.)cell\.$")
_NO_CELL = re.compile(r"(?<!cell)/vars/\d+$")  # variables of a Keras layer without a cell
_LONGEST_VARIABLE = 20  # characters of /vars/0
_LISTED = re.compile(r"(?:arr_)?(\d{1,9})")  # the arrays of a list: np.savez, a pickle


@dataclass(frozen=True)
class RNNPlace:
    """Tensors that look like one RNN. prefix: the start of all names, with the separator. names:
    name in the layout -> name in the file; for a list "0", "1" ... instead of names in the layout.
    short: whether the names in the file are abbreviated. side: "forward" or "backward" if the names
    have a single direction, as of a Bidirectional without its other layer."""

    prefix: str
    names: dict[str, str]
    short: bool = False
    side: str = ""

    @property
    def entry(self) -> str:
        """The prefix without the name of a cell of Keras or Flax: `lstm` for `lstm/lstm_cell/`."""
        tensor, name = next(iter(self.names.items()))
        dots = "/" in tensor and "/" not in name  # Flax's path, joined by dots
        return (_DOTTED_CELL if dots else _KERAS_CELL).sub("", self.prefix).rstrip("./")


def find_places(
    names: Iterable[str], layout_passed: Layout | None, prefix: str = ""
) -> list[RNNPlace]:
    """Return the places that may be RNNs, in the order of the first names. layout_passed: the
    layout that the caller passed. prefix: only places under this prefix."""
    names = list(names)
    name_readings = [(name, _is_plain(name), *_read_name(name)) for name in names]
    places: dict[tuple[str, ...], RNNPlace] = {}
    for layout in [layout_passed] if layout_passed else _layouts_among(name_readings, False):
        for place in _places_of_layout(layout, name_readings):
            if is_under_with_direction(place.prefix, prefix) and _is_recurrent(
                layout, place, bool(layout_passed)
            ):
                places.setdefault(tuple(sorted(place.names.values())), place)
    if layout_passed and not prefix and _has_kernels_of_any_layer(layout_passed):
        cells = {key: place for key, place in places.items() if _KERAS_CELL.search(place.prefix)}
        places = cells or places  # dense/kernel beside rnn/lstm_cell/kernel is not an RNN
    if not places and layout_passed:  # a flat vector, or a list
        under = [name for name in names if is_under(name, prefix)]
        numbers = {match[1]: name for name in under if (match := _LISTED.fullmatch(name))}
        if layout_passed.name == "cudnn" and len(under) == 1:
            start = len(prefix.rstrip("./")) + 1 if prefix else 0
            return [RNNPlace(under[0][:start], {"weight_space": under[0]})]
        listed = {number: numbers[number] for number in sorted(numbers, key=int)}
        return [RNNPlace("", listed)] if under and len(numbers) == len(under) else []
    order = {name: k for k, name in enumerate(names)}
    for place in [] if layout_passed else [*_places_to_name(places.values(), name_readings)]:
        places.setdefault(tuple(sorted(place.names.values())), place)
    tensors_by_prefix: dict[str, list[set[str]]] = {}
    for place in places.values():
        tensors_by_prefix.setdefault(place.prefix, []).append(set(place.names.values()))
    # Equinox's tensors without the biases are the tensors of a torch cell
    whole = [
        place
        for place in places.values()
        if not any(
            set(place.names.values()) < tensors for tensors in tensors_by_prefix[place.prefix]
        )
    ]
    return sorted(whole, key=lambda place: min(order[name] for name in place.names.values()))


def layouts_of_cells(names: Iterable[str]) -> list[Layout]:
    """Return the layouts that have to be passed for the cells among the names, because the tensors
    of a cell are those of a Dense in these layouts: TensorFlow 1, Haiku."""
    names = [
        name for name in names if "/" in name and any(word in name.lower() for word in _CELL_WORDS)
    ]
    return [
        layout
        for layout in (_layouts(must_name=False) if names else ())
        if _has_kernels_of_any_layer(layout)
        and any(
            _CELL_OF_ANY_NAME.search(place.prefix) and match_layout_names(layout, place.names)
            for place in find_places(names, layout)
        )
    ]


def is_list(names: Iterable[str]) -> bool:
    """Are the names those of a list of arrays, which np.savez() or a pickle numbers?"""
    return all(map(_LISTED.fullmatch, names))


def _places_to_name(
    places: Collection[RNNPlace], name_readings: NameReadings
) -> Iterator[RNNPlace]:
    """Yield RNNs that contain all tensors of a place and more, in layouts that the caller must
    pass: Haste's tensors without recurrent_bias are the tensors of Keras. Reading a yielded RNN
    raises an error with the name of the layout."""
    parts: dict[str, list[set[str]]] = {}  # by the first name of the place
    for place in places:
        names = place.names.values()
        parts.setdefault(next(iter(names)), []).append({*names})
    for layout in _layouts_among(name_readings, must_name=True) if parts else ():
        for place in _places_of_layout(layout, name_readings):
            tensors = set(place.names.values())
            is_more = any(part < tensors for name in tensors for part in parts.get(name, ()))
            if is_more and match_layout_names(layout, place.names):
                yield place


# -------------------------------------------------------------------------------------- the names

NameReading = tuple[str, str, str, bool]  # prefix, tensor, leaf, whether abbreviated
# Of each name: _is_plain(name), its readings, and their leaves, also with / for dots.
NameReadings = list[tuple[str, bool, list[NameReading], set[str]]]


def _is_plain(name: str) -> bool:
    """Return whether a name is not a path of a cell of Keras."""
    if "/" not in name:
        return True
    return bool(
        _NO_CELL.search(name, len(name) - _LONGEST_VARIABLE)
        or _STACKED.fullmatch(name, name.rfind(".") + 1)
    )


def _read_name(name: str) -> tuple[list[NameReading], set[str]]:
    """Return the possible readings of a name, and their leaves, which decide the layouts."""
    readings = [*_readings(name)] if len(name) <= LONGEST_NAME else []
    leaves = {leaf for _, _, leaf, _ in readings}
    return readings, leaves | {leaf.replace(".", "/") for leaf in leaves}


def _readings(name: str) -> Iterator[NameReading]:
    parts = name.replace("/", ".").rsplit(".", _MOST_PARTS)  # from the end: it may have hundreds
    starts = [*accumulate((len(part) + 1 for part in parts[:-1]), initial=0)][-_MOST_PARTS:]
    # a pattern tries every dot from here on: of the whole name, these could be hundreds
    first = name.rfind(".", 0, starts[0]) + 1
    for pattern in (_STACKED, _IN_PARTS):
        if match := pattern.fullmatch(name, first):
            yield name[: match.start(2)], match[2], tensor_leaf(match[2]), False
    for at in starts:
        tensor = name[at:]  # the longest first: hi/kernel of a part of the cell before kernel
        if tensor:
            yield name[:at], tensor, tensor_leaf(tensor), False
    if match := _SHORT.fullmatch(name, starts[-1]):
        tensor = f"{_LONG[match[1].lower()]}_{match[2]}"
        prefix = name[: max(match.start(1) - 1, 0)]
        yield prefix and f"{prefix}.", tensor, tensor_leaf(tensor), True


def _layouts_among(name_readings: NameReadings, must_name: bool) -> Iterator[Layout]:
    """Yield the layouts of _layouts() that may have tensors of these names."""
    leaves = set[str]().union(*[name_leaves for *_, name_leaves in name_readings])
    for layout in _layouts(must_name):
        if has_cells(layout) or not tensor_leaves(layout).isdisjoint(leaves):
            yield layout


def _places_of_layout(layout: Layout, name_readings: NameReadings) -> Iterator[RNNPlace]:
    leaves, flax = tensor_leaves(layout), layout.name.startswith(FLAX)
    may_have_dots, may_have_cells = has_paths(layout), has_cells(layout)
    names_by_place: dict[tuple[str, bool, bool], dict[str, str]] = {}
    for name, plain, readings, name_leaves in name_readings:
        path = cell_path(layout, name) if may_have_cells and (flax or not plain) else None
        if path:  # of Keras or Flax, of a layer with a cell
            prefix = name[: len(path[0]) + 1] if path[0] else ""
            names_by_place.setdefault((prefix, False, True), {})[path[1]] = name
            continue
        for prefix, tensor, leaf, short in () if leaves.isdisjoint(name_leaves) else readings:
            if may_have_dots:
                tensor, leaf = tensor.replace(".", "/"), leaf.replace(".", "/")
            if leaf not in leaves:
                continue
            is_numbered = bool(_NUMBERED.match(tensor))  # begins with the number of a layer
            of_path = is_numbered and prefix.endswith("/")  # the number may count anything
            if is_numbered if _is_numbered(layout) else not of_path:
                names_by_place.setdefault((prefix, short, False), {})[tensor] = name
                break
    for (prefix, short, is_path), names in names_by_place.items():
        # 0/forward/kernel without 0/backward/kernel is not a whole RNN
        layout_names = drop_direction(names) if is_path else names
        if (
            flax and layout_names is not names
        ):  # one RNN of a Bidirectional, or the cell that both directions share
            tensor, name = next(iter(layout_names.items()))
            prefix = name[: -len(tensor)]
        side = "" if layout_names is names else next(iter(names)).split("/")[1]
        yield RNNPlace(prefix, layout_names, short, side)


# ------------------------------------------------------------------------- facts of the layouts


@cache
def _layouts(must_name: bool) -> list[Layout]:
    """Return the layouts that are considered only if the caller passes them, or all remaining."""
    return [
        Layout(name) for name, facts in known_layouts().items() if facts["must_name"] == must_name
    ]


@cache
def _is_numbered(layout: Layout) -> bool:
    """Return whether all names begin with the number of a layer, even for a single layer."""
    return all(map(_NUMBERED.match, _native.names(layout)))


@cache
def _recurrent_leaves(layout: Layout) -> frozenset[tuple[frozenset[str], bool]]:
    """Return for each cell the tensors with the recurrent matrices, and whether these tensors also
    contain the input matrices. Every RNN has recurrent matrices."""
    names = [candidate.names_by_role for candidate in one_layer_candidates(layout)]
    return frozenset(
        (frozenset(map(tensor_leaf, roles["R"])), roles["R"] <= roles["W"]) for roles in names
    )


def _has_kernels_of_any_layer(layout: Layout) -> bool:
    """Return whether a single tensor has all matrices, so that a Dense has the same tensors."""
    return any(joins and len(leaves) == 1 for leaves, joins in _recurrent_leaves(layout))


def _is_recurrent(layout: Layout, place: RNNPlace, layout_passed: bool) -> bool:
    """Return whether the names are the names of an RNN, not of a further layer with a kernel or a
    W_o. A single tensor with all matrices may be the kernel of any layer, unless the layout is one
    vector with a unique name."""
    one_vector = is_one_vector(layout)
    if len(place.names) == 1 and not one_vector:
        return False
    place_leaves = {tensor_leaf(name) for name in place.names}
    return any(
        recurrent_leaves <= place_leaves
        and (one_vector or layout_passed or not joins or len(recurrent_leaves) > 1)
        for recurrent_leaves, joins in _recurrent_leaves(layout)
    )
