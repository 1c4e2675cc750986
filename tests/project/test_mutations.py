"""A wrong letter in the table of layouts makes a test fail. For all: tools/mutate_table.py."""

import subprocess
import sys

import pytest
from commands import ROOT, TESTS

import rnnlayout as rl

sys.path.insert(0, str(ROOT / "tools"))

import mutate_table


def test_each_layout_is_compared_with_an_answer_that_is_not_ours():
    """A test that does so names the layout in ANSWERS_FOR."""
    assert mutate_table.ORACLES.keys() == rl.layouts().keys()


@pytest.mark.long
def test_the_recorded_offsets_notice_gates_but_not_what_z_means():
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "mutate_table.py", "--only",
         "^cudnn (gru gates|W and R|z flipped)", TESTS / "model" / "test_offsets.py"],
        text=True, capture_output=True, check=False,
    )  # fmt: skip
    caught = [line for line in done.stdout.splitlines() if "test_offsets.py::" in line]
    assert len(caught) == 4, done.stdout + done.stderr
    # the tool reports one that no test notices, and fails
    assert "5 mutants, 1 survived" in done.stdout and done.returncode == 1
