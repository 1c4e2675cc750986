"""The shapes of a picture, boxes, bands and texts, in pixels; and the width of a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from unicodedata import east_asian_width

from ..printable import printable

# name of a fill: the colour. Gates with the same task have the same colour: gates that admit the
# input, gates that keep the old state, candidates, and output gates. A notebook may be light on a
# dark system, so no colour depends on the system's theme: the colours of texts have a contrast of
# 4.3 on white and on GitHub's dark page. The states of a difference are told apart without red and
# green (the palette of Okabe and Ito).
COLOURS = {
    **dict.fromkeys("ir", "#8ecae6"),
    **dict.fromkeys("fz", "#ffb703"),
    **dict.fromkeys("gnh", "#95d5b2"),
    "o": "#f4a5c0",
    "other": "#cdc3ea",  # blocks without a gate: a projection, a whole matrix
    "equal": "#c3cad1",
    "moved": "#56b4e9",
    "rounded": "#f0e442",
    "different": "#e8793a",
    "good": "#7bc8a4",
    "middling": "#f2d16b",
    "poor": "#f29e4c",
    "bad": "#e3787a",
    "violet": "#c29bf2",
    "dark": "#111111",
    "ink": "#75797e",
    "faint": "#75797e",
}
MARGIN = 8  # pixels
LONGEST = 400  # characters of a text
# kind of text: the size in pixels, and the width of a character in sizes. Fonts of fixed width have
# 0.6; proportional fonts are a little narrower for words.
FONTS = {
    "head": (14, 0.62),
    "say": (12, 0.58),
    "name": (11, 0.61),
    "at": (10, 0.61),
    "letter": (10, 0.61),
    "sign": (11, 0.61),
}
FIXED = ("name", "at", "letter", "sign")  # kinds with a font of fixed width


@dataclass(frozen=True)
class Box:
    """A rectangle. title: the text that a reader sees when pointing at the box. rows: the number of
    rows, with lines in between. dashed: whether the box is not to scale."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    title: str = ""
    rows: int = 1
    dashed: bool = False


@dataclass(frozen=True)
class Band:
    """A ribbon from (x0, top0 to bottom0) to (x1, top1 to bottom1)."""

    x0: float
    top0: float
    bottom0: float
    x1: float
    top1: float
    bottom1: float
    fill: str
    title: str = ""


@dataclass(frozen=True)
class Raster:
    """A small map of shares, 0 to 1, in rows from top to bottom: the darker, the larger."""

    x: float
    y: float
    width: float
    height: float
    shares: Sequence[Sequence[float]]


@dataclass(frozen=True)
class Dots:
    """A scatter of points, shares of the width from the left and of the height from the bottom, in
    a frame with the diagonal."""

    x: float
    y: float
    width: float
    height: float
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Text:
    """A line of text. The anchor (left end, middle or right end) is at x, the baseline at y.

    turned: whether the text runs upwards.
    """

    x: float
    y: float
    text: str
    kind: str
    anchor: str = "start"
    fill: str = "ink"
    turned: bool = False


Shape = Box | Band | Raster | Dots | Text


@dataclass
class Scene:
    """A picture: size in pixels, a description in words (about), and shapes, from back to front."""

    width: float
    height: float = 0
    about: str = ""
    shapes: list[Shape] = field(default_factory=list)

    def add(self, *shapes: Shape) -> None:
        self.shapes += shapes

    def notes(self, x: float, offsets: str, enlarged: bool, woven: bool) -> None:
        """Add notes that explain the blocks. offsets: the position of the numbers, "" for none."""
        for note, applies in (
            (f"numbers {offsets}", offsets),
            ("dashed: enlarged, not to scale", enlarged),
            ("lines across: the gates lie side by side in every row", woven),
        ):
            if applies:
                self.paragraph(x, note, "at", "faint")

    def paragraph(self, x: float, words: str, kind: str, fill: str = "ink") -> None:
        """Add words at the bottom of the scene, in as many lines as needed."""
        size, character = FONTS[kind]
        for line in wrap(clip_text(words), max(8, int((self.width - x - 8) / size / character))):
            self.height += size + 4
            self.add(Text(x, self.height - 4, line, kind, fill=fill))


def clip_text(text: str) -> str:
    """Return text that may come from a file in one line, without the end of a very long text."""
    return printable(text[:LONGEST]) + "…" * (len(text) > LONGEST)


def text_width(text: str, kind: str) -> float:
    """Return the width of a text in pixels, about; few fonts need more."""
    size, character = FONTS[kind]
    wide = sum(east_asian_width(c) in "WF" for c in text)
    return size * (character * (len(text) - wide) + 1.05 * wide)


def shorten_text(text: str, kind: str, width: float) -> str:
    """Return a printable text that fits into a width, cut in the middle; "" if nothing fits."""
    text = clip_text(text)
    if text_width(text, kind) <= width:
        return text
    for length in range(min(len(text) - 1, int(width / FONTS[kind][0] * 2)), 1, -1):
        short = f"{text[: (length + 1) // 2]}…{text[len(text) - length // 2 :]}"
        if text_width(short, kind) <= width:
            return short
    return ""


def largest_scale(fits: Callable[[float], bool], limit: float) -> float:
    """Return the largest scale, in pixels per element, up to `limit`, for which fits() is true."""
    low, high = 0.0, limit
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def gate_colour(gate: str) -> str:
    """Return the name of a gate's colour."""
    return gate if gate and gate in COLOURS else "other"
