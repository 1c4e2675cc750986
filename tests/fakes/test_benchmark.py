"""The benchmark of GPUs, run on the fakes: so that it works once there is a GPU. Its parts are in
test_benchmark_parts.py."""

import collections
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time

import pytest
from commands import ROOT, run

sys.path.insert(0, str(ROOT / "tools"))
sys.path.insert(0, str(ROOT / "benchmarks"))

import gpu
import gpu_facts
import gpu_rows
import tables


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
        rows = gpu_rows.Rows(tmp_path / "out" / "rows.jsonl").known
        return done.returncode, done.stdout + done.stderr, rows

    return run


def lines(folder):
    """Return how many rows each case has."""
    text = (folder / "out" / "rows.jsonl").read_text()
    return collections.Counter(json.loads(line)["case"] for line in text.split("\n") if line)


SPEED = "speed lstm,1,1,64,1,float32"


def test_a_framework_that_fails_loses_one_row(protocol, tmp_path):
    """The others' rows exist, and the next run fills its row in."""
    (tmp_path / "bad" / "torch").mkdir(parents=True)
    code = "raise RuntimeError('out of luck')"
    (tmp_path / "bad" / "torch" / "__init__.py").write_text(code)
    only = [f"{SPEED} torch", f"{SPEED} cuDNN", "forward gru"]
    status, said, rows = protocol(*only, PYTHONPATH=str(tmp_path / "bad"))
    failed = rows.pop(f"{SPEED} torch")
    assert status == 1 and f"FAILED {SPEED} torch" in said
    assert (failed["failed"], failed["said"]) == ("exit code 1", "RuntimeError: out of luck")
    # the others have imported no framework that they do not need
    assert all("found" in row for row in rows.values()), said
    assert rows.keys() == {"about", "forward gru", f"{SPEED} cuDNN"}
    status, said, rows = protocol(*only)
    assert status == 0, said
    assert lines(tmp_path) == dict.fromkeys(only, 1) | {"about": 2, f"{SPEED} torch": 2}
    assert set(rows[f"{SPEED} torch"]["found"]["us"]) >= {"ours", "torch", "raw cuDNN"}


FACTS = ["fact default_streams", "fact no_first_state", "fact clip", "fact at_any_element"]


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
    done = {name for name in gpu_rows.Rows(file).known if name != "about"}
    assert done
    with file.open("a") as rows:
        rows.write('{"case": "fact at_a')
    status, said, rows = protocol(*FACTS)
    assert status == 0, said
    assert {name for name, row in rows.items() if "found" in row} == {"about", *FACTS}
    for name in done:
        assert file.read_text().count(f'"case": "{name}"') == 1
    assert json.loads(next((tmp_path / "out").glob("gpu-*.json")).read_text())["facts"].keys() == {
        name.removeprefix("fact ") for name in FACTS
    }


def test_time_that_is_up(command, fakes, tmp_path):
    """The command ends in time, keeps its rows, and goes on when it is run again."""
    more = ["--out", "out", "--only", "fact *", "--minutes"]
    first, again = (subprocess.run([*command, *more, str(minutes)], cwd=tmp_path, text=True,
                                   env=fakes.environment(), capture_output=True, check=False)
                    for minutes in (1 / 60, 10))  # fmt: skip
    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    assert re.search(r"time is up: \d+ of \d+ cases are left", first.stdout)
    assert "time is up" not in again.stdout
    assert set(lines(tmp_path).values()) == {1, 2} and lines(tmp_path)["about"] == 2


def test_results_are_made_again_without_a_gpu(command, protocol, tmp_path):
    assert protocol("forward gru", "fact default_streams")[0] == 0
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
    found = {"torch": "2"}
    cases = gpu.cases(found, {"path": "/cudnn/libcudnn.so.9", "cublas": None})
    names = [case.name for case in cases]
    assert len(set(names)) == len(names)
    order = dict.fromkeys(name.split()[0] for name in names)
    assert list(order) == ["forward", "fact", "parity", "speed"]
    assert {case.peer for case in cases} == {"alone", "cuDNN", "torch"}  # a process each
    alone = gpu.cases({"torch": None}, {"path": "/libcudnn.so.9", "cublas": None})
    assert {case.words[-1] for case in alone if case.words[0] in ("parity", "speed")} == {
        "alone",
        "cuDNN",
    }


def test_another_answer_is_news(fakes, monkeypatch, capsys):
    for name, value in fakes.environment(FAKE_FAIL="30:2:5000").items():
        monkeypatch.setenv(name, value)
    case = gpu_rows.Case(("fact", "no_first_state"), (str(fakes.cudnn),))
    worker = gpu_rows.Worker()
    row = worker.run(case, 60)
    worker.end()
    assert row["failed"] == "exit code 1"
    results = gpu.joined({}, {case.name: row})
    assert results["facts"]["no_first_state"]["answer"]["died"] == "exit code 1"
    assert results["failed"] == {}  # it is an answer
    gpu.summary(results)
    assert "not as expected: no_first_state" in capsys.readouterr().out


def test_a_case_ends_with_the_command(fakes, command, tmp_path):
    (tmp_path / "torch").mkdir()
    code = "import os, time; print(os.getpid(), file=open('pid', 'w'), flush=True); time.sleep(600)"
    (tmp_path / "torch" / "__init__.py").write_text(code)
    pid = tmp_path / "pid"
    with subprocess.Popen([*command, "--out", "out", "--only", f"{SPEED} torch"], cwd=tmp_path,
                          env=fakes.environment(PYTHONPATH=str(tmp_path)),
                          stdout=subprocess.DEVNULL) as first:  # fmt: skip
        while not (pid.exists() and pid.read_text().endswith("\n")):
            time.sleep(0.05)
        ended = os.pidfd_open(int(pid.read_text()))
        first.kill()
    assert select.select([ended], [], [], 60)[0]
    os.close(ended)


@pytest.fixture(scope="session")
def measured(fakes, command, tmp_path_factory):
    """What the command writes about all facts and a selection of the rest, and what it prints."""
    to = tmp_path_factory.mktemp("measured")
    some = ["forward *", "fact *", "parity gru,L=1,D=1,*", f"{SPEED} *"]
    said = run([*command, "--out", to, "--only", *some], env=fakes.environment())
    return json.loads(next(to.glob("gpu-*.json")).read_text()), said


# No answer on the fakes, which end a process over it.
STRICTER = {"states_in_place"}


@pytest.mark.long
def test_every_question_is_answered_as_the_fakes_do(measured):
    facts = measured[0]["facts"]
    assert set(facts) == set(gpu_facts.FACTS)
    assert {name for name, f in facts.items() if f["as_expected"] is False} == set()
    assert {name for name, f in facts.items() if "left_out" in f["answer"]} == {
        "curves_of_small_h", "more_than_2_31_elements", "beside_torch", "capture",
        "first_call_in_a_capture", "capture_while_this_thread_frees", "compiled_by_torch",
        "results_dropped_at_once", "beside_cupy", "beside_jax", "clip",
    }  # fmt: skip
    died = {name: f["answer"]["died"] for name, f in facts.items() if "died" in f["answer"]}
    assert died == dict.fromkeys(STRICTER, "exit code 86")
    for name in ("handle_during_a_capture", "capture_and_other_lengths"):
        assert facts[name]["answer"] == {"same": True}


@pytest.mark.long
def test_results_are_compared(measured):
    parity = measured[0]["parity"]
    assert parity["failures"] == [] and parity["checked"] >= 100
    assert "ours, math tf32, float32" in parity["worst"]
    assert all(0 < worst <= 1 for worst in parity["worst"].values())
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        for arrays in ("host", "driver"):
            assert f"ours, {arrays} arrays, {dtype}" in parity["worst"]
            assert f"ours, {arrays} arrays, steps, {dtype}" in parity["worst"]
        assert (f"ours, algo standard, {dtype}" in parity["worst"]) == (dtype != "float64")
        assert f"torch, cpu, {dtype}" in parity["worst"]


@pytest.mark.long
def test_times_are_taken(measured):
    found, said = measured
    assert len(found["speed"]) == 2  # beside cuDNN and torch
    for row in found["speed"]:
        assert row["failed"] == {} and "ours" in row["us"]
        assert row["us"]["raw cuDNN"]["device"] == [10, 10]
        assert next(what for what, *_ in row["goals"]) == "over raw cuDNN"
    assert re.search(r"\d+ goals met, \d+ missed", said)
    assert found["about"]["GPU"] == "Fake GPU"


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in tables.TABLES if name.startswith("gpu_")])
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
