"""The pages are right: code and its output, tables, examples in docstrings, links. A Git host shows
them too: as CommonMark with GitHub's tables, without Sphinx and MyST."""

import doctest
import html
import importlib
import re
import sys
from inspect import getsource, isclass
from xml.etree import ElementTree

import cmarkgfm
import pytest
from commands import ROOT
from marks import long

import rnnlayout as rl

sys.path.insert(0, str(ROOT / "tools"))

import charts
import notebooks
import pictures
import project_page
import recordings
import run_pages
import tables

PACKAGE = ROOT / "python" / "rnnlayout"
PAGES = {str(page.relative_to(ROOT)): page for page in run_pages.pages()}
MODULES = [
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted(PACKAGE.rglob("*.py"))
    if ">>> " in path.read_text()
]


@pytest.mark.parametrize(
    "page", [name for name in PAGES if run_pages.blocks(PAGES[name].read_text())]
)
def test_page_prints_what_it_says(page):
    for path, text in run_pages.current(PAGES[page]).items():
        assert path.read_text() == text, f"{path}; tools/run_pages.py --write"


def test_no_part_of_a_page_is_left_out():
    """Every block marked as Python is found, also with an indented or misspelt fence; so is every
    file that is included."""
    for name, page in PAGES.items():
        text = page.read_text()
        marked = re.findall(r"```\s*(?:python|py)\b(?! not-run)", text)
        assert len(run_pages.blocks(text)) == len(marked), name
        for file in re.findall(r"^<!-- sphinx {literalinclude} (\S+)$", text, re.M):
            assert (page.parent / file).exists(), (name, file)


# That of formats.md reads and writes a file of each format in a process of its own.
@pytest.mark.parametrize(
    "page", [long(page) if page.name == "formats.md" else page for page in tables.PAGES],
    ids=lambda page: page.name,
)  # fmt: skip
def test_tables_are_current(page):
    assert tables.MARKED.search(page.read_text())
    assert page.read_text() == tables.current(page), "run tools/tables.py --write"


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted and not found.failed


def test_everything_public_is_described():
    """In its docstring, and on the page of the Python reference."""
    for name in set(rl.__all__) - {"__version__"}:
        assert getattr(rl, name).__doc__, name
        assert f"rnnlayout.{name}" in PAGES["docs/api.md"].read_text()


def public_attributes(kind):
    """Return {attribute: whether it is a method} of a class, but for those of dict and the like,
    and of rl.Error, which describes its own.
    """
    found, ours = {}, [one for one in kind.__mro__ if one.__module__.startswith("rnnlayout")
                       and (one is kind or one is not rl.Error)]  # fmt: skip
    others = {name for one in kind.__mro__ if one not in ours for name in dir(one)}
    for one in ours:
        found |= dict.fromkeys(getattr(one, "__annotations__", {}), False)
        found |= {name: callable(value) for name, value in vars(one).items()}
        if one.__module__.startswith("rnnlayout._") and one.__module__ != "rnnlayout._native":
            found |= dict.fromkeys(
                re.findall(r"\bself\.(\w+)(?:: [^=]+)? = ", getsource(one)), False
            )
    return {name: method for name, method in found.items() if name[0] != "_" and name not in others}


def test_every_attribute_of_a_class_is_described():
    """A method among the members in the reference; other attributes there, or by the class."""
    page = PAGES["docs/api.md"].read_text()
    for kind in filter(isclass, (getattr(rl, name) for name in rl.__all__)):
        entry = re.search(rf":: rnnlayout\.{kind.__name__}(?:\(\))?\n((?:   .*\n)*)", page)
        members = set(re.findall(r"\w+", entry[1]))
        words = set(re.findall(r"\w+", kind.__doc__))
        for attribute, method in public_attributes(kind).items():
            where = kind, attribute
            assert attribute in members or (not method and attribute in words), where
            assert attribute not in members or getattr(kind, attribute).__doc__, where


GENERATED = {
    "charts": lambda: {charts.IMAGES / n: charts.draw(c()) for n, c in charts.CHARTS.items()},
    "notebooks": notebooks.notebooks,
    "pictures": lambda: {pictures.IMAGES / n: draw() for n, draw in pictures.PICTURES.items()},
    "recordings": recordings.pictures,
}


@pytest.mark.parametrize("tool", GENERATED)
def test_generated_files_are_current(tool):
    for path, text in GENERATED[tool]().items():
        assert path.read_text() == text, f"{path}: run tools/{tool}.py --write"
        if path.suffix == ".svg":
            ElementTree.fromstring(text)


# ------------------------------------------------------------------ as GitHub and PyPI show it

FOLDERS = (ROOT, ROOT / "docs", ROOT / "docs" / "howto", ROOT / "benchmarks", ROOT / "tests")
SHOWN = {
    str(page.relative_to(ROOT)): page
    for folder in FOLDERS
    for page in sorted(folder.glob("*.md" if folder != ROOT / "tests" else "*/README.md"))
}
# What stays of markup that a Git host does not know, or that is not closed.
LEFTOVERS = {
    "a directive": r'<pre lang="\{[^"]*"',
    "a role": r"\{[a-z-]+\}<code>",
    "a fence of MyST": r"<p>:::",
    "a comment of MyST": r"<p>% ",
    "a target of MyST": r"<p>\([\w-]+\)=",
    "an option of a directive": r"^:[a-z-]+:",
    "a fence": r"```",
    "a link": r"\]\(|\]\[",
    "a link without a text": r"<a href=\"[^\"]*\"></a>",
    "a row of a table": r"<p>\|",
    "bold or code": r"\*\*|(?<!`)`(?!`)",
    "a heading": r"<p>#",
    "markup of reStructuredText": r"\.\. [a-z]+::|:[a-z]+:<code>",
}
CODE = re.compile(r"(<pre[^>]*>)<code>.*?</code></pre>|<code>.*?</code>|<!--.*?-->", re.DOTALL)
HEADING = re.compile(r"<h\d>(.*?)</h\d>", re.DOTALL)
LINK = re.compile(r'<(?:a href|img src)="([^"]*)"')


def rendered(page):
    return cmarkgfm.github_flavored_markdown_to_html(page.read_text())


def anchors(page):
    """Return the anchors that GitHub gives the headings of a page."""
    found = set()
    for heading in HEADING.findall(rendered(page)):
        words = html.unescape(re.sub("<.*?>", "", heading)).lower()
        anchor, number = re.sub(r"[^\w\- ]", "", words).replace(" ", "-"), 0
        while (anchor if not number else f"{anchor}-{number}") in found:
            number += 1
        found.add(anchor if not number else f"{anchor}-{number}")
    return found


@pytest.mark.parametrize("name", SHOWN)
def test_a_git_host_shows_no_markup(name):
    """A reader of the rendered page sees none of it outside of code."""
    shown = CODE.sub(lambda m: (m[1] or "") + "<code>", rendered(SHOWN[name]))
    for what, pattern in LEFTOVERS.items():
        assert not re.findall(f"{pattern}.{{,40}}", shown, re.MULTILINE), what


@pytest.mark.parametrize("name", SHOWN)
def test_links_lead_somewhere_on_a_git_host(name):
    page = SHOWN[name]
    for link in map(html.unescape, LINK.findall(rendered(page))):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        assert not anchor or target.suffix != ".md" or anchor in anchors(target), link


def test_the_readme_is_read_in_a_minute():
    assert len(PAGES["README.md"].read_text().split()) <= 900


def test_pypi_shows_the_readme_with_links_to_the_files_of_its_version():
    page = project_page.dynamic_metadata({}, {"version": "1.2"})
    shown = cmarkgfm.github_flavored_markdown_to_html(page["readme"]["text"])
    start, kinds = project_page.ADDRESS, set()
    for link in [*LINK.findall(shown), *page["urls"].values()]:
        if link.startswith(start):
            kind, _, file = link.removeprefix(start).partition("/v1.2/")
            path = ROOT / file.partition("#")[0]
            assert path.exists() if file else kind in ("", "/issues"), link
            kinds.add(kind)
        else:
            assert link.startswith("https:"), link
    assert kinds == {"", "/blob", "/raw", "/issues"}
