"""load, save, convert_file: RNNs in files of any known format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rnnlayout import _groups
from rnnlayout._errors import FileError
from rnnlayout._formats import Ask, Bag, Converted, Tensor, format_of
from rnnlayout._found import Found
from rnnlayout._layouts import Layout, as_layout
from rnnlayout._limits import regular_file
from rnnlayout._native import LayoutError
from rnnlayout._output import whole
from rnnlayout._spec import Spec
from rnnlayout._weights import Weights


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
        take them; prefix: only what lies under it.

    Returns a mapping from names (of the layer, or the tensors' prefix) to Weights. Layers that
    cannot be had are in its .refused; where there is nothing else, the error is raised.
    FileError: malformed, unsafe, of an unknown format, or without recurrent layers.
    MissingExtraError: a package that the format needs. LayoutError, SpecError, LossyError: as
    convert().
    """
    found = _read(path, Ask(spec, layout, prefix, cell, reset))
    if not found:
        if found.refused:
            raise next(iter(found.refused.values()))
        raise FileError(f"{path}: no recurrent layer found")
    return found


def _read(path: Any, ask: Ask) -> Found:
    path = regular_file(path)
    module = format_of(path)
    if hasattr(module, "read"):
        found: Found = module.read(path, ask)
        return found
    bag = module.read_tensors(path)
    return _found(bag, _groups.find(bag.tensors, ask))


def _found(bag: Bag, groups: list[_groups.Group]) -> Found:
    entries = {g.entry: g.weights for g in groups if isinstance(g.weights, Weights)}
    refused = {g.entry: g.weights for g in groups if not isinstance(g.weights, Weights)}
    return Found(entries, refused, [*bag.notes, *(note for g in groups for note in g.notes)])


def save(path: Any, weights: Weights | Mapping[str, Weights]) -> None:
    """Write one RNN, or several by name, to a file whose suffix says the format.

    A file that is there is replaced; it appears whole or not at all.
    LayoutError: the format cannot hold the layout: convert with Weights.to() first.
    """
    module = format_of(path)
    entries = {"": weights} if isinstance(weights, Weights) else dict(weights)
    if not all(isinstance(w, Weights) for w in entries.values()) or not entries:
        raise LayoutError("weights: need a Weights, or a dict of them by name")
    with whole(path, force=True) as part:
        if hasattr(module, "write"):
            module.write(part, entries)
        else:
            module.write_tensors(part, _bag(entries))


def _bag(entries: Mapping[str, Weights]) -> Bag:
    """RNNs as named tensors."""
    tensors = {}
    for entry, weights in entries.items():
        given = weights._read()
        for name, array in zip(given.names, given.arrays, strict=True):
            tensors[f"{entry}.{name}" if entry else name] = Tensor.of(array, given.dtype)
    return Bag(tensors)


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
) -> Converted:
    """Convert the recurrent layers of a file to another layout, and leave the rest as it is.

    to: the layout of the result.
    src, spec, layout, prefix, cell, reset: as load() takes them; dtype, exact: as convert().
    force: replace `dst` where it is there already.

    Returns what was done. Errors as load(), convert() and save(); nothing is written then.
    """
    ask, to = Ask(spec, layout, prefix, cell, reset), as_layout(to)
    source, target = format_of(src), format_of(dst)
    path = regular_file(src)
    with whole(dst, force=force) as part:
        if source is target and hasattr(source, "rewrite"):
            done: Converted = source.rewrite(path, part, ask, to, dtype=dtype, exact=exact)
            return done
        raise NotImplementedError
