"""A file that is read: its RNNs, and copies of it with some of them replaced."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rnnlayout._files.bags.bag import Hints, Progress
from rnnlayout._files.bags.found import Found
from rnnlayout._files.bags.groups import find
from rnnlayout._files.bags.layerwise import Conversion
from rnnlayout._files.bags.record import read_records
from rnnlayout._files.bags.replace import found_in, replaced
from rnnlayout._files.formats.format import TensorFormat
from rnnlayout._files.formats.table import format_of
from rnnlayout._model.errors import FileError


class TensorFile:
    """A file of named tensors. groups: the RNNs among them."""

    def __init__(self, path: Path, format: TensorFormat, hints: Hints) -> None:
        self._path, self._format = path, format
        self._bag = format.read(path)
        self._records = read_records(self._bag.metadata, path)
        self.groups = find(self._bag.tensors, hints, self._records)

    @property
    def found(self) -> Found:
        return found_in(self._bag, self.groups)

    def copy(
        self,
        out: Path,
        conversions: Mapping[str, Conversion],
        progress: Progress | None,
        target: TensorFormat | None = None,
        dry_run: bool = False,
    ) -> list[str]:
        """Write the file to `out` with these RNNs replaced; return notes.

        target: another format for the copy. dry_run: write only if a copy in the file's own format
            contains more than tensors, because only writing it shows whether it can be written.
        """
        target = target or self._format
        pairs = [(g, conversions[g.entry]) for g in self.groups if g.entry in conversions]
        bag = replaced(self._bag, pairs, self._records)
        if target is self._format and target.replace is not None:
            return target.replace(self._path, out, bag, pairs, progress)
        if not dry_run:
            target.write(out, bag, progress)
        return []


def read(path: Path, hints: Hints) -> tuple[Found, TensorFile | None]:
    """Return the RNNs of a file, and the file itself if it is a bag of named tensors.

    Raises the first error if no RNN can be read.
    """
    format, file = format_of(path), None
    if isinstance(format, TensorFormat):
        file = TensorFile(path, format, hints)
        found = file.found
    else:
        found = format.read(path, hints)
    if found.refused and not found:
        raise next(iter(found.refused.values()))
    if not found:
        under = f" under {hints.prefix!r}" if hints.prefix else ""
        raise FileError(f"{path}: no recurrent layer found{under}")
    return found, file
