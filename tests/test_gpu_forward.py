"""RNNs on a GPU as Python sees them, on the fakes: on_gpu.py has the programs."""

import inspect
import sys

import on_gpu
import pytest
from conftest import ROOT, run

PROGRAMS = [
    name
    for name, program in vars(on_gpu).items()
    if inspect.isfunction(program)
    and program.__module__ == "on_gpu"
    and not inspect.signature(program).parameters
]


# What is not the same with cuDNN 8: lengths, which are copied there; no bfloat16.
RUNS = [(name, 9) for name in PROGRAMS]
RUNS += [(name, 8) for name in ("numpy_arrays", "device_arrays", "outputs")]


@pytest.mark.parametrize("name, major", RUNS)
def test_on_the_fakes(fakes, tmp_path, name, major):
    said = run([sys.executable, "-m", "on_gpu", name, tmp_path], cwd=ROOT / "tests",
               env=fakes.environment(major))  # fmt: skip
    assert said.endswith("well\n")
