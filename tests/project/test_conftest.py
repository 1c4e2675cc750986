"""How a run ends: in CI a skipped test fails it, and its last line counts what was left out."""

import os
import subprocess
import sys

import pytest
from commands import ROOT, TESTS

pytestmark = pytest.mark.long  # starts pytest six times

PROGRAM = """
import pytest
def test_runs(): pass
@pytest.mark.{mark}
def test_does_not(): pass
@pytest.mark.long
def test_more(): pass
"""


def run(folder, mark, *options, ci=""):
    """Run pytest with the project's options on three tests. Returns its exit status and lines.

    Of all plugins only pytest-xdist is loaded.
    """
    (folder / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (folder / "test_three.py").write_text(PROGRAM.format(mark=mark))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "xdist", *options,
         "-c", ROOT / "pyproject.toml", "--rootdir", folder, folder],
        env=os.environ | {"CI": ci, "PYTHONPATH": str(TESTS),
                          "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}, cwd=folder,
        text=True, capture_output=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout.splitlines()


LAST = '2 long tests and downloads left out; to run them: python -m pytest -m "long or download"'


@pytest.mark.parametrize(
    "mark, options, ci, status, line",
    [
        ("skip", [], "true", 1, "CI is set and 1 skipped: that fails the run"),
        ("skip", [], "", 0, LAST.replace("2", "1", 1)),
        ("download", [], "", 0, LAST),
        ("download", ["-n", "2"], "", 0, LAST),
        ("download", ["-m", "", "-k", "runs"], "", 0, "1 passed"),
    ],
)
def test_the_last_lines_of_a_run(tmp_path, mark, options, ci, status, line):
    code, lines = run(tmp_path, mark, *options, ci=ci)
    assert code == status, lines
    assert lines[-2 if ci else -1].startswith(line), lines
