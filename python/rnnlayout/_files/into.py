"""convert_into: the RNNs of one file put in the place of those of another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from rnnlayout._files.bags.bag import Ask, Converted
from rnnlayout._files.bags.found import Found
from rnnlayout._files.bags.layerwise import Conversion
from rnnlayout._files.bags.limits import regular_file
from rnnlayout._files.bags.record import read_records
from rnnlayout._files.bags.replace import Progress, counted, replaced
from rnnlayout._files.bags.stacks import joined
from rnnlayout._files.formats.table import format_of, suffix_of
from rnnlayout._model.errors import FileError
from rnnlayout._model.spec import unlike
from rnnlayout._native import LayoutError
from rnnlayout._weights.weights import Weights

from .files import groups_of, load
from .output import check_free, whole


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
    """Write a copy of the file `into`, to `dst`, whose RNNs have the weights of those of `src`.

    They are matched by name as verify() does. entry: the one of `into` that the only one of `src`
    is for. Each is written in the layout and dtype that `into` has it in; all else of `into` stays.
    Other arguments as convert_file(). LayoutError: nothing matches, or an RNN of the two files is
    not the same.
    """
    path, model, dst = regular_file(src), regular_file(into), Path(dst)
    module = format_of(model)
    if format_of(dst) is not module:
        raise FileError(f"{dst}: a copy of {model} has its format, name it {suffix_of(module)}")
    old = load(model)
    given = joined(load(path, **hints), old)
    check_free(dst, force, path)
    check_free(dst, force, model)
    pairs = _matched(given, old, entry, path, model)
    made = {name: Conversion(given[source], old[name].layout, old[name].spec.dtype, exact)
            for source, name in pairs.items()}  # fmt: skip
    notes: list[str] = []
    if dry_run:
        for one in made.values():
            one.check()
    else:
        with whole(dst, force=force, source=path) as part:
            notes = _write(part, module, model, made, progress)
    notes += [f"{name} of {model.name} stays as it is" for name in old if name not in made]
    left_out = tuple(name for name in given if name not in pairs)
    reports = {name: one.report for name, one in made.items()}
    return Converted(reports, left_out, (*given.notes, *old.notes, *notes))


def _matched(
    given: Found, old: Found, entry: str | None, path: Path, model: Path
) -> dict[str, str]:
    """Name of an RNN in the one file -> in the other."""
    pairs = {name: name for name in given if name in old}
    if entry is not None:
        if len(given) != 1 or entry not in old:
            raise LayoutError(
                f"entry {entry!r}: need one RNN in {path}, found {', '.join(given)}; and of {model}"
                f" one of {', '.join(old)}"
            )
        pairs = {next(iter(given)): entry}
    elif len(given) == len(old) == 1:
        pairs = {next(iter(given)): next(iter(old))}
    if not pairs:
        raise LayoutError(
            f"no RNN of {path} ({', '.join(given)}) is called as one of {model} ({', '.join(old)}):"
            " say which one with entry="
        )
    for source, name in pairs.items():
        if different := unlike(given[source].spec, old[name].spec):
            raise LayoutError(f"{name}: two different RNNs in {path} and {model}: {different}")
    return pairs


def _write(
    part: Path,
    module: ModuleType,
    model: Path,
    made: Mapping[str, Conversion],
    progress: Progress | None,
) -> list[str]:
    """Returns notes."""
    if hasattr(module, "replace"):
        entries: dict[str, Weights] = {name: one.weights() for name, one in made.items()}
        module.replace(model, part, entries)
        return []
    if not hasattr(module, "write_tensors"):
        raise FileError(f"{model}: weights cannot be put into a {suffix_of(module)} file yet")
    bag = module.read_tensors(model)
    records = read_records(bag.metadata, model)
    groups = [group for group in groups_of(model, bag, Ask()) if group.entry in made]
    pairs = [(group, made[group.entry]) for group in groups]
    bag = replaced(bag, pairs, records)
    if hasattr(module, "rewrite_tensors"):
        return list(module.rewrite_tensors(model, part, bag, pairs, progress))
    module.write_tensors(part, counted(bag, progress) if progress else bag)
    return []
