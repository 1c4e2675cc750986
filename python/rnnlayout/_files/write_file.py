"""Write RNNs to a new file, convert a file, or write RNNs into a copy of an existing file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any, Unpack

from rnnlayout._files.formats.registry import (
    Format,
    ModelFormat,
    TensorFormat,
    explain_wrong_suffix,
    file_to_read,
    format_to_read,
    format_to_write,
    layout_of_format,
    why_not_in,
)
from rnnlayout._files.tensor_sets.choose_rnns import (
    choose_rnns,
    match_names,
    split_layers_as_in,
    stack_and_layer,
    stack_layers_as_in,
)
from rnnlayout._files.tensor_sets.file_limits import InputFile
from rnnlayout._files.tensor_sets.file_rnns import Found, check_names, entry_name
from rnnlayout._files.tensor_sets.layerwise import LayerwiseConversion, ScratchMemory
from rnnlayout._files.tensor_sets.output_file import Output, check_free, write_whole_file
from rnnlayout._files.tensor_sets.tensor_set import Converted, Progress
from rnnlayout._model.config import check_config
from rnnlayout._model.errors import Ask, FileError, Message, TextPart, error_with_parts
from rnnlayout._model.layout import Layout, as_layout
from rnnlayout._model.reading_options import UNRECORDED, ReadingOptions, takes_options
from rnnlayout._model.spec import Spec, differing_fields
from rnnlayout._model.weights import Weights
from rnnlayout._native import LayoutError, LossyError, SpecError
from rnnlayout._sources.reading import Reading, make_reading

from .files import load, read_file, tensor_set_of


def save(path: Any, weights: Weights | Mapping[str, Weights]) -> None:
    """Write one RNN, or several by name, to a file. The suffix decides the format.

    If the format lacks the layout of an RNN, the RNN is converted, provided that this is exact. The
    page "What each format can record" of the documentation lists the layouts of all formats.
    An existing file is replaced. The new file is written atomically: either the new file is
    complete, or the old file is unchanged.

    Only RNNs are written, not the further tensors of a file that load() read: convert_file() keeps
    all tensors.

    Raises LayoutError if the conversion would round (to accept this, convert with Weights.to()), or
    if a setting in config is of a wrong kind; LossyError if the format cannot represent an RNN, or
    a setting that changes the outputs of an RNN. If `weights` is a result of load() without some
    RNNs of the file, the error of the first is raised.

        >>> import tempfile
        >>> import numpy as np
        >>> path = Path(tempfile.mkdtemp(), "amp.c")  # for a microcontroller
        >>> spec = Spec("rnn_tanh", 1, 1, bias=False, dtype="f8")
        >>> save(path, {"amp": Weights([np.eye(1), np.eye(1)], spec, layout="keras")})
        >>> "void amp_step(amp_state *state, const double *x, double *y);" in path.read_text()
        True
    """
    format = format_to_write(path)
    entries = {"": weights} if isinstance(weights, Weights) else weights
    if not isinstance(entries, Mapping):
        raise LayoutError(
            f"weights is a {type(weights).__name__}, need a Weights, or a dict of them by name:"
            " pass rl.Weights(weights)"
        )
    if isinstance(entries, Found):
        _check_all_read(entries, f"write the others with save(path, dict(found)): {[*entries]}")
    if not entries:
        raise LayoutError("weights is empty, need a Weights, or a dict of them by name")
    for name, rnn in entries.items():
        if not isinstance(name, str) or not isinstance(rnn, Weights):
            raise LayoutError(
                f"weights[{name!r}] is a {type(rnn).__name__}, need a Weights: pass rl.Weights() of"
                " it, or of the whole dict if that is one RNN"
            )
        check_config(rnn.config)
    check_names(entries)
    converted = {}
    for name, rnn in entries.items():
        if isinstance(format, TensorFormat) or rnn.layout.name in format.layouts:
            converted[name] = rnn
            continue
        result = converted[name] = rnn.to(to := format.layouts[0])
        if result.report and result.report.rounded_sums:
            raise LayoutError(
                f"{name or 'the RNN'} is in layout {rnn.layout}, a {format.suffix} file has {to},"
                f" and the conversion would round: {result.report.reason}. To accept that, convert"
                f" it with .to({to!r}) first, or ",
                Ask("to", to),
            )
    repair = f"pass one of them, as in save(path, weights[{next(iter(entries))!r}])"
    with write_whole_file(path, force=True) as out:
        _write_new_file(out, format, converted, repair)


def _check_all_read(rnns: Found, repair: TextPart) -> None:
    """Raise the error of the first RNN that is undecided or refused."""
    repair_parts = [": ", repair] if rnns else []
    for error in rnns.unread.values():
        raise error_with_parts(error, error, "; nothing was written", *repair_parts)


def _write_new_file(
    out: Output,
    format: Format,
    entries: Mapping[str, Weights | LayerwiseConversion],
    repair: TextPart,
    progress: Progress | None = None,
) -> None:
    """Write a new file with only the RNNs of `entries`; in a dry run raise the errors of writing.
    repair: how to choose an RNN, for the error if the file can store only one."""
    if isinstance(format, ModelFormat) and format.single and len(entries) > 1:
        names = ", ".join(map(repr, entries))
        raise LayoutError(f"{out.name} can store one RNN, found {names}: ", repair)
    assert format.write, "format_to_write() refuses formats that are only read"
    if isinstance(format, TensorFormat):
        tensor_set = tensor_set_of(entries, format.separator)
        if not out.dry_run:
            format.write(out, tensor_set, progress)
    else:
        weights = {
            name or entry_name("", rnn.spec): rnn if isinstance(rnn, Weights) else rnn.weights()
            for name, rnn in entries.items()
        }
        format.write(out, weights)


@takes_options(ReadingOptions)
def convert_file(
    src: Any,
    dst: Any,
    *,
    to: str | Layout | None = None,
    only: Sequence[str] | None = None,
    stack: Sequence[Sequence[str]] | None = None,
    exact: bool = False,
    force: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
    spec: Spec | None = None,
    **options: Unpack[ReadingOptions],
) -> Converted:
    """Convert the recurrent layers of a file to another layout.

    to: the layout of the result. May be omitted if the format of `dst` has a single layout; the
        page "What each format can record" of the documentation lists the layouts.
    only: names of RNNs. The new file has only these RNNs. stack: lists of names, bottom first; each
        list becomes one RNN. With only or stack, the new file has no further tensors.
    exact: as for convert(). force: replace `dst` if it exists.
    dry_run: do everything but write; models are written to memory.
    progress: called with the number of bytes written so far and the total, if known.
    Other arguments: how to read `src`, and the dtype of the result, see ReadingOptions.

    If both files are sets of named tensors, the tensors of each RNN are replaced in place and all
    further tensors are copied bit for bit. Otherwise only the RNNs are written, and .left_out of
    the result names the RNNs and tensors that the new file lacks. .left_out also names contents
    that only a checkpoint of the same format can store, such as the epoch.

    Returns a report, see Converted. Raises FileExistsError if `dst` exists, without force; further
    errors as load(), convert() and save() do. If the target layout cannot represent one of the
    RNNs, nothing is written.
    """
    reading = make_reading(convert_file, options, spec)
    path, dst = file_to_read(src), Path(dst)
    source, target = format_to_read(path, reading.format), format_to_write(dst)
    to = as_layout(layout_of_format(target) if to is None else to)
    rewrite = source.rewrite if isinstance(source, ModelFormat) else None
    with write_whole_file(dst, force=force, source=path, dry_run=dry_run) as out:
        whole_file = only is None and stack is None
        if source is target and rewrite is not None and whole_file:
            with explain_wrong_suffix(path, source):
                model = InputFile(path, reading.mmap)
                return rewrite(model, out, reading, to, reading.dtype, exact)
        if unfit := why_not_in(target, to):
            raise LayoutError(f"{dst}: ", unfit)
        rnns, file = read_file(path, reading)
        out.sources += rnns.files
        rnns = choose_rnns(rnns, only, stack)
        _check_all_read(rnns, Message("convert the others with ", Ask("only", [*rnns])))
        scratch, conversions, errors = ScratchMemory(), {}, {}
        for name, weights in rnns.items():
            try:
                conversions[name] = LayerwiseConversion(weights, to, reading.dtype, exact, scratch)
            except LossyError as error:
                errors[name] = error
        for name, first in errors.items():
            if len(rnns) == 1:
                raise first
            repair_parts = [": convert the others with ", Ask("only", [*conversions])]
            raise error_with_parts(
                first,
                f"{name}: ",
                first,
                "; nothing was written",
                *(repair_parts if conversions else ()),
            )
        non_tensors = file.non_tensors if file else ()
        notes, left_out = list(rnns.notes), (*rnns.others, *rnns.unused, *non_tensors)
        if whole_file and file is not None and isinstance(target, TensorFormat):
            notes += file.copy(out, conversions, progress, target)
            left_out = () if source is target else non_tensors
        else:
            repair = Message("choose one with ", Ask("prefix"))
            _write_new_file(out, target, conversions, repair, progress)
        for conversion in conversions.values() if dry_run else ():
            conversion.check()
    if left_out and whole_file and to.name == "keras" and rewrite is not None:
        notes.append(
            "the new file has only the RNNs; to convert the whole model, give it the old one's"
            f" suffix, {source.suffix}"
        )
    reports = {name: conversion.report for name, conversion in conversions.items()}
    return Converted(reports, left_out, tuple(notes))


# ------------------------------------------------------------------------------------- convert_into

_MOST_TRIED = 12  # RNNs per file, to suggest a pair in a message


def convert_into(
    src: Any,
    dst: Any,
    *,
    into: Any,
    only: Sequence[str] | None = None,
    stack: Sequence[Sequence[str]] | None = None,
    map: Mapping[str, str] | None = None,
    exact: bool = False,
    force: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
    spec: Spec | None = None,
    **options: Unpack[ReadingOptions],
) -> Converted:
    """Write a copy of the file `into` to `dst`, with the weights of the RNNs of `src`. src: a file,
    or a result of load().

    only, stack: the RNNs of `src` to use, as in convert_file(). RNNs are matched by name as in
    verify(). An RNN of several layers, NAME, also matches RNNs of one layer each, NAME_0, NAME_1
    ... or /NAME/LSTM, /NAME/LSTM_1 ... map: names in `src` -> names in `into`, where the names
    differ. Each RNN is written in the layout and dtype of the RNN in `into`; everything else in
    `into` is copied unchanged. Other arguments: as for convert_file(). Facts that `into` does not
    record are taken from the options for reading `src`.
    Raises LayoutError if no names match, or if RNNs of equal names differ in the spec.
    """
    model, dst = file_to_read(into), Path(dst)
    path = model if isinstance(src, Found) else file_to_read(src)
    format, needs_options = format_to_read(model, asks=False), True
    replace = format.replace if isinstance(format, ModelFormat) else None
    if not (replace or (isinstance(format, TensorFormat) and format.write)):
        raise FileError(
            f"{model}: weights cannot be put into a {format.suffix} file: load the model with its"
            " own program, pass its layer or module to rl.assign(), and save it again"
        )
    if format_to_write(dst, copies=True) is not format:
        raise FileError(f"{dst}: a copy of {model} needs the same suffix, {format.suffix}")
    mmap = options.get("mmap", True)
    model_options = {
        name: options.get(name) for name in ("layout", *UNRECORDED) if options.get(name)
    }
    if spec is not None:  # describes the RNN in src, and the undecided RNN in the model
        model_options = {"cell": spec.cell, "reset": spec.reset} | model_options
    with suppress(LayoutError, SpecError, FileError):  # FileError: without names of tensors
        old, file = read_file(model, Reading(mmap=mmap), asks=False)
        needs_options = bool(old.undecided and model_options)
    if needs_options:
        old, file = read_file(model, make_reading(load, model_options, mmap=mmap), asks=False)
    source = src if isinstance(src, Found) else load(path, spec, **options)
    new = stack_layers_as_in(choose_rnns(source, only, stack), old)
    new, map = split_layers_as_in(new, old, map)
    check_free(dst, force, path, model)
    pairs = _match_rnns(new, old, map, path, model)
    conversions = {
        target: LayerwiseConversion(new[name], old[target].layout, old[target].spec.dtype, exact)
        for name, target in pairs.items()
    }
    notes: list[str] = []
    with write_whole_file(dst, force=force, source=path, dry_run=dry_run) as out:
        out.sources += [*source.files, *old.files]
        if file is not None:
            notes = file.copy(out, conversions, progress)
        elif replace is not None:
            entries = {name: conversion.weights() for name, conversion in conversions.items()}
            notes = replace(InputFile(model, mmap), out, entries)
    for conversion in conversions.values() if dry_run else ():
        conversion.check()
    notes += [
        f"{name} of {model.name} is unchanged" for name in old.readable if name not in conversions
    ]
    left_out = tuple(name for name in new.names if name not in pairs)
    reports = {name: conversion.report for name, conversion in conversions.items()}
    return Converted(reports, left_out, (*new.notes, *old.notes, *notes))


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
