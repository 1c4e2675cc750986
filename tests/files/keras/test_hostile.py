"""Keras files that are odd but honest; hostile/hdf5.py makes the hostile ones."""

import json

import h5py
import numpy as np
import pytest
from files.hostile.good import good

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


def test_an_array_in_chunks_in_the_other_byte_order(file):
    value = file[KERNEL][()]
    del file[KERNEL]
    file.create_dataset(KERNEL, data=value.astype(">f4"), chunks=(2, 5), compression="gzip")
    found = rl.load(closed(file))["lstm"]
    assert np.array_equal(found["kernel"], value) and found["kernel"].dtype.isnative


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
