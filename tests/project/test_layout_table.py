"""A wrong letter in the table of layouts makes a test fail (for all: tools/mutate_table.py), and
docs/howto/add-a-framework.md, followed to the letter, is one row and one test."""

import re
import subprocess
import sys

import pytest
from commands import ROOT

import rnnlayout as rl

sys.path.insert(0, str(ROOT / "tools"))

import mutate_table
import run_pages

PAGE = (ROOT / "docs" / "howto" / "add-a-framework.md").read_text()

# an editable install of the package is found before any folder
CONFTEST = """import sys
sys.meta_path[:] = [f for f in sys.meta_path if "ScikitBuild" not in type(f).__name__]
sys.path.insert(0, {0!r})
import rnnlayout
assert rnnlayout.__file__.startswith({0!r})
"""


@pytest.mark.long
def test_the_page(tmp_path):
    (row,) = re.findall(r"^```c\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    table = (ROOT / mutate_table.FORMATS).read_text()
    last = "    /* Not listed for users"
    assert table.count(last) == 1
    test = tmp_path / "test_toy.py"
    test.write_text("".join(block.code for block in run_pages.blocks(PAGE)))
    builds = mutate_table.Builds(tmp_path)
    assert passes(test, builds.site(table.replace(last, f"{row}\n{last}")))
    exchanged = row.replace('GATES("oigf"', 'GATES("iogf"')
    assert exchanged != row
    assert not passes(test, builds.site(table.replace(last, f"{exchanged}\n{last}")))


def passes(test, site):
    """Run the page's test with the package in a folder. Return whether it passes."""
    (test.parent / "conftest.py").write_text(CONFTEST.format(str(site)))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test.name],
        cwd=test.parent, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    assert done.returncode == 0 or "Mismatched elements" in done.stdout, done.stdout
    return done.returncode == 0


def test_each_layout_is_compared_with_an_answer_that_is_not_ours():
    """A test that does so names the layout in ANSWERS_FOR."""
    assert mutate_table.ORACLES.keys() == rl.layouts().keys()
