"""RNNs into and out of bags of named tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from rnnlayout._model.errors import FileError
from rnnlayout._weights.weights import Weights

from .bag import Bag, Tensor
from .found import Found
from .groups import Group, entry_of
from .layerwise import Conversion
from .record import Record, write_records


def found_in(bag: Bag, groups: list[Group]) -> Found:
    """Return what load() returns for a bag and the groups in it."""
    entries = {g.entry: g.weights for g in groups if isinstance(g.weights, Weights)}
    refused = {g.entry: g.weights for g in groups if not isinstance(g.weights, Weights)}
    notes = [*bag.notes, *(note for g in groups for note in g.notes)]
    taken = {name for g in groups for name in g.names}
    return Found(entries, refused, notes, [name for name in bag.tensors if name not in taken])


def bag_of(entries: Mapping[str, Weights | Conversion]) -> Bag:
    """Return RNNs as named tensors, each with its name as prefix, "" without a prefix."""
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
    pairs = zip(given.names, given.arrays, strict=True)
    return {name: Tensor.of(array, given.dtype) for name, array in pairs}


def replaced(
    bag: Bag, conversions: Iterable[tuple[Group, Conversion]], kept: Mapping[str, Record]
) -> Bag:
    """Return the bag with the tensors of each group replaced, at the position of the first one.

    kept: the file's records of RNNs that do not change.
    """
    conversions = list(conversions)
    first = {group.names[0]: (group, new) for group, new in conversions}
    old = {name for group, _ in conversions for name in group.names}
    tensors: dict[str, Tensor] = {}
    for name, tensor in bag.tensors.items():
        if name in first:
            group, new = first[name]
            _add(tensors, {group.prefix + name: value for name, value in new.tensors.items()})
        elif name not in old:
            _add(tensors, {name: tensor})
    records = dict(kept)
    for group, new in conversions:
        records[group.entry] = Record(group.prefix, new.layout, new.spec, new.config)
    metadata = {**bag.metadata, **write_records(records)}
    return replace(bag, tensors=tensors, metadata=metadata)


def _add(tensors: dict[str, Tensor], more: Mapping[str, Tensor]) -> None:
    for name, tensor in more.items():
        if name in tensors:
            raise FileError(
                f"two tensors of the new file would have the name {name!r}: rename one in the"
                " source, or convert the RNNs one at a time with prefix="
            )
        tensors[name] = tensor
