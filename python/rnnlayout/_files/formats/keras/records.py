"""The record of RNNs in an HDF5 file of weights: an attribute of its root, which Keras ignores."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rnnlayout._files.tensor_sets.record import KEY, Record, read_records, write_records

from .hdf5_tree import Hdf5Group
from .hdf5_write import write_texts

_PART = 1000  # characters


def write_record_attribute(h5: Any, records: Mapping[str, Record]) -> None:
    """Write the records as an attribute, in parts: libhdf5 limits its size."""
    for name in [name for name in h5.attrs if re.fullmatch(rf"{KEY}\d*", name)]:
        del h5.attrs[name]  # of the file that it is a copy of
    text = write_records(records)[KEY]
    write_texts(h5, KEY, [text[at : at + _PART] for at in range(0, len(text), _PART)])


def read_record_attribute(root: Hdf5Group) -> dict[str, Record]:
    """Return the records by the names of the layers, {} if the file has none."""
    parts = root.texts(KEY)
    return read_records({KEY: "".join(parts)}, root.attributes.what) if parts else {}
