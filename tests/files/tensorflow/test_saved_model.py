"""Folders that TensorFlow and Keras save: rl.RNN computes from them what TensorFlow computes."""

import json
import os
import shutil
import sys

import commands
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from files.hostile.good import field
from oracles.frameworks import KERAS_NOISE

import rnnlayout as rl

pytestmark = KERAS_NOISE
RNG = np.random.default_rng(5)
X = RNG.standard_normal((2, 4, 5)).astype("f4")
# 4 steps of 3 layers, each of sums of at most 10 products of numbers below 4, rounded by 2^-24
ERROR = 1e-5


def model_of(kit):
    """Each layer has an option that its weights do not show."""
    x = kit.Input((4, 5), batch_size=2, name="x")
    y = kit.layers.LSTM(3, return_sequences=True, name="enc")(x)
    y = kit.layers.Bidirectional(
        kit.layers.GRU(4, return_sequences=True), merge_mode="sum", name="both"
    )(y)
    y = kit.layers.SimpleRNN(2, activation="relu", go_backwards=True, return_sequences=True)(y)
    model = kit.Model(x, y)
    model.set_weights([RNG.standard_normal(w.shape).astype("f4") for w in model.get_weights()])
    return model


# Keras 3 saves this with TensorFlow as its backend, which another process has.
KERAS_3 = """
import sys
import keras, numpy, tensorflow
model = keras.Sequential([
    keras.Input((4, 5), batch_size=2, name="x"),
    keras.layers.LSTM(3, return_sequences=True, name="enc"),
    keras.layers.Bidirectional(keras.layers.GRU(4, return_sequences=True), name="both"),
])
rng = numpy.random.default_rng(6)
floats = [w for w in model.weights if w.dtype == "float32"]
for w in floats:
    w.assign(rng.standard_normal(w.shape).astype("f4"))
model.export(sys.argv[1] + "/export", verbose=False)
tensorflow.saved_model.save(model, sys.argv[1] + "/save")
numpy.savez(sys.argv[1] + "/weights.npz", *[numpy.asarray(w) for w in floats])
"""


def assert_computes_the_same(found, folder):
    """Assert that the RNNs compute, one after the other, what TensorFlow does with the folder."""
    serve = tf.saved_model.load(str(folder)).signatures["serving_default"]
    (name,) = serve.structured_input_signature[1]
    (theirs,) = serve(**{name: tf.constant(X)}).values()
    y = X
    for weights in found.values():
        y, _ = rl.RNN(weights, batch_first=True)(np.ascontiguousarray(y))
    np.testing.assert_allclose(y, theirs.numpy(), rtol=0, atol=ERROR)


@pytest.fixture(scope="module")
def keras_2(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keras_2") / "model"
    model = model_of(tf_keras)
    model.save(folder, save_format="tf")
    return folder, model


@pytest.fixture(scope="module")
def keras_3(tmp_path_factory):
    """A folder with two SavedModels, "export" and "save", and their weights."""
    folder = tmp_path_factory.mktemp("keras_3")
    environment = os.environ | {"KERAS_BACKEND": "tensorflow"}
    commands.run([sys.executable, "-c", KERAS_3, folder], env=environment)
    with np.load(folder / "weights.npz") as weights:
        return folder, list(weights.values())


def same_bits(found, model):
    """model: of Keras, or its arrays."""
    ours = [array.tobytes() for weights in found.values() for array in weights.values()]
    theirs = model if isinstance(model, list) else model.get_weights()
    return ours == [array.tobytes() for array in theirs]


def test_a_model_of_keras_2(keras_2):
    """go_backwards, merge_mode and relu are those of keras_metadata.pb."""
    folder, model = keras_2
    found = rl.load(folder)
    assert [*found][:2] == ["enc", "both"] and same_bits(found, model) and not found.notes
    assert_computes_the_same(found, folder)


def test_a_nested_model_of_keras_2(tmp_path):
    """Two layers in different models have one name; a layer is a stack of cells."""
    layers = tf_keras.layers

    def inner(name):
        x = layers.Input((4, 5))
        cells = [layers.LSTMCell(5), layers.LSTMCell(5, use_bias=False)]
        return tf_keras.Model(x, layers.RNN(cells, return_sequences=True, name="rnn")(x), name=name)

    x = layers.Input((4, 5), batch_size=2)
    model = tf_keras.Model(x, layers.Dense(2, name="dense")(inner("two")(inner("one")(x))))
    model.save(tmp_path / "model", save_format="tf")
    found = rl.load(tmp_path / "model")
    assert [*found] == ["one/rnn/0", "one/rnn/1", "two/rnn/0", "two/rnn/1"]
    assert same_bits(found, model.get_weights()[:-2])
    assert {*found.others} == {"dense/kernel", "dense/bias"}


def test_variables_of_other_layers_in_one_list(tmp_path):
    """TensorFlow calls those of a ConvLSTM2D and of an LSTM variables/0, variables/3."""
    layers = tf_keras.layers
    model = tf_keras.Sequential([
        layers.Input((4, 6, 6, 2)), layers.ConvLSTM2D(3, 2, name="conv"), layers.Reshape((5, 15)),
        layers.LSTM(3, name="enc"),
    ])  # fmt: skip
    model.save(tmp_path / "model", save_format="tf")
    found = rl.load(tmp_path / "model")
    assert [*found] == ["enc"] and same_bits(found, model.layers[-1].get_weights())
    assert "class 'ConvLSTM2D': no layout can represent it" in str(found.refused["conv"])


@pytest.mark.parametrize("how", ["export", "save"])
def test_a_model_of_keras_3(how, keras_3):
    """It has no config: the names are those of the variables, and a note says what is assumed."""
    folder, weights = keras_3
    found = rl.load(folder / how)
    assert [*found] == ["sequential/enc", "sequential/both"] and same_bits(found, weights)
    assert "lacks Keras's config" in found.notes[0]
    assert_computes_the_same(found, folder / how)


def test_layers_of_one_name_in_a_module(tmp_path):
    """A bias that only one of them has is not given to the other."""
    module, LSTM = tf.Module(), tf_keras.layers.LSTM
    module.with_bias, module.without = LSTM(3), LSTM(3, use_bias=False)
    for layer in (module.with_bias, module.without):
        layer.build((None, 4, 5))
    tf.saved_model.save(module, str(tmp_path / "model"))
    found = rl.load(tmp_path / "model")
    assert {name: w.spec.bias for name, w in found.items()} == {
        "with_bias": "double", "without": "none",
    }  # fmt: skip
    assert same_bits(found, module.with_bias.get_weights() + module.without.get_weights())


def test_variables_that_have_only_their_last_name(tmp_path):
    """So does Keras 3 export with JAX: they are not joined by chance."""
    module, gates = tf.Module(), ("recurrent_kernel", (3, 12))
    shapes = [("kernel", (5, 12)), gates, ("kernel", (3, 12)), gates, ("bias", (12,))]
    module.variables_ = [tf.Variable(np.ones(shape, "f4"), name=name) for name, shape in shapes]
    tf.saved_model.save(module, str(tmp_path / "model"))
    with pytest.raises(rl.FileError, match=r"several variables.*'kernel'.*\.keras"):
        rl.load(tmp_path / "model")


# ------------------------------------------------------------------------------------- the folder


def test_what_may_be_passed(keras_2, keras_3):
    """Of an index alone, tensors have the names of the variables; the config is in the folder."""
    folder, weights = keras_3
    assert same_bits(rl.load(folder / "export" / "variables" / "variables.index"), weights)
    folder, model = keras_2
    for place in ("", "saved_model.pb", "variables"):
        assert same_bits(rl.load(folder / place), model)
    found = rl.load(folder / "variables" / "variables.index", cell="rnn_relu")
    assert same_bits(found, model) and not any(weights.config for weights in found.values())
    assert f"pass the folder {folder}" in found.notes[0]


def test_a_link_out_of_the_folder_and_a_folder_without_variables(keras_3, tmp_path):
    """Such a folder may be unpacked from an archive."""
    folder = shutil.copytree(keras_3[0] / "export", tmp_path / "model")
    data = folder / "variables" / "variables.data-00000-of-00001"
    data.rename(tmp_path / "secret")
    data.symlink_to(tmp_path / "secret")
    with pytest.raises(rl.FileError, match=f"'{data.name}' is a link out of"):
        rl.load(folder)
    data.unlink()
    shutil.copy(tmp_path / "secret", data)  # as the message says
    assert same_bits(rl.load(folder), keras_3[1])
    shutil.rmtree(folder / "variables")
    with pytest.raises(rl.FileError, match=r"variables/variables\.index does not exist"):
        rl.load(folder)


def test_damaged_metadata(keras_2, tmp_path, limited):
    """Cut short or with another byte: a typed error, or RNNs, within the limits."""
    folder, rng = shutil.copytree(keras_2[0], tmp_path / "model"), np.random.default_rng(0)
    path = folder / "keras_metadata.pb"
    good, whole, ends = path.read_bytes(), rl.load(folder), 0
    for k in range(120):
        at = int(rng.integers(len(good)))
        byte = bytes([good[at] ^ int(rng.integers(1, 256))])
        path.write_bytes(good[:at] + (byte + good[at + 1 :] if k % 3 else b""))
        try:
            with limited():
                found = rl.load(folder)
        except rl.Error:
            ends += 1
        else:  # a whole description may be missing at the end
            assert k % 3 or set(found) <= set(whole)
    assert ends


def metadata(*layers):
    config = json.dumps({"class_name": "LSTM", "config": {"units": 3, "name": "lstm"}}).encode()
    return b"".join(field(1, field(3, layer) + field(5, config)) for layer in layers)


HOSTILE = {
    "no path": (field(1, field(5, b"{}")), "without a path"),
    "a path twice": (metadata(b"root.a", b"root.b", b"root.a"), "'root.a' is described twice"),
    "no JSON": (field(1, field(3, b"root") + field(5, b"{")), "is malformed"),
    "deep": (metadata(b"root" + b".a" * 500_000), "deep: refused"),
    "circles": (metadata(b"root" + b".layer" * 90), "weights of 0 cells"),
    "layers of one object": (
        metadata(*(b"root.layer_with_weights-0" for _ in range(9000))), "",
    ),
    "nothing": (b"", "cannot be mapped"),
    "not a message": (b"\xff" * 99, "cut short"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_metadata(name, keras_2, tmp_path, limited):
    folder, (data, says) = shutil.copytree(keras_2[0], tmp_path / "model"), HOSTILE[name]
    (folder / "keras_metadata.pb").write_bytes(data)
    with limited():
        try:
            rl.load(folder)
        except rl.Error as error:
            assert says in str(error), error
        else:
            assert not says
