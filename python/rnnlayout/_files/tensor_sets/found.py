"""Found: the RNNs of a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rnnlayout._model.errors import UnknownNameError
from rnnlayout._model.similar import did_you_mean
from rnnlayout._model.undecided import UndecidedError
from rnnlayout._sources.mismatch import list_names
from rnnlayout._weights.weights import Weights


class Found(Mapping[str, Weights]):
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
        unread = unread or {}
        self._entries = dict(entries)
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

    def __getitem__(self, name: str) -> Weights:
        if name in self._entries:
            return self._entries[name]
        if name in self.unread:
            raise self.unread[name]
        meant = did_you_mean(name, self.names) if isinstance(name, str) else ""
        have = f": there are {list_names(self.names, 12)}" if self.names else ", nor another"
        raise UnknownNameError(f"no RNN is named {name!r}{have}{meant}")

    def get(self, name: object, default: Any = None) -> Any:
        """Return the Weights of this name, the default if it is not in the mapping."""
        return self._entries.get(name, default)  # type: ignore[call-overload]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

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
