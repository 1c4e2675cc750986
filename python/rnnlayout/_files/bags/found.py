"""Found: the RNNs of a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rnnlayout._weights.weights import Weights


class Found(Mapping[str, Weights]):
    """The RNNs of a file by name; asking for one that cannot be had raises the reason.

    refused: name -> that reason. notes: what was done to read them, as words. others: the names
    of the file's tensors that belong to none of them.

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

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        entries = [f"{name!r}: {weights!r}" for name, weights in self.items()]
        entries += [f"{name!r}: refused" for name in self.refused]
        return f"<Found {', '.join(entries) or 'nothing'}>"
