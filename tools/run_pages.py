"""Run the Python code in the README and the documentation, and compare its output with the pages.

    python tools/run_pages.py            compare; exit code 1 if an output differs
    python tools/run_pages.py --write    write the outputs into the pages

The ```python blocks of a page are one program, from top to bottom. A ```text block directly after
such a block is its output. An image after both is the picture of the block's last expression, or
the plot that the block made with pyplot. Other blocks, such as ```python not-run, are not run. A
page runs in a temporary folder that has a link to examples.
"""

import ast
import contextlib
import io
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import generated
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(
    r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?(?:\n!\[[^]]*\]\((.*?\.svg)\)\n)?",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    line: int
    code: str
    said: str | None  # the output according to the page; None if the page shows none
    span: tuple[int, int]  # position of `said` in the page
    image: str | None  # the file with its picture, as the page links it; None if it shows none


def pages():
    """Return README.md and every page of the documentation."""
    built = ROOT / "docs" / "_build"
    found = sorted(p for p in (ROOT / "docs").rglob("*.md") if built not in p.parents)
    return [ROOT / "README.md", *found]


def blocks(text):
    return [
        Block(text.count("\n", 0, m.start()) + 2, m[1], m[2], m.span(2), m[3])
        for m in BLOCK.finditer(text)
    ]


def run(page, folder=None):
    """Run a page and return [(block, output, picture)] in order; a picture is an SVG, None if the
    page shows none. Exceptions from a block are not caught.

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
        tree = ast.parse("\n" * (block.line - 1) + block.code, str(page))
        last = tree.body.pop() if block.image else None
        with contextlib.redirect_stdout(printed), contextlib.chdir(folder):
            exec(compile(tree, str(page), "exec"), names)
            picture = None
            if last:
                code = compile(ast.Expression(last.value), str(page), "eval")
                picture = draw(eval(code, names))
        done.append((block, printed.getvalue(), picture))
    return done


def draw(value):
    """Return the SVG that a notebook shows for a cell's value: its own picture, or the plot."""
    if hasattr(value, "_repr_svg_"):
        return value._repr_svg_()
    file = io.StringIO()
    with plt.rc_context({"svg.hashsalt": "", "svg.fonttype": "none"}):
        plt.savefig(file, format="svg", metadata={"Date": None})
    plt.close()
    # The last digits of a coordinate depend on the machine: a tenth of a point is not seen.
    tenths = re.sub(r"\d+\.\d+(?=[^\d.])", lambda m: f"{float(m[0]):.1f}", file.getvalue())
    return re.sub(r" +$", "", tenths, flags=re.MULTILINE)


def current(page):
    """Return {path: text} of a page with the outputs that its code prints, and of its pictures."""
    text, files = page.read_text(), {}
    for block, printed, picture in reversed(run(page)):
        if block.said is not None:
            start, end = block.span
            text = text[:start] + printed + text[end:]
        if block.image:
            files[(page.parent / block.image).resolve()] = picture
    return {page: text} | files


if __name__ == "__main__":
    sys.exit(
        generated.main({path: text for page in pages() for path, text in current(page).items()})
    )
