"""tools/fuzz sees what it looks for."""

import re
import subprocess
import sys

from commands import ROOT


def fuzz(*options):
    command = [sys.executable, ROOT / "tools" / "fuzz", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_files_without_a_finding():
    done = fuzz("--files", "20", ".npz", ".h5")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\.h5 +20 files: .*\n0 findings", done.stdout)


def test_a_finding():
    """After each a new process reads the next file."""
    done = fuzz("--files", "2", "--sin", "abort", ".npz")
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.count("SIGABRT") == 2 and "2 findings" in done.stdout
