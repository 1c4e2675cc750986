"""The parts of the benchmark of GPUs: what it compares, and the C code that calls cuDNN."""

import collections
import subprocess
import sys

import numpy as np
import pytest
from commands import ROOT, TESTS, run

sys.path.insert(0, str(ROOT / "benchmarks"))

import gpu_speed
from workload import Problem

import rnnlayout as rl

# ---------------------------------------------------------------------------- what it compares


def test_a_peer_that_raises_is_a_part_of_the_row():
    def right(problem, place):
        return lambda calls: {}, lambda: np.zeros(3)

    def wrong(problem, place):
        return lambda calls: {}, lambda: np.ones(3)

    def missing(problem, place):
        raise gpu_speed.Missing("not installed")

    def raises(problem, place):
        raise ValueError("no")

    problem = Problem(rl.Spec("lstm", 4, 4), 2, 1)
    peers = {"ours": right, "wrong": wrong, "missing": missing, "raises": raises}
    jobs, left_out, failed = gpu_speed.jobs_of(problem, None, peers)
    assert list(jobs) == ["ours"] and left_out == {"missing": "not installed"}
    assert failed == {"wrong": "AssertionError: it differs from ours by 1",
                      "raises": "ValueError: no"}  # fmt: skip


def test_clocks_are_warm_before_a_time_is_taken(monkeypatch):
    monkeypatch.setattr(gpu_speed, "WARM", 0.01)
    made = []

    def job(calls):
        made.append(calls)
        return {"whole": 1000.0}

    assert gpu_speed.measure({"ours": job}, 1) == {"ours": {"whole": [1000, 1000]}}
    # warming, how many calls make a turn, one more to warm the caches, and the turn
    assert made[0] == gpu_speed.MOST_CALLS and made[-3:] == [2, 1, 2]


# ------------------------------------------------------------------------------- the floor in C

CODE = f"""
import sys; sys.path.insert(0, {str(ROOT / "benchmarks")!r}); cudnn, algo, *cases = sys.argv[1:]
import gpu_speed, rnnlayout as rl, types
for case in cases:
    cell, T, N, I, H, L, dtype = case.split(",")
    spec = rl.Spec(cell, int(I), int(H), int(L), dtype=dtype)
    raw = gpu_speed.Raw(types.SimpleNamespace(spec=spec, T=int(T), N=int(N)), cudnn, int(algo))
    print(raw(4)["device"])
    del raw
"""
CASES = ["lstm,1,1,8,6,1,float32", "gru,3,2,5,6,2,float16", "rnn_relu,2,2,5,6,1,float64",
         "lstm,2,3,5,6,1,bfloat16"]  # fmt: skip


@pytest.fixture(scope="session")
def raw(fakes, tmp_path_factory):
    """Run cases with an algorithm. Return what was said, and the exit code."""
    made = tmp_path_factory.mktemp("raw") / "raw.so"
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    run(
        ["cc", *flags, "-I", ROOT / "csrc", ROOT / "benchmarks" / "raw_cudnn.c", "-ldl", "-o", made]
    )

    def measure(*cases, algo="0", **more):
        env = fakes.environment(RAW_CUDNN=str(made), **more)
        command = [sys.executable, "-c", CODE, fakes.cudnn / "libcudnn.so.9", algo, *cases]
        return subprocess.run(command, env=env, text=True, capture_output=True, check=False,
                              cwd=TESTS)  # fmt: skip

    return measure


def calls_of(log):
    return [line.split()[0] for line in log.read_text().splitlines()]


def test_the_floor_is_measured(raw, tmp_path):
    done = raw(*CASES, FAKE_LOG=str(tmp_path / "log"))
    assert done.returncode == 0, done.stderr
    # each call is one piece of work, which takes 10 us on the fakes' clock
    assert [round(float(line), 3) for line in done.stdout.split()] == [10] * 4
    counted = collections.Counter(calls_of(tmp_path / "log"))
    assert counted["cudnnRNNForward"] == len(CASES) * (1 + 4)
    for made, ended in [("cuMemAlloc_v2", "cuMemFree_v2"), ("cudnnCreate", "cudnnDestroy")]:
        assert counted[made] == counted[ended] > 0
    assert raw("lstm,2,3,5,6,1,float32", algo="3").returncode == 0
    done = raw("lstm,2,3,5,6,1,float32", algo="3", FAKE_CUDNN_NO_PERSIST="sizes")
    assert "Missing: cuDNN refused it" in done.stderr


def test_a_call_of_the_floor_that_fails_is_named(raw, tmp_path):
    raw(CASES[0], FAKE_LOG=str(tmp_path / "log"))
    calls = calls_of(tmp_path / "log")
    for name in ("cuMemAlloc_v2", "cudnnCreate", "cudnnSetRNNDescriptor_v8"):
        done = raw(CASES[0], FAKE_FAIL=f"{calls.index(name) + 1}:2:5000")
        assert done.returncode == 1 and name[:12] in done.stderr, (name, done)
