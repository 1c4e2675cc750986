"""GitHub and PyPI show every page: as CommonMark with GitHub's tables, without Sphinx and MyST."""

import html
import re
import sys

import cmarkgfm
import pytest
from commands import ROOT

sys.path.insert(0, str(ROOT / "tools"))

import project_page

FOLDERS = (ROOT, ROOT / "docs", ROOT / "docs" / "howto", ROOT / "benchmarks", ROOT / "tests")
PAGES = {
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


def leftovers(page):
    """Return [(what it is, where)] of the markup that a reader of the rendered page sees."""
    shown = CODE.sub(lambda m: (m[1] or "") + "<code>", rendered(page))
    return [
        (what, shown[m.start() : m.end() + 40])
        for what, pattern in LEFTOVERS.items()
        for m in re.finditer(pattern, shown, re.MULTILINE)
    ]


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


@pytest.mark.parametrize("name", PAGES)
def test_a_git_host_shows_no_markup(name):
    assert leftovers(PAGES[name]) == []


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere_on_a_git_host(name):
    page = PAGES[name]
    for link in map(html.unescape, LINK.findall(rendered(page))):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        assert not anchor or target.suffix != ".md" or anchor in anchors(target), link


def test_pypi_shows_the_readme_with_links_to_the_files_of_its_version():
    page = project_page.dynamic_metadata({}, {"version": "1.2"})
    shown = cmarkgfm.github_flavored_markdown_to_html(page["readme"]["text"])
    start, kinds = project_page.ADDRESS, set()
    for link in [*LINK.findall(shown), *page["urls"].values()]:
        if link.startswith(start):
            kind, _, file = link.removeprefix(start).partition("/v1.2/")
            assert (ROOT / file).exists() if file else kind in ("", "/issues"), link
            kinds.add(kind)
        else:
            assert link.startswith("https:"), link
    assert kinds == {"", "/blob", "/raw", "/issues"}
