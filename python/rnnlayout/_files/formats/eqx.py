""".eqx: the arrays of an Equinox module, from equinox.tree_serialise_leaves().

A file is a sequence of .npy files without names (equinox/_serialisation.py, 0.13.8). A line of JSON
with the sizes of the model may come first, as Equinox's documentation recommends. Without names
only a single RNN can be recognized: a cell, or a list of cells.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from rnnlayout._files.tensor_sets.file_limits import InputFile
from rnnlayout._files.tensor_sets.file_rnns import Found, entry_name
from rnnlayout._model.dtypes import Bits
from rnnlayout._model.errors import Ask, FileError
from rnnlayout._model.layout import Layout
from rnnlayout._model.undecided import UndecidedError
from rnnlayout._native import LayoutError
from rnnlayout._sources.read_source import read_source
from rnnlayout._sources.reading import Reading
from rnnlayout._sources.tensor_paths import is_under_with_direction

from .npz import read_npy_header
from .registry import ModelFormat

_LAYOUT = Layout("equinox")
_ARRAY_STEPS = 400  # of the budget: a header takes 50 us; a hundred layers have 800 arrays
_MOST_LINE = 1 << 20
_BFLOAT16 = np.dtype("V2")  # as NumPy writes it


def _read_eqx(file: InputFile, reading: Reading) -> Found:
    if reading.layout not in (None, _LAYOUT):
        why = f"{file} is in layout equinox, not {reading.layout}: omit "
        raise LayoutError(why, Ask("layout", None))
    arrays: list[np.ndarray] = []
    size = file.path.stat().st_size
    with open(file, "rb") as opened:
        if opened.read(1) == b"{":
            opened.readline(_MOST_LINE)
        else:
            opened.seek(0)
        while (at := opened.tell()) < size or not arrays:
            file.budget.charge("steps", _ARRAY_STEPS)
            label = f"{file}: array {len(arrays)}"
            header = read_npy_header(opened, size - at, label)
            if header.dtype.kind not in "biufc" and header.dtype != _BFLOAT16:
                raise FileError(f"{label} is {header.dtype}, need numbers")
            opened.seek(at + header.nbytes)
            data = opened.read(header.dtype.itemsize * math.prod(header.shape))
            arrays.append(header.array(data, 0))
    try:
        bits = [Bits(a.view("u2"), "bfloat16") if a.dtype == _BFLOAT16 else a for a in arrays]
        weights = read_source(bits, replace(reading, layout=_LAYOUT, prefix=""))
    except UndecidedError as error:
        name = entry_name("", error.specs[0])
        return Found({}, {name: error} if is_under_with_direction(name, reading.prefix) else {})
    except LayoutError as error:
        raise FileError(
            f"{file} has no names, and its {len(arrays)} arrays are not those of a cell or a list"
            " of cells (",
            error,
            "): read it with Equinox into your model, model ="
            f" eqx.tree_deserialise_leaves({str(file)!r}, model), and pass its cell",
        ) from None
    name = entry_name("", weights.spec)
    return Found({name: weights} if is_under_with_direction(name, reading.prefix) else {})


FORMAT = ModelFormat(".eqx", (_LAYOUT.name,), _read_eqx, None, begins=".npy")
