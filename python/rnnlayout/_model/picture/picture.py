"""Picture: a scene, and a text of the same memory; and pictures of RNNs, each in one layout."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rnnlayout import _native
from rnnlayout._native import LayoutError

from ..errors import FileError
from ..layout import Layout
from .letters import memory_in_letters
from .memory import TensorMemory, layout_memory
from .scene import MARGIN, Scene, clip_text
from .scene_files import svg_text, write_png
from .strips import BarDrawer, ByteOffsets, draw_gates_legend

WIDTH, NARROWEST, WIDEST = 760, 240, 4000
SUFFIXES = (".svg", ".png")
_MOST = 20  # RNNs of one picture
# A part of the text: a string, or a function of the width in columns and of colours (True, False).
Part = str | Callable[[int, bool], str]


class Picture:
    """A picture: an SVG in a notebook, letters when printed. picture() makes one."""

    def __init__(self, scene: Scene, parts: Sequence[Part]) -> None:
        self._scene, self._parts = scene, parts

    @property
    def svg(self) -> str:
        """The text of an SVG file for light and dark pages, without scripts or references."""
        return svg_text(self._scene)

    def text(self, width: int = 79, *, colours: bool = False) -> str:
        """Return the picture in letters. width: in columns. colours: whether to use colours."""
        return "\n".join(
            part if isinstance(part, str) else part(width, colours) for part in self._parts
        )

    def save(self, path: Any, *, suffix: str | None = None) -> None:
        """Write the picture to a file, replacing an existing file.

        suffix: ".svg" or ".png"; by default the suffix of the path.
        Raises FileError for any further suffix, MissingExtraError for ".png" without matplotlib.
        """
        suffix = suffix or os.path.splitext(os.fspath(path))[1].lower()
        if suffix not in SUFFIXES:
            raise FileError(
                f"{path}: a picture is written as .svg or .png: choose a name that ends so"
            )
        if suffix == ".png":
            write_png(self._scene, path)
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(self.svg)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<Picture: {self._scene.about}>"

    def _repr_svg_(self) -> str:
        return self.svg


@dataclass(frozen=True)
class Subject:
    """An RNN to draw: a Spec in a layout. optional_tensors: the optional tensors that exist,
    HAS_BIAS | HAS_PEEPHOLES; None if the spec decides. name: the RNN's name, "" without a name.
    """

    spec: Any
    layout: Layout
    optional_tensors: int | None = None
    name: str = ""

    @property
    def title(self) -> str:
        return f"{self.name}: {self.spec}" if self.name else str(self.spec)

    @property
    def unit(self) -> ByteOffsets:
        return ByteOffsets(_native.itemsize(self.spec.dtype))

    def tensors(self) -> list[TensorMemory]:
        return layout_memory(self.layout, self.spec, self.optional_tensors)

    def text(self, tensors: Sequence[TensorMemory]) -> tuple[str, Part]:
        """Return the layout and size in words, and the memory in letters."""
        nbytes = sum(tensor.size for tensor in tensors) * self.unit.itemsize
        count = f" in {len(tensors)} tensors" if len(tensors) > 1 else ""
        letters = partial(memory_in_letters, tensors, self.spec.num_directions, self.unit)
        return f"{self.layout}: {nbytes:,} bytes{count}", letters


def draw_subjects(
    subjects: Sequence[Subject],
    width: float = WIDTH,
    add: Callable[[Scene, Subject], list[Part]] | None = None,
) -> Picture:
    """Return a picture with each subject below the last. add: a function that draws a subject in a
    scene, and returns the text; by default the memory is drawn. Raises LossyError if a layout
    cannot represent the subject's RNN."""
    if isinstance(width, bool) or not isinstance(width, (int, float)):
        raise LayoutError(f"width is {width!r}, need a number of pixels")
    if not NARROWEST <= width <= WIDEST:
        raise LayoutError(f"width is {width}, need {NARROWEST} to {WIDEST} pixels")
    scene = Scene(width, MARGIN, "; ".join(subject.title for subject in subjects[:3]))
    parts: list[Part] = []
    for subject in subjects[:_MOST]:
        scene.paragraph(MARGIN, subject.title, "head")
        parts += [clip_text(subject.title), *(add or _add_memory)(scene, subject), ""]
        scene.height += 12
    if len(subjects) > _MOST:
        rest = f"... and {len(subjects) - _MOST:,} more RNNs"
        scene.paragraph(MARGIN, rest, "head")
        parts += [rest, ""]
    return Picture(scene, parts[:-1])


def _add_memory(scene: Scene, subject: Subject) -> list[Part]:
    """Draw the memory of a subject, and return the text."""
    tensors = subject.tensors()
    size, letters = subject.text(tensors)
    scene.paragraph(MARGIN, size, "say")
    scene.height += 8
    BarDrawer(scene, tensors, subject.spec.num_directions, subject.unit).draw()
    draw_gates_legend(scene, tensors)
    return [size, letters]
