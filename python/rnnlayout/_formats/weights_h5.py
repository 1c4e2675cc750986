"""The .weights.h5 of Keras 3 and late Keras 2: variables, no names but the layers', no config."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rnnlayout._formats import Ask, _keras_read, _keras_write
from rnnlayout._found import Found
from rnnlayout._weights import Weights

SUFFIXES = (".weights.h5",)


def read(path: Path, ask: Ask) -> Found:
    return _keras_read.read(path, ask)


def write(path: Path, entries: Mapping[str, Weights]) -> None:
    """What load_weights() takes of the model that a .keras file of the same entries holds."""
    _keras_write.write_variables(path, entries)
