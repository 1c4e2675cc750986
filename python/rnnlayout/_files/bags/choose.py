"""The RNNs that the caller asks for, among those of a file."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rnnlayout._model.errors import FileError
from rnnlayout._model.similar import did_you_mean
from rnnlayout._weights.weights import stack

from .found import Found
from .stacks import layer_of

Names = Sequence[str]


def chosen(found: Found, only: Names | None = None, stacks: Sequence[Names] | None = None) -> Found:
    """Return a file's RNNs with some joined, and of these only some.

    stacks: lists of names, as for with_stack(). only: names, also of such stacks; the others are
    not looked up, so they may be refused, and their names are added to .unused.
    Raises FileError if no RNN has one of the names.
    """
    for names in stacks or ():
        found = with_stack(found, names)
    if only is None:
        return found
    check_known(only, found.names, "only")
    rest = [name for name in found.names if name not in only]
    entries = {name: found[name] for name in only}
    return Found(entries, {}, found.notes, found.others, [*found.unused, *rest])


def with_stack(found: Found, names: Names) -> Found:
    """Return a file's RNNs with some joined to one, bottom first: enc_0, enc_1 to enc, or to enc_0
    if there is another enc."""
    check_known(names, found.names, "stack")
    name, whole = layer_of(names[0])[0], stack([found[name] for name in names])
    rest = {key: one for key, one in found.items() if key not in names}
    if name in rest or name in found.unread:
        name = names[0]
    return Found({name: whole} | rest, found.unread, found.notes, found.others, found.unused)


def check_known(names: Names, known: Collection[str], argument: str) -> None:
    """Raise FileError if one of the names is not known. argument: that has them, in the message."""
    is_list = isinstance(names, Collection) and not isinstance(names, (str, bytes))
    if not is_list or not names or not all(isinstance(name, str) for name in names):
        if argument == "stack":
            raise FileError(f"stack has {names!r}, need lists of names: stack=[['lower', 'upper']]")
        raise FileError(f"{argument} is {names!r}, need a list of names")
    for name in names:
        if name not in known:
            listed = ", ".join(known) or "no names"
            raise FileError(
                f"no RNN is named {name!r}: {argument}= takes {listed}{did_you_mean(name, known)}"
            )
