"""The pages are right: code and its output, tables, examples in docstrings, links."""

import doctest
import importlib
import re
import sys
from inspect import getsource, isclass
from xml.etree import ElementTree

import pytest
from commands import ROOT
from marks import long

import rnnlayout as rl

sys.path.insert(0, str(ROOT / "tools"))

import charts
import notebooks
import pictures
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
    for block, printed in run_pages.run(PAGES[page]):
        if block.said is not None:
            assert printed == block.said, f"{page}:{block.line}; tools/run_pages.py --write"


def test_no_python_of_a_page_is_left_out():
    """Every block marked as Python is found; an indented or misspelt fence would be missed."""
    for name, page in PAGES.items():
        text = page.read_text()
        marked = re.findall(r"```\s*(?:python|py)\b(?! not-run)", text)
        assert len(run_pages.blocks(text)) == len(marked), name


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


def test_first_example_of_the_readme_is_short():
    first = run_pages.blocks(PAGES["README.md"].read_text())[0]
    assert len(first.code.splitlines()) <= 10
    assert first.said


def test_files_that_pages_include_exist():
    """test_git_host.py follows the links."""
    for page in PAGES.values():
        for file in re.findall(r"^<!-- sphinx {literalinclude} (\S+)$", page.read_text(), re.M):
            assert (page.parent / file).exists(), (page, file)


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
