"""Read an SVG as a reader sees it: what is drawn where, and how wide its texts are."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
from PIL import ImageFont

NAMESPACE = "{http://www.w3.org/2000/svg}"
# The fonts of most Linux desktops; they are wider than the fonts of other systems.
FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
ALLOWED = {"svg", "title", "style", "rect", "text", "path"}


@cache
def font(mono, size, bold):
    name = "DejaVuSansMono" if mono else "DejaVuSans-Bold" if bold else "DejaVuSans"
    return ImageFont.truetype(FONTS / f"{name}.ttf", size)


@dataclass(frozen=True)
class Seen:
    """A text or a box: what it says or its title, its class, and left, top, right, bottom."""

    words: str
    kind: str
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other, by=0.5):
        return (
            min(self.right, other.right) - max(self.left, other.left) > by
            and min(self.bottom, other.bottom) - max(self.top, other.top) > by
        )

    def inside(self, other, by=0.5):
        return (
            self.left >= other.left - by
            and self.right <= other.right + by
            and self.top >= other.top - by
            and self.bottom <= other.bottom + by
        )


class Svg:
    """An SVG file, parsed. texts, boxes (with a title: the blocks), ribbons."""

    def __init__(self, text):
        self.root = ElementTree.fromstring(text)
        elements = list(self.root.iter())
        self.tags = {one.tag.removeprefix(NAMESPACE) for one in elements}
        self.attributes = {name for one in elements for name in one.attrib}
        width, height = (float(self.root.get(name)) for name in ("width", "height"))
        self.page = Seen("", "", 0, 0, width, height)
        self.style = "".join(one.text for one in elements if one.tag == NAMESPACE + "style")
        self.sizes = dict(re.findall(r"\.(\w+) \{ font: (?:600 )?(\d+)px", self.style))
        self.texts = [self._text(one) for one in elements if one.tag == NAMESPACE + "text"]
        self.boxes = [self._box(one) for one in elements if one.tag == NAMESPACE + "rect"]
        self.blocks = [box for box in self.boxes if box.words]
        self.ribbons = [one for one in elements if "band" in one.get("class", "")]

    def _text(self, element):
        kind = element.get("class").split()[0]
        size = int(self.sizes[kind])
        mono = re.search(rf"\.{kind} \{{ font: \d+px ui-monospace", self.style)
        wide = font(bool(mono), size, kind == "head").getlength(element.text)
        x, y = float(element.get("x")), float(element.get("y"))
        left = x - {None: 0, "middle": wide / 2, "end": wide}[element.get("text-anchor")]
        # from the top of an x to the base line: letters above and below are few and thin
        return Seen(element.text, kind, left, y - 0.55 * size, left + wide, y)

    def _box(self, element):
        x, y, width, height = (float(element.get(name)) for name in ("x", "y", "width", "height"))
        title = element.find(NAMESPACE + "title")
        words = "" if title is None else title.text
        return Seen(words, element.get("class"), x, y, x + width, y + height)


def check(text):
    """Check what holds for every picture, and return it."""
    svg = Svg(text)
    assert svg.tags <= ALLOWED
    assert not {name for name in svg.attributes if "href" in name or name.startswith("on")}
    assert not re.search(r"url\(|@import|https?:", svg.style)
    for seen in [*svg.texts, *svg.boxes]:
        assert seen.inside(svg.page), seen
    for k, one in enumerate(svg.texts):
        for other in svg.texts[:k]:
            assert not one.overlaps(other), (one, other)
    for k, one in enumerate(svg.boxes):
        for other in svg.boxes[:k]:
            assert not one.overlaps(other), (one, other)
    for one in svg.texts:  # a text is in a box, or outside of all
        for box in svg.boxes:
            assert one.inside(box, 1) or not one.overlaps(box), (one, box)
    return svg
