"""save, convert_file, convert_into: new files with RNNs, and copies of files with other RNNs."""

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
from rnnlayout._model.spec import Spec, differing_fields
from rnnlayout._native import LayoutError, LossyError, SpecError
from rnnlayout._sources.reading import Reading, make_reading
from rnnlayout._sources.reading_options import UNRECORDED, ReadingOptions, takes_options
from rnnlayout._weights.weights import Weights

from .files import load, read_file, tensor_set_of


def save(path: Any, weights: Weights | Mapping[str, Weights]) -> None:
    """Write one RNN, or several by name, to a file. Its suffix decides the format.

    An RNN whose layout the format lacks is converted to the format's own if that is exact. The page
    "What each format can record" of the documentation lists the layouts of all formats.
    An existing file is replaced. The new file is written atomically: it is complete, or the old one
    is unchanged.

    Only RNNs are written, not the other tensors of a file that load() read: convert_file() keeps
    them.

    Raises LayoutError if that conversion would round (convert with Weights.to() to accept that), or
    if a setting in config is not of its kind; LossyError if the format cannot represent an RNN, or
    a setting that changes its outputs; the first error of `weights.refused` if it is what load()
    returned and some RNNs of the file could not be read.

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
    for name, one in entries.items():
        if not isinstance(name, str) or not isinstance(one, Weights):
            raise LayoutError(
                f"weights[{name!r}] is a {type(one).__name__}, need a Weights: pass rl.Weights() of"
                " it, or of the whole dict if that is one RNN"
            )
        check_config(one.config)
    check_names(entries)
    converted = {}
    for name, one in entries.items():
        if isinstance(format, TensorFormat) or one.layout.name in format.layouts:
            converted[name] = one
            continue
        made = converted[name] = one.to(to := format.layouts[0])
        if made.report and made.report.rounded_sums:
            raise LayoutError(
                f"{name or 'the RNN'} is in layout {one.layout}, a {format.suffix} file has {to},"
                f" and the conversion would round: {made.report.reason}. To accept that, convert it"
                f" with .to({to!r}) first, or ",
                Ask("to", to),
            )
    repair = f"pass one of them, as in save(path, weights[{next(iter(entries))!r}])"
    with write_whole_file(path, force=True) as out:
        _write_new_file(out, format, converted, repair)


def _check_all_read(found: Found, repair: TextPart) -> None:
    """Raise the first error of the RNNs of a file that are undecided or could not be read."""
    for error in found.unread.values():
        others = [": ", repair] if found else []
        raise error_with_parts(error, error, "; nothing was written", *others)


def _write_new_file(
    out: Output,
    format: Format,
    entries: Mapping[str, Weights | LayerwiseConversion],
    repair: TextPart,
    progress: Progress | None = None,
) -> None:
    """Write a new file with these RNNs and nothing else; in a dry run find out if it can be.
    repair: what to do if the file can store only one."""
    if isinstance(format, ModelFormat) and format.single and len(entries) > 1:
        names = ", ".join(map(repr, entries))
        raise LayoutError(f"{out.name} can store one RNN, found {names}: ", repair)
    assert format.write, "format_to_write() refuses the others"
    if isinstance(format, TensorFormat):
        tensor_set = tensor_set_of(entries, format.separator)
        if not out.dry_run:
            format.write(out, tensor_set, progress)
    else:
        format.write(out, {
            name or entry_name("", one.spec): one if isinstance(one, Weights) else one.weights()
            for name, one in entries.items()
        })  # fmt: skip


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

    to: the layout of the result; by default the one of `dst`, if its format has only one: save()
        says where all are listed.
    only: names of RNNs: the new file has these and nothing else. stack: lists of names, bottom
        first; each list becomes one RNN. With only or stack the new file has no other tensors.
    exact: as for convert(). force: replace `dst` if it exists.
    dry_run: find out what would be done, without writing: a model is made in memory.
    progress: called with the number of bytes written so far and the total, if that is known.
    Other arguments: how `src` is read, and the dtype of the result, see ReadingOptions.

    If both files are sets of named tensors, the tensors of each RNN are replaced in place and all
    others are copied bit for bit. If one of them has another format, only the RNNs are written.
    .left_out of the result then names the RNNs and tensors that the new file does not have, and
    always what only another checkpoint keeps of a checkpoint, such as its epoch.

    Returns what was done. Raises FileExistsError if `dst` exists, without force; the other errors
    are those of load(), convert() and save(). If a single RNN cannot be represented in the target
    layout, nothing is written.
    """
    reading = make_reading(convert_file, options, spec)
    path, dst = file_to_read(src), Path(dst)
    source, target = format_to_read(path, reading.format), format_to_write(dst)
    to = as_layout(layout_of_format(target) if to is None else to)
    modernize = source.rewrite if isinstance(source, ModelFormat) else None
    with write_whole_file(dst, force=force, source=path, dry_run=dry_run) as out:
        whole_file = only is None and stack is None
        if source is target and modernize is not None and whole_file:
            with explain_wrong_suffix(path, source):
                model = InputFile(path, reading.mmap)
                return modernize(model, out, reading, to, reading.dtype, exact)
        if unfit := why_not_in(target, to):
            raise LayoutError(f"{dst}: ", unfit)
        found, file = read_file(path, reading)
        out.sources += found.files
        found = choose_rnns(found, only, stack)
        _check_all_read(found, Message("convert the others with ", Ask("only", [*found])))
        scratch, conversions, refused = ScratchMemory(), {}, {}
        for name, weights in found.items():
            try:
                conversions[name] = LayerwiseConversion(weights, to, reading.dtype, exact, scratch)
            except LossyError as error:
                refused[name] = error
        for name, why in refused.items():
            if len(found) == 1:
                raise why
            others = [": convert the others with ", Ask("only", [*conversions])]
            raise error_with_parts(
                why, f"{name}: ", why, "; nothing was written", *(others if conversions else ())
            )
        beside = file.beside if file else ()
        notes, left_out = list(found.notes), (*found.others, *found.unused, *beside)
        if whole_file and file is not None and isinstance(target, TensorFormat):
            notes += file.copy(out, conversions, progress, target)
            left_out = () if source is target else beside
        else:
            repair = Message("choose one with ", Ask("prefix"))
            _write_new_file(out, target, conversions, repair, progress)
        for one in conversions.values() if dry_run else ():
            one.check()
    if left_out and whole_file and to.name == "keras" and modernize is not None:
        notes.append(
            "the new file has only the RNNs; to convert the whole model, give it the old one's"
            f" suffix, {source.suffix}"
        )
    reports = {name: one.report for name, one in conversions.items()}
    return Converted(reports, left_out, tuple(notes))


# ------------------------------------------------------------------------------------- convert_into

_MOST_TRIED = 12  # RNNs of a file, for the pair that a message suggests


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
    """Write a copy of the file `into` to `dst`, with the weights of the RNNs of `src`, a file or
    what load() returned.

    only, stack: the RNNs of `src` that are used, as in convert_file(). RNNs are matched by name as
    in verify(), also one of several layers with RNNs of one layer each, NAME_0, NAME_1 ... or
    /NAME/LSTM, /NAME/LSTM_1 ..., which are those of NAME. map: names in `src` -> names in `into`,
    where they differ. Each is written in the layout and dtype that it has in `into`; everything
    else in `into` is copied unchanged. Other arguments as for convert_file(); what `into` does not
    record is taken from the options of the reading too.
    Raises LayoutError if no names match, or two RNNs of one name are not the same.
    """
    model, dst = file_to_read(into), Path(dst)
    path = model if isinstance(src, Found) else file_to_read(src)
    format, again = format_to_read(model, asks=False), True
    put = format.replace if isinstance(format, ModelFormat) else None
    if not (put or (isinstance(format, TensorFormat) and format.write)):
        raise FileError(
            f"{model}: weights cannot be put into a {format.suffix} file: load the model with its"
            " own program, pass its layer or module to rl.assign(), and save it again"
        )
    if format_to_write(dst, copies=True) is not format:
        raise FileError(f"{dst}: a copy of {model} needs the same suffix, {format.suffix}")
    mmap = options.get("mmap", True)
    known = {name: options.get(name) for name in ("layout", *UNRECORDED) if options.get(name)}
    if spec is not None:  # of an RNN of src, and of the one in the model that asks
        known = {"cell": spec.cell, "reset": spec.reset} | known
    with suppress(LayoutError, SpecError, FileError):  # FileError: its tensors have no names
        old, file = read_file(model, Reading(mmap=mmap), asks=False)
        again = bool(old.undecided and known)
    if again:
        old, file = read_file(model, make_reading(load, known, mmap=mmap), asks=False)
    source = src if isinstance(src, Found) else load(path, spec, **options)
    new = stack_layers_as_in(choose_rnns(source, only, stack), old)
    new, map = split_layers_as_in(new, old, map)
    check_free(dst, force, path, model)
    pairs = _pairs(new, old, map, path, model)
    conversions = {
        target: LayerwiseConversion(new[name], old[target].layout, old[target].spec.dtype, exact)
        for name, target in pairs.items()
    }
    notes: list[str] = []
    with write_whole_file(dst, force=force, source=path, dry_run=dry_run) as out:
        out.sources += [*source.files, *old.files]
        if file is not None:
            notes = file.copy(out, conversions, progress)
        elif put is not None:
            entries = {name: one.weights() for name, one in conversions.items()}
            notes = put(InputFile(model, mmap), out, entries)
    for one in conversions.values() if dry_run else ():
        one.check()
    notes += [
        f"{name} of {model.name} is unchanged" for name in old.readable if name not in conversions
    ]
    left_out = tuple(name for name in new.names if name not in pairs)
    reports = {name: one.report for name, one in conversions.items()}
    return Converted(reports, left_out, (*new.notes, *old.notes, *notes))


def _pairs(
    new: Found, old: Found, map: Mapping[str, str] | None, path: Path, model: Path
) -> dict[str, str]:
    """Return the name of each RNN in `new` that has a counterpart -> its name in `old`."""
    pairs = match_names(new, old, map)
    if not pairs:
        targets = old.readable[:_MOST_TRIED]  # and the stacks of which they may be layers
        stacks = [stack_and_layer(name)[0] for name in targets]
        tried = product(new.readable[:_MOST_TRIED], dict.fromkeys([*targets, *stacks]))
        fits = next((one for one in tried if _fits(new, old, *one)), None)
        raise LayoutError(
            f"no RNN of {path} ({', '.join(new.readable)}) has the name of one of {model}"
            f" ({', '.join(old.readable)}), ",
            *(["pair them with ", Ask("map", dict([fits]))] if fits else ["nor its sizes"]),
        )
    for name, target in pairs.items():
        if difference := differing_fields(new[name].spec, old[target].spec):
            raise LayoutError(f"{target}: two different RNNs in {path} and {model}: {difference}")
    return pairs


def _fits(new: Found, old: Found, name: str, target: str) -> bool:
    """Would convert_into() accept this pair as map=, as far as the files decide it?"""
    split, pairs = split_layers_as_in(new, old, {name: target})
    pairs = pairs or {layer: layer for layer in split if layer not in new}
    for one, there in pairs.items():
        a, b = split.get(one), old.get(there)
        if there not in old.readable or (a and b and differing_fields(a.spec, b.spec)):
            return False
    return True
