"""The memory of a layout in letters, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle, groupby, islice

from ..layout import layer_in_words
from .memory import Piece, TensorMemory, picture_lines
from .scene import COLOURS, clip_text
from .strips import ByteOffsets, Shade, gate_colours

_MOST = 200  # lines
_LEAST = 16  # columns of the longest bar


def memory_in_letters(
    tensors: Sequence[TensorMemory],
    directions: int,
    unit: ByteOffsets,
    width: int,
    colours: bool,
    shade: Shade | None = None,
) -> str:
    """Return one line per role of a layer and direction: where it is, and its gates to scale. A bar
    has at least one letter per gate. Gates side by side in each row take turns. With `shade`, a
    block that it calls "equal" is made of dots."""
    rows = list(_letter_rows(tensors, directions, unit))
    heads = [[row[k] for row in rows] for k in range(4)]
    wide = [max(map(len, column), default=0) for column in heads]
    wide[1] = min(wide[1], 32)
    room = max(_LEAST, width - sum(wide) - 2 * sum(map(bool, wide)))
    most = max(sum(piece.size for piece in row[4]) for row in rows)
    out, seen = [], ""
    for place, name, role, at, pieces in rows[:_MOST]:
        cells = [place if place != seen else "", name[: wide[1]], role, at]
        seen = place
        pads = (str.ljust, str.ljust, str.ljust, str.rjust)
        aligned = [pad(cell, w) for pad, cell, w in zip(pads, cells, wide, strict=True) if w]
        bar = _letter_bar(pieces, room / most, room, shade or gate_colours, colours)
        out.append("  ".join([*aligned, bar]))
    out += [f"... {len(rows) - _MOST} more lines"] * (len(rows) > _MOST)
    return "\n".join(out)


def _letter_rows(
    tensors: Sequence[TensorMemory], directions: int, unit: ByteOffsets
) -> Iterator[tuple[str, str, str, str, list[Piece]]]:
    """Yield place, name of the tensor, role, offset and pieces."""
    for line in picture_lines(tensors):
        place = layer_in_words(line.layer, line.direction, directions)
        for tensor, regions in line.parts:
            pieces = (piece for region in regions for piece in region.pieces)
            for role, found in groupby(pieces, lambda one: one.role):
                group = list(found)
                name = clip_text(tensor.name) if len(tensors) > 1 else ""
                yield place, name, role, unit.at(group[0].at), group


def _letter_bar(
    pieces: Sequence[Piece], scale: float, room: int, shade: Shade, colours: bool
) -> str:
    signs = []  # a letter and its colour
    counts = [max(1, int(piece.size * scale)) for piece in pieces]
    for piece, count in zip(pieces, counts, strict=True):
        fill = shade(piece.key)[0]
        signs += [("." if fill == "equal" else piece.letter[0], fill)] * count
    if pieces[0].count > 1 and len(pieces) > 1:  # they take turns
        first = [signs[sum(counts[:k])] for k in range(len(pieces))]
        signs = list(islice(cycle(first), len(signs)))
    signs = signs[: max(room, len(pieces))]
    if not colours:
        return "".join(letter for letter, _ in signs)
    bar = ""
    for fill, group in groupby(signs, lambda one: one[1]):  # colours are a cube of 6 x 6 x 6
        red, green, blue = (int(COLOURS[fill][0][k : k + 2], 16) * 5 // 255 for k in (1, 3, 5))
        text = "".join(letter for letter, _ in group)
        bar += f"\x1b[38;5;16;48;5;{16 + 36 * red + 6 * green + blue}m{text}\x1b[0m"
    return bar
