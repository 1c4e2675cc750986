"""Facts as HTML for a notebook: a table without colours of its own, for light and dark pages."""

from __future__ import annotations

from collections.abc import Iterable

from .scene import COLOURS
from .scene_files import xml_text

_GRADES = {"exact": "good", "rounds": "middling", "unrepresentable": "bad"}


def html_table(title: str, rows: Iterable[Iterable[str]], head: Iterable[str] = ()) -> str:
    """Return a table with a title. rows, head: texts; none of them is taken as HTML."""
    lines = [_html_row("th", head)] if head else []
    lines += [_html_row("td", row) for row in rows]
    return f"<table><caption>{xml_text(title)}</caption>{''.join(lines)}</table>"


def _html_row(tag: str, cells: Iterable[str]) -> str:
    style = ' style="text-align: left"'
    return f"<tr>{''.join(f'<{tag}{style}>{xml_text(cell)}</{tag}>' for cell in cells)}</tr>"


def html_grade(grade: str, rest: str) -> str:
    """Return a grade in its colour, and the rest of the report."""
    colour = COLOURS[_GRADES[grade]]
    style = f"background: {colour}; color: #111111; padding: 0 0.4em; border-radius: 0.3em"
    return f'<p><span style="{style}">{grade}</span> {xml_text(rest)}</p>'
