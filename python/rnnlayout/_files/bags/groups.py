"""Which of many named tensors are RNNs?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rnnlayout._model.dtypes import FLOATS, Bits
from rnnlayout._model.layout import CUDNN, as_layout
from rnnlayout._model.spec import Spec
from rnnlayout._native import LayoutError, LossyError, SpecError
from rnnlayout._sources.places import Place, find_places, is_under
from rnnlayout._sources.read import read
from rnnlayout._weights.weights import Weights

from . import torch_names
from .bag import Ask, Tensor
from .record import Record


@dataclass(frozen=True)
class Group:
    """The tensors of one RNN, or of what would be one.

    entry: what it is called. prefix: what stands before the layout's names, with its separator.
    names: of the tensors in the file. notes: how they were understood, where that is not plain.
    rounds: what of it torch computes and was rounded here (weight norm).
    """

    entry: str
    prefix: str
    names: tuple[str, ...]
    weights: Weights | ValueError
    notes: tuple[str, ...] = ()
    rounds: tuple[str, ...] = ()


def find(
    tensors: Mapping[str, Tensor], ask: Ask, records: Mapping[str, Record] | None = None
) -> list[Group]:
    """All RNNs among the tensors, in their order: those that the file records, and those that show
    by their names.

    SpecError: ask.spec is of one RNN, and there are several.
    """
    plain = torch_names.plain(tensors)
    records = {
        entry: replace(one, prefix=plain.name(one.prefix)) for entry, one in (records or {}).items()
    }
    groups = _find(plain.tensors, replace(ask, prefix=plain.name(ask.prefix)), records)
    return [_stored(group, plain) for group in groups]


def _stored(group: Group, plain: torch_names.Plain) -> Group:
    """With the names that the file has."""
    if not group.names:
        return group
    first, prefix = group.names[0], group.prefix
    if first.startswith(prefix):  # it does not where names were cut short
        prefix = plain.under(first, first[len(prefix) :])
    return replace(
        group,
        prefix=prefix,
        names=tuple(stored for name in group.names for stored in plain.sources[name]),
        notes=group.notes + tuple(plain.notes[n] for n in group.names if n in plain.notes),
        rounds=tuple(name for name in group.names if name in plain.rounds),
    )


def _find(tensors: Mapping[str, Tensor], ask: Ask, records: Mapping[str, Record]) -> list[Group]:
    groups = [_recorded(tensors, entry, one) for entry, one in records.items()]
    taken = {name for group in groups for name in group.names}
    places = find_places(
        [name for name in tensors if name not in taken],
        as_layout(ask.layout) if ask.layout is not None else None,
        ask.prefix,
    )
    if ask.spec is not None and len(places) > 1:
        names = ", ".join(repr(place.prefix.rstrip("./")) for place in places[:6])
        raise SpecError(
            f"spec= is of one RNN, here are {len(places)}: say which by prefix=, one of {names}"
        )
    groups += [_group(tensors, place, ask, len(places) == 1) for place in places]
    groups = [group for group in groups if is_under(group.prefix, ask.prefix)]
    order = {name: k for k, name in enumerate(tensors)}
    groups.sort(key=lambda g: min((order[name] for name in g.names), default=0))
    return _named_apart(groups)


def check_exact(groups: list[Group]) -> None:
    """LossyError: a weight of theirs was rounded as it was computed."""
    if rounds := [name for group in groups for name in group.rounds]:
        raise LossyError(
            f"weight norm of {', '.join(rounds)}: computing the weight rounds, which exact=True"
            " refuses"
        )


def entry_of(prefix: str, spec: Spec | None) -> str:
    """What the RNN is called: its prefix; where it has none, its cell."""
    if prefix.rstrip("./"):
        return prefix.rstrip("./")
    return spec.cell.removesuffix("_tanh").removesuffix("_relu") if spec else "rnn"


def _named_apart(groups: list[Group]) -> list[Group]:
    seen: dict[str, int] = {}
    apart = []
    for group in groups:
        seen[group.entry] = seen.get(group.entry, 0) + 1
        again = f"_{seen[group.entry]}" if seen[group.entry] > 1 else ""
        apart.append(replace(group, entry=group.entry + again))
    return apart


# ----------------------------------------------------------------------------------- one of them


def _recorded(tensors: Mapping[str, Tensor], entry: str, one: Record) -> Group:
    names = one.names(tensors)
    if not names:
        text = f"{entry}: the file's metadata has it, as {one.spec} in {one.layout}, but not"
        return Group(entry, one.prefix, (), LayoutError(f"{text} all of its tensors are there"))
    weights = _read(tensors, names, entry, one.spec, one.layout, {})
    if isinstance(weights, Weights):
        weights = Weights._of(weights._read(), None, one.config)
    return Group(entry, one.prefix, tuple(names.values()), weights)


def _group(tensors: Mapping[str, Tensor], place: Place, ask: Ask, alone: bool) -> Group:
    hints = {"cell": ask.cell, "reset": ask.reset}
    entry = entry_of(place.entry, None)
    weights = _read(tensors, place.names, entry, ask.spec, ask.layout, hints if alone else {})
    if isinstance(weights, SpecError) and not alone:  # hints answer what the tensors do not
        weights = _read(tensors, place.names, entry, ask.spec, ask.layout, hints)
    if isinstance(weights, Weights):
        entry = entry_of(place.entry, weights.spec)
    names = tuple(place.names.values())
    notes = (f"{', '.join(names)} taken as {', '.join(place.names)}",) if place.short else ()
    return Group(entry, place.prefix, names, weights, notes)


def _read(
    tensors: Mapping[str, Tensor],
    names: Mapping[str, str],
    entry: str,
    spec: Spec | None,
    layout: Any,
    hints: dict[str, Any],
) -> Weights | ValueError:
    """The RNN of the tensors `names`, by the layout's names; what is wrong said of the entry."""
    try:
        bits = {name: _bits(full, tensors[full]) for name, full in names.items()}
        source: Any = bits
        if list(names) == ["weight_space"]:
            source, layout = bits["weight_space"], layout or CUDNN
        elif all(name.isdigit() for name in names):
            source = list(bits.values())
        return Weights._of(read(source, spec, layout, **hints))
    except ValueError as error:
        return type(error)(f"{entry}: {error}")


def _bits(name: str, tensor: Tensor) -> Bits:
    if tensor.dtype not in FLOATS:
        raise LayoutError(
            f"{name} is {tensor.dtype}, need one of {', '.join(FLOATS)}: quantized weights must be"
            " dequantized with their scale first"
        )
    array = tensor.bits()
    return Bits(array.astype(array.dtype.newbyteorder("="), copy=False), tensor.dtype)


def flat(tensor: Tensor, ask: Ask, what: Any) -> Weights:
    """The RNN whose cuDNN weight space a file is; errors as convert()."""
    if ask.layout is not None and as_layout(ask.layout).name != "cudnn":
        raise LayoutError(f"{what} is cuDNN's weight space, not {as_layout(ask.layout)}")
    found = _read({"": tensor}, {"weight_space": ""}, str(what), ask.spec, ask.layout, {})
    if isinstance(found, Weights):
        return found
    raise found


def flat_of(entries: Mapping[str, Weights], what: str) -> Weights:
    """The one RNN of the entries, which has to lie in cuDNN's layout."""
    if len(entries) != 1:
        raise LayoutError(
            f"{what} holds one RNN, found {len(entries)}: pick one by prefix=, of"
            f" {', '.join(map(repr, entries))}"
        )
    return check_flat(next(iter(entries.values())), what)


def check_flat(weights: Weights, what: str) -> Weights:
    """LayoutError: these weights are no weight space of cuDNN's."""
    if weights.layout.name != "cudnn":
        raise LayoutError(
            f"{what} holds cuDNN's weight space, found layout {weights.layout}: convert with"
            ' .to("cudnn") first, or --to cudnn'
        )
    return weights
