"""The parts of a buffer whose values are compared, and the rules that may explain the values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from .truth import MatrixName

EVIDENCE = 4  # values at least, besides the values that determine digits or scales
_SAMPLES = 16384  # values of a part that a rule is tried on, before all values are
_AT_ONCE = 1 << 18  # values that a rule computes with at a time
Axes = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ComparedPart:
    """A matrix, or the biases of a layer and direction, after the repair of the order.

    values: in the right order. true: what the values are without further changes. wide: how far a
    right value may be from the true value. wrong: where the values differ by more. All are of shape
    (gates, rows, columns), biases (vectors, gates, units).
    """

    name: MatrixName
    values: np.ndarray
    true: np.ndarray
    wide: np.ndarray
    wrong: np.ndarray
    _ranges: dict[tuple[Axes, str], tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def at(self, rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return values and true values in float64, and wide, of some rows."""
        values, true = (x[:, rows].astype("f8") for x in (self.values, self.true))
        return values, true, self.wide[:, rows]

    def range(self, axes: Axes, of: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the least and the largest finite value along axes, 0 included. of: "values" or
        "true"."""
        if (axes, of) not in self._ranges:
            values: np.ndarray = getattr(self, of)
            finite = np.isfinite(values)
            least, most = (
                function(values, axes, keepdims=True, initial=0, where=finite).astype("f8")
                for function in (np.min, np.max)
            )
            self._ranges[axes, of] = least, most
        return self._ranges[axes, of]

    @property
    def slices(self) -> Iterator[slice]:
        """Yield slices of all rows, each of about _AT_ONCE values."""
        gates, rows, columns = self.values.shape
        step = max(1, _AT_ONCE // (gates * columns))
        for first in range(0, rows, step):
            yield slice(first, first + step)

    @cached_property
    def some_rows(self) -> np.ndarray:
        """The first rows with wrong values, as many as a rule is tried on."""
        gates, _, columns = self.values.shape
        rows = np.flatnonzero(self.wrong.any(axis=(0, 2)))
        return rows[: max(1, _SAMPLES // (gates * columns))]


Rows = slice | np.ndarray
ALL = slice(None)


@dataclass(frozen=True)
class ValueRule:
    """A rule by which all values of some parts were made from the true values.

    name, lost: as in Mistake. text: the sentence, with {places}, or with {count}, as "3 of 60
    values are", and {where}, as " in the biases". explains: returns which values of some rows of a
    part are as the rule makes the values. by_row: whether each row can be asked alone. least: how
    many wrong values show the rule.
    """

    name: str
    text: str
    lost: str
    explains: Callable[[ComparedPart, Rows], np.ndarray]
    by_row: bool = True
    least: int = 1

    def misfits(self, part: ComparedPart) -> np.ndarray | None:
        """Return which values of a part the rule does not explain; None if the rule explains fewer
        than half of the wrong values."""
        with np.errstate(all="ignore"):  # NaN, infinity
            some = part.some_rows
            if not _most(self.explains(part, some), part.wrong[:, some]):
                return None
            explained = self._explains_all(part)
            return ~explained if _most(explained, part.wrong) else None

    def _explains_all(self, part: ComparedPart) -> np.ndarray:
        """Return which values of a part are as the rule makes the values, if possible a few rows at
        a time: rules compute in float64."""
        if not self.by_row:
            return self.explains(part, ALL)
        return np.concatenate([self.explains(part, some) for some in part.slices], axis=1)

    def explains_all(self, part: ComparedPart) -> bool:
        """Return whether all values of a part are as the rule makes the values."""
        with np.errstate(all="ignore"):
            return bool(self._explains_all(part).all())


def _most(explained: np.ndarray, wrong: np.ndarray) -> bool:
    """Return whether half of the wrong values are explained."""
    return bool(2 * np.count_nonzero(explained & wrong) >= np.count_nonzero(wrong))
