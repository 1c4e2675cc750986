"""tools/fuzz sees what it looks for. Needs tools/requirements.txt and an install without -e."""

import re
import subprocess
import sys

import pytest
from commands import ROOT

pytestmark = pytest.mark.long


def fuzz(*options):
    command = [sys.executable, ROOT / "tools" / "fuzz", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_files_without_a_finding():
    done = fuzz("--seconds", "15", ".npz", ".h5", ".pb")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\.pb +\d+ files: .*FileError.*\n0 findings", done.stdout), done.stdout
    (reached,) = re.findall(r"files .*cov: (\d+)", done.stdout)
    assert int(reached) > 500, done.stdout  # 1,300: Atheris has instrumented the readers


@pytest.mark.parametrize("sin, says", [("abort", "deadly signal"), ("time", "seconds of CPU time")])
def test_a_finding(sin, says):
    """After each it goes on with the other formats; a finding can be run again."""
    done = fuzz("--seconds", "30", "--sin", sin, ".npz", ".npy")
    assert done.returncode == 1, done.stdout + done.stderr
    assert says in done.stdout and "2 findings" in done.stdout, done.stdout
    again = fuzz("--sin", sin, re.findall(r"\S+", done.stdout)[-1])
    assert again.returncode != 0 and says in again.stdout + again.stderr
