"""Found: the RNNs of a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rnnlayout._model.undecided import UndecidedError
from rnnlayout._weights.weights import Weights


class Found(Mapping[str, Weights]):
    """The RNNs of a file: a mapping from names to Weights.

    An RNN of which the file does not record everything is listed too; looking it up raises the
    UndecidedError that asks for the missing argument. Looking up an RNN that could not be read
    raises its error.
    decided: the others, a dict. undecided: the errors of those that ask, by name; they know what
    the file records. refused: the errors of those that could not be read. notes: messages about
    how the file was read. others: the names of the file's tensors that belong to no RNN. unused:
    the names of the RNNs that prefix= or only= did not choose.

        >>> Found({}, {"lstm": ValueError("it has peepholes")}).refused
        {'lstm': ValueError('it has peepholes')}
    """

    def __init__(
        self,
        entries: Mapping[str, Weights],
        unread: Mapping[str, Exception] | None = None,
        notes: Iterable[str] = (),
        others: Iterable[str] = (),
        unused: Iterable[str] = (),
    ) -> None:
        unread = unread or {}
        self.decided = dict(entries)
        self.undecided = {n: e for n, e in unread.items() if isinstance(e, UndecidedError)}
        self.refused = {n: e for n, e in unread.items() if n not in self.undecided}
        self.notes = list(notes)
        self.others = tuple(others)
        self.unused = tuple(unused)

    @property
    def unread(self) -> dict[str, Exception]:
        """The errors of undecided and refused RNNs."""
        return {**self.undecided, **self.refused}

    @property
    def names(self) -> list[str]:
        """The names of all RNNs, the refused ones last."""
        return [*self, *self.refused]

    def __getitem__(self, name: str) -> Weights:
        if name in self.decided:
            return self.decided[name]
        raise self.unread.get(name) or KeyError(name)

    def __contains__(self, name: object) -> bool:
        """Return whether it is the name of an RNN that was not refused."""
        return name in self.decided or name in self.undecided

    def __iter__(self) -> Iterator[str]:
        yield from self.decided
        yield from self.undecided

    def __len__(self) -> int:
        return len(self.decided) + len(self.undecided)

    def __repr__(self) -> str:
        entries = [f"{name!r}: {weights!r}" for name, weights in self.decided.items()]
        entries += [f"{name!r}: undecided" for name in self.undecided]
        entries += [f"{name!r}: refused" for name in self.refused]
        return f"<Found {', '.join(entries) or 'nothing'}>"
