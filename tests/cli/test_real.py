"""Published files of silero-vad, in three formats. What published files compute is compared with
their own packages by the commands of docs/howto/published-files.md, which test_docs.py runs."""

import json
import sys

import numpy as np
import pytest
import torch
from commands import ROOT
from oracles.some import same_bits
from safetensors.torch import load_file

sys.path.insert(0, str(ROOT / "examples"))
import checkpoints

pytestmark = pytest.mark.download


@pytest.fixture
def fetched(tmp_path, monkeypatch):
    """Return a function that puts a checkpoint into the current folder."""
    monkeypatch.chdir(tmp_path)
    return lambda checkpoint, name: (tmp_path / name).write_bytes(checkpoints.fetch(checkpoint))


@pytest.mark.parametrize(
    "checkpoint, count", [(checkpoints.SILERO, 1), (checkpoints.SILERO_NESTED, 4)]
)
def test_an_onnx_model(rnnlayout, fetched, checkpoint, count):
    """The larger one has its LSTMs in branches."""
    fetched(checkpoint, "a.onnx")
    (told,) = json.loads(rnnlayout("inspect", "a.onnx", "--json")[1])["files"]
    assert [entry["layout"] for entry in told["entries"]] == ["onnx"] * count
    assert not told["refused"] and not told["undecided"]
    assert rnnlayout("convert", "a.onnx", "new.pt", "--to", "torch")[0] == 0
    code, out, _ = rnnlayout("verify", "a.onnx", "new.pt")
    assert code == 0 and out.count(": equal\n") == count


def test_tensors_and_a_program_have_the_bits_of_torch(rnnlayout, fetched):
    fetched(checkpoints.SILERO_TENSORS, "a.safetensors")
    fetched(checkpoints.SILERO_TORCHSCRIPT, "a.jit")
    program = torch.jit.load("a.jit").state_dict()
    for name, state, rnns in (
        ("a.safetensors", load_file("a.safetensors"), ["lstm_cell"]),
        ("a.jit", program, ["_model.decoder.rnn", "_model_8k.decoder.rnn"]),
    ):
        code, out, _ = rnnlayout("inspect", name)
        assert code == 0 and [line for line in out.splitlines() if line in rnns] == rnns
        assert rnnlayout("convert", name, "new.npz", "--to", "torch-cell", "--force")[0] == 0
        found = np.load("new.npz")
        for tensor in (f"{rnn}.{part}_{kind}" for rnn in rnns for part in ("weight", "bias")
                       for kind in ("ih", "hh")):  # fmt: skip
            assert same_bits(found[tensor], state[tensor].numpy())
