"""Keras files that are odd but honest; hostile/hdf5.py makes the hostile ones."""

import json
import sys

import h5py
import numpy as np
import pytest
from files.hostile.good import good, weights

import rnnlayout as rl

KERNEL = "model_weights/lstm/lstm/lstm_cell/kernel"


@pytest.fixture
def file(tmp_path):
    """A good .h5 file, open to be changed."""
    path = tmp_path / "a.h5"
    path.write_bytes(good(".h5"))
    with h5py.File(path, "r+") as file:
        yield file


def closed(file):
    path = file.filename
    file.close()
    return path


@pytest.mark.parametrize("how", [
    {"compression": "gzip"}, {"compression": "gzip", "shuffle": True}, {"shuffle": True}, {},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("chunks", [(5, 12), (2, 5)], ids=str)
def test_honest_arrays_are_read(file, how, chunks):
    """In chunks or not, in the other byte order."""
    value = file[KERNEL][()]
    del file[KERNEL]
    file.create_dataset(KERNEL, data=value.astype(">f4"), chunks=chunks, **how)
    found = rl.load(closed(file))["lstm"]
    assert np.array_equal(found["kernel"], value) and found["kernel"].dtype.isnative


def test_without_h5py(tmp_path, monkeypatch):
    """Files are read without h5py, and written with it."""
    files = {suffix: good(suffix) for suffix in (".h5", ".weights.h5", ".keras")}
    monkeypatch.setitem(sys.modules, "h5py", None)
    for suffix, data in files.items():
        path = tmp_path / f"a{suffix}"
        path.write_bytes(data)
        assert list(rl.load(path)) == ["lstm"]
        with pytest.raises(rl.MissingExtraError, match=r'pip install "rnnlayout\[h5\]"'):
            rl.save(tmp_path / f"b{suffix}", weights("keras"))
        assert not (tmp_path / f"b{suffix}").exists()


@pytest.mark.parametrize("backward", [{"class_name": "Dense"}, {"class_name": "Bidirectional"}])
def test_a_backward_layer_of_another_class(file, backward):
    """This was a KeyError."""
    model = json.loads(file.attrs["model_config"])
    lstm = model["config"]["layers"][1]
    both = {"name": "lstm", "layer": dict(lstm), "backward_layer": {**backward, "config": {}}}
    lstm.update(class_name="Bidirectional", config=both)
    file.attrs["model_config"] = json.dumps(model)
    with pytest.raises(rl.LossyError, match=f"is a cell of class '{backward['class_name']}'"):
        rl.load(closed(file))
