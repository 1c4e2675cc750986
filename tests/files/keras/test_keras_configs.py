"""Configs in Keras files: a Lambda layer is named when its model is converted, because its code is
copied; the text is UTF-8."""

import json

import keras
import pytest
import tf_keras
from files.hostile.good import archive, good, members
from files.hostile.hdf5 import edited

import rnnlayout as rl

LAMBDA = {"class_name": "Lambda", "module": "keras.layers", "registered_name": None,
          "config": {"name": "code", "function": "4wEAAA=="}}  # fmt: skip
INNER = {"class_name": "Functional", "config": {"name": "inside", "layers": [LAMBDA]}}


def keras_archive(node):
    parts = members(good(".keras"))
    model = json.loads(parts["config.json"])
    model["config"]["layers"].append(node)
    return archive(parts | {"config.json": json.dumps(model).encode()})


def legacy_file(node):
    def change(file):
        model = json.loads(file.attrs["model_config"])
        model["config"]["layers"].append(node)
        file.attrs["model_config"] = json.dumps(model)

    return edited(good(".h5"), change)


@pytest.mark.parametrize("node", [LAMBDA, INNER], ids=["in the model", "in a model inside"])
@pytest.mark.parametrize("make, suffix", [(keras_archive, ".keras"), (legacy_file, ".h5")])
def test_it_is_named(make, suffix, node, tmp_path):
    old, new, pt = tmp_path / f"old{suffix}", tmp_path / f"new{suffix}", tmp_path / "a.npz"
    old.write_bytes(make(node))
    rl.save(pt, rl.load(old))
    for result in (
        rl.convert_file(old, new, to="keras"),
        rl.convert_file(pt, new, into=old, force=True),
    ):
        notes = [note for note in result.notes if "Lambda" in note]
        assert len(notes) == 1 and "'code'" in notes[0]


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
@pytest.mark.filterwarnings("ignore::UserWarning:keras")
def test_keras_refuses_it_in_its_safe_mode(suffix, tmp_path):
    """Of .h5 since Keras 3.11.3 (CVE-2025-9905); Keras 2 runs its code even with safe_mode."""
    old, new = tmp_path / f"old{suffix}", tmp_path / f"new{suffix}"
    code = keras.layers.Lambda(lambda x: x, output_shape=(3,))
    keras.Sequential([keras.Input((4, 5)), keras.layers.LSTM(3), code]).save(old)
    assert any("Lambda" in note for note in rl.convert_file(old, new, to="keras").notes)
    with pytest.raises(ValueError, match=r"lambda.*safe_mode|unsafe"):
        keras.models.load_model(new)


def test_keras_2_runs_it_in_its_safe_mode(tmp_path):
    code = tf_keras.layers.Lambda(lambda x: x, name="lambda")
    model = tf_keras.Sequential([tf_keras.Input((4, 5)), tf_keras.layers.LSTM(3), code])
    model.save(tmp_path / "a.h5")
    assert tf_keras.models.load_model(tmp_path / "a.h5", safe_mode=True).layers[-1].name == "lambda"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32-be"])
def test_a_config_is_utf8(encoding, tmp_path):
    """json.loads() guesses other encodings, which Keras never writes."""
    parts, path = members(good(".keras")), tmp_path / "a.keras"
    text = parts["config.json"].decode()
    path.write_bytes(archive(parts | {"config.json": text.encode(encoding)}))
    with pytest.raises(rl.FileError, match=r"config\.json is malformed"):
        rl.load(path)
