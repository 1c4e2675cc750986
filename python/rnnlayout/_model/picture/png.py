"""A scene as PNG, drawn by matplotlib."""

from __future__ import annotations

from typing import Any

from ..errors import import_extra
from .scene import COLOURS, FIXED, FONTS, Band, Box, Scene, Text

_SCALE = 2  # pixels of the file per pixel of the scene
_HIGHEST = 30_000  # pixels of the file; matplotlib refuses 65,536
_POINTS = 72  # per inch


def write_png(scene: Scene, file: Any) -> None:
    """Write the scene, on white, to a file opened for bytes or a path. Raises MissingExtraError
    without matplotlib."""
    matplotlib = import_extra("matplotlib.figure", "plot", "a picture as PNG")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    scale = min(_SCALE, _HIGHEST / scene.height)
    figure = matplotlib.Figure(
        figsize=(scene.width / _POINTS, scene.height / _POINTS), dpi=_POINTS * scale
    )
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1), frameon=False, xticks=[], yticks=[])
    axes.set(xlim=(0, scene.width), ylim=(scene.height, 0))
    for shape in scene.shapes:
        if isinstance(shape, Text):
            _draw_text(axes, shape)
        else:
            _draw_area(axes, shape)
    figure.savefig(file, format="png", facecolor=COLOURS["page"][0])


def _draw_text(axes: Any, text: Text) -> None:
    colour = "#111111" if text.kind == "letter" else COLOURS[text.fill][0]
    family = "DejaVu Sans Mono" if text.kind in FIXED else "DejaVu Sans"
    align = {"start": "left", "middle": "center", "end": "right"}[text.anchor]
    weight = "bold" if text.kind == "head" else "normal"
    # DejaVu is wider than most fonts for screens
    size = FONTS[text.kind][0] * (1 if text.kind in FIXED else 0.92)
    axes.text(text.x, text.y, text.text, family=family, size=size, weight=weight, color=colour,
              ha=align, va="baseline", rotation=90 * text.turned, rotation_mode="anchor",
              parse_math=False)  # fmt: skip


def _draw_area(axes: Any, shape: Box | Band) -> None:
    from matplotlib.patches import PathPatch, Rectangle
    from matplotlib.path import Path

    colour = COLOURS[shape.fill][0]
    if isinstance(shape, Band):
        middle = (shape.x0 + shape.x1) / 2
        there = [(shape.x0, shape.top0), (middle, shape.top0), (middle, shape.top1),
                 (shape.x1, shape.top1)]  # fmt: skip
        back = [(shape.x1, shape.bottom1), (middle, shape.bottom1), (middle, shape.bottom0),
                (shape.x0, shape.bottom0)]  # fmt: skip
        curve, line = [Path.CURVE4] * 3, [Path.LINETO]
        path = Path([*there, *back], [Path.MOVETO, *curve, *line, *curve])
        axes.add_patch(PathPatch(path, facecolor=colour, edgecolor="none", alpha=0.55))
        return
    edge = {"edgecolor": COLOURS["faint"][0], "linestyle": (0, (2, 2)), "linewidth": 1}
    at = (shape.x, shape.y)
    axes.add_patch(Rectangle(at, shape.width, shape.height, facecolor=colour,
                             **(edge if shape.dashed else {"edgecolor": "none"})))  # fmt: skip
    for k in range(1, shape.rows):
        y = shape.y + k * shape.height / shape.rows
        axes.plot([shape.x, shape.x + shape.width], [y, y], color=COLOURS["page"][0], linewidth=1)
