"""Settings in a file whose values are of the wrong kind: an input error, not a bug."""

import re

import numpy as np
import pytest
from files.hostile.tensor_sets import SETTINGS
from files.keras.comparison import changed, layer_of
from oracles import some

import rnnlayout as rl

SPEC = rl.Spec("lstm", 5, 3, bidirectional=True)


@pytest.mark.parametrize("key, value, need", [
    *((key, value, "") for key, value in SETTINGS), ("go_backwards", np.True_, "need bool or int"),
])  # fmt: skip
@pytest.mark.parametrize("suffix", [".h5", ".keras", ".weights.h5", ".npz", ".bin", ".h"])
def test_a_setting_of_the_wrong_kind_is_not_saved(tmp_path, suffix, key, value, need):
    """Nor read: hostile/tensor_sets.py."""
    layout = "cudnn" if suffix in (".bin", ".h") else "keras"
    w = rl.Weights(some.normal_weights(rl.layout("keras"), SPEC)).to(layout)
    w.config = {key: value}
    with pytest.raises(rl.LayoutError, match=f"config has {key}.*{need}"):
        rl.save(tmp_path / f"a{suffix}", w)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", [[1], {"a": 1}, 1])
def test_a_merge_mode_in_a_keras_config(tmp_path, value):
    w = rl.Weights(some.normal_weights(rl.layout("keras"), SPEC), SPEC, "keras")
    rl.save(tmp_path / "a.h5", w)
    path = changed(tmp_path / "a.h5", tmp_path,
                   lambda c: layer_of(c, 1)["config"].update(merge_mode=value))  # fmt: skip
    with pytest.raises(rl.FileError, match="merge_mode"):
        rl.load(path)


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
