"""The benchmark of GPUs, run on the fakes: so that it works once there is a GPU."""

import collections
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
from commands import ROOT, run

sys.path.insert(0, str(ROOT / "tools"))
sys.path.insert(0, str(ROOT / "benchmarks"))

import gpu
import gpu_facts
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
        rows = gpu.read(tmp_path / "out" / "rows.jsonl")
        return done.returncode, done.stdout + done.stderr, rows

    return run


def answers(folder):
    """Return how many answers each case has."""
    rows = map(json.loads, (folder / "out" / "rows.jsonl").read_text().split("\n")[1:])
    return collections.Counter(row["case"] for row in rows if "found" in row)


SPEED = "speed lstm,1,1,64,1,float32"


def test_a_case_that_fails_loses_one_row(protocol, tmp_path):
    """A framework that raises or hangs, or a call that fails; the next run fills it in."""
    torch, only = tmp_path / "bad" / "torch" / "__init__.py", [SPEED, "forward gru"]
    torch.parent.mkdir(parents=True)
    for code, more, failed, words in (
        ("raise RuntimeError('out of luck')", (), "exit code 1", "RuntimeError: out of luck"),
        ("import time; time.sleep(600)", ("--limit", "3"), "no answer within 3 seconds", ""),
    ):
        torch.write_text(code)
        status, said, rows = protocol(*only, more=more, PYTHONPATH=str(tmp_path / "bad"))
        assert status == 1 and f"FAILED {SPEED}: {failed}" in said
        assert (rows[SPEED]["failed"], rows[SPEED]["said"]) == (failed, words)
        assert "found" in rows["forward gru"]  # its process does not import torch
    status, _, rows = protocol("fact *y_element", "fact streams",
                               FAKE_FAIL="cuStreamDestroy_v2:2:5000")  # fmt: skip
    assert status == 1 and "cuStreamDestroy_v2" in rows["fact streams"]["said"]
    assert "found" in rows["fact at_any_element"]
    status, said, rows = protocol(*only, "fact streams")
    assert status == 0, said
    done = dict.fromkeys([*only, "fact streams", "fact at_any_element"], 1)
    assert answers(tmp_path) == done | {"about": 4}
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


def test_results_are_those_of_one_machine(command, protocol, tmp_path):
    """They are put together again without its GPU."""
    assert protocol("forward gru", "fact streams")[0] == 0
    (made,) = (tmp_path / "out").glob("gpu-*.json")
    right = made.read_text()
    made.unlink()
    run([*command, "--join", tmp_path / "out"], env={"PATH": os.environ["PATH"]})
    assert made.read_text() == right
    done = subprocess.run([*command, "--join", tmp_path], capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 2 and "no rows.jsonl of this command" in done.stderr
    status, said, _ = protocol("forward lstm", FAKE_CUDA_NAME="Other GPU")
    assert status == 1 and "GPU Fake GPU, not Other GPU: give another folder to --out" in said


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
