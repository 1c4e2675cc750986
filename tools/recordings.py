"""Draw what the commands print on a terminal, for the docs.

    python tools/recordings.py            compare; exit code 1 if a picture is out of date
    python tools/recordings.py --write    write docs/images/recording-*.svg

The commands are run on the files in examples/data that tools/example_files.py wrote.
"""

import contextlib
import html
import io
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from textwrap import wrap
from unittest import mock

import generated

from rnnlayout._cli.main import main as rnnlayout

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
DATA = ROOT / "examples" / "data"
RECORDINGS = {
    "mistakes": [
        "rnnlayout verify old.h5 by-hand.npz",
        "rnnlayout diagnose packed.npy --like old.h5",
    ],
}
# Pixels, but for the columns: few enough for letters of 9 pixels on a phone that is 320 wide.
COLUMNS, LETTER, LINE, MARGIN, BAR = 56, 7.8, 19, 10, 30

STYLE = """\
    .page { fill: #f6f8fa; stroke: #d0d7de; }
    text { font: 13px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: #24292f; }
    text { white-space: pre; }
    .command { font-weight: 600; } .evidence { fill: #57606a; }
    .answer { fill: #9a3412; font-weight: 600; }
    @media (prefers-color-scheme: dark) {
      .page { fill: #161b22; stroke: #30363d; } text { fill: #e6edf3; }
      .evidence { fill: #9da7b1; } .answer { fill: #ffb77c; }
    }
"""


class Terminal(io.StringIO):
    def isatty(self):
        return True


def printed(command):
    """Run a command in this process, in a wide terminal, and return the lines it prints."""
    terminal = Terminal()
    with contextlib.redirect_stdout(terminal), contextlib.redirect_stderr(terminal):
        rnnlayout(shlex.split(command)[1:])
    return terminal.getvalue().splitlines()


def recorded():
    """Return {recording: its lines, each with its kind}."""
    found = {}
    setting = {"COLUMNS": "1000", "NO_COLOR": "1", "TERM": "dumb"}
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, setting):
        for name in ("old.h5", "by-hand.npz", "packed.npy"):
            shutil.copy(DATA / name, folder)
        with contextlib.chdir(folder):
            for name, commands in RECORDINGS.items():
                found[name] = lines = []
                for command in commands:
                    for line in (f"$ {command}", *printed(command)):
                        indent = " " * (len(line) - len(line.lstrip()) + 2)
                        rows = wrap(line, COLUMNS, subsequent_indent=indent, break_on_hyphens=False)
                        lines += [(kind_of(line), row) for row in rows]
    return found


def kind_of(line):
    """Tell the line that names the mistake or its repair from the evidence."""
    if line.startswith("$ "):
        return "command"
    if line.startswith(("likely cause:", "correct:")):
        return "answer"
    return "evidence" if line.startswith(" ") else "output"


def draw(lines):
    parts = []
    for k, (kind, line) in enumerate(lines):
        start = len(line) - len(line.lstrip())
        x, y = MARGIN + start * LETTER, BAR + (k + 1) * LINE
        wide = (len(line) - start) * LETTER  # so that it fits whatever the viewer's font is
        parts.append(
            f'  <text class="{kind}" x="{x:.1f}" y="{y}" textLength="{wide:.1f}">'
            f"{html.escape(line.lstrip())}</text>\n"
        )
    width = 2 * MARGIN + max(len(line) for _, line in lines) * LETTER
    height = BAR + len(lines) * LINE + MARGIN
    told = html.escape("; ".join(line[2:] for kind, line in lines if kind == "command"))
    dots = "".join(
        f'  <circle cx="{MARGIN + 5 + 18 * k}" cy="16" r="5" fill="{colour}"/>\n'
        for k, colour in enumerate(("#f4a5c0", "#ffb703", "#95d5b2"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}"'
        f' width="{width:.0f}" height="{height}" role="img" aria-labelledby="t">\n'
        f'  <title id="t">A terminal: {told}</title>\n  <style>\n{STYLE}  </style>\n'
        f'  <rect class="page" x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1}"'
        f' rx="8"/>\n{dots}{"".join(parts)}</svg>\n'
    )


def pictures():
    """Return {path: what the picture has to be}."""
    return {IMAGES / f"recording-{name}.svg": draw(lines) for name, lines in recorded().items()}


if __name__ == "__main__":
    sys.exit(generated.main(pictures()))
