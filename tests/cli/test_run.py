"""run: RNNs in files run on arrays in files, as their framework runs them."""

import os

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import numpy as np
import onnxruntime
import pytest
from keras.ops import convert_to_numpy as array
from onnx import TensorProto, helper, numpy_helper
from oracles.some import normal_weights

import rnnlayout as rl
from rnnlayout._model.given import given_of
from rnnlayout._weights import used as _used
from rnnlayout._weights.weights import weights_of

SPEC = rl.Spec("lstm", 3, 2, 2, True)
TORCH = normal_weights(rl.layout("torch"), SPEC)
X = np.random.default_rng(7).normal(size=(5, 4, 3)).astype("f4")
# Sums of at most 5 + 2 products of numbers around 1, five steps on: some units of the last place
# of numbers up to 8, half of which is 2^-22.
NEAR = dict(rtol=0, atol=16 * 2.0**-22)


@pytest.fixture
def folder(tmp_path):
    np.savez(tmp_path / "m.npz", **TORCH)
    np.save(tmp_path / "x.npy", X)
    return tmp_path


def arguments(folder, **names):
    files = {"input": "x.npy", "output": "y.npy"} | names
    told = [part for key, name in files.items() for part in (f"--{key}", folder / name)]
    return ["run", folder / "m.npz", *told]


def test_it_runs(rnnlayout, folder):
    y, (h_n, c_n) = rl.forward(X, TORCH)
    code, out, err = rnnlayout(*arguments(folder, states="s.npz"))
    assert (code, out) == (0, "")
    assert err == f"lstm: {SPEC}, on cpu: y (5, 4, 4)\n"
    assert np.array_equal(np.load(folder / "y.npy"), y)
    states = np.load(folder / "s.npz")
    assert np.array_equal(states["h_n"], h_n) and np.array_equal(states["c_n"], c_n)


def test_options(rnnlayout, folder):
    np.save(folder / "x.npy", X.swapaxes(0, 1).astype(">f4"))
    y, _ = rl.forward(X, TORCH, lengths=[5, 0, 3, 1])
    more = ["--batch-first", "--lengths", "5,0,3,1", "--device", "auto", "--entry", "lstm"]
    assert rnnlayout(*arguments(folder), *more)[0] == 0
    assert np.array_equal(np.load(folder / "y.npy"), y.swapaxes(0, 1))
    assert rnnlayout(*arguments(folder))[0] == 3  # it is there
    np.save(folder / "x.npy", np.asfortranarray(X))
    assert rnnlayout(*arguments(folder), "--force")[0] == 0
    assert np.array_equal(np.load(folder / "y.npy"), rl.forward(X, TORCH)[0])


@pytest.mark.parametrize(
    "change, code, said",
    [
        (["--device", "cuda:99"], 5, "cuda:99"),
        (["--device", "gpu"], 3, "device is 'gpu'"),
        (["--lengths", "9,9,9,9"], 3, "lengths"),
        (["--entry", "gru"], 3, "no RNN is named gru: there are lstm"),
        (["--output", "y.npz"], 3, "y.npz: the name must end in .npy"),
        (["--states", "s.npy"], 3, "s.npy: the name must end in .npz"),
        (["--input", "nix.npy"], 3, "nix.npy does not exist"),
        (["--input", "object.npy"], 3, "Python objects"),
        (["--input", "short.npy"], 3, "cut short"),
        (["--input", "whole.npy"], 3, "x is int64"),
    ],
)
def test_what_cannot_be_run(rnnlayout, folder, monkeypatch, change, code, said):
    monkeypatch.chdir(folder)
    np.save("object.npy", np.array([{}]), allow_pickle=True)
    np.save("whole.npy", np.ones(X.shape, "i8"))
    with open("short.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f4", "fortran_order": False, "shape": (1 << 40, 4, 3)}
        )
    before = sorted(os.listdir())
    found, out, err = rnnlayout(*arguments(folder), *change)
    assert (found, out) == (code, "") and said in err, err
    assert sorted(os.listdir()) == before


def used(weights, x=X, lengths=None, **config):
    weights = weights_of(given_of(weights), None, config)
    return _used.run(weights, x, lengths, device="cpu", batch_first=True)[:2]


def test_keras_goes_backwards():
    layer = keras.layers.GRU(2, go_backwards=True, return_sequences=True, return_state=True)
    y, h_n = layer(X)
    found_y, found_h = used(rl.Weights(layer), go_backwards=True, stateful=True)
    np.testing.assert_allclose(found_y, array(y), **NEAR)
    np.testing.assert_allclose(found_h[0], array(h_n), **NEAR)


def test_keras_stacks_go_backwards_and_merge():
    """The first layer reverses x for all layers; only the last layer merges."""
    L = keras.layers
    layers = [L.LSTM(2, return_sequences=True, go_backwards=k == 0) for k in range(2)]
    y = layers[1](layers[0](X))
    parts = [rl.Weights(layer) for layer in layers]
    parts[0].config = {"go_backwards": True}
    found = _used.run(rl.stack(parts), X, None, device="cpu", batch_first=True)[0]
    np.testing.assert_allclose(found, array(y), **NEAR)
    layers = [L.Bidirectional(L.GRU(2, return_sequences=True), mode) for mode in ("concat", "sum")]
    y = layers[1](layers[0](X))
    parts = [rl.Weights(layer.get_weights(), layout="keras") for layer in layers]
    parts[1].config = {"merge_mode": "sum"}
    found = _used.run(rl.stack(parts), X, None, device="cpu", batch_first=True)[0]
    np.testing.assert_allclose(found, array(y), **NEAR)


@pytest.mark.parametrize("mode", ["sum", "mul", "ave"])
def test_keras_merges(mode):
    layer = keras.layers.Bidirectional(keras.layers.LSTM(2, return_sequences=True), merge_mode=mode)
    y = layer(X)
    weights = rl.Weights(layer.get_weights(), layout="keras")
    np.testing.assert_allclose(used(weights, merge_mode=mode)[0], array(y), **NEAR)


def test_onnx_reverse():
    tensors = normal_weights(rl.layout("onnx"), rl.Spec("lstm", 3, 2))
    node = helper.make_node("LSTM", ["x", *tensors], ["y", "h"], direction="reverse", hidden_size=2)
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "yh"],
        [numpy_helper.from_array(array, name) for name, array in tensors.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    y, h_n = session.run(None, {"x": X})
    weights = weights_of(given_of(rl.Weights(tensors)), None, {"direction": "reverse"})
    found_y, (found_h, _), _ = _used.run(weights, X, None, device="cpu")
    np.testing.assert_allclose(found_y, y[:, 0], **NEAR)
    np.testing.assert_allclose(found_h, h_n, **NEAR)


def test_a_use_that_is_not_known_is_refused():
    one = rl.Weights(normal_weights(rl.layout("torch"), rl.Spec("lstm", 3, 2)))
    two = rl.Weights(TORCH)
    for weights, config in (
        (one, {"clip": 3.0}),
        (one, {"merge_mode": "sum"}),
        (two, {"go_backwards": True}),
        (two, {"merge_mode": None}),
        (two, {"direction": "reverse"}),
    ):
        with pytest.raises(rl.LossyError, match=next(iter(config))):
            used(weights, **config)
    with pytest.raises(rl.FileError, match="goes backwards cannot be run with lengths"):
        used(one, lengths=[1] * 5, go_backwards=True)
