"""What commands write: never over an input, over another file only with --force, and whole or not
at all."""

import contextlib
import os
import resource
import subprocess
import sys

import numpy as np
import pytest
from oracles.some import normal_weights

import rnnlayout as rl

SPEC = rl.Spec("gru", 3, 16, 2)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Files with an RNN, and what it makes of x."""
    monkeypatch.chdir(tmp_path)
    weights = normal_weights("torch", SPEC)
    for name in ("a.npz", "m.npz"):
        np.savez(name, **weights)
    np.save("flat.npy", rl.pack(weights))
    x = np.random.default_rng(0).normal(size=(5, 64, 3)).astype("f4")
    np.save("x.npy", x)
    np.save("step.npy", x[:1])
    np.save("y.npy", rl.forward(x, weights)[0])
    return tmp_path


RUN = ["run", "a.npz", "--input", "x.npy", "--output"]
IDENTIFY = ["identify", "m.npz", "--input", "x.npy", "--output", "y.npy", "--save"]
# a command that ends with its output, and an input that may not be this output
OVER = [
    (["convert", "a.npz", "--to", "torch"], "a.npz"),
    (["convert", "a.npz", "--into", "m.npz"], "m.npz"),
    (RUN, "x.npy"),
    ([*RUN, "new.npy", "--states"], "a.npz"),
    (["diagnose", "flat.npy", "--like", "m.npz", "--fix"], "flat.npy"),
    (IDENTIFY, "m.npz"),
    (["verify", "a.npz", "m.npz", "--svg"], "m.npz"),
    (["diagnose", "flat.npy", "--like", "m.npz", "--svg"], "m.npz"),
    (["map", "a.npz", "--svg"], "a.npz"),
]


@pytest.mark.parametrize("command, name", OVER)
def test_an_output_is_not_an_input_nor_a_file_that_exists(rnnlayout, folder, command, name):
    suffix = ".svg" if "--svg" in command else os.path.splitext(name)[1]
    if "--fix" in command:  # it needs a mistake
        np.save("flat.npy", np.load("flat.npy").byteswap())
    os.link(name, f"hard{suffix}")
    os.symlink(name, f"soft{suffix}")
    (folder / "x").mkdir()
    (folder / f"other{suffix}").write_bytes(b"other")
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}

    def write(out, *more):
        words = [*command[:2], out, *command[2:]] if command[0] == "convert" else [*command, out]
        code, _, err = rnnlayout(*words, *more)
        return code, err

    for out in (name, f"./x/../{name}", f"hard{suffix}", f"soft{suffix}"):
        code, err = write(out, "--force")
        assert code == 3 and "is the input" in err, out
    code, err = write(f"other{suffix}")
    assert code == 3 and "already exists" in err and "--force" in err
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    assert write(f"other{suffix}", "--force")[0] in (0, 1)
    assert (folder / f"other{suffix}").read_bytes() != b"other"


@contextlib.contextmanager
def room_for(nbytes):
    """Let a file have so many bytes at most."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


CONVERT = ["convert", "a.npz"]
STEP = ["run", "a.npz", "--input", "step.npy", "--output", "y1.npy", "--states", "s.npz"]
# bytes on the disk, a command, the output that does not fit
FULL = [
    *((6_000, [*CONVERT, f"o{suffix}", "--to", to], f"o{suffix}")
      for to, suffixes in {"torch": ".npz .safetensors .pt .msgpack", "cudnn": ".npy .bin .h",
                           "keras": ".h5 .keras", "onnx": ".onnx"}.items()
      for suffix in suffixes.split()),
    (2_000, STEP, "y1.npy"),  # y has 4 KiB, the states have 8
    (6_000, STEP, "s.npz"),
]  # fmt: skip


@pytest.mark.parametrize("room, command, name", FULL)
def test_an_output_for_which_the_disk_has_no_room_is_named(rnnlayout, folder, room, command, name):
    before = sorted(os.listdir())
    with room_for(room):
        code, _, err = rnnlayout(*command)
    assert (code, err.splitlines()[-1]) == (3, f"error: {name} cannot be written: File too large")
    assert sorted(os.listdir()) == before or command[0] == "run"


# Converts an 8 MB LSTM; from the first dataset on the process gets 6 MB more.
NO_MEMORY = """
import resource, sys, h5py
from rnnlayout._cli.main import main
create = h5py.Group.create_dataset
def create_dataset(*args, **kwargs):
    if resource.getrlimit(resource.RLIMIT_DATA)[0] == resource.RLIM_INFINITY:
        pages = int(open("/proc/self/statm").read().split()[5])
        resource.setrlimit(resource.RLIMIT_DATA, (pages * resource.getpagesize() + (6 << 20), -1))
    return create(*args, **kwargs)
h5py.Group.create_dataset = create_dataset
sys.exit(main(["convert", "big.npz", "out.keras", "--to", "keras"]))
"""


@pytest.mark.long
def test_memory_that_ends_while_a_keras_file_is_written(tmp_path):
    """libhdf5 writes to memory, which ends; h5py then closes a file that is closed, and the command
    named that: "I/O operation on closed file", with exit code 3."""
    spec = rl.Spec("lstm", 512, 512, bias="input")
    rl.save(tmp_path / "big.npz", rl.Weights(normal_weights("keras", spec), spec))
    done = subprocess.run([sys.executable, "-c", NO_MEMORY], text=True, cwd=tmp_path,
                          capture_output=True, check=False)  # fmt: skip
    assert (done.returncode, done.stderr) == (5, "error: there is not enough memory\n"), done
    assert os.listdir(tmp_path) == ["big.npz"]
