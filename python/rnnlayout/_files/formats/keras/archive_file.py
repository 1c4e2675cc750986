"""The .keras archive of Keras 3 and late Keras 2: a config and the variables.

The config is read as data: no class that it names is looked up, a Lambda layer is one more layer.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rnnlayout._files.bags.bag import Ask, Converted
from rnnlayout._files.bags.found import Found
from rnnlayout._files.bags.limits import open_zip
from rnnlayout._model.layout import Layout
from rnnlayout._weights.weights import Weights

from .archive import CONFIG, METADATA, VARIABLES, read_archive, rewrite_archive
from .entry import Entries
from .hdf5 import open_hdf5
from .variables import read_told
from .write import KERAS_3, layers_of, model_config, variables

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same weights give the same bytes


def read(path: Path, ask: Ask) -> Found:
    with open_zip(path) as file:
        archive = read_archive(path, file)
    entries = Entries(ask, archive.version)
    with open_hdf5(archive.variables, f"{path}: {VARIABLES}") as root:
        read_told(root, archive.model, entries)
        return entries.found(root)


def write(path: Path, entries: Mapping[str, Weights]) -> None:
    """A model with one input and output an RNN, which Keras 3 loads."""
    layers = layers_of(entries)
    config = model_config(layers, modules=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (
            (METADATA, json.dumps({"keras_version": KERAS_3}).encode()),
            (CONFIG, json.dumps(config).encode()),
            (VARIABLES, variables(layers)),
        ):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content)


def rewrite(path: Path, out: Path, ask: Ask, to: Layout, **options: Any) -> Converted:
    """A model of Keras 2 for Keras 3."""
    return rewrite_archive(path, out, ask, to, **options)
