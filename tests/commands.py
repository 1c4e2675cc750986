"""Where the repository is, and how a test runs a command."""

import subprocess
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent


def run(command, **options):
    """Run a command and return what it printed. Any exit status but 0 fails the test."""
    done = subprocess.run(
        [str(part) for part in command], text=True, capture_output=True, check=False, **options
    )
    if done.returncode != 0:
        pytest.fail(f"{command} exited with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout
