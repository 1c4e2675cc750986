"""RNNs on a GPU, used from Python, on the fakes: each program in a process of its own."""

import ast
from pathlib import Path
from types import SimpleNamespace as Stream

import numpy as np
import pytest
from commands import TESTS
from run.gpu.children import Children

import rnnlayout as rl
from rnnlayout._run.call_arrays import stream_of

MODULES = [
    f"run.gpu.on_gpu_{name}" for name in ("results", "exchange", "order", "limits", "stepper")
]


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


# A stream -> its number, or the text of the error.
STREAMS = [
    (1, 1), (2, 2), (np.int64(77), 77),
    (Stream(cuda_stream=0), 1), (Stream(cuda_stream=9), 9),
    (Stream(ptr=0), 1), (Stream(ptr=2), 2),
    (Stream(__cuda_stream__=lambda: (0, 8)), 8),
    (Stream(__cuda_stream__=lambda: (0, 0), ptr=3), 1),
    (Stream(__cuda_stream__=lambda: (1, 5)), r"__cuda_stream__\(\) has version 1, only 0 is supp"),
    (Stream(ptr="x"), "need the number of a stream"),
    (Stream(), "need the number of a stream, or an object with __cuda_stream__, cuda_s"),
    (0, "stream is 0, which is ambiguous: 1 is the legacy default stream, 2 the per-thread one"),
    (-1, "stream is -1, need the number of a stream, or an object with __cuda_stream__"),
    ("main", "stream is 'main', need the number of a stream"),
    (True, "stream is True, need the number"),
    (1 << 64, "need the number of a stream"),
]  # fmt: skip


@pytest.mark.parametrize("stream, expected", STREAMS)
def test_the_number_of_a_stream(stream, expected):
    if isinstance(expected, int):
        assert stream_of(stream) == expected
    else:
        with pytest.raises(rl.SpecError, match=expected):
            stream_of(stream)
