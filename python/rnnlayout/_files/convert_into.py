"""convert_into: a copy of a model file with the weights of another file's RNNs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rnnlayout._files.formats.registry import (
    ModelFormat,
    format_to_read,
    format_to_write,
    only_read,
)
from rnnlayout._files.tensor_sets.choose_rnns import choose_rnns, match_names, stack_layers_as_in
from rnnlayout._files.tensor_sets.file_limits import require_regular_file
from rnnlayout._files.tensor_sets.found import Found
from rnnlayout._files.tensor_sets.layerwise import LayerwiseConversion
from rnnlayout._files.tensor_sets.output_file import check_free, write_whole_file
from rnnlayout._files.tensor_sets.tensor_set import Converted, Hints, Progress
from rnnlayout._model.errors import FileError
from rnnlayout._model.spec import differing_fields
from rnnlayout._native import LayoutError, SpecError
from rnnlayout._sources.infer import HIDDEN

from .files import TensorFile, load, read_file


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
    **hints: Any,
) -> Converted:
    """Write a copy of the file `into` to `dst`, with the weights of the RNNs of `src`.

    only, stack: the RNNs of `src` that are used, as in convert_file(). RNNs are matched by name as
    in verify(); map: names in `src` -> names in `into`, where they differ. Each is written in the
    layout and dtype that it has in `into`; everything else in `into` is copied unchanged. Other
    arguments as for convert_file(); what `into` does not record is taken from the hints too.
    Raises LayoutError if no names match, or two RNNs of one name are not the same.
    """
    path, model, dst = require_regular_file(src), require_regular_file(into), Path(dst)
    format = format_to_read(model, asks=False)
    put = format.replace if isinstance(format, ModelFormat) else None
    if format.write is only_read or (isinstance(format, ModelFormat) and put is None):
        raise FileError(
            f"{model}: weights cannot be put into a {format.suffix} file: load the model with its"
            " own program, pass its layer or module to rl.assign(), and save it again"
        )
    if format_to_write(dst) is not format:
        raise FileError(f"{dst}: a copy of {model} needs the same suffix, {format.suffix}")
    old, file = _read_model(model, hints)
    new = stack_layers_as_in(choose_rnns(load(path, **hints), only, stack), old)
    check_free(dst, force, path, model)
    pairs = _pairs(new, old, map, path, model)
    conversions = {
        target: LayerwiseConversion(new[name], old[target].layout, old[target].spec.dtype, exact)
        for name, target in pairs.items()
    }
    notes: list[str] = []
    with write_whole_file(dst, force=force, source=path, dry_run=dry_run) as out:
        if file is not None:
            notes = file.copy(out, conversions, progress)
        elif put is not None:
            put(model, out, {name: one.weights() for name, one in conversions.items()})
    for one in conversions.values() if dry_run else ():
        one.check()
    notes += [
        f"{name} of {model.name} is unchanged" for name in old.readable if name not in conversions
    ]
    left_out = tuple(name for name in new.names if name not in pairs)
    reports = {name: one.report for name, one in conversions.items()}
    return Converted(reports, left_out, (*new.notes, *old.notes, *notes))


def _read_model(model: Path, hints: Mapping[str, Any]) -> tuple[Found, TensorFile | None]:
    known = {name: hints[name] for name in ("layout", *HIDDEN) if hints.get(name)}
    if spec := hints.get("spec"):  # of an RNN of src, and of the one here that asks
        known = {"cell": spec.cell, "reset": spec.reset} | known
    try:
        found, file = read_file(model, Hints(), asks=False)
    except (LayoutError, SpecError):
        return read_file(model, Hints(**known), asks=False)
    again = found.undecided and known
    return read_file(model, Hints(**known), asks=False) if again else (found, file)


def _pairs(
    new: Found, old: Found, map: Mapping[str, str] | None, path: Path, model: Path
) -> dict[str, str]:
    """Return the name of each RNN in `new` that has a counterpart -> its name in `old`."""
    pairs = match_names(new, old, map)
    if not pairs:
        raise LayoutError(
            f"no RNN of {path} ({', '.join(new.readable)}) has the name of one of {model}"
            f" ({', '.join(old.readable)}): pair them with"
            f" map={f'{new.readable[0]}={old.readable[0]}'!r}"
        )
    for name, target in pairs.items():
        if difference := differing_fields(new[name].spec, old[target].spec):
            raise LayoutError(f"{target}: two different RNNs in {path} and {model}: {difference}")
    return pairs
