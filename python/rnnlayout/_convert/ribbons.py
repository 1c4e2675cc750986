"""Draw a conversion: the memory of both layouts, and a ribbon for each move."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rnnlayout import _native
from rnnlayout._model.layout import BlockKey, layer_in_words
from rnnlayout._model.picture.memory import Region, TensorMemory
from rnnlayout._model.picture.scene import (
    MARGIN,
    Band,
    Box,
    Scene,
    Text,
    gate_colour,
    largest_scale,
    shorten_text,
    text_width,
)
from rnnlayout._model.picture.strips import (
    GAP,
    ByteOffsets,
    draw_gates_legend,
    draw_legend,
    piece_in_words,
)
from rnnlayout._model.spec import Spec

from .moves import LayerDirection, Move, Moves

_LEAST = 14  # pixels of height that a piece needs for its letter
_PER_PIECE = 20  # pixels of height per piece of the longer column, on average
_RULED = 12  # pixels of height per line that shows rows
_ASIDE = 14  # pixels from a block to the middle of a sign
# Operation on the way -> sign and meaning.
_SIGNS = {
    "transposed": ("T", "transposed"),
    "negated": ("-", "negated"),
    "bW + bR": ("+", "sum of the two biases"),
    "either": ("=", "either of two gradients, which must be equal"),
    "forget bias": ("F", "the forget bias added or taken away"),
    "zero": ("0", "zeros"),
    "identity": ("1", "the identity"),
    "expect_zero": ("!", "must be zero"),
    "expect_shift": ("!", "must be minus the forget bias"),
    "expect_identity": ("1!", "must be the identity"),
    "row by row": ("W", "each (I, H) window read as the (H, I) matrix"),
}


def draw_ribbons(
    scene: Scene,
    spec: Spec,
    tensors: tuple[list[TensorMemory], list[TensorMemory]],
    names: tuple[str, str],
    moves: Moves,
) -> None:
    """Draw the tensors of both sides, with the names of the layouts above, and the moves in
    between, at the bottom of the scene. A layer and direction that is converted like an earlier
    layer is only named."""
    alike = moves.alike()
    shown = [place for place, first in alike.items() if place == first]
    unit = ByteOffsets(_native.itemsize(spec.dtype))
    columns = [_Column(memory, set(shown), spec, unit) for memory in tensors]
    pixels = max(columns[0].count, columns[1].count) * _PER_PIECE
    # `pixels` is about the height of the larger column
    scale = largest_scale(
        lambda scale: all(column.height(scale) <= pixels for column in columns), pixels
    )
    width = min(240.0, (scene.width - 2 * MARGIN) * 0.32)
    lefts = (MARGIN, scene.width - MARGIN - width)
    for column, name, left in zip(columns, names, lefts, strict=True):
        scene.add(Text(left, scene.height + 12, shorten_text(name, "name", width), "name"))
        column.lay_out(left, width, scene.height + 20, scale)
    shown_moves = [move for place in shown for move in moves.by_place[place]]
    scene.add(*_draw_bands(shown_moves, columns))
    for column in columns:
        scene.add(*column.shapes)
    scene.height = max(column.bottom for column in columns) + GAP
    for first in shown:
        title, *twins = (
            layer_in_words(*place, spec.num_directions) for place in alike if alike[place] == first
        )
        words = f"{len(twins)} other layers and directions" if len(twins) > 4 else ", ".join(twins)
        if twins:
            scene.paragraph(MARGIN, f"{words}: as {title}", "say")
    enlarged, woven = (
        any(getattr(column, name) for column in columns) for name in ("enlarged", "woven")
    )
    scene.notes(MARGIN, "at the blocks: byte offsets", enlarged, woven)
    draw_gates_legend(scene, tensors[0])
    signs = dict.fromkeys(name for move in shown_moves for name in _sign_names(move))
    if signs:
        draw_legend(scene, [("equal", *_SIGNS[name]) for name in signs])


@dataclass
class _Column:
    """The blocks of a layout from top to bottom, in the order of addresses."""

    tensors: Sequence[TensorMemory]
    places: set[LayerDirection]
    spec: Spec
    unit: ByteOffsets
    shapes: list[Box | Text] = field(default_factory=list)
    # tensor and block -> top and bottom of the end of the ribbon
    ports: dict[tuple[int, BlockKey], tuple[float, float]] = field(default_factory=dict)
    left: float = 0
    width: float = 0
    bottom: float = 0
    enlarged: bool = False
    woven: bool = False

    def regions(self) -> Iterator[tuple[int, TensorMemory, list[Region]]]:
        """Yield (number, tensor, regions to draw) for each tensor with regions to draw."""
        for number, tensor in enumerate(self.tensors):
            regions = [
                region for region in tensor.regions if region.pieces[0].block[:2] in self.places
            ]
            if regions:
                yield number, tensor, regions

    @property
    def count(self) -> int:
        return sum(len(region.pieces) for *_, regions in self.regions() for region in regions)

    def height(self, scale: float) -> float:
        return sum(
            _region_height(region, scale) for *_, regions in self.regions() for region in regions
        )

    def lay_out(self, left: float, width: float, top: float, scale: float) -> None:
        """Lay out the blocks from `top` downwards."""
        self.left, self.width, y = left, width, top
        for number, tensor, regions in self.regions():
            if len(self.tensors) > 1:
                self.shapes.append(Text(left, y + 10, shorten_text(tensor.name, "at", width), "at"))
                y += 13
            role, end, place = "", 0, (-1, -1)
            for region in regions:
                first = region.pieces[0]
                is_whole = not first.key[3]
                if len(self.places) > 1 and first.block[:2] != place and not is_whole:
                    place, role = first.block[:2], ""
                    words = layer_in_words(*place, self.spec.num_directions)
                    self.shapes.append(Text(left, y + 12, words, "say"))
                    y += 16
                if first.at > end or not role:
                    role = ""
                    if first.at > end:
                        self.shapes.append(Text(left + width / 2, y + 8, "· · ·", "at", "middle"))
                        y += 12
                if first.role != role and not is_whole:
                    roles = dict.fromkeys(piece.role for piece in region.pieces)
                    words = f"{' '.join(roles)} {self.unit.at(first.at)}"
                    self.shapes.append(Text(left, y + 10, words, "at", fill="faint"))
                    y += 13
                role, end = region.pieces[-1].role, max(piece.stop for piece in region.pieces)
                height = _region_height(region, scale)
                self._region(number, region, y, height, sum(p.size for p in region.pieces) * scale)
                y += height
            y += GAP
        self.bottom = y

    def _region(
        self, number: int, region: Region, top: float, height: float, to_scale: float
    ) -> None:
        count = len(region.pieces)
        share = self.width / count
        enlarged = to_scale < 0.98 * height
        self.enlarged |= enlarged
        rows = min(region.rows, int(height / _RULED) // 2 * 2 + 1) if count > 1 else 1
        has_several_roles = len({piece.role for piece in region.pieces}) > 1
        self.woven |= count > 1
        for k, piece in enumerate(region.pieces):
            directions = self.spec.num_directions
            title = piece_in_words(piece, self.tensors[number], self.unit, directions)
            x, fill = self.left + k * share, gate_colour(piece.key[3])
            box = Box(x, top, share - (count > 1), height - 1, fill, title, rows, enlarged)
            letter = f"{piece.role} {piece.letter}" if has_several_roles else piece.letter
            if not piece.key[3]:
                place = layer_in_words(*piece.block[:2], directions)
                words = f"{piece.role} {self.unit.at(piece.at)} {place}"
                letter = shorten_text(words, "letter", share - 2)
            at = box.x + box.width / 2, top + height / 2 + 3
            self.shapes += [box, Text(*at, letter, "letter", "middle")]
            slot = (height - 1) / count
            self.ports[number, piece.key] = (top + k * slot, top + (k + 1) * slot)


def _region_height(region: Region, scale: float) -> float:
    """Return the height of a region: each ribbon needs room for a sign."""
    return max(_LEAST * len(region.pieces), scale * sum(piece.size for piece in region.pieces))


def _sign_names(move: Move) -> Iterator[str]:
    """Yield the names of the signs of a move."""
    if move.op == "expect_zero" and move.shift:
        yield "expect_shift"
    elif move.op in _SIGNS:
        yield move.op
    for note in move.notes:
        name = "row by row" if note.endswith("row by row") else note
        if name in _SIGNS:
            yield name


def _draw_sign(x: float, y: float, words: str) -> tuple[Box, Text]:
    """Return a sign as in the legend. x, y: its middle."""
    width = text_width(words, "sign") + 6
    box = Box(x - width / 2, y - 6, width, 12, "equal")
    return box, Text(x, y + 3.5, words, "sign", "middle", "dark")


def _draw_bands(moves: Sequence[Move], columns: Sequence[_Column]) -> Iterator[Band | Box | Text]:
    source, target = columns
    signs: list[Box | Text] = []
    for move in moves:
        layer, direction, role, _, gate = move.block
        fill = gate_colour(gate)
        words = " ".join(_SIGNS[name][0] for name in _sign_names(move))
        starts = [
            source.ports[tensor, (layer, direction, source_role, gate)]
            for tensor, source_role in move.sources
        ]
        end = None
        if move.target is not None:
            end = target.ports[move.target, (layer, direction, role, gate)]
        right = source.left + source.width
        for k, (top, bottom) in enumerate(starts):
            if end is None:
                signs += _draw_sign(right + _ASIDE, (top + bottom) / 2, words)
                continue
            height = (end[1] - end[0]) / len(starts)
            yield Band(
                right,
                top,
                bottom,
                target.left,
                end[0] + k * height,
                end[0] + (k + 1) * height,
                fill,
                ", ".join(move.notes),
            )
        if end is not None and words:
            signs += _draw_sign(target.left - _ASIDE, sum(end) / 2, words)
    yield from signs
