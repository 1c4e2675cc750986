"""Write the RNNs of a file into a copy of an existing file."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Unpack

from rnnlayout._files.formats.registry import (
    Format,
    ModelFormat,
    NewWeights,
    TensorFormat,
    file_to_read,
    format_to_read,
    format_to_write,
)
from rnnlayout._files.tensor_sets.choose_rnns import (
    choose_rnns,
    match_names,
    split_layers_as_in,
    stack_and_layer,
    stack_layers_as_in,
)
from rnnlayout._files.tensor_sets.dense_layer import DenseLayer, dense_layers, read_dense_layer
from rnnlayout._files.tensor_sets.file_limits import InputFile
from rnnlayout._files.tensor_sets.file_rnns import Found
from rnnlayout._files.tensor_sets.layerwise import LayerwiseConversion
from rnnlayout._files.tensor_sets.output_file import check_free, write_whole_file
from rnnlayout._files.tensor_sets.tensor_set import Converted, FileTensor, Progress
from rnnlayout._model.errors import Ask, FileError, Message, TextPart, load_in_python
from rnnlayout._model.kinds import check_kind_of
from rnnlayout._model.layout import Layout, layout_in_code
from rnnlayout._model.reading_options import OF_FORMATS, UNRECORDED, ReadingOptions
from rnnlayout._model.spec import Spec, differing_fields
from rnnlayout._model.weights import Weights
from rnnlayout._native import LayoutError, SpecError
from rnnlayout._sources.mismatch import list_names
from rnnlayout._sources.reading import Reading, make_reading

from .files import TensorFile, load, read_file

_MOST_TRIED = 12  # RNNs per file, to suggest a pair in a message


def convert_into(
    src: Any,
    dst: Any,
    *,
    into: Any,
    only: Sequence[str] | None = None,
    stack: Sequence[Sequence[str]] | None = None,
    map: Mapping[str, str] | None = None,
    head: str | None = None,
    exact: bool = False,
    force: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
    spec: Spec | None = None,
    **options: Unpack[ReadingOptions],
) -> Converted:
    """Write a copy of the file `into` to `dst`, with the weights of the RNNs of `src`. src: a file,
    or a result of load().

    The arguments are those of convert_file(). RNNs are matched by name as in verify(). An RNN of
    several layers, NAME, also matches RNNs of one layer each, NAME_0, NAME_1 ... or /NAME/LSTM,
    /NAME/LSTM_1 ... Each RNN is written in the layout and dtype of the RNN in `into`; everything
    else in `into` is copied unchanged. Facts that `into` does not record are taken from the options
    for reading `src`.
    Raises LayoutError if no names match, or if RNNs of equal names differ in the spec.
    """
    model, dst = file_to_read(into), Path(dst)
    path = model if isinstance(src, Found) else file_to_read(src)
    format = _format_of_copy(model, dst, head)
    source_format = None if isinstance(src, Found) else format_to_read(path, options.get("format"))
    old, model_reading = _read_model(model, format, source_format, spec, options)
    if source_format is None:
        source = _OpenedFile(path, None, src, None)
    else:
        source = _read_source(path, source_format, model_reading, spec, options)
    new = stack_layers_as_in(choose_rnns(source.rnns, only, stack), old.rnns)
    new, map = split_layers_as_in(new, old.rnns, map)
    check_free(dst, force, path, model)
    pairs = _match_rnns(new, old.rnns, map, path, model)
    conversions = {
        target: LayerwiseConversion(
            new[name], old.rnns[target].layout, old.rnns[target].spec.dtype, exact
        )
        for name, target in pairs.items()
    }
    layer = None if head is None else source.dense_layer(head, new[next(iter(pairs))], exact)
    with write_whole_file(dst, force=force, source=path, dry_run=dry_run) as out:
        out.sources += [*source.rnns.files, *old.rnns.files]
        if old.tensors is not None:
            notes = old.tensors.copy(out, conversions, progress, head=layer)
        else:
            assert isinstance(format, ModelFormat), format
            assert format.replace, "_format_of_copy() refuses other formats"
            rnns = {name: conversion.weights() for name, conversion in conversions.items()}
            file = InputFile(model, model_reading.mmap)
            notes = format.replace(file, out, NewWeights(rnns, model_reading, layer))
    for conversion in conversions.values() if dry_run else ():
        conversion.check()
    moved = {*source.tensors_in(old), *(layer.tensors if layer else ())}
    left_out = [name for name in new.names if name not in pairs]
    left_out += [name for name in (*new.others, *new.unused) if name not in moved]
    layouts = dict.fromkeys(source.rnns, next(iter(conversions.values())).layout)
    code = "source" if source_format is None else load_in_python(path, {"spec": spec, **options})
    notes += notes_on_optimizers(source.rnns, layouts, code)
    notes += [
        f"{name} of {model.name} is unchanged"
        for name in old.rnns.readable
        if name not in conversions
    ]
    if layer is None:
        others = [name for name in new.others if name not in moved]
        notes += _notes_about_others(others, old.rnns, model, format)
    reports = {name: conversion.report for name, conversion in conversions.items()}
    notes = [*new.notes, *old.rnns.notes, *notes]
    return Converted(reports, (*left_out, *source.non_tensors), tuple(notes))


def notes_on_optimizers(rnns: Found, layouts: Mapping[str, Layout], source: str) -> list[str]:
    """Return a note on each state of an optimizer that the new file lacks. layouts: of RNNs in the
    new file, by the names in `rnns`. source: `rnns`, in Python."""
    return [
        f"{name}: its optimizer's {', '.join([*state.slots, *state.hyperparameters])} and step"
        f" ({state.step}) are not converted: in Python,"
        f" {source}[{name!r}].optimizer.to({layout_in_code(layouts[name])})"
        for name, weights in rnns.items()
        if name in layouts and (state := weights.optimizer)
    ]


def _format_of_copy(model: Path, dst: Path, head: str | None) -> Format:
    """Return the format of the model and its copy. Raises FileError if new weights cannot be put
    into a file of the format."""
    format = format_to_read(model, asks=False)
    if not (format.replace or (isinstance(format, TensorFormat) and format.write)):
        raise FileError(
            f"{model}: weights cannot be put into a {format.suffix} file: load the model with its"
            " own program, pass its layer or module to rl.assign(), and save it again"
        )
    if format_to_write(dst, copies=True).suffix != format.suffix:
        raise FileError(f"{dst}: a copy of {model} needs the same suffix, {format.suffix}")
    if head is not None and not format.has_head:
        raise FileError(
            f"{model}: a {format.suffix} file has no head, the dense layer at the outputs of a"
            " .json or .nam file: omit ",
            Ask("head", None),
            ", and put the layer into the model with the model's own program",
        )
    return format


# ------------------------------------------------------------------------------ the two files


@dataclass(frozen=True)
class _OpenedFile:
    """A file that was read. path: of the file. format: None for RNNs in memory. tensors: None
    unless the file is a set of named tensors."""

    path: Path
    format: Format | None
    rnns: Found
    tensors: TensorFile | None

    @property
    def non_tensors(self) -> tuple[str, ...]:
        """The names of contents that are not tensors."""
        return (*self.tensors.non_tensors, *self.tensors.texts) if self.tensors else ()

    def tensors_in(self, file: _OpenedFile) -> list[str]:
        """Return the names of tensors that another file has too, outside the RNNs."""
        if self.tensors is None or file.tensors is None:
            return []
        others = {*file.rnns.others}
        names = [name for name in self.rnns.others if name in others]
        tensors, copies = self.tensors.others(names), file.tensors.others(names)
        return [name for name in names if tensors[name].same_as(copies[name])]

    def dense_layer(self, name: str, rnn: Weights, exact: bool) -> DenseLayer:
        """Return a dense layer of the file. rnn: an RNN of the file. Raises FileError if only RNNs
        are read from the format: names of weights in ONNX do not show what nodes make of them."""
        if isinstance(self.format, ModelFormat) and not self.format.read_others:
            raise FileError(
                f"{self.path}: only RNNs are read from it: for ",
                Ask("head"),
                " pass a file with all tensors of the model, such as its state_dict in a .pt file",
            )
        read = self._read_tensors
        return read_dense_layer(name, self.rnns.others, read, rnn.layout.name, exact=exact)

    def _read_tensors(self, names: Collection[str]) -> dict[str, FileTensor]:
        """Return tensors outside the RNNs by name."""
        if self.tensors is not None:
            return self.tensors.others(names)
        assert isinstance(self.format, ModelFormat), self.format
        assert self.format.read_others, "dense_layer() refuses other formats"
        return self.format.read_others(InputFile(self.path), names)


def _read_model(
    path: Path, format: Format, source: Format | None, spec: Spec | None, options: ReadingOptions
) -> tuple[_OpenedFile, Reading]:
    """Return the file that is copied, and how it was read. source: the format of the source.

    An option that only one of the formats takes is for its file. Of the other options the copied
    file gets those that it asks for."""
    mmap = options.get("mmap", True)
    taken = {name: options.get(name) for name in format.options if options.get(name)}
    certain = {name: taken[name] for name in taken if source and name not in source.options}
    possible = {name: options.get(name) for name in ("layout", *UNRECORDED) if options.get(name)}
    if spec is not None:  # describes the RNN in src, and the undecided RNN in the model
        possible = {"cell": spec.cell, "reset": spec.reset} | possible
    reading = make_reading(load, certain, mmap=mmap)
    with suppress(LayoutError, SpecError, FileError):  # FileError: without names of tensors
        rnns, tensors = read_file(path, reading, asks=False)
        asked = _asked_options(rnns)
        possible |= {name: taken[name] for name in taken if name in asked}
        if not (rnns.undecided and possible):
            return _OpenedFile(path, format, rnns, tensors), reading
    reading = make_reading(load, possible | certain, mmap=mmap)
    rnns, tensors = read_file(path, reading, asks=False)
    return _OpenedFile(path, format, rnns, tensors), reading


def _read_source(
    path: Path, format: Format, model: Reading, spec: Spec | None, options: ReadingOptions
) -> _OpenedFile:
    """Return the file with the new weights. Options that the copied file was read with, the source
    gets only if it asks for them. model: how the copied file was read."""
    reading = make_reading(load, options, spec)
    used = [name for name in OF_FORMATS if getattr(model, name)]
    if used:
        unused: dict[str, Any] = dict.fromkeys(used)
        plain = replace(reading, **unused)
        rnns, tensors = read_file(path, plain)
        if _asked_options(rnns).isdisjoint(used):
            return _OpenedFile(path, format, rnns, tensors)
    rnns, tensors = read_file(path, reading)
    return _OpenedFile(path, format, rnns, tensors)


def _asked_options(rnns: Found) -> set[str]:
    """Return the arguments that the errors of undecided RNNs ask for."""
    return {name for error in rnns.undecided.values() for name, _ in error.asks}


def _notes_about_others(
    left_out: Sequence[str], old: Found, model: Path, format: Format
) -> list[str]:
    """Return notes about tensors of the model that stay as they were, if the source has a
    counterpart, or if the tensors are the head of the model. left_out: tensors of the source."""
    names = [name for name in old.others if name in left_out]
    if format.has_head or (left_out and not names):
        names = [*old.others]
    if not names:
        return []
    parts: list[TextPart] = [f"unchanged from {model.name}: {list_names(names)}"]
    if format.has_head and (layers := [*dense_layers(left_out)]):
        parts += ["; to replace its head with a dense layer of the source pass "]
        parts += [Ask("head", layers[0] if len(layers) == 1 else ...)]
    return [Message(*parts).text]


# ------------------------------------------------------------------------------ pairs of RNNs


def _match_rnns(
    new: Found, old: Found, map: Mapping[str, str] | None, path: Path, model: Path
) -> dict[str, str]:
    """Return name in `new` -> name in `old`, for each RNN with a counterpart."""
    pairs = match_names(new, old, map)
    if not pairs:
        targets = old.readable[:_MOST_TRIED]  # also tried: stacks with these names as layers
        stacks = [stack_and_layer(name)[0] for name in targets]
        candidates = product(new.readable[:_MOST_TRIED], dict.fromkeys([*targets, *stacks]))
        fit = next((pair for pair in candidates if _is_map_accepted(new, old, *pair)), None)
        raise LayoutError(
            f"no RNN of {path} ({', '.join(new.readable)}) has the name of one of {model}"
            f" ({', '.join(old.readable)}), ",
            *(["pair them with ", Ask("map", dict([fit]))] if fit else ["nor its sizes"]),
        )
    for name, target in pairs.items():
        if difference := differing_fields(new[name].spec, old[target].spec):
            raise LayoutError(f"{target}: two different RNNs in {path} and {model}: {difference}")
        check_kind_of(new[name], old[target].kind, name)
    return pairs


def _is_map_accepted(new: Found, old: Found, name: str, target: str) -> bool:
    """Return whether convert_into() would accept this pair as map=, if only the files decide."""
    split, pairs = split_layers_as_in(new, old, {name: target})
    pairs = pairs or {layer: layer for layer in split if layer not in new}
    for layer, counterpart in pairs.items():
        a, b = split.get(layer), old.get(counterpart)
        if counterpart not in old.readable or (a and b and differing_fields(a.spec, b.spec)):
            return False
    return True
