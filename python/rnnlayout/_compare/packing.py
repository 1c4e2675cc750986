"""A packing: how a buffer was made, and how to restore the right buffer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from .packed_biases import (
    KEPT_RULE,
    BiasArrangement,
    LayerBiases,
    PackedBiases,
    eps_of,
    kept_biases,
    layer_order,
    read_biases,
)
from .packed_matrices import LocatedMatrices, MatrixFinder
from .truth import BIAS_ROLE, MatrixName, TrueArray, Truth, same_bits


@dataclass(frozen=True)
class Packing:
    """How a buffer was packed.

    matrices: the located matrices, in the order of the buffer. unknown: the matrices that were not
    located. unsearched: the names of those that were not searched for, after too many others that
    are absent. free: the parts of the buffer without matrices, as pairs of start and stop, where
    biases may be. biases: None without biases, or if the biases were not recognized. vectors: the
    place of each bias vector, if the vectors are in no known order.
    """

    truth: Truth
    buffer: np.ndarray
    matrices: LocatedMatrices
    unknown: list[TrueArray]
    unsearched: set[MatrixName]
    free: list[tuple[int, int]]
    biases: PackedBiases | None
    vectors: LocatedMatrices

    @property
    def layer_biases(self) -> Mapping[MatrixName, LayerBiases]:
        """Return the change of the biases of each layer and direction; {} if not recognized."""
        return self.biases.layers if self.biases else {}

    @property
    def written_biases(
        self,
    ) -> Iterator[tuple[MatrixName, tuple[int, ...], tuple[int, ...], float]]:
        """Yield (name, order of gates, signs, scale) of all biases of each layer and direction, or
        of each vector if the two vectors of any layer differ."""
        by_vector = {
            name: (located.reading.order, located.reading.signs, located.reading.scale)
            for name, located in self.vectors.items()
        } or {
            (*name[:2], role): (layer.order, signs, 1.0)
            for name, layer in self.layer_biases.items()
            for role, signs in zip(self.truth.roles, layer.signs, strict=False)
        }
        by_layer: dict[MatrixName, set[tuple[Any, ...]]] = {}
        for name, written in by_vector.items():
            by_layer.setdefault((*name[:2], BIAS_ROLE), set()).add(written)
        if all(len(written) == 1 for written in by_layer.values()):
            by_vector = {name: written.pop() for name, written in by_layer.items()}
        for name, (order, signs, scale) in by_vector.items():
            yield name, order, signs, scale

    @property
    def written(self) -> Iterator[tuple[MatrixName, str, tuple[int, ...], tuple[int, ...], float]]:
        """Yield (name, letters, order of gates, signs, scale) of all matrices and biases."""
        for name, located in self.matrices.items():
            reading = located.reading
            yield name, located.matrix.gates, reading.order, reading.signs, reading.scale
        for name, order, signs, scale in self.written_biases:
            yield name, self.truth.gates, order, signs, scale

    @cached_property
    def fixed(self) -> np.ndarray:
        """The numbers in cuDNN's order.

        Lost values stay unchanged; arrays that were not located are copied from
        the right offset. If nothing moves, this is the buffer itself.
        """
        truth, buffer = self.truth, self.buffer
        if self._is_in_place():
            return buffer
        fixed = np.zeros(truth.size, buffer.dtype)
        places = self.matrices | self.vectors
        for matrix in truth.matrices + (truth.bias_vectors if self.vectors else []):
            part = truth.part(fixed, matrix).reshape(matrix.shape)
            if matrix.name in places:
                reading = places[matrix.name].reading
                chunk = reading.pattern.take(buffer, reading.at, matrix.shape)
                _gates_back(part, chunk, reading.order, reading.signs)
                if reading.scale != 1:
                    part /= np.asarray(reading.scale, part.dtype)
            elif (stored := truth.part(buffer, matrix)).size == matrix.size:
                part[:] = stored.reshape(matrix.shape)
        if self.biases and not self.vectors:
            self._undo_biases(self.biases, fixed[truth.num_weights :])
        return fixed

    def _is_in_place(self) -> bool:
        """Return whether a repair changes no value."""
        truth, buffer = self.truth, self.buffer
        places, starts = (self.matrices | self.vectors).items(), truth.starts
        moved = any(not located.is_right_at(starts[name]) for name, located in places)
        if moved or buffer.size != truth.size:
            return False
        if self.vectors:
            return True
        biases = np.zeros(truth.biases.size, buffer.dtype)
        if self.biases:
            self._undo_biases(self.biases, biases)
        return same_bits(biases, buffer[truth.num_weights :])

    def stored_biases(self, biases: PackedBiases) -> Iterator[tuple[MatrixName, np.ndarray]]:
        """Yield (name, biases as stored) of each layer and direction, with the gates in the right
        order and with their signs, as (vectors, G, H)."""
        stored = biases.take(self.truth, _values_of(self.buffer, self.free))
        for name, layer in biases.layers.items():
            vectors = np.zeros_like(stored[name[:2]])
            for gates, vector, signs in zip(vectors, stored[name[:2]], layer.signs, strict=False):
                _gates_back(gates, vector, layer.order, signs)
            yield name, vectors

    def _undo_biases(self, biases: PackedBiases, fixed: np.ndarray) -> None:
        all_biases = fixed.reshape(self.truth.biases.shape)
        for name, vectors in self.stored_biases(biases):
            layer = biases.layers[name]
            for vector, gate, number in layer.shifts:
                vectors[vector, gate] -= np.asarray(number, vectors.dtype)
            restored = np.stack(layer.rule.undo(vectors[0], vectors[-1]))[: biases.count]
            all_biases[name[:2]][: biases.count] = restored


def _gates_back(
    target: np.ndarray, source: np.ndarray, order: tuple[int, ...], signs: tuple[int, ...]
) -> None:
    for place, (gate, sign) in enumerate(zip(order, signs, strict=True)):
        # not np.negative(out=), which in NumPy 2.4 errs between arrays with certain strides
        target[gate] = source[place] if sign == 1 else -source[place]


def _values_of(buffer: np.ndarray, parts: list[tuple[int, int]]) -> np.ndarray:
    return np.concatenate([buffer[start:stop] for start, stop in parts])


def packing_of(truth: Truth, buffer: np.ndarray) -> Packing:
    """Find out how a buffer of values was packed: exactly, and else nearly."""
    finder = MatrixFinder(truth.matrices, buffer, truth.starts, eps_of(truth))
    matrices = finder.find()
    unknown = [matrix for matrix in truth.matrices if matrix.name not in matrices]
    edges = np.ones(buffer.size + 2, bool)
    used = edges[1:-1]  # by matrices; unknown matrices use the right place
    used[:] = False
    for matrix in truth.matrices:
        if matrix.name in matrices:
            reading = matrices[matrix.name].reading
            reading.pattern.mark(used, reading.at, matrix.shape)
        else:
            truth.part(used, matrix)[:] = True
    ends = np.flatnonzero(edges[1:] != edges[:-1])
    free = [(int(start), int(stop)) for start, stop in ends.reshape(-1, 2)]
    biases, vectors = None, {}
    # biases of buffers of another, shorter length are only located
    if free and matrices and (buffer.size >= truth.size or buffer.size in truth.short_sizes):
        rest = _values_of(buffer, free)
        biases = read_biases(truth, rest, matrices)
        twins = {
            matrix.name[:2]: twin.name[:2]
            for matrix in unknown
            if matrix.name[2] == "R"
            if (twin := matrix_in_place(truth, matrix, buffer))
        }
        if truth.spec.bidirectional and not (biases and _as_expected(biases, matrices)):
            backward = {(layer, 1): (layer, 0) for layer in range(truth.spec.num_layers)}
            again = _read_twice(truth, rest, matrices, backward)
            if again and not again.wrong and _as_expected(again, matrices):
                biases = again
        if twins:  # the biases may have been read twice too
            again = _read_twice(truth, rest, matrices, twins)
            if again and (biases is None or again.wrong < biases.wrong):
                biases = again
        is_doubtful = biases and (biases.wrong or (unknown and not _is_kept(biases)))
        if biases and is_doubtful and len({stop - start for start, stop in free}) > 1:
            none = kept_biases(len(truth.gates), unknown=True)  # no packer makes such parts
            biases = replace(biases, layers=dict.fromkeys(biases.layers, none))
    kept = biases and all(layer.rule is KEPT_RULE for layer in biases.layers.values())
    sure = kept or (biases and buffer.size <= truth.size)  # a longer buffer: 0 is also in padding
    if matrices and (biases is None or biases.wrong or not biases.known or not sure):
        vectors = _located_biases(truth, buffer)
        if vectors:
            names = dict.fromkeys((*name[:2], BIAS_ROLE) for name in vectors)
            kept_layers = dict.fromkeys(names, kept_biases(len(truth.gates)))
            biases = PackedBiases(BiasArrangement(), len(truth.roles), kept_layers)
    return Packing(truth, buffer, matrices, unknown, finder.unsearched, free, biases, vectors)


def _is_kept(biases: PackedBiases) -> bool:
    """Return whether the biases are unchanged."""
    kept = all(layer.rule is KEPT_RULE and not layer.shifts for layer in biases.layers.values())
    return kept and not biases.near


def _as_expected(biases: PackedBiases, matrices: LocatedMatrices) -> bool:
    """Return whether the biases are unchanged and in the order of the matrices."""
    return _is_kept(biases) and biases.arrangement == layer_order(matrices)


def _read_twice(
    truth: Truth,
    rest: np.ndarray,
    matrices: LocatedMatrices,
    twins: Mapping[tuple[int, int], tuple[int, int]],
) -> PackedBiases | None:
    """Return how the biases were written if a packer read those of a twin in their place. twins:
    {layer and direction: the twin}."""
    replaced = truth.biases.copy()
    for at, place in twins.items():
        replaced[at] = truth.biases[place]
    biases = read_biases(replace(truth, biases=replaced), rest, matrices)
    if biases is None:
        return None
    changed = {at for at in twins if not same_bits(replaced[at], truth.biases[at])}
    layers = {
        name: replace(layer, unknown=True, twin=twins[name[:2]]) if name[:2] in changed else layer
        for name, layer in biases.layers.items()
    }
    return replace(biases, layers=layers)


def matrix_in_place(truth: Truth, matrix: TrueArray, buffer: np.ndarray) -> TrueArray | None:
    """Return the matrix that is in the place of an unknown one, as if a packer had read the forward
    direction, or layer 0, twice."""
    alike = truth.matrices_with(truth.part(buffer, matrix))
    same_shape = [twin for twin in alike if twin.shape == matrix.shape]
    return min(same_shape, key=lambda twin: twin.name[2] != matrix.name[2], default=None)


def _located_biases(truth: Truth, buffer: np.ndarray) -> LocatedMatrices:
    """Locate all bias vectors, at any distance from each other; {} if any vector is missing."""
    vectors = truth.bias_vectors
    if any(vector.is_constant for vector in vectors):
        return {}
    located = MatrixFinder(vectors, buffer, truth.starts, eps_of(truth)).find(exactly=True)
    return located if len(located) == len(vectors) else {}
