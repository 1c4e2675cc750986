"""The .keras archive of Keras 3 and late Keras 2: a config and the variables.

The config is read as data: no class that it names is looked up, a Lambda layer is one more layer.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rnnlayout._formats import Ask, Converted, _keras_archive, _keras_variables, _keras_write
from rnnlayout._formats._hdf5 import open_hdf5
from rnnlayout._formats._keras_archive import CONFIG, METADATA, VARIABLES
from rnnlayout._formats._keras_entry import Entries
from rnnlayout._found import Found
from rnnlayout._layouts import Layout
from rnnlayout._limits import open_zip
from rnnlayout._weights import Weights

SUFFIXES = (".keras",)
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same weights give the same bytes


def read(path: Path, ask: Ask) -> Found:
    with open_zip(path) as file:
        archive = _keras_archive.read_archive(path, file)
    entries = Entries(ask, archive.version)
    with open_hdf5(archive.variables, f"{path}: {VARIABLES}") as root:
        _keras_variables.read_told(root, archive.model, entries)
        return entries.found(root)


def write(path: Path, entries: Mapping[str, Weights]) -> None:
    """A model with one input and output an RNN, which Keras 3 loads."""
    layers = _keras_write.layers_of(entries)
    config = _keras_write.model_config(layers, modules=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (
            (METADATA, json.dumps({"keras_version": _keras_write.KERAS_3}).encode()),
            (CONFIG, json.dumps(config).encode()),
            (VARIABLES, _keras_write.variables(layers)),
        ):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content)


def rewrite(path: Path, out: Path, ask: Ask, to: Layout, **options: Any) -> Converted:
    """A model of Keras 2 for Keras 3."""
    return _keras_archive.rewrite(path, out, ask, to, **options)
