"""examples/dask_score.py: two worker processes give the bits of one, and torch's scores."""

import re
import sys

import numpy as np
import pytest
import torch
from commands import ROOT, run

pytestmark = [
    pytest.mark.long,  # starts processes
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN"),
]


@pytest.fixture
def example(monkeypatch):
    """The example as a module. Dask is not among the requirements of the tests that all run."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    try:
        import dask_score
    except SystemExit as missing:
        pytest.fail(f"{missing}, or -r tools/requirements.txt", pytrace=False)
    return dask_score


def torch_scores(example, x, dtype):
    lstm = torch.nn.LSTM(example.INPUTS, example.HIDDEN, batch_first=True,
                         proj_size=example.SCORES)  # fmt: skip
    lstm.load_state_dict({k: torch.tensor(v) for k, v in example.make_weights().items()})
    with torch.no_grad():
        return lstm.to(dtype)(torch.tensor(x).to(dtype))[1][0][0].double().numpy()


def test_two_workers_score_as_one_process_does(example, tmp_path):
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

    (path, *_) = sorted(tmp_path.glob("*.parquet"))
    x = np.stack(example.pq.read_table(path)["x"].to_numpy()[:500])
    x = x.reshape(-1, example.STEPS, example.INPUTS)
    ours = np.load(tmp_path / "dask" / f"{path.stem}.npy")[:500]
    exact, theirs = (torch_scores(example, x, t) for t in (torch.float64, torch.float32))
    # torch's own rounding is the measure, as in test_torch.py; a few such errors may add up
    assert np.abs(ours - exact).max() < 4 * np.abs(theirs - exact).max()
    assert np.abs(exact).max() > 0.1
