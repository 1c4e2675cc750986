"""Models of which a part is in another file: those beyond the limit of 2 GB, which is lowered here,
and copies of what torch.onnx.export writes."""

import numpy as np
import onnx
import pytest
import torch
from files.onnx.test_exported import export, run_file
from files.outputs import assert_computes
from oracles.frameworks import H, I, N, T, inputs, normal, onnx_tensors, seeded, torch_module
from oracles.reference import Run

import rnnlayout as rl
from rnnlayout._files.formats.onnx import write as writer
from rnnlayout._files.write_file import convert_into

SPEC = rl.Spec("lstm", I, H, 2, True)


def weights():
    return rl.Weights(onnx_tensors(SPEC, seeded("large")), SPEC, "onnx")


@pytest.fixture
def beyond(monkeypatch):
    """Every model of a test is beyond the limit."""
    monkeypatch.setattr(writer, "LARGEST", 5_000)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_model_beyond_the_limit(dtype, tmp_path, beyond):
    """It was refused after all work was done."""
    large = weights().to("onnx", dtype=dtype)
    rl.save(tmp_path / "m.onnx", large)
    assert names(tmp_path) == ["m.onnx", "m.onnx.data"]
    assert rl.load(tmp_path / "m.onnx")["lstm"] == large
    made = onnx.load(tmp_path / "m.onnx")  # which reads both
    onnx.checker.check_model(tmp_path / "m.onnx", full_check=True)
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in made.graph.initializer}
    assert all(stored[f"lstm/{n}"].tobytes() == array.tobytes() for n, array in large.items())
    alone = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    places = [{e.key: e.value for e in t.external_data} for t in alone.graph.initializer]
    assert any(places) and not all(places)  # the small ones are in the model
    assert all(int(one["offset"]) % 64 == 0 for one in places if one)


def test_onnxruntime_runs_both_files(tmp_path, beyond):
    large, given = weights(), inputs(seeded("large inputs"), SPEC)
    rl.save(tmp_path / "m.onnx", large)
    assert_computes(large, Run(*run_file(tmp_path / "m.onnx", *given)), *given)


def test_the_limit_is_that_of_the_whole_file(tmp_path, monkeypatch):
    rl.save(tmp_path / "m.onnx", weights())
    size = (tmp_path / "m.onnx").stat().st_size
    monkeypatch.setattr(writer, "LARGEST", size)
    rl.save(tmp_path / "fits.onnx", weights())
    assert names(tmp_path) == ["fits.onnx", "m.onnx"]
    monkeypatch.setattr(writer, "LARGEST", size - 1)
    rl.save(tmp_path / "large.onnx", weights())
    assert names(tmp_path) == ["fits.onnx", "large.onnx", "large.onnx.data", "m.onnx"]
    monkeypatch.setattr(writer, "LARGEST", 100)
    with pytest.raises(rl.FileError, match="limited to 2 GB"):
        rl.save(tmp_path / "none.onnx", weights())
    assert len(names(tmp_path)) == 4


def test_both_files_or_none(tmp_path, beyond):
    path, data = tmp_path / "m.onnx", tmp_path / "m.onnx.data"
    rl.save(tmp_path / "a.npz", weights())
    data.write_bytes(b"mine")
    with pytest.raises(FileExistsError, match=r"m\.onnx\.data already exists"):
        rl.convert_file(tmp_path / "a.npz", path, to="onnx")
    assert names(tmp_path) == ["a.npz", "m.onnx.data"] and data.read_bytes() == b"mine"
    rl.convert_file(tmp_path / "a.npz", path, to="onnx", force=True, dry_run=True)
    assert names(tmp_path) == ["a.npz", "m.onnx.data"] and data.read_bytes() == b"mine"
    rl.convert_file(tmp_path / "a.npz", path, to="onnx", force=True)
    assert rl.load(path)["lstm"] == weights()


def test_the_data_of_the_source_are_kept(tmp_path, beyond):
    """A model was renamed, so its data have the name that those of the new one would have."""
    rl.save(tmp_path / "m.onnx", weights())
    (tmp_path / "m.onnx").rename(tmp_path / "old.onnx")
    before = (tmp_path / "m.onnx.data").read_bytes()
    with pytest.raises(rl.FileError, match=r"m\.onnx\.data is the input"):
        rl.convert_file(tmp_path / "old.onnx", tmp_path / "m.onnx", to="onnx", force=True)
    assert names(tmp_path) == ["m.onnx.data", "old.onnx"]
    assert (tmp_path / "m.onnx.data").read_bytes() == before


# ------------------------------------------------------------------------ copies of exported models


class Model(torch.nn.Module):
    def __init__(self, label):
        super().__init__()
        self.enc = torch_module(SPEC.replace(num_layers=1), seeded(label))
        torch.manual_seed(7)
        self.fc = torch.nn.Linear(2 * H, 100)

    def forward(self, x):
        return self.fc(self.enc(x)[0])


@pytest.fixture
def exported(tmp_path):
    (tmp_path / "old").mkdir()
    return export(Model("old"), tmp_path / "old" / "m.onnx", torch.zeros(T, N, I))


def test_a_conversion_is_one_file(exported, tmp_path):
    rl.convert_file(exported, tmp_path / "new.onnx", to="onnx")
    rl.convert_file(exported, tmp_path / "new.npz", to="torch")
    assert names(tmp_path) == ["new.npz", "new.onnx", "old"]
    assert rl.load(tmp_path / "new.onnx") == rl.load(exported)


@pytest.mark.parametrize("large", [False, True])
def test_new_weights_in_an_exported_model(large, exported, tmp_path, monkeypatch):
    """The copy had the old model's paths, which are relative to its folder."""
    new = Model("new")
    torch.save(new.state_dict(), tmp_path / "new.pt")
    if large:
        monkeypatch.setattr(writer, "LARGEST", 13_000)
    made = tmp_path / "new.onnx"
    convert_into(tmp_path / "new.pt", made, into=exported)
    assert (tmp_path / "new.onnx.data").exists() == large
    (exported.parent / "m.onnx.data").unlink()
    x = normal(seeded("large x"), T, N, I)
    (y,) = run_file(made, x)
    with torch.no_grad():
        expected, before = (one(torch.from_numpy(x)).numpy() for one in (new, Model("old")))
    # fc sums 2 H products of numbers below 1 and weights below 1 / 4 = 1 / sqrt(2 H), each half a
    # unit off, and so are those of the RNN's steps: T steps of I + H products, below 2 H + 3 H
    error = (2 * H + 2 * T * 3 * H) * 4 * np.finfo("f4").eps
    assert np.abs(y - expected).max() < error
    assert np.abs(y - before).max() > 100 * error
