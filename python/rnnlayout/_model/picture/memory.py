"""The places of the blocks of an RNN in the memory of a layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from rnnlayout import _native

from ..layout import BlockKey, Layout

BlockId = tuple[int, int, str, int, str]  # layer, direction, role, number, gate


@dataclass(frozen=True)
class Piece:
    """A matrix or bias of one gate: `count` runs of `run` elements, `period` apart, from `at` on.

    All numbers are elements of the tensor. rows, cols: the sizes of the matrix; a bias has cols 1.
    transposed: whether the matrix is stored column by column.
    """

    block: BlockId
    at: int
    run: int
    count: int
    period: int
    rows: int
    cols: int
    transposed: bool

    @property
    def key(self) -> BlockKey:
        layer, direction, role, _, gate = self.block
        return layer, direction, role, gate

    @property
    def role(self) -> str:
        return self.block[2]

    @property
    def letter(self) -> str:
        """The gate; the role of a projection, which has no gate."""
        return self.block[4] or self.role

    @property
    def size(self) -> int:
        return self.rows * self.cols

    @property
    def stop(self) -> int:
        """The element after the last element of the piece."""
        return self.at + (self.count - 1) * self.period + self.run


@dataclass(frozen=True)
class Region:
    """A part of a tensor: one piece, or pieces that lie side by side in each of `rows` rows."""

    pieces: tuple[Piece, ...]
    rows: int


@dataclass(frozen=True)
class TensorMemory:
    """A tensor of the layout, with regions in the order of addresses."""

    name: str
    shape: tuple[int, ...]
    regions: tuple[Region, ...]

    @property
    def size(self) -> int:
        return prod(self.shape)


def layout_memory(
    layout: Layout, spec: Any, optional_tensors: int | None = None
) -> list[TensorMemory]:
    """Return the tensors of a Spec in a layout, with the places of all blocks.

    optional_tensors: the optional tensors that exist, HAS_BIAS | HAS_PEEPHOLES; None if the spec
    decides. Raises LossyError if the layout cannot represent the RNN."""
    pieces_of_tensor: dict[int, list[Piece]] = {}
    for block, (tensor, at, rows, cols, row_stride, col_stride, _) in _native.blocks(
        layout, spec, optional_tensors
    ):
        piece = make_piece(block, at, rows, cols, row_stride, col_stride)
        pieces_of_tensor.setdefault(tensor, []).append(piece)
    return [
        TensorMemory(name, tuple(shape), tuple(make_regions(pieces_of_tensor.get(k, ()))))
        for k, (name, shape) in enumerate(_native.tensors(layout, spec, optional_tensors))
    ]


def make_piece(
    block: BlockId, at: int, rows: int, cols: int, row_stride: int, col_stride: int
) -> Piece:
    transposed = rows > 1 and cols > 1 and row_stride < col_stride
    inner, outer = (
        ((rows, row_stride), (cols, col_stride))
        if transposed or cols == 1
        else ((cols, col_stride), (rows, row_stride))
    )
    if inner[0] == 1 or inner[1] == 1:
        run = inner[0]
        count, period = outer if outer[0] > 1 else (1, run)
    else:  # a vector with elements of further gates in between
        run, (count, period) = 1, inner
    if period == run:  # rows follow each other without a gap
        run, count, period = run * count, 1, run * count
    return Piece(block, at, run, count, period, rows, cols, transposed)


def make_regions(pieces: Sequence[Piece]) -> list[Region]:
    groups: list[list[Piece]] = []
    for piece in sorted(pieces, key=lambda piece: piece.at):
        first = groups[-1][0] if groups else None
        is_same_step = first and piece.count == first.count > 1 and piece.period == first.period
        if first and is_same_step and piece.at < first.at + first.period:
            groups[-1].append(piece)
        else:
            groups.append([piece])
    return [Region(tuple(group), group[0].count) for group in groups]


@dataclass(frozen=True)
class PictureLine:
    """One line of a picture: neighbouring matrices, or neighbouring biases, of a layer and
    direction. parts: each tensor with the tensor's regions in this line."""

    layer: int
    direction: int
    parts: list[tuple[TensorMemory, list[Region]]]


def picture_lines(tensors: Sequence[TensorMemory]) -> list[PictureLine]:
    """Return the lines of a picture of the memory, in the order of addresses."""
    lines: list[PictureLine] = []
    before = None
    for tensor in tensors:
        for region in tensor.regions:
            layer, direction, role, *_ = region.pieces[0].block
            place = layer, direction, role[0] == "b"
            if place != before:
                lines.append(PictureLine(layer, direction, []))
            before = place
            parts = lines[-1].parts
            if not parts or parts[-1][0] is not tensor:
                parts.append((tensor, []))
            parts[-1][1].append(region)
    return lines
