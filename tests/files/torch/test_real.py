"""The torch files of silero-vad 6.2.3: tensors that torch's LSTM runs, and a program."""

import shutil
import sys

import numpy as np
import pytest
import safetensors.torch
import torch
from commands import ROOT
from oracles.reference import Run, distance_between, forward, from_cudnn

import rnnlayout as rl

sys.path.insert(0, str(ROOT / "examples"))
import checkpoints

pytestmark = pytest.mark.download

STEPS, BATCH = 30, 3


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("silero") / "silero.safetensors"
    path.write_bytes(checkpoints.fetch(checkpoints.SILERO_TENSORS))
    return path


def by_torch(cell, x, h, c):
    """Yield (inputs, results) of each step."""
    with torch.no_grad():
        for step in x:
            given = step[None], h.numpy()[None], c.numpy()[None]
            h, c = cell(torch.from_numpy(step), (h, c))
            yield given, Run(h.numpy()[None], h.numpy()[None], c.numpy()[None])


def test_its_lstm_runs_as_torch_runs_it(path):
    found = rl.load(path)
    weights = found["lstm_cell"]
    assert list(found) == ["lstm_cell"] and weights.layout == rl.layout("torch-cell")
    cell = torch.nn.LSTMCell(128, 128)
    state = safetensors.torch.load_file(path)
    cell.load_state_dict({k[10:]: v for k, v in state.items() if k.startswith("lstm_cell.")})
    rng = np.random.default_rng(4)
    x = rng.standard_normal((STEPS, BATCH, 128), np.float32)
    h, c = (rng.standard_normal((BATCH, 128), np.float32) / 2 for _ in "hc")
    steps = list(by_torch(cell, x, torch.from_numpy(h), torch.from_numpy(c)))
    assert np.ptp([theirs.y for _, theirs in steps]) > 1  # there is something to be wrong
    layers, rnn = from_cudnn(weights.pack(), weights.spec), weights.rnn()
    for (x_t, *state), theirs in steps:  # each from torch's own state: no bound grows over steps
        y, (hn, cn) = rnn(x_t, state)
        exact = forward(layers, weights.spec, x_t, *state)
        assert distance_between(Run(y, hn, cn), theirs, exact) <= 1


def test_converted_to_a_pt_file(path, tmp_path):
    """Its cell becomes the tensors of an nn.LSTM; all others are unchanged."""
    rl.convert_file(path, tmp_path / "silero.pt", to="torch", exact=True)
    result = torch.load(tmp_path / "silero.pt", weights_only=True)
    state = safetensors.torch.load_file(path)
    lstm = {name: result.pop(f"lstm_cell.{name}") for name in torch.nn.LSTM(1, 1).state_dict()}
    torch.nn.LSTM(128, 128).load_state_dict(lstm, strict=True)
    for name, value in lstm.items():
        assert torch.equal(value, state.pop(f"lstm_cell.{name.removesuffix('_l0')}"))
    assert result.keys() == state.keys()
    assert all(torch.equal(result[name], state[name]) for name in state)


def test_its_torchscript_archive(tmp_path):
    """The tensors of the program, also under another suffix, are those that torch has of it."""
    program = tmp_path / "silero.jit"
    program.write_bytes(checkpoints.fetch(checkpoints.SILERO_TORCHSCRIPT))
    state = torch.jit.load(program).state_dict()
    found = rl.load(program)
    assert rl.load(shutil.copy(program, tmp_path / "silero.pt")) == found
    assert list(found) == ["_model.decoder.rnn", "_model_8k.decoder.rnn"]
    for entry, weights in found.items():
        for name, array in weights.items():
            assert array.tobytes() == state[f"{entry}.{name}"].numpy().tobytes()
