"""Files of MXNet 1.9.1, recorded by tests/data/record_mxnet_file.py."""

from pathlib import Path

import numpy as np
import pytest
from files.hostile.trees import nd, params
from files.outputs import assert_computes

import rnnlayout as rl
from rnnlayout._files.formats.mxnet import FORMAT
from rnnlayout._files.tensor_sets.file_limits import InputFile

DATA = Path(__file__).parents[2] / "data"
LSTM, GRU = rl.Spec("lstm", 5, 3, 2, True), rl.Spec("gru", 6, 4)
NAMES = {"mxnet-0000.params": ["hybridsequential0_lstm0", "hybridsequential0_gru0"],
         "mxnet-gluon.params": ["0", "1"]}  # fmt: skip
# mx.npx.save of {"a": ones((2, 0)), "s": array(3.0)}
NUMPY_SHAPES = bytes.fromhex(
    "1201000000000000000000000000000002000000000000"
    "00cafa93f9000000000200000002000000000000000000000000000000010000000000000000000000"
    "cafa93f90000000000000000010000000000000000000000000040400200000000000000"
    "010000000000000061010000000000000073"
)


@pytest.mark.parametrize("file, names", NAMES.items())
def test_the_rnns_compute_what_mxnet_computed(file, names):
    found = rl.load(DATA / file)
    assert {name: one.spec for name, one in found.items()} == dict(
        zip(names, (LSTM, GRU), strict=True)
    )
    with np.load(DATA / "mxnet-run.npz") as run:  # (N, T, ...)
        x, y, z = (run[name].swapaxes(0, 1) for name in "xyz")
    assert_computes(found[names[0]], y, x)
    assert_computes(found[names[1]], z, y)


def test_arrays_of_every_dtype():
    tensors = FORMAT.read(InputFile(DATA / "mxnet-dtypes.params")).tensors
    assert len(tensors) == 7
    for name, tensor in tensors.items():
        assert tensor.dtype == name and np.array_equal(tensor.bits(), np.ones((2, 3)))


def test_shapes_as_numpy_has_them(tmp_path):
    (tmp_path / "a.params").write_bytes(NUMPY_SHAPES)
    tensors = FORMAT.read(InputFile(tmp_path / "a.params")).tensors
    assert tensors["a"].bits().shape == (2, 0) and tensors["s"].bits() == np.float32(3)


def test_a_damaged_array(tmp_path):
    (tmp_path / "a.params").write_bytes(params(nd((2, -1, 0))))
    with pytest.raises(rl.FileError, match=r"array 0: shape \(2, -1, 0\) or dtype 0 is damaged"):
        rl.load(tmp_path / "a.params")


def test_files_of_mxnet_2(tmp_path):
    """They are archives of NumPy arrays."""
    weights = rl.load(DATA / "mxnet-gluon.params")["1"]
    with open(tmp_path / "a.params", "wb") as file:
        np.savez(file, **{f"rnn.{name}": array for name, array in weights.items()})
    assert rl.load(tmp_path / "a.params")["rnn"] == weights
