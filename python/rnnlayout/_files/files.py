"""load, save, convert_file: RNNs in files of any known format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rnnlayout._files.bags.bag import Converted, Hints, Progress
from rnnlayout._files.bags.found import Found
from rnnlayout._files.bags.layerwise import Conversion, Scratch
from rnnlayout._files.bags.limits import regular_file
from rnnlayout._files.bags.naming import check_names, entry_of
from rnnlayout._files.bags.output import Output, whole
from rnnlayout._files.formats.format import Format, ModelFormat, TensorFormat, format_of
from rnnlayout._model.given import given_of
from rnnlayout._model.layout import Layout, as_layout
from rnnlayout._model.spec import Spec
from rnnlayout._native import LayoutError
from rnnlayout._sources.torch_names import rounded_weights
from rnnlayout._weights.weights import Weights

from .source import bag_of, read


def load(
    path: Any,
    spec: Spec | None = None,
    *,
    layout: str | Layout | None = None,
    prefix: str = "",
    cell: str | None = None,
    reset: str | None = None,
    recurrent_activation: str | None = None,
    dtype: Any = None,
) -> Found:
    """Read every recurrent layer of a file.

    path: a file; its suffix decides the format.
    spec, layout, prefix, cell, reset, recurrent_activation: what the file does not record, as for
        convert() and infer_spec(). prefix: read only what is under it. spec: only for a file with
        one RNN.
    dtype: of the result, as for convert().

    Returns a mapping from names (of the layer, or the prefix of its tensors) to Weights. Layers
    that cannot be read are in its .refused; if there are no others, the error is raised.
    Raises FileNotFoundError; FileError if the file is malformed, unsafe, of an unknown format, or
    has no recurrent layers; MissingExtraError if the format needs a package that is not installed;
    LayoutError, SpecError and LossyError as convert() does.
    """
    path = regular_file(path)
    hints = Hints(spec, layout, prefix, cell, reset, recurrent_activation, dtype)
    found, _ = read(path, hints)
    if dtype is None:
        return found
    entries = {name: one.to(one.layout, dtype=dtype) for name, one in found.items()}
    return Found(entries, found.refused, found.notes, found.others)


def save(path: Any, weights: Weights | Mapping[str, Weights]) -> None:
    """Write one RNN, or several by name, to a file. Its suffix decides the format.

    An existing file is replaced. The new file is written atomically: it is complete, or the old
    one is unchanged. Raises LayoutError if the format does not support the layout: convert with
    Weights.to() first.
    """
    format = format_of(path)
    entries = {"": weights} if isinstance(weights, Weights) else weights
    if not isinstance(entries, Mapping) or not entries:
        raise LayoutError("weights: need a Weights, or a dict of them by name")
    for name, one in entries.items():
        if not isinstance(name, str) or not isinstance(one, Weights):
            raise LayoutError(f"weights[{name!r}] is a {type(one).__name__}, need a Weights")
    check_names(entries)
    with whole(path, force=True) as out:
        _write(out, format, entries)


def _write(
    out: Output,
    format: Format,
    entries: Mapping[str, Weights | Conversion],
    progress: Progress | None = None,
    dry_run: bool = False,
) -> None:
    """Write a new file with these RNNs and nothing else."""
    if isinstance(format, TensorFormat):
        bag = bag_of(entries)
        if not dry_run:
            format.write(out, bag, progress)
    elif not dry_run:
        format.write(out, {
            name or entry_of("", one.spec): one if isinstance(one, Weights) else one.weights()
            for name, one in entries.items()
        })  # fmt: skip


def convert_file(
    src: Any,
    dst: Any,
    *,
    to: str | Layout,
    spec: Spec | None = None,
    layout: str | Layout | None = None,
    prefix: str = "",
    cell: str | None = None,
    reset: str | None = None,
    recurrent_activation: str | None = None,
    dtype: Any = None,
    exact: bool = False,
    force: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Converted:
    """Convert the recurrent layers of a file to another layout.

    to: the layout of the result.
    src, spec, layout, prefix, cell, reset, recurrent_activation: as for load(); dtype, exact: as
        for convert().
    force: replace `dst` if it exists.
    dry_run: find out what would be done, without writing.
    progress: called with the number of bytes written so far and the total, if that is known.

    If both files are bags of named tensors, the tensors of each RNN are replaced in place and all
    others are copied bit for bit. If one of them has another format, only the RNNs are written,
    and .left_out of the result names the other tensors.
    Returns what was done. Raises FileExistsError if `dst` exists, without force; the other errors
    are those of load(), convert() and save(). If a single RNN cannot be
    represented in the target layout, nothing is written.
    """
    hints = Hints(spec, layout, prefix, cell, reset, recurrent_activation, dtype)
    to = as_layout(to)
    path, dst = regular_file(src), Path(dst)
    source, target = format_of(path), format_of(dst)
    modernize = source.rewrite if isinstance(source, ModelFormat) else None
    with whole(dst, force=force, source=path, dry_run=dry_run) as out:
        if source is target and modernize is not None:
            return modernize(path, out, hints, to, dtype, exact)
        found, file = read(path, hints)
        if found.refused:
            error = next(iter(found.refused.values()))
            raise type(error)(
                f"{error}; nothing was written: use prefix= to convert one of the others:"
                f" {', '.join(map(repr, found))}"
            )
        if exact and (rounded := [n for one in found.values() for n in given_of(one).rounded]):
            raise rounded_weights(rounded)
        scratch = Scratch()
        conversions = {
            name: Conversion(weights, to, dtype, exact, scratch) for name, weights in found.items()
        }
        notes, left_out = list(found.notes), found.others
        if file is not None and isinstance(target, TensorFormat):
            notes += file.copy(out, conversions, progress, target, dry_run)
            left_out = ()
        else:
            _write(out, target, conversions, progress, dry_run)
        for one in conversions.values() if dry_run else ():
            one.check()
    if left_out and to.name == "keras" and modernize is not None:
        notes.append(_ALONE + source.suffix)
    reports = {name: one.report for name, one in conversions.items()}
    return Converted(reports, left_out, tuple(notes))


_ALONE = (
    "the new file has only the RNNs; to convert the whole model, give it the old one's suffix, "
)
