"""Files of paddle.save(), recorded by tests/data/record_paddle_file.py."""

from pathlib import Path

import numpy as np
import pytest
from files.hostile.products import arrays_again
from files.outputs import assert_computes
from oracles.reference import Run

import rnnlayout as rl

DATA = Path(__file__).parents[2] / "data"
ENCODER, DECODER = rl.Spec("lstm", 5, 3, 2, True), rl.Spec("gru", 6, 4)


def test_the_rnns_compute_what_paddle_computed():
    found = rl.load(DATA / "paddle.pdparams")
    specs = {name: weights.spec for name, weights in found.items()}
    assert specs == {"encoder": ENCODER, "decoder": DECODER}
    with np.load(DATA / "paddle-run.npz") as run:  # (N, T, ...)
        x, y, z = (run[name].swapaxes(0, 1) for name in "xyz")
        assert_computes(found["encoder"], Run(y, run["h"], run["c"]), x)
        assert_computes(found["decoder"], Run(z, run["last"]), y)


def test_parameters_that_are_there_twice():
    """0.cell_fw.weight_ih is weight_ih_l0."""
    found = rl.load(DATA / "paddle-encoder.pdparams")
    assert list(found) == ["lstm"] and not found.others
    assert found["lstm"] == rl.load(DATA / "paddle.pdparams")["encoder"]
    assert any("cell_bw" in note for note in found.notes)


def test_what_else_is_in_the_file(tmp_path):
    found = rl.load(DATA / "paddle.pdparams")
    assert found.others == ("mean",)
    new = tmp_path / "a.safetensors"
    done = rl.convert_file(DATA / "paddle.pdparams", new, to="torch")
    assert "epoch" in done.left_out and not any("Structured" in name for name in done.left_out)
    again = rl.load(new)
    assert again["encoder"] == found["encoder"] and again.others == ("mean",)
    assert b'"mean":{"dtype":"BF16"' in new.read_bytes()


def test_a_budget_that_was_reported_as_a_wrong_suffix(tmp_path):
    path = tmp_path / "a.pdparams"
    path.write_bytes(arrays_again(4800))
    with pytest.raises(rl.FileError, match="bytes of arrays, more than"):
        rl.load(path)
