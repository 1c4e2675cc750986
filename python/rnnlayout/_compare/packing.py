"""A packing: all that was found out about how a buffer was made, and how to undo it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations, groupby
from typing import Any

import numpy as np

from .packed_biases import (
    KEPT_RULE,
    BiasArrangement,
    ExpectedBiases,
    LayerBiases,
    PackedBiases,
    bias_sizes,
    read_biases,
)
from .packed_matrices import Located, MatrixFinder
from .truth import MatrixName, Slab, Truth


@dataclass(frozen=True)
class Packing:
    """How a buffer was packed.

    size: of the buffer, in values. matrices: the matrices that were found, in the order of the
    buffer. unknown: those that were not found. free: the parts of the buffer that are not matrices,
    as pairs of start and stop: biases may be there. biases: None if there are none, or if they were
    not recognized. copies: for a matrix that was not found, the name of another matrix that is in
    its place. vectors: where each bias vector is, if they are not in one of the known orders.
    """

    truth: Truth
    size: int
    matrices: Located
    unknown: list[Slab]
    free: list[tuple[int, int]]
    biases: PackedBiases | None
    copies: dict[MatrixName, MatrixName]
    vectors: Located = field(default_factory=dict)

    @property
    def layer_biases(self) -> Mapping[tuple[int, int], LayerBiases]:
        """What was done to the biases of each layer and direction, if they were recognized."""
        return self.biases.layers if self.biases else {}

    def undo(self, buffer: np.ndarray) -> np.ndarray:
        """Return the numbers of a buffer that was packed like this in cuDNN's order.

        Values that were lost are what is left of them; what was not found is taken from where it
        should be.
        """
        truth, at = self.truth, 0
        fixed = np.zeros(truth.size, buffer.dtype)
        places = self.matrices | self.vectors
        for slab in truth.slabs + (truth.bias_vectors if self.vectors else []):
            part = fixed[at : at + slab.size].reshape(slab.shape)
            if slab.name in places:
                reading = places[slab.name].reading
                chunk = reading.pattern.take(buffer, reading.at, slab.shape)
                _gates_back(part, chunk, reading.order, reading.signs)
                if reading.scale != 1:
                    part /= np.asarray(reading.scale, part.dtype)
            elif at + slab.size <= buffer.size:
                part[:] = buffer[at : at + slab.size].reshape(slab.shape)
            at += slab.size
        if self.biases and not self.vectors:
            rest = np.concatenate([buffer[start:stop] for start, stop in self.free])
            fixed[at:] = self._biases(rest, self.biases).reshape(-1)
        return fixed

    def _biases(self, flat: np.ndarray, biases: PackedBiases) -> np.ndarray:
        sizes = bias_sizes(self.truth, biases.count)
        flat = flat[biases.skipped :][: int(np.prod(list(sizes.values())))]
        given = biases.arrangement.undo(flat, sizes)
        fixed = np.zeros(self.truth.biases.shape, given.dtype)
        forget = self.truth.gates.find("f")
        for at, layer in biases.layers.items():
            vectors = np.zeros_like(given[at])
            for gates, vector in zip(vectors, given[at], strict=True):
                _gates_back(gates, vector, layer.order, layer.signs)
            if layer.shift[1]:
                vector, shift = layer.shift
                vectors[vector, forget] -= np.asarray(shift, vectors.dtype)
            vectors = np.stack(layer.rule.undo(vectors[0], vectors[-1]))[: biases.count]
            fixed[at][: biases.count] = vectors
        return fixed


def _gates_back(
    target: np.ndarray, source: np.ndarray, order: tuple[int, ...], signs: tuple[int, ...]
) -> None:
    for place, (gate, sign) in enumerate(zip(order, signs, strict=True)):
        if sign == 1:
            target[gate] = source[place]
        else:
            np.negative(source[place], out=target[gate])


def packing_of(truth: Truth, buffer: np.ndarray) -> Packing:
    """Find out how a buffer of values was packed: exactly, and else nearly."""
    matrices = MatrixFinder(truth.slabs, buffer).find()
    unknown = [slab for slab in truth.slabs if slab.name not in matrices]
    free = _free_pieces(truth, matrices, buffer.size)
    copies = _copied_matrices(truth, unknown, buffer)
    biases = None
    # of another buffer that is too short nothing is said of biases but where they are, see lengths
    complete = buffer.size >= truth.size or buffer.size in truth.short_sizes
    if free and matrices and complete:
        rest = np.concatenate([buffer[start:stop] for start, stop in free])
        expected = _expected_biases(truth, matrices)
        biases = _biases_of(truth, rest, expected)
        places = {name[:2]: other[:2] for name, other in copies.items() if name[2] == "R"}
        copied = _copied_biases(truth, rest, expected, places)
        if copied and (biases is None or copied.wrong < biases.wrong):
            biases = copied
        if biases and biases.wrong and len({stop - start for start, stop in free}) > 1:
            biases = biases.unrecognized()  # parts that no packer makes, which do not fit
    vectors: Located = {}
    kept = biases and all(one.rule is KEPT_RULE for one in biases.layers.values())
    sure = kept or (biases and buffer.size <= truth.size)  # more values: 0 is found in padding too
    if matrices and (biases is None or biases.wrong or not biases.known or not sure):
        vectors = _located_biases(truth, buffer)
        biases = _biases_as_located(vectors) if vectors else biases
    return Packing(truth, buffer.size, matrices, unknown, free, biases, copies, vectors)


def _located_biases(truth: Truth, buffer: np.ndarray) -> Located:
    """Return where each bias vector is, whatever is between them; nothing if one is not found."""
    vectors = truth.bias_vectors
    if any(vector.is_constant for vector in vectors):
        return {}
    found = MatrixFinder(vectors, buffer, truth.num_weights).find(exactly=True)
    return found if len(found) == len(vectors) else {}


def _biases_as_located(vectors: Located) -> PackedBiases:
    layers = {name[:2]: LayerBiases(KEPT_RULE, one.reading.order, one.reading.signs)
              for name, one in vectors.items()}  # fmt: skip
    return PackedBiases(BiasArrangement(), len({name[2] for name in vectors}), layers)


def _biases_of(truth: Truth, rest: np.ndarray, expected: ExpectedBiases) -> PackedBiases | None:
    """Return how the biases were written: exactly, and else nearly."""
    biases = None
    for near in (False, True):
        biases = read_biases(truth, rest, expected, near)
        if biases and biases.wrong < 0.3:
            break
    return biases


def _copied_matrices(
    truth: Truth, unknown: list[Slab], buffer: np.ndarray
) -> dict[MatrixName, MatrixName]:
    """Return which other matrix is where one that was not found should be, as if a packer had
    read the forward direction, or layer 0, twice."""
    copies, finder = {}, MatrixFinder(truth.slabs, buffer)
    for slab in truth.slabs:
        others = [other for other in truth.slabs if slab in unknown and other is not slab
                  and other.shape == slab.shape and not other.is_constant]  # fmt: skip
        alike = [other for other in others if other.name[2] == slab.name[2]]
        for other in alike + others:
            if finder.fits(other, truth.starts[slab.name]):
                copies[slab.name] = other.name
                break
    return copies


def _copied_biases(
    truth: Truth, rest: np.ndarray, expected: ExpectedBiases, places: dict[tuple[int, int], Any]
) -> PackedBiases | None:
    """Return how the biases were written if those of these places are those of others again."""
    if not places:
        return None
    made = truth.biases.copy()
    for at, other in places.items():
        made[at] = truth.biases[other]
    biases = _biases_of(replace(truth, biases=made), rest, expected)
    if biases is None:
        return None
    layers = {at: replace(done, unknown=done.unknown or at in places)
              for at, done in biases.layers.items()}  # fmt: skip
    return replace(biases, layers=layers)


def _free_pieces(truth: Truth, matrices: Located, size: int) -> list[tuple[int, int]]:
    """Return the pieces of the buffer that are not matrices. One that was not found is assumed
    where it should be."""
    used = np.zeros(size, bool)
    for slab in truth.slabs:
        if slab.name in matrices:
            reading = matrices[slab.name].reading
            reading.pattern.mark(used, reading.at, slab.shape)
        else:
            truth.part(used, slab)[:] = True
    ends = np.flatnonzero(np.diff(used, prepend=True, append=True))
    return [(int(start), int(stop)) for start, stop in ends.reshape(-1, 2)]


def layer_order(matrices: Located) -> BiasArrangement:
    """Return the order of layers and directions that the matrices show, as one of biases."""
    names = [name[:2] for name in matrices if name[2] == "R"]
    turned = set()
    for k, axis in enumerate("ld"):
        steps = [a[k] > b[k] for a, b in combinations(names, 2) if a[1 - k] == b[1 - k]]
        turned |= {axis} if steps and all(steps) else set()
    runs = [layer for layer, _ in groupby(layer for layer, _ in names)]
    return BiasArrangement("dlvgo" if len(runs) > len({*runs}) else "ldvgo", frozenset(turned))


def _expected_biases(truth: Truth, matrices: Located) -> ExpectedBiases:
    orders, negated = {}, {}
    for (layer, direction, role), found in matrices.items():
        if role == "R":
            reading = found.reading
            orders[layer, direction] = reading.order
            pairs = zip(reading.order, reading.signs, strict=True)
            minus = {found.slab.gates[gate] for gate, sign in pairs if sign == -1}
            negated[layer, direction] = "".join(sorted(minus))
    return ExpectedBiases(layer_order(matrices), orders, negated)
