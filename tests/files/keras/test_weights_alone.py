"""Weights of Keras 2 in a file without a config: changed for Keras 3 if the activation is told.

tf_keras computes the right results with its own layers, Keras 3 with the converted weights.
"""

import functools
import json
from pathlib import Path
from typing import NamedTuple

import h5py
import keras
import numpy as np
import pytest
import tf_keras
from files.keras import old_models as old
from files.keras.comparison import ONE_MORE, computes, flat, layer_of, same_arrays
from oracles.frameworks import KERAS_NOISE

import rnnlayout as rl
from rnnlayout._cli import main as _cli

pytestmark = [KERAS_NOISE, pytest.mark.filterwarnings("ignore::UserWarning:keras")]
HARD = {"recurrent_activation": "hard_sigmoid_keras2"}


def model_of(kit, last, curve="hard_sigmoid"):
    """Return a model of two layers with an activation, and a last one without it."""
    L = kit.layers
    return kit.Sequential([
        L.Input((6, 3)), L.LSTM(5, return_sequences=True, recurrent_activation=curve, name="a"),
        L.Bidirectional(L.GRU(4, return_sequences=True, recurrent_activation=curve), name="b"),
        {"smooth": L.LSTM, "plain": L.SimpleRNN}[last](3, name="c"), L.Dense(2, name="d"),
    ])  # fmt: skip


def activations(found):
    return {name: one.spec.recurrent_activation for name, one in found.items()}


class Saved(NamedTuple):
    path: Path
    config: Path
    x: np.ndarray
    y: list


def save(model, folder):
    """Save a model's weights as Keras 2.2.4 does, and its config; run it."""
    old.fill(model)
    model.save_weights(folder / "old.h5")
    with h5py.File(folder / "old.h5", "r+") as file:
        file.attrs["keras_version"] = b"2.2.4"
    (folder / "model.json").write_text(model.to_json())
    x = (4 * np.random.default_rng(4).standard_normal((4, 6, 3))).astype("f4")
    return Saved(folder / "old.h5", folder / "model.json", x, flat(model(x)))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return a function that saves a model_of() tf_keras, each once."""
    return functools.cache(
        lambda *which: save(model_of(tf_keras, *which), tmp_path_factory.mktemp("saved"))
    )


@pytest.mark.parametrize("curve", ["hard_sigmoid", "sigmoid"])
def test_with_the_hint_keras_3_computes_the_same(saved, tmp_path, curve):
    """It is not for a plain RNN, which has no recurrent activation."""
    path, _, x, y = saved("plain", curve)
    new, again = tmp_path / "new.h5", tmp_path / "again.h5"
    with pytest.raises(rl.UndecidedError, match="recurrent_activation='hard_sigmoid_keras2'"):
        rl.convert_file(path, new, to="keras")
    assert not new.exists()
    is_hard = curve == "hard_sigmoid"
    hint = HARD if is_hard else {"recurrent_activation": curve}
    found = rl.load(path, **hint, cell="rnn_tanh")
    assert found["a"].spec.recurrent_activation == hint["recurrent_activation"]
    assert found["c"].spec.cell == "rnn_tanh" and not found.unread
    done = rl.convert_file(path, new, to="keras", **hint)
    assert list(done.reports) == (["a", "b"] if is_hard else [])
    assert all("times 1.2" in report.reason for report in done.reports.values())
    model = model_of(keras, "plain", curve)
    model.load_weights(new)
    computes(model, x, y, ONE_MORE)
    assert activations(rl.load(new)) == {"a": curve, "b": curve}
    if is_hard:
        with pytest.raises(rl.SpecError, match="contradicts"):
            rl.convert_file(new, again, to="keras", **hint)
    assert not rl.convert_file(new, again, to="keras").reports
    assert again.read_bytes() == new.read_bytes()


def test_a_config_beside_the_weights(saved, tmp_path, capsys):
    """It tells the activation of each layer; it may be a path, a text or a dict."""
    path, config, x, y = saved("smooth")
    hard, text, new = HARD["recurrent_activation"], config.read_text(), tmp_path / "new.h5"
    for told in (config, text, json.loads(text)):
        found = rl.load(path, keras_config=told)
        assert activations(found) == {"a": hard, "b": hard, "c": "sigmoid"}
    command = ["convert", str(path), str(new), "--to", "keras"]
    assert _cli.main([*command, "--keras-config", str(config)]) == 0
    model = model_of(keras, "smooth")
    model.load_weights(new)
    computes(model, x, y, ONE_MORE)
    assert rl.load(new)["c"].spec.recurrent_activation == "sigmoid"
    verify = ["verify", str(path), str(new)]
    assert _cli.main(verify) == 3
    assert _cli.main([*verify, "--keras-config", str(config)]) == 0
    with pytest.raises(rl.SpecError, match="config is for a file, not for a list"):
        rl.verify([np.ones((3, 8))], new, keras_config=config)


@pytest.mark.parametrize("kit", [keras, tf_keras], ids=["keras", "tf_keras"])
def test_a_config_beside_variables(kit, tmp_path):
    """.weights.h5 of Keras 3 and of late Keras 2."""
    model = model_of(kit, "smooth")
    model.save_weights(tmp_path / "a.weights.h5")
    found = rl.load(tmp_path / "a.weights.h5", keras_config=model.to_json())
    hard = "hard_sigmoid" if kit is keras else "hard_sigmoid_keras2"
    assert activations(found) == {"a": hard, "b": hard, "c": "sigmoid"}
    for name, weights in found.items():
        assert same_arrays(weights, model.get_layer(name).get_weights())
    config = json.loads(model.to_json())
    config["config"]["layers"].pop(3)
    with pytest.raises(rl.FileError, match="it lacks the layer of "):
        rl.load(tmp_path / "a.weights.h5", keras_config=config)


@pytest.mark.parametrize("change, said", [
    (lambda c: layer_of(c, 1)["config"].update(name="other"),
     "layer 'other' is not in the weights' file"),
    (lambda c: c["config"]["layers"].__delitem__(1), "lacks layer 'a' of the weights' file"),
    (lambda c: c.pop("config"), "^the config is not a model's config, as model.to_json()"),
    ("[1]", "need an object"), ("{}", "not a model's config"), ("{" * 9, "malformed"),
    ("[" * 100000, "malformed"),
    ('{"class_name": "Sequential", "config": {"layers": [{"class_name": []}]}}', "need an object"),
    ({"config": Path()}, r"^the config is not what model.to_json\(\) returned"),
    (5, "^need the path of a file, found a int"),
])  # fmt: skip
def test_a_config_that_does_not_fit(saved, tmp_path, change, said):
    path, config, *_ = saved("smooth")
    told, other = change, tmp_path / "other.json"
    if callable(change):
        told = json.loads(config.read_text())
        change(told)
    elif isinstance(change, str):
        told = other
        other.write_text(change)
    with pytest.raises(rl.FileError, match=said):
        rl.load(path, keras_config=told)


def test_what_else_a_config_may_have(saved, tmp_path):
    """What Keras 3 cannot compute, and a layer of the weights that is not recurrent."""
    path, config, *_ = saved("smooth")
    config = json.loads(config.read_text())
    layer_of(config, 1)["config"]["time_major"] = True
    with pytest.raises(rl.LossyError, match="time_major=True, which Keras 3 does not have"):
        rl.convert_file(path, tmp_path / "new.h5", to="keras", keras_config=config)
    assert not (tmp_path / "new.h5").exists()
    layer_of(config, 3).update(class_name="Attention", config={"name": "c", "units": 3})
    found = rl.load(path, keras_config=config)
    assert list(found) == ["a", "b"] and any(name.startswith("c/") for name in found.others)


def test_a_gru_without_biases_asks_once(tmp_path):
    """Neither its reset nor its activation is in the file."""
    L = tf_keras.layers
    options = {"use_bias": False, "reset_after": False, "recurrent_activation": "hard_sigmoid"}
    model = tf_keras.Sequential([L.Input((6, 3)), L.GRU(4, name="g", **options)])
    path, _, x, y = save(model, tmp_path)
    with pytest.raises(rl.UndecidedError, match=r"reset='before'.*'hard_sigmoid_keras2'") as caught:
        rl.load(path)["g"]
    assert set(caught.value.arguments) == {"reset", "recurrent_activation"}
    assert len(caught.value.specs) == 4
    weights = rl.load(path, reset="before", **HARD)["g"]
    computes(lambda x: weights.rnn(batch_first=True)(x)[1][0], x, y)
