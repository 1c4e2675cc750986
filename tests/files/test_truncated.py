"""A file that another process truncates after it was opened."""

import json
import signal
import subprocess
import sys

import pytest
from commands import TESTS
from files.hostile.good import LAYOUTS, allowed, beside, good

# Of pickles small arrays are copied, and arrays that are not aligned.
MAPPED = {".safetensors", ".npy", ".bin", ".pt", ".module.pt", ".script.pt", ".packed.pt", ".pt2",
          ".msgpack", ".index", ".pb", ".params", ".tflite"}  # fmt: skip
FORKS = """
import json, os, sys, traceback
import rnnlayout as rl
program, jobs = json.load(sys.stdin)
for job in jobs:
    if child := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        continue
    try:
        exec(program, {"rl": rl, "job": job})
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
"""
LOAD = """
path, mode, *others = job
hints = {"spec": rl.Spec("lstm", 5, 3)} if path.endswith(".npy") else {}
right = [{n: a.tobytes() for n, a in w.items()} for w in rl.load(path, **hints).values()]
found = rl.load(path, **hints, mmap=mode == "map")
for name in (path, *others):
    open(name, "w").close()
assert [{n: a.tobytes() for n, a in w.items()} for w in found.values()] == right
"""
CONVERT = """
path, mode, out = job
def truncate(*_):
    open(path, "w").close()
rl.convert_file(path, out, to="onnx", mmap=mode == "map", progress=truncate)
"""


def exit_codes(program, jobs):
    """Run a program for each job, in forks of a process that has imported the package."""
    done = subprocess.run([sys.executable, "-c", FORKS], input=json.dumps([program, jobs]),
                          text=True, stdout=subprocess.PIPE, cwd=TESTS, check=True)  # fmt: skip
    return [int(code) for code in done.stdout.split()]


@pytest.mark.parametrize("mode", ["map", "read"])
def test_loaded_then_truncated(mode, tmp_path):
    """A mapped file ends the process; the arrays of one that was read have all their numbers."""
    jobs = []
    for k, suffix in enumerate(LAYOUTS):
        path = tmp_path / str(k) / f"a{suffix}"
        path.parent.mkdir()
        path.write_bytes(good(suffix))
        beside(path)
        jobs.append([str(path), mode, *(str(one) for one in allowed(path)[3:] if one.is_file())])
    killed = {suffix: -signal.SIGBUS for suffix in MAPPED if mode == "map"}
    wanted = {suffix: killed.get(suffix, 0) for suffix in LAYOUTS}
    assert dict(zip(LAYOUTS, exit_codes(LOAD, jobs), strict=True)) == wanted


@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_truncated_while_it_is_converted(suffix, tmp_path):
    """The first report of progress truncates it: numbers that are copied are not read yet."""
    jobs = []
    for mode in ("map", "read"):
        path = tmp_path / f"{mode}.safetensors"
        path.write_bytes(good(".safetensors"))
        jobs.append([str(path), mode, str(tmp_path / f"{mode} out{suffix}")])
    assert exit_codes(CONVERT, jobs) == [-signal.SIGBUS, 0]
