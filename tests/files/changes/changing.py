"""Changes of good files, and what a reader may answer.

A changed RNN must be the same RNN, with a message that names the change, or an error that names a
tensor of the RNN. Another RNN without a message is a failure, but for the changes of EXEMPT."""

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

import rnnlayout as rl
from rnnlayout import _native

from .sources import CHANGED, KEPT, below_path

# Changes that make another valid file, and (spec, layout) of the RNNs that the file may then have.
# docs/files.md explains these changes.
EXEMPT = {
    "all biases of an RNN": lambda spec, layout: [(spec.replace(bias="none"), layout)],
    "all biases of a CuDNNLSTM or CuDNNGRU": lambda spec, layout: (
        [(spec.replace(bias="none"), "keras")] if layout.name == "keras-cudnn" else []
    ),
    "the last layers of a stack": lambda spec, layout: [
        (spec.replace(num_layers=count), layout) for count in range(1, spec.num_layers)
    ],
    "the backward direction of a single layer": lambda spec, layout: (
        [(spec.replace(bidirectional=False), layout)] if spec.num_layers == 1 else []
    ),
    "a whole RNN": lambda spec, layout: [],
}
WRAPPERS = ("module.", "model.", "_orig_mod.", "module._orig_mod.", "state_dict.model.")


@dataclass(frozen=True)
class Change:
    """kind: "drop". tensors: of the changed file. names: of the added, renamed or dropped tensors,
    without the path of the RNN. wrapper: the start of all names."""

    kind: str
    tensors: dict
    names: tuple
    wrapper: str = ""


def kind_of(name):
    """Return the name of a tensor without layer, direction and gate."""
    return re.sub(r"\d+|\[.*\]", "", name.rpartition("/")[2].rpartition(".")[2])


def changes(source, every=False):
    """Yield the changes of a source. every: of each tensor, not only of the first tensor of each
    kind."""
    start = CHANGED + source.separator
    below = below_path(CHANGED, source.separator, source.tensors)
    for name in ("gain", "norm.weight", f"{next(iter(below))}_scale"):
        yield Change("add", source.tensors | {start + name: np.ones(3, "f4")}, (name,))
    cells = {name.rpartition("/")[0] for name in below} - {""}
    for cell in sorted(cells)[: len(cells) if every else 1]:
        name = f"{cell}/gain"
        yield Change("add", source.tensors | {start + name: np.ones(3, "f4")}, (name,))
    first_names = {kind_of(name): name for name in reversed(below)}
    for name in below if every else first_names.values():
        yield without(source, "drop", {name})
        if "prefix" in source.options:  # one vector may have any name
            continue
        renamed = {
            f"{old}_v2" if old == start + name else old: array
            for old, array in source.tensors.items()
        }
        yield Change("rename", renamed, (name, f"{name}_v2"))
    for kind, names in parts(source).items():
        yield without(source, kind, names)
    half = {*list(below)[: len(below) // 2]}
    yield without(source, "split", half)
    yield without(source, "split", below.keys() - half)
    yield without(source, "drop all", below.keys())
    for wrapper in WRAPPERS:
        wrapped = {wrapper + name: array for name, array in source.tensors.items()}
        yield Change("wrap", wrapped, (), wrapper)


def without(source, kind, names):
    dropped = {f"{CHANGED}{source.separator}{name}" for name in names}
    kept = {name: array for name, array in source.tensors.items() if name not in dropped}
    return Change(kind, kept, tuple(names))


def parts(source):
    """Return kind of change -> names of tensors: the layers, the directions and the biases, if they
    have tensors of their own."""
    tensors = [*below_path(CHANGED, source.separator, source.tensors)]
    blocks_of = {name: set() for name in tensors}
    for (layer, direction, role, *_), (tensor, *_) in _native.blocks(source.layout, source.spec):
        kinds = {f"layer {layer}", f"direction {direction}"} | {role, "b"} & {"bW", "bR", "b"}
        blocks_of[tensors[tensor]].add(frozenset(kinds if role[0] == "b" else kinds - {"b"}))
    kinds = {kind for blocks in blocks_of.values() for block in blocks for kind in block}
    alone = {
        kind: {name for name, blocks in blocks_of.items() if all(kind in b for b in blocks)}
        for kind in sorted(kinds)
    }
    return {f"drop {kind}": names for kind, names in alone.items() if names}


# -------------------------------------------------------------------------------------- the answers


def exemptions(source, change):
    """Yield (reason, function of the RNN) for valid files that the change may have made."""
    below = below_path(change.wrapper + CHANGED, source.separator, change.tensors)
    shapes = {name: array.shape for name, array in below.items()}
    for reason, smaller in EXEMPT.items():
        for spec, layout in smaller(source.spec, source.layout) if change.names else ():
            if dict(rl.describe(spec, layout)) == shapes:
                yield reason, [function_of(rl.Weights(below, spec, layout))]
    if not below:
        yield "a whole RNN", []


def answer(source, change, path):
    """Return the kind of a reader's answer to a changed file: "silent: ..." is a failure."""
    exempt = dict(exemptions(source, change))
    options = dict(source.options)
    if "prefix" in options:
        options["prefix"] = change.wrapper + options["prefix"]
    try:
        found = rl.load(path, **options)
    except rl.Error as error:
        if "a whole RNN" in exempt:
            return "exempt: a whole RNN"
        return "refused" if names_a_tensor(str(error), source, change) else f"silent: {error}"
    texts = [*found.notes, *map(str, found.unread.values())]
    is_named = any(name in text for name in change.names for text in texts)
    if source.has(KEPT) and source.rnn(KEPT) not in found.values():
        return f"silent: {KEPT} is lost: {texts}"
    rnns = [rnn for rnn in found.values() if not source.has(KEPT) or rnn != source.rnn(KEPT)]
    if rnns == [source.rnn(CHANGED)]:
        return "the same, named" if is_named or not change.names else f"silent: {texts}"
    functions = [*map(function_of, rnns)]
    if reason := next((reason for reason in exempt if exempt[reason] == functions), ""):
        return f"exempt: {reason}"
    if rnns:
        return "another, named" if is_named else f"silent: another RNN, {rnns}; {texts}"
    below = below_path(CHANGED, source.separator, change.tensors)
    if not found.unread:  # the tensors that remain are not the tensors of an RNN
        names = {f"{CHANGED}{source.separator}{name}" for name in below}
        return "left out, named" if names <= {*found.others} else f"silent: {found.others}"
    is_refused = any(names_a_tensor(text, source, change) for text in texts)
    return "refused" if is_refused else f"silent: {texts}"


def function_of(weights):
    """Return what is equal for RNNs that compute the same in different layouts."""
    in_onnx = weights.to("onnx")
    return in_onnx.spec, {name: array.tobytes() for name, array in in_onnx.items()}


def names_a_tensor(text, source, change):
    names = {*change.names, *below_path(CHANGED, source.separator, source.tensors)}
    return any(name in text for name in names)


def count_answers(source, write, every=False):
    """Return how often each answer was given to the changes of a source, and the failures.
    write(tensors): write a changed file."""
    counts, failures = Counter(), []
    for change in changes(source, every):
        reply = answer(source, change, write(change.tensors))
        counts[reply.partition(": ")[0]] += 1
        if reply.startswith("silent"):
            failures.append(f"{change.kind} {change.names[:4]}: {reply}")
    return counts, failures


def reply(path, good, names):
    """Return how load() answers to a changed file. good: name -> RNN of the good file. names: of
    which an error or a note has to contain one."""
    try:
        found = rl.load(path)
    except rl.Error as error:
        assert any(name in str(error) for name in names), error
        return "refused"
    texts = [*found.notes, *map(str, found.unread.values())]
    is_named = any(name in text for name in names for text in texts)
    rnns = [rnn for rnn in found.values() if rnn != good[KEPT]]
    assert len(rnns) == len(found) - 1, f"{KEPT} is lost"
    if rnns == [good[CHANGED]]:
        return "the same, named" if is_named else "the same"
    if rnns:
        return "another, named" if is_named else "another"
    return ("refused" if found.unread else "left out") if is_named else "lost"
