"""threadpoolctl finds and limits the team of threads, whichever is imported first."""

import sys
from pathlib import Path

import numpy as np
import pytest
import threadpoolctl
from commands import run

import rnnlayout as rl
from rnnlayout import _native

LIBRARY = str(Path(_native.__file__).resolve())


@pytest.fixture(autouse=True)
def three_threads(threads):
    threads(3)
    rl.RNN(np.ones(84, "f4"), rl.Spec("lstm", 2, 3))  # registers them, whatever was imported first


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


RNN = """
import numpy as np, rnnlayout as rl
spec = rl.Spec("rnn_tanh", 200, 300)
rnn = rl.RNN(np.ones(spec.num_params, "f4"), spec)
"""
CALL = """
import os
import numpy as np

def threads_started_by(call):
    before = len(os.listdir("/proc/self/task"))
    call(np.ones((9, 100, 200), "f4"))
    return len(os.listdir("/proc/self/task")) - before

rl.set_num_threads(3)
with threadpoolctl.threadpool_limits(1):
    print(threads_started_by(call))
print(threads_started_by(call))
"""


@pytest.mark.parametrize(
    "imports",
    [f"import threadpoolctl{RNN}", f"import rnnlayout, threadpoolctl{RNN}",
     f"{RNN}import threadpoolctl"],
)  # fmt: skip
def test_a_limit_once_there_is_an_rnn(imports):
    assert python(f"{imports}\ncall = rnn{CALL}").split() == ["0", "2"]


def test_a_limit_before_the_first_rnn():
    """Where threadpoolctl was imported before rnnlayout."""
    script = """
import numpy as np, threadpoolctl, rnnlayout as rl
spec = rl.Spec("rnn_tanh", 200, 300)

def call(x):
    rl.forward(x, np.ones(spec.num_params, "f4"), spec)
"""
    assert python(script + CALL).split() == ["0", "2"]


def test_the_import_does_without_it():
    python("import rnnlayout as rl; rl.RNN; assert 'threadpoolctl' not in sys.modules")
    heavy = "{'numpy', 'rnnlayout._native'} & {*sys.modules}"
    python(f"import threadpoolctl, rnnlayout; assert not {heavy}")


@pytest.mark.parametrize("order", ["rnnlayout, threadpoolctl", "threadpoolctl, rnnlayout"])
def test_a_threadpoolctl_that_nothing_can_be_registered_with(order, tmp_path):
    (tmp_path / "threadpoolctl.py").write_text("__version__ = '3.1.0'")
    script = f"import {order}{RNN}print(threadpoolctl.__version__)"
    assert python(script, tmp_path) == "3.1.0\n"


def test_none_at_all():
    assert python(f"sys.modules['threadpoolctl'] = None{RNN}print(rnn.device)") == "cpu\n"


def test_a_library_of_the_same_name(tmp_path):
    """Other packages have a _native too."""
    other = tmp_path / "_native.so"
    run(["cc", "-shared", "-x", "c", "-", "-o", other], input="int other;\n")
    script = f"""
import ctypes, threadpoolctl
ctypes.CDLL({str(other)!r})
{RNN}
print([i["filepath"] for i in threadpoolctl.threadpool_info() if i["prefix"] == "_native"])
"""
    assert python(script).strip() == str([LIBRARY])
