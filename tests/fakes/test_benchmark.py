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
from oracles.bits import DTYPES

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
                              env=fakes.environment(COMMIT="0a1b2c3", **environment),
                              capture_output=True, text=True, check=False)  # fmt: skip
        rows = gpu.read(tmp_path / "out" / "rows.jsonl")
        return done.returncode, done.stdout + done.stderr, rows

    return run


def answers(folder):
    """Return how many answers each case has."""
    rows = map(json.loads, (folder / "out" / "rows.jsonl").read_text().split("\n")[1:])
    return collections.Counter(row["case"] for row in rows if "found" in row)


SPEED = "speed lstm,1,1,64,1,float32"


def test_a_case_that_fails_loses_one_row(protocol, tmp_path):
    """A framework that raises, is ended by the alarm, or hangs until then; the next run fills it
    in. The alarm does not ring for a case that only takes long on a busy machine."""
    torch, only = tmp_path / "bad" / "torch" / "__init__.py", [SPEED, "forward gru"]
    torch.parent.mkdir(parents=True)
    ring, hang = (
        "import signal; signal.raise_signal(signal.SIGALRM)",
        "import signal; signal.pause()",
    )
    for code, some, more, failed, words in (
        ("raise RuntimeError('out of luck')", only, (), "exit code 1", "RuntimeError: out of luck"),
        (ring, only, (), "no answer within 120 seconds", ""),
        (hang, [SPEED], ("--limit", "1"), "no answer within 1 seconds", ""),
    ):
        torch.write_text(code)
        status, said, rows = protocol(*some, more=more, PYTHONPATH=str(tmp_path / "bad"))
        assert status == 1 and f"FAILED {SPEED}: {failed}" in said
        assert (rows[SPEED]["failed"], rows[SPEED]["said"]) == (failed, words)
        assert "found" in rows["forward gru"]  # its process does not import torch
    status, said, rows = protocol(*only)
    assert status == 0, said
    assert answers(tmp_path) == dict.fromkeys(only, 1) | {"about": 4}
    assert set(rows[SPEED]["found"]["us"]) >= {"ours", "torch", "raw cuDNN"}


FACTS = ["fact streams", "fact growing_lengths", "fact forked_child", "fact at_any_element"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_command_is_continued(fakes, command, protocol, tmp_path, how):
    """After a kill or Ctrl-C, and with a line that was cut off, but on the same GPU. The results
    are put together again without it."""
    file = tmp_path / "out" / "rows.jsonl"
    with subprocess.Popen([*command, "--out", "out", "--only", *FACTS], cwd=tmp_path, text=True,
                          env=fakes.environment(COMMIT="0a1b2c3"), stdout=subprocess.PIPE,
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
    (made,) = (tmp_path / "out").glob("gpu-*.json")
    right = made.read_text()
    assert json.loads(right)["about"]["commit"] == "0a1b2c3"
    assert json.loads(right)["facts"].keys() == {name.removeprefix("fact ") for name in FACTS}
    made.unlink()
    run([*command, "--join", tmp_path / "out"], env={"PATH": os.environ["PATH"]})
    assert made.read_text() == right
    status, said, _ = protocol("forward lstm", FAKE_CUDA_NAME="Other GPU")
    assert status == 1 and "GPU Fake GPU, not Other GPU: give another folder to --out" in said


@pytest.mark.long
def test_every_question_is_answered_as_the_fakes_do(fakes, command, tmp_path, monkeypatch):
    """Results are compared, times are taken, and the page shows them."""
    some = ["forward *", "fact *", "parity gru,L=1,D=1,*", SPEED]
    run([*command, "--out", tmp_path, "--only", *some], env=fakes.environment())
    found = json.loads(next(tmp_path.glob("gpu-*.json")).read_text())
    facts, parity, (row,) = found["facts"], found["parity"], found["speed"]
    assert set(facts) == set(gpu_facts.FACTS)
    assert {name for name, answer in facts.items() if answer.get("right")} == {
        "growing_lengths", "at_any_element", "streams", "steppers", "forked_child"}  # fmt: skip
    assert all("left_out" in answer for answer in facts.values() if "right" not in answer)
    assert parity["failures"] == [] and parity["checked"] >= 100
    assert all(0 < worst <= 1 for worst in parity["worst"].values())
    assert {
        f"ours, {arrays}, {dtype}"
        for dtype in DTYPES
        for arrays in ("host arrays", "driver arrays", "driver arrays, steps")
    } < parity["worst"].keys()
    assert {"ours, math tf32, float32", "ours, algo standard, float16"} < parity["worst"].keys()
    assert row["failed"] == {} and {
        "ours", "ours, stepper", "torch", "raw cuDNN, small H"} <= row["us"].keys()  # fmt: skip
    assert row["us"]["raw cuDNN"]["device"] == [10, 10]
    for name in ("gpu_speeds", "gpu_parity", "gpu_facts"):
        monkeypatch.setattr(tables, "GPU", {})
        assert tables.TABLES[name]() == tables.NOT_MEASURED
        monkeypatch.setattr(tables, "GPU", found)
        rows = [row for row in tables.TABLES[name]().splitlines() if row.startswith("|")]
        assert len(rows) > 2 and len({len(row.split(" | ")) for row in rows}) == 1


def test_without_a_gpu_it_says_what_is_missing(command, tmp_path):
    done = subprocess.run([*command, "--out", tmp_path], capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 5 and "GPU: cannot be used" in done.stdout
    assert not list(tmp_path.iterdir())
