"""Whole models of Keras 2 in HDF5, changed so that Keras 3 loads them and computes the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rnnlayout._files.tensor_sets.output_file import Output
from rnnlayout._files.tensor_sets.record import Record
from rnnlayout._files.tensor_sets.tensor_set import Converted, Hints
from rnnlayout._model.asks import Ask, join_messages
from rnnlayout._model.errors import FileError
from rnnlayout._model.layout import Layout
from rnnlayout._native import LayoutError, LossyError

from . import records
from .config import child_layers, layer_name, parse_config
from .entries import KerasEntries
from .hdf5_copy import copy_tree
from .hdf5_tree import Hdf5Dataset, Hdf5Group, open_hdf5
from .hdf5_write import new_hdf5
from .legacy_weights import (
    CellArrays,
    cells_of_group,
    find_legacy_layers,
    keras_version_of,
    legacy_layers_with_cells,
    named_layer_groups,
    read_legacy_weights,
)
from .rewrite_cells import ChangedCells
from .rewrite_config import config_errors, cudnn_layers, modernize_layer
from .rewrite_weights import change_weights, check_agreement
from .write import KERAS_3

_PARTS = ("kernel", "recurrent_kernel", "bias")
_GATES = {8: 4, 6: 3}  # biases, in hidden sizes -> gates of a CuDNNLSTM, of a CuDNNGRU
_TRAINING = "training_config"
UNCHANGED = "copied unchanged: nothing in it needs to change for Keras 3"


def rewrite_h5(
    path: Path, out: Output, hints: Hints, to: Layout, dtype: Any, exact: bool
) -> Converted:
    """Write the model or the weights at `path` to `out`, for Keras 3.

    CuDNNLSTM and CuDNNGRU become LSTM and GRU, in the config and in the weights. The weights of
    LSTMs and GRUs compensate for Keras 3's other hard_sigmoid. What else Keras 3 would misread in a
    model with recurrent layers is written in its form. Everything else is copied, except that the
    training_config, which Keras 3 fails to read, gets another name.

    dtype, exact: as for convert(), for the layers that change. Raises FileError if it is not a file
    of Keras, LossyError if no layer of Keras 3 computes the same, or weights would be rounded and
    exact is set.
    """
    check_whole_model(hints, to)
    changed = ChangedCells(str(path), dtype, exact)
    with open_hdf5(path) as root:
        attributes, new = _collect_changes(root, changed, hints)
        check_dtype_used(changed)
        if changed.arrays or attributes:
            with new_hdf5(out, str(path)) as h5:
                copy_tree(root, h5, changed.arrays)
                _set_attributes(h5, attributes)
                if new:
                    records.write_record_attribute(h5, new)
        else:
            shutil.copyfile(path, out)
            changed.notes.append(UNCHANGED)
    return changed.result()


def check_dtype_used(changed: ChangedCells) -> None:
    """Raise LayoutError if another dtype was asked for, and no cell changes."""
    if changed.dtype is not None and not changed.arrays:
        raise LayoutError(
            f"{changed.what}: no layer changes, and a dtype is for those that do: omit "
            + Ask("dtype", None)
        )


def check_whole_model(hints: Hints, to: Layout) -> None:
    """Raise LayoutError for options that a whole model cannot be converted with."""
    if to.name != "keras":
        raise LayoutError(
            f"a whole Keras model can be converted to 'keras', not to {str(to)!r}: to convert only"
            " its RNNs, give the new file the suffix of another format"
        )
    if hints.spec or hints.prefix or hints.layout not in (None, "keras", "keras-cudnn"):
        given = [Ask(name, None) for name in ("spec", "prefix", "layout") if getattr(hints, name)]
        why = "a Keras model is converted as a whole: omit "
        raise LayoutError(why + join_messages(" and ", given))
    if hints.as_class:
        raise LayoutError(
            "a whole Keras model keeps its layers of other classes as they are: omit "
            + Ask("as_class", None)
        )


def aside_name(name: str, notes: list[str]) -> str:
    """Return the new name of a config for training, which Keras 3 does not look for."""
    notes.append(
        f"{name} is kept as {name}_of_keras_2: Keras 3 does not read Keras 2's, compile the model"
        " again; the variables of an optimizer are unchanged and of no use to Keras 3"
    )
    return f"{name}_of_keras_2"


def _collect_changes(
    root: Hdf5Group, changed: ChangedCells, hints: Hints
) -> tuple[dict[str, str], dict[str, Record]]:
    """Collect the changed cells; return the new attributes of the root, and the new records."""
    layers = find_legacy_layers(root)
    if layers is None:
        raise FileError(f"{changed.what} has no attribute 'layer_names': Keras 2 did not write it")
    for entry, scope in _cells_with_layers(layers):
        if _is_cudnn(scope.arrays):
            changed.add_cudnn(entry, scope.arrays)
    config = root.text("model_config")
    if config is None:
        found = change_weights(root, layers, changed, hints)
        return ({"keras_version": KERAS_3} if found else {}), found
    if hints.hidden or hints.config is not None:
        entries = KerasEntries(hints)
        read_legacy_weights(root, layers, entries)
        check_agreement(entries.found(root), hints)
    if keras_version_of(root) >= (3, 0):
        return {}, {}
    return _modernize_config(root, layers, config, changed), {}


def _cells_with_layers(layers: Hdf5Group) -> Iterator[tuple[str, CellArrays]]:
    """Yield the arrays of each cell, and the name of its layer: both directions have the same."""
    for layer, group in named_layer_groups(layers):
        for scope in cells_of_group(group):
            path = scope.path
            if path and path[-1].startswith(("forward_", "backward_")):
                path = path[:-1]
            yield "/".join(path if path[:1] == [layer] else [layer, *path]), scope


def _is_cudnn(arrays: dict[str, Hdf5Dataset]) -> bool:
    """Return whether the shapes are cuDNN's: 8 or 6 biases per unit beside 4 or 3 gates."""
    if set(arrays) != set(_PARTS):
        return False
    kernel, recurrent, bias = (arrays[part].shape for part in _PARTS)
    if len(kernel) != 2 or len(recurrent) != 2 or len(bias) != 1 or not recurrent[0]:
        return False
    width = _GATES.get(bias[0] // recurrent[0], 0) * recurrent[0]
    return width > 0 and kernel[1] == recurrent[1] == width and bias[0] == 2 * width


def _modernize_config(
    root: Hdf5Group, layers: Hdf5Group, text: str, changed: ChangedCells
) -> dict[str, str]:
    what, version = f"{changed.what}: model_config", keras_version_of(root)
    if version < (2, 0):
        raise LossyError(
            f"{changed.what}: the config of Keras 1 is not converted: read its layers with load()"
        )
    config = parse_config(text, what)
    cudnn_weights = bool(changed.reports)
    nodes = {layer_name(node): node for node in child_layers(config)}
    for name, group in named_layer_groups(layers):
        for layer, cells in legacy_layers_with_cells(nodes[name], group) if name in nodes else ():
            changed.add_hard(layer, cells, version)
    with config_errors(what):
        cudnn_config = any(cudnn_layers(config))
        modernize_layer(config, scaled=changed.scaled)
    if cudnn_weights != cudnn_config:
        has, lacks = ("config", "weights") if cudnn_config else ("weights", "config")
        raise FileError(f"{changed.what}: cuDNN layers are in its {has}, but not in its {lacks}")
    attributes = {"model_config": json.dumps(config), "keras_version": KERAS_3}
    if (training := root.text(_TRAINING)) is not None:
        attributes[aside_name(_TRAINING, changed.notes)] = training
    return attributes


def _set_attributes(h5: Any, new: dict[str, str]) -> None:
    for name, text in new.items():
        as_bytes = isinstance(h5.attrs.get(name), bytes)
        h5.attrs[name] = text.encode() if as_bytes else text
        if name.startswith(_TRAINING):
            del h5.attrs[_TRAINING]
