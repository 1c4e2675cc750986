"""Sphinx settings. Build with: sphinx-build -W -n docs docs/_build (needs rnnlayout installed).

The pages are read on a Git host too, which knows no directives. Those for Sphinx are comments:

    <!-- sphinx {name} arguments
    content -->
"""

import re
from pathlib import Path

from sphinx.pycode import ModuleAnalyzer

import rnnlayout

project = "rnnlayout"
author = "the rnnlayout authors"
copyright = author
release = version = rnnlayout.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_heading_anchors = 3
smartquotes = False
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["docs.css"]
html_title = f"rnnlayout {release}"

nitpicky = True
# Types of other packages and abbreviated names in signatures have no page to link to.
OTHERS = "np|numpy|torch|collections|os|pathlib|_convert"
nitpick_ignore_regex = [("py:.*", rf"({OTHERS}|rnnlayout\._.*)\..*")]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"


ITEM = r"^([A-Za-z_][\w, ]*): "
ITEMS = re.compile(rf"(?:{ITEM}.*\n(?:    .*\n)*)+(?=\n|\Z)", re.MULTILINE)
SHARED_ARGUMENTS = "see :class:`~rnnlayout.ReadingOptions`"


def list_arguments(app, what, name, obj, options, lines):
    """Turn paragraphs of "name: meaning" lines in a docstring into lists, but not the first. Link
    the arguments that many functions share to their description.
    """
    lines[:] = [line.replace("see ReadingOptions", SHARED_ARGUMENTS) for line in lines]
    first = lines.index("") if "" in lines else len(lines)
    lines[first:] = ITEMS.sub(as_list, "\n".join(lines[first:]) + "\n").split("\n")


def as_list(paragraph):
    items = re.sub(r"^    ", "  ", paragraph[0], flags=re.MULTILINE)
    return "\n" + re.sub(ITEM, r"- **\1**: ", items, flags=re.MULTILINE)


DIRECTIVE = re.compile(r"^<!-- sphinx (\{.*?)\s*-->$", re.MULTILINE | re.DOTALL)
GROUP = re.compile(r"^## (.*)\n\n((?:- .*\n)+)", re.MULTILINE)
TOCTREE = "\n```{{toctree}}\n:hidden:\n:caption: {}\n{}\n```\n"


def show_directives(app, name, source):
    """Take directives out of their comments, make toctrees of the lists of the front page, and the
    changelog a page.
    """
    if name == "changelog":
        source[0] = (Path(app.srcdir) / ".." / "CHANGELOG.md").read_text()
    source[0] = DIRECTIVE.sub(r"```\1\n```", source[0])
    if name == "index":
        for caption, items in GROUP.findall(source[0]):
            pages = re.findall(r"^- \[.*?\]\((.*?)\.md\)", items, re.MULTILINE)
            source[0] += TOCTREE.format(caption, "\n".join(pages))


def show_signatures():
    """Let convert() have its own signature, which names all arguments, and not those of its
    overloads, which are for type checkers.
    """
    analyzer = ModuleAnalyzer.for_module("rnnlayout._convert.convert")
    analyzer.analyze()
    analyzer.overloads.clear()


def setup(app):
    show_signatures()
    app.connect("source-read", show_directives)
    app.connect("autodoc-process-docstring", list_arguments)
