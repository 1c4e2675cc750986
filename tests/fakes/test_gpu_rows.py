"""The runner of the GPU's benchmark: a process for each case, a row for each process."""

import subprocess
import sys

from commands import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import gpu_rows


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


def test_a_case_without_an_answer_is_a_row(monkeypatch, tmp_path):
    worker = worker_of(monkeypatch, tmp_path, "print('bye', file=sys.stderr); sys.exit(3)")
    row = worker.run(CASE, 60)
    assert (row["failed"], row["said"]) == ("exit code 3", "bye")


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
