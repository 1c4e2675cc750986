"""Which of Keras's forms is this HDF5 file? Its name does not tell."""

from __future__ import annotations

from pathlib import Path

from rnnlayout._files.bags.bag import Ask
from rnnlayout._files.bags.found import Found

from . import legacy_h5, variables
from .entry import Entries
from .hdf5 import open_hdf5


def read_hdf5(path: Path, ask: Ask) -> Found:
    """The RNNs of a legacy .h5, whole model or weights alone, or of a .weights.h5 of today."""
    entries = Entries(ask)
    with open_hdf5(path) as root:
        if layers := legacy_h5.layers_of(root):
            legacy_h5.read(root, layers, entries)
        else:
            variables.read_untold(root, entries)
        return entries.found(root)
