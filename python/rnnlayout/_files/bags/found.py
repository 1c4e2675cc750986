"""Found: the RNNs of a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rnnlayout._weights.weights import Weights


class Found(Mapping[str, Weights]):
    """The RNNs of a file: a mapping from names to Weights.

    Looking up an RNN that could not be read raises its error.
    refused: the errors of those RNNs, by name. notes: messages about how the file was read.
    others: the names of the file's tensors that belong to no RNN.

        >>> Found({}, {"lstm": ValueError("it has peepholes")}).refused
        {'lstm': ValueError('it has peepholes')}
    """

    def __init__(
        self,
        entries: Mapping[str, Weights],
        refused: Mapping[str, Exception] | None = None,
        notes: Iterable[str] = (),
        others: Iterable[str] = (),
    ) -> None:
        self._entries = dict(entries)
        self.refused = dict(refused or {})
        self.notes = list(notes)
        self.others = tuple(others)

    def __getitem__(self, name: str) -> Weights:
        if name in self.refused:
            raise self.refused[name]
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        """Return whether the RNN can be looked up."""
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        entries = [f"{name!r}: {weights!r}" for name, weights in self.items()]
        entries += [f"{name!r}: refused" for name in self.refused]
        return f"<Found {', '.join(entries) or 'nothing'}>"
