"""Draw the blocks of a buffer: the buffer, the right buffer of cuDNN, and ribbons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from rnnlayout import _native
from rnnlayout._convert.moves import LayerDirection, Move, Moves
from rnnlayout._convert.ribbons import draw_ribbons
from rnnlayout._model.layout import CUDNN, BlockKey
from rnnlayout._model.picture.memory import TensorMemory, make_piece, make_regions
from rnnlayout._model.picture.scene import Scene
from rnnlayout._model.spec import Spec

from .packing import Packing
from .truth import MatrixName

_MOST = 12  # layers and directions that are drawn, if different


@dataclass(frozen=True)
class BlockPlace:
    """Where a block is in a buffer. at: its first element; rows and cols, and the strides between
    them. notes: what was done to it. holds: the roles whose values are in it, several in a sum,
    none if it is zero."""

    key: BlockKey
    at: int
    rows: int
    cols: int
    row_stride: int
    col_stride: int
    notes: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()


def places_of_blocks(packing: Packing) -> Iterator[BlockPlace]:
    """Yield where the blocks of a buffer are."""
    for located in [*packing.matrices.values(), *packing.vectors.values()]:
        matrix, reading, form = located.matrix, located.reading, located.reading.form
        gates, rows, columns = matrix.shape
        gate, row, column = reading.pattern.strides
        if form.read == "igo":  # each gate has a part of the columns
            gate, row, column, rows, columns = columns // gates, columns, 1, gates * rows, columns
            columns //= gates
        low = min(0, row * (rows - 1)) + min(0, column * (columns - 1))
        words = "transposed" if form.words.startswith("transposed") else form.words
        scale = f"times {reading.scale:.6g}" if reading.scale != 1 else ""
        for place, (number, sign) in enumerate(zip(reading.order, reading.signs, strict=True)):
            key = (*matrix.name, "" if matrix.name[2] == "P" else matrix.gates[number])
            notes = tuple(filter(None, (words, scale, "negated" * (sign < 0))))
            at = reading.at + place * gate + low
            yield BlockPlace(key, at, rows, columns, abs(row), abs(column), notes, (key[2],))
    if packing.vectors or not packing.biases:
        return
    where = np.concatenate([np.arange(*part) for part in packing.free])
    where = packing.biases.take(packing.truth, where)
    for (layer, direction, _), done in packing.layer_biases.items():
        for vector, gates_at in enumerate(() if done.unknown else where[layer, direction]):
            for at, number, sign in zip(gates_at, done.order, done.signs[vector], strict=True):
                step = abs(int(at[1] - at[0])) if at.size > 1 else 1
                key = layer, direction, packing.truth.roles[vector], packing.truth.gates[number]
                notes = tuple(filter(None, (done.rule.words, "negated" * (sign < 0))))
                holds = done.rule.roles_in(vector, packing.truth.roles, key[3])
                yield BlockPlace(key, int(at.min()), at.size, 1, step, 1, notes, holds)


class _MovesInPlace(Moves):
    """Moves of layers in different places: each layer is drawn."""

    def alike(self) -> dict[LayerDirection, LayerDirection]:
        return {place: place for place in self.by_place}


def draw_places(scene: Scene, spec: Spec, places: Sequence[BlockPlace], size: int) -> None:
    """Add a buffer of `size` values, the right buffer of cuDNN, and ribbons between the matrices
    and biases, or between their gates if the gates moved; nothing if there are too many layers."""
    right = [
        BlockPlace((*block[:3], block[4]), *view[1:6])
        for block, view in _native.blocks(CUDNN, spec)
    ]
    drawable = {place.key for place in right}
    drawn = [place for place in places if place.key in drawable]
    whole = _whole_arrays(drawn, right)
    sides = [_merge_gates(side, whole) for side in (drawn, right)]
    moves_by_layer: dict[LayerDirection, list[Move]] = {}
    for place in sides[0]:
        layer, direction, role, gate = place.key
        moves = moves_by_layer.setdefault((layer, direction), [])
        sources, notes = ((0, role),), place.notes + ("bW + bR",) * (len(place.holds) > 1)
        for held in place.holds:
            moves.append(Move("move", (layer, direction, held, 0, gate), sources, 0, notes, 0))
        if not place.holds:
            moves.append(Move("zero", (layer, direction, role, 0, gate), sources, None, notes, 0))
    in_order = sorted(drawn, key=lambda place: place.at)
    order = [layer for layer, _ in groupby(in_order, lambda place: place.key[:2])]
    turned = len(order) > 1 and [*dict.fromkeys(order)] != sorted(moves_by_layer)
    drawn_moves = (_MovesInPlace if turned else Moves)(spec, ["flat"], ["flat"], moves_by_layer)
    if drawn and (not turned or len(moves_by_layer) <= _MOST):
        buffer, weight_space = (_memory(side, size) for side in sides)
        names = "as given", "in cuDNN"
        draw_ribbons(scene, spec, ([buffer], [weight_space]), names, drawn_moves)


def _whole_arrays(places: Sequence[BlockPlace], right: Sequence[BlockPlace]) -> set[MatrixName]:
    """Return the matrices and biases with gates that follow each other as in cuDNN."""
    place_of = {place.key: place for place in places}
    names: dict[MatrixName, list[BlockPlace | None]] = {}
    for block in right:
        names.setdefault(block.key[:3], []).append(place_of.get(block.key))
    return {name for name, gates in names.items() if len(gates) > 1 and _is_whole(gates)}


def _is_whole(gates: Sequence[BlockPlace | None]) -> bool:
    """Return whether all gates are there, dense, one after the other, with the same notes."""
    first = gates[0]
    if first is None or (first.row_stride, first.col_stride) != (first.cols, 1):
        return False
    size = first.rows * first.cols
    return all(
        gate and replace(gate, key=first.key) == replace(first, at=first.at + k * size)
        for k, gate in enumerate(gates)
    )


def _merge_gates(places: Sequence[BlockPlace], whole: set[MatrixName]) -> list[BlockPlace]:
    """Replace the gates of whole matrices and biases by a single place without a gate."""
    merged: dict[BlockKey, BlockPlace] = {}
    for place in places:
        key = (*place.key[:3], "" if place.key[:3] in whole else place.key[3])
        before = merged.get(key)
        rows = place.rows + (before.rows if before else 0)
        at = min(place.at, before.at) if before else place.at
        merged[key] = replace(place, key=key, at=at, rows=rows)
    return [*merged.values()]


def _memory(places: Sequence[BlockPlace], size: int) -> TensorMemory:
    pieces = [
        make_piece(
            (*place.key[:3], 0, place.key[3]),
            place.at,
            place.rows,
            place.cols,
            place.row_stride,
            place.col_stride,
        )
        for place in places
    ]
    return TensorMemory("flat", (size,), tuple(make_regions(pieces)))
