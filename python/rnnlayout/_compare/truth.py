"""Truth: the numbers that a packed buffer should have, by layer, direction and role."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from rnnlayout._model.layout import BlockKey
from rnnlayout._model.spec import Spec

from .matrix_forms import MatrixShape

BIASES = ("bW", "bR")
BIAS_ROLE = "b"  # the role of all biases of a layer and direction
MatrixName = tuple[int, int, str]  # layer, direction, role
_SAMPLES_KEPT = 96  # of all gates


@dataclass(frozen=True, eq=False)
class TrueArray:
    """The matrices, or biases, of all gates with a role in a layer and direction.

    values: the numbers, (gates, rows, columns). gates: the letters of the gates, in the order of
    values.
    """

    name: MatrixName
    gates: str
    values: np.ndarray

    @property
    def shape(self) -> MatrixShape:
        gates, rows, columns = self.values.shape
        return gates, rows, columns

    @property
    def size(self) -> int:
        return self.values.size

    @cached_property
    def samples(self) -> np.ndarray:
        """The indices of some of the largest, rare values of each gate, largest first."""
        flat = self.values.reshape(len(self.values), -1)
        count = min(_SAMPLES_KEPT // len(flat), flat.shape[1])
        samples = []
        for gate in flat:
            with np.errstate(invalid="ignore"):
                size = np.abs(gate.astype("f4", copy=False))
            at = np.sort(np.argpartition(size, size.size - count)[size.size - count :])
            samples.append(at[np.argsort(-size[at], kind="stable")])
        return np.stack(samples)

    @cached_property
    def sampled(self) -> np.ndarray:
        """The values of the samples, in float64, by gate."""
        flat = self.values.reshape(len(self.values), -1)
        return comparable(np.take_along_axis(flat, self.samples, axis=1))

    @cached_property
    def is_constant(self) -> bool:
        """Return whether all values are the same: a constant array cannot be located by values."""
        first = self.sampled[0, 0]
        # gate by gate, because the values in float64 take twice the memory
        return all(bool((comparable(gate) == first).all()) for gate in (self.sampled, *self.values))


@dataclass(frozen=True)
class Truth:
    """All numbers of an RNN: the right buffer `flat`, and in it the matrices in cuDNN's order, and
    the biases as (L, D, V, G, H).

    V is the number of bias vectors, 0 to 2. roles: of the bias vectors. gates: the letters of the
    gates. shown: the letters in the order of the source's layout, for reports.
    """

    spec: Spec
    flat: np.ndarray
    matrices: list[TrueArray]
    biases: np.ndarray
    roles: tuple[str, ...]
    gates: str
    shown: str

    @cached_property
    def num_weights(self) -> int:
        return sum(matrix.size for matrix in self.matrices)

    @property
    def size(self) -> int:
        return self.num_weights + self.biases.size

    @cached_property
    def _matrices_by_checksum(self) -> dict[int, list[TrueArray]]:
        by_checksum: dict[int, list[TrueArray]] = {}
        for matrix in self.matrices:
            if not matrix.is_constant:
                by_checksum.setdefault(_checksum(matrix.values), []).append(matrix)
        return by_checksum

    def matrices_with(self, values: np.ndarray) -> list[TrueArray]:
        """Return the matrices that have these values bit for bit, 1-D; none that is constant."""
        alike = self._matrices_by_checksum.get(_checksum(values), [])
        return [
            matrix
            for matrix in alike
            if matrix.size == values.size and same_bits(values, matrix.values.reshape(-1))
        ]

    @property
    def short_sizes(self) -> tuple[int, int]:
        """The sizes without biases, and with a single bias vector per layer and direction."""
        return self.num_weights, self.num_weights + self.biases[:, :, :1].size

    @cached_property
    def bias_vectors(self) -> list[TrueArray]:
        """The bias vectors, as matrices with a single column, in cuDNN's order."""
        return [
            TrueArray((layer, direction, role), self.gates, values[..., None])
            for layer, direction in np.ndindex(self.biases.shape[:2])
            for role, values in zip(self.roles, self.biases[layer, direction], strict=True)
        ]

    @cached_property
    def starts(self) -> dict[MatrixName, int]:
        """Where each matrix and bias vector should begin."""
        true_arrays = [*self.matrices, *self.bias_vectors]
        ends = np.cumsum([matrix.size for matrix in true_arrays]).tolist()
        return {
            matrix.name: end - matrix.size for matrix, end in zip(true_arrays, ends, strict=True)
        }

    def part(self, flat: np.ndarray, matrix: TrueArray) -> np.ndarray:
        """Return the values in the right place of a matrix, 1-D; fewer if the buffer is short."""
        at = self.starts[matrix.name]
        return flat[at : at + matrix.size]

    def blocks(self, flat: np.ndarray) -> Iterator[tuple[BlockKey, np.ndarray]]:
        """Yield the key and the values of each block of a right buffer."""
        for matrix in [*self.matrices, *self.bias_vectors]:
            gates = matrix.gates if matrix.name[2] != "P" else [""]
            values = self.part(flat, matrix).reshape(matrix.shape)
            yield from (
                ((*matrix.name, gate), block) for gate, block in zip(gates, values, strict=True)
            )


_NOT_FINITE = {"posinf": 1e300, "neginf": -1e300, "nan": 3e300}


def comparable(values: np.ndarray) -> np.ndarray:
    """Return values in float64, with large numbers for infinities and NaN: NaN is then equal to
    NaN, and far from all finite values."""
    with np.errstate(invalid="ignore"):  # signalling NaNs
        wide: np.ndarray = values.astype("f8")
    np.nan_to_num(wide, copy=False, **_NOT_FINITE)
    return wide


def largest(values: np.ndarray) -> float:
    """Return the largest absolute value among finite values. values: from comparable()."""
    absolute = np.abs(values)
    return float(absolute.max(initial=0, where=absolute < _NOT_FINITE["posinf"]))


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two arrays of the same dtype are equal bit for bit."""
    unsigned = f"u{a.itemsize}"
    return np.array_equal(a.view(unsigned), b.view(unsigned))


def _checksum(values: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(values).reshape(-1).view("u1").data)


def contains_run(buffer: np.ndarray, run: np.ndarray) -> bool:
    """Return whether values follow each other somewhere in a buffer, bit for bit."""
    stored, wanted = (np.ascontiguousarray(x).view(f"u{x.itemsize}") for x in (buffer, run))
    if wanted.size > stored.size:
        return False
    starts = np.flatnonzero(stored[: stored.size - wanted.size + 1] == wanted[0])
    for k in range(1, wanted.size):
        if not starts.size:
            return False
        starts = starts[stored[starts + k] == wanted[k]]
    return bool(starts.size)


def truth_of(
    spec: Spec, blocks: Mapping[BlockKey, np.ndarray], roles: tuple[str, ...], shown: str = ""
) -> Truth:
    """Return the truth of an RNN's blocks of values. roles: of the bias vectors. shown: the
    gates in the order of reports, by default in cuDNN's."""
    groups: dict[MatrixName, list[BlockKey]] = {}
    for key in blocks:
        groups.setdefault(key[:3], []).append(key)
    names = sorted((name for name in groups if name[2] not in BIASES), key=lambda name: name[:2])
    recurrent = next(name for name in names if name[2] == "R")
    gates = "".join(key[3] for key in groups[recurrent])
    num_weights = sum(blocks[key].size for name in names for key in groups[name])
    shape = spec.num_layers, spec.num_directions, len(roles), len(gates), spec.hidden_size
    flat = np.zeros(num_weights + prod(shape), blocks[groups[recurrent][0]].dtype)
    matrices, at = [], 0
    for name in names:
        parts = [blocks[key] for key in groups[name]]
        matrix = flat[at : at + len(parts) * parts[0].size].reshape(-1, *parts[0].shape)
        np.stack(parts, out=matrix)
        at += matrix.size
        letters = "".join(key[3] or key[2] for key in groups[name])  # a projection has no gates
        matrices.append(TrueArray(name, letters, matrix))
    biases = flat[num_weights:].reshape(shape)
    for layer, direction, role, gate in blocks:
        if role in roles:
            vector = blocks[layer, direction, role, gate][:, 0]
            biases[layer, direction, roles.index(role), gates.index(gate)] = vector
    return Truth(spec, flat, matrices, biases, roles, gates, shown or gates)
