"""A file that another process truncates after it was opened."""

import signal
import subprocess
import sys

import pytest
from commands import TESTS
from files.hostile.good import LAYOUTS, allowed, beside, good

# Of pickles small arrays are copied, and arrays that are not aligned.
MAPPED = {".safetensors", ".npy", ".bin", ".pt", ".module.pt", ".script.pt", ".packed.pt", ".pt2",
          ".msgpack", ".index", ".pb", ".params", ".tflite"}  # fmt: skip
LOAD = """
import sys, rnnlayout as rl
path, mmap, *others = sys.argv[1:]
hints = {"spec": rl.Spec("lstm", 5, 3)} if path.endswith(".npy") else {}
right = [{n: a.tobytes() for n, a in w.items()} for w in rl.load(path, **hints).values()]
found = rl.load(path, **hints, mmap=mmap == "map")
for name in (path, *others):
    open(name, "w").close()
assert [{n: a.tobytes() for n, a in w.items()} for w in found.values()] == right
"""
CONVERT = """
import sys, rnnlayout as rl
path, mmap, out = sys.argv[1:]
def truncate(*_):
    open(path, "w").close()
done = rl.convert_file(path, out, to="onnx", mmap=mmap == "map", progress=truncate)
"""


def run(program, *arguments):
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], cwd=TESTS
    ).returncode


@pytest.mark.parametrize("suffix", LAYOUTS)
def test_loaded_then_truncated(suffix, tmp_path):
    """A mapped file ends the process; the arrays of one that was read have all their numbers."""
    for mode in ("map", "read"):
        path = tmp_path / f"{mode}{suffix}"
        path.write_bytes(good(suffix))
        beside(path)
        data = [other for other in allowed(path)[3:] if other.is_file()]
        killed = suffix in MAPPED and mode == "map"
        assert run(LOAD, path, mode, *data) == (-signal.SIGBUS if killed else 0), mode


@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_truncated_while_it_is_converted(suffix, tmp_path):
    """The first report of progress truncates it: numbers that are copied are not read yet."""
    for mode in ("map", "read"):
        path = tmp_path / f"{mode}.safetensors"
        path.write_bytes(good(".safetensors"))
        code = run(CONVERT, path, mode, tmp_path / f"{mode} out{suffix}")
        assert code == (-signal.SIGBUS if mode == "map" else 0), mode
