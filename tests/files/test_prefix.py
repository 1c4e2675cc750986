"""prefix=: what is under it, and what is not."""

import json

import numpy as np
import pytest
from oracles.some import normal_weights

import rnnlayout as rl
from rnnlayout._cli import main as _cli

SPEC = rl.Spec("lstm", 3, 2)
NAMES = ("LSTM_1_forward", "LSTM_1_backward", "LSTM_10", "LSTM_1_forwards", "LSTM")


@pytest.fixture(params=["npz", "onnx", "keras", "h5", "weights.h5"])
def path(request, tmp_path):
    """A file with RNNs of similar names, in every kind of file."""
    path = tmp_path / f"m.{request.param}"
    layout = {"npz": "torch", "onnx": "onnx"}.get(request.param, "keras")
    weights = rl.Weights(normal_weights(rl.layout("keras"), SPEC)).to(layout)
    rl.save(path, dict.fromkeys(NAMES, weights))
    return path


def test_a_prefix_has_both_directions_and_no_other_rnn(path):
    assert sorted(rl.load(path, prefix="LSTM_1")) == ["LSTM_1_backward", "LSTM_1_forward"]
    for name in NAMES:
        assert list(rl.load(path, prefix=name)) == [name]
    with pytest.raises(rl.FileError, match="did you mean 'LSTM_10'"):
        rl.load(path, prefix="LSTM_100")


def test_tensors_of_other_rnns_are_no_tensors_of_no_rnn(path, capsys):
    assert _cli.main(["inspect", str(path), "--prefix", "LSTM_10", "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["files"]
    assert [one["name"] for one in told["entries"]] == ["LSTM_10"] and told["others"] == []


def test_the_rest_of_a_name_is_not_a_direction(tmp_path):
    tensors = normal_weights(rl.layout("torch"), SPEC)
    for wrong in ("LSTM_1forward", "LSTM_1_forward_more", "_forward"):
        np.savez(tmp_path / "m.npz", **{f"{wrong}.{name}": one for name, one in tensors.items()})
        with pytest.raises(rl.FileError, match="no recurrent layer found under 'LSTM_1'"):
            rl.load(tmp_path / "m.npz", prefix="LSTM_1")


def test_a_conversion_names_the_other_rnns_it_leaves_out(path, tmp_path):
    """Not their tensors, which also have no RNN if the prefix is not known."""
    done = rl.convert_file(path, tmp_path / "new.bin", to="cudnn", prefix="LSTM_10")
    assert list(done.reports) == ["LSTM_10"]
    assert sorted(done.left_out) == sorted({*NAMES} - {"LSTM_10"})
    assert rl.convert_file(
        path, tmp_path / "only.bin", to="cudnn", only=["LSTM_10"]
    ).left_out == done.left_out  # fmt: skip
