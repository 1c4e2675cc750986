"""Found: the RNNs of a file, and their names, of which no two are the same."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from rnnlayout._model.errors import UnknownNameError
from rnnlayout._model.similar import did_you_mean
from rnnlayout._model.spec import Spec
from rnnlayout._model.undecided import UndecidedError
from rnnlayout._native import LayoutError
from rnnlayout._sources.mismatch import list_names
from rnnlayout._weights.weights import Weights


def entry_name(prefix: str, spec: Spec | None) -> str:
    """Return the name of an RNN: its prefix, or its cell if it has none."""
    if prefix.rstrip("./"):
        return prefix.rstrip("./")
    return spec.cell.removesuffix("_tanh").removesuffix("_relu") if spec else "rnn"


def plain_name(name: str) -> str:
    """Return a name without slashes and dots, as Keras takes it. It refuses dots only if torch is
    its backend.

        >>> plain_name("encoder.rnn"), plain_name("/enc/LSTM_1")
        ('encoder_rnn', '_enc_LSTM_1')
    """
    return re.sub("[/.]", "_", name)


def layer_names(name: str, num_layers: int) -> list[str]:
    """Return the names of an RNN's layers, bottom first, in files where each layer is an RNN.

    >>> layer_names("encoder.rnn", 2), layer_names("lstm", 1)
    (['encoder_rnn_0', 'encoder_rnn_1'], ['lstm'])
    """
    name = plain_name(name)
    return [name] if num_layers == 1 else [f"{name}_{k}" for k in range(num_layers)]


def check_names(entries: Mapping[str, Weights]) -> None:
    """Raise LayoutError if a name is not text, or if load() would find two RNNs of one name."""
    seen: dict[str, str] = {}
    for name, weights in entries.items():
        try:
            is_text = b"\0" not in name.encode()
        except UnicodeEncodeError:
            is_text = False
        if not is_text:
            raise LayoutError(f"weights[{name!r}]: its name is not text: rename it")
        entry = name or entry_name("", weights.spec)
        if entry in seen:
            raise LayoutError(
                f"weights[{seen[entry]!r}] and weights[{name!r}] would both be named {entry!r},"
                " because an RNN without a name is named after its cell: rename one of them"
            )
        seen[entry] = name


def distinct_names(names: Sequence[str], taken: Collection[str] = ()) -> list[str]:
    """Return names that differ from each other, and from those that are taken.

    The first of several equal names stays; the others get a number that makes them a new name.

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


class Found(dict[str, Weights]):
    """The RNNs of a file that could be read: a mapping from names to Weights.

    Beside it are two dicts of errors by name. undecided: of the RNNs of which the file does not
    record everything; each is an UndecidedError that asks for the missing argument, and knows what
    the file records. refused: of those that could not be read. Looking up such a name raises its
    error, looking up any other an UnknownNameError, which is a KeyError.
    notes: messages about how the file was read. others: the names of the file's tensors that
    belong to no RNN. unused: the names of the RNNs that prefix= or only= did not choose. files:
    what was read beside the file itself, such as a model's data.

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
    ) -> None:
        super().__init__(entries)
        unread = unread or {}
        self.undecided = {n: e for n, e in unread.items() if isinstance(e, UndecidedError)}
        self.refused = {n: e for n, e in unread.items() if n not in self.undecided}
        self.notes = list(notes)
        self.others = tuple(others)
        self.unused = tuple(unused)
        self.files = tuple(files)

    @property
    def unread(self) -> dict[str, Exception]:
        """The errors of undecided and refused RNNs."""
        return {**self.undecided, **self.refused}

    @property
    def readable(self) -> list[str]:
        """The names of the RNNs that are not refused, the undecided ones last."""
        return [*self, *self.undecided]

    @property
    def names(self) -> list[str]:
        """The names of all RNNs, the refused ones last."""
        return [*self.readable, *self.refused]

    def __missing__(self, name: str) -> Weights:
        if name in self.unread:
            raise self.unread[name]
        meant = did_you_mean(name, self.names) if isinstance(name, str) else ""
        have = f": there are {list_names(self.names, 12)}" if self.names else ", nor another"
        raise UnknownNameError(f"no RNN is named {name!r}{have}{meant}")

    def __repr__(self) -> str:
        entries = [f"{list_names([name])}: {weights!r}" for name, weights in self.items()]
        entries += [f"{list_names([name])}: undecided" for name in self.undecided]
        entries += [f"{list_names([name])}: refused" for name in self.refused]
        return f"<Found {', '.join(entries) or 'nothing'}>"


def with_rnns(
    found: Found, entries: Mapping[str, Weights], unread: Mapping[str, Exception] | None = None
) -> Found:
    """Return what was read with other RNNs, and with other errors unless they are None."""
    errors = found.unread if unread is None else unread
    return Found(entries, errors, found.notes, found.others, found.unused, found.files)
