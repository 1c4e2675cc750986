"""Load the RNNs of a file of any known format; write RNNs as named tensors."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from rnnlayout._files.formats.registry import (
    TensorFormat,
    explain_wrong_suffix,
    file_to_read,
    format_to_read,
    read_model_file,
    read_tensor_set,
    suffixes_with_option,
)
from rnnlayout._files.tensor_sets.file_limits import InputFile
from rnnlayout._files.tensor_sets.file_rnns import Found, entry_name, with_rnns
from rnnlayout._files.tensor_sets.find_rnns import apply_reading, find_rnns
from rnnlayout._files.tensor_sets.record import KEY, Record, read_records, write_records
from rnnlayout._files.tensor_sets.rnn_places import is_list, layouts_of_cells
from rnnlayout._files.tensor_sets.tensor_set import (
    FileTensor,
    Progress,
    TensorSet,
)
from rnnlayout._model.errors import Ask, FileError, TextPart, join_parts
from rnnlayout._model.reading_options import OF_FORMATS, ReadingOptions, takes_options
from rnnlayout._model.similar import unknown_name
from rnnlayout._model.spec import Spec
from rnnlayout._model.weights import Weights
from rnnlayout._native import SpecError
from rnnlayout._sources.fitting import layout_argument
from rnnlayout._sources.mismatch import UNKNOWN_NAMES, list_names, names_by_hand
from rnnlayout._sources.reading import Reading, make_reading

if TYPE_CHECKING:  # not needed to load
    from rnnlayout._files.tensor_sets.dense_layer import DenseLayer
    from rnnlayout._files.tensor_sets.layerwise import LayerwiseConversion
    from rnnlayout._files.tensor_sets.output_file import Output


@takes_options(ReadingOptions)
def load(path: Any, spec: Spec | None = None, **options: Unpack[ReadingOptions]) -> Found:
    """Read every recurrent layer of a file.

    path: a file. The suffix decides the format; without a known suffix, the content decides. Or a
        folder: a SavedModel, or a model in parts with its index (.index.json, .weights.json).
    Other arguments: how to read the file, see ReadingOptions.

    Returns a mapping from names (of layers, or prefixes of tensors) to Weights. The mapping has
    errors by name, too: .undecided for layers that the file does not describe completely, .refused
    for layers that cannot be read. Looking up such a layer raises the error, with the argument to
    pass. If all layers are refused, load() raises the error of the first.
    Raises FileNotFoundError; FileError if the file is malformed, unsafe, of an unknown format, or
    has no recurrent layers; MissingExtraError if the format needs a package that is not installed;
    LayoutError, SpecError and LossyError as convert() does.
    """
    reading = make_reading(load, options, spec)
    tensors = path if isinstance(path, TensorsOfFile) else None
    path = file_to_read(path)
    rnns, _ = read_file(path, reading, tensors=tensors)
    if (dtype := reading.dtype) is not None:
        converted = {}
        for name, weights in rnns.items():
            converted[name] = weights.to(weights.layout, dtype=dtype)
            converted[name].optimizer = weights.optimizer
        rnns = with_rnns(rnns, converted)
    return rnns


@dataclass(frozen=True)
class TensorsOfFile(os.PathLike[str]):
    """A file whose tensors were read: load() takes it for a path, and does not read them again."""

    file: InputFile
    tensor_set: TensorSet

    def __fspath__(self) -> str:
        return str(self.file)


def read_file(
    path: Path, reading: Reading, *, asks: bool = True, tensors: TensorsOfFile | None = None
) -> tuple[Found, TensorFile | None]:
    """Return the RNNs of a file, and a TensorFile if the file is a set of named tensors. asks:
    whether an error may suggest format=, because the caller accepts format= for this file. tensors:
    of the file, if they were read. Raises the first error if no RNN can be read."""
    format = format_to_read(path, reading.format, asks=asks)
    for name in OF_FORMATS:
        if getattr(reading, name) and name not in format.options:
            suffixes = ", ".join(suffixes_with_option(name))
            raise SpecError(f"{path}: {name} is only for {suffixes} files: omit ", Ask(name, None))
    opened, file = tensors.file if tensors else InputFile(path, reading.mmap), None
    with explain_wrong_suffix(path, format, asks=asks):
        if isinstance(format, TensorFormat):
            tensor_set = tensors.tensor_set if tensors else read_tensor_set(format, opened)
            file = TensorFile(opened, format, reading, tensor_set)
            rnns = file.rnns
        else:
            rnns = read_model_file(format, opened, reading)
        if reading.spec is not None and len(rnns.names) > 1:
            raise SpecError(
                f"the spec describes one RNN, but {len(rnns.names)} were found: choose one with ",
                Ask("prefix"),
                f", for example one of {list_names(_prefixes(rnns, file), 6)}",
            )
        rnns = apply_reading(rnns, reading)
        if file is not None:
            file.add_optimizer_states(rnns)
        rnns.files = tuple(opened.companions)
        _forget_frames(rnns.unread.values())
        if not rnns.readable:
            raise _no_rnn_error(path, rnns, file, reading)
    if reading.prefix:
        with suppress(ValueError):  # no RNN outside the prefix can be read
            whole, _ = read_file(path, _without_prefix(reading))
            rnns.others = whole.others
            rnns.unused = tuple(name for name in whole.names if name not in rnns.names)
    return rnns, file


def _without_prefix(reading: Reading) -> Reading:
    """Return the reading for the whole file. The spec describes only the RNN under the prefix."""
    return replace(reading, prefix="", spec=None)


def _forget_frames(errors: Iterable[Exception]) -> None:
    """Free the frames in which the errors were raised: frames refer to all data of the file and to
    the errors, a cycle. (A local variable with an error in the caller would do the same.)"""
    for error in errors:
        error.__traceback__ = error.__context__ = None


def _no_rnn_error(path: Path, rnns: Found, file: TensorFile | None, reading: Reading) -> Exception:
    """Return the error for a file without a readable RNN."""
    if rnns.refused:
        return rnns.refused.pop(next(iter(rnns.refused)))
    if reading.prefix:
        prefixes = _prefixes(*read_file(path, _without_prefix(reading)))
        text = f"{path}: no recurrent layer found under {reading.prefix!r}"
        if not prefixes:
            return FileError(text, "; omit ", Ask("prefix", None))
        works = f" these would work: {list_names(prefixes, 12)}"
        listing = ("with ", Ask("prefix"), works)
        return FileError(unknown_name(text, reading.prefix, prefixes, *listing))
    parts: list[TextPart] = [f"{path}: no recurrent layer found"]
    if reading.layout is not None:
        parts += [f" in layout {reading.layout}"]
    if layouts := layouts_of_cells(rnns.shapes):
        arguments = join_parts(" or ", map(layout_argument, layouts))
        parts += ["; it has cells whose names do not show the layout: pass ", arguments]
    elif reading.layout is not None:
        parts += [": omit ", Ask("layout", None), " to look for all layouts"]
    parts += [f"; {note}" for note in rnns.notes]
    if not layouts and reading.layout is None and rnns.shapes:
        parts += ["; ", *_advice_on_names(rnns.shapes)]
    return FileError(*parts)


def _advice_on_names(shapes: Mapping[str, tuple[int, ...]]) -> list[TextPart]:
    """Return the advice on tensors whose names are in no layout, with the largest tensors."""
    names = list(shapes)
    if (len(names) == 1 and len(shapes[names[0]]) == 1) or is_list(names):
        kind = "a list of arrays that np.savez() wrote" if is_list(names) else "a weight space"
        return [f"if its tensors are {kind}, pass ", Ask("layout")]
    largest = sorted(names, key=lambda name: -prod(shapes[name]))[:5]
    listing = ", ".join(f"{list_names([name])} {shapes[name]}" for name in largest)
    rest = f" and {len(names) - len(largest)} smaller" if len(names) > len(largest) else ""
    if advice := names_by_hand(shapes):
        return [advice]
    return [f"its tensors, {listing}{rest}, {UNKNOWN_NAMES}"]


def _prefixes(rnns: Found, file: TensorFile | None) -> list[str]:
    """Return the prefixes that choose an RNN with prefix=; RNNs without a prefix have none."""
    all_prefixes = [group.prefix for group in file.groups] if file else rnns.names
    return [prefix.rstrip("./") for prefix in all_prefixes if prefix]


# The records of rnnlayout, and the framework whose tensors a .safetensors file has.
_NOT_A_USERS_TEXT = (KEY, "format")
_MOST_TEXTS = 100  # named in Converted.left_out


class TensorFile:
    """A file of named tensors. groups: the tensors of each RNN. rnns: the RNNs, in the form of
    load()'s result. non_tensors: names of further contents, which only a copy in the same format
    keeps. texts: names of texts in the metadata, which a copy in any format keeps."""

    def __init__(
        self, file: InputFile, format: TensorFormat, reading: Reading, tensor_set: TensorSet
    ) -> None:
        self._file, self._format, self._tensor_set = file, format, tensor_set
        self.non_tensors = (*self._tensor_set.values, *self._tensor_set.skipped)
        metadata = [key for key in self._tensor_set.metadata if key not in _NOT_A_USERS_TEXT]
        self.texts = tuple(f"__metadata__.{key}" for key in metadata[:_MOST_TEXTS])
        self._records = read_records(self._tensor_set.metadata, file)
        self.groups, self.rnns = find_rnns(self._tensor_set, reading, self._records)

    def others(self, names: Iterable[str]) -> dict[str, FileTensor]:
        """Return tensors by name."""
        return {name: self._tensor_set.tensors[name] for name in names}

    def add_optimizer_states(self, rnns: Found) -> None:
        """Give each RNN the state of its optimizer; add notes on RNNs without a state."""
        optimizers = self._tensor_set.optimizers
        if not optimizers:
            return
        # most files lack an optimizer, and load faster without this module
        from rnnlayout._files.tensor_sets.optimizer_slots import read_optimizer

        for group in self.groups:
            if (weights := rnns.get(group.entry)) is not None:
                names = {name: group.prefix + name for name in weights.names}
                names = names if {*names.values()} == {*group.names} else {}
                optimizer, notes = read_optimizer(group.entry, weights, names, optimizers)
                weights.optimizer = optimizer
                rnns.notes += notes

    def copy(
        self,
        out: Output,
        conversions: Mapping[str, LayerwiseConversion],
        progress: Progress | None,
        target: TensorFormat | None = None,
        head: DenseLayer | None = None,
    ) -> list[str]:
        """Write the file to `out` with the RNNs of `conversions` replaced; return notes. The new
        tensors of an RNN are at the position of the first old tensor. target: another format for
        the copy. head: takes the place of the only dense layer of the file. In a dry run only
        replace() is called, which may raise an error."""
        pairs = [
            (group, conversions[group.entry]) for group in self.groups if group.entry in conversions
        ]
        first = {group.names[0]: (group, conversion) for group, conversion in pairs}
        replaced = {name for group, _ in pairs for name in group.names}
        tensors: dict[str, FileTensor] = {}
        for name, tensor in self._tensor_set.tensors.items():
            if name in first:
                group, conversion = first[name]
                _add_tensors(tensors, group.prefix, conversion.tensors)
            elif name not in replaced:
                _add_tensors(tensors, "", {name: tensor})
        notes = []
        if head is not None:
            from rnnlayout._files.tensor_sets.dense_layer import replace_dense_layer

            notes = replace_dense_layer(tensors, self.rnns.others, head, self._file.path.name)
        if pairs and self._tensor_set.optimizers:
            notes.append("the optimizer's state is unchanged: it belongs to the old tensors")
        records = self._records | {
            group.entry: Record.of(conversion, group.prefix) for group, conversion in pairs
        }
        metadata = self._tensor_set.metadata | write_records(records)
        tensor_set = replace(self._tensor_set, tensors=tensors, metadata=metadata)
        target = target or self._format
        if target is self._format and target.replace is not None:
            file = InputFile(self._file.path, self._file.mmap)
            return notes + target.replace(file, out, tensor_set, pairs, progress)
        if not out.dry_run:
            assert target.write, "format_to_write() refuses formats that are only read"
            target.write(out, tensor_set, progress)
        return notes


def tensor_set_of(
    entries: Mapping[str, Weights | LayerwiseConversion], separator: str
) -> TensorSet:
    """Return RNNs as named tensors, with the name of the RNN as prefix; "" means no prefix."""
    tensors: dict[str, FileTensor] = {}
    records = {}
    for name, rnn in entries.items():
        prefix = name + separator if name else ""
        if isinstance(rnn, Weights):
            arrays = rnn.bits
            rnn_tensors = {n: FileTensor.of(array, rnn.spec.dtype) for n, array in arrays.items()}
        else:
            rnn_tensors = rnn.tensors
        _add_tensors(tensors, prefix, rnn_tensors)
        records[name or entry_name("", rnn.spec)] = Record.of(rnn, prefix)
    return TensorSet(tensors, write_records(records))


def _add_tensors(
    tensors: dict[str, FileTensor], prefix: str, rnn_tensors: Mapping[str, FileTensor]
) -> None:
    for name, tensor in rnn_tensors.items():
        if prefix + name in tensors:
            raise FileError(
                f"two tensors of the new file would have the name {prefix + name!r}: rename one in"
                " the source, or load() the RNNs and save() them under other names"
            )
        tensors[prefix + name] = tensor
