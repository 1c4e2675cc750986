"""The weights of a Keras 2 model in a file without its config, changed for Keras 3.

They do not show the activation of an LSTM or GRU: the caller passes it, or the model's config.
"""

from __future__ import annotations

from collections.abc import Iterator

from rnnlayout._files.tensor_sets.apply_hints import apply_hints
from rnnlayout._files.tensor_sets.found import Found
from rnnlayout._files.tensor_sets.record import Record
from rnnlayout._files.tensor_sets.tensor_set import Hints
from rnnlayout._model.asks import Ask
from rnnlayout._model.layout import Layout
from rnnlayout._model.spec import HARD_SIGMOIDS, Spec
from rnnlayout._native import LossyError
from rnnlayout._sources.keras_config import SIGMOID_SINCE

from . import records
from .config import child_layers, layer_name
from .entries import LEAVES, CellDatasets, KerasEntries, cell_names, check_activation, count_gates
from .hdf5_tree import Hdf5Group
from .legacy_weights import (
    cells_by_layer,
    legacy_layers_with_cells,
    named_layer_groups,
    read_legacy_weights,
)
from .rewrite_cells import ChangedCells
from .rewrite_config import config_errors, modernize_layer
from .unknown_classes import unknown_classes_in

_GATES = {4: "lstm", 3: "gru"}
_HARD = HARD_SIGMOIDS[1]
_NO_ACTIVATIONS = (
    "the file does not record activations: an LSTM or GRU with Keras 2's hard_sigmoid needs other"
    " weights in Keras 3: if the model has one, pass "
    + Ask("recurrent_activation", _HARD)
    + ", or convert the whole model"
)


def change_weights(
    root: Hdf5Group, layers: Hdf5Group, changed: ChangedCells, hints: Hints
) -> dict[str, Record]:
    """Collect the changed cells; return what is then recorded of each layer, {} if none changes.

    changed: has the changed cells of cuDNN's layers already. Raises the error that asks for the
    activation if the file is of a Keras before 2.3, whose default was hard_sigmoid.
    """
    entries = KerasEntries(hints, records=records.read_record_attribute(root))
    read_legacy_weights(root, layers, entries)
    found = entries.found(root)
    check_agreement(found, hints)
    check_activation(hints.recurrent_activation, entries.version)
    gated = list(_gated_cells(layers, changed))
    told = entries.beside is not None or hints.recurrent_activation is not None
    for question in found.undecided.values() if told or entries.version < SIGMOID_SINCE else ():
        if question.specs[0].cell in _GATES.values() and question.arguments != ("as_class",):
            raise question
    if entries.beside is not None:
        _change_described(entries, layers, changed)
    elif hints.recurrent_activation == _HARD:
        for entry, cell in gated:
            changed.add_unrecorded(entry, cell, hints.reset)
    elif not told and not entries.records and entries.version < (3, 0):
        changed.notes += [_NO_ACTIVATIONS] if gated else []
    old = entries.records or entries.version < SIGMOID_SINCE  # what it says would be wrong now
    if not told and not (changed.reports and old):
        return {}
    return {
        cell: Record("", Layout("keras"), _in_keras_3(one.spec), one.config, one.batch_first)
        for name, whole in found.items()
        for cell, one in zip(cell_names(name, whole.spec.num_layers), whole.split(), strict=True)
    }


def check_agreement(found: Found, hints: Hints) -> None:
    """Raise SpecError if a hint contradicts what a file records of its RNNs."""
    for name, error in apply_hints(found, hints, ()).refused.items():
        if name not in found.refused:
            raise error


def _change_described(entries: KerasEntries, layers: Hdf5Group, changed: ChangedCells) -> None:
    """Collect the cells that change by the config that the caller has in a file of its own."""
    beside = entries.beside
    assert beside is not None
    if entries.version >= (3, 0):
        return
    nodes = {layer_name(node): node for node in child_layers(beside.model)}
    for name, group in named_layer_groups(layers):
        for layer, cells in legacy_layers_with_cells(nodes[name], group) if name in nodes else ():
            if not unknown_classes_in(layer):
                changed.add_hard(layer, cells, entries.version)
    with config_errors(beside.name):
        modernize_layer(beside.model, scaled=changed.scaled)  # raises what Keras 3 cannot compute


def _gated_cells(layers: Hdf5Group, changed: ChangedCells) -> Iterator[tuple[str, CellDatasets]]:
    """Yield the cells of LSTMs and GRUs, except those of cuDNN's layers, which have changed."""
    for name, group in named_layer_groups(layers):
        for entry, sides in cells_by_layer(name, group):
            for cell in (cell for cells in sides.values() for cell in cells):
                if not cell.keys() <= set(LEAVES):
                    raise LossyError(
                        f"{changed.what}: the weights of Keras 1 are not converted: read its"
                        " layers with load()"
                    )
                gates = count_gates(cell["recurrent_kernel"].shape)
                if gates in _GATES and cell["kernel"].path not in changed.arrays:
                    yield entry, cell


def _in_keras_3(spec: Spec) -> Spec:
    hard = spec.recurrent_activation == _HARD
    return spec.replace(recurrent_activation="hard_sigmoid") if hard else spec
