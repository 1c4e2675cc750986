"""The .weights.h5 of Keras 3 and late Keras 2: variables, no names but the layers', no config."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rnnlayout._files.bags.bag import Ask
from rnnlayout._files.bags.found import Found
from rnnlayout._weights.weights import Weights

from .read import read_hdf5
from .write import write_variables


def read(path: Path, ask: Ask) -> Found:
    return read_hdf5(path, ask)


def write(path: Path, entries: Mapping[str, Weights]) -> None:
    """What load_weights() takes of the model that a .keras file of the same entries holds."""
    write_variables(path, entries)
