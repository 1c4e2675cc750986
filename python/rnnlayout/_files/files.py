"""load: the RNNs of a file of any known format; and new files of named tensors with RNNs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from rnnlayout._files.formats.registry import (
    TensorFormat,
    explain_wrong_suffix,
    file_to_read,
    format_to_read,
    suffixes_with_option,
)
from rnnlayout._files.tensor_sets.file_limits import InputFile
from rnnlayout._files.tensor_sets.file_rnns import Found, entry_name, with_rnns
from rnnlayout._files.tensor_sets.find_rnns import apply_reading, find_rnns
from rnnlayout._files.tensor_sets.record import Record, read_records, write_records
from rnnlayout._files.tensor_sets.tensor_set import (
    FileTensor,
    Progress,
    TensorSet,
)
from rnnlayout._model.checked_rnn import checked_rnn_of
from rnnlayout._model.errors import Ask, FileError, TextPart
from rnnlayout._model.similar import did_you_mean
from rnnlayout._model.spec import Spec
from rnnlayout._native import SpecError
from rnnlayout._sources.mismatch import list_names
from rnnlayout._sources.reading import Reading, make_reading
from rnnlayout._sources.reading_options import OF_FORMATS, ReadingOptions, takes_options
from rnnlayout._weights.weights import Weights

if TYPE_CHECKING:  # what a load does not need
    from rnnlayout._files.tensor_sets.layerwise import LayerwiseConversion
    from rnnlayout._files.tensor_sets.output_file import Output


@takes_options(ReadingOptions)
def load(path: Any, spec: Spec | None = None, **options: Unpack[ReadingOptions]) -> Found:
    """Read every recurrent layer of a file.

    path: a file; its suffix decides the format, without a known one its content.
    Other arguments: how it is read, see ReadingOptions.

    Returns a mapping from names (of the layer, or the prefix of its tensors) to Weights. Layers
    of which the file does not record everything are in its .undecided, those that cannot be read
    in .refused: looking one up raises the error that says what to pass. If all are refused, the
    error of the first one is raised.
    Raises FileNotFoundError; FileError if the file is malformed, unsafe, of an unknown format, or
    has no recurrent layers; MissingExtraError if the format needs a package that is not installed;
    LayoutError, SpecError and LossyError as convert() does.
    """
    reading = make_reading(load, options, spec)
    path = file_to_read(path)
    found, _ = read_file(path, reading)
    if (dtype := reading.dtype) is None:
        return found
    return with_rnns(found, {name: one.to(one.layout, dtype=dtype) for name, one in found.items()})


def read_file(
    path: Path, reading: Reading, *, asks: bool = True
) -> tuple[Found, TensorFile | None]:
    """Return the RNNs of a file, and the file itself if it is a set of named tensors. asks: whether
    an error may suggest format=, because the caller takes it for this file. Raises the first error
    if no RNN can be read."""
    format = format_to_read(path, reading.format, asks=asks)
    for name in OF_FORMATS:
        if getattr(reading, name) and name not in format.options:
            suffixes = ", ".join(suffixes_with_option(name))
            raise SpecError(f"{path}: {name} is only for {suffixes} files: omit ", Ask(name, None))
    file = None
    with explain_wrong_suffix(path, format, asks=asks):
        if isinstance(format, TensorFormat):
            file = TensorFile(InputFile(path, reading.mmap), format, reading)
            found = file.found
        else:
            assert format.read, "format_to_read() refuses the others"
            found = format.read(InputFile(path, reading.mmap), reading)
        if reading.spec is not None and len(found.names) > 1:
            raise SpecError(
                f"the spec describes one RNN, but {len(found.names)} were found: choose one with ",
                Ask("prefix"),
                f", for example one of {list_names(_prefixes(found, file), 6)}",
            )
        found = apply_reading(found, reading)
        _forget_frames(found.unread.values())
        if not found.readable:
            raise _nothing_found(path, found, file, reading)
    if reading.prefix:
        with suppress(ValueError):  # none of the RNNs outside of the prefix can be read
            whole, _ = read_file(path, _without_prefix(reading))
            found.others = whole.others
            found.unused = tuple(name for name in whole.names if name not in found.names)
    return found, file


def _without_prefix(reading: Reading) -> Reading:
    """Return the reading of the whole file, whose RNNs may be others than the one of the spec."""
    return replace(reading, prefix="", spec=None)


def _forget_frames(errors: Iterable[Exception]) -> None:
    """Free the frames in which errors were raised. They refer to all that was read, and to the
    errors: a cycle. (So would the frame of a caller that has one of them in a variable.)"""
    for error in errors:
        error.__traceback__ = error.__context__ = None


def _nothing_found(
    path: Path, found: Found, file: TensorFile | None, reading: Reading
) -> Exception:
    """Return the error for a file of which no RNN can be read."""
    if found.refused:
        return found.refused.pop(next(iter(found.refused)))
    if reading.prefix:
        prefixes = _prefixes(*read_file(path, _without_prefix(reading)))
        text = f"{path}: no recurrent layer found under {reading.prefix!r}; "
        if not prefixes:
            return FileError(text, "omit ", Ask("prefix", None))
        others = f"{list_names(prefixes, 12)}{did_you_mean(reading.prefix, prefixes)}"
        return FileError(text, "with ", Ask("prefix"), f" these would work: {others}")
    parts: list[TextPart] = [f"{path}: no recurrent layer found"]
    if reading.layout is not None:
        parts += [f" in layout {reading.layout}: omit ", Ask("layout", None)]
        parts += [" to look for all layouts"]
    parts += [f"; {note}" for note in found.notes]
    if reading.layout is None and file is not None and file.found.others:
        parts += [
            "; its tensors do not have the names of a layout: for a list of arrays that np.savez()"
            " wrote, or a weight space alone, pass ",
            Ask("layout"),
        ]
    return FileError(*parts)


def _prefixes(found: Found, file: TensorFile | None) -> list[str]:
    """Return what prefix= may be to choose an RNN, for those that have a prefix."""
    all_prefixes = [g.prefix for g in file.groups] if file else found.names
    return [prefix.rstrip("./") for prefix in all_prefixes if prefix]


class TensorFile:
    """A file of named tensors. groups: the tensors of each RNN. found: the RNNs as load() returns
    them. beside: the names of what the file has besides tensors, which only a copy in its own
    format keeps."""

    def __init__(self, file: InputFile, format: TensorFormat, reading: Reading) -> None:
        self._file, self._format, self._tensor_set = file, format, format.read(file)
        self.beside = (*self._tensor_set.values, *self._tensor_set.skipped)
        self._records = read_records(self._tensor_set.metadata, file)
        self.groups, self.found = find_rnns(self._tensor_set, reading, self._records)

    def copy(
        self,
        out: Output,
        conversions: Mapping[str, LayerwiseConversion],
        progress: Progress | None,
        target: TensorFormat | None = None,
    ) -> list[str]:
        """Write the file to `out` with these RNNs replaced; return notes. The new tensors of an RNN
        are at the position of its first old one. target: another format for the copy. In a dry run
        only replace() is called, which may find that it cannot."""
        pairs = [(g, conversions[g.entry]) for g in self.groups if g.entry in conversions]
        first = {group.names[0]: (group, new) for group, new in pairs}
        old = {name for group, _ in pairs for name in group.names}
        tensors: dict[str, FileTensor] = {}
        for name, tensor in self._tensor_set.tensors.items():
            if name in first:
                group, new = first[name]
                _add_tensors(tensors, group.prefix, new.tensors)
            elif name not in old:
                _add_tensors(tensors, "", {name: tensor})
        records = self._records | {
            group.entry: Record.of(new, group.prefix) for group, new in pairs
        }
        metadata = self._tensor_set.metadata | write_records(records)
        tensor_set = replace(self._tensor_set, tensors=tensors, metadata=metadata)
        target = target or self._format
        if target is self._format and target.replace is not None:
            return target.replace(
                InputFile(self._file.path, self._file.mmap), out, tensor_set, pairs, progress
            )
        if not out.dry_run:
            assert target.write, "format_to_write() refuses the others"
            target.write(out, tensor_set, progress)
        return []


def tensor_set_of(
    entries: Mapping[str, Weights | LayerwiseConversion], separator: str
) -> TensorSet:
    """Return RNNs as named tensors, each with its name as prefix, "" without a prefix."""
    tensors: dict[str, FileTensor] = {}
    records = {}
    for name, one in entries.items():
        prefix = name + separator if name else ""
        if isinstance(one, Weights):
            arrays = checked_rnn_of(one).tensors
            new = {n: FileTensor.of(array, one.spec.dtype) for n, array in arrays.items()}
        else:
            new = one.tensors
        _add_tensors(tensors, prefix, new)
        records[name or entry_name("", one.spec)] = Record.of(one, prefix)
    return TensorSet(tensors, write_records(records))


def _add_tensors(
    tensors: dict[str, FileTensor], prefix: str, more: Mapping[str, FileTensor]
) -> None:
    for name, tensor in more.items():
        if prefix + name in tensors:
            raise FileError(
                f"two tensors of the new file would have the name {prefix + name!r}: rename one in"
                " the source, or load() the RNNs and save() them under other names"
            )
        tensors[prefix + name] = tensor
