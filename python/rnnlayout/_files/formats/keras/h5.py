"""Legacy .h5 files of Keras 1, 2 and 3: whole models, or weights alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rnnlayout._files.bags.bag import Ask, Converted
from rnnlayout._files.bags.found import Found
from rnnlayout._model.layout import Layout
from rnnlayout._weights.weights import Weights

from .model import rewrite_model
from .read import read_hdf5
from .write import write_h5, write_old_weights


def read(path: Path, ask: Ask) -> Found:
    return read_hdf5(path, ask)


def write(path: Path, entries: Mapping[str, Weights]) -> None:
    """A model that Keras 3 loads; of layout keras-cudnn the weights alone, as Keras 2 has them."""
    if any(weights.layout.name == "keras-cudnn" for weights in entries.values()):
        write_old_weights(path, entries)
    else:
        write_h5(path, entries)


def rewrite(path: Path, out: Path, ask: Ask, to: Layout, **options: Any) -> Converted:
    """A model or weights of Keras 2 for Keras 3."""
    return rewrite_model(path, out, ask, to, **options)
