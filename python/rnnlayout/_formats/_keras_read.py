"""Which of Keras's forms is this HDF5 file? Its name does not tell."""

from __future__ import annotations

from pathlib import Path

from rnnlayout._formats import Ask, _keras_legacy_h5, _keras_variables
from rnnlayout._formats._hdf5 import open_hdf5
from rnnlayout._formats._keras_entry import Entries
from rnnlayout._found import Found


def read(path: Path, ask: Ask) -> Found:
    """The RNNs of a legacy .h5, whole model or weights alone, or of a .weights.h5 of today."""
    entries = Entries(ask)
    with open_hdf5(path) as root:
        if layers := _keras_legacy_h5.layers_of(root):
            _keras_legacy_h5.read(root, layers, entries)
        else:
            _keras_variables.read_untold(root, entries)
        return entries.found(root)
