"""Files that are cuDNN's weight space of one RNN."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rnnlayout._files.bags.bag import Hints, Tensor
from rnnlayout._files.bags.found import Found
from rnnlayout._files.bags.groups import entry_of
from rnnlayout._model.layout import CUDNN, as_layout
from rnnlayout._native import LayoutError
from rnnlayout._sources.read import read
from rnnlayout._weights.weights import Weights

from .format import check_layout


def found_in(tensor: Tensor, hints: Hints, path: Path) -> Found:
    """Return the RNN whose weight space a file is. Raises as convert()."""
    if hints.layout is not None and as_layout(hints.layout).name != "cudnn":
        raise LayoutError(
            f"{path}: a {path.suffix} file is cuDNN's weight space, not {as_layout(hints.layout)}:"
            " omit layout="
        )
    try:
        weights = Weights._of(read(tensor.floats("the array"), hints.spec, CUDNN))
    except ValueError as error:
        raise type(error)(f"{path}: {error}") from None
    return Found({entry_of("", weights.spec): weights})


def only_one(entries: Mapping[str, Weights], what: str) -> Weights:
    """Return the only RNN of the entries. Raises LayoutError if it is not one weight space."""
    if len(entries) != 1:
        raise LayoutError(
            f"{what} can store one RNN, found {len(entries)}: choose one with prefix=, of"
            f" {', '.join(map(repr, entries))}"
        )
    weights = next(iter(entries.values()))
    check_layout(weights, "cudnn", what)
    return weights
