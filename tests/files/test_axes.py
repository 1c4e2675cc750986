"""Which axis of x is the batch: what a file says is read, recorded and kept."""

import numpy as np
import onnx
import pytest
import tensorflow as tf
import tf_keras
import torch
from marks import in_turn
from onnx import helper
from oracles.frameworks import KERAS_NOISE, H, I

import rnnlayout as rl

pytestmark = KERAS_NOISE
RECORDED = [".safetensors", ".npz", ".pt", ".bin"]


def keras_file(path, **options):
    layer = tf_keras.layers.LSTM(H, return_sequences=True, **options)
    model = tf_keras.Sequential([tf_keras.Input((None, I)), layer])
    model.save(path) if path.suffixes == [".h5"] else model.save_weights(path)


def onnx_file(path, *layout):
    rl.save(path, rl.Weights(torch.nn.LSTM(I, H)).to("onnx"))
    model = onnx.load(path)
    (node,) = (node for node in model.graph.node if node.op_type == "LSTM")
    node.attribute.extend(helper.make_attribute("layout", value) for value in layout)
    onnx.save(model, path)


def module(batch_first):
    return torch.nn.LSTM(I, H, batch_first=batch_first)


FILES = [  # name, a function that writes it, what it says
    ("a.h5", keras_file, True),
    ("a.h5", lambda path: keras_file(path, time_major=True), False),
    ("a.weights.h5", keras_file, True),
    ("a.onnx", onnx_file, False),
    ("a.onnx", lambda path: onnx_file(path, 0), False),
    ("a.onnx", lambda path: onnx_file(path, 1), True),
    ("a.pt", lambda path: torch.save(module(True).state_dict(), path), None),
    ("a.npz", lambda path: rl.save(path, rl.Weights(module(True))), True),
    ("a.pt", lambda path: rl.save(path, rl.Weights(module(False))), False),
]


@pytest.mark.parametrize("file, suffix", in_turn(FILES, RECORDED))
def test_what_a_file_says_is_recorded_in_the_next_ones(file, suffix, tmp_path):
    name, write, batch_first = file
    old, new, again = tmp_path / name, tmp_path / f"new{suffix}", tmp_path / f"again{suffix}"
    write(old)
    rl.convert_file(old, new, to="cudnn")
    rl.convert_file(new, again, to="cudnn")
    for path in (old, new, again):
        assert [weights.batch_first for weights in rl.load(path).values()] == [batch_first]
    assert (b"batch_first" in new.read_bytes()) == (batch_first is not None and suffix != ".bin")


def test_verify_mentions_other_axes_and_calls_the_rnns_equal():
    gru = torch.nn.GRU(I, H)
    first = rl.Weights(gru)
    gru.batch_first = True
    report = rl.verify(first, rl.Weights(gru))
    assert report and "x is (T, N, I) in a and x is (N, T, I) in b" in str(report)
    assert "x is" not in str(rl.verify(first, rl.Weights(gru.state_dict())))


@pytest.mark.parametrize("write", ["save_weights", "checkpoint", "export"])
def test_variables_of_keras_in_a_checkpoint_are_batch_first(write, tmp_path):
    model = tf_keras.Sequential(
        [tf_keras.Input((None, I)), tf_keras.layers.LSTM(H, return_sequences=True)]
    )
    path = tmp_path / "c.index"
    if write == "save_weights":
        model.save_weights(tmp_path / "c")
    elif write == "checkpoint":
        tf.train.Checkpoint(model=model).write(str(tmp_path / "c"))
    else:
        tf.saved_model.save(model, tmp_path / "m")
        path = tmp_path / "m" / "variables" / "variables.index"
    x = np.random.default_rng(0).normal(size=(2, 7, I)).astype("f4")
    found = rl.load(path)
    (weights,) = found.values()
    assert weights.batch_first is True
    np.testing.assert_allclose(rl.RNN(weights)(x)[0], model(x).numpy(), atol=1e-6)
    assert any("time_major" in note for note in found.notes)


def test_tensors_of_mlx_are_batch_first(tmp_path):
    tensors = rl.convert(torch.nn.LSTM(I, H), to="mlx")
    np.savez(tmp_path / "m.npz", **{f"rnn.{name}": array for name, array in tensors.items()})
    found = rl.load(tmp_path / "m.npz")
    assert found["rnn"].layout.name == "mlx" and found["rnn"].batch_first is True
    assert not found.notes
