"""Folders that TensorFlow and Keras save: rl.RNN computes from them what TensorFlow computes."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from files.hostile.good import field
from files.hostile.limits import limited
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


def answer(folder, x=X):
    """Return what TensorFlow computes with the saved model."""
    serve = tf.saved_model.load(str(folder)).signatures["serving_default"]
    (name,) = serve.structured_input_signature[1]
    (y,) = serve(**{name: tf.constant(x)}).values()
    return y.numpy()


def run(found, x=X):
    for weights in found.values():
        x, _ = rl.RNN(weights, batch_first=True)(np.ascontiguousarray(x))
    return x


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
    command = [sys.executable, "-c", KERAS_3, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with np.load(folder / "weights.npz") as weights:
        return folder, list(weights.values())


def same_bits(found, model):
    """model: of Keras, or its arrays."""
    ours = [array for weights in found.values() for array in weights.values()]
    theirs = model if isinstance(model, list) else model.get_weights()
    return [a.tobytes() for a in ours] == [a.tobytes() for a in theirs]


def test_a_model_of_keras_2(keras_2):
    """go_backwards, merge_mode and relu are those of keras_metadata.pb."""
    folder, model = keras_2
    found = rl.load(folder)
    assert [*found][:2] == ["enc", "both"] and same_bits(found, model) and not found.notes
    np.testing.assert_allclose(run(found), answer(folder), rtol=0, atol=ERROR)


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
    ours = [a.tobytes() for weights in found.values() for a in weights.values()]
    assert ours == [a.tobytes() for a in model.get_weights()[:-2]]
    assert {*found.others} == {"dense/kernel", "dense/bias"}


def test_a_class_of_ones_own(tmp_path):
    class Mine(tf_keras.layers.GRU):
        pass

    model = tf_keras.Sequential([tf_keras.layers.Input((4, 5)), Mine(3, name="mine")])
    model.save(tmp_path / "model", save_format="tf")
    with pytest.raises(rl.Error, match=r"class 'Mine'.*as_class"):
        rl.load(tmp_path / "model")["mine"]
    found = rl.load(tmp_path / "model", as_class={"Mine": "GRU"})
    assert same_bits(found, model)


@pytest.mark.parametrize("how", ["export", "save"])
def test_a_model_of_keras_3(how, keras_3):
    """It has no config: the names are those of the variables, and a note says what is assumed."""
    folder, weights = keras_3
    found = rl.load(folder / how)
    assert [*found] == ["sequential/enc", "sequential/both"] and same_bits(found, weights)
    assert "lacks Keras's config" in found.notes[0]
    np.testing.assert_allclose(run(found), answer(folder / how), rtol=0, atol=ERROR)


def test_layers_of_one_name_in_a_module(tmp_path):
    """A bias that only one of them has is not given to the other."""

    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.with_bias = tf_keras.layers.LSTM(3)
            self.without = tf_keras.layers.LSTM(3, use_bias=False)
            for layer in (self.with_bias, self.without):
                layer.build((None, 4, 5))

    module = Module()
    tf.saved_model.save(module, str(tmp_path / "model"))
    found = rl.load(tmp_path / "model")
    assert {name: w.spec.bias for name, w in found.items()} == {
        "with_bias": "double", "without": "none",
    }  # fmt: skip
    for name, weights in found.items():
        ours, theirs = weights.values(), getattr(module, name).get_weights()
        assert [a.tobytes() for a in ours] == [a.tobytes() for a in theirs]


def test_variables_that_have_only_their_last_name(tmp_path):
    """So does Keras 3 export with JAX: they are not joined by chance."""
    module = tf.Module()
    module.variables_ = [
        tf.Variable(RNG.standard_normal(shape).astype("f4"), name=name)
        for name, shape in (
            ("kernel", (5, 12)), ("recurrent_kernel", (3, 12)), ("kernel", (3, 12)),
            ("recurrent_kernel", (3, 12)), ("bias", (12,)),
        )
    ]  # fmt: skip
    tf.saved_model.save(module, str(tmp_path / "model"))
    with pytest.raises(rl.FileError, match=r"several variables.*'kernel'.*\.keras"):
        rl.load(tmp_path / "model")


# ------------------------------------------------------------------------------------- the folder


@pytest.mark.parametrize("place", ["", "saved_model.pb", "variables"])
def test_what_may_be_passed(place, keras_2):
    folder, model = keras_2
    assert same_bits(rl.load(folder / place), model)


def test_the_index_in_the_folder(keras_2, keras_3):
    """Its tensors have the names of the variables; the config is only in the folder."""
    folder, weights = keras_3
    assert same_bits(rl.load(folder / "export" / "variables" / "variables.index"), weights)
    folder, model = keras_2
    found = rl.load(folder / "variables" / "variables.index", cell="rnn_relu")
    assert same_bits(found, model) and not any(weights.config for weights in found.values())
    assert f"pass the folder {folder}" in found.notes[0]


def test_a_link_out_of_the_folder(keras_3, tmp_path):
    """Such a folder may be unpacked from an archive."""
    folder = shutil.copytree(keras_3[0] / "export", tmp_path / "model")
    data = folder / "variables" / "variables.data-00000-of-00001"
    data.rename(tmp_path / "secret")
    data.symlink_to(tmp_path / "secret")
    with pytest.raises(rl.FileError, match="is a link out of") as caught:
        rl.load(folder)
    data.unlink()
    assert f"{data} is" in str(caught.value)
    shutil.copy(tmp_path / "secret", data)  # as the message says
    assert same_bits(rl.load(folder), keras_3[1])


def test_a_model_without_variables(keras_3, tmp_path):
    folder = shutil.copytree(keras_3[0] / "export", tmp_path / "model")
    shutil.rmtree(folder / "variables")
    with pytest.raises(rl.FileError, match=r"variables/variables\.index does not exist"):
        rl.load(folder)


def test_damaged_metadata(keras_2, tmp_path):
    """Cut short or with another byte: a typed error, or RNNs, within a second and 100 MB."""
    folder, rng = shutil.copytree(keras_2[0], tmp_path / "model"), np.random.default_rng(0)
    path = folder / "keras_metadata.pb"
    good, whole, ends = path.read_bytes(), rl.load(folder), 0
    for k in range(120):
        at = int(rng.integers(len(good)))
        byte = bytes([good[at] ^ int(rng.integers(1, 256))])
        data = good[:at] if k % 3 == 0 else good[:at] + byte + good[at + 1 :]
        path.write_bytes(data)
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
def test_hostile_metadata(name, keras_2, tmp_path):
    folder, (data, says) = shutil.copytree(keras_2[0], tmp_path / "model"), HOSTILE[name]
    (folder / "keras_metadata.pb").write_bytes(data)
    with limited():
        try:
            rl.load(folder)
        except rl.Error as error:
            assert says in str(error), error
        else:
            assert not says
