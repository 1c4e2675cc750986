""".npy: one array, cuDNN's weight space; what RNN it is of, the caller says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rnnlayout._files.bags.bag import Ask, Tensor
from rnnlayout._files.bags.found import Found
from rnnlayout._files.bags.groups import entry_of, flat, flat_of
from rnnlayout._model.errors import FileError
from rnnlayout._weights.weights import Weights

from .npy_array import mapped


def read(path: Path, ask: Ask) -> Found:
    """The RNN whose weight space the array is, mapped."""
    array = mapped(path)
    weights = flat(Tensor.of(array, array.dtype.name), ask, path)
    return Found({entry_of("", weights.spec): weights})


def write(path: Path, entries: Mapping[str, Weights]) -> None:
    """The weight space of one RNN."""
    weights = flat_of(entries, path.name)
    if weights.spec.dtype == "bfloat16":
        raise FileError(f"{path.name}: NumPy has no bfloat16: use .safetensors or .bin, or dtype=")
    with open(path, "wb") as file:
        np.lib.format.write_array(file, weights._read().arrays[0], allow_pickle=False)
