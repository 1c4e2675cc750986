"""convert_into: a copy of a model file with the weights of another file's RNNs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rnnlayout._files.bags.bag import Converted, Hints, Progress
from rnnlayout._files.bags.found import Found
from rnnlayout._files.bags.layerwise import Conversion
from rnnlayout._files.bags.limits import regular_file
from rnnlayout._files.bags.output import check_free, whole
from rnnlayout._files.bags.stacks import joined
from rnnlayout._files.formats.format import ModelFormat, format_of
from rnnlayout._model.errors import FileError
from rnnlayout._model.spec import unlike
from rnnlayout._native import LayoutError

from .files import load
from .source import read


def convert_into(
    src: Any,
    dst: Any,
    *,
    into: Any,
    entry: str | None = None,
    exact: bool = False,
    force: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
    **hints: Any,
) -> Converted:
    """Write a copy of the file `into` to `dst`, with the weights of the RNNs of `src`.

    RNNs are matched by name as in verify(). entry: the RNN of `into` that gets the weights of the
    only one in `src`. Each is written in the layout and dtype that it has in `into`; everything
    else in `into` is copied unchanged. Other arguments as for convert_file().
    Raises LayoutError if no names match, or two RNNs of one name are not the same.
    """
    path, model, dst = regular_file(src), regular_file(into), Path(dst)
    format = format_of(model)
    if format_of(dst) is not format:
        raise FileError(f"{dst}: a copy of {model} needs the same suffix, {format.suffix}")
    put = format.replace if isinstance(format, ModelFormat) else None
    old, file = read(model, Hints())
    if file is None and put is None:
        raise FileError(f"{model}: weights cannot be put into a {format.suffix} file yet")
    new = joined(load(path, **hints), old)
    check_free(dst, force, path)
    check_free(dst, force, model)
    pairs = _matched(new, old, entry, path, model)
    conversions = {
        target: Conversion(new[name], old[target].layout, old[target].spec.dtype, exact)
        for name, target in pairs.items()
    }
    notes: list[str] = []
    if dry_run:
        for one in conversions.values():
            one.check()
    else:
        with whole(dst, force=force, source=path) as out:
            if file is not None:
                notes = file.copy(out, conversions, progress)
            elif put is not None:
                put(model, out, {name: one.weights() for name, one in conversions.items()})
    notes += [f"{name} of {model.name} is unchanged" for name in old if name not in conversions]
    left_out = tuple(name for name in new if name not in pairs)
    reports = {name: one.report for name, one in conversions.items()}
    return Converted(reports, left_out, (*new.notes, *old.notes, *notes))


def _matched(new: Found, old: Found, entry: str | None, path: Path, model: Path) -> dict[str, str]:
    """Return the name of each RNN in `new` that has a counterpart -> its name in `old`."""
    pairs = {name: name for name in new if name in old}
    if entry is not None:
        if len(new) != 1 or entry not in old:
            raise LayoutError(
                f"entry {entry!r}: need one RNN in {path}, found {', '.join(new)}; and one of that"
                f" name in {model}, found {', '.join(old)}"
            )
        pairs = {next(iter(new)): entry}
    elif len(new) == len(old) == 1:
        pairs = {next(iter(new)): next(iter(old))}
    if not pairs:
        raise LayoutError(
            f"no RNN of {path} ({', '.join(new)}) has the name of one of {model}"
            f" ({', '.join(old)}): choose one with entry="
        )
    for name, target in pairs.items():
        if difference := unlike(new[name].spec, old[target].spec):
            raise LayoutError(f"{target}: two different RNNs in {path} and {model}: {difference}")
    return pairs
