"""examples/dask_score.py: two worker processes give the bits of one."""

import re
import sys

import pytest
from commands import ROOT, run


@pytest.mark.long  # starts processes; Dask is in tools/requirements.txt
def test_two_workers_score_as_one_process_does(tmp_path):
    printed = run([
        sys.executable, ROOT / "examples" / "dask_score.py", "--gigabytes", "0.06",
        "--folder", tmp_path,
    ])  # fmt: skip
    lines = printed.splitlines()
    assert re.fullmatch(r"0.06 GB in 5 files: \d+ s", lines[0])
    workers = [re.search(r"(\d+) files, weights sent once, peak memory (\d+) MB", line)
               for line in lines[1:-3]]  # fmt: skip
    assert sum(int(found[1]) for found in workers) == 5
    assert max(int(found[2]) for found in workers) < 500  # the limit that Dask was given
    assert lines[-1] == "the scores are equal, bit for bit"
