"""The three formats of Keras: .h5, .weights.h5 and .keras.

.h5 is the legacy file of Keras 1, 2 and 3, a whole model or its weights. .weights.h5 has the
variables of a model of Keras 3 or late Keras 2, with few names and no config. .keras is an archive
of a config and the variables.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rnnlayout._files.formats.registry import ModelFormat
from rnnlayout._files.tensor_sets.file_limits import InputFile, open_zip
from rnnlayout._files.tensor_sets.found import Found
from rnnlayout._files.tensor_sets.output_file import Output
from rnnlayout._files.tensor_sets.tensor_set import Hints
from rnnlayout._weights.weights import Weights

from .entries import KerasEntries
from .hdf5_tree import Hdf5Group, open_hdf5
from .hdf5_write import copy_tree, new_hdf5
from .legacy_weights import find_legacy_layers, read_legacy_weights
from .rewrite import copy_members, new_variables, rewrite_archive, rewrite_h5
from .variables import (
    CONFIG,
    METADATA,
    VARIABLES,
    described_layers,
    found_layers,
    read_archive,
    read_beside,
)
from .write import (
    KERAS_3,
    make_keras_layers,
    model_config,
    variables_file,
    write_cudnn_weights,
    write_h5,
)

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same weights give the same bytes


def _read_hdf5(file: InputFile, hints: Hints) -> Found:
    """Read a file of one of the two HDF5 forms, whichever its suffix is."""
    with open_hdf5(file, file.budget) as root:
        return _read_root(root, KerasEntries.of_hdf5(root, hints))


def _read_root(root: Hdf5Group, entries: KerasEntries) -> Found:
    if layers := find_legacy_layers(root):
        return read_legacy_weights(root, layers, entries)
    if entries.beside is not None:
        return read_beside(root, entries.beside, entries)
    entries.take_classes({})
    return entries.found(found_layers(root))


def _replace_hdf5(file: InputFile, out: Output, new: Mapping[str, Weights]) -> list[str]:
    """Copy a file with new weights in these RNNs."""
    with open_hdf5(file, file.budget) as root:
        entries = KerasEntries.of_hdf5(root, Hints())
        _read_root(root, entries)
        with new_hdf5(out, str(file)) as h5:
            copy_tree(root, h5, entries.new_arrays(new))
    return []


@contextmanager
def _open_archive(
    file: InputFile, hints: Hints
) -> Iterator[tuple[zipfile.ZipFile, Hdf5Group, KerasEntries, Found]]:
    with open_zip(file) as opened:
        archive = read_archive(file, opened, hints)
        with open_hdf5(archive.variables, file.budget, f"{file}: {VARIABLES}") as root:
            entries = KerasEntries.of_hdf5(root, hints, archive.version)
            entries.take_classes(archive.model)
            described = [*described_layers(root, archive.model)]
            # of a subclass of Model the config has no layers
            yield opened, root, entries, entries.found(described or found_layers(root))


def _read_archive(file: InputFile, hints: Hints) -> Found:
    with _open_archive(file, hints) as (_, _, _, found):
        return found


def _replace_archive(file: InputFile, out: Output, new: Mapping[str, Weights]) -> list[str]:
    """Copy a model with new weights in these RNNs."""
    with _open_archive(file, Hints()) as (opened, root, entries, _):
        variables = new_variables(root, entries.new_arrays(new), f"{file}: {VARIABLES}")
        copy_members(opened, out, {VARIABLES: variables})
    return []


def _write_h5(out: Output, entries: Mapping[str, Weights]) -> None:
    """Write a model for Keras 3, or for layout keras-cudnn only weights, for Keras 2."""
    if any(weights.layout.name == "keras-cudnn" for weights in entries.values()):
        write_cudnn_weights(out, entries)
    else:
        write_h5(out, entries)


def _write_variables(out: Output, entries: Mapping[str, Weights]) -> None:
    """Write what load_weights() reads for the model that a .keras file of the same RNNs has."""
    out.path.write_bytes(variables_file(make_keras_layers(entries)))


def _write_archive(out: Output, entries: Mapping[str, Weights]) -> None:
    """Write a model that Keras 3 loads, with one input and one output per RNN."""
    layers = make_keras_layers(entries)
    config = model_config(layers, modules=True)
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in (
            (METADATA, json.dumps({"keras_version": KERAS_3}).encode()),
            (CONFIG, json.dumps(config).encode()),
            (VARIABLES, variables_file(layers)),
        ):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content)


_HINTS = ("as_class", "config")
H5 = ModelFormat(
    ".h5", ("keras", "keras-cudnn"), _read_hdf5, _write_h5, _replace_hdf5, rewrite_h5, _HINTS
)
WEIGHTS_H5 = ModelFormat(
    ".weights.h5", ("keras",), _read_hdf5, _write_variables, _replace_hdf5, hints=_HINTS
)
ARCHIVE = ModelFormat(
    ".keras", ("keras",), _read_archive, _write_archive, _replace_archive, rewrite_archive, _HINTS
)
