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


@pytest.mark.parametrize(("ci", "status"), [("true", 1), ("", 0)])
def test_skipped_tests_fail_in_ci_alone(tmp_path, ci, status):
    code, lines = run(tmp_path, "skip", ci=ci)
    assert code == status, lines
    assert ("CI is set and 1 skipped: that fails the run" in lines) == bool(ci)


@pytest.mark.parametrize("processes", [[], ["-n", "2"]], ids=["one process", "two processes"])
def test_the_last_line_counts_what_is_left_out(tmp_path, processes):
    code, lines = run(tmp_path, "download", *processes)
    assert code == 0 and lines[-2].startswith("1 passed")
    assert lines[-1] == (
        '2 long tests and downloads left out; to run them: python -m pytest -m "long or download"'
    )


def test_the_last_line_counts_nothing_else(tmp_path):
    for options, passed in ((["-m", "long or download"], 2), (["-m", "", "-k", "runs"], 1)):
        assert run(tmp_path, "download", *options)[1][-1].startswith(f"{passed} passed")
