"""Whole models of Keras 2 in HDF5, changed so that Keras 3 loads them and computes the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rnnlayout._files.bags.bag import Ask, Converted
from rnnlayout._model.errors import FileError
from rnnlayout._model.layout import Layout
from rnnlayout._native import LayoutError, LossyError
from rnnlayout._sources.keras_config import SIGMOID_SINCE

from .cells import Changed
from .hdf5 import Dataset, Group, hdf5_errors, import_h5py, open_hdf5
from .hdf5_copy import copy_tree
from .legacy_h5 import Scope, groups_of, layers_of, pairs, scopes, version_of
from .modern import config_errors, cudnn_layers, modernize
from .tree import children, layer_name, parse
from .write import KERAS_3

_PARTS = ("kernel", "recurrent_kernel", "bias")
_GATES = {8: 4, 6: 3}  # biases, in hidden sizes -> gates of a CuDNNLSTM, of a CuDNNGRU
_SET_ASIDE = "training_config_of_keras_2"
AS_IT_IS = "copied as it is: nothing in it says that Keras 3 reads it otherwise"
_UNSAID = (
    "the file does not say activations: an LSTM or GRU with Keras 2's hard_sigmoid needs other"
    " weights in Keras 3, which it gets where the whole model is converted"
)


@dataclass
class _Changes:
    """What a file needs: cells, and attributes of its root."""

    cells: Changed
    attributes: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def rewrite_model(
    path: Path, out: Path, ask: Ask, to: Layout, *, dtype: Any = None, exact: bool = False
) -> Converted:
    """Write the model or the weights at `path` to `out`, for Keras 3.

    CuDNNLSTM and CuDNNGRU become LSTM and GRU, in the config and in the weights; the weights of
    LSTMs and GRUs make up for another hard_sigmoid; what else Keras 3 would misread in a model with
    recurrent layers is said in its words. All else stays. Only the training_config, over which
    Keras 3 stumbles, gets a name where it does not look.

    dtype, exact: as convert(), for the layers that change. FileError: no such file of Keras.
    LossyError: Keras 3 has no layer that computes the same; weights would be rounded and exact is
    set.
    """
    check_whole(ask, to)
    with open_hdf5(path) as root:
        changes = _changes(root, str(path), dtype, exact)
        if changes.cells.arrays or changes.attributes:
            with hdf5_errors(str(path)), import_h5py(str(path)).File(out, "w") as h5:
                copy_tree(root, h5, changes.cells.arrays)
                _change_attributes(h5, changes.attributes)
        else:
            shutil.copyfile(path, out)
            changes.notes.append(AS_IT_IS)
    return Converted(changes.cells.reports, notes=tuple(changes.notes))


def check_whole(ask: Ask, to: Layout) -> None:
    """LayoutError: it is asked for what is not done to a whole model."""
    if to.name != "keras":
        raise LayoutError(
            f"a whole Keras model is rewritten to 'keras', not to {str(to)!r}: for its RNNs alone"
            " give the new file the suffix of another format"
        )
    if ask.spec is not None or ask.prefix or ask.layout not in (None, "keras", "keras-cudnn"):
        raise LayoutError("a Keras file is converted whole, and says what it holds: drop the hints")


def _changes(root: Group, what: str, dtype: Any, exact: bool) -> _Changes:
    changes = _Changes(Changed(what, dtype, exact))
    layers = layers_of(root)
    if layers is None:
        raise FileError(f"{what}: no layers as Keras 2 saves them: no attribute 'layer_names'")
    for entry, cell in _cudnn_cells(layers):
        changes.cells.add_cudnn(entry, cell)
    _change_config(root, layers, what, changes)
    others = _has_others(layers)
    if changes.cells.reports and version_of(root) < SIGMOID_SINCE and not others:
        changes.attributes["keras_version"] = KERAS_3  # so that an LSTM's activation is known
    if root.text("model_config") is None and version_of(root) < (3, 0) and others:
        changes.notes.append(_UNSAID)
    return changes


# --------------------------------------------------------------------------------------- weights


def _cudnn_cells(layers: Group) -> Iterator[tuple[str, dict[str, Dataset]]]:
    """The cuDNN layers among the weights, one for each direction: its entry, and its arrays.

    Their shapes tell: no other layer of Keras has 8 or 6 biases a unit beside 4 or 3 gates.
    """
    for layer, scope in _scopes(layers):
        if _is_cudnn(scope.arrays):
            yield _entry(layer, scope.path), scope.arrays


def _has_others(layers: Group) -> bool:
    """Are there recurrent layers that are no cuDNN layers?"""
    return any(scope.is_recurrent and not _is_cudnn(scope.arrays) for _, scope in _scopes(layers))


def _scopes(layers: Group) -> Iterator[tuple[str, Scope]]:
    for layer, group in groups_of(layers):
        for scope in scopes(group):
            yield layer, scope


def _is_cudnn(arrays: dict[str, Dataset]) -> bool:
    if set(arrays) != set(_PARTS):
        return False
    kernel, recurrent, bias = (arrays[part].shape for part in _PARTS)
    if len(kernel) != 2 or len(recurrent) != 2 or len(bias) != 1 or not recurrent[0]:
        return False
    width = _GATES.get(bias[0] // recurrent[0], 0) * recurrent[0]
    return width > 0 and kernel[1] == recurrent[1] == width and bias[0] == 2 * width


def _entry(layer: str, path: list[str]) -> str:
    """A layer's name as its user knows it, from where its arrays are: "rnn" of "rnn/rnn",
    "inner/rnn" of a model's; both directions of a Bidirectional are one."""
    if path and path[-1].startswith(("forward_", "backward_")):
        path = path[:-1]
    return "/".join(path if path[:1] == [layer] else [layer, *path])


# ---------------------------------------------------------------------------------------- config


def _change_config(root: Group, layers: Group, what: str, changes: _Changes) -> None:
    text = root.text("model_config")
    version = version_of(root)
    if text is None or version >= (3, 0):
        return
    if version < (2, 0):
        raise LossyError(
            f"{what} is a model of Keras 1, whose config is not converted: load() has its layers"
        )
    config = parse(text, f"{what}: model_config")
    has_cudnn = bool(changes.cells.reports)
    nodes = {layer_name(node): node for node in children(config)}
    for name, group in groups_of(layers):
        for layer, cells in pairs(nodes[name], group) if name in nodes else ():
            changes.cells.add_hard(layer, cells, version)
    with config_errors(f"{what}: its model_config"):
        says_cudnn = any(cudnn_layers(config))
        modernize(config, scaled=changes.cells.scaled)
    if has_cudnn != says_cudnn:
        has, lacks = ("config", "weights") if says_cudnn else ("weights", "config")
        raise FileError(f"{what}: there are cuDNN layers in its {has}, but none in its {lacks}")
    changes.attributes = {"model_config": json.dumps(config), "keras_version": KERAS_3}
    if (training := root.text("training_config")) is not None:
        changes.attributes[_SET_ASIDE] = training
        changes.notes.append(
            f"training_config is kept as {_SET_ASIDE}: Keras 3 does not read Keras 2's, compile the"
            " model anew; optimizer_weights, if there are any, stay as they are, of no use to it"
        )


# --------------------------------------------------------------------------------------- writing


def _change_attributes(h5: Any, new: dict[str, str]) -> None:
    for name, text in new.items():
        as_bytes = isinstance(h5.attrs.get(name), bytes)
        h5.attrs[name] = text.encode() if as_bytes else text
    if _SET_ASIDE in new:
        del h5.attrs["training_config"]
