"""What a picture is made of: boxes, bands and texts, in pixels; and how wide a text is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from textwrap import wrap
from unicodedata import east_asian_width

from ..printable import printable

# What is filled -> its colour on a light and on a dark page. Gates that do the same have one
# colour: those that let something in, that keep the old state, candidates, and outputs.
COLOURS = {
    **dict.fromkeys("ir", ("#8ecae6", "#8ecae6")),
    **dict.fromkeys("fz", ("#ffb703", "#ffb703")),
    **dict.fromkeys("gnh", ("#95d5b2", "#95d5b2")),
    "o": ("#f4a5c0", "#f4a5c0"),
    "other": ("#cdc3ea", "#cdc3ea"),  # what has no gate: a projection
    "equal": ("#d8dee4", "#9aa4af"),
    "heat0": ("#b9d7ea", "#b9d7ea"),
    "heat1": ("#fee391", "#fee391"),
    "heat2": ("#fe9929", "#fe9929"),
    "heat3": ("#f0705a", "#f0705a"),
    "heat4": ("#c29bf2", "#c29bf2"),
    "good": ("#7bc8a4", "#3f9d72"),
    "middling": ("#f2d16b", "#c9a227"),
    "poor": ("#f29e4c", "#cf7a26"),
    "bad": ("#e3787a", "#b8474a"),
    "ink": ("#24292f", "#e6edf3"),
    "faint": ("#57606a", "#9aa4af"),
    "page": ("#ffffff", "#0d1117"),
}
MARGIN = 8  # pixels
LONGEST = 400  # characters of a text
# Kind of text -> its size in pixels, and the width of a character in sizes. Fonts of fixed width
# have 0.6; the others that a system may have are a little narrower for words.
FONTS = {"head": (14, 0.62), "say": (12, 0.58), "name": (11, 0.61), "at": (10, 0.61),
         "letter": (10, 0.61), "sign": (11, 0.61)}  # fmt: skip
FIXED = ("name", "at", "letter", "sign")  # those of fixed width


@dataclass(frozen=True)
class Box:
    """A rectangle. title: what a reader sees who points at it. rows: drawn as so many rows, with
    lines between them. dashed: it is not to scale."""

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
class Text:
    """A line of text whose left end, middle or right end (anchor) is at x, its baseline at y.

    turned: written from below to above.
    """

    x: float
    y: float
    text: str
    kind: str
    anchor: str = "start"
    fill: str = "ink"
    turned: bool = False


@dataclass
class Scene:
    """A picture: its size in pixels, what it shows in words, and its shapes, from back to front."""

    width: float
    height: float = 0
    about: str = ""
    shapes: list[Box | Band | Text] = field(default_factory=list)

    def add(self, *shapes: Box | Band | Text) -> None:
        self.shapes += shapes

    def notes(self, x: float, offsets: str, enlarged: bool, woven: bool) -> None:
        """Add what explains the blocks. offsets: where numbers are, "" if there are none."""
        for note, told in (
            (f"numbers {offsets}", offsets),
            ("dashed: enlarged, not to scale", enlarged),
            ("lines across: the gates lie side by side in every row", woven),
        ):
            if told:
                self.paragraph(x, note, "at", "faint")

    def paragraph(self, x: float, words: str, kind: str, fill: str = "ink") -> None:
        """Add words below what there is, in as many lines as needed."""
        size, character = FONTS[kind]
        for line in wrap(clip_text(words), max(8, int((self.width - x - 8) / size / character))):
            self.height += size + 4
            self.add(Text(x, self.height - 4, line, kind, fill=fill))


def clip_text(text: str) -> str:
    """Return text that may come from a file on one line, without its end if it is very long."""
    return printable(text[:LONGEST]) + "…" * (len(text) > LONGEST)


def text_width(text: str, kind: str) -> float:
    """Return about how many pixels wide a text is; few fonts make it wider."""
    size, character = FONTS[kind]
    wide = sum(east_asian_width(c) in "WF" for c in text)
    return size * (character * (len(text) - wide) + 1.05 * wide)


def shorten_text(text: str, kind: str, width: float) -> str:
    """Return a printable text that fits into a width, cut in its middle; "" if nothing fits."""
    text = clip_text(text)
    if text_width(text, kind) <= width:
        return text
    for kept in range(min(len(text) - 1, int(width / FONTS[kind][0] * 2)), 1, -1):
        short = f"{text[: (kept + 1) // 2]}…{text[len(text) - kept // 2 :]}"
        if text_width(short, kind) <= width:
            return short
    return ""


def largest_scale(fits: Callable[[float], bool], most: float) -> float:
    """Return the most pixels per element, up to `most`, with which something fits."""
    low, high = 0.0, most
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def gate_colour(gate: str) -> str:
    """Return the name of a gate's colour."""
    return gate if gate and gate in COLOURS else "other"
