"""Published weights, converted and run by the frameworks themselves.

The oracles: tf_keras's own conversion of the old file, the forward passes of Keras, tf_keras and
torch, the NumPy cell that g2p-en ships. A plain run downloads nothing: it takes
the one layer that is stored in examples/data, and random numbers in the shapes of g2p-en's.
"""

import io
import os
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import h5py
import keras
import numpy as np
import pytest
import tf_keras
import torch
from commands import ROOT
from marks import download
from oracles.g2p import grucell

import rnnlayout as rl

sys.path.insert(0, str(ROOT / "examples"))

import checkpoints
import real_checkpoints
import recurrence
from recurrence import parts, sigmoid

EXAMPLES = ROOT / "examples"
STEPS = 6
UNIT = 2.0**-53  # the largest relative error of one operation in double


@pytest.fixture(scope="module", params=[download("fetched"), "in the repository"])
def lstm_file(request, tmp_path_factory):
    """The published file, or its first layer."""
    data = checkpoints.SMALL.read_bytes()
    if request.param == "fetched":
        data = checkpoints.fetch(checkpoints.TEXTGENRNN)
    path = tmp_path_factory.mktemp("textgenrnn") / "weights.hdf5"
    path.write_bytes(data)
    return path


@pytest.fixture(scope="module")
def layers(lstm_file):
    with h5py.File(lstm_file, "r") as file:
        return real_checkpoints.read_layers(file)


@pytest.fixture(scope="module")
def weights(layers):
    return rl.stack(rl.Weights(layer, layout="keras-cudnn") for layer in layers)


@pytest.fixture(scope="module")
def x(weights):
    return np.random.default_rng(7).standard_normal((STEPS, 1, weights.spec.input_size))


@pytest.fixture(scope="module", params=[download("fetched"), "random"])
def gru_arrays(request):
    """The arrays of g2p-en's checkpoint, or others of the same shapes."""
    if request.param == "fetched":
        return dict(np.load(io.BytesIO(checkpoints.fetch(checkpoints.G2P)), allow_pickle=False))
    rng, shapes = np.random.default_rng(21), {"w_ih": (768, 256), "w_hh": (768, 256)}
    shapes |= {"b_ih": (768,), "b_hh": (768,)}
    return {f"{part}_{name}": rng.normal(0, 0.1, shape).astype("f4")
            for part in ("enc", "dec") for name, shape in shapes.items()}  # fmt: skip


# -------------------------------------------------------------- how far rounding in double can go
#
# A running bound, to first order: each d... is the largest error of a quantity that is computed in
# double. A sum of n products errs by n UNIT times the sum of their magnitudes, in any order; a
# sigmoid or tanh, and the few operations of the cell, by a few UNIT; the derivatives pass on the
# errors of the inputs. Two computations in double differ by at most twice the bound.


def gate_error(layer, gate, x, dx, h, dh):
    """Return the error of a gate's sum, from the errors of the input and the state."""
    n = x.shape[-1] + h.shape[-1] + 2
    sized = {role: {gate: abs(layer[role][gate])} for role in layer}
    size_x, size_h = parts(sized, gate, abs(x), abs(h))
    return (
        n * UNIT * size_x + dx @ sized["W"][gate].T,
        n * UNIT * size_h + dh @ sized["R"][gate].T,
    )


def sigmoid_error(a, da):
    return sigmoid(a) * (1 - sigmoid(a)) * da + 4 * UNIT


def tanh_error(a, da):
    return (1 - np.tanh(a) ** 2) * da + 4 * UNIT


def lstm_error(layers, x):
    dx = np.zeros_like(x)
    for layer in layers:
        h = c = dh = dc = np.zeros((x.shape[1], len(layer["bW"]["i"])))
        y, dy = [], []
        for x_t, dx_t in zip(x, dx, strict=True):
            a = {g: sum(parts(layer, g, x_t, h)) for g in "ifgo"}
            da = {g: sum(gate_error(layer, g, x_t, dx_t, h, dh)) for g in "ifgo"}
            i, f, o, g = sigmoid(a["i"]), sigmoid(a["f"]), sigmoid(a["o"]), np.tanh(a["g"])
            di, df, do = (sigmoid_error(a[k], da[k]) for k in "ifo")
            dc = f * dc + abs(c) * df + i * tanh_error(a["g"], da["g"]) + abs(g) * di
            c = f * c + i * g
            dc = dc + 2 * UNIT * (1 + abs(c))
            h, dh = o * np.tanh(c), abs(np.tanh(c)) * do + o * tanh_error(c, dc) + UNIT
            y.append(h)
            dy.append(dh)
        x, dx = np.stack(y), np.stack(dy)
    return dx


def gru_error(layer, x):
    h = dh = np.zeros((x.shape[1], len(layer["bW"]["n"])))
    bounds = []
    for x_t in x:
        r, z = (sigmoid(sum(parts(layer, g, x_t, h))) for g in "rz")
        dr, dz = (
            sigmoid_error(
                sum(parts(layer, g, x_t, h)), sum(gate_error(layer, g, x_t, 0 * x_t, h, dh))
            )
            for g in "rz"
        )
        from_x, from_h = parts(layer, "n", x_t, h)
        dn_x, dn_h = gate_error(layer, "n", x_t, 0 * x_t, h, dh)
        n = np.tanh(from_x + r * from_h)
        dn = tanh_error(from_x + r * from_h, dn_x + r * dn_h + abs(from_h) * (dr + UNIT))
        dh = (1 - z) * dn + abs(h - n) * dz + z * dh + 4 * UNIT
        h = (1 - z) * n + z * h
        bounds.append(dh)
    return np.stack(bounds)


# --------------------------------------------------------------------------- CuDNNLSTM, textgenrnn


def test_tf_keras_converts_the_file_to_the_same_bits(lstm_file, weights):
    """tf_keras turns CuDNNLSTM weights into those of an LSTM when it loads them."""
    model = tf_keras.Sequential([tf_keras.Input((None, weights.spec.input_size))])
    for k in range(weights.spec.num_layers):
        model.add(tf_keras.layers.LSTM(128, return_sequences=True, name=f"rnn_{k + 1}"))
    model.load_weights(lstm_file, by_name=True)
    ours = weights.to("keras").values()
    theirs = model.get_weights()
    assert [a.tobytes() for a in ours] == [a.tobytes() for a in theirs]


def test_keras_3_does_not_read_the_file(lstm_file, weights):
    """As the README says; this is why the conversion is needed."""
    model = keras.Sequential([keras.Input((None, weights.spec.input_size))])
    for k in range(weights.spec.num_layers):
        model.add(keras.layers.LSTM(128, return_sequences=True, name=f"rnn_{k + 1}"))
    with pytest.raises(ValueError, match="shape"):
        model.load_weights(lstm_file, by_name=True)


@pytest.fixture(scope="module")
def own(layers):
    """The file's arrays, read without rnnlayout."""
    return recurrence.read_cudnn_lstm([list(layer.values()) for layer in layers])


def test_cudnn_and_torch_forms_hold_the_same_bits(weights, own, x):
    flat, tensors = weights.pack(exact=True), weights.to("torch", exact=True)
    y = recurrence.lstm(own, x)
    assert np.array_equal(recurrence.lstm(recurrence.read_cudnn(flat, weights.spec), x), y)
    assert np.array_equal(recurrence.lstm(recurrence.read_torch(tensors, "ifgo"), x), y)


def test_torch_lstm_computes_what_the_file_says(weights, own, x):
    spec = weights.spec
    module = torch.nn.LSTM(spec.input_size, spec.hidden_size, spec.num_layers).double()
    rl.assign(module, weights.to("torch"))
    with torch.no_grad():
        y = module(torch.from_numpy(x))[0].numpy()
    assert (abs(y - recurrence.lstm(own, x)) <= 2 * lstm_error(own, x)).all()


@pytest.mark.parametrize("framework", [keras, tf_keras], ids=["keras", "tf_keras"])
def test_keras_lstm_computes_what_the_file_says(framework, weights, own, x):
    """The difference is explained by the rounded bias sums and the arithmetic in double."""
    converted = weights.to("keras")
    stack = [
        framework.layers.LSTM(128, return_sequences=True, dtype="float64")
        for _ in range(weights.spec.num_layers)
    ]
    rl.assign(stack, converted)
    y = np.moveaxis(x, 0, 1)
    for layer in stack:
        y = layer(y)
    y = np.moveaxis(framework.ops.convert_to_numpy(y) if framework is keras else y.numpy(), 1, 0)
    rounded = recurrence.merged_bias_errors(own)
    allowed = recurrence.lstm_shift(own, x, rounded) + 2 * lstm_error(own, x)
    assert (abs(y - recurrence.lstm(own, x)) <= allowed).all()
    assert 0 < len(rounded) < converted.report.rounded_sums


# ------------------------------------------------------------------------------------ GRU, g2p-en


@pytest.mark.parametrize("part", ["enc", "dec"])
def test_gru_from_the_weight_space(part, gru_arrays):
    """Compared with g2p-en's own cell on its own arrays, and with torch's GRU."""
    tensors = real_checkpoints.torch_names(gru_arrays, part)
    spec = rl.infer_spec(tensors)
    flat = rl.pack(tensors, exact=True)
    x = np.random.default_rng(3).standard_normal((STEPS, 1, spec.input_size))

    (layer,) = recurrence.read_cudnn(flat, spec)
    h, y = np.zeros((1, spec.hidden_size)), []
    for x_t in x:
        h = recurrence.gru_step(layer, x_t, h)
        y.append(h)
    allowed = 2 * gru_error(layer, x)

    h, theirs = np.zeros((1, spec.hidden_size)), []
    for x_t in x:
        h = grucell(x_t, h, *(tensors[name].astype("f8") for name in tensors))
        theirs.append(h)
    assert (abs(np.stack(y) - np.stack(theirs)) <= allowed).all()

    module = torch.nn.GRU(spec.input_size, spec.hidden_size).double()
    rl.assign(module, rl.unpack(flat, spec, to="torch", exact=True))
    with torch.no_grad():
        assert (abs(np.stack(y) - module(torch.from_numpy(x))[0].numpy()) <= allowed).all()


# ------------------------------------------------------------------------------------ the command


def example(*args, **env):
    return subprocess.run(
        [sys.executable, EXAMPLES / "real_checkpoints.py", *args],
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        check=False,
    )


@pytest.mark.download
def test_the_example_runs():
    done = example()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("all outputs agree\n")
    assert not done.stderr


@pytest.mark.parametrize("how", ["argument", "variable", "no network"])
def test_the_example_runs_without_the_packages(how, tmp_path):
    if how == "no network":  # a copy without kept files, and a package index that does not exist
        for path in ["real_checkpoints.py", "recurrence.py", "checkpoints.py", "checkpoints.txt"]:
            (tmp_path / path).write_bytes((EXAMPLES / path).read_bytes())
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / checkpoints.SMALL.name).write_bytes(checkpoints.SMALL.read_bytes())
        nowhere = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": "http://127.0.0.1:9",
                   "PIP_EXTRA_INDEX_URL": "", "PIP_FIND_LINKS": ""}  # fmt: skip
        done = subprocess.run(
            [sys.executable, tmp_path / "real_checkpoints.py"],
            capture_output=True, text=True, env={**os.environ, **nowhere}, check=False,
        )  # fmt: skip
    elif how == "argument":
        done = example("--offline")
    else:
        done = example(RNNLAYOUT_OFFLINE="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "examples/data/textgenrnn_rnn1.hdf5" in done.stdout
    assert "g2p-en: left out" in done.stdout


def test_the_example_fails_when_weights_are_wrong(monkeypatch, capsys):
    """The example can fail: two gates of the torch form are exchanged."""
    monkeypatch.setattr(
        real_checkpoints,
        "read_torch",
        lambda tensors, gates: recurrence.read_torch(tensors, "figo"),
    )
    monkeypatch.setenv("RNNLAYOUT_OFFLINE", "1")
    assert real_checkpoints.main("word", offline=True) == 1
    assert "1 comparisons FAILED" in capsys.readouterr().out
