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
    done = fuzz("--seconds", "8", ".npz", ".h5", ".pb")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\.pb +\d+ files: .*FileError.*\n0 findings", done.stdout), done.stdout
    (reached,) = re.findall(r"files .*cov: (\d+)", done.stdout)
    assert int(reached) > 500, done.stdout  # 1,300: Atheris has instrumented the readers


def test_findings():
    """After each it goes on with the other formats; a finding can be run again."""
    done = fuzz("--seconds", "30", "--sin", "abort", ".npz", ".npy")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "deadly signal" in done.stdout and "2 findings" in done.stdout, done.stdout
    again = fuzz("--sin", "abort", re.findall(r"\S+", done.stdout)[-1])
    assert again.returncode != 0 and "deadly signal" in again.stdout + again.stderr


def test_a_file_that_takes_long():
    done = fuzz("--seconds", "30", "--sin", "time", ".npy")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "seconds of CPU time" in done.stdout and "1 findings" in done.stdout, done.stdout
