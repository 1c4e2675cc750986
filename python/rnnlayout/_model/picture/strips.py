"""The memory of a layout as a scene: one bar per layer and direction, in the order of addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import log10

from ..layout import BlockKey, layer_in_words
from .memory import PictureLine, Piece, Region, TensorMemory, picture_lines
from .scene import (
    MARGIN,
    Box,
    Raster,
    Scene,
    Text,
    gate_colour,
    largest_scale,
    shorten_text,
    text_width,
)

GATES = {
    "i": "input",
    "f": "forget",
    "g": "candidate",
    "o": "output",
    "r": "reset",
    "z": "update",
    "n": "candidate",
    "h": "the new state",
}
GAP, BAR, RASTER, LABELS = 6, 22, 20, 104
_LETTER = 13  # pixels that a letter needs
_NAME = 24  # a tensor of biases is drawn at least as long as so many characters of the name
_FIRST, _LAST = 40, 8  # lines of a picture with too many
_RULED = 5  # a box shows at most so many rows

# The fill of a piece, and a text to add to the title.
Shade = Callable[[BlockKey], tuple[str, str]]
# What to draw below a piece: shares in rows and columns, () for nothing.
RasterOf = Callable[[BlockKey], Sequence[Sequence[float]]]


@dataclass(frozen=True)
class ByteOffsets:
    """The form of positions: in bytes, that is, itemsize times elements; or empty."""

    itemsize: int
    shown: bool = True

    def at(self, element: int) -> str:
        return f"{element * self.itemsize:,}" if self.shown else ""


def gate_colours(key: BlockKey) -> tuple[str, str]:
    """Return the colour of a piece's gate."""
    return gate_colour(key[3]), ""


@dataclass(frozen=True)
class _PieceCell:
    """A piece with a place in the picture. label: the name of the role, for the first piece with
    this role, else "". least: the smallest width in pixels.
    """

    piece: Piece
    region: Region
    label: str
    least: float

    def width(self, scale: float) -> float:
        return max(self.piece.size * scale, self.least)


_CellRow = list[tuple[TensorMemory, list[_PieceCell]]]


class BarDrawer:
    """Adds the bars of tensors at the bottom of a scene, all in one scale, and the scale. shade: by
    default a piece has the colour of the gate. raster: what to draw below a piece; None for
    nothing."""

    def __init__(
        self,
        scene: Scene,
        tensors: Sequence[TensorMemory],
        directions: int,
        unit: ByteOffsets,
        shade: Shade = gate_colours,
        raster: RasterOf | None = None,
    ) -> None:
        self.scene, self.directions, self.unit, self.shade = scene, directions, unit, shade
        self.raster = raster
        all_lines = self.shown = picture_lines(tensors)
        if len(all_lines) > _FIRST + _LAST + 1:
            self.shown = [*all_lines[:_FIRST], *all_lines[-_LAST:]]
        self.hidden_count = len(all_lines) - len(self.shown)
        self.named = len(tensors) > 1
        self.label_width = LABELS if scene.width >= 480 else 0
        self.left = MARGIN + self.label_width
        self.room = scene.width - self.left - MARGIN
        for detail in (
            (True, True),
            (True, False),
            (False, False),
        ):  # (with offsets, with names): less if the scene is too narrow
            self.offsets, self.names = detail[0] and unit.shown, detail[1]
            self.rows = [
                [(tensor, list(self._cells(tensor, regions))) for tensor, regions in line.parts]
                for line in self.shown
            ]
            if self._fits(0):
                break
        self.scale = largest_scale(self._fits, self.room)
        self.enlarged = self.woven = False

    def _cells(self, tensor: TensorMemory, regions: Iterable[Region]) -> Iterator[_PieceCell]:
        pieces = [(piece, region) for region in regions for piece in region.pieces]
        is_small = self.names and self.named and pieces[0][0].role[0] == "b"
        name = tensor.name[:_NAME] if is_small else ""
        letter = max(_LETTER, text_width(name, "at") / len(pieces))
        for role, role_cells in groupby(pieces, lambda cell: cell[0].role):
            group = list(role_cells)
            at = f" {self.unit.at(group[0][0].at)}" if self.offsets else ""
            least = (text_width(role + at, "at") + GAP) / len(group)
            for k, (piece, region) in enumerate(group):
                yield _PieceCell(piece, region, "" if k else role + at, max(letter, least))

    def _fits(self, scale: float) -> bool:
        return all(
            sum(sum(cell.width(scale) for cell in cells) for _, cells in row) + GAP * (len(row) - 1)
            <= self.room
            for row in self.rows
        )

    def draw(self) -> None:
        for k, (line, row) in enumerate(zip(self.shown, self.rows, strict=True)):
            if self.hidden_count and k == _FIRST:
                self.scene.paragraph(
                    self.left, f"… {self.hidden_count} more lines …", "say", "faint"
                )
                self.scene.height += GAP
            self._line(line, row)
        if self.unit.shown and self.scale:  # 0: the bars need more room than the scene has
            self._scale_bar()
        offsets = "below the bars: byte offsets" + " in the tensor" * self.named
        self.scene.notes(self.left, offsets * self.offsets, self.enlarged, self.woven)

    def _line(self, line: PictureLine, row: _CellRow) -> None:
        scene = self.scene
        above = 14 if self.named else 0
        title = f"layer {line.layer}"
        line_name = layer_in_words(line.layer, line.direction, self.directions)
        side = line_name.removeprefix(title).strip()
        if self.label_width:
            y = scene.height + above + BAR / 2
            scene.add(Text(MARGIN, y + (-1 if side else 4), title, "say"))
            if side:
                scene.add(Text(MARGIN, y + 12, side, "at", fill="faint"))
        else:
            scene.height += 14
            at = "" if self.offsets else self.unit.at(row[0][1][0].piece.at)
            words = line_name + (f", byte {at}" if at else "")
            scene.add(Text(MARGIN, scene.height - 4, words, "say"))
        scene.height += above
        shares = {
            cell.piece.key: self.raster(cell.piece.key) if self.raster else ()
            for _, cells in row
            for cell in cells
        }
        below = RASTER if any(shares.values()) else 0
        x: float = self.left
        for tensor, cells in row:
            end = x + sum(cell.width(self.scale) for cell in cells)
            if self.named and (name := shorten_text(tensor.name, "at", end - x)):
                scene.add(Text(x, scene.height - 5, name, "at"))
            for cell in cells:
                self._cell(x, cell, tensor)
                if raster := shares[cell.piece.key]:
                    width = cell.width(self.scale) - 1
                    scene.add(Raster(x, scene.height + BAR + 1, width, RASTER - 2, raster))
                if cell.label:
                    y = scene.height + BAR + below + 11
                    scene.add(Text(x, y, cell.label, "at", fill="faint"))
                x += cell.width(self.scale)
            x += GAP
        scene.height += BAR + below + 12 + 2 * GAP

    def _cell(self, x: float, cell: _PieceCell, tensor: TensorMemory) -> None:
        scene, piece, y = self.scene, cell.piece, self.scene.height
        width = cell.width(self.scale) - 1
        enlarged = piece.size * self.scale < 0.98 * cell.least
        woven = len(cell.region.pieces) > 1
        self.enlarged |= enlarged
        self.woven |= woven
        fill, note = self.shade(piece.key)
        title = piece_in_words(piece, tensor, self.unit, self.directions) + note
        rows = min(cell.region.rows, _RULED) if woven else 1
        scene.add(
            Box(x, y, width, BAR, fill, title, rows, enlarged),
            Text(x + width / 2, y + BAR / 2 + 3.5, piece.letter, "letter", "middle"),
        )

    def _scale_bar(self) -> None:
        """Draw a round number of bytes that is about 60 pixels long."""
        bytes_of_60 = 60 / self.scale * self.unit.itemsize
        power = 10 ** int(log10(bytes_of_60)) if bytes_of_60 >= 1 else 1
        number = max(n * power for n in (1, 2, 5) if n * power <= max(bytes_of_60, 1))
        width = number / self.unit.itemsize * self.scale
        scene, words = self.scene, f"{number:,} bytes"
        if width + text_width(words, "at") < self.room:
            scene.add(Box(self.left, scene.height + 4, width, 3, "faint"))
            scene.add(Text(self.left + width + GAP, scene.height + 9, words, "at", fill="faint"))
            scene.height += 18


def piece_in_words(piece: Piece, tensor: TensorMemory, unit: ByteOffsets, directions: int) -> str:
    """Describe a piece and the place in words."""
    layer, direction, role, _, gate = piece.block
    words = f"{layer_in_words(layer, direction, directions)}, {role}"
    words += f" of gate {gate}" if gate else ""
    words += f": {piece.rows} x {piece.cols}" if piece.cols > 1 else f": {piece.rows}"
    if unit.shown:
        words += f", bytes {unit.at(piece.at)} to {unit.at(piece.stop)} of {tensor.name}"
        if piece.count > 1:
            words += f", in {piece.count} parts {unit.at(piece.period)} bytes apart"
    return words + ", transposed" * piece.transposed


def draw_legend(scene: Scene, entries: Iterable[tuple[str, str, str]]) -> None:
    """Add squares with explanations. entries: (fill, letter, words)."""
    x, y = float(MARGIN), scene.height + 4
    for fill, letter, words in entries:
        width = 22 + text_width(words, "say")
        if x > MARGIN and x + width > scene.width - MARGIN:
            x, y = float(MARGIN), y + 20
        scene.add(Box(x, y, 14, 14, fill), Text(x + 20, y + 11, words, "say"))
        if letter:
            scene.add(Text(x + 7, y + 10.5, letter, "letter", "middle"))
        x += width + 14
    scene.height = y + 22


def draw_gates_legend(scene: Scene, tensors: Sequence[TensorMemory]) -> None:
    """Add a legend of the gates of the tensors."""
    letters = dict.fromkeys(
        piece.letter for tensor in tensors for region in tensor.regions for piece in region.pieces
    )
    names = GATES | {"P": "projection"}
    entries = [(gate_colour(x), x, names[x]) for x in letters if x in names]
    if entries:
        draw_legend(scene, entries)
