"""RNNs on a GPU as Python sees them, on the fakes: on_gpu.py and short_way.py have the programs."""

import inspect
import sys

import on_gpu
import pytest
import short_way
from conftest import ROOT, run

# What is not the same with cuDNN 8: lengths, which are copied there; no bfloat16.
OLD = ("numpy_arrays", "device_arrays", "outputs")


def programs(module):
    return [
        name
        for name, program in vars(module).items()
        if inspect.isfunction(program)
        and program.__module__ == module.__name__
        and not inspect.signature(program).parameters
    ]


RUNS = [(module.__name__, name, 9) for module in (on_gpu, short_way) for name in programs(module)]
RUNS += [("on_gpu", name, 8) for name in OLD]


@pytest.mark.parametrize("module, name, major", RUNS)
def test_on_the_fakes(fakes, tmp_path, module, name, major):
    said = run([sys.executable, "-m", module, name, tmp_path], cwd=ROOT / "tests",
               env=fakes.environment(major))  # fmt: skip
    assert said.endswith("well\n")
