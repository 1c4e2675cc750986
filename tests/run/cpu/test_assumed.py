"""Settings that a source does not record are assumed: a call of the RNN warns of them once."""

import warnings

import numpy as np
import pytest
import tf_keras
import torch
from oracles.frameworks import KERAS_NOISE
from oracles.some import normal_weights

import rnnlayout as rl

pytestmark = KERAS_NOISE
X = np.ones((4, 2, 5), "f4")
SPEC = rl.Spec("lstm", 5, 7)
AXES = "order of the axes"


def state_dict():
    return torch.nn.LSTM(5, 7).state_dict()


def warnings_of(call):
    """Return the texts of the warnings of a call, each with the line of this file."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert all(w.category is rl.AssumedWarning and w.filename == __file__ for w in caught)
    return [str(w.message) for w in caught]


def keras_weights(tmp_path, wrap=lambda layer: layer, **options):
    """Return the entry of a file with the weights of a Keras layer alone."""
    layer = wrap(tf_keras.layers.LSTM(7, return_sequences=True))
    tf_keras.Sequential([tf_keras.Input((None, 5)), layer]).save_weights(tmp_path / "w.weights.h5")
    (weights,) = rl.load(tmp_path / "w.weights.h5", **options).values()
    return weights


def test_the_axes_of_a_state_dict_are_assumed_until_they_are_named():
    rnn = rl.RNN(state_dict())
    assert not warnings_of(lambda: [rnn(X[:, 0]), rnn.step(X[0]), rnn.stepper()])  # without axes
    (text,) = warnings_of(lambda: rnn(X))
    assert AXES in text and "batch_first=False" in text
    assert not warnings_of(lambda: rnn(X))
    assert len(warnings_of(lambda: rl.forward(X, state_dict()))) == 1
    assert not warnings_of(lambda: rl.forward(X, state_dict(), batch_first=False))
    assert not warnings_of(lambda: rl.forward(X, state_dict(), batch_first=True))


def test_a_source_that_records_its_axes_assumes_nothing():
    layer, module = tf_keras.layers.LSTM(7), torch.nn.LSTM(5, 7, batch_first=True)
    layer.build((None, None, 5))
    assert not warnings_of(lambda: rl.forward(X, torch.nn.LSTM(5, 7)))
    assert not warnings_of(lambda: [rl.forward(X, layer), rl.Weights(module).rnn()(X)])


def test_an_entry_warns_once_however_often_it_runs():
    weights = rl.Weights(state_dict())
    assert len(warnings_of(lambda: weights.rnn()(X))) == 1
    assert not warnings_of(lambda: [weights.rnn()(X), rl.forward(X, weights.to("keras"))])


def test_a_warning_that_is_an_error_comes_again():
    rnn = rl.RNN(state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(rl.AssumedWarning):
                rnn(X)


def test_the_options_of_a_file_with_weights_alone(tmp_path):
    weights = keras_weights(tmp_path)
    (text,) = warnings_of(lambda: weights.rnn().step(X[0]))
    assert "activation tanh, recurrent activation sigmoid, go_backwards=False, no mask" in text
    assert "keras_config=" in text and "merge_mode" not in text and AXES not in text
    both = keras_weights(tmp_path, tf_keras.layers.Bidirectional)
    (text,) = warnings_of(lambda: both.rnn()(X))
    assert "'merge_mode': 'concat'" in text
    model = tf_keras.Sequential([tf_keras.Input((None, 5)), tf_keras.layers.LSTM(7)])
    described = keras_weights(tmp_path, keras_config=model.to_json())
    assert not warnings_of(lambda: described.rnn()(X))


def test_each_named_option_is_left_out(tmp_path):
    options = {"activation": "tanh", "recurrent_activation": "sigmoid"}
    weights = keras_weights(tmp_path, tf_keras.layers.Bidirectional, **options)
    weights.config.update(go_backwards=False, mask=None)
    (text,) = warnings_of(lambda: weights.rnn()(X))
    assert "merge_mode" in text and "activation" not in text and "go_backwards" not in text
    weights = keras_weights(tmp_path, activation="tanh")
    weights.config = {}
    assert not warnings_of(lambda: weights.rnn(recurrent_activation="sigmoid")(X))


def test_time_major_of_tensors_in_a_layout_of_keras(tmp_path):
    path = tmp_path / "w.npz"
    np.savez(path, **normal_weights("keras", SPEC))
    (weights,) = rl.load(path, activation="tanh", recurrent_activation="sigmoid").values()
    weights.config = {}
    assert not warnings_of(lambda: weights.rnn(batch_first=True)(X))
    (text,) = warnings_of(lambda: weights.rnn()(X))
    assert AXES in text and "x is taken as (N, T, I)" in text


def test_a_mask_that_no_call_passes():
    weights = rl.Weights(torch.nn.LSTM(5, 7))
    weights.config = {"mask": "Masking(mask_value=0.0)"}
    mask = np.ones(X.shape[:-1], bool)
    rnn = weights.rnn()
    assert not warnings_of(lambda: [rnn(X, mask=mask), rnn(X, lengths=[4, 2]), rnn.step(X[0])])
    (text,) = warnings_of(lambda: rnn(X))
    assert "the source has the mask Masking(mask_value=0.0)" in text and "mask=" in text
    assert not warnings_of(lambda: [rnn(X), weights.rnn()(X)])
