"""The pages are right: code and its output, tables, examples in docstrings, links."""

import doctest
import importlib
import pkgutil
import re
import sys
from inspect import getsource, isclass

import pytest
from commands import ROOT

import rnnlayout as rl

sys.path.insert(0, str(ROOT / "tools"))

import pictures
import run_pages
import tables

PAGES = {str(page.relative_to(ROOT)): page for page in run_pages.pages()}
MODULES = ["rnnlayout", *(m.name for m in pkgutil.walk_packages(rl.__path__, "rnnlayout."))]


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
        assert len(run_pages.blocks(text)) == len(re.findall(r"```\s*(?:python|py)\b", text)), name


@pytest.mark.parametrize("page", tables.PAGES, ids=lambda page: page.name)
def test_tables_are_current(page):
    assert tables.MARKED.search(page.read_text())
    assert page.read_text() == tables.current(page), "run tools/tables.py --write"


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


@pytest.mark.parametrize("name", [name for name in rl.__all__ if name != "__version__"])
def test_everything_public_is_described(name):
    """In its docstring, and on the page of the Python reference."""
    assert getattr(rl, name).__doc__
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


@pytest.mark.parametrize("name", [name for name in rl.__all__ if isclass(getattr(rl, name))])
def test_every_attribute_of_a_class_is_described(name):
    """A method among the members in the reference; other attributes there, or by the class."""
    kind = getattr(rl, name)
    entry = re.search(rf":: rnnlayout\.{name}(?:\(\))?\n((?:   .*\n)*)",
                      PAGES["docs/api.md"].read_text())  # fmt: skip
    members = set(re.findall(r"\w+", entry[1]))
    words = set(re.findall(r"\w+", kind.__doc__))
    for attribute, method in public_attributes(kind).items():
        assert attribute in members or (not method and attribute in words), attribute
        if attribute in members:
            assert getattr(kind, attribute).__doc__, attribute


def test_first_example_of_the_readme_is_short():
    first = run_pages.blocks(PAGES["README.md"].read_text())[0]
    assert len(first.code.splitlines()) <= 10
    assert first.said


@pytest.mark.parametrize("page", PAGES)
def test_links_to_files_lead_somewhere(page):
    text = PAGES[page].read_text()
    links = re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", text)
    links += re.findall(r"^```{(?:literal)?include} (\S+)$", text, re.MULTILINE)
    for link in links:
        target = PAGES[page].parent / link
        assert target.exists() or target.with_suffix(".md").exists(), link


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_pictures_follow_from_the_table(name):
    shown = (pictures.IMAGES / name).read_text()
    assert shown == pictures.PICTURES[name]()  # else tools/pictures.py --write


def test_the_picture_of_gates():
    assert pictures.letters("keras")["bias"] == list("iiffggoo")
