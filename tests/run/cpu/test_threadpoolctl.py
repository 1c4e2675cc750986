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


def test_info_and_limits():
    found = [i for i in threadpoolctl.threadpool_info() if i["user_api"] == "rnnlayout"]
    assert found == [{
        "user_api": "rnnlayout",
        "internal_api": "rnnlayout",
        "num_threads": 3,
        "prefix": "_native",
        "filepath": LIBRARY,
        "version": rl.__version__,
    }]  # fmt: skip
    for limits, left in ((1, 1), ({"rnnlayout": 1}, 1), ({LIBRARY: 1}, 1), ({"blas": 1}, 3)):
        with threadpoolctl.threadpool_limits(limits):
            assert rl.num_threads() == left
        assert rl.num_threads() == 3


# Each in a process of its own: imports cannot be undone.
RNN = """
import numpy as np, rnnlayout as rl
spec = rl.Spec("rnn_tanh", 200, 300)
rnn = rl.RNN(np.ones(spec.num_params, "f4"), spec)
"""
CALL = """
import os

def threads_started_by(call):
    before = len(os.listdir("/proc/self/task"))
    call(np.ones((9, 100, 200), "f4"))
    return len(os.listdir("/proc/self/task")) - before

rl.set_num_threads(3)
with threadpoolctl.threadpool_limits(1):
    print(threads_started_by(call))
print(threads_started_by(call))
"""
# Without an RNN before the first call.
FORWARD = """
import numpy as np, threadpoolctl, rnnlayout as rl
spec = rl.Spec("rnn_tanh", 200, 300)

def call(x):
    rl.forward(x, np.ones(spec.num_params, "f4"), spec)
"""
OLD = "import types; sys.modules['threadpoolctl'] = types.ModuleType('threadpoolctl')\n"
HEAVY = "assert not {'numpy', 'rnnlayout._native'} & {*sys.modules}"


@pytest.mark.parametrize(
    "script, printed",
    [
        (f"import threadpoolctl{RNN}call = rnn{CALL}", ["0", "2"]),
        (f"import rnnlayout, threadpoolctl{RNN}call = rnn{CALL}", ["0", "2"]),
        (f"{RNN}import threadpoolctl\ncall = rnn{CALL}", ["0", "2"]),
        (f"{FORWARD}{CALL}", ["0", "2"]),
        # the import does without it
        ("import rnnlayout as rl; rl.RNN; assert 'threadpoolctl' not in sys.modules", []),
        (f"import threadpoolctl, rnnlayout; {HEAVY}", []),
        # one that nothing can be registered with, and none at all
        (f"{OLD}import rnnlayout, threadpoolctl{RNN}print(rnn.device)", ["cpu"]),
        (f"{OLD}import threadpoolctl, rnnlayout{RNN}print(rnn.device)", ["cpu"]),
        (f"sys.modules['threadpoolctl'] = None{RNN}print(rnn.device)", ["cpu"]),
    ],
)
def test_imports_in_any_order(script, printed):
    assert run([sys.executable, "-c", f"import sys\n{script}"]).split() == printed


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
    assert run([sys.executable, "-c", script]).strip() == str([LIBRARY])
