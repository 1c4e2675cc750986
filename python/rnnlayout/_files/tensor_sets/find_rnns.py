"""Find the RNNs among many named tensors, and compare what the caller says with what the file says.

What neither says is assumed: options of Keras's layers, which a file of weights alone lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from reprlib import repr as short
from typing import Any

import numpy as np

from rnnlayout._model.checked_rnn import checked_rnn_of
from rnnlayout._model.config import SETTINGS
from rnnlayout._model.dtypes import Bits
from rnnlayout._model.errors import Ask, FileError, Message, TextPart, error_with_name, join_parts
from rnnlayout._model.layout import CUDNN
from rnnlayout._model.spec import CELLS, Spec
from rnnlayout._model.undecided import UndecidedError
from rnnlayout._native import LayoutError, SpecError
from rnnlayout._sources import torch_names
from rnnlayout._sources.candidates import is_one_vector
from rnnlayout._sources.keras_tree import short_repr
from rnnlayout._sources.read_source import read_source
from rnnlayout._sources.reading import Reading, check_fields
from rnnlayout._sources.reading_options import ACTIVATIONS
from rnnlayout._sources.tensor_paths import KERAS, is_under_with_direction
from rnnlayout._weights.weights import Weights, weights_of

from .file_rnns import Found, distinct_names, entry_name, with_rnns
from .record import Record
from .rnn_places import RNNPlace, find_places
from .tensor_set import FileTensor, ModuleClass, TensorSet

_MOST_LAYERS = 4  # times the tensors of a file: of a layer some may have been removed


@dataclass(frozen=True)
class TensorGroup:
    """The tensors of one RNN, or of what looks like one.

    entry: the RNN's name. prefix: what the names of its tensors have before the layout's own names,
    with the separator. names: the names of its tensors in the file. weights: the RNN, or the error
    that says why it cannot be read. notes: how unusual names were understood."""

    entry: str
    prefix: str
    names: tuple[str, ...]
    weights: Weights | ValueError
    notes: tuple[str, ...] = ()


def find_rnns(
    tensor_set: TensorSet, reading: Reading, records: Mapping[str, Record]
) -> tuple[list[TensorGroup], Found]:
    """Return all RNNs among the tensors of a file, in their order: recorded ones, and those found
    by name; and the same as load() returns it."""
    # what was not read is named among the tensors, where one may be missing
    nothing = np.empty(0, np.uint8)
    unread = {name: FileTensor.of(nothing, kind) for name, kind in tensor_set.skipped.items()}
    tensors = tensor_set.tensors | unread
    plain = torch_names.plain_names(tuple(tensors))

    def stored(name: str) -> Bits:
        return Bits(tensors[name].bits(), tensors[name].dtype)

    def computed_bits(one: torch_names.ComputedWeight) -> np.ndarray:
        return one.bits(stored).array

    known = {name: tensors[names[0]] for name, names in plain.sources.items()}
    for name, one in plain.computed.items():
        like = tensors[one.like]
        known[name] = FileTensor(like.dtype, like.shape, partial(computed_bits, one))
    groups = [
        _with_stored_names(group, plain, tensors)
        for group in _find_groups(
            known,
            replace(reading, prefix=plain.name(reading.prefix)),
            {key: replace(one, prefix=plain.name(one.prefix)) for key, one in records.items()},
            {plain.name(path): one for path, one in tensor_set.modules.items()},
        )
    ]
    weights = {group.entry: group.weights for group in groups}
    names = {name for group in groups for name in group.names}
    silent = [group.weights for group in groups if group.entry not in records]
    notes = [note for group in groups for note in group.notes]
    return groups, Found(
        {entry: one for entry, one in weights.items() if isinstance(one, Weights)},
        {entry: one for entry, one in weights.items() if not isinstance(one, Weights)},
        [*tensor_set.notes, *plain.notes, *notes, *note_assumptions(silent, reading)],
        [name for name in tensor_set.tensors if name not in names],
    )


def _with_stored_names(
    group: TensorGroup, plain: torch_names.PlainNames, tensors: Mapping[str, FileTensor]
) -> TensorGroup:
    if not group.names:
        return group
    first, prefix = group.names[0], group.prefix
    if first.startswith(prefix):  # false for abbreviated names
        prefix = plain.stored_prefix(first, first[len(prefix) :])
    computed = {name: plain.computed[name] for name in group.names if name in plain.computed}
    weights = group.weights
    if isinstance(weights, Weights):
        rounded = tuple(name for name, one in computed.items() if one.rounds)
        weights = weights_of(weights, rounded=rounded)
    return replace(
        group,
        weights=weights,
        prefix=prefix,
        names=tuple(stored for name in group.names for stored in plain.sources[name]),
        notes=(*group.notes, *(one.note(tensors[one.like].dtype) for one in computed.values())),
    )


def _find_groups(
    tensors: Mapping[str, FileTensor],
    reading: Reading,
    records: Mapping[str, Record],
    classes: Mapping[str, ModuleClass],
) -> list[TensorGroup]:
    deep = [one.spec.num_layers for one in records.values() if not is_one_vector(one.layout)]
    layers = sum(min(n, len(tensors)) for n in deep)  # whose names are looked for
    if layers > _MOST_LAYERS * len(tensors):
        raise FileError(
            f"its metadata describes {len(deep)} RNNs of {max(deep)} layers and fewer, which needs"
            f" more than its {len(tensors)} tensors"
        )
    recorded = []
    for entry, one in records.items():
        weights: Weights | ValueError = LayoutError(
            f"{entry}: the file's metadata describes {one.spec} in layout {one.layout}, but tensors"
            " of it are missing: the file was changed after rnnlayout wrote it"
        )
        if names := one.names(tensors):
            weights = _read_rnn(tensors, names, entry, Reading(one.spec, one.layout))
        if isinstance(weights, Weights):
            weights = weights_of(weights, config=one.config, batch_first=one.batch_first)
        recorded.append(TensorGroup(entry, one.prefix, tuple(names.values()), weights))
    taken = {name for group in recorded for name in group.names}
    places = find_places(
        [name for name in tensors if name not in taken], reading.layout, reading.prefix
    )
    found = [
        _group_at_place(tensors, place, reading, classes, len(places) == 1) for place in places
    ]
    entries = distinct_names([group.entry for group in found], taken=records)
    found = [replace(group, entry=entry) for group, entry in zip(found, entries, strict=True)]
    groups = [
        group for group in recorded + found if is_under_with_direction(group.prefix, reading.prefix)
    ]
    order = {name: k for k, name in enumerate(tensors)}
    groups.sort(key=lambda g: min((order[name] for name in g.names), default=0))
    return groups


def _group_at_place(
    tensors: Mapping[str, FileTensor],
    place: RNNPlace,
    reading: Reading,
    classes: Mapping[str, ModuleClass],
    alone: bool,
) -> TensorGroup:
    entry = entry_name(place.entry, None)
    path = place.prefix.rstrip(".")
    while classes and path and path not in classes:  # the module, or the nearest one around it
        path = path.rpartition(".")[0]
    module = classes.get(path)
    told = {"cell": module.fields["cell"]} if module and "cell" in module.fields else {}
    # of several RNNs, cell and reset concern those that do not show them
    first = {key: value for key, value in reading.fields.items() if alone or key in ACTIVATIONS}
    weights = _read_rnn(tensors, place.names, entry, replace(reading, fields=first | told))
    if isinstance(weights, UndecidedError) and not alone:
        whole = replace(reading, fields={**reading.fields, **told})
        more = _read_rnn(tensors, place.names, entry, whole)
        weights = weights if isinstance(more, LayoutError) else more  # meant for another RNN
    if isinstance(weights, Weights):
        entry = entry_name(place.entry, weights.spec)
        if module is not None:
            weights = _as_module_says(weights, module, entry, reading)
    names = tuple(place.names.values())
    notes = (f"{', '.join(names)} taken as {', '.join(place.names)}",) if place.short else ()
    return TensorGroup(entry, place.prefix, names, weights, notes)


def _as_module_says(
    weights: Weights, module: ModuleClass, entry: str, reading: Reading
) -> Weights | ValueError:
    """Return weights with what their module says about them, or why they cannot be read."""
    spec, own = weights.spec, module.name.rpartition(".")[2]
    kind = spec.cell.partition("_")[0].upper() + "Cell" * (weights.layout.name == "torch-cell")
    if not module.is_torch and (reading.as_class or {}).get(own) != kind:
        what = f"class {short_repr(module.name)}, read as {kind}"
        return unknown_class_question(entry, weights, what, {own: kind})
    found = {name: getattr(spec, name) for name in module.fields} | {"bias": spec.bias != "none"}
    wrong = [name for name, value in module.fields.items() if value != found[name]]
    if wrong:
        told = ", ".join(f"{name} {short(module.fields[name])}" for name in wrong)
        have = ", ".join(f"{name} {found[name]}" for name in wrong)
        return LayoutError(f"{entry}: its module has {told}, its tensors are of {have}")
    return weights_of(weights, batch_first=module.batch_first)


def _read_rnn(
    tensors: Mapping[str, FileTensor], names: Mapping[str, str], entry: str, reading: Reading
) -> Weights | ValueError:
    """Return the RNN, or the error that names the entry. names: the layout's name of each tensor ->
    its name in the file."""
    try:
        source: Any = {name: tensors[stored].floats(stored) for name, stored in names.items()}
        if list(names) == ["weight_space"]:
            source = source["weight_space"]
            reading = replace(reading, layout=reading.layout or CUDNN)
        elif all(name.isdigit() for name in names):
            source = list(source.values())
        return weights_of(read_source(source, replace(reading, prefix="")))
    except ValueError as error:
        return error_with_name(error, entry)


# ----------------------------------------------------------------------------- what the caller says

# Keras's, and those of a Spec: there they may be only the defaults, so they answer nothing.
DEFAULT_ACTIVATIONS = {"activation": "tanh", "recurrent_activation": "sigmoid"}


def apply_reading(found: Found, reading: Reading) -> Found:
    """Return the RNNs with the caller's spec; those that it contradicts are refused.

    cell and reset concern the RNNs that do not record them, so in a file with several RNNs they
    contradict none. The bias mode and skip_input are cuDNN's: of another layout they are the
    caller's choice."""
    count = len(found.names)
    entries, unread = {}, found.unread
    for name, weights in found.items():
        spec, own = reading.spec, weights.spec
        names = ["cell", "reset"] if count == 1 else []
        names += ACTIVATIONS if CELLS[own.cell].is_gated else []
        concerned = {key: value for key, value in reading.fields.items() if key in names}
        try:
            if reading.layout not in (None, weights.layout):
                raise LayoutError(
                    f"the file has it in layout {weights.layout}, not {reading.layout}: omit ",
                    Ask("layout", None),
                )
            check_fields(concerned, own, "the file")
            if spec is not None and spec != own:
                _check_spec(spec, weights, reading)
                as_spec = Reading(spec.replace(dtype=own.dtype))
                weights = weights_of(read_source(weights, as_spec))
            entries[name] = weights
        except (LayoutError, SpecError) as error:
            unread[name] = error_with_name(error, name)
    return with_rnns(found, entries, unread)


def _check_spec(spec: Spec, weights: Weights, reading: Reading) -> None:
    """Raise SpecError if the caller's spec describes another RNN than the weights."""
    asked, own = asdict(spec), asdict(weights.spec)
    free = set() if weights.layout.name == "cudnn" else {"bias", "skip_input"}
    free |= {"dtype"} if reading.dtype is not None else set()
    wrong = [field for field in own if own[field] != asked[field] and field not in free]
    if wrong:
        convert = [", and pass ", Ask("dtype"), " to convert to another dtype"]
        raise SpecError(
            f"the file has {', '.join(f'{field} {own[field]}' for field in wrong)}, the spec has"
            f" {', '.join(f'{field} {asked[field]}' for field in wrong)}: omit ",
            Ask("spec", None),
            *(convert if "dtype" in wrong else ()),
        )


def unknown_class_question(
    name: str, weights: Weights, what: str, as_class: Mapping[str, str]
) -> UndecidedError:
    """Return the error that asks whether classes may be read as the RNNs that they look like. what:
    these classes, in words. as_class: what to pass if they may."""
    repair = Message(Ask("as_class", dict(as_class)))
    return UndecidedError(
        f"{name}: {what}: the file does not show what another class computes; if it computes"
        " the same from its weights, pass ",
        repair,
        candidates=[checked_rnn_of(weights)],
        arguments=["as_class"],
        reason=what,
        repair=repair,
    )


def note_assumptions(entries: Iterable[object], reading: Reading) -> list[str]:
    """Return a note on the options that are assumed of RNNs in Keras's layouts; [] without any.
    entries: the RNNs, or their errors, that a file has without a config and without a record of
    rnnlayout."""
    found = [one for one in entries if isinstance(one, Weights) and one.layout.name in KERAS]
    if not found:
        return []
    # a Spec of the caller may have another activation: then it is not assumed
    gated = [o.spec for o in found if o.layout.name == "keras" and CELLS[o.spec.cell].is_gated]
    asked = [
        key
        for key, default in DEFAULT_ACTIVATIONS.items()
        if key not in reading.fields and any(getattr(spec, key) == default for spec in gated)
    ]
    assumed = [f"{key.replace('_', ' ')} {DEFAULT_ACTIVATIONS[key]}" for key in asked]
    for key, facts in SETTINGS.items():
        is_keras = facts.changes_a_call and "keras" in facts.layouts
        if is_keras and any(facts.suits(weights.spec) for weights in found):
            assumed.append(f"{key}={facts.neutral_value(facts.directions or 1)!r}")
    repair: list[TextPart] = ["pass ", join_parts(", ", map(Ask, asked)), " or "] if asked else []
    text = f"the file lacks Keras's config: {', '.join(assumed)} assumed; for others "
    return [Message(text, *repair, "set weights.config in Python").text]
