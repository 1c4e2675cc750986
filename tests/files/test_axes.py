"""Which axis of x is the batch: what a file says is read, recorded and kept."""

import numpy as np
import onnx
import pytest
import tf_keras
import torch
from onnx import helper
from oracles.frameworks import KERAS_NOISE, H, I, N, T, keras, normal, seeded

import rnnlayout as rl

pytestmark = KERAS_NOISE
RECORDED = [".safetensors", ".npz", ".pt", ".bin"]


def keras_file(path):
    """Write a Keras model; return x and what Keras computes. N and T differ."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [keras.Input((None, I)), keras.layers.GRU(H, return_sequences=True, name="gru")]
    )
    model.save(path)
    x = normal(seeded("axes"), N, T, I)
    return x, keras.ops.convert_to_numpy(model(x))


def only(found):
    (weights,) = found.values()
    return weights


@pytest.mark.parametrize("suffix", RECORDED)
def test_a_keras_layer_reads_the_batch_first_also_in_another_file(suffix, tmp_path):
    old, new = tmp_path / "model.keras", tmp_path / f"new{suffix}"
    x, y = keras_file(old)
    rl.convert_file(old, new, to="cudnn")
    again = tmp_path / f"again{suffix}"
    rl.convert_file(new, again, to="cudnn")
    for path in (old, new, again):
        weights = only(rl.load(path))
        assert weights.batch_first is True
        ours = rl.RNN(weights)(x)[0]
        # A step rounds sums of I + H products, none above 4 here, and no slope is above 1. With
        # the wrong axes, y is about 1 off.
        error = T * (I + H) * 4 * np.finfo("f4").eps
        assert ours.shape == y.shape and np.abs(ours - y).max() < error


def test_a_keras_layer_that_is_time_major(tmp_path):
    path = tmp_path / "model.h5"
    layer = tf_keras.layers.LSTM(H, time_major=True, return_sequences=True)
    model = tf_keras.Sequential([tf_keras.Input((None, I)), layer])
    model.save(path)
    assert only(rl.load(path)).batch_first is False


@pytest.mark.parametrize("suffix", [".weights.h5", ".h5"])
def test_a_keras_file_of_weights_alone(suffix, tmp_path):
    path = tmp_path / f"model{suffix}"
    model = tf_keras.Sequential([tf_keras.Input((None, I)), tf_keras.layers.LSTM(H)])
    model.save_weights(path)
    assert only(rl.load(path)).batch_first is True


@pytest.mark.parametrize("layout", [None, 0, 1])
def test_an_onnx_node_says_it(layout, tmp_path):
    path, new = tmp_path / "model.onnx", tmp_path / "new.npz"
    rl.save(path, rl.Weights(torch.nn.LSTM(I, H)).to("onnx"))
    model = onnx.load(path)
    (node,) = (node for node in model.graph.node if node.op_type == "LSTM")
    if layout is not None:
        node.attribute.append(helper.make_attribute("layout", layout))
    onnx.save(model, path)
    rl.convert_file(path, new, to="torch")
    for file in (path, new):
        assert only(rl.load(file)).batch_first is (layout == 1)


@pytest.mark.parametrize("suffix", RECORDED)
def test_a_checkpoint_does_not_say_it(suffix, tmp_path):
    path, new = tmp_path / "state.pt", tmp_path / f"new{suffix}"
    torch.save(torch.nn.LSTM(I, H, batch_first=True).state_dict(), path)
    rl.convert_file(path, new, to="cudnn")
    assert only(rl.load(path)).batch_first is None
    assert only(rl.load(new)).batch_first is None
    assert b"batch_first" not in new.read_bytes()


@pytest.mark.parametrize("suffix", RECORDED)
@pytest.mark.parametrize("says", [True, False])
def test_a_live_module_says_it_and_save_records_it(suffix, says, tmp_path):
    weights = rl.Weights(torch.nn.GRU(I, H, batch_first=says)).to("cudnn")
    rl.save(tmp_path / f"a{suffix}", weights)
    assert only(rl.load(tmp_path / f"a{suffix}")).batch_first is says


def test_the_json_beside_a_bin_keeps_the_settings(tmp_path):
    weights = rl.Weights(torch.nn.GRU(I, H)).to("cudnn")
    weights.config["go_backwards"] = True
    rl.save(tmp_path / "a.bin", weights)
    assert only(rl.load(tmp_path / "a.bin")).config == {"go_backwards": True}
    weights.config["clip"] = np.inf
    with pytest.raises(rl.LayoutError, match="cannot be written as JSON"):
        rl.save(tmp_path / "b.bin", weights)


def test_verify_mentions_other_axes_and_calls_the_rnns_equal():
    module = torch.nn.GRU(I, H)
    first = rl.Weights(module)
    module.batch_first = True
    report = rl.verify(first, rl.Weights(module))
    assert report and "x is (T, N, I) in a and x is (N, T, I) in b" in str(report)
    assert "x is" not in str(rl.verify(first, rl.Weights(module.state_dict())))
