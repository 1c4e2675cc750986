"""rnnlayout layouts"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ..options import DONE, Parser
from ..terminal import align_columns, bold_text, print_json, print_wrapped, terminal_width

SUMMARY = "list the supported layouts and what each can represent"
DESCRIPTION = """\
List the supported layouts: for each cell the order of its gates in memory, what
else the layout can represent, and what the tests check it against: the
framework itself, recorded answers of it, or its documents."""
EXAMPLES = """\
  rnnlayout layouts
  rnnlayout layouts --json"""
_KEYS = (
    "cells",
    "gates",
    "resets",
    "recurrent_activations",
    "relu",
    "projection",
    "peepholes",
    "options",
    "must_name",
    "aliases",
    "sources",
    "checked",
)


def add_arguments(parser: Parser) -> None:
    parser.add_json()


def run(options: argparse.Namespace) -> int:
    from rnnlayout._model.layout import known_layouts

    layouts = known_layouts()
    if options.json:
        print_json(
            "layouts",
            1,
            {
                "layouts": [
                    {"name": name} | {key: info[key] for key in _KEYS}
                    for name, info in layouts.items()
                ]
            },
        )
    else:
        print_wrapped("\n".join(_table(layouts, terminal_width(sys.stdout) or 79)))
    return DONE


def _table(layouts: dict[str, Any], width: int) -> list[str]:
    from textwrap import wrap

    from rnnlayout._model.layout import layout_rows

    rows = layout_rows(layouts)
    head, *lines = align_columns(rows)
    lines = [bold_text(head), *lines]
    if max(map(len, lines)) > width:  # one layout after another
        lines = []
        for name, *facts in rows[1:]:
            table = align_columns([*zip(rows[0][1:], facts, strict=True)], 2)
            lines += ["", bold_text(name), *table]
        del lines[0]
    aliases = [
        f"{alias['name']} is another name of {name}"
        for name, info in layouts.items()
        for alias in info["aliases"]
    ]
    lines += ["", *aliases]
    for name, info in layouts.items():
        for option, values in info["options"].items():
            lines += ["", f"{name}({option}=...)"]
            for value, note in values.items():
                lines += wrap(
                    note, min(width, 79), initial_indent=f"  {value:9} ", subsequent_indent=" " * 12
                )
    return lines
