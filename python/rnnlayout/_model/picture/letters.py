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
    """Return one line per role of a layer and direction: the offset, and a bar with the gates to
    scale. A bar has at least one letter per gate. The letters of gates that lie side by side in
    each row alternate. A block that `shade` calls "equal" is drawn with dots."""
    rows = list(_letter_rows(tensors, directions, unit))
    columns = [[row[k] for row in rows] for k in range(4)]
    widths = [max(map(len, column), default=0) for column in columns]
    widths[1] = min(widths[1], 32)
    room = max(_LEAST, width - sum(widths) - 2 * sum(map(bool, widths)))
    largest = max(sum(piece.size for piece in row[4]) for row in rows)
    lines, last_place = [], ""
    for place, name, role, at, pieces in rows[:_MOST]:
        cells = [place if place != last_place else "", name[: widths[1]], role, at]
        last_place = place
        pads = (str.ljust, str.ljust, str.ljust, str.rjust)
        aligned = [pad(cell, w) for pad, cell, w in zip(pads, cells, widths, strict=True) if w]
        bar = _letter_bar(pieces, room / largest, room, shade or gate_colours, colours)
        lines.append("  ".join([*aligned, bar]))
    lines += [f"... {len(rows) - _MOST} more lines"] * (len(rows) > _MOST)
    return "\n".join(lines)


def _letter_rows(
    tensors: Sequence[TensorMemory], directions: int, unit: ByteOffsets
) -> Iterator[tuple[str, str, str, str, list[Piece]]]:
    """Yield the layer and direction, the name of the tensor, role, offset and pieces."""
    for line in picture_lines(tensors):
        place = layer_in_words(line.layer, line.direction, directions)
        for tensor, regions in line.parts:
            pieces = (piece for region in regions for piece in region.pieces)
            for role, role_pieces in groupby(pieces, lambda piece: piece.role):
                group = list(role_pieces)
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
    if pieces[0].count > 1 and len(pieces) > 1:  # side by side: the letters alternate
        first = [signs[sum(counts[:k])] for k in range(len(pieces))]
        signs = list(islice(cycle(first), len(signs)))
    signs = signs[: max(room, len(pieces))]
    if not colours:
        return "".join(letter for letter, _ in signs)
    bar = ""
    for fill, group in groupby(signs, lambda sign: sign[1]):  # colours are a cube of 6 x 6 x 6
        red, green, blue = (int(COLOURS[fill][k : k + 2], 16) * 5 // 255 for k in (1, 3, 5))
        text = "".join(letter for letter, _ in group)
        bar += f"\x1b[38;5;16;48;5;{16 + 36 * red + 6 * green + blue}m{text}\x1b[0m"
    return bar
