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


def test_a_case_without_an_answer_is_a_row(monkeypatch, tmp_path):
    """A library may print a last line of its own."""
    (tmp_path / "gpu.py").write_text("print('{}'); print('bye')")
    monkeypatch.setattr(gpu_rows, "COMMAND", tmp_path / "gpu.py")
    row = gpu_rows.run(gpu_rows.Case(("forward", "gru")), 60)
    assert row["failed"] == "no answer on its last line"


def test_a_process_that_cannot_be_killed_is_left_behind(monkeypatch, tmp_path):
    """As one may that waits inside the driver."""
    (tmp_path / "gpu.py").write_text("import time; time.sleep(600)")
    monkeypatch.setattr(gpu_rows, "COMMAND", tmp_path / "gpu.py")
    monkeypatch.setattr(gpu_rows, "DYING", 0.1)
    left = []
    with monkeypatch.context() as patch:
        patch.setattr(subprocess.Popen, "kill", lambda process: left.append(process))
        row = gpu_rows.run(gpu_rows.Case(("fact", "start")), 0.1)
    assert row["failed"] == "no answer within 0.1 seconds"
    left[0].kill()
    left[0].wait()
