"""A published file that Keras 3 cannot read, and the example that converts it.

A plain run downloads nothing: it takes the one layer that is stored in examples/data. What other
published weights compute: cli/test_real.py.
"""

import os
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import h5py
import keras
import pytest
import tf_keras
from commands import ROOT
from marks import download

import rnnlayout as rl

sys.path.insert(0, str(ROOT / "examples"))

import checkpoints
import real_checkpoints
import recurrence

EXAMPLES = ROOT / "examples"


@pytest.mark.parametrize("source", [download("fetched"), "in the repository"])
def test_tf_keras_converts_the_file_to_the_same_bits_and_keras_3_does_not_read_it(source, tmp_path):
    """tf_keras turns CuDNNLSTM weights into those of an LSTM when it loads them."""
    fetched = source == "fetched"
    path = tmp_path / "weights.hdf5"
    path.write_bytes(checkpoints.fetch(checkpoints.TEXTGENRNN) if fetched
                     else checkpoints.SMALL.read_bytes())  # fmt: skip
    with h5py.File(path, "r") as file:
        layers = real_checkpoints.read_layers(file)
    weights = rl.stack(rl.Weights(layer, layout="keras-cudnn") for layer in layers)

    def model(kit):
        rnns = [kit.layers.LSTM(128, return_sequences=True, name=f"rnn_{k + 1}")
                for k in range(weights.spec.num_layers)]  # fmt: skip
        return kit.Sequential([kit.Input((None, weights.spec.input_size)), *rnns])

    read = model(tf_keras)
    read.load_weights(path, by_name=True)
    ours, theirs = weights.to("keras").values(), read.get_weights()
    assert [a.tobytes() for a in ours] == [a.tobytes() for a in theirs]
    with pytest.raises(ValueError, match="shape"):
        model(keras).load_weights(path, by_name=True)


def run_example(folder, *args, **env):
    return subprocess.run(
        [sys.executable, folder / "real_checkpoints.py", *args],
        capture_output=True, text=True, env=os.environ | env, check=False,
    )  # fmt: skip


@pytest.mark.download
def test_the_example_runs():
    done = run_example(EXAMPLES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("all outputs agree\n")
    assert not done.stderr


def test_the_example_runs_without_the_packages(tmp_path):
    """A copy without kept files, and a package index that does not exist."""
    for path in ["real_checkpoints.py", "recurrence.py", "checkpoints.py", "checkpoints.txt"]:
        (tmp_path / path).write_bytes((EXAMPLES / path).read_bytes())
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / checkpoints.SMALL.name).write_bytes(checkpoints.SMALL.read_bytes())
    done = run_example(tmp_path, PIP_CONFIG_FILE=os.devnull, PIP_INDEX_URL="http://127.0.0.1:9",
                       PIP_EXTRA_INDEX_URL="", PIP_FIND_LINKS="")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "examples/data/textgenrnn_rnn1.hdf5" in done.stdout
    assert "g2p-en: left out" in done.stdout


def test_the_example_fails_when_weights_are_wrong(monkeypatch, capsys):
    """Two gates of the torch form are exchanged."""
    monkeypatch.setattr(
        real_checkpoints, "read_torch", lambda w, gates: recurrence.read_torch(w, "figo")
    )
    monkeypatch.setenv("RNNLAYOUT_OFFLINE", "1")
    assert real_checkpoints.main("word", offline=True) == 1
    assert "1 comparisons FAILED" in capsys.readouterr().out
