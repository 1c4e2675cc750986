"""The .keras archive of Keras 3 and late Keras 2: a config and the variables.

The config is read as data: no class that it names is looked up, a Lambda layer is one more layer.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

from rnnlayout._errors import FileError
from rnnlayout._formats import Ask, _keras_variables, _keras_write
from rnnlayout._formats._hdf5 import open_hdf5
from rnnlayout._formats._keras_entry import Entries
from rnnlayout._formats._keras_tree import parse, version
from rnnlayout._found import Found
from rnnlayout._limits import open_zip, read_member
from rnnlayout._weights import Weights

SUFFIXES = (".keras",)
METADATA, CONFIG, VARIABLES = "metadata.json", "config.json", "model.weights.h5"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same weights give the same bytes


def read(path: Path, ask: Ask) -> Found:
    with open_zip(path) as archive:
        metadata = parse(read_member(archive, METADATA), f"{path}: {METADATA}")
        model = parse(read_member(archive, CONFIG), f"{path}: {CONFIG}")
        variables = read_member(archive, VARIABLES)
    said = metadata.get("keras_version")
    if not isinstance(said, str):
        raise FileError(f"{path}: {METADATA} says keras_version {said!r}, need a text")
    entries = Entries(ask, version(said))
    with open_hdf5(variables, f"{path}: {VARIABLES}") as root:
        _keras_variables.read_told(root, model, entries)
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
