"""A skipped test fails a run in CI, and nowhere else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(("ci", "status"), [("true", 1), ("", 0)])
def test_skipped_tests_fail_in_ci_alone(tmp_path, ci, status):
    conftest = Path(__file__).with_name("conftest.py").read_text()
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_two.py").write_text(
        "import pytest\ndef test_runs(): pass\n@pytest.mark.skip\ndef test_does_not(): pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path],
        env=os.environ | {"CI": ci},
        cwd=tmp_path,
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert ("1 skipped: that fails the run" in done.stdout) == bool(ci)
