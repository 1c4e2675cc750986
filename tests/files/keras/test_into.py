"""New weights in a model that Keras saved: everything else of it stays."""

import keras
import numpy as np
import pytest
from oracles.frameworks import KERAS_NOISE

import rnnlayout as rl
from rnnlayout._files.write_file import convert_into

pytestmark = [KERAS_NOISE, pytest.mark.filterwarnings("ignore::UserWarning:keras")]
SUFFIXES = pytest.mark.parametrize("suffix", [".keras", ".h5", ".weights.h5"])


def make_model(seed):
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    model = keras.Sequential([
        keras.Input((6, 5)),
        layers.Bidirectional(layers.LSTM(3, return_sequences=True), name="both"),
        layers.GRU(4, name="gru"),
        layers.Dense(2, name="head"),
    ])  # fmt: skip
    model.compile("adam", keras.losses.MeanSquaredError())
    x = np.random.default_rng(seed).normal(size=(8, 6, 5))
    model.fit(x, np.ones((8, 2)), verbose=0)  # the optimizer has variables
    return model


def save(model, path):
    (model.save_weights if path.suffixes[-2:] == [".weights", ".h5"] else model.save)(path)


def read_back(path):
    if path.suffixes[-2:] == [".weights", ".h5"]:
        model = make_model(7)
        model.load_weights(path)
        return model
    return keras.saving.load_model(path)


def arrays(model, *names):
    return [a for name in names for a in model.get_layer(name).get_weights()]


def variables(model):
    return [np.asarray(one) for one in model.optimizer.variables]


def same(a, b):
    return len(a) == len(b) and all((x == y).all() for x, y in zip(a, b, strict=True))


@SUFFIXES
def test_new_weights_in_a_model(tmp_path, suffix):
    model, other = make_model(1), make_model(2)
    save(model, tmp_path / f"model{suffix}")
    name, *_ = rl.load(tmp_path / f"model{suffix}")
    rl.save(tmp_path / "new.npz", {name: rl.Weights(other.get_layer("both")).to("torch")})
    out = tmp_path / f"out{suffix}"
    convert_into(tmp_path / "new.npz", out, into=tmp_path / f"model{suffix}")
    made = read_back(out)
    assert same(arrays(made, "both"), arrays(other, "both"))
    assert same(arrays(made, "gru", "head"), arrays(model, "gru", "head"))
    if suffix != ".weights.h5":
        before = read_back(tmp_path / f"model{suffix}")
        assert made.get_config() == before.get_config()
        assert same(variables(made), variables(before))


@SUFFIXES
def test_the_fix_of_a_model_keeps_the_rest(tmp_path, suffix):
    model = make_model(1)
    right = arrays(model, "both", "gru", "head")
    file, out = tmp_path / f"model{suffix}", tmp_path / f"fixed{suffix}"
    save(model, tmp_path / f"like{suffix}")
    layer = model.get_layer("gru")
    kernel, *rest = layer.get_weights()
    layer.set_weights([np.roll(kernel, 4, axis=1), *rest])
    save(model, file)
    (name,) = [n for n, one in rl.load(file).items() if one.spec.cell == "gru"]
    found = rl.diagnose(file, like={name: rl.load(tmp_path / f"like{suffix}")[name]})
    assert found.text == "gates in the order n z r, expected z r n in the input matrices", found
    found.save(out)
    assert same(arrays(read_back(out), "both", "gru", "head"), right)
