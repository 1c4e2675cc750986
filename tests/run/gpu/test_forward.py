"""RNNs on a GPU, used from Python, on the fakes: each program in a process of its own."""

import importlib
import inspect
import sys

import pytest
from commands import TESTS, run

MODULES = [
    f"on_gpu_{name}"
    for name in ("numpy", "arrays", "kinds", "calls", "refused", "memory", "streams", "orders",
                 "captures", "results", "algos", "life")
]  # fmt: skip
# What differs with cuDNN 8: lengths are copied to the device; no bfloat16.
OLD = [("on_gpu_numpy", "numpy_arrays"), ("on_gpu_arrays", "device_arrays"),
       ("on_gpu_arrays", "outputs")]  # fmt: skip


def programs(module):
    return [
        name
        for name, program in vars(importlib.import_module(f"run.gpu.{module}")).items()
        if inspect.isfunction(program)
        and program.__module__ == f"run.gpu.{module}"
        and not inspect.signature(program).parameters
    ]


RUNS = [(module, name, 9) for module in MODULES for name in programs(module)]
RUNS += [(*old, 8) for old in OLD]


@pytest.mark.parametrize("module, name, major", RUNS)
def test_on_the_fakes(fakes, module, name, major):
    said = run([sys.executable, "-m", "run.gpu.fake_gpu", module, name], cwd=TESTS,
               env=fakes.environment(major))  # fmt: skip
    assert said.endswith("well\n")
