"""Which RNNs of a file the caller asks for, and which RNNs of two files are the same: by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from rnnlayout._model.errors import Ask, FileError
from rnnlayout._model.similar import did_you_mean
from rnnlayout._model.spec import differing_fields
from rnnlayout._native import LayoutError, SpecError
from rnnlayout._sources.read_source import read_source
from rnnlayout._sources.reading import Reading
from rnnlayout._weights.weights import Weights, stack, weights_of

from .file_rnns import Found, plain_name, with_rnns
from .record import Record

RNNNames = Sequence[str]

# A layer of nn.LSTM "encoder.rnn" in the ONNX models that torch writes: /encoder/rnn/LSTM_1
_TORCH_NODE = re.compile(r"/(?:(.*)/)?(LSTM|GRU|RNN)(?:_(\d{1,9}))?")
_NUMBERED = re.compile(r"(.+)_(\d{1,9})")


def choose_rnns(
    found: Found, only: RNNNames | None = None, stacks: Sequence[RNNNames] | None = None
) -> Found:
    """Return a file's RNNs with some joined, and of these only some.

    stacks: lists of names, as for join_rnns(). only: names, also of such stacks; the others are not
    looked up, so they may be refused, and their names are added to .unused. Raises FileError if no
    RNN has one of the names."""
    for names in stacks or ():
        found = join_rnns(found, names)
    if only is None:
        return found
    check_known_names(only, found.names, "only")
    chosen = with_rnns(found, {name: found[name] for name in only}, {})
    chosen.unused += tuple(name for name in found.names if name not in only)
    return chosen


def join_rnns(found: Found, names: RNNNames) -> Found:
    """Return a file's RNNs with some joined to one, bottom first. That of enc_0 and enc_1 is named
    enc, or enc_0 if there is another enc."""
    check_known_names(names, found.names, "stack")
    name, whole = stack_and_layer(names[0])[0], stack([found[name] for name in names])
    rest = {key: one for key, one in found.items() if key not in names}
    if name in rest or name in found.unread:
        name = names[0]
    return with_rnns(found, {name: whole} | rest)


def check_known_names(names: RNNNames, known: Collection[str], argument: str) -> None:
    """Raise FileError if one of the names is not known. argument: the name of the argument that has
    these names, for the message."""
    is_list = isinstance(names, Collection) and not isinstance(names, (str, bytes))
    if not is_list or not names or not all(isinstance(name, str) for name in names):
        if argument == "stack":
            why = f"stack has {names!r}, need lists of names: "
            raise FileError(why, Ask("stack", [["lower", "upper"]]))
        raise FileError(f"{argument} is {names!r}, need a list of names")
    for name in names:
        if name not in known:
            listed = ", ".join(known) or "no names"
            raise FileError(
                f"no RNN is named {name!r}: ",
                Ask(argument),
                f" takes {listed}{did_you_mean(name, known)}",
            )


def stack_and_layer(name: str) -> tuple[str, int]:
    """Return the name of a stack and the number of its layer that may have this name.

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


def stack_layers_as_in(found: Found, other: Found) -> Found:
    """Return `found` with layers stacked where `other` has them as one RNN. Layers are recognised
    by name: NAME_0, NAME_1 ..., or /NAME/LSTM, /NAME/LSTM_1 ... are the layers of NAME. If there is
    nothing else on either side, NAME may be any."""
    entries = dict(found)
    for name, layers in _layers_as_in(found, other).items():
        base = stack_and_layer(layers[0])[0]
        name = name if plain_name(base) == plain_name(name) else base
        if name not in found.unread:
            entries = stack_entries(entries, layers, name)
    return with_rnns(found, entries)


def split_layers_as_in(
    found: Found, other: Found, asked: Mapping[str, str] | None = None
) -> tuple[Found, dict[str, str]]:
    """Split the RNNs of which `other` has each layer as an RNN: a layer gets the name that it has
    there. Return the result, and the pairs in `asked` that do not name such an RNN. Layers are
    recognised as in stack_layers_as_in(). asked: as for match_names()."""
    entries, asked = dict[str, Weights](), asked or {}
    layers = _layers_as_in(other, found, asked)
    for name, one in found.items():
        if asked.get(name, name) in other.names:
            layers.pop(name, None)
        entries |= zip(layers[name], one.split(), strict=True) if name in layers else {name: one}
    left = {name: target for name, target in asked.items() if name not in layers}
    return with_rnns(found, entries), left


def _layers_as_in(
    found: Found, other: Found, asked: Mapping[str, str] | None = None
) -> dict[str, list[str]]:
    """Return the RNNs of `other` whose layers `found` has -> the names of these, bottom first.
    asked: names in `other` -> names of stacks in `found`."""
    layers: dict[str, dict[int, str]] = {}
    for one, weights in found.items():
        base, k = stack_and_layer(one)
        if weights.spec.num_layers == 1:
            layers.setdefault(plain_name(base), {})[k] = one
    alone = len(other) == len(layers) == 1 and not (other.unread or found.unread)
    names = {}
    for name, whole in other.items():
        count = whole.spec.num_layers
        same = layers.get(plain_name((asked or {}).get(name, name)), {})
        if alone and len(found) == count:
            (same,) = layers.values()
        if count > 1 and all(k in same for k in range(count)):
            names[name] = [same[k] for k in range(count)]
    return names


def stack_entries(entries: dict[str, Weights], layers: list[str], name: str) -> dict[str, Weights]:
    """Return the entries with these layers as one RNN, unchanged if they do not exist or fit."""
    taken = name in entries and name not in layers
    if taken or layers == [name] or not set(layers) <= entries.keys():
        return entries
    try:
        whole = stack(entries[layer] for layer in layers)
    except LayoutError:
        return entries
    rest = {key: one for key, one in entries.items() if key not in layers[1:]}
    return {name if key == layers[0] else key: whole if key == layers[0] else one
            for key, one in rest.items()}  # fmt: skip


def as_recorded(weights: Weights, record: Record) -> Weights:
    """Return the weights with the recorded spec, unless the file was changed since. It has what
    models do not: cuDNN's bias mode, and skip_input."""
    own = weights.spec
    if own == record.spec or differing_fields(own, record.spec) or own.dtype != record.spec.dtype:
        return weights
    try:
        return weights_of(read_source(weights, Reading(record.spec)))
    except (LayoutError, SpecError):
        return weights


def match_names(a: Found, b: Found, asked: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the name of each RNN of `a` that `b` has too -> its name there.

    asked: the pairs that the caller has passed. The other RNNs are matched by equal names, then by
    names that differ only in how their format writes them (`/enc/LSTM`, which Keras has as
    `_enc_LSTM`; `enc.rnn`, `enc_rnn`, `/enc/rnn/LSTM`). If each side has one RNN, names do not
    matter. Raises FileError if a name that was given does not exist."""
    pairs = dict(asked or {})
    for side, names, found in (("a", pairs, a), ("b", pairs.values(), b)):
        for name in names:
            if name not in found.readable:
                raise FileError(
                    Ask("map"),
                    f" pairs names of a with names of b: {side} has no RNN {name!r}, it has"
                    f" {', '.join(found.readable)}{did_you_mean(name, found.readable)}",
                )
    if not pairs and len(a.names) == len(b.names) == 1:
        return {a.names[0]: b.names[0]}

    def plain_module(name: str) -> str:
        return plain_name(stack_and_layer(name)[0] if _TORCH_NODE.fullmatch(name) else name)

    for key in (str, plain_name, plain_module):
        taken = set(pairs.values())
        left = _unique_keys(key, (x for x in a.readable if x not in pairs))
        free = _unique_keys(key, (y for y in b.readable if y not in taken))
        pairs |= {x: free[same] for same, x in left.items() if same in free}
    return {x: pairs[x] for x in a.readable if x in pairs}


def _unique_keys(key: Callable[[str], str], names: Iterable[str]) -> dict[str, str]:
    """Return the key of each name -> the name, without names that have one key."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(key(name), []).append(name)
    return {same: one[0] for same, one in found.items() if len(one) == 1}
