"""RNNs on a GPU, used from Python, on the fakes: each program in a process of its own."""

import ast
from pathlib import Path

import pytest
from commands import TESTS
from run.gpu.children import Children

MODULES = [f"run.gpu.on_gpu_{name}" for name in ("results", "exchange", "order", "limits")]


def programs(module):
    """Return the names of the functions of a module that have no parameters."""
    tree = ast.parse(Path(TESTS, *module.split(".")).with_suffix(".py").read_text())
    return [found.name for found in tree.body
            if isinstance(found, ast.FunctionDef) and not ast.unparse(found.args)]  # fmt: skip


RUNS = [(module, name) for module in MODULES for name in programs(module)]


@pytest.fixture(scope="session")
def children(fakes):
    made = Children(MODULES, fakes.environment())
    yield made
    made.close()


@pytest.mark.parametrize("module, name", RUNS)
def test_on_the_fakes(children, module, name):
    """Other versions of cuDNN: tests/fakes/test_replay.py."""
    children.run(module, name)
