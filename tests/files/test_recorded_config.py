"""Settings in a file whose values are of the wrong kind: an input error, not a bug."""

import json

import h5py
import numpy as np
import pytest
from oracles import some

import rnnlayout as rl
from rnnlayout._cli import main as _cli
from rnnlayout._files import write_file
from rnnlayout._files.tensor_sets import record

WRONG = [
    ("merge_mode", [1]),
    ("merge_mode", {"a": 1}),
    ("go_backwards", "yes"),
    ("direction", 1),
    ("clip", [1]),
    ("initial_h", 1),
    ("initial_h", [1]),
]
SPEC = rl.Spec("lstm", 5, 3, bidirectional=True)


@pytest.mark.parametrize("key, value", WRONG)
@pytest.mark.parametrize("name", ["a.safetensors", "a.npz", "a.weights.h5", "a.bin"])
def test_a_setting_of_the_wrong_kind(tmp_path, monkeypatch, capsys, name, key, value):
    path = tmp_path / name
    layout = "cudnn" if name == "a.bin" else "keras"
    w = rl.Weights(some.normal_weights(rl.layout(layout), SPEC), SPEC, layout)
    if name == "a.bin":
        rl.save(path, w)
        beside = tmp_path / "a.bin.json"
        beside.write_text(json.dumps(json.loads(beside.read_text()) | {"config": {key: value}}))
    else:
        w.config = {key: value}
        with pytest.raises(rl.LayoutError, match=key):
            rl.save(path, w)
        assert not path.exists()
        for module in (write_file, record):
            monkeypatch.setattr(module, "check_config", lambda config: None)
        rl.save(path, w)
        monkeypatch.undo()
    with pytest.raises(rl.FileError, match=key):
        rl.load(path)
    np.save(tmp_path / "x.npy", np.zeros((2, 1, 5), "f4"))
    for command in (
        ["inspect", path],
        ["convert", path, tmp_path / "new.npz", "--to", "torch"],
        ["run", path, "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy"],
        ["verify", path, path],
    ):
        assert _cli.main([str(part) for part in command]) == 3
        assert key in capsys.readouterr().err


@pytest.mark.parametrize("value", [[1], {"a": 1}, 1])
def test_a_merge_mode_in_a_keras_config(tmp_path, value):
    w = rl.Weights(some.normal_weights(rl.layout("keras"), SPEC), SPEC, "keras")
    path = tmp_path / "a.h5"
    rl.save(path, w)
    with h5py.File(path, "r+") as file:
        text = json.dumps(value)
        config = file.attrs["model_config"].replace(
            '"merge_mode": "concat"', f'"merge_mode": {text}'
        )
        assert text in config
        file.attrs["model_config"] = config
    with pytest.raises(rl.FileError, match="merge_mode"):
        rl.load(path)


@pytest.mark.parametrize("suffix", [".h5", ".keras", ".weights.h5", ".npz", ".bin", ".h"])
def test_a_setting_of_numpys_kind(tmp_path, suffix):
    """It has no form in JSON; the error names the setting and the kind that it needs."""
    layout = "cudnn" if suffix in (".bin", ".h") else "keras"
    w = rl.Weights(some.normal_weights(rl.layout("keras"), SPEC)).to(layout)
    w.config = {"go_backwards": np.True_}
    with pytest.raises(rl.LayoutError, match=r"config has go_backwards .*True_, need bool or int"):
        rl.save(tmp_path / f"a{suffix}", w)


def test_a_harmless_setting_does_not_hinder_an_array(tmp_path):
    """stateful says when a caller keeps states: a weight space computes the same without it."""
    w = rl.Weights(some.normal_weights(rl.layout("keras"), SPEC)).to("cudnn")
    w.config = {"stateful": True}
    rl.save(tmp_path / "a.npy", w)
    assert some.same_bits(np.load(tmp_path / "a.npy"), w.tensors)
    w.config = {"stateful": True, "go_backwards": True}
    with pytest.raises(rl.LossyError, match="is used with go_backwards=True, and"):
        rl.save(tmp_path / "a.npy", w)
