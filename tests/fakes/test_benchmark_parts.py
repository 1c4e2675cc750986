"""The parts of the benchmark of GPUs: its rows and processes, what it compares, and the C code that
calls cuDNN directly."""

import collections
import subprocess
import sys

import numpy as np
import pytest
from commands import ROOT, TESTS, run

sys.path.insert(0, str(ROOT / "benchmarks"))

import gpu_floor
import gpu_rows
import gpu_speed

# ------------------------------------------------------------------------ a process for each peer


def test_cases_never_run_come_before_those_that_failed(tmp_path):
    rows = gpu_rows.Rows(tmp_path / "rows.jsonl")
    cases = [gpu_rows.Case(("fact", name)) for name in "abcd"]
    rows.add({"case": "fact a", "failed": "exit code 1", "said": ""})
    rows.add({"case": "fact c", "found": {}})
    assert [case.name for case in rows.pending(cases)] == ["fact b", "fact d", "fact a"]
    assert gpu_rows.Rows(rows.path).known == rows.known


def worker_of(monkeypatch, tmp_path, code):
    """A process that runs this code for the first case."""
    program = (
        "import os, sys, time; file = os.fdopen(int(sys.argv[2]), 'w'); sys.stdin.readline()\n"
    )
    (tmp_path / "gpu.py").write_text(program + code)
    monkeypatch.setattr(gpu_rows, "COMMAND", tmp_path / "gpu.py")
    return gpu_rows.Worker()


CASE = gpu_rows.Case(("forward", "gru"))


def test_a_library_may_print_lines_of_its_own(monkeypatch, tmp_path):
    worker = worker_of(monkeypatch, tmp_path, "print('hello'); print('7', file=file)")
    assert worker.run(CASE, 60)["found"] == 7


@pytest.mark.parametrize("end, code", [("sys.exit(3)", 3), ("os.abort()", -6)])
def test_a_case_without_an_answer_is_a_row(monkeypatch, tmp_path, end, code):
    worker = worker_of(monkeypatch, tmp_path, f"print('bye', file=sys.stderr, flush=True); {end}")
    row = worker.run(CASE, 60)
    assert (row["failed"], row["said"]) == (f"exit code {code}", "bye")


def test_a_process_that_cannot_be_killed_is_left_behind(monkeypatch, tmp_path):
    """As one may that waits inside the driver."""
    worker, left = worker_of(monkeypatch, tmp_path, "time.sleep(600)"), []
    monkeypatch.setattr(gpu_rows, "DYING", 0.1)
    with monkeypatch.context() as patch:
        patch.setattr(subprocess.Popen, "kill", lambda process: left.append(process))
        row = worker.run(CASE, 0.1)
        worker.end()
    assert row["failed"] == "no answer within 0.1 seconds"
    left[0].kill()
    left[0].wait()


# ---------------------------------------------------------------------------- what it compares


def test_the_floor_is_that_of_the_fastest_algorithm():
    us = {"ours": (5, 10), "raw cuDNN": (4, 8), "raw cuDNN, small H": (4, 5)}
    us = {name: {"host": [t[0]] * 2, "whole": [t[1]] * 2} for name, t in us.items()}
    over, *_ = gpu_speed.goals(gpu_speed.problem_of(gpu_speed.FIRST[4]), us)
    assert over[0] == "over raw cuDNN" and over[2] == "5.0 us, 100.0%" and not over[3]


def test_a_peer_that_raises_is_a_part_of_the_row():
    def right(problem, place):
        return lambda calls: {}, lambda: np.zeros(3)

    def wrong(problem, place):
        return lambda calls: {}, lambda: np.ones(3)

    def missing(problem, place):
        raise gpu_floor.Missing("not installed")

    def raises(problem, place):
        raise ValueError("no")

    problem = gpu_speed.problem_of(("lstm", 2, 1, 4, 1, "float32"))
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

    assert gpu_speed.measure({"ours": job}, 1, 20) == {"ours": {"whole": [1000, 1000]}}
    # warming, how many calls make a turn, one more to warm the caches, and the turn
    assert made[0] == gpu_speed.MOST_CALLS and made[-3:] == [2, 1, 2]


# ------------------------------------------------------------------------------- the floor in C

CODE = f"""
import sys; sys.path.insert(0, {str(ROOT / "benchmarks")!r}); cudnn, algo, *cases = sys.argv[1:]
import gpu_floor, rnnlayout as rl, types
for case in cases:
    cell, T, N, I, H, L, dtype = case.split(",")
    spec = rl.Spec(cell, int(I), int(H), int(L), dtype=dtype)
    raw = gpu_floor.Raw(types.SimpleNamespace(spec=spec, T=int(T), N=int(N)), cudnn, algo)
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

    def measure(*cases, algo="standard", **more):
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
    assert raw("lstm,2,3,5,6,1,float32", algo="small H").returncode == 0
    done = raw("lstm,2,3,5,6,1,float32", algo="small H", FAKE_CUDNN_NO_PERSIST="sizes")
    assert "Missing: cuDNN refused it" in done.stderr


def test_a_call_of_the_floor_that_fails_is_named(raw, tmp_path):
    raw(CASES[0], FAKE_LOG=str(tmp_path / "log"))
    calls = calls_of(tmp_path / "log")
    for name in ("cuMemAlloc_v2", "cudnnCreate", "cudnnSetRNNDescriptor_v8"):
        done = raw(CASES[0], FAKE_FAIL=f"{calls.index(name) + 1}:2:5000")
        assert done.returncode == 1 and name[:12] in done.stderr, (name, done)
