"""Picture: a scene, and the same in letters."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import FileError
from .png import write_png
from .scene import Scene
from .svg import svg_text

WIDTH = 760
SUFFIXES = (".svg", ".png")
# A part of the text: a string, or a function of the width in columns and whether there are colours.
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
        """Return the picture in letters. width: in columns. colours: with those of a terminal."""
        return "\n".join(
            part if isinstance(part, str) else part(width, colours) for part in self._parts
        )

    def save(self, path: Any, *, suffix: str | None = None) -> None:
        """Write the picture to a file, replacing it if it exists.

        suffix: ".svg" or ".png"; by default that of the path.
        Raises FileError for another one, MissingExtraError if it is ".png" and matplotlib is not
        installed.
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
