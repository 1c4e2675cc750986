"""Forms: the orders in which a packer may write the matrices of a layer and direction.

Axes have the letters of csrc/layout/format.h. A packer reads the true numbers, in the order in
memory, as an array with the axes `read`, and writes the array with the axes `memory`. The search
and the repair follow from `read`, `memory` and the strides of the axes in the buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

MATRIX_AXES = "goi"  # of a true matrix, slowest first: gate, output unit, input unit
MatrixShape = tuple[int, int, int]  # the sizes of these axes: gates, rows, columns


def reorder_axes(array: np.ndarray, sizes: Mapping[str, int], axes: str, target: str) -> np.ndarray:
    """Return a view of an array, in memory order along `axes`, with these axes as in `target`."""
    view = array.reshape([sizes[axis] for axis in axes])
    return view.transpose([axes.index(axis) for axis in target if axis in axes])


@dataclass(frozen=True)
class MatrixForm:
    """How a packer wrote matrices. words: to follow "the input matrices are"; "" if right. rule:
    the name of the mistake. rank: the position in the table."""

    rule: str
    read: str
    words: str
    rank: int = 99


@dataclass(frozen=True)
class Pattern:
    """A form with the strides of the axes g, o and i in a buffer, in values. rolls: by how many
    places the rows and columns were rolled, as by np.roll."""

    form: MatrixForm
    strides: tuple[int, int, int]
    rolls: tuple[int, int] = (0, 0)

    def index(self, where: np.ndarray, shape: MatrixShape) -> np.ndarray:
        """Return the offsets, from the first element, of the elements with true indices `where`."""
        sizes = _sizes(self.form.read, shape)
        axes = dict(zip(self.form.read, np.unravel_index(where, sizes), strict=True))
        for axis, roll, size in zip("oi", self.rolls, shape[1:], strict=True):
            if roll:
                axes[axis] = (axes[axis] + roll) % size
        parts = (axes[a] * step for a, step in zip(MATRIX_AXES, self.strides, strict=True))
        return np.asarray(sum(parts))

    def take(self, buffer: np.ndarray, at: int, shape: MatrixShape) -> np.ndarray:
        """Return the numbers of a matrix in the true order, as (gates, rows, columns)."""
        sizes = _sizes(self.form.read, shape)
        steps = [self.strides[MATRIX_AXES.index(a)] * buffer.itemsize for a in self.form.read]
        stored = np.lib.stride_tricks.as_strided(buffer[at:], sizes, steps).reshape(shape)
        return (
            np.roll(stored, [-roll for roll in self.rolls], (1, 2)) if any(self.rolls) else stored
        )

    def mark(self, used: np.ndarray, at: int, shape: MatrixShape) -> None:
        """Set the elements of a matrix in a mask of the buffer."""
        steps = [step * used.itemsize for step in self.strides]
        np.lib.stride_tricks.as_strided(used[at:], shape, steps)[...] = True

    def span(self, shape: MatrixShape) -> tuple[int, int]:
        """Return where a matrix begins and ends, relative to the first element."""
        begin, end = self.spans(shape, 0)
        return int(begin[0]), int(end[0])

    def spans(self, shape: MatrixShape, axes: int) -> tuple[np.ndarray, np.ndarray]:
        """Return where each part begins and ends, relative to the first element: the matrix (axes:
        0), each gate (1) or each row of each gate (2)."""
        firsts = np.zeros(1, np.int64)
        for size, step in zip(shape[:axes], self.strides[:axes], strict=True):
            firsts = np.add.outer(firsts, np.arange(size) * step).reshape(-1)
        inner = zip(shape[axes:], self.strides[axes:], strict=True)
        ends = [(size - 1) * step for size, step in inner]
        begins = firsts + sum(min(end, 0) for end in ends)
        return begins, firsts + 1 + sum(max(end, 0) for end in ends)


def _sizes(axes: str, shape: MatrixShape) -> list[int]:
    return [shape[MATRIX_AXES.index(axis)] for axis in axes]


RIGHT_FORM = MatrixForm("", MATRIX_AXES, "", 0)
# If two forms are the same for a shape (square matrices, a single gate), the first form is meant.
_FORMS = {
    "goi/goi": "",
    "gio/goi": "transposed, each gate separately",
    "igo/goi": "transposed, all gates together",
    "goi/gio": "reshaped where a transposition is needed, each gate separately",
    "goi/igo": "reshaped where a transposition is needed, all gates together",
    "ogi/goi": "with the gates interleaved unit by unit",
    "iog/goi": "transposed, with the gates interleaved unit by unit",
    "oig/goi": "with the gates interleaved element by element",
}
_MATRIX_FORMS = {
    name: MatrixForm(f"form {name}", name[4:], words, rank) if words else RIGHT_FORM
    for rank, (name, words) in enumerate(_FORMS.items())
}


def _dense_strides(memory: str, shape: MatrixShape) -> tuple[int, int, int]:
    """Return the strides of g, o and i if the axes follow each other without gaps."""
    sizes = _sizes(memory, shape)
    steps = {axis: prod(sizes[k + 1 :]) for k, axis in enumerate(memory)}
    return steps["g"], steps["o"], steps["i"]


def patterns_of(shape: MatrixShape, joined: int) -> Iterator[Pattern]:
    """Yield the patterns of the table, the right pattern first. joined: the columns of the
    second matrix of the layer, 0 without a second matrix."""
    for name, form in _MATRIX_FORMS.items():
        yield Pattern(form, _dense_strides(name[:3], shape))
    _, rows, columns = shape
    for row, column in ((-1, 1), (1, -1), (-1, -1)):  # in reverse order
        if (row > 0 or rows > 1) and (column > 0 or columns > 1):
            yield solved_pattern((rows * columns, row * columns, column), shape)
    if joined:
        yield from joined_patterns(shape, joined).values()


def joined_patterns(shape: MatrixShape, joined: int) -> dict[str, Pattern]:
    """Return the patterns of a matrix that is joined with a matrix of so many columns, by what
    alternates: a "gate" or a "row" of each."""
    _, rows, columns = shape
    both = columns + joined
    return {
        "gate": Pattern(RIGHT_FORM, (rows * both, columns, 1)),
        "row": Pattern(RIGHT_FORM, (rows * both, both, 1)),
    }


def rolled_pattern(rolls: tuple[int, int], shape: MatrixShape) -> Pattern:
    """Return the pattern of a matrix in the right form whose rows or columns were rolled."""
    words = " and ".join(
        f"{noun} rolled by {roll if 2 * roll <= size else roll - size}"
        for noun, roll, size in zip(("rows", "columns"), rolls, shape[1:], strict=True)
        if roll
    )
    form = MatrixForm(words, MATRIX_AXES, f"with {words}, as by np.roll")
    return Pattern(form, _dense_strides(MATRIX_AXES, shape), rolls)


def solved_pattern(strides: tuple[int, int, int], shape: MatrixShape) -> Pattern:
    """Return the pattern with these strides, described in words."""
    gate, row, column = strides
    turned = [axis for axis, step in (("rows", row), ("columns", column)) if step < 0]
    words = f"in reverse order of {' and '.join(turned)}" if turned else ""
    sizes = (abs(gate), abs(row), abs(column))
    for name, form in _MATRIX_FORMS.items():
        if sizes[1:] == _dense_strides(name[:3], shape)[1:] and form.read == MATRIX_AXES:
            if not words:
                return Pattern(form, strides)
            both = ", ".join(part for part in (form.words, words) if part)
            rule = f"{form.rule} reversed".strip()
            return Pattern(MatrixForm(rule, MATRIX_AXES, both), strides)
    if sizes[2] == 1 and sizes[1] > shape[2]:
        padding = f"with rows of {sizes[1]} values, expected {shape[2]} (padded?)"
    elif sizes[1] == 1 and sizes[2] > shape[1]:
        padding = f"transposed, with rows of {sizes[2]} values (padded?)"
    else:
        padding = f"with strides of {row} and {column} values between rows and columns"
    words = ", ".join(part for part in (padding, words) if part)
    return Pattern(MatrixForm(f"strides {row} {column}", MATRIX_AXES, words), strides)
