"""Legacy .h5 files of Keras 1, 2 and 3: whole models, or weights alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rnnlayout._formats import Ask, Converted, _keras_model, _keras_read, _keras_write
from rnnlayout._found import Found
from rnnlayout._layouts import Layout
from rnnlayout._weights import Weights

SUFFIXES = (".h5", ".hdf5")


def read(path: Path, ask: Ask) -> Found:
    return _keras_read.read(path, ask)


def write(path: Path, entries: Mapping[str, Weights]) -> None:
    """A model that Keras 3 loads; of layout keras-cudnn the weights alone, as Keras 2 has them."""
    if any(weights.layout.name == "keras-cudnn" for weights in entries.values()):
        _keras_write.write_old_weights(path, entries)
    else:
        _keras_write.write_h5(path, entries)


def rewrite(path: Path, out: Path, ask: Ask, to: Layout, **options: Any) -> Converted:
    """A model or weights of Keras 2 for Keras 3."""
    return _keras_model.rewrite(path, out, ask, to, **options)
