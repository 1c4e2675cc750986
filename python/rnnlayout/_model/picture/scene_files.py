"""A scene as SVG, a file without scripts or references, for light and dark pages; or as PNG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import import_extra
from .scene import COLOURS, FIXED, FONTS, Band, Box, Dots, Raster, Scene, Shape, Text, clip_text

_FACES = {True: "ui-monospace, 'DejaVu Sans Mono', monospace", False: "system-ui, sans-serif"}


def svg_text(scene: Scene) -> str:
    """Return the scene as the text of an SVG file."""
    width, height = _svg_number(scene.width), _svg_number(scene.height)
    shapes = "".join(f"  {_shape_svg(shape)}\n" for shape in scene.shapes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}" role="img" class="rnnlayout">\n'
        f"  <title>{xml_text(scene.about)}</title>\n"
        f"  <style>\n{_style_rules(scene)}  </style>\n{shapes}</svg>\n"
    )


def _style_rules(scene: Scene) -> str:
    """Return the rules for the shapes of the scene. Each rule begins with the class of the picture:
    the page, and further pictures on the page, are not changed."""
    fills = sorted({shape.fill for shape in scene.shapes if not isinstance(shape, (Raster, Dots))})
    kinds = sorted({shape.kind for shape in scene.shapes if isinstance(shape, Text)})
    rules = ["{ max-width: 100%; height: auto; background: none; }"]
    for kind in kinds:
        face, size = _FACES[kind in FIXED], FONTS[kind][0]
        weight = "600 " if kind == "head" else ""
        rules.append(f".{kind} {{ font: {weight}{size}px {face}; }}")
    rules += [f".c-{fill} {{ fill: {COLOURS[fill]}; }}" for fill in fills]
    rules.append(f".c-letter {{ fill: {COLOURS['dark']}; }}")
    rules.append(".line { stroke: #ffffff; stroke-width: 1; fill: none; }")
    rules.append(f".dashed {{ stroke: {COLOURS['faint']}; stroke-dasharray: 2 2; }}")
    rules.append(".band { opacity: 0.55; }")
    if any(isinstance(shape, Dots) for shape in scene.shapes):
        rules.append(f".frame {{ stroke: {COLOURS['faint']}; fill: none; }}")
        rules.append(f".dots {{ fill: {COLOURS['different']}; }}")
    if any(isinstance(shape, Raster) for shape in scene.shapes):
        for name, opacity in _SHADES.items():
            rules.append(f".{name} {{ fill: {COLOURS['different']}; opacity: {opacity}; }}")
    return "".join(f"    .rnnlayout{'' if rule[0] == '{' else ' '}{rule}\n" for rule in rules)


def _shape_svg(shape: Shape) -> str:
    if isinstance(shape, Raster):
        return "".join(
            f'<path class="{name}" d="{_rectangles(cells)}"/>'
            for name, cells in _shaded_cells(shape).items()
        )
    if isinstance(shape, Dots):
        frame = _svg_number(shape.x), _svg_number(shape.y)
        width, height = _svg_number(shape.width), _svg_number(shape.height)
        lines = f"M{frame[0]} {frame[1]}h{width}v{height}h-{width}zm0 {height}l{width} -{height}"
        dots = _rectangles([(x - 1.5, y - 1.5, 3, 3) for x, y in _dots_at(shape)])
        return f'<path class="frame" d="{lines}"/><path class="dots" d="{dots}"/>'
    if isinstance(shape, Text):
        anchor = f' text-anchor="{shape.anchor}"' if shape.anchor != "start" else ""
        fill = "letter" if shape.kind == "letter" else shape.fill
        at = f'x="{_svg_number(shape.x)}" y="{_svg_number(shape.y)}"'
        rotation = (
            f' transform="rotate(-90 {_svg_number(shape.x)} {_svg_number(shape.y)})"' * shape.turned
        )
        words = xml_text(shape.text)
        return f'<text class="{shape.kind} c-{fill}" {at}{anchor}{rotation}>{words}</text>'
    title = f"<title>{xml_text(shape.title)}</title>" if shape.title else ""
    if isinstance(shape, Band):
        x0, x1, middle = shape.x0, shape.x1, (shape.x0 + shape.x1) / 2
        points = (x0, shape.top0, middle, shape.top0, middle, shape.top1, x1, shape.top1)
        back = (x1, shape.bottom1, middle, shape.bottom1, middle, shape.bottom0, x0, shape.bottom0)
        forward, backward = (
            [_svg_number(coordinate) for coordinate in points] for points in (points, back)
        )
        path = (
            f"M{forward[0]} {forward[1]}C{' '.join(forward[2:])}"
            f"L{backward[0]} {backward[1]}C{' '.join(backward[2:])}Z"
        )
        return f'<path class="band c-{shape.fill}" d="{path}">{title}</path>'
    dashed = " dashed" * shape.dashed
    at = f'x="{_svg_number(shape.x)}" y="{_svg_number(shape.y)}"'
    size = f'width="{_svg_number(shape.width)}" height="{_svg_number(shape.height)}"'
    box = f'<rect class="c-{shape.fill}{dashed}" {at} {size}>{title}</rect>'
    if shape.rows == 1:
        return box
    step = shape.height / shape.rows
    ruled = "".join(
        f"M{_svg_number(shape.x)} {_svg_number(shape.y + k * step)}h{_svg_number(shape.width)}"
        for k in range(1, shape.rows)
    )
    return f'{box}<path class="line" d="{ruled}"/>'


_SHADES = {"shade1": 0.3, "shade2": 0.6, "shade3": 1.0}  # classes, and the opacity
_Rectangle = tuple[float, float, float, float]  # x, y, width, height


def _shaded_cells(raster: Raster) -> dict[str, list[_Rectangle]]:
    """Return {class: the cells of a raster with this shade}; without cells that are 0."""
    cells: dict[str, list[_Rectangle]] = {}
    height = raster.height / len(raster.shares)
    for k, row in enumerate(raster.shares):
        width = raster.width / len(row)
        for n, share in enumerate(row):
            if share > 0:
                name = list(_SHADES)[min(int(share * len(_SHADES)), len(_SHADES) - 1)]
                cell = raster.x + n * width, raster.y + k * height, width, height
                cells.setdefault(name, []).append(cell)
    return cells


def _dots_at(dots: Dots) -> list[tuple[float, float]]:
    return [(dots.x + x * dots.width, dots.y + (1 - y) * dots.height) for x, y in dots.points]


def _rectangles(rectangles: Sequence[_Rectangle]) -> str:
    """Return the path of rectangles."""
    return "".join(
        f"M{_svg_number(x)} {_svg_number(y)}h{_svg_number(width)}v{_svg_number(height)}"
        f"h-{_svg_number(width)}z"
        for x, y, width, height in rectangles
    )


def xml_text(text: str) -> str:
    """Return text that is safe in XML, which forbids most control characters in any form."""
    return clip_text(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _svg_number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


# ------------------------------------------------------------------- as PNG, drawn by matplotlib

_SCALE = 2  # pixels of the file per pixel of the scene
_HIGHEST = 30_000  # pixels of the file; matplotlib refuses 65,536
_POINTS = 72  # per inch


def write_png(scene: Scene, file: Any) -> None:
    """Write the scene, on white, to a file of bytes or a path. Raises as import_extra() does."""
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
        elif isinstance(shape, Raster):
            _draw_raster(axes, shape)
        elif isinstance(shape, Dots):
            _draw_dots(axes, shape)
        else:
            _draw_area(axes, shape)
    figure.savefig(file, format="png", facecolor="#ffffff")


def _draw_text(axes: Any, text: Text) -> None:
    colour = COLOURS["dark" if text.kind == "letter" else text.fill]
    family = "DejaVu Sans Mono" if text.kind in FIXED else "DejaVu Sans"
    align = {"start": "left", "middle": "center", "end": "right"}[text.anchor]
    weight = "bold" if text.kind == "head" else "normal"
    # DejaVu is wider than most fonts for screens
    size = FONTS[text.kind][0] * (1 if text.kind in FIXED else 0.92)
    axes.text(
        text.x,
        text.y,
        text.text,
        family=family,
        size=size,
        weight=weight,
        color=colour,
        ha=align,
        va="baseline",
        rotation=90 * text.turned,
        rotation_mode="anchor",
        parse_math=False,
    )


def _draw_raster(axes: Any, raster: Raster) -> None:
    from matplotlib.patches import Rectangle

    for name, cells in _shaded_cells(raster).items():
        for x, y, width, height in cells:
            style: Any = {"facecolor": COLOURS["different"], "alpha": _SHADES[name], "linewidth": 0}
            axes.add_patch(Rectangle((x, y), width, height, **style))


def _draw_dots(axes: Any, dots: Dots) -> None:
    from matplotlib.patches import Rectangle

    at, end = (dots.x, dots.y), (dots.x + dots.width, dots.y + dots.height)
    frame: Any = {"facecolor": "none", "edgecolor": COLOURS["faint"], "linewidth": 1}
    axes.add_patch(Rectangle(at, dots.width, dots.height, **frame))
    axes.plot([at[0], end[0]], [end[1], at[1]], color=COLOURS["faint"], linewidth=1)
    for x, y in _dots_at(dots):
        axes.add_patch(
            Rectangle((x - 1.5, y - 1.5), 3, 3, facecolor=COLOURS["different"], linewidth=0)
        )


def _draw_area(axes: Any, shape: Box | Band) -> None:
    from matplotlib.patches import PathPatch, Rectangle
    from matplotlib.path import Path

    colour = COLOURS[shape.fill]
    if isinstance(shape, Band):
        middle = (shape.x0 + shape.x1) / 2
        forward = [
            (shape.x0, shape.top0),
            (middle, shape.top0),
            (middle, shape.top1),
            (shape.x1, shape.top1),
        ]
        back = [
            (shape.x1, shape.bottom1),
            (middle, shape.bottom1),
            (middle, shape.bottom0),
            (shape.x0, shape.bottom0),
        ]
        curve, line = [Path.CURVE4] * 3, [Path.LINETO]
        path = Path([*forward, *back], [Path.MOVETO, *curve, *line, *curve])
        axes.add_patch(PathPatch(path, facecolor=colour, edgecolor="none", alpha=0.55))
        return
    edge = {"edgecolor": COLOURS["faint"], "linestyle": (0, (2, 2)), "linewidth": 1}
    at = (shape.x, shape.y)
    axes.add_patch(
        Rectangle(
            at,
            shape.width,
            shape.height,
            facecolor=colour,
            **(edge if shape.dashed else {"edgecolor": "none"}),
        )
    )
    for k in range(1, shape.rows):
        y = shape.y + k * shape.height / shape.rows
        axes.plot([shape.x, shape.x + shape.width], [y, y], color="#ffffff", linewidth=1)
