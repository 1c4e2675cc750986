"""Forms: the orders in which a packer may write the matrices of one layer and direction.

Axes by letter: g gate, o output unit, i input. A packer reads the true numbers, in their order in
memory, as an array with the axes `read`, and writes it with the axes `memory`. Both the search and
the repair follow from these two words.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

MatrixShape = tuple[int, int, int]  # gates, rows, columns


@dataclass(frozen=True)
class MatrixForm:
    """One row of the table of forms. words: what the packer did, to follow "the input matrices
    are"; "" if that is right.
    """

    memory: str
    read: str
    words: str

    def undo(self, chunk: np.ndarray, shape: MatrixShape) -> np.ndarray:
        """Return the numbers of a matrix in their true order, shaped (gates, rows, columns)."""
        axes = chunk.reshape(_sizes(self.memory, shape))
        return axes.transpose([self.memory.index(axis) for axis in self.read]).reshape(shape)

    def at(self, index: np.ndarray, shape: MatrixShape) -> np.ndarray:
        """Return where in the chunk the elements with these true indices are."""
        found = np.unravel_index(index, _sizes(self.read, shape))
        axes = dict(zip(self.read, found, strict=True))
        sizes = _sizes(self.memory, shape)
        steps = [prod(sizes[k + 1 :]) for k in range(3)]
        return np.asarray(sum(axes[a] * step for a, step in zip(self.memory, steps, strict=True)))


def _sizes(axes: str, shape: MatrixShape) -> list[int]:
    return [shape["goi".index(axis)] for axis in axes]


RIGHT_FORM = MatrixForm("goi", "goi", "")
# If two forms are the same for a shape (square matrices, one gate), the first is meant.
MATRIX_FORMS = (
    RIGHT_FORM,
    MatrixForm("gio", "goi", "transposed, each gate separately"),
    MatrixForm("igo", "goi", "transposed, all gates together"),
    MatrixForm("goi", "gio", "reshaped where a transposition is needed, each gate separately"),
    MatrixForm("goi", "igo", "reshaped where a transposition is needed, all gates together"),
    MatrixForm("ogi", "goi", "with the gates interleaved unit by unit"),
    MatrixForm("iog", "goi", "transposed, with the gates interleaved unit by unit"),
    MatrixForm("oig", "goi", "with the gates interleaved element by element"),
)
