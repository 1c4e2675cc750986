"""The example that converts published weights, and compares their outputs with other packages'.

A plain run downloads nothing: it takes the one layer that is stored in examples/data. What other
published weights compute: cli/test_real.py.
"""

import os
import subprocess
import sys

import pytest
from commands import ROOT, run

sys.path.insert(0, str(ROOT / "examples"))

import checkpoints
import real_checkpoints
import recurrence

EXAMPLES = ROOT / "examples"


@pytest.mark.download
def test_the_example_runs():
    done = subprocess.run([sys.executable, EXAMPLES / "real_checkpoints.py"], text=True,
                          capture_output=True, check=False)  # fmt: skip
    assert done.stdout.endswith("all outputs agree\n") and not done.stderr


def test_the_example_runs_without_the_packages(tmp_path):
    """A copy without kept files, and a package index that does not exist."""
    kept = f"data/{checkpoints.SMALL.name}"
    (tmp_path / "data").mkdir()
    for name in ("real_checkpoints.py", "recurrence.py", "checkpoints.py", "checkpoints.txt", kept):
        (tmp_path / name).write_bytes((EXAMPLES / name).read_bytes())
    nothing = dict(PIP_CONFIG_FILE=os.devnull, PIP_INDEX_URL="http://127.0.0.1:9",
                   PIP_EXTRA_INDEX_URL="", PIP_FIND_LINKS="")  # fmt: skip
    shown = run([sys.executable, tmp_path / "real_checkpoints.py"], env=os.environ | nothing)
    assert "examples/data/textgenrnn_rnn1.hdf5" in shown and "g2p-en: left out" in shown


def test_the_example_fails_when_weights_are_wrong(monkeypatch, capsys):
    """Two gates of the torch form are exchanged."""
    monkeypatch.setattr(
        real_checkpoints, "read_torch", lambda w, gates: recurrence.read_torch(w, "figo")
    )
    monkeypatch.setenv("RNNLAYOUT_OFFLINE", "1")
    assert real_checkpoints.main("word", offline=True) == 1
    assert "1 comparisons FAILED" in capsys.readouterr().out
