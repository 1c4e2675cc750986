"""Options of Keras that a file of weights alone does not record: a note says what is assumed."""

import pickle

import numpy as np
import pytest
import tf_keras
from oracles.frameworks import H, I, N, T, normal, seeded

import rnnlayout as rl

HARD = {"recurrent_activation": "hard_sigmoid_keras2"}
NAMES = ("kernel", "recurrent_kernel", "bias")


def model_of(layer):
    tf_keras.utils.set_random_seed(1)
    return tf_keras.Sequential([tf_keras.Input((None, I)), layer])


def weights_file(model, suffix, folder):
    """Write the weights of a model's only layer; return the path and what load() needs."""
    path = folder / f"model{suffix}"
    arrays = model.get_weights()
    if suffix == ".index":
        model.save_weights(folder / "model", save_format="tf")
    elif suffix in (".h5", ".weights.h5"):
        model.save_weights(path)
    elif suffix == ".npz":
        np.savez(path, *arrays)
        return path, {"layout": "keras"}
    elif suffix == ".pkl":
        path.write_bytes(pickle.dumps(dict(zip(NAMES, arrays, strict=True))))
    return path, {}


@pytest.mark.parametrize("suffix", [".index", ".npz", ".pkl", ".h5", ".weights.h5"])
def test_activations_are_assumed_with_a_note(suffix, tmp_path):
    """A hard_sigmoid GRU ran with sigmoid, 0.014 off, and only for .h5 a note said so."""
    layer = tf_keras.layers.GRU(H, recurrent_activation="hard_sigmoid", return_sequences=True)
    model = model_of(layer)
    path, hints = weights_file(model, suffix, tmp_path)
    x = normal(seeded("assumed"), N, T, I)
    expected = model(x).numpy()
    # |y| <= 1; a step rounds sums of I + H + 2 products and biases, none above 4 here
    error = T * (I + H + 2) * 4 * np.finfo("f4").eps

    def off(found):
        (weights,) = found.values()
        return np.abs(rl.RNN(weights, batch_first=True)(x)[0] - expected).max()

    found = rl.load(path, **hints)
    assert off(found) > 100 * error
    (note,) = found.notes
    assert (
        "Keras's config: activation tanh, recurrent activation sigmoid, go_backwards=False assumed;"
        " for others pass activation=, recurrent_activation= or set weights.config in Python"
        in note
    )
    found = rl.load(path, **hints, **HARD)
    assert off(found) < error
    (note,) = found.notes
    assert "Keras's config: activation tanh, go_backwards=False assumed" in note
    assert "pass activation= or set weights.config in Python" in note
    (note,) = rl.load(path, **hints, **HARD, activation="tanh").notes
    assert "Keras's config: go_backwards=False assumed; for others set weights.config" in note


@pytest.mark.parametrize("suffix", [".index", ".h5", ".weights.h5"])
def test_a_lost_merge_mode_is_named(suffix, tmp_path):
    inner = tf_keras.layers.LSTM(H, return_sequences=True, go_backwards=True)
    model = model_of(tf_keras.layers.Bidirectional(inner, merge_mode="sum"))
    found = rl.load(weights_file(model, suffix, tmp_path)[0])
    (weights,) = found.values()
    (note,) = found.notes
    assert "sigmoid, go_backwards=False, merge_mode='concat' assumed" in note
    x = normal(seeded("assumed"), N, T, I)
    weights.config |= {"go_backwards": True, "merge_mode": "sum"}  # the repair
    error = 2 * T * (I + H + 1) * 4 * np.finfo("f4").eps  # of two directions, as above
    ours = rl.RNN(weights, batch_first=True)(x)[0]
    assert np.abs(ours - model(x).numpy()).max() < error


def test_several_rnns_share_a_note(tmp_path):
    layers = tf_keras.layers
    model = model_of(layers.LSTM(H, return_sequences=True))
    model.add(layers.Bidirectional(layers.LSTM(H, return_sequences=True)))
    model.add(layers.SimpleRNN(H, name="plain"))
    path, _ = weights_file(model, ".index", tmp_path)
    found = rl.load(path, cell="rnn_tanh")
    (note,) = found.notes
    assert len(found) == 3 and "merge_mode" in note
    (plain,) = rl.load(path, cell="rnn_tanh", prefix="layer_with_weights-2").notes
    assert "Keras's config: go_backwards=False assumed" in plain and "activation" not in plain


@pytest.mark.parametrize("suffix", [".h5", ".keras", ".npz", ".weights.h5", "legacy .h5"])
def test_nothing_is_assumed_where_it_is_recorded(suffix, tmp_path):
    model = model_of(tf_keras.layers.GRU(H, recurrent_activation="hard_sigmoid"))
    path = tmp_path / f"model{suffix}"
    hint = {}
    if suffix == "legacy .h5":
        path, _ = weights_file(model, ".h5", tmp_path)
        hint = {"config": model.to_json()}
    elif suffix in (".h5", ".keras"):
        model.save(path)
    else:
        rl.save(path, rl.Weights(model.layers[0]))
    found = rl.load(path, **hint)
    (weights,) = found.values()
    assert weights.spec.recurrent_activation == "hard_sigmoid_keras2" and not found.notes
