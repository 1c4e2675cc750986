"""examples/onnx_to_torch.py gives onnx2torch, a converter of whole graphs, its recurrent nodes."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from commands import ROOT

import rnnlayout as rl

# For two other operators onnx2torch imports torchvision; no wheel on PyPI fits a torch for CPUs.
STUB = {"__init__.py": "from . import ops", "ops.py": "roi_align = None"}
PROGRAM = """
import sys, numpy as np, onnx2torch, onnx_to_torch, onnxruntime, torch
x = np.random.default_rng(0).standard_normal((6, 2, 4)).astype("f4")
for path in sys.argv[1:]:
    (right,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    with torch.no_grad():
        print(abs(right - onnx2torch.convert(path)(torch.from_numpy(x)).numpy()).max() <= 2e-7)
onnx2torch.convert("before.onnx")
"""


class Model(torch.nn.Module):
    def __init__(self, rnn):
        super().__init__()
        self.rnn = rnn
        self.head = torch.nn.Linear(rnn.hidden_size * (1 + rnn.bidirectional), 3)

    def forward(self, x):
        return self.head(self.rnn(x)[0])


@pytest.mark.download
def test_exported_models_give_the_outputs_of_onnxruntime(tmp_path, monkeypatch):
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", tmp_path]
    subprocess.run([*pip, "onnx2torch==1.5.15"], check=True)
    (tmp_path / "torchvision").mkdir()
    for name, text in STUB.items():
        (tmp_path / "torchvision" / name).write_text(text)
    rnns = {
        "deep": torch.nn.LSTM(4, 5, num_layers=2, bidirectional=True),
        "no_bias": torch.nn.LSTM(4, 5, bias=False),
        "batch_first": torch.nn.GRU(4, 5, batch_first=True),
        "relu": torch.nn.RNN(4, 5, nonlinearity="relu"),
    }
    for name, rnn in rnns.items():
        torch.onnx.export(
            Model(rnn), (torch.zeros(6, 2, 4),), tmp_path / f"{name}.onnx", input_names=["x"],
            dynamo=False, opset_version=17,
        )  # fmt: skip
    spec = rl.Spec("gru", 4, 5, reset="before")
    zeros = {name: np.zeros(shape, "f4") for name, shape in rl.describe(spec, "onnx").items()}
    rl.save(tmp_path / "before.onnx", rl.Weights(zeros, spec, layout="onnx"))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT / 'examples'}")
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, *(f"{name}.onnx" for name in rnns)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == ["True"] * len(rnns), done.stderr
    assert "torch has no reset-before GRU" in done.stderr
