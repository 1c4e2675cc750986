"""Files of Keras written by rnnlayout: load() returns what save() was given."""

import h5py
import keras
import numpy as np
import pytest
from oracles import some
from oracles.frameworks import KERAS_NOISE

import rnnlayout as rl

pytestmark = KERAS_NOISE
WIDTH, UNITS = 5, 3


def some_weights(layout, spec, config):
    w = rl.Weights(some.normal_weights(rl.layout(layout), spec), spec, layout)
    w.config = config
    return w


def test_what_is_refused(tmp_path):
    plain = rl.Spec("lstm", WIDTH, UNITS)
    hard = some_weights("keras", plain.replace(recurrent_activation="hard_sigmoid_keras2"), {})
    brain = plain.replace(dtype="bfloat16")
    refused = [(hard, ".h5", "0.2 x"), (hard, ".keras", "0.2 x")]
    refused += [(some_weights(layout, brain, {}), ".h5", r"legacy \.h5 cannot store")
                for layout in ("keras", "keras-cudnn")]  # fmt: skip
    for weights, suffix, why in refused:
        with pytest.raises((rl.LayoutError, rl.LossyError), match=why):
            rl.save(tmp_path / f"a{suffix}", weights)
    assert not list(tmp_path.iterdir())


def test_keras_reads_a_file_with_records(tmp_path):
    """Keras ignores the attribute; many records do not fit into one."""
    entries = {
        f"{k:a<900}": some_weights("keras", rl.Spec("lstm", WIDTH, UNITS), {"go_backwards": True})
        for k in range(60)
    }
    x = keras.Input((None, WIDTH))
    model = keras.Model(x, [
        keras.layers.LSTM(UNITS, name=name, return_sequences=True, go_backwards=True)(x)
        for name in entries
    ])  # fmt: skip
    rl.save(tmp_path / "a.weights.h5", entries)
    with h5py.File(tmp_path / "a.weights.h5") as file:
        assert sum(name.startswith("rnnlayout") for name in file.attrs) > 1
    model.load_weights(tmp_path / "a.weights.h5")
    for name, w in entries.items():
        assert all(map(np.array_equal, w.values(), model.get_layer(name).get_weights()))
    found = rl.load(tmp_path / "a.weights.h5")
    assert dict(found) == entries
    model.save_weights(tmp_path / "b.weights.h5")
    assert not any(one.config for one in rl.load(tmp_path / "b.weights.h5").values())


def test_a_record_that_does_not_fit(tmp_path):
    path = tmp_path / "a.weights.h5"
    rl.save(path, some_weights("keras", rl.Spec("lstm", WIDTH, UNITS), {}))
    with h5py.File(path, "r+") as file:
        text = file.attrs["rnnlayout"][0].replace(b'"hidden_size": 3', b'"hidden_size": 4')
        file.attrs["rnnlayout"] = np.array([text])
    with pytest.raises(rl.FileError, match="changed after rnnlayout wrote it"):
        rl.load(path)
    with h5py.File(path, "r+") as file:
        file.attrs["rnnlayout"] = np.array([b"{"])
    with pytest.raises(rl.FileError, match="rnnlayout"):
        rl.load(path)
