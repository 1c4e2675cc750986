"""tools/fuzz sees what it looks for."""

import re
import subprocess
import sys

import pytest
from commands import ROOT


def fuzz(*options):
    command = [sys.executable, ROOT / "tools" / "fuzz", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_files_without_a_finding():
    done = fuzz("--files", "20", ".npz", ".h5")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\.h5 +20 files: .*\n0 findings", done.stdout)


@pytest.mark.parametrize("sin, seen", [("abort", "SIGABRT"), ("time", "s of CPU time")])
def test_a_finding(sin, seen):
    done = fuzz("--files", "2", "--sin", sin, ".npz")
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.count(seen) == 2 and "2 findings" in done.stdout
