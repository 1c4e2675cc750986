"""Configs in Keras files: a Lambda layer is named when its model is converted, because its code is
copied; the text is UTF-8."""

import json

import pytest
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


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32-be"])
def test_a_config_is_utf8(encoding, tmp_path):
    """json.loads() guesses other encodings, which Keras never writes."""
    parts, path = members(good(".keras")), tmp_path / "a.keras"
    text = parts["config.json"].decode()
    path.write_bytes(archive(parts | {"config.json": text.encode(encoding)}))
    with pytest.raises(rl.FileError, match=r"config\.json is malformed"):
        rl.load(path)
