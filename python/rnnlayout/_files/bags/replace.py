"""RNNs into and out of bags of named tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rnnlayout._model.errors import FileError
from rnnlayout._weights.weights import Weights

from .bag import Bag, Tensor
from .found import Found
from .groups import Group, entry_of
from .layerwise import Conversion
from .record import Record, write_records

Progress = Callable[[int, int], Any]


def found_in(bag: Bag, groups: list[Group]) -> Found:
    """What load() gives."""
    entries = {g.entry: g.weights for g in groups if isinstance(g.weights, Weights)}
    refused = {g.entry: g.weights for g in groups if not isinstance(g.weights, Weights)}
    notes = [*bag.notes, *(note for g in groups for note in g.notes)]
    return Found(entries, refused, notes, others_in(bag, groups))


def others_in(bag: Bag, groups: list[Group]) -> list[str]:
    """The tensors of no RNN."""
    taken = {name for group in groups for name in group.names}
    return [name for name in bag.tensors if name not in taken]


def bag_of(entries: Mapping[str, Weights | Conversion]) -> Bag:
    """RNNs as named tensors, each under its name; a single one without a name has none there."""
    tensors: dict[str, Tensor] = {}
    records = {}
    for name, one in entries.items():
        prefix = f"{name}." if name else ""
        _add(tensors, {prefix + tensor: value for tensor, value in _tensors(one).items()})
        records[entry_of(prefix, one.spec)] = Record(prefix, one.layout, one.spec, one.config)
    return Bag(tensors, write_records(records))


def _tensors(one: Weights | Conversion) -> Mapping[str, Tensor]:
    if isinstance(one, Conversion):
        return one.tensors
    given = one._read()
    return {
        name: Tensor.of(array, given.dtype)
        for name, array in zip(given.names, given.arrays, strict=True)
    }


def replaced(
    bag: Bag, conversions: Iterable[tuple[Group, Conversion]], kept: Mapping[str, Record]
) -> Bag:
    """The bag with the tensors of each group replaced, where the first of them stood.

    kept: what the file records of RNNs that stay as they are.
    """
    conversions = list(conversions)
    first = {group.names[0]: (group, made) for group, made in conversions}
    gone = {name for group, _ in conversions for name in group.names}
    tensors: dict[str, Tensor] = {}
    for name, tensor in bag.tensors.items():
        if name in first:
            group, made = first[name]
            _add(tensors, {group.prefix + new: value for new, value in made.tensors.items()})
        elif name not in gone:
            _add(tensors, {name: tensor})
    records = dict(kept)
    for group, made in conversions:
        records[group.entry] = Record(group.prefix, made.layout, made.spec, made.config)
    metadata = {**bag.metadata, **write_records(records)}
    return replace(bag, tensors=tensors, metadata=metadata)


def _add(tensors: dict[str, Tensor], more: Mapping[str, Tensor]) -> None:
    for name, tensor in more.items():
        if name in tensors:
            raise FileError(f"two tensors of the new file would be called {name!r}")
        tensors[name] = tensor


class Count:
    """Tells how many of all bytes are done, each time that there are more."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._done, self._total = progress, 0, total
        self(0)

    def __call__(self, nbytes: int) -> None:
        self._done = min(self._done + nbytes, self._total)
        if self._progress is not None:
            self._progress(self._done, self._total)


def counted(bag: Bag, progress: Progress) -> Bag:
    """The bag, telling after each piece how many of all bytes have been read from it."""
    count = Count(progress, bag.nbytes)
    whole = set()  # what was asked for at once, which may be done twice

    def passed(array: np.ndarray) -> np.ndarray:
        count(array.nbytes)
        return array

    def told(name: str, tensor: Tensor) -> Tensor:
        def bits() -> np.ndarray:
            array = tensor.bits()
            if name not in whole:
                whole.add(name)
                count(array.nbytes)
            return array

        pieces = tensor.pieces
        passing = (lambda: map(passed, pieces())) if pieces else None
        return replace(tensor, bits=bits, pieces=passing)

    return replace(bag, tensors={name: told(name, one) for name, one in bag.tensors.items()})
