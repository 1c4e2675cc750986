"""Pickles of NumPy arrays, read as pickle.load() reads them and without it."""

import pickle

import ml_dtypes
import numpy as np
import pytest
import torch
from marks import in_turn, pairwise

import rnnlayout as rl
from rnnlayout._files.formats.torch import archive
from rnnlayout._files.tensor_sets.file_limits import InputFile

PROTOCOLS = [2, 3, 4, 5]


def state(cell=torch.nn.LSTM, dtype="f4", **options):
    torch.manual_seed(3)
    module = cell(5, 3, **options)
    return {name: one.detach().numpy().astype(dtype) for name, one in module.named_parameters()}


def written(path, value, protocol=5):
    path.write_bytes(pickle.dumps(value, protocol))
    return path


@pytest.mark.parametrize(
    "suffix, core, protocol",
    pairwise([".pkl", ".pickle", ".pt", "", ".model"], ["numpy.core", "numpy._core"], PROTOCOLS),
)
def test_a_dict_of_arrays(suffix, core, protocol, tmp_path):
    value = {"encoder": state(bidirectional=True), "decoder": state(torch.nn.GRU), "step": 3}
    value["words"] = np.array(["not", "read"], ">U4")
    path = written(tmp_path / f"a{suffix}", value, protocol)
    data = path.read_bytes()
    other = {"numpy.core": b"numpy._core", "numpy._core": b"numpy.core"}[core]
    if protocol < 4 or other not in data:  # lengths precede names in later protocols
        path.write_bytes(data.replace(other, core.encode()))
    found = rl.load(path)
    assert list(found) == ["encoder", "decoder"]
    assert found.notes == ["numpy.ndarray of objects or texts in 'words' was not read"]
    for name, weights in found.items():
        assert weights.spec.bidirectional == (name == "encoder")
        for tensor, array in value[name].items():
            assert weights[tensor].tobytes() == array.tobytes()


FORMS = {
    "plain": lambda a: a,
    "in Fortran order": np.asfortranarray,
    "transposed": lambda a: np.ascontiguousarray(a.T).T,
    "strided": lambda a: np.stack([a, a])[1],
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
}


@pytest.mark.parametrize(
    "form, dtype, protocol",
    pairwise([*FORMS], ["f2", "f4", "f8", ml_dtypes.bfloat16], PROTOCOLS,
             fits=lambda form, dtype, _: form != "big-endian" or isinstance(dtype, str)),
)  # fmt: skip
def test_arrays(form, dtype, protocol, tmp_path):
    right = state(dtype=dtype)
    made = {name: FORMS[form](array) for name, array in right.items()}
    found = rl.load(written(tmp_path / "a.pkl", made, protocol))["lstm"]
    assert found.spec.dtype == np.dtype(dtype).name
    assert all(found[name].tobytes() == array.tobytes() for name, array in right.items())


@pytest.mark.parametrize(
    "dtype, protocol",
    in_turn(["?", "i1", "u2", "i4", "u8", "c8", "c16", "f8"], PROTOCOLS),
)
def test_every_kind_of_number(dtype, protocol, tmp_path):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    value = {"array": array, "scalar": array[1, 2], "none": array[:0], "number": array[0].sum()}
    read = archive.read_torch_file(InputFile(written(tmp_path / "a.pkl", value, protocol)))
    assert read["scalar"] == value["scalar"] and read["number"] == value["number"]
    assert read["array"].array.tobytes() == array.tobytes() and read["none"].array.shape == (0, 3)


def test_a_list_of_arrays(tmp_path):
    keras = [np.ones((5, 12), "f4"), np.ones((3, 12), "f4"), np.ones(12, "f4")]
    path = written(tmp_path / "a.pkl", keras)
    assert rl.load(path, layout="keras")["lstm"].spec == rl.Spec("lstm", 5, 3)


def test_bytes_of_python_2(tmp_path):
    """Python 2 writes the bytes of an array, and the names, as byte strings."""
    array = np.arange(300, dtype="f8").reshape(12, 25)
    data = pickle.dumps({"weight_ih_l0": array}, 3)
    raw = array.tobytes()
    assert b"B" + len(raw).to_bytes(4, "little") + raw in data
    old = data.replace(b"B" + len(raw).to_bytes(4, "little"), b"T" + len(raw).to_bytes(4, "little"))
    old = old.replace(b"X\x0c\x00\x00\x00weight_ih_l0", b"U\x0cweight_ih_l0")
    (tmp_path / "a.pkl").write_bytes(old)
    theirs = pickle.loads(old, encoding="latin-1")
    ours = archive.read_torch_file(InputFile(tmp_path / "a.pkl"))
    assert ours["weight_ih_l0"].array.tobytes() == theirs["weight_ih_l0"].tobytes()


def test_a_checkpoint_of_torch_that_is_called_pkl(tmp_path):
    torch.save(torch.nn.GRU(5, 3).state_dict(), tmp_path / "a.pkl")
    assert list(rl.load(tmp_path / "a.pkl")) == ["gru"]


def test_tensors_that_pickle_wrote(tmp_path):
    path = written(tmp_path / "a.pkl", torch.nn.GRU(5, 3).state_dict())
    with pytest.raises(rl.FileError, match=r"_load_from_bytes.*torch\.save"):
        rl.load(path)


def test_a_copy_has_another_format(tmp_path):
    path = written(tmp_path / "a.pkl", {"enc": state(), "other": np.arange(3)})
    with pytest.raises(rl.FileError, match=r"\.pkl files are only read; files are written as"):
        rl.convert_file(path, tmp_path / "b.pkl", to="cudnn")
    rl.convert_file(path, tmp_path / "b.safetensors", to="cudnn")
    assert rl.verify(path, tmp_path / "b.safetensors")
    assert rl.load(tmp_path / "b.safetensors").others == ("other",)
    rl.convert_file(path, tmp_path / "b.pt", to="torch")
    assert torch.load(tmp_path / "b.pt", weights_only=True)["other"].tolist() == [0, 1, 2]
    with pytest.raises(rl.FileError, match="torch cannot read it"):
        rl.convert_file(path.rename(tmp_path / "a.pt"), tmp_path / "c.pt", to="cudnn")
