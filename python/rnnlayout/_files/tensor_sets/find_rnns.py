"""Find the RNNs among named tensors, and compare the caller's arguments with the file.

Options of Keras's layers that neither caller nor file states are assumed, with a note: a file of
weights alone lacks the options.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from reprlib import repr as short
from typing import Any, NoReturn

import numpy as np

from rnnlayout._model.assumed import AssumedSettings
from rnnlayout._model.config import SETTINGS
from rnnlayout._model.dtypes import Bits
from rnnlayout._model.errors import Ask, FileError, Message, TextPart, error_with_name, join_parts
from rnnlayout._model.kinds import Kind
from rnnlayout._model.layout import CUDNN, Layout
from rnnlayout._model.reading_options import ACTIVATIONS
from rnnlayout._model.spec import CELLS, Spec
from rnnlayout._model.undecided import UndecidedError
from rnnlayout._model.weights import Weights, changed_weights
from rnnlayout._native import LayoutError, SpecError
from rnnlayout._sources import mismatch, torch_names
from rnnlayout._sources.accounting import is_ignored, switched_off
from rnnlayout._sources.candidates import is_one_vector
from rnnlayout._sources.keras_tree import short_repr
from rnnlayout._sources.read_source import read_source
from rnnlayout._sources.reading import Reading, check_fields
from rnnlayout._sources.tensor_paths import KERAS, is_under_with_direction

from .account import RNNTensors, account_for_tensors
from .file_limits import BudgetError
from .file_rnns import (
    AssumedNote,
    Found,
    arrays_in_vector,
    distinct_names,
    entry_name,
    with_rnns,
)
from .record import Record
from .rnn_places import RNNPlace, find_places
from .tensor_set import FileTensor, ModuleClass, TensorSet

# TF 1's cell for weights of cuDNN; other cells of TF 1 add 1 to the forget bias by default.
_WITHOUT_FORGET_BIAS = "cudnn_compatible_lstm_cell"
_BATCH_FIRST = (*KERAS, "mlx")  # layouts of layers that read x as (N, T, I), but for time_major
_MOST_LAYERS = 4  # per tensor of a file: some tensors of a layer may have been removed


@dataclass(frozen=True)
class TensorGroup:
    """The tensors of an RNN, or of a set of tensors that looks like an RNN.

    entry: the RNN's name. prefix: the part of the tensors' names before the names in the layout,
    with the separator. names: the names of the tensors in the file. weights: the RNN, or the error
    if the RNN cannot be read. notes: how unusual names were understood. path: the prefix without
    the name of a cell. is_known_class: whether the RNN is a module of torch's own class, which
    computes nothing from further tensors."""

    entry: str
    prefix: str
    names: tuple[str, ...]
    weights: Weights | Exception
    notes: tuple[str, ...] = ()
    path: str = ""
    is_known_class: bool = False


def find_rnns(
    tensor_set: TensorSet, reading: Reading, records: Mapping[str, Record]
) -> tuple[list[TensorGroup], Found]:
    """Find all RNNs among the tensors of a file: RNNs with a record, and RNNs with the names of
    tensors of a layout. Return the group of tensors of each RNN, in the order of the file, and the
    result of load()."""
    # with skipped objects and tensors of other files among the tensors, the error of an incomplete
    # RNN names the object or the file
    reasons = {name: tensor_set.why_skipped(name) for name in tensor_set.skipped}
    unread = {
        name: FileTensor("float32", (), partial(_raise_file_error, why))
        for name, why in {**reasons, **tensor_set.elsewhere}.items()
    }
    off = switched_off(tensor_set.tensors, lambda name: _is_one_zero(tensor_set.tensors[name]))
    off |= {name for optimizer in tensor_set.optimizers for name in optimizer.taken}
    tensors = {
        name: tensor
        for name, tensor in (tensor_set.tensors | unread).items()
        if name not in off and not is_ignored(name, reading.ignore)
    }
    plain = torch_names.plain_names(tuple(tensors), reading.layout)

    def stored(name: str) -> Bits:
        return Bits(tensors[name].bits(), tensors[name].dtype)

    def computed_bits(weight: torch_names.ComputedWeight) -> np.ndarray:
        return weight.bits(stored).array

    plain_tensors = {name: tensors[names[0]] for name, names in plain.sources.items()}
    for name, weight in plain.computed.items():
        like = tensors[weight.like]
        plain_tensors[name] = FileTensor(
            like.dtype, like.shape, partial(computed_bits, weight), budget=like.budget
        )
    groups = [
        _restore_stored_names(group, plain, tensors, reading.kind)
        for group in _find_groups(
            plain_tensors,
            replace(reading, prefix=plain.name(reading.prefix)),
            {
                entry: replace(record, prefix=plain.name(record.prefix))
                for entry, record in records.items()
            },
            {plain.name(path): module for path, module in tensor_set.modules.items()},
        )
    ]
    names = {name for group in groups for name in group.names}
    places = {
        group.entry: RNNTensors(group.path, group.names)
        for group in groups
        if not group.is_known_class
    }
    read = {group.entry: group.weights for group in groups}
    results, account_notes = account_for_tensors(tensors, names, places, read, tensor_set.roots)
    groups = [replace(group, weights=results[group.entry]) for group in groups]
    unrecorded = [group.weights for group in groups if group.entry not in records]
    notes = [note for group in groups for note in group.notes]
    shapes = {name: t.shape for name, t in tensor_set.tensors.items() if name not in names}
    return groups, Found(
        {entry: result for entry, result in results.items() if isinstance(result, Weights)},
        {entry: result for entry, result in results.items() if not isinstance(result, Weights)},
        [
            *tensor_set.notes,
            *plain.notes,
            *notes,
            *account_notes,
            *assume_keras_options(unrecorded, reading),
            *_assume_axes(unrecorded),
        ],
        shapes,
        shapes=shapes,
    )


def _assume_axes(results: Iterable[object]) -> list[str]:
    """Assume the axes of RNNs in Keras's layouts; return a note, if there are any."""
    keras_rnns = [w for w in results if isinstance(w, Weights) and w.layout.name in KERAS]
    for weights in keras_rnns:
        weights.assumed.settings["time_major"] = False
    if not keras_rnns:
        return []
    note = Message(
        "the file does not record time_major: x of its Keras layers is taken as (N, T, I); with"
        " time_major=True run them with ",
        Ask("batch_first", False),
    )
    return [AssumedNote(note.text)]


def _is_one_zero(tensor: FileTensor) -> bool:
    return math.prod(tensor.shape) == 1 and not tensor.bits().any()


def _raise_file_error(why: str) -> NoReturn:
    raise FileError(why)


def _restore_stored_names(
    group: TensorGroup,
    plain: torch_names.PlainNames,
    tensors: Mapping[str, FileTensor],
    kind: Kind,
) -> TensorGroup:
    if not group.names:
        return group
    first, prefix = group.names[0], group.prefix
    if first.startswith(prefix):  # false for abbreviated names
        prefix = plain.stored_prefix(first, first[len(prefix) :])
    computed = {name: plain.computed[name] for name in group.names if name in plain.computed}
    weights = group.weights
    if isinstance(weights, Weights) and computed and kind != "weights":
        name = next(iter(computed))
        weights = mismatch.gradients_of_parts(name, plain.sources[name])
    elif isinstance(weights, Weights):
        rounded = tuple(name for name, weight in computed.items() if weight.rounds)
        weights = changed_weights(weights, rounded=rounded)
    return replace(
        group,
        weights=weights,
        prefix=prefix,
        path=prefix[: len(prefix) - (len(group.prefix) - len(group.path))],
        names=tuple(stored for name in group.names for stored in plain.sources[name]),
        notes=(
            *group.notes,
            *filter(
                None, (weight.note(tensors[weight.like].dtype) for weight in computed.values())
            ),
        ),
    )


def _find_groups(
    tensors: Mapping[str, FileTensor],
    reading: Reading,
    records: Mapping[str, Record],
    classes: Mapping[str, ModuleClass],
) -> list[TensorGroup]:
    depths = [
        record.spec.num_layers for record in records.values() if not is_one_vector(record.layout)
    ]
    layers = sum(min(n, len(tensors)) for n in depths)  # layers to look up by name
    if layers > _MOST_LAYERS * len(tensors):
        raise FileError(
            f"its metadata describes {len(depths)} RNNs of {max(depths)} layers and fewer, which"
            f" needs more than its {len(tensors)} tensors"
        )
    recorded = []
    for entry, record in records.items():
        weights: Weights | ValueError = LayoutError(
            f"{entry}: the file's metadata describes {record.spec} in layout {record.layout}, but"
            " tensors of it are missing: the file was changed after rnnlayout wrote it"
        )
        if names := record.names(tensors):
            record_reading = Reading(record.spec, record.layout, kind=record.kind)
            weights = _read_rnn(tensors, names, entry, record_reading)
        if isinstance(weights, Weights):
            weights = changed_weights(weights, config=record.config, batch_first=record.batch_first)
        path = record.prefix.rstrip("./")
        recorded.append(
            TensorGroup(entry, record.prefix, tuple(names.values()), weights, path=path)
        )
    taken = {name for group in recorded for name in group.names}
    places = find_places(
        [name for name in tensors if name not in taken], reading.layout, reading.prefix
    )
    unrecorded = [
        _group_at_place(tensors, place, reading, classes, len(places) == 1) for place in places
    ]
    entries = distinct_names([group.entry for group in unrecorded], taken=records)
    unrecorded = [
        replace(group, entry=entry) for group, entry in zip(unrecorded, entries, strict=True)
    ]
    groups = [
        group
        for group in recorded + unrecorded
        if is_under_with_direction(group.prefix, reading.prefix)
    ]
    order = {name: k for k, name in enumerate(tensors)}
    groups.sort(key=lambda group: min((order[name] for name in group.names), default=0))
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
    while classes and path and path not in classes:  # the module, or the nearest outer module
        path = path.rpartition(".")[0]
    module = classes.get(path)
    notes = [f"{', '.join(place.names.values())} taken as {', '.join(place.names)}"] * place.short
    if place.side:
        notes.append(note_one_direction(entry, place.side))
    if _WITHOUT_FORGET_BIAS in place.prefix.split("/") and reading.layout == Layout("tf1"):
        reading = replace(reading, layout=Layout("tf1", forget_bias=0.0))
        notes.append(f"{entry}: a {_WITHOUT_FORGET_BIAS} adds nothing to the forget bias")
    from_module = {"cell": module.fields["cell"]} if module and "cell" in module.fields else {}
    # of several RNNs, cell and reset concern only RNNs that lack them
    concerned = {key: value for key, value in reading.fields.items() if alone or key in ACTIVATIONS}
    weights = _read_rnn(
        tensors, place.names, entry, replace(reading, fields=concerned | from_module)
    )
    if isinstance(weights, UndecidedError) and not alone:
        all_fields = replace(reading, fields={**reading.fields, **from_module})
        reread = _read_rnn(tensors, place.names, entry, all_fields)
        weights = weights if isinstance(reread, LayoutError) else reread  # meant for another RNN
    if isinstance(weights, Weights):
        entry = entry_name(place.entry, weights.spec)
        if weights.layout.name in _BATCH_FIRST:
            weights = changed_weights(weights, batch_first=True)
        if module is not None:
            weights = _check_against_module(weights, module, entry, reading)
    names = tuple(place.names.values())
    # the linear layers of a quantizable LSTM may quantize
    is_known_class = module is not None and module.is_torch and "quantizable" not in module.name
    return TensorGroup(
        entry, place.prefix, names, weights, tuple(notes), place.entry, is_known_class
    )


def _check_against_module(
    weights: Weights, module: ModuleClass, entry: str, reading: Reading
) -> Weights | ValueError:
    """Return weights with the facts that the module records, or the error if the facts differ or
    the class is unknown."""
    spec, class_name = weights.spec, module.name.rpartition(".")[2]
    class_read = spec.cell.partition("_")[0].upper() + "Cell" * (
        weights.layout.name == "torch-cell"
    )
    if not module.is_torch and (reading.as_class or {}).get(class_name) != class_read:
        hook = f" with the forward hook {short_repr(module.hook)}" if module.hook else ""
        description = f"class {short_repr(module.name)}{hook}, read as {class_read}"
        return unknown_class_question(entry, weights, description, {class_name: class_read})
    actual = {name: getattr(spec, name) for name in module.fields} | {"bias": spec.bias != "none"}
    wrong = [name for name, value in module.fields.items() if value != actual[name]]
    if wrong:
        recorded = ", ".join(f"{name} {short(module.fields[name])}" for name in wrong)
        present = ", ".join(f"{name} {actual[name]}" for name in wrong)
        return LayoutError(f"{entry}: its module has {recorded}, its tensors are of {present}")
    return changed_weights(weights, batch_first=module.batch_first)


def _read_rnn(
    tensors: Mapping[str, FileTensor], names: Mapping[str, str], entry: str, reading: Reading
) -> Weights | ValueError:
    """Return the RNN, or an error with the name of the entry. names: name in the layout -> name in
    the file."""
    try:
        arrays = arrays_in_vector(reading.spec) if len(names) == 1 else 1
        source: Any = {n: tensors[stored].floats(stored, arrays) for n, stored in names.items()}
        if list(names) == ["weight_space"]:
            source = source["weight_space"]
            reading = replace(reading, layout=reading.layout or CUDNN)
        elif all(name.isdigit() for name in names):
            source = list(source.values())
        return read_source(source, replace(reading, prefix=""))
    except BudgetError as error:
        raise error_with_name(error, entry) from None
    except ValueError as error:
        return error_with_name(error, entry)


# ------------------------------------------------------------------------- the caller's arguments

# The defaults of Keras and of Spec: with these, the caller may have chosen nothing.
DEFAULT_ACTIVATIONS = {"activation": "tanh", "recurrent_activation": "sigmoid"}


def apply_reading(rnns: Found, reading: Reading) -> Found:
    """Apply the caller's spec to the RNNs; refuse the RNNs that contradict the arguments.

    In a file with several RNNs, cell and reset are meant for RNNs without a recorded cell or reset,
    so a recorded cell or reset contradicts neither argument. Options of a layout that the caller
    does not name are those of the file, such as the forget bias of TF 1. Only cuDNN has a bias mode
    and skip_input: in a layout without these fields, the caller may choose."""
    count = len(rnns.names)
    entries, unread = {}, rnns.unread
    for name, weights in rnns.items():
        spec, file_spec = reading.spec, weights.spec
        names = ["cell", "reset"] if count == 1 else []
        names += ACTIVATIONS if CELLS[file_spec.cell].is_gated else []
        concerned = {key: value for key, value in reading.fields.items() if key in names}
        try:
            if reading.layout is not None and not _names(reading.layout, weights.layout):
                raise LayoutError(
                    f"the file has it in layout {weights.layout}, not {reading.layout}: omit ",
                    Ask("layout", None),
                )
            check_fields(concerned, file_spec, "the file")
            if spec is not None and spec != file_spec:
                _check_spec(spec, weights, reading)
                as_spec = Reading(spec.replace(dtype=file_spec.dtype), kind=weights.kind)
                weights = read_source(weights, as_spec)
            entries[name] = weights
        except (LayoutError, SpecError) as error:
            unread[name] = error_with_name(error, name)
    return with_rnns(rnns, entries, unread)


def _names(caller_layout: Layout, layout: Layout) -> bool:
    """Return whether the caller names a layout, with all of its options or some."""
    is_same = (caller_layout.name, caller_layout.json) == (layout.name, layout.json)
    return is_same and {*caller_layout.options} <= {*layout.options}


def _check_spec(spec: Spec, weights: Weights, reading: Reading) -> None:
    """Raise SpecError if the caller's spec differs from the spec of the weights."""
    caller_fields, file_fields = asdict(spec), asdict(weights.spec)
    free = set() if weights.layout.name == "cudnn" else {"bias", "skip_input"}
    free |= {"dtype"} if reading.dtype is not None else set()
    differing = [
        field
        for field in file_fields
        if file_fields[field] != caller_fields[field] and field not in free
    ]
    if differing:
        convert = [", and pass ", Ask("dtype"), " to convert to another dtype"]
        in_file = ", ".join(f"{field} {file_fields[field]}" for field in differing)
        in_spec = ", ".join(f"{field} {caller_fields[field]}" for field in differing)
        raise SpecError(
            f"the file has {in_file}, the spec has {in_spec}: omit ",
            Ask("spec", None),
            *(convert if "dtype" in differing else ()),
        )


def unknown_class_question(
    name: str, weights: Weights, description: str, as_class: Mapping[str, str]
) -> ValueError:
    """Return the error that asks whether to read classes as the RNNs that the classes resemble, or
    that refuses a class that is known to compute something else. description: the classes, for the
    message. as_class: the argument to pass if so."""
    for class_name, class_read in as_class.items():
        if error := mismatch.other_cell(class_name, class_read):
            return error_with_name(error, name)
    repair = Message(Ask("as_class", dict(as_class)))
    return UndecidedError(
        f"{name}: {description}: the file does not show what another class computes; if it computes"
        " the same from its weights, pass ",
        repair,
        candidates=[weights],
        arguments=["as_class"],
        reason=description,
        repair=repair,
    )


def note_one_direction(name: str, side: str) -> str:
    """Return the note on an RNN that is one direction of a Bidirectional. side: forward or
    backward."""
    return (
        f"{name}: by its names, the {side} direction of a bidirectional RNN; the other direction is"
        " not in the file: read as an RNN of one direction"
    )


def assume_keras_options(
    entries: Iterable[object], reading: Reading, options: tuple[str, ...] = ()
) -> list[str]:
    """Assume the options of RNNs in Keras's layouts that the caller does not name; return a note on
    them, [] if no option is assumed. entries: RNNs, or errors, without a config and without a
    record of rnnlayout. options: options of load() that name the config as a whole."""
    assumed: dict[str, Any] = {}
    for weights in entries:
        if isinstance(weights, Weights) and weights.layout.name in KERAS:
            weights.assumed.settings.update(_unnamed_options(weights, reading))
            weights.assumed.options = options
            assumed |= weights.assumed.settings
    if not assumed:
        return []
    names = [key for key in (*DEFAULT_ACTIVATIONS, *SETTINGS) if key in assumed]
    activations = [key for key in names if key not in SETTINGS]
    settings = AssumedSettings({key: assumed[key] for key in names})
    repair: list[TextPart] = []
    if activations:
        repair = ["pass ", join_parts(", ", map(Ask, activations)), " or "]
    text = f"the file lacks Keras's config: {settings} assumed; for others "
    return [AssumedNote(Message(text, *repair, "set weights.config in Python").text)]


def _unnamed_options(weights: Weights, reading: Reading) -> dict[str, Any]:
    """Return the options of an RNN in a layout of Keras that neither its file nor the caller names,
    with their defaults. An activation that is not the default comes from the caller's Spec."""
    spec, options = weights.spec, dict[str, Any]()
    if weights.layout.name == "keras" and CELLS[spec.cell].is_gated:
        options = {
            key: default
            for key, default in DEFAULT_ACTIVATIONS.items()
            if key not in reading.fields and getattr(spec, key) == default
        }
    for key, facts in SETTINGS.items():
        if key == "zero_output_for_mask":
            continue  # nothing without a mask
        if facts.changes_a_call and "keras" in facts.layouts and facts.suits(spec):
            options[key] = facts.neutral_value(facts.directions or 1)
    return options
