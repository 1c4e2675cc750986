"""Write RNNs to a new file, convert a file, or write RNNs into a copy of an existing file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
)
from rnnlayout._files.tensor_sets.file_limits import InputFile
from rnnlayout._files.tensor_sets.file_rnns import Found, check_names, entry_name
from rnnlayout._files.tensor_sets.layerwise import LayerwiseConversion, ScratchMemory
from rnnlayout._files.tensor_sets.output_file import Output, write_whole_file
from rnnlayout._files.tensor_sets.tensor_set import Converted, Progress
from rnnlayout._model.config import check_config
from rnnlayout._model.errors import Ask, Message, TextPart, error_with_parts, load_in_python
from rnnlayout._model.kinds import Kind, check_kind_of
from rnnlayout._model.layout import Layout, as_layout
from rnnlayout._model.reading_options import ReadingOptions, takes_options
from rnnlayout._model.spec import Spec
from rnnlayout._model.weights import Weights
from rnnlayout._native import LayoutError, LossyError, SpecError
from rnnlayout._sources.reading import make_reading

from .files import read_file, tensor_set_of
from .write_into import convert_into, notes_on_optimizers


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
        check_kind_of(rnn, "weights", f"weights[{name!r}]")
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
    into: Any = None,
    only: Sequence[str] | None = None,
    stack: Sequence[Sequence[str]] | None = None,
    map: Mapping[str, str] | None = None,
    head: str | None = None,
    exact: bool = False,
    force: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
    kind: Kind = "weights",
    spec: Spec | None = None,
    **options: Unpack[ReadingOptions],
) -> Converted:
    """Convert the recurrent layers of a file to another layout.

    to: the layout of the result. May be omitted if the format of `dst` has a single layout; the
        page "What each format can record" of the documentation lists the layouts.
    into: instead of `to`, a file: the result is a copy of the file with the weights of `src`, in
        the layouts and dtypes of the file. All its other contents and layers stay.
    only: names of RNNs. The new file has only these RNNs. stack: lists of names, bottom first; each
        list becomes one RNN. With only or stack, the new file has no further tensors.
    map: with into: names in `src` -> names in `into`, where the names differ.
    head: with into, for a .json or .nam file: the dense layer of `src`, such as "lin" of lin.weight
        and lin.bias, for the outputs of the copy.
    exact: as for convert(). force: replace `dst` if it exists.
    dry_run: do everything but write; models are written to memory.
    progress: called with the number of bytes written so far and the total, if known.
    kind: of the tensors of `src`, as for convert(). Both files must be sets of named tensors; the
        new file records the kind.
    Other arguments: how to read `src`, and the dtype of the result, see ReadingOptions.

    If both files are sets of named tensors, the tensors of each RNN are replaced in place and all
    further tensors are copied bit for bit. Otherwise, and with into, only the RNNs are written, and
    .left_out of the result names everything of `src` that the new file lacks: RNNs, tensors, and
    contents that only a checkpoint of the same format can store, such as the epoch, or texts.

    A whole Keras model, .h5 or .keras, is written for Keras 3. In .keras the optimizer goes on in
    Keras 3, unless a note has the reason why not. No other conversion carries the state of an
    optimizer: notes name each.

    Returns a report, see Converted. Raises FileExistsError if `dst` exists, without force; further
    errors as load(), convert() and save() do. If the target layout cannot represent one of the
    RNNs, nothing is written.
    """
    if into is not None:
        why = "the RNNs get the layouts and dtypes that they have in the file of into"
        of_kind = None if kind == "weights" else kind
        _refuse_arguments(why, to=to, dtype=options.get("dtype"), kind=of_kind)
        return convert_into(
            src,
            dst,
            into=into,
            only=only,
            stack=stack,
            map=map,
            head=head,
            exact=exact,
            force=force,
            dry_run=dry_run,
            progress=progress,
            spec=spec,
            **options,
        )
    _refuse_arguments("it is for a conversion with into", map=map, head=head)
    reading = make_reading(convert_file, options, spec, kind)
    path, dst = file_to_read(src), Path(dst)
    source, target = format_to_read(path, reading.format), format_to_write(dst)
    for file, format in ((path, source), (dst, target)) if kind != "weights" else ():
        if isinstance(format, ModelFormat):
            raise LayoutError(
                f"{file}: a {format.suffix} file has weights, not tensors of kind {kind!r}: use a"
                " file of named tensors, .safetensors"
            )
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
        all_rnns, rnns = rnns, choose_rnns(rnns, only, stack)
        _check_all_read(rnns, Message("convert the others with ", Ask("only", [*rnns])))
        scratch, conversions, errors = ScratchMemory(), {}, {}
        for name, weights in rnns.items():
            check_kind_of(weights, kind, f"{path}: {name}")
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
        non_tensors, texts = (file.non_tensors, file.texts) if file else ((), ())
        notes, left_out = list(rnns.notes), (*rnns.others, *rnns.unused, *non_tensors, *texts)
        if whole_file and file is not None and isinstance(target, TensorFormat):
            notes += file.copy(out, conversions, progress, target)
            left_out = () if source is target else non_tensors
        else:
            repair = Message("choose one with ", Ask("prefix"))
            _write_new_file(out, target, conversions, repair, progress)
        for conversion in conversions.values() if dry_run else ():
            conversion.check()
    layouts = dict.fromkeys([*rnns, *(name for names in stack or () for name in names)], to)
    code = load_in_python(path, {"spec": spec, **options})
    notes += notes_on_optimizers(all_rnns, layouts, code)
    if left_out and whole_file and to.name == "keras" and rewrite is not None:
        notes.append(
            "the new file has only the RNNs; to convert the whole model, give it the old one's"
            f" suffix, {source.suffix}"
        )
    reports = {name: conversion.report for name, conversion in conversions.items()}
    return Converted(reports, left_out, tuple(notes))


def _refuse_arguments(reason: str, **arguments: Any) -> None:
    """Raise SpecError if one of the arguments was passed."""
    for name, value in arguments.items():
        if value is not None:
            raise SpecError(f"{name} cannot be used here, because {reason}: omit ", Ask(name, None))
