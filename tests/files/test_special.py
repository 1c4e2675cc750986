"""Files that are not files on a disk are refused by every reader, and none waits for them."""

import builtins
import os
import socket
import subprocess
import sys

import pytest

import rnnlayout as rl
from rnnlayout._files.formats.registry import readable_suffixes

FORMATS = [None, *(suffix[1:] for suffix in readable_suffixes())]
SPEC = rl.Spec("lstm", 3, 2)
# The kernel's files: regular ones without a size, or with one that is not that of their content,
# which cannot be mapped into memory; /proc/self/mem cannot even be read from its beginning.
KERNELS = ["/proc/self/environ", "/proc/self/maps", "/proc/self/mem", "/proc/self/clear_refs",
           "/sys/devices/system/cpu/online"]  # fmt: skip


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("path", KERNELS)
def test_a_file_of_the_kernel(path, format):
    """mmap's ValueError, and an OSError of several others, were raised as they were."""
    spec = SPEC if format in ("bin", "npy") else None
    with pytest.raises(rl.FileError) as raised:
        rl.load(path, spec, format=format)
    if path.startswith("/proc"):
        assert str(raised.value) == (
            f"{path} has 0 bytes: it is empty, or a file of the kernel as in /proc, whose content"
            " must be copied to a file on a disk"
        )


@pytest.mark.parametrize("format", ["bin", "pt", "index", "msgpack", "params", "safetensors"])
def test_what_cannot_be_mapped(format):
    """Most of these readers map the file before they look at it."""
    path = "/sys/devices/system/cpu/online"
    with pytest.raises(rl.FileError, match=r"mapped into memory: .*: copy it to a file on a disk"):
        rl.load(path, SPEC if format == "bin" else None, format=format)


@pytest.mark.parametrize("format", FORMATS)
def test_an_empty_file(format, tmp_path):
    path = tmp_path / "empty"
    path.touch()
    with pytest.raises(rl.FileError, match="empty has 0 bytes: it is empty, or"):
        rl.load(path, SPEC if format in ("bin", "npy") else None, format=format)


WAITS = """
import sys, rnnlayout as rl
for path in sys.argv[1:]:
    try:
        rl.load(path)
    except rl.FileError as error:
        print(error)
"""


def test_what_is_not_a_regular_file_is_not_waited_for(tmp_path):
    fifo, folder, link = tmp_path / "a.pt", tmp_path / "b.pt", tmp_path / "c.pt"
    os.mkfifo(fifo)
    folder.mkdir()
    link.symlink_to("/dev/zero")
    end = socket.socket(socket.AF_UNIX)
    end.bind(str(tmp_path / "d.pt"))
    paths = [str(one) for one in (fifo, folder, link, tmp_path / "d.pt", "/dev/full")]
    done = subprocess.run([sys.executable, "-c", WAITS, *paths], stdout=subprocess.PIPE, text=True,
                          timeout=60, check=True)  # fmt: skip
    assert done.stdout.splitlines() == [f"{path} is not a regular file" for path in paths]


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
