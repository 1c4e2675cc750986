"""Choose, join and split the RNNs of a file, and pair the RNNs of two files, by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from rnnlayout._model.errors import Ask, FileError, Message
from rnnlayout._model.similar import unknown_name
from rnnlayout._model.spec import differing_fields
from rnnlayout._model.stack import stack
from rnnlayout._model.weights import Weights
from rnnlayout._native import LayoutError, SpecError
from rnnlayout._sources.read_source import read_source
from rnnlayout._sources.reading import Reading

from .file_rnns import Found, plain_name, with_rnns
from .record import Record

RNNNames = Sequence[str]

# A layer of nn.LSTM "encoder.rnn" in the ONNX models that torch writes: /encoder/rnn/LSTM_1
_TORCH_NODE = re.compile(r"/(?:(.*)/)?(LSTM|GRU|RNN)(?:_(\d{1,9}))?")
_NUMBERED = re.compile(r"(.+)_(\d{1,9})")


def choose_rnns(
    rnns: Found, only: RNNNames | None = None, stacks: Sequence[RNNNames] | None = None
) -> Found:
    """Return the RNNs of a file, joined to stacks, and only the RNNs with the given names.

    stacks: lists of names, as for join_rnns(). only: names of RNNs and stacks. RNNs that are not in
    `only` are not looked up, so they may be refused; the names are added to .unused. Raises
    FileError if a name does not exist."""
    for names in stacks or ():
        rnns = join_rnns(rnns, names)
    if only is None:
        return rnns
    check_names_exist(only, rnns.names, "only")
    chosen = with_rnns(rnns, {name: rnns[name] for name in only}, {})
    chosen.unused += tuple(name for name in rnns.names if name not in only)
    return chosen


def join_rnns(rnns: Found, names: RNNNames) -> Found:
    """Return the RNNs of a file with the named RNNs, bottom first, joined to a stack. The stack of
    enc_0 and enc_1 is named enc, or enc_0 if the name enc exists."""
    check_names_exist(names, rnns.names, "stack")
    name, whole = stack_and_layer(names[0])[0], stack([rnns[name] for name in names])
    separate = {key: weights for key, weights in rnns.items() if key not in names}
    if name in separate or name in rnns.unread:
        name = names[0]
    return with_rnns(rnns, {name: whole} | separate)


def check_names_exist(names: RNNNames, existing: Collection[str], argument: str) -> None:
    """Raise FileError if a name does not exist. argument: the argument with the names, for the
    message."""
    is_list = isinstance(names, Collection) and not isinstance(names, (str, bytes))
    if not is_list or not names or not all(isinstance(name, str) for name in names):
        if argument == "stack":
            why = f"stack has {names!r}, need lists of names: "
            raise FileError(why, Ask("stack", [["lower", "upper"]]))
        raise FileError(f"{argument} is {names!r}, need a list of names")
    for name in names:
        if name not in existing:
            listed = ", ".join(existing) or "no names"
            problem = f"no RNN is named {name!r}"
            listing = (Ask(argument), f" takes {listed}")
            raise FileError(unknown_name(problem, name, existing, *listing))


def stack_and_layer(name: str) -> tuple[str, int]:
    """Return the name of the stack, and the number of the layer, that a name may stand for.

    >>> [stack_and_layer(name) for name in ("/enc/LSTM_1", "/LSTM", "enc_1", "enc")]
    [('enc', 1), ('lstm', 0), ('enc', 1), ('enc', 0)]
    """
    if match := _TORCH_NODE.fullmatch(name):
        path: list[str] = []
        for part in (match[1] or match[2].lower()).split("/"):
            inside = path and part.startswith(f"{path[-1]}.")  # of a Sequential: /enc/enc.1/GRU
            path[-1 if inside else len(path) :] = [part]
        return ".".join(path), int(match[3] or 0)
    match = _NUMBERED.fullmatch(name)
    return (match[1], int(match[2])) if match else (name, 0)


def stack_layers_as_in(rnns: Found, model: Found) -> Found:
    """Stack the layers that `model` stores as one RNN. Layers are recognised by name: NAME_0,
    NAME_1 ..., or /NAME/LSTM, /NAME/LSTM_1 ... are the layers of NAME. If the model has a single
    RNN, and `rnns` only layers of a single RNN, the names need not match."""
    entries = dict(rnns)
    for name, layers in _layers_as_in(rnns, model).items():
        base = stack_and_layer(layers[0])[0]
        name = name if plain_name(base) == plain_name(name) else base
        if name not in rnns.unread:
            entries = stack_entries(entries, layers, name)
    return with_rnns(rnns, entries)


def split_layers_as_in(
    rnns: Found, model: Found, name_map: Mapping[str, str] | None = None
) -> tuple[Found, dict[str, str]]:
    """Split the RNNs that `model` stores layer by layer, and name the layers as the model does.
    Return the result, and the pairs in `name_map` whose RNN was not split. Layers are recognised as
    in stack_layers_as_in(). name_map: as for match_names()."""
    entries, name_map = dict[str, Weights](), name_map or {}
    layers = _layers_as_in(model, rnns, name_map)
    for name, weights in rnns.items():
        if name_map.get(name, name) in model.names:
            layers.pop(name, None)
        if name in layers:
            entries |= zip(layers[name], weights.split(), strict=True)
        else:
            entries[name] = weights
    remaining = {name: target for name, target in name_map.items() if name not in layers}
    return with_rnns(rnns, entries), remaining


def _layers_as_in(
    single_layers: Found, stacks: Found, name_map: Mapping[str, str] | None = None
) -> dict[str, list[str]]:
    """Return name in `stacks` -> names of the layers in `single_layers`, bottom first, for each RNN
    whose layers exist. name_map: names in `stacks` -> names of stacks of `single_layers`."""
    layers: dict[str, dict[int, str]] = {}
    for layer, weights in single_layers.items():
        base, k = stack_and_layer(layer)
        if weights.spec.num_layers == 1:
            layers.setdefault(plain_name(base), {})[k] = layer
    alone = len(stacks) == len(layers) == 1 and not (stacks.unread or single_layers.unread)
    names = {}
    for name, whole in stacks.items():
        count = whole.spec.num_layers
        same = layers.get(plain_name((name_map or {}).get(name, name)), {})
        if alone and len(single_layers) == count:
            (same,) = layers.values()
        if count > 1 and all(k in same for k in range(count)):
            names[name] = [same[k] for k in range(count)]
    return names


def stack_entries(entries: dict[str, Weights], layers: list[str], name: str) -> dict[str, Weights]:
    """Join the layers to one RNN; return the entries unchanged if layers are missing or do not
    fit."""
    taken = name in entries and name not in layers
    if taken or layers == [name] or not set(layers) <= entries.keys():
        return entries
    try:
        whole = stack(entries[layer] for layer in layers)
    except LayoutError:
        return entries
    bottoms = {key: weights for key, weights in entries.items() if key not in layers[1:]}
    return {
        name if key == layers[0] else key: whole if key == layers[0] else weights
        for key, weights in bottoms.items()
    }


def as_recorded(weights: Weights, record: Record) -> Weights:
    """Return the weights with the recorded spec, unless the file was changed since. The record has
    facts that models lack: cuDNN's bias mode, and skip_input."""
    spec = weights.spec
    if (
        spec == record.spec
        or differing_fields(spec, record.spec)
        or spec.dtype != record.spec.dtype
    ):
        return weights
    try:
        return read_source(weights, Reading(record.spec))
    except (LayoutError, SpecError):
        return weights


def match_names(a: Found, b: Found, name_map: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return name in `a` -> name in `b`, for each RNN that both sides have.

    name_map: pairs of the caller. Further RNNs are paired if the names are equal, then if the names
    differ only in the notation of their formats (`/enc/LSTM`, in Keras `_enc_LSTM`; `enc.rnn`,
    `enc_rnn`, `/enc/rnn/LSTM`). If each side has a single RNN, names do not matter. Raises
    FileError if a name in `name_map` does not exist."""
    pairs = dict(name_map or {})
    for side, names, rnns in (("a", pairs, a), ("b", pairs.values(), b)):
        for name in names:
            if name not in rnns.readable:
                pairs_text = f" pairs names of a with names of b: {side} has no RNN {name!r}"
                problem = Message(Ask("map"), pairs_text)
                listing = f"it has {', '.join(rnns.readable)}"
                raise FileError(unknown_name(problem, name, rnns.readable, listing))
    if not pairs and len(a.names) == len(b.names) == 1:
        return {a.names[0]: b.names[0]}

    def plain_module(name: str) -> str:
        return plain_name(stack_and_layer(name)[0] if _TORCH_NODE.fullmatch(name) else name)

    for key in (str, plain_name, plain_module):
        paired_b = set(pairs.values())
        unpaired_a = _unique_keys(key, (x for x in a.readable if x not in pairs))
        unpaired_b = _unique_keys(key, (y for y in b.readable if y not in paired_b))
        pairs |= {x: unpaired_b[same] for same, x in unpaired_a.items() if same in unpaired_b}
    return {x: pairs[x] for x in a.readable if x in pairs}


def _unique_keys(key: Callable[[str], str], names: Iterable[str]) -> dict[str, str]:
    """Return key -> name, without names that share a key."""
    names_by_key: dict[str, list[str]] = {}
    for name in names:
        names_by_key.setdefault(key(name), []).append(name)
    return {same: group[0] for same, group in names_by_key.items() if len(group) == 1}
