"""The RNNs that the caller asks for, among those of a file."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rnnlayout._model.asks import Ask
from rnnlayout._model.errors import FileError
from rnnlayout._model.similar import did_you_mean
from rnnlayout._weights.weights import stack

from .found import Found
from .match_rnns import stack_and_layer

RNNNames = Sequence[str]


def choose_rnns(
    found: Found, only: RNNNames | None = None, stacks: Sequence[RNNNames] | None = None
) -> Found:
    """Return a file's RNNs with some joined, and of these only some.

    stacks: lists of names, as for join_rnns(). only: names, also of such stacks; the others are
    not looked up, so they may be refused, and their names are added to .unused.
    Raises FileError if no RNN has one of the names.
    """
    for names in stacks or ():
        found = join_rnns(found, names)
    if only is None:
        return found
    check_known_names(only, found.names, "only")
    rest = [name for name in found.names if name not in only]
    entries = {name: found[name] for name in only}
    return Found(entries, {}, found.notes, found.others, [*found.unused, *rest])


def join_rnns(found: Found, names: RNNNames) -> Found:
    """Return a file's RNNs with some joined to one, bottom first: enc_0, enc_1 to enc, or to enc_0
    if there is another enc."""
    check_known_names(names, found.names, "stack")
    name, whole = stack_and_layer(names[0])[0], stack([found[name] for name in names])
    rest = {key: one for key, one in found.items() if key not in names}
    if name in rest or name in found.unread:
        name = names[0]
    return Found({name: whole} | rest, found.unread, found.notes, found.others, found.unused)


def check_known_names(names: RNNNames, known: Collection[str], argument: str) -> None:
    """Raise FileError if one of the names is not known. argument: the name of the argument that has
    these names, for the message.
    """
    is_list = isinstance(names, Collection) and not isinstance(names, (str, bytes))
    if not is_list or not names or not all(isinstance(name, str) for name in names):
        if argument == "stack":
            why = f"stack has {names!r}, need lists of names: "
            raise FileError(why + Ask("stack", [["lower", "upper"]]))
        raise FileError(f"{argument} is {names!r}, need a list of names")
    for name in names:
        if name not in known:
            listed = ", ".join(known) or "no names"
            raise FileError(
                f"no RNN is named {name!r}: "
                + Ask(argument)
                + f" takes {listed}{did_you_mean(name, known)}"
            )
