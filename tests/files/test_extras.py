"""Without the package of an extra: what is still read, and how the error says to install it."""

import sys

import pytest
from files.hostile.good import good, weights

import rnnlayout as rl


@pytest.mark.parametrize("suffix, package, extra, is_read", [
    (".h5", "h5py", "h5", True), (".weights.h5", "h5py", "h5", True),
    (".keras", "h5py", "h5", True), (".pt", "torch", "torch", True),
    (".onnx", "onnx", "onnx", False),
])  # fmt: skip
def test_without_a_package(suffix, package, extra, is_read, tmp_path, monkeypatch):
    path, new = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    path.write_bytes(good(suffix))
    given, to = weights("keras"), {".pt": "torch", ".onnx": "onnx"}.get(suffix, "keras")
    monkeypatch.setitem(sys.modules, package, None)
    refused = [lambda: rl.save(new, given.to(to))]
    if is_read:
        assert list(rl.load(path)) == ["lstm"]
        if suffix == ".pt":  # a Keras model without another kind of layer is only copied
            refused.append(lambda: rl.convert_file(path, new, to="keras"))
    else:
        refused.append(lambda: rl.load(path))
    for call in refused:
        with pytest.raises(rl.MissingExtraError, match=rf'pip install "rnnlayout\[{extra}\]"'):
            call()
    assert list(tmp_path.iterdir()) == [path]
