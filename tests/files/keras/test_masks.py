"""Which layers compute behind a mask: what a file and a live layer say is what Keras does.

A layer has the mask if its output does not depend on the steps that are masked, here tokens 0 of an
Embedding: the test changes the vector of token 0.
"""

import numpy as np
import pytest
import tf_keras
from oracles.frameworks import KERAS_NOISE, keras

import rnnlayout as rl

pytestmark = KERAS_NOISE
KITS = {"keras": keras, "tf_keras": tf_keras}
TOKENS = np.array([[0, 0, 3, 1, 2], [4, 2, 0, 0, 0], [1, 0, 2, 0, 3], [2, 3, 1, 4, 1]])
I, H = 3, 4  # noqa: E741
EMBEDDING = "Embedding(mask_zero=True)"


def nested(kit, *layers, functional=False):
    if not functional:
        return kit.Sequential([kit.Input((None, I)), *layers], name="nested")
    x = first = kit.Input((None, I))
    for layer in layers:
        x = layer(x)
    return kit.Model(first, x, name="nested")


def both_ways(L):
    return lambda x: L.Concatenate()([L.Dense(2)(x), L.Activation("tanh")(x)])


def through_two(L):
    return lambda x: L.Add()([L.LSTM(H, return_sequences=True)(x), L.Dense(H)(x)])


# The layers between the Embedding and the LSTM "probe", of the layers L of a kit.
BETWEEN = {
    "nothing": lambda kit, L: [],
    "dropout": lambda kit, L: [L.SpatialDropout1D(0.1), L.Dropout(0.1)],
    "norms": lambda kit, L: [L.LayerNormalization(), L.BatchNormalization()],
    "dense": lambda kit, L: [L.Dense(5, "relu"), L.LeakyReLU(), L.Activation("tanh")],
    "time distributed": lambda kit, L: [L.TimeDistributed(L.Dense(5))],
    "rnn": lambda kit, L: [L.GRU(H, return_sequences=True)],
    "both directions": lambda kit, L: [L.Bidirectional(L.LSTM(H, return_sequences=True))],
    "cells": lambda kit, L: [L.RNN([L.LSTMCell(H), L.LSTMCell(H)], return_sequences=True)],
    "joined": lambda kit, L: [both_ways(L)],
    "joined with an rnn": lambda kit, L: [through_two(L)],
    "removed": lambda kit, L: [L.Reshape((-1, I))],
    "averaged": lambda kit, L: [L.AveragePooling1D(1)],
}
# An RNN in a model within the model: the probe is the RNN inside.
INSIDE = {
    "sequential": lambda kit, probe: nested(kit, probe),
    "functional": lambda kit, probe: nested(kit, probe, functional=True),
    "deeper": lambda kit, probe: nested(
        kit, kit.layers.Dropout(0.1), kit.Sequential([kit.Input((None, I)), probe], name="inner")
    ),
}


def model_with(kit, between, mask_zero=True):
    """Return a model of an Embedding, layers or functions of the input, and a probe."""
    L = kit.layers
    tokens = kit.Input((None,), dtype="int32")
    x = L.Embedding(5, I, mask_zero=mask_zero)(tokens)
    for layer in between(kit, L):
        x = layer(x)
    return kit.Model(tokens, L.LSTM(H, name="probe")(x))


def outputs_of(model, x):
    """Return what a model computes: predict() of tf_keras takes seconds to compile."""
    y = model(x, training=False)
    return y.detach().numpy() if hasattr(y, "detach") else np.asarray(y)


def has_mask(model):
    """Is the output of a model independent of the vector of token 0?"""
    embedding = next(layer for layer in model.layers if "Embedding" in type(layer).__name__)
    outputs = []
    for _ in range(2):
        outputs.append(outputs_of(model, TOKENS))
        (table,) = embedding.get_weights()
        table[0] += 1
        embedding.set_weights([table])
    return np.array_equal(*outputs)


def mask_in_file(model, path):
    model.save(path)
    (probe,) = (name for name in rl.load(path) if name.endswith("probe"))
    return rl.load(path)[probe].config.get("mask")


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("kit", KITS)
def test_layers_that_pass_a_mask_on(kit, between, tmp_path):
    model = model_with(KITS[kit], BETWEEN[between])
    live = rl.Weights(model.get_layer("probe")).config.get("mask")
    found = {mask_in_file(model, tmp_path / f"m{suffix}") for suffix in (".keras", ".h5")}
    assert found == {live} == {EMBEDDING if has_mask(model) else None}


@pytest.mark.parametrize("inside", INSIDE)
@pytest.mark.parametrize("kit", KITS)
def test_models_in_models(kit, inside, tmp_path):
    kit = KITS[kit]
    probe = kit.layers.LSTM(H, name="probe")
    tokens = kit.Input((None,), dtype="int32")
    x = kit.layers.Embedding(5, I, mask_zero=True)(tokens)
    model = kit.Model(tokens, INSIDE[inside](kit, probe)(x))
    found = {mask_in_file(model, tmp_path / f"m{suffix}") for suffix in (".keras", ".h5")}
    live = rl.Weights(model).config.get("mask")
    assert found == {live} == {EMBEDDING if has_mask(model) else None}


@pytest.mark.parametrize("functional", [False, True])
@pytest.mark.parametrize("kit", KITS)
def test_a_mask_after_a_model(kit, functional, tmp_path):
    kit = KITS[kit]
    inner = nested(kit, kit.layers.Dense(I), functional=functional)
    model = model_with(kit, lambda kit, L: [inner])
    found = {mask_in_file(model, tmp_path / f"m{suffix}") for suffix in (".keras", ".h5")}
    assert found == {EMBEDDING if has_mask(model) else None}


def test_masking_and_its_value(tmp_path):
    for kit in KITS.values():
        L = kit.layers
        layers = [kit.Input((None, I)), L.Masking(-1.5), L.LSTM(H, return_sequences=True), L.GRU(H)]
        model = kit.Sequential(layers)
        model.save(tmp_path / "m.keras")
        for weights in (*rl.load(tmp_path / "m.keras").values(), rl.Weights(model.layers[1])):
            mask = {"mask": "Masking(mask_value=-1.5)", "zero_output_for_mask": False}
            assert weights.config == mask


def test_a_shared_layer_and_a_computed_mask(tmp_path):
    kit, L = keras, keras.layers
    shared, x, tokens = L.LSTM(H, name="shared"), kit.Input((None, I)), kit.Input((None,))
    computed = L.LSTM(H, name="computed")(x, mask=kit.ops.greater(x[..., 0], 0))
    outputs = [shared(x), shared(L.Embedding(5, I, mask_zero=True)(tokens)), computed]
    kit.Model([x, tokens], outputs).save(tmp_path / "m.keras")
    masks = {
        name: weights.config["mask"] for name, weights in rl.load(tmp_path / "m.keras").items()
    }
    assert masks["shared"] == f"undecided: {EMBEDDING} in a call, None in another one"
    assert masks["computed"].startswith("undecided: the model computes it in 'greater")


def test_a_mask_in_time_distributed_and_without_a_saved_config(tmp_path):
    kit, L = tf_keras, tf_keras.layers
    x = kit.Input((None, 6, I))
    model = kit.Model(x, L.TimeDistributed(L.LSTM(H))(L.Masking()(x)))
    assert rl.Weights(model).config["mask"] == "Masking(mask_value=0.0)"
    model.save(tmp_path / "model", save_format="tf")
    model.save_weights(tmp_path / "w.weights.h5")
    for found in (rl.load(tmp_path / "model"),
                  rl.load(tmp_path / "w.weights.h5", keras_config=model.to_json())):  # fmt: skip
        (weights,) = found.values()
        assert weights.config["mask"] == "Masking(mask_value=0.0)"
    (note,) = rl.load(tmp_path / "w.weights.h5").notes
    assert "no mask" in note


def test_an_embedding_is_named_where_a_new_model_cannot_have_it(tmp_path):
    """The new model has no tokens: the error says so, and its repair is followed."""
    model_with(keras, BETWEEN["nothing"]).save(tmp_path / "m.keras")
    for suffix in (".keras", ".h5"):
        w = rl.load(tmp_path / "m.keras")["probe"]
        with pytest.raises(rl.LossyError, match=r"mask 'Embedding\(mask_zero=True\)', which can"):
            rl.save(tmp_path / f"new{suffix}", w)
        del w.config["mask"]  # as the error says
        rl.save(tmp_path / f"new{suffix}", w)
        assert "mask" not in next(iter(rl.load(tmp_path / f"new{suffix}").values())).config


def test_zero_output_for_mask_is_a_setting(tmp_path):
    kit, L = keras, keras.layers
    zeros = L.LSTM(H, return_sequences=True, zero_output_for_mask=True)
    kit.Sequential([kit.Input((None, I)), L.Masking(), zeros]).save(tmp_path / "m.keras")
    (weights,) = rl.load(tmp_path / "m.keras").values()
    assert weights.config["zero_output_for_mask"] is True
    x, mask = np.ones((2, 5, I), "f4"), np.array([[1, 0, 1, 0, 1], [0, 0, 1, 1, 0]], bool)
    y, _ = weights.rnn()(x, mask=mask)
    assert not y[~mask].any()
    theirs = zeros(kit.ops.convert_to_tensor(x), mask=kit.ops.convert_to_tensor(mask))
    assert np.abs(y - kit.ops.convert_to_numpy(theirs)).max() < 1e-6


def test_a_written_model_has_its_masking(tmp_path):
    """Also after a conversion; ONNX and torch are told what to do."""
    kit, L = keras, keras.layers
    layer = L.LSTM(H, return_sequences=True, name="rnn")
    model = kit.Sequential([kit.Input((None, I)), L.Masking(7.0), layer])
    model.save(tmp_path / "m.keras")
    (weights,) = rl.load(tmp_path / "m.keras").values()
    for suffix in (".keras", ".h5"):
        rl.save(tmp_path / f"new{suffix}", {"rnn": weights.to("torch").to("keras")})
        again = kit.models.load_model(tmp_path / f"new{suffix}")
        x = np.where(np.arange(5)[:, None] < 2, 7.0, np.ones((2, 5, I))).astype("f4")
        assert np.array_equal(outputs_of(again, x), outputs_of(model, x))
    for to in ("torch", "onnx"):
        lost = (
            f"with mask 'Masking(mask_value=7.0)', which {to} cannot represent: pass the mask, or"
        )
        assert lost in str(weights.to(to).report)
    rl.save(tmp_path / "m.onnx", weights.to("onnx"))


def test_whole_models_keep_their_masks(tmp_path):
    model = model_with(tf_keras, BETWEEN["dropout"])
    wanted = outputs_of(model, TOKENS)
    for suffix in (".keras", ".h5"):
        model.save(tmp_path / f"old{suffix}")
        rl.convert_file(tmp_path / f"old{suffix}", tmp_path / f"new{suffix}", to="keras")
        new = keras.models.load_model(tmp_path / f"new{suffix}")
        assert np.abs(outputs_of(new, TOKENS) - wanted).max() < 1e-6
        assert has_mask(new)
