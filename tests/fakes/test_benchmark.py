"""The benchmark of GPUs, run on the fakes: so that it works once there is a GPU."""

import collections
import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from commands import ROOT, TESTS, run

sys.path.insert(0, str(ROOT / "tools"))
sys.path.insert(0, str(ROOT / "benchmarks"))

import gpu
import gpu_facts
import gpu_speed
import tables
from workload import Problem

import rnnlayout as rl


@pytest.fixture(scope="session")
def command(tmp_path_factory):
    """The command without the source tree: only the folders that it needs."""
    to = tmp_path_factory.mktemp("copy")
    for name in ("benchmarks", "csrc", "tools", "tests/oracles"):
        shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
    return [sys.executable, to / "benchmarks" / "gpu.py"]


@pytest.fixture
def protocol(fakes, command, tmp_path):
    """Run some cases. Return the exit code, what is printed, and the rows."""

    def run(*only, more=(), **environment):
        done = subprocess.run([*command, "--out", "out", "--only", *only, *more], cwd=tmp_path,
                              env=fakes.environment(**environment), capture_output=True,
                              text=True, check=False)  # fmt: skip
        rows = gpu.read(tmp_path / "out" / "rows.jsonl")
        return done.returncode, done.stdout + done.stderr, rows

    return run


def answers(folder):
    """Return how many answers each case has."""
    rows = map(json.loads, (folder / "out" / "rows.jsonl").read_text().split("\n")[1:])
    return collections.Counter(row["case"] for row in rows if "found" in row)


SPEED = "speed lstm,1,1,64,1,float32"


def test_a_framework_that_fails_loses_one_row(protocol, tmp_path):
    """The next run fills it in."""
    (tmp_path / "bad" / "torch").mkdir(parents=True)
    code = "raise RuntimeError('out of luck')"
    (tmp_path / "bad" / "torch" / "__init__.py").write_text(code)
    only = [SPEED, "forward gru"]
    status, said, rows = protocol(*only, PYTHONPATH=str(tmp_path / "bad"))
    assert status == 1 and f"FAILED {SPEED}" in said
    assert (rows[SPEED]["failed"], rows[SPEED]["said"]) == (
        "exit code 1", "RuntimeError: out of luck")  # fmt: skip
    assert "found" in rows["forward gru"], said  # its process does not import torch
    status, said, rows = protocol(*only)
    assert status == 0, said
    assert answers(tmp_path) == dict.fromkeys(only, 1) | {"about": 2}
    assert set(rows[SPEED]["found"]["us"]) >= {"ours", "torch", "raw cuDNN"}


FACTS = ["fact streams", "fact growing_lengths", "fact forked_child", "fact at_any_element"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_command_is_continued(fakes, command, protocol, tmp_path, how):
    """After a kill or Ctrl-C, and with a line that was cut off."""
    file = tmp_path / "out" / "rows.jsonl"
    with subprocess.Popen([*command, "--out", "out", "--only", *FACTS], cwd=tmp_path, text=True,
                          env=fakes.environment(), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as first:  # fmt: skip
        while "fact" not in first.stdout.readline():
            pass
        first.send_signal(how)
        assert "Traceback" not in first.stderr.read()
    assert sum(answers(tmp_path).values()) > 1
    with file.open("a") as rows:
        rows.write('\n{"case": "fact at_a')
    status, said, rows = protocol(*FACTS)
    assert status == 0, said
    assert {name for name, row in rows.items() if "found" in row} == {"about", *FACTS}
    assert all(file.read_text().count(f'"{name}", "seconds"') == 1 for name in FACTS)
    assert json.loads(next((tmp_path / "out").glob("gpu-*.json")).read_text())["facts"].keys() == {
        name.removeprefix("fact ") for name in FACTS
    }


def test_results_are_made_again_without_a_gpu(command, protocol, tmp_path):
    assert protocol("forward gru", "fact streams")[0] == 0
    (made,) = (tmp_path / "out").glob("gpu-*.json")
    right = made.read_text()
    made.unlink()
    run([*command, "--join", tmp_path / "out"], env={"PATH": os.environ["PATH"]})
    assert made.read_text() == right
    done = subprocess.run([*command, "--join", tmp_path], capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 2 and "no rows.jsonl of this command" in done.stderr


def test_results_of_two_machines_are_not_mixed(protocol):
    assert protocol("forward gru")[0] == 0
    status, said, _ = protocol("forward lstm", FAKE_CUDA_NAME="Other GPU")
    assert status == 1 and "GPU Fake GPU, not Other GPU: give another folder to --out" in said


def test_cases_run_in_the_order_of_the_protocol():
    each = gpu.cases(torch="2")  # a process each
    names = [name for some in each for name in some]
    assert len(set(names)) == len(names)
    assert list(dict.fromkeys(name.split()[0] for name in names)) == [
        "forward", "fact", "parity", "speed"]  # fmt: skip
    for some, peer in zip(each, ("alone", "torch"), strict=True):
        assert {name.split()[-1] for name in some if name.startswith("parity")} == {peer}
    alone, beside = gpu.cases(torch=None)
    assert alone == each[0] and {name.split()[0] for name in beside} == {"speed"}


def test_a_case_that_ends_its_process(protocol):
    """The others have their answers."""
    status, said, rows = protocol("fact *y_element", "fact streams", "forward gru",
                                  FAKE_FAIL="cuStreamDestroy_v2:2:5000")  # fmt: skip
    assert rows["fact streams"]["failed"] == "exit code 1"
    assert "cuStreamDestroy_v2" in rows["fact streams"]["said"]
    assert "found" in rows["fact at_any_element"] and "found" in rows["forward gru"]
    assert status == 1 and "FAILED fact streams: exit code 1" in said


def test_a_case_that_hangs(protocol, tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("import time; time.sleep(600)")
    status, _, rows = protocol(SPEED, "forward gru", more=("--limit", "3"),
                               PYTHONPATH=str(tmp_path))  # fmt: skip
    assert rows[SPEED]["failed"] == "no answer within 3 seconds"
    assert status == 1 and "found" in rows["forward gru"]


@pytest.fixture(scope="session")
def measured(fakes, command, tmp_path_factory):
    """What the command writes about all facts and a selection of the rest, and what it prints."""
    to = tmp_path_factory.mktemp("measured")
    some = ["forward *", "fact *", "parity gru,L=1,D=1,*", SPEED]
    said = run([*command, "--out", to, "--only", *some], env=fakes.environment())
    return json.loads(next(to.glob("gpu-*.json")).read_text()), said


@pytest.mark.long
def test_every_question_is_answered_as_the_fakes_do(measured):
    """Results are compared, and times are taken."""
    found, _ = measured
    facts, parity, (row,) = found["facts"], found["parity"], found["speed"]
    assert set(facts) == set(gpu_facts.FACTS)
    assert {name for name, answer in facts.items() if answer.get("right")} == {
        "growing_lengths", "at_any_element", "streams", "forked_child"}  # fmt: skip
    assert all("left_out" in answer for answer in facts.values() if "right" not in answer)
    assert parity["failures"] == [] and parity["checked"] >= 100
    assert "ours, math tf32, float32" in parity["worst"]
    assert all(0 < worst <= 1 for worst in parity["worst"].values())
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        for arrays in ("host", "driver"):
            assert f"ours, {arrays} arrays, {dtype}" in parity["worst"]
            assert f"ours, {arrays} arrays, steps, {dtype}" in parity["worst"]
        assert (f"ours, algo standard, {dtype}" in parity["worst"]) == (dtype != "float64")
        assert f"torch, cpu, {dtype}" in parity["worst"]
    assert row["failed"] == {} and {"ours", "torch", "raw cuDNN, small H"} <= row["us"].keys()
    assert row["us"]["raw cuDNN"]["device"] == [10, 10]
    assert row["left_out"].keys() == {"ours, captured", "torch, graph"}
    assert found["about"]["GPU"] == "Fake GPU"


@pytest.mark.long
@pytest.mark.parametrize("name", ["gpu_speeds", "gpu_parity", "gpu_facts"])
def test_the_page_shows_them(measured, monkeypatch, name):
    monkeypatch.setattr(tables, "GPU", {})
    assert tables.TABLES[name]() == tables.NOT_MEASURED
    monkeypatch.setattr(tables, "GPU", measured[0])
    head, line, *rows = tables.TABLES[name]().splitlines()
    rows = [row for row in rows if row.startswith("|")]
    assert len(rows) > 0
    assert {len(row.split(" | ")) for row in (head, line, *rows)} == {len(head.split(" | "))}


def test_without_a_gpu_it_says_what_is_missing(command, tmp_path):
    done = subprocess.run([*command, "--out", tmp_path], capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 5 and "GPU: cannot be used" in done.stdout
    assert not list(tmp_path.iterdir())


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
