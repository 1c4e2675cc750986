"""Write pages of the documentation as notebooks, with the outputs that they show.

    python tools/notebooks.py            compare; exit code 1 if a notebook is out of date
    python tools/notebooks.py --write    write docs/notebooks

The page is the source: tools/run_pages.py checks its outputs and pictures.
"""

import json
import re
import sys
from pathlib import Path

import generated
from run_pages import BLOCK

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = ("wrong-outputs", "whole-model", "training-goes-on", "train-in-pytorch")
NOTEBOOKS = {DOCS / f"howto/{name}.md": DOCS / f"notebooks/{name}.ipynb" for name in PAGES}
DIRECTIVE = re.compile(r"^<!-- sphinx .*?-->\n+", re.MULTILINE | re.DOTALL)
SAID_OF_ITSELF = re.compile(r" This page is also a \[notebook\]\(.*?\)\.", re.DOTALL)
LINK = re.compile(r"\]\((?![a-z]+:)([^)]+)\)")


def notebook(page):
    """Return a page as a notebook in JSON: its text and its Python code, in cells."""
    text = SAID_OF_ITSELF.sub("", DIRECTIVE.sub("", page.read_text()))
    cells, end, count = [], 0, 0
    for found in BLOCK.finditer(text):
        cells += told(text[end : found.start()], page)
        count, end = count + 1, found.end()
        cells.append({
            "cell_type": "code", "execution_count": count, "metadata": {},
            "outputs": [*outputs(found, page)], "source": lines(found[1].rstrip("\n")),
        })  # fmt: skip
    cells += told(text[end:], page)
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    python = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": cells, "metadata": {"kernelspec": python}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def outputs(found, page):
    """Yield what a block of code prints, and its picture."""
    _, printed, image = found.groups()
    if printed:
        yield {"output_type": "stream", "name": "stdout", "text": lines(printed)}
    if image:
        data = {"image/svg+xml": lines((page.parent / image).read_text())}
        yield {"output_type": "display_data", "data": data, "metadata": {}}


def told(text, page):
    """Return a cell for text that is not empty. Its links are those of the page."""
    folder = f"../{page.parent.name}/"
    text = LINK.sub(lambda m: f"]({folder}{m[1]})".replace(f"{folder}../", "../"), text.strip())
    return [{"cell_type": "markdown", "metadata": {}, "source": lines(text)}] if text else []


def lines(text):
    return text.splitlines(keepends=True)


def notebooks():
    """Return {path: what the notebook has to be}."""
    return {path: notebook(page) for page, path in NOTEBOOKS.items()}


if __name__ == "__main__":
    sys.exit(generated.main(notebooks()))
