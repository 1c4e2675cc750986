"""Weights of Keras 2 in a file without a config: changed for Keras 3 if the activation is told.

tf_keras computes the right results with its own layers, Keras 3 with the converted weights.
"""

import functools
import json
import shutil
from pathlib import Path
from typing import NamedTuple

import h5py
import keras
import numpy as np
import pytest
import tf_keras
from files.keras import old_models as old
from files.keras.comparison import ONE_MORE, computes, flat
from oracles import some
from oracles.frameworks import KERAS_NOISE

import rnnlayout as rl
from rnnlayout._cli import main as _cli

pytestmark = [KERAS_NOISE, pytest.mark.filterwarnings("ignore::UserWarning:keras")]
HARD = {"recurrent_activation": "hard_sigmoid_keras2"}


LAYERS = {  # of a namespace of layers and the options of those that are hard
    "all": lambda L, more: [
        L.LSTM(5, return_sequences=True, name="a", **more),
        L.Bidirectional(L.GRU(4, return_sequences=True, **more), name="b"),
        L.LSTM(3, name="c", recurrent_activation="sigmoid"),
    ],
    "hard": lambda L, more: [
        L.LSTM(5, return_sequences=True, name="a", **more),
        L.Bidirectional(L.GRU(4, **more), name="b"),
    ],
    "cells": lambda L, more: [L.RNN([L.LSTMCell(5, **more), L.LSTMCell(5, **more)], name="r")],
    "plain": lambda L, more: [
        L.LSTM(5, return_sequences=True, name="a", **more), L.SimpleRNN(4, name="plain"),
    ],
    "gru": lambda L, more: [
        L.GRU(4, use_bias=False, reset_after=False, name="g", **more)
    ],
}  # fmt: skip


def model_of(kit, which, hard=True):
    L, more = kit.layers, {"recurrent_activation": "hard_sigmoid" if hard else "sigmoid"}
    last = [] if which == "gru" else [L.Dense(2, name="d")]
    return kit.Sequential([L.Input((6, 3)), *LAYERS[which](L, more), *last])


def activations(found):
    return {name: one.spec.recurrent_activation for name, one in found.items()}


class Saved(NamedTuple):
    path: Path
    config: Path
    x: np.ndarray
    y: list


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A function that saves a model's weights as Keras 2.2.4 does, once; returns the folder of the
    file and of the model's config, x and outputs."""

    @functools.cache
    def save(which, hard):
        rng, folder = np.random.default_rng(4), tmp_path_factory.mktemp("written")
        model = model_of(tf_keras, which, hard)
        old.fill(model)
        model.save_weights(folder / "old.h5")
        with h5py.File(folder / "old.h5", "r+") as file:
            file.attrs["keras_version"] = b"2.2.4"
        (folder / "model.json").write_text(model.to_json())
        x = (4 * rng.standard_normal((4, 6, 3))).astype("f4")
        return folder, x, flat(model(x))

    return save


@pytest.fixture
def saved(written, tmp_path):
    """A function that copies such files to tmp_path."""

    def copy(which, hard=True):
        folder, x, y = written(which, hard)
        shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
        return Saved(tmp_path / "old.h5", tmp_path / "model.json", x, y)

    return copy


@pytest.mark.parametrize("hard", [True, False])
def test_with_the_hint_keras_3_computes_the_same(saved, tmp_path, hard):
    path, _, x, y = saved("hard", hard)
    new = tmp_path / "new.h5"
    with pytest.raises(rl.UndecidedError, match="recurrent_activation='hard_sigmoid_keras2'"):
        rl.convert_file(path, new, to="keras")
    assert not new.exists()
    hint = HARD if hard else {"recurrent_activation": "sigmoid"}
    done = rl.convert_file(path, new, to="keras", **hint)
    assert list(done.reports) == (["a", "b"] if hard else [])
    assert all("times 1.2" in report.reason for report in done.reports.values())
    model = model_of(keras, "hard", hard)
    model.load_weights(new)
    computes(model, x, y, ONE_MORE)
    assert set(activations(rl.load(new)).values()) == {"hard_sigmoid" if hard else "sigmoid"}
    if hard:
        with pytest.raises(rl.SpecError, match="contradicts"):
            rl.convert_file(new, tmp_path / "again.h5", to="keras", **hint)
    again = rl.convert_file(new, tmp_path / "again.h5", to="keras")
    assert not again.reports and (tmp_path / "again.h5").read_bytes() == new.read_bytes()


def test_a_config_beside_the_weights(saved, tmp_path, capsys):
    """It tells the activation of each layer."""
    path, config, x, y = saved("all")
    hard = HARD["recurrent_activation"]
    found = rl.load(path, config=config)
    assert activations(found) == {"a": hard, "b": hard, "c": "sigmoid"}
    new = tmp_path / "new.h5"
    command = ["convert", str(path), str(new), "--to", "keras"]
    assert _cli.main([*command, "--config", str(config)]) == 0
    capsys.readouterr()
    model = model_of(keras, "all")
    model.load_weights(new)
    computes(model, x, y, ONE_MORE)
    assert rl.load(new)["c"].spec.recurrent_activation == "sigmoid"
    verify = ["verify", str(path), str(new)]
    assert _cli.main(verify) == 3
    assert _cli.main([*verify, "--config", str(config)]) == 0
    with pytest.raises(rl.SpecError, match="config is for a file, not for a list"):
        rl.verify([np.ones((3, 8))], new, config=config)


def test_a_config_as_a_text_or_a_dict(saved, tmp_path):
    """A dict was a TypeError, and a text taken as a path."""
    path, config, *_ = saved("all")
    text, wanted = config.read_text(), dict(rl.load(path, config=config))
    for told in (text, json.loads(text)):
        assert dict(rl.load(path, config=told)) == wanted
    rl.convert_file(path, tmp_path / "new.h5", to="keras", config=json.loads(text))
    assert rl.load(tmp_path / "new.h5")["c"].spec.recurrent_activation == "sigmoid"
    for wrong, said in [
        (json.loads(text)["config"], "^the config is not a model's config, as model.to_json()"),
        ({"config": path}, r"^the config is not what model.to_json\(\) returned"),
        (text[:-1], "^the config is malformed"),
        (5, "^need the path of a file, found a int"),
    ]:
        with pytest.raises(rl.FileError, match=said):
            rl.load(path, config=wrong)


@pytest.mark.parametrize("kit", [keras, tf_keras], ids=["keras", "tf_keras"])
def test_a_config_beside_variables(kit, tmp_path):
    """.weights.h5 of Keras 3 and of late Keras 2."""
    model = model_of(kit, "all")
    model.save_weights(tmp_path / "a.weights.h5")
    (tmp_path / "model.json").write_text(model.to_json())
    found = rl.load(tmp_path / "a.weights.h5", config=tmp_path / "model.json")
    hard = "hard_sigmoid" if kit is keras else "hard_sigmoid_keras2"
    assert activations(found) == {"a": hard, "b": hard, "c": "sigmoid"}
    for name, weights in found.items():
        layer = model.get_layer(name).get_weights()
        assert all(map(np.array_equal, weights.values(), layer))
    (tmp_path / "model.json").write_text(model_of(kit, "hard").to_json())
    with pytest.raises(rl.FileError, match="it lacks the layer of "):
        rl.load(tmp_path / "a.weights.h5", config=tmp_path / "model.json")


def renamed(config):
    config["config"]["layers"][1]["config"]["name"] = "other"
    return json.dumps(config)


def one_less(config):
    del config["config"]["layers"][1]
    return json.dumps(config)


@pytest.mark.parametrize("change, said", [
    (renamed, "layer 'other' is not in the weights' file"),
    (one_less, "lacks layer 'a' of the weights' file"),
    (lambda config: "[1]", "need an object"),
    (lambda config: "{}", "not a model's config"),
    (lambda config: "{" * 9, "malformed"),
    (lambda config: "[" * 100000, "malformed"),
    (lambda config: '{"class_name": "Sequential", "config": {"layers": [{"class_name": []}]}}',
     "need an object"),
])  # fmt: skip
def test_a_config_that_does_not_fit(saved, tmp_path, change, said):
    path, config, *_ = saved("all")
    config.write_text(change(json.loads(config.read_text())))
    with pytest.raises(rl.FileError, match=said):
        rl.load(path, config=config)


def test_a_config_of_what_keras_3_cannot_compute(saved, tmp_path):
    path, config, *_ = saved("cells")
    text = config.read_text()
    assert text.count('"time_major": false') == 1
    config.write_text(text.replace('"time_major": false', '"time_major": true'))
    with pytest.raises(rl.LossyError, match="time_major=True, which Keras 3 does not have"):
        rl.convert_file(path, tmp_path / "new.h5", to="keras", config=config)
    assert not (tmp_path / "new.h5").exists()


def test_a_config_of_keras_3_changes_no_weights(saved, tmp_path):
    path, *_ = saved("hard")
    (tmp_path / "new.json").write_text(model_of(keras, "hard").to_json())
    done = rl.convert_file(path, tmp_path / "new.h5", to="keras", config=tmp_path / "new.json")
    assert not done.reports
    found = rl.load(tmp_path / "new.h5")
    assert found["a"].spec.recurrent_activation == "hard_sigmoid"
    assert some.same_bits(dict(found["a"]), dict(rl.load(path, **HARD)["a"]))


def test_a_plain_rnn_has_no_recurrent_activation(saved, tmp_path):
    path, _, x, y = saved("plain")
    found = rl.load(path, **HARD, cell="rnn_tanh")
    assert found["a"].spec.recurrent_activation == HARD["recurrent_activation"]
    assert found["plain"].spec.cell == "rnn_tanh" and not found.unread
    rl.convert_file(path, tmp_path / "new.h5", to="keras", **HARD)
    model = model_of(keras, "plain")
    model.load_weights(tmp_path / "new.h5")
    computes(model, x, y, ONE_MORE)


def test_a_layer_of_a_class_that_is_not_recurrent(saved, tmp_path):
    """A config may have it: its arrays belong to no RNN."""
    path, config, *_ = saved("all")
    model = json.loads(config.read_text())
    (layer,) = (one for one in model["config"]["layers"] if one["config"]["name"] == "c")
    layer |= {"class_name": "Attention", "config": {"name": "c", "units": 3}}
    found = rl.load(path, config=model)
    assert list(found) == ["a", "b"] and any(name.startswith("c/") for name in found.others)


def test_a_gru_without_biases_asks_once(saved):
    """Neither its reset nor its activation is in the file."""
    path, _, x, y = saved("gru")
    asked = {"reset", "recurrent_activation"}
    with pytest.raises(rl.UndecidedError, match=r"reset='before'.*'hard_sigmoid_keras2'") as caught:
        rl.load(path)["g"]
    assert set(caught.value.arguments) == asked and len(caught.value.specs) == 4
    weights = rl.load(path, reset="before", **HARD)["g"]
    computes(lambda x: weights.rnn(batch_first=True)(x)[1][0], x, y)
