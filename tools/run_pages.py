"""Run the Python code in the README and the documentation, and compare its output with the pages.

    python tools/run_pages.py            compare; exit code 1 if an output differs
    python tools/run_pages.py --write    write the outputs into the pages

The ```python blocks of a page are one program, from top to bottom. A ```text block directly after
such a block is its output. Other blocks, such as ```python not-run, are not run. A page runs in a
temporary folder that has a link to examples.
"""

import contextlib
import io
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import generated

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    line: int
    code: str
    said: str | None  # the output according to the page; None if the page shows none
    span: tuple[int, int]  # position of `said` in the page


def pages():
    """Return README.md and every page of the documentation."""
    built = ROOT / "docs" / "_build"
    found = sorted(p for p in (ROOT / "docs").rglob("*.md") if built not in p.parents)
    return [ROOT / "README.md", *found]


def blocks(text):
    return [
        Block(text.count("\n", 0, m.start()) + 2, m[1], m[2], m.span(2))
        for m in BLOCK.finditer(text)
    ]


def run(page, folder=None):
    """Run a page and return [(block, output)] in order. Exceptions from a block are not caught.

    folder: where it runs and leaves its files; None: in a temporary one.
    """
    if folder is None:
        with tempfile.TemporaryDirectory() as made:
            (Path(made) / "examples").symlink_to(ROOT / "examples")
            return run(page, made)
    done, names = [], {"__name__": "__main__"}
    for block in blocks(page.read_text()):
        printed = io.StringIO()
        # so that a traceback shows the line numbers of the page
        code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
        with contextlib.redirect_stdout(printed), contextlib.chdir(folder):
            exec(code, names)
        done.append((block, printed.getvalue()))
    return done


def current(page):
    """Return the page's text with the outputs that its code prints."""
    text = page.read_text()
    for block, printed in reversed(run(page)):
        if block.said is not None:
            start, end = block.span
            text = text[:start] + printed + text[end:]
    return text


if __name__ == "__main__":
    sys.exit(generated.main({page: current(page) for page in pages()}))
