"""Found: the RNNs of a file; and distinct names for RNNs and layers."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from rnnlayout._model.errors import UnknownNameError
from rnnlayout._model.similar import unknown_name
from rnnlayout._model.spec import Spec
from rnnlayout._model.undecided import UndecidedError
from rnnlayout._model.weights import Weights
from rnnlayout._native import LayoutError
from rnnlayout._sources.mismatch import list_names


def entry_name(prefix: str, spec: Spec | None) -> str:
    """Return the name of an RNN: the prefix, or the cell if the prefix is empty."""
    if prefix.rstrip("./"):
        return prefix.rstrip("./")
    return spec.cell.removesuffix("_tanh").removesuffix("_relu") if spec else "rnn"


def plain_name(name: str) -> str:
    """Return a name without slashes and dots, as Keras needs. Keras refuses dots only with the
    torch backend.

        >>> plain_name("encoder.rnn"), plain_name("/enc/LSTM_1")
        ('encoder_rnn', '_enc_LSTM_1')
    """
    return re.sub("[/.]", "_", name)


def layer_names(name: str, num_layers: int) -> list[str]:
    """Return names for the layers of an RNN, bottom first, in files that store layers as RNNs.

    >>> layer_names("encoder.rnn", 2), layer_names("lstm", 1)
    (['encoder_rnn_0', 'encoder_rnn_1'], ['lstm'])
    """
    name = plain_name(name)
    return [name] if num_layers == 1 else [f"{name}_{k}" for k in range(num_layers)]


def arrays_in_vector(spec: Spec | None) -> int:
    """Return the number of arrays of an RNN that is one vector: W, R and two biases per layer and
    direction. Return 1 if the RNN is not known."""
    return 1 if spec is None else 4 * spec.num_layers * spec.num_directions


def check_names(entries: Mapping[str, Weights]) -> None:
    """Raise LayoutError if a name is not text, or if two RNNs of the file would have the same
    name in load()."""
    names: dict[str, str] = {}
    for name, weights in entries.items():
        try:
            is_text = b"\0" not in name.encode()
        except UnicodeEncodeError:
            is_text = False
        if not is_text:
            raise LayoutError(f"weights[{name!r}]: its name is not text: rename it")
        entry = name or entry_name("", weights.spec)
        if entry in names:
            raise LayoutError(
                f"weights[{names[entry]!r}] and weights[{name!r}] would both be named {entry!r},"
                " because an RNN without a name is named after its cell: rename one of them"
            )
        names[entry] = name


def distinct_names(names: Sequence[str], taken: Collection[str] = ()) -> list[str]:
    """Return the names, changed until all differ from each other and from the names in `taken`.

    The first of several equal names stays; a number is appended to each repetition.

        >>> distinct_names(["lstm", "lstm", "lstm_2", "gru"], taken=["gru"])
        ['lstm', 'lstm_3', 'lstm_2', 'gru_2']
    """
    used, all_names, last = set(taken), {*taken, *names}, dict.fromkeys(names, 1)
    result = []
    for name in names:
        new = name
        while new in used or (new != name and new in all_names):
            last[name] += 1
            new = f"{name}_{last[name]}"
        used.add(new)
        result.append(new)
    return result


# ----------------------------------------------------------------------------------------- the RNNs


class AssumedNote(str):
    """A note on settings that the file does not record. `run` prints the warning about the settings
    of its RNN instead."""


class Found(dict[str, Weights]):
    """The RNNs of a file that could be read: a mapping from names to Weights.

    undecided: name -> UndecidedError, for each RNN that the file does not describe completely: the
    error asks for the missing argument, and has the facts that the file records. refused: name ->
    error, for each RNN that cannot be read. Looking up a name in undecided or refused raises the
    error; looking up an unknown name raises UnknownNameError, which is a KeyError.
    notes: messages about how the file was read. others: names of tensors that belong to no RNN.
    unused: names of RNNs that prefix= or only= did not choose. files: further files that were
    read, such as the data of a model. shapes: of the other tensors, if the names of tensors decide
    which are an RNN.

        >>> found = Found({}, {"lstm": ValueError("it has peepholes")})
        >>> found.refused, len(found), found.get("lstm")
        ({'lstm': ValueError('it has peepholes')}, 0, None)
    """

    def __init__(
        self,
        entries: Mapping[str, Weights],
        unread: Mapping[str, Exception] | None = None,
        notes: Iterable[str] = (),
        others: Iterable[str] = (),
        unused: Iterable[str] = (),
        files: Iterable[Path] = (),
        shapes: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        super().__init__(entries)
        unread = unread or {}
        self.undecided = {n: e for n, e in unread.items() if isinstance(e, UndecidedError)}
        self.refused = {n: e for n, e in unread.items() if n not in self.undecided}
        self.notes = list(notes)
        self.others = tuple(others)
        self.unused = tuple(unused)
        self.files = tuple(files)
        self.shapes = dict(shapes or {})

    @property
    def unread(self) -> dict[str, Exception]:
        """The errors of undecided and refused RNNs."""
        return {**self.undecided, **self.refused}

    @property
    def readable(self) -> list[str]:
        """The names of all RNNs but the refused, undecided RNNs last."""
        return [*self, *self.undecided]

    @property
    def names(self) -> list[str]:
        """The names of all RNNs, refused RNNs last."""
        return [*self.readable, *self.refused]

    def __missing__(self, name: str) -> Weights:
        if name in self.unread:
            raise self.unread[name]
        problem = f"no RNN is named {name!r}"
        if not self.names:
            raise UnknownNameError(f"{problem}, nor another")
        listing = f"there are {list_names(self.names, 12)}"
        raise UnknownNameError(unknown_name(problem, str(name), self.names, listing))

    def __repr__(self) -> str:
        entries = [f"{list_names([name])}: {weights!r}" for name, weights in self.items()]
        entries += [f"{list_names([name])}: undecided" for name in self.undecided]
        entries += [f"{list_names([name])}: refused" for name in self.refused]
        return f"<Found {', '.join(entries) or 'nothing'}>"


def with_rnns(
    rnns: Found, entries: Mapping[str, Weights], unread: Mapping[str, Exception] | None = None
) -> Found:
    """Return a copy of `rnns` with other Weights, and with other errors unless `unread` is None."""
    errors = rnns.unread if unread is None else unread
    return Found(entries, errors, rnns.notes, rnns.others, rnns.unused, rnns.files, rnns.shapes)
