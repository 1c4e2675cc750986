"""RNNs on a GPU, used from Python, on the fakes: each program in a process of its own."""

import ast
from pathlib import Path

import pytest
from commands import TESTS
from run.gpu.children import Children

MODULES = [
    f"run.gpu.on_gpu_{name}"
    for name in ("numpy", "arrays", "kinds", "calls", "refused", "memory", "streams", "orders",
                 "captures", "results", "algos", "life", "limits")
]  # fmt: skip
# Other versions of cuDNN: 8 has no bfloat16, and before 8.9.7 lengths are copied to the device.
VERSIONS = [
    *(("run.gpu.on_gpu_numpy", "every_kind", version) for version in (8906, 8907, 90300, 91900)),
    ("run.gpu.on_gpu_numpy", "numpy_arrays", 8906),
    ("run.gpu.on_gpu_life", "errors", 8906),
]


def programs(module):
    """Return the names of the functions of a module that have no parameters."""
    tree = ast.parse(Path(TESTS, *module.split(".")).with_suffix(".py").read_text())
    return [found.name for found in tree.body
            if isinstance(found, ast.FunctionDef) and not ast.unparse(found.args)]  # fmt: skip


RUNS = [(module, name, 92800) for module in MODULES for name in programs(module)] + VERSIONS


@pytest.fixture(scope="session")
def children(fakes):
    made = Children(MODULES, fakes.environment())
    yield made
    made.close()


@pytest.mark.parametrize("module, name, version", RUNS)
def test_on_the_fakes(fakes, children, module, name, version):
    folder = fakes.cudnn(8 if version < 90000 else 9)
    children.run(module, name, FAKE_CUDNN=version, RNNLAYOUT_CUDNN=folder)
