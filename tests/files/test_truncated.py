"""A file is mapped into memory, or read, as mmap= says: one that is mapped ends the process if
another process truncates it; the arrays of one that was read have all their numbers."""

from pathlib import Path

import pytest
from files.hostile.good import LAYOUTS, SPEC, beside, good

import rnnlayout as rl

# Of pickles small arrays are copied, and arrays that are not aligned.
MAPPED = {".safetensors", ".npy", ".bin", ".data.onnx", ".pt", ".module.pt", ".script.pt", ".pt2",
          ".packed.pt", ".msgpack", ".index", ".index.json", ".pb", ".params",
          ".tflite", ".tfjs.json"}  # fmt: skip


def is_mapped(folder):
    """Is a file in this folder mapped into memory?"""
    return str(folder) in Path("/proc/self/maps").read_text()


def bits(found):
    return [[array.tobytes() for array in weights.values()] for weights in found.values()]


@pytest.mark.parametrize("suffix", LAYOUTS)
def test_loaded_then_truncated(suffix, tmp_path):
    path, spec = tmp_path / f"a{suffix}", SPEC if suffix == ".npy" else None
    path.write_bytes(good(suffix))
    beside(path)
    found = rl.load(path, spec)
    right = bits(found)
    if suffix != ".old.module.pt":  # whether its arrays are aligned depends on addresses in it
        assert is_mapped(tmp_path) == (suffix in MAPPED)
    del found
    found = rl.load(path, spec, mmap=False)
    assert not is_mapped(tmp_path)
    for one in tmp_path.rglob("*"):
        if one.is_file():
            one.write_bytes(b"")
    assert bits(found) == right


@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_mapped_while_it_is_converted(suffix, tmp_path):
    """At the first report of progress the numbers that are copied are not read yet."""
    path, out = tmp_path / "a.safetensors", tmp_path / "out"
    path.write_bytes(good(".safetensors"))
    out.mkdir()
    for mmap in (True, False):
        seen = []
        rl.convert_file(path, out / f"{mmap}{suffix}", to="onnx", mmap=mmap,
                        progress=lambda *_, seen=seen: seen.append(is_mapped(path)))  # fmt: skip
        assert seen[0] == mmap and any(seen) == mmap
