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


def refused(layout, suffix, spec, config, tmp_path):
    with pytest.raises((rl.LayoutError, rl.LossyError)) as error:
        rl.save(tmp_path / f"a{suffix}", some_weights(layout, spec, config))
    return str(error.value)


def test_what_is_refused(tmp_path):
    """Everything else above is saved."""
    hard = rl.Spec("lstm", WIDTH, UNITS, recurrent_activation="hard_sigmoid_keras2")
    bfloat16 = rl.Spec("lstm", WIDTH, UNITS, dtype="bfloat16")
    plain = rl.Spec("lstm", WIDTH, UNITS)
    for suffix in (".h5", ".keras"):
        assert "0.2 x + 0.5" in refused("keras", suffix, hard, {}, tmp_path)
        assert "stateful" in refused("keras", suffix, plain, {"stateful": True}, tmp_path)
    assert "bfloat16" in refused("keras", ".h5", bfloat16, {}, tmp_path)
    assert "bfloat16" in refused("keras-cudnn", ".h5", bfloat16, {}, tmp_path)


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
