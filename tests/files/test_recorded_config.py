"""Settings in a file whose values are of the wrong kind: an input error, not a bug."""

import json
import re

import h5py
import numpy as np
import pytest
from files.hostile.tensor_sets import SETTINGS
from oracles import some

import rnnlayout as rl

SPEC = rl.Spec("lstm", 5, 3, bidirectional=True)


@pytest.mark.parametrize("key, value", SETTINGS)
@pytest.mark.parametrize("name", ["a.safetensors", "a.npz", "a.weights.h5", "a.bin"])
def test_a_setting_of_the_wrong_kind_is_not_saved(tmp_path, name, key, value):
    """Nor read: hostile/tensor_sets.py."""
    layout = "cudnn" if name == "a.bin" else "keras"
    w = rl.Weights(some.normal_weights(rl.layout(layout), SPEC), SPEC, layout)
    w.config = {key: value}
    with pytest.raises(rl.LayoutError, match=key):
        rl.save(tmp_path / name, w)
    assert not list(tmp_path.iterdir())


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


@pytest.mark.parametrize(
    "suffix, layout, config",
    [
        (".npy", "cudnn", {"go_backwards": True, "clip": 3.0}),
        (".h", "cudnn", {"extra": None}),
        (".keras", "keras", {"clip": 3.0}),
    ],
)
def test_a_setting_that_a_file_cannot_have_is_left_out_as_the_error_says(
    tmp_path, suffix, layout, config
):
    """Also on the command line, where the error begins with a file."""
    w = rl.Weights(some.normal_weights(rl.layout("keras"), SPEC)).to(layout)
    path, new_path = tmp_path / "a.safetensors", tmp_path / f"b{suffix}"
    if layout == "cudnn":
        path = path.with_suffix(".bin")
    w.config = config
    rl.save(path, {"one": w})
    with pytest.raises(rl.LossyError) as caught:
        rl.convert_file(path, new_path, to=layout)
    repair = re.search(r"in Python (.*)", str(caught.value))[1]
    exec(repair, {"rl": rl, "path": path, "new_path": new_path})
    assert new_path.exists()
