"""load, save, convert_file: RNNs in files of any known format."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from rnnlayout._files.bags.bag import Ask, Bag, Converted
from rnnlayout._files.bags.found import Found
from rnnlayout._files.bags.groups import Group, check_exact, entry_of, find
from rnnlayout._files.bags.layerwise import Conversion, Scratch
from rnnlayout._files.bags.limits import regular_file
from rnnlayout._files.bags.record import read_records
from rnnlayout._files.bags.replace import Progress, bag_of, counted, found_in, replaced
from rnnlayout._files.formats.table import format_of, suffix_of
from rnnlayout._model.errors import FileError
from rnnlayout._model.layout import Layout, as_layout
from rnnlayout._model.spec import Spec
from rnnlayout._native import LayoutError
from rnnlayout._weights.weights import Weights

from .output import check_free, whole


def load(
    path: Any,
    spec: Spec | None = None,
    *,
    layout: str | Layout | None = None,
    prefix: str = "",
    cell: str | None = None,
    reset: str | None = None,
) -> Found:
    """Every recurrent layer in a file, by name.

    path: a file; its suffix says the format.
    spec, layout, prefix, cell, reset: what the file does not say, as convert() and infer_spec()
        take them; prefix: only what lies under it; spec: only where it is one RNN.

    Returns a mapping from names (of the layer, or the tensors' prefix) to Weights. Layers that
    cannot be had are in its .refused; where there is nothing else, the error is raised.
    FileError: malformed, unsafe, of an unknown format, or without recurrent layers.
    MissingExtraError: a package that the format needs. LayoutError, SpecError, LossyError: as
    convert().
    """
    path = regular_file(path)
    found = _read(path, Ask(spec, layout, prefix, cell, reset))
    if not found:
        raise _nothing(path, prefix, found)
    return found


def _read(path: Path, ask: Ask) -> Found:
    module = format_of(path)
    if hasattr(module, "read"):
        found: Found = module.read(path, ask)
        return found
    bag = _bag(path, module)
    return found_in(bag, groups_of(path, bag, ask))


def _bag(path: Path, module: ModuleType) -> Bag:
    if not hasattr(module, "read_tensors"):
        raise FileError(f"{path}: a {suffix_of(module)} file is only written, never read")
    bag: Bag = module.read_tensors(path)
    return bag


def groups_of(path: Path, bag: Bag, ask: Ask) -> list[Group]:
    return find(bag.tensors, ask, read_records(bag.metadata, path))


def _nothing(path: Path, prefix: str, found: Found) -> Exception:
    if found.refused:
        return next(iter(found.refused.values()))
    under = f" under {prefix!r}" if prefix else ""
    return FileError(f"{path}: no recurrent layer found{under}")


def save(path: Any, weights: Weights | Mapping[str, Weights]) -> None:
    """Write one RNN, or several by name, to a file whose suffix says the format.

    A file that is there is replaced; it appears whole or not at all.
    LayoutError: the format cannot hold the layout: convert with Weights.to() first.
    """
    module = format_of(path)
    entries = {"": weights} if isinstance(weights, Weights) else weights
    if not isinstance(entries, Mapping) or not entries:
        raise LayoutError("weights: need a Weights, or a dict of them by name")
    for name, one in entries.items():
        if not isinstance(name, str) or not isinstance(one, Weights):
            raise LayoutError(f"weights[{name!r}] is a {type(one).__name__}, need a Weights")
    with whole(path, force=True) as part:
        _write(part, module, dict(entries))


def _write(part: Path, module: ModuleType, entries: dict[str, Weights]) -> None:
    if hasattr(module, "write"):
        named = {name or entry_of("", one.spec): one for name, one in entries.items()}
        module.write(part, named)
    else:
        _write_tensors(part, module, bag_of(entries))


def _write_tensors(part: Path, module: ModuleType, bag: Bag) -> None:
    if not hasattr(module, "write_tensors"):
        raise FileError(f"{part.name}: a {suffix_of(module)} file is only read, never written")
    module.write_tensors(part, bag)


# ------------------------------------------------------------------------------------ conversions


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
    dtype: Any = None,
    exact: bool = False,
    force: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Converted:
    """Convert the recurrent layers of a file to another layout, and leave the rest as it is.

    to: the layout of the result.
    src, spec, layout, prefix, cell, reset: as load() takes them; dtype, exact: as convert().
    force: replace `dst` where it is there already.
    dry_run: find out what would be done, and write nothing.
    progress: called with the bytes written so far and those of all, where that can be told.

    From a file of named tensors to another the tensors of each RNN are replaced in their place, and
    all others stay, bit for bit. Where one of the two is a file of another kind, only the RNNs are
    written; .left_out of the result names the other tensors.
    Returns what was done. Errors as load(), convert() and save(), also where only one RNN has no
    form in the target; nothing is written then.
    """
    ask, to = Ask(spec, layout, prefix, cell, reset), as_layout(to)
    path, dst = regular_file(src), Path(dst)
    source, target = format_of(path), format_of(dst)
    with _output(path, dst, force, dry_run) as part:
        if source is target and hasattr(source, "rewrite"):
            done: Converted = source.rewrite(path, part, ask, to, dtype=dtype, exact=exact)
            return done
        job = _Job(path, ask, to, dtype, exact)
        if dry_run and not job.rewrites(target):
            return job.check(target)
        return job.write(part, target, progress)


@contextmanager
def _output(src: Path, dst: Path, force: bool, dry_run: bool) -> Iterator[Path]:
    if dry_run:
        check_free(dst, force, src)
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder) / dst.name
    else:
        with whole(dst, force=force, source=src) as part:
            yield part


_ALONE = "the new file has the RNNs alone; for the whole model give it the old one's suffix, "


class _Job:
    """The RNNs of one file on their way to another layout."""

    def __init__(self, path: Path, ask: Ask, to: Layout, dtype: Any, exact: bool) -> None:
        self._path, self._module, self._to = path, format_of(path), to
        self._bag = None if hasattr(self._module, "read") else _bag(path, self._module)
        if self._bag is None:
            found = _read(path, ask)
        else:
            self._groups = groups_of(path, self._bag, ask)
            self._records = read_records(self._bag.metadata, path)
            found = found_in(self._bag, self._groups)
        if not found or found.refused:
            raise _refused(path, ask.prefix, found)
        if exact and self._bag is not None:
            check_exact(self._groups)
        self._found, scratch = found, Scratch()
        self._made = {
            entry: Conversion(weights, to, dtype, exact, scratch)
            for entry, weights in found.items()
        }

    def rewrites(self, target: ModuleType) -> bool:
        """Is the new file the old one, but for its RNNs, and more than its tensors?"""
        return target is self._module and hasattr(target, "rewrite_tensors")

    def check(self, target: ModuleType) -> Converted:
        self._result(target)  # whether it can be put together
        for made in self._made.values():
            made.check()
        return self._converted(target)

    def write(self, part: Path, target: ModuleType, progress: Progress | None) -> Converted:
        bag = self._result(target)
        if bag is None:
            target.write(part, {entry: made.weights() for entry, made in self._made.items()})
        elif self.rewrites(target):
            self._found.notes += target.rewrite_tensors(
                self._path, part, bag, self._pairs(), progress
            )
        else:
            _write_tensors(part, target, counted(bag, progress) if progress else bag)
        return self._converted(target)

    def _result(self, target: ModuleType) -> Bag | None:
        """What is to be written, None where that is no bag."""
        if hasattr(target, "write"):
            return None
        if self._bag is None:
            return bag_of(self._made)
        return replaced(self._bag, self._pairs(), self._records)

    def _pairs(self) -> list[tuple[Group, Conversion]]:
        return [(group, self._made[group.entry]) for group in self._groups]

    def _converted(self, target: ModuleType) -> Converted:
        reports = {entry: made.report for entry, made in self._made.items()}
        in_place = self._bag is not None and not hasattr(target, "write")
        left_out = () if in_place else self._found.others
        notes = list(self._found.notes)
        if left_out and self._to.name == "keras" and hasattr(self._module, "rewrite"):
            notes.append(_ALONE + suffix_of(self._module))
        return Converted(reports, left_out, tuple(notes))


def _refused(path: Path, prefix: str, found: Found) -> Exception:
    """Why nothing is converted."""
    error = _nothing(path, prefix, found)
    if not found:
        return error
    others = ", ".join(repr(name) for name in found)
    return type(error)(f"{error}; nothing is converted, by prefix= others can be: {others}")
