"""threadpoolctl finds and limits the team of threads, whichever is imported first."""

import sys
from pathlib import Path

import pytest
import threadpoolctl
from commands import run

import rnnlayout as rl
from rnnlayout import _native

LIBRARY = str(Path(_native.__file__).resolve())


@pytest.fixture(autouse=True)
def three_threads(threads):
    threads(3)


def test_info():
    found = [i for i in threadpoolctl.threadpool_info() if i["user_api"] == "rnnlayout"]
    assert found == [{
        "user_api": "rnnlayout",
        "internal_api": "rnnlayout",
        "num_threads": 3,
        "prefix": "_native",
        "filepath": LIBRARY,
        "version": rl.__version__,
    }]  # fmt: skip


@pytest.mark.parametrize(
    "limits",
    [{"limits": 1}, {"limits": 1, "user_api": "rnnlayout"}, {"limits": {"rnnlayout": 1}},
     {"limits": {"_native": 1}}, {"limits": {LIBRARY: 1}}],
    ids=str,
)  # fmt: skip
def test_limits(limits):
    with threadpoolctl.threadpool_limits(**limits):
        assert rl.num_threads() == 1
    assert rl.num_threads() == 3


def test_limits_of_others():
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        assert rl.num_threads() == 3


# Each in a process of its own: imports cannot be undone.


def python(script, path=""):
    """Run a program with the folder `path` first on sys.path. Returns what it printed."""
    return run([sys.executable, "-c", f"import sys; sys.path.insert(0, {str(path)!r})\n{script}"])


@pytest.mark.parametrize(
    "imports",
    ["import rnnlayout as rl, threadpoolctl", "import threadpoolctl, rnnlayout as rl",
     "import rnnlayout as rl; rl.RNN; import threadpoolctl"],
)  # fmt: skip
def test_a_limit_before_the_first_rnn(imports):
    script = f"""
import os
import numpy as np
{imports}

def threads_started_by_an_rnn():
    before = len(os.listdir("/proc/self/task"))
    spec = rl.Spec("rnn_tanh", 200, 300)
    rl.forward(np.ones((9, 100, 200), "f4"), np.ones(spec.num_params, "f4"), spec)
    return len(os.listdir("/proc/self/task")) - before

rl.set_num_threads(3)
with threadpoolctl.threadpool_limits(1):
    print(threads_started_by_an_rnn())
print(threads_started_by_an_rnn())
"""
    assert python(script).split() == ["0", "2"]


def test_the_import_does_without_it():
    python("import rnnlayout as rl; rl.RNN; assert 'threadpoolctl' not in sys.modules")


@pytest.mark.parametrize("order", [("rnnlayout", "threadpoolctl"), ("threadpoolctl", "rnnlayout")])
def test_a_threadpoolctl_that_nothing_can_be_registered_with(order, tmp_path):
    (tmp_path / "threadpoolctl.py").write_text("__version__ = '3.1.0'")
    script = f"import {', '.join(order)}; print(threadpoolctl.__version__)"
    assert python(script, tmp_path) == "3.1.0\n"


def test_none_at_all():
    script = """
import rnnlayout
sys.path.clear()
try:
    import threadpoolctl
except ModuleNotFoundError as error:
    print(error)
"""
    assert python(script) == "No module named 'threadpoolctl'\n"


def test_a_library_of_the_same_name(tmp_path):
    """Other packages have a _native too."""
    other = tmp_path / "_native.so"
    run(["cc", "-shared", "-x", "c", "-", "-o", other], input="int other;\n")
    script = f"""
import ctypes, rnnlayout, threadpoolctl
ctypes.CDLL({str(other)!r})
print([i["filepath"] for i in threadpoolctl.threadpool_info() if i["prefix"] == "_native"])
"""
    assert python(script).strip() == str([LIBRARY])
