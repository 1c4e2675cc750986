"""Files that are not files on a disk are refused by every reader, and none waits for them."""

import builtins

import pytest

import rnnlayout as rl

SPEC = rl.Spec("lstm", 3, 2)


@pytest.mark.parametrize("format", ["bin", "pt", "index", "msgpack", "params", "safetensors"])
def test_what_cannot_be_mapped(format):
    """Most of these readers map the file before they look at it."""
    path = "/sys/devices/system/cpu/online"
    with pytest.raises(rl.FileError, match=r"mapped into memory: .*: copy it to a file on a disk"):
        rl.load(path, SPEC if format == "bin" else None, format=format)


@pytest.mark.parametrize("suffix", ["pt", "safetensors", "npz", "h5", "onnx"])
def test_a_file_that_may_not_be_read(suffix, tmp_path, monkeypatch):
    """root may read every file."""
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(b"a")

    def refused(file, *arguments, **options):
        if str(file) == str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return true_open(file, *arguments, **options)

    true_open = builtins.open
    monkeypatch.setattr(builtins, "open", refused)
    with pytest.raises(rl.FileError, match="cannot be read: Permission denied"):
        rl.load(path)
