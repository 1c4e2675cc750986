"""Files that MXNet 1.9.1 and Paddle wrote, recorded by tests/data/record_*_file.py."""

import numpy as np
import pytest
from commands import TESTS
from files.outputs import assert_computes
from oracles.reference import Run

import rnnlayout as rl
from rnnlayout._files.formats.mxnet import FORMAT
from rnnlayout._files.tensor_sets.file_limits import InputFile

DATA = TESTS / "data"
LSTM, GRU = rl.Spec("lstm", 5, 3, 2, True), rl.Spec("gru", 6, 4)
FILES = {  # file -> what was computed from it, and the names of its RNNs
    "mxnet-0000.params": ("mxnet-run.npz", "hybridsequential0_lstm0", "hybridsequential0_gru0"),
    "mxnet-gluon.params": ("mxnet-run.npz", "0", "1"),
    "paddle.pdparams": ("paddle-run.npz", "encoder", "decoder"),
}
# mx.npx.save of {"a": ones((2, 0)), "s": array(3.0)}
NUMPY_SHAPES = bytes.fromhex(
    "1201000000000000000000000000000002000000000000"
    "00cafa93f9000000000200000002000000000000000000000000000000010000000000000000000000"
    "cafa93f90000000000000000010000000000000000000000000040400200000000000000"
    "010000000000000061010000000000000073"
)


@pytest.mark.parametrize("file", FILES)
def test_the_rnns_compute_what_the_framework_computed(file):
    run, *names = FILES[file]
    found = rl.load(DATA / file)
    assert {name: one.spec for name, one in found.items()} == dict(
        zip(names, (LSTM, GRU), strict=True)
    )
    with np.load(DATA / run) as run:  # (N, T, ...)
        x, y, z = (run[name].swapaxes(0, 1) for name in "xyz")
        states = [run[name] for name in ("h", "c", "last") if name in run]  # of Paddle
    assert_computes(found[names[0]], Run(y, *states[:2]) if states else y, x)
    assert_computes(found[names[1]], Run(z, states[2]) if states else z, y)


def test_dtypes_and_shapes_of_mxnet(tmp_path):
    tensors = FORMAT.read(InputFile(DATA / "mxnet-dtypes.params")).tensors
    assert len(tensors) == 7
    for name, tensor in tensors.items():
        assert tensor.dtype == name and np.array_equal(tensor.bits(), np.ones((2, 3)))
    (tmp_path / "a.params").write_bytes(NUMPY_SHAPES)
    tensors = FORMAT.read(InputFile(tmp_path / "a.params")).tensors
    assert tensors["a"].bits().shape == (2, 0) and tensors["s"].bits() == np.float32(3)


def test_files_of_mxnet_2(tmp_path):
    """They are archives of NumPy arrays."""
    weights = rl.load(DATA / "mxnet-gluon.params")["1"]
    with open(tmp_path / "a.params", "wb") as file:
        np.savez(file, **{f"rnn.{name}": array for name, array in weights.items()})
    assert rl.load(tmp_path / "a.params")["rnn"] == weights


def test_what_else_is_in_a_file_of_paddle(tmp_path):
    """A parameter may be there twice: 0.cell_fw.weight_ih is weight_ih_l0."""
    found, twice = (rl.load(DATA / f"{name}.pdparams") for name in ("paddle", "paddle-encoder"))
    assert dict(twice) == {"lstm": found["encoder"]} and not twice.others
    assert any("cell_bw" in note for note in twice.notes)
    assert found.others == ("mean",)
    new = tmp_path / "a.safetensors"
    done = rl.convert_file(DATA / "paddle.pdparams", new, to="torch")
    assert "epoch" in done.left_out and not any("Structured" in name for name in done.left_out)
    again = rl.load(new)
    assert again["encoder"] == found["encoder"] and again.others == ("mean",)
    assert b'"mean":{"dtype":"BF16"' in new.read_bytes()
