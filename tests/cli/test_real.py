"""Published files on the command line: inspected, converted, run as their own packages run them.

The oracles: tf_keras on the LSTMs of textgenrnn, onnxruntime on all of silero-vad, torch on
silero-vad's tensors. examples/real_checkpoints.py has those of g2p-en.
"""

import json
import sys

import numpy as np
import onnx
import pytest
import safetensors.torch
import tf_keras
import torch
from commands import ROOT
from files.onnx.models import lstms, session, shown
from oracles.frameworks import KERAS_NOISE, normal, seeded
from oracles.reference import forward, from_onnx

import rnnlayout as rl

sys.path.insert(0, str(ROOT / "examples"))
import checkpoints

pytestmark = [KERAS_NOISE, pytest.mark.download]
T, N = 2, 3  # the bound grows from step to step: published weights are large


def textgenrnn(path):
    """tf_keras turns CuDNNLSTM layers into LSTM layers when it loads them."""
    model = rnns_of_textgenrnn(tf_keras)
    model.load_weights(path, by_name=True)
    for layer in model.layers:
        x = normal(seeded(layer.name), T, N, layer.input_shape[-1])
        yield layer.name, x, layer(x.swapaxes(0, 1)).numpy().swapaxes(0, 1)


def rnns_of_textgenrnn(kit):
    return kit.Sequential([kit.Input((None, 100))] + [
        kit.layers.LSTM(128, return_sequences=True, name=name) for name in ("rnn_1", "rnn_2")
    ])  # fmt: skip


def silero(path):
    """The whole network, chunk by chunk, each from the last state of the chunk before."""
    model = onnx.load(path)
    found, ran = list(lstms(model.graph)), {}
    names = [shown(model.graph, around, [node.input[0], node.output[0]]) for around, node in found]
    made, rng = session(model), seeded("silero")
    states = [g for g in made.get_inputs() if g.name in ("h", "c", "state")]
    feed = {g.name: np.zeros([d if isinstance(d, int) else 1 for d in g.shape], "f4")
            for g in states}  # fmt: skip
    if "sr" in {given.name for given in made.get_inputs()}:
        feed["sr"] = np.array(16000)
    kept = [out.name for out in model.graph.output][1 : 1 + len(states)]
    for _ in range(T):
        sound = normal(rng, 1, 576) / 8
        values = made.run([*kept, *(name for pair in names for name in pair)],
                          {**feed, "input": sound})  # fmt: skip
        feed |= zip((given.name for given in states), values, strict=False)
        for k in range(len(found)):
            x, y = values[len(kept) + 2 * k :][:2]
            if x.size:  # else it is in a branch that was not taken
                ran.setdefault(k, []).append((x, y[:, 0]))
    for k, steps in ran.items():
        yield list(rl.load(path))[k], *map(np.concatenate, zip(*steps, strict=True))


def silero_tensors(path):
    cell = torch.nn.LSTMCell(128, 128)
    state = safetensors.torch.load_file(path)
    cell.load_state_dict({k[10:]: v for k, v in state.items() if k.startswith("lstm_cell.")})
    x, y, last = torch.from_numpy(normal(seeded("tensors"), T, N, 128)), [], None
    with torch.no_grad():
        for x_t in x:
            last = cell(x_t, last)
            y.append(last[0].numpy())
    yield "lstm_cell", x.numpy(), np.stack(y)


# checkpoint, its name in the test, oracle, number of RNNs, their layout; the new file, its layout
FILES = [
    (checkpoints.TEXTGENRNN, "a.hdf5", textgenrnn, 2, "keras-cudnn", "new.h5", "keras"),
    (checkpoints.SILERO, "a.onnx", silero, 1, "onnx", "new.safetensors", "cudnn"),
    (checkpoints.SILERO_NESTED, "a.onnx", silero, 4, "onnx", "new.pt", "torch"),
    (checkpoints.SILERO_TENSORS, "a.safetensors", silero_tensors, 1, "torch-cell", "new.onnx",
     "onnx"),
]  # fmt: skip
IDS = ["textgenrnn", "silero-vad", "silero-vad, nested", "silero-vad's tensors"]


@pytest.mark.parametrize("checkpoint, name, oracle, count, layout, new, to", FILES, ids=IDS)
def test_a_published_file(
    rnnlayout, checkpoint, name, oracle, count, layout, new, to, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(checkpoints.fetch(checkpoint))
    code, out, err = rnnlayout("inspect", name, "--json")
    (told,) = json.loads(out)["files"]
    assert (code, err) == (0, "") and not told["refused"] and not told["undecided"]
    assert [entry["layout"] for entry in told["entries"]] == [layout] * count
    code, out, err = rnnlayout("convert", name, new, "--to", to)
    assert (code, out) == (0, "") and err.endswith(f"{new}: written\n"), err
    for entry, x, y in oracle(name):
        np.save("x.npy", x)
        weights = rl.load(name)[entry]
        h0 = np.zeros((1, x.shape[1], weights.spec.hidden_size), "f4")
        c0 = h0 if weights.spec.cell == "lstm" else None
        exact = forward(from_onnx(weights.to("onnx"), weights.spec), weights.spec, x, h0, c0).y
        for file in (name, new):
            more = ["--only", entry] if count > 1 else []
            code, out, err = rnnlayout("run", file, "--input", "x.npy", "--output", "y.npy",
                                       "--time-first", "--force", *more)  # fmt: skip
            assert (code, out) == (0, ""), err
            # Each of the two may be off by what float32's rounding explains: reference.Rounded
            assert (np.abs(np.load("y.npy") - y) <= 2 * exact.error).all()
            assert exact.error.max() < 0.01 < np.ptp(y)  # there is something to be wrong


def test_a_program_is_read(rnnlayout, tmp_path):
    """The two RNNs of silero's TorchScript archive have torch's bits."""
    path, new = tmp_path / "silero.jit", tmp_path / "new.npz"
    path.write_bytes(checkpoints.fetch(checkpoints.SILERO_TORCHSCRIPT))
    code, out, _ = rnnlayout("inspect", path)
    names = [f"{model}.decoder.rnn" for model in ("_model", "_model_8k")]
    assert code == 0 and [line for line in out.splitlines() if line in names] == names
    assert rnnlayout("convert", path, new, "--to", "torch-cell")[0] == 0
    state = torch.jit.load(path).state_dict()
    found = np.load(new)
    for name in names:
        for tensor in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            own = state[f"{name}.{tensor}"].numpy()
            assert found[f"{name}.{tensor}"].tobytes() == own.tobytes()
