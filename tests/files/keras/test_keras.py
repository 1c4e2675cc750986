"""Keras's files: written by Keras 2 and 3 and read by rnnlayout, and the other way round."""

import functools

import h5py
import numpy as np
import pytest
import tf_keras
from files.hostile.good import good
from files.keras.comparison import changed, layer_of, same_arrays
from files.outputs import assert_computes
from oracles.frameworks import KERAS_NOISE, H, I, N, T, fill_keras, keras, normal, seeded

import rnnlayout as rl
from rnnlayout._files.write_into import convert_into

pytestmark = KERAS_NOISE
KITS = [keras, tf_keras]


def hard(kit):
    return "hard_sigmoid" if kit is keras else "hard_sigmoid_keras2"


def layers_of(kit):
    """Return {name: (layer, the spec of its RNN)} for every form of a Keras layer."""
    one = {"return_sequences": True}
    make = kit.layers
    rows = [
        (make.LSTM(H, **one, name="plain"), rl.Spec("lstm", I, H)),
        (make.LSTM(H, **one, use_bias=False, name="bare"), rl.Spec("lstm", I, H, bias="none")),
        (make.LSTM(H, **one, recurrent_activation="hard_sigmoid", name="hard"),
         rl.Spec("lstm", I, H, recurrent_activation=hard(kit))),
        (make.LSTM(H, **one, activation="relu", name="ramp"),
         rl.Spec("lstm", I, H, activation="relu")),
        (make.GRU(H, **one, name="after"), rl.Spec("gru", I, H)),
        (make.GRU(H, **one, reset_after=False, name="before"),
         rl.Spec("gru", I, H, reset="before")),
        (make.SimpleRNN(H, **one, name="soft"), rl.Spec("rnn_tanh", I, H)),
        (make.SimpleRNN(H, **one, activation="relu", name="edgy"), rl.Spec("rnn_relu", I, H)),
        (make.Bidirectional(make.GRU(H, **one), name="both"), rl.Spec("gru", I, H, 1, True)),
        (make.Bidirectional(make.RNN(make.LSTMCell(H), **one), name="cells"),
         rl.Spec("lstm", I, H, 1, True)),
        (make.RNN(make.StackedRNNCells([make.GRUCell(H), make.GRUCell(H), make.GRUCell(H)]),
                  **one, name="stack"), rl.Spec("gru", I, H, 3)),
    ]  # fmt: skip
    return {layer.name: (layer, spec) for layer, spec in rows}


def model_of(kit):
    """Return (model, {name: (layer, spec)}): all layers in parallel, three inside other models."""
    layers = layers_of(kit)
    inputs = [kit.Input((T, I), name=f"to_{name}") for name in layers]
    outputs = [layers[name][0](x) for name, x in zip(layers, inputs, strict=True)]

    # the first one is frozen, so its weights come last in the list of its model
    frozen = kit.layers.LSTM(H, return_sequences=True, name="frozen", trainable=False)
    thawed = kit.layers.LSTM(H, return_sequences=True, name="thawed")
    inner = kit.Sequential([kit.Input((T, I)), frozen, thawed], name="inner")
    wrapped = kit.layers.GRU(H, return_sequences=True, name="wrapped")
    again = kit.Sequential([kit.Input((T, I)), kit.layers.Dense(I), wrapped], name="again")
    inputs += [kit.Input((T, I)), kit.Input((2, T, I))]
    outputs += [inner(inputs[-2]), kit.layers.TimeDistributed(again, name="often")(inputs[-1])]

    layers["inner/frozen"] = frozen, rl.Spec("lstm", I, H)
    layers["inner/thawed"] = thawed, rl.Spec("lstm", H, H)
    layers["often/again/wrapped"] = wrapped, rl.Spec("gru", I, H)
    model = kit.Model(inputs, outputs)
    fill_keras([layer for layer, _ in layers.values()], seeded("files", kit.__name__))
    return model, layers


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return a function: kit -> (folder of its files, the layers in each), made once."""

    @functools.cache
    def make(kit):
        folder = tmp_path_factory.mktemp("keras")
        model, layers = model_of(kit)
        for name in ("model.h5", "model.keras"):
            model.save(folder / name)
        model.save_weights(folder / "model.weights.h5")
        if kit is tf_keras:  # Keras 3 no longer writes such
            model.save_weights(folder / "weights.h5", save_format="h5")
        return folder, layers

    return make


def as_numpy(layer, x):
    """Return what the layer itself computes. x, y: (T, N, ...)"""
    x = np.ascontiguousarray(x.swapaxes(0, 1))
    if isinstance(layer, keras.Layer):
        return keras.ops.convert_to_numpy(layer(keras.ops.convert_to_tensor(x))).swapaxes(0, 1)
    return layer(x).numpy().swapaxes(0, 1)


def assert_is_the_layer(weights, layer, spec):
    assert weights.spec.replace(bias=spec.bias) == spec and weights.layout.name == "keras"
    assert weights.config == {} and same_arrays(weights, layer.get_weights())
    x = normal(seeded("x", spec), T, N, spec.input_size)
    assert_computes(weights, as_numpy(layer, x), x)


@pytest.mark.parametrize("name", ["model.h5", "model.keras"])
@pytest.mark.parametrize("kit", KITS, ids=["keras 3", "keras 2"])
def test_a_model_is_read(files, kit, name):
    folder, layers = files(kit)
    found = rl.load(folder / name)
    assert set(found) == set(layers) and not found.refused and not found.notes
    for entry, (layer, spec) in layers.items():
        assert_is_the_layer(found[entry], layer, spec)


def test_an_archive_of_a_subclass_of_model_is_read_as_its_weights_alone(tmp_path):
    """Its config has no layers: it was said to have no recurrent ones."""

    class Tagger(keras.Model):
        def __init__(self):
            super().__init__()
            words = keras.layers.LSTM(H, return_sequences=True, name="w")
            self.words = keras.layers.Bidirectional(words, name="words")
            self.stack = [keras.layers.GRU(H, return_sequences=True, name="upper")]

        def call(self, x):
            return self.stack[0](self.words(x))

    model, path = Tagger(), tmp_path / "model.keras"
    model(np.zeros((1, 2, I), "f4"))
    model.save(path)
    found = rl.load(path)
    assert [name.split("/")[-1] for name in sorted(found)] == ["upper", "words"]
    for name, layer in zip(sorted(found), (model.stack[0], model.words), strict=True):
        assert same_arrays(found[name], layer.get_weights())
    assert "activation tanh, recurrent activation sigmoid" in "".join(found.notes)
    told = rl.load(path, activation="relu")
    assert told["words"].spec.activation == "relu"
    assert "config: recurrent activation" in "".join(told.notes)


@pytest.mark.parametrize(
    "kit, name",
    [(keras, "model.weights.h5"), (tf_keras, "model.weights.h5"), (tf_keras, "weights.h5")],
    ids=["keras 3", "keras 2", "keras 2, before 2.12"],
)
def test_weights_alone_are_read_by_their_shapes(files, kit, name):
    folder, layers = files(kit)
    found = rl.load(folder / name)
    assert all("tanh or relu" in str(error) for error in found.undecided.values())
    assert len(found.undecided) == 2 and len(found.names) == len(layers) and not found.refused
    (note,) = found.notes
    assert "activation tanh, recurrent activation sigmoid" in note
    for entry, weights in rl.load(folder / name, cell="rnn_tanh").items():
        own = [k for k, (layer, _) in layers.items() if same_arrays(weights, layer.get_weights())]
        assert len(own) == 1
        if kit is keras:  # late Keras 2 does not record the names, its older form only the model's
            assert entry == own[0]
        elif name == "weights.h5":
            assert entry == ("often" if own[0][:5] == "often" else own[0])
        layer, spec = layers[own[0]]
        if spec != weights.spec and spec.bias != "none":
            weights = rl.load(folder / name, spec, prefix=entry)[entry]
        assert_is_the_layer(weights, layer, spec)


# ------------------------------------------------------------------------------- written by us


WRITTEN = {
    # before a stack, and yet after its first layer in Keras's order
    "early": rl.Spec("lstm", I, H),
    "deep": rl.Spec("lstm", I, H, 3),
    "plain": rl.Spec("lstm", I, H),
    "bare": rl.Spec("lstm", I, H, bias="none"),
    "both/deep": rl.Spec("gru", I, H, 2, True),
    "before": rl.Spec("gru", I, H, reset="before"),
    "hard": rl.Spec("gru", I, H, recurrent_activation="hard_sigmoid"),
    "ramp": rl.Spec("lstm", I, H, 1, True, activation="relu"),
    "soft": rl.Spec("rnn_tanh", I, H),
    "torch.edgy": rl.Spec("rnn_relu", I, H, 1, True),
}


def filled(spec, *labels):
    rng = seeded("written", spec, *labels)
    names = rl.describe(spec, "keras")
    arrays = {name: normal(rng, *shape) * np.float32(0.12) for name, shape in names.items()}
    return rl.Weights(arrays, spec, "keras")


@pytest.mark.parametrize("suffix", [".h5", ".keras", ".weights.h5"])
def test_keras_3_loads_what_is_written(tmp_path, suffix):
    entries = {name: filled(spec) for name, spec in WRITTEN.items()}
    path = whole = tmp_path / f"model{suffix}"
    rl.save(path, entries)
    if suffix == ".weights.h5":
        whole = tmp_path / "model.keras"
        rl.save(whole, entries)
    model = keras.models.load_model(whole, compile=False)
    if suffix == ".weights.h5":
        for variable in model.variables:
            variable.assign(variable * 0)
        model.load_weights(path)
    xs = [normal(seeded("x", name), T, N, w.spec.input_size) for name, w in entries.items()]
    ys = model([np.ascontiguousarray(x.swapaxes(0, 1)) for x in xs])
    for x, y, weights in zip(xs, ys, entries.values(), strict=True):
        assert_computes(weights, keras.ops.convert_to_numpy(y).swapaxes(0, 1), x)
    # layers of stacks, and others: Keras orders its list of weights by depth
    layers = [one for one in model.layers if not isinstance(one, keras.layers.InputLayer)]
    assert {one.name: rl.Weights(one) for one in layers} == dict(rl.load(whole))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_dtypes(tmp_path, dtype):
    weights = filled(rl.Spec("lstm", I, H)).to("keras", dtype=dtype)
    rl.save(tmp_path / "a.weights.h5", weights)
    # no backend computes an orthogonal matrix in bfloat16
    layer = keras.layers.LSTM(H, dtype=dtype, recurrent_initializer="zeros", name="own")
    model = keras.Sequential([keras.Input((T, I)), layer])
    model.load_weights(tmp_path / "a.weights.h5")
    model.save(tmp_path / "b.keras")
    again = rl.load(tmp_path / "b.keras")["own"]
    rl.save(tmp_path / "c.keras", {"own": again})
    for w in (again, rl.load(tmp_path / "c.keras")["own"]):
        assert w.spec == weights.spec
        assert all(w[name].tobytes() == weights[name].tobytes() for name in weights)


def test_what_changes_outputs_goes_along(tmp_path):
    """A stack reverses the sequence once, before its first layer."""
    L, one = keras.layers, {"return_sequences": True}
    layers = [
        L.LSTM(H, **one, go_backwards=True, name="back"),
        L.Bidirectional(L.GRU(H, **one), merge_mode="sum", name="summed"),
        L.RNN([L.GRUCell(H), L.GRUCell(H)], **one, go_backwards=True, name="two"),
    ]  # fmt: skip
    model = keras.Sequential([keras.Input((T, I)), *layers])
    fill_keras(layers, seeded("backwards"))
    model.save(tmp_path / "a.keras")
    found = rl.load(tmp_path / "a.keras")
    configs = [{"go_backwards": True}, {"merge_mode": "sum"}, {"go_backwards": True}]
    assert [one.config for one in found.values()] == configs

    rl.save(tmp_path / "b.h5", dict(found))
    again = keras.models.load_model(tmp_path / "b.h5", compile=False)
    made = {one.name: one for one in again.layers if one.weights}
    ours = [made.pop("back"), made.pop("summed"), keras.Sequential(list(made.values()))]
    for layer, mine, wide in zip(layers, ours, (I, H, H), strict=True):
        x = normal(seeded("x", wide), T, N, wide)
        wanted, got = as_numpy(layer, x), as_numpy(mine, x)
        assert np.abs(wanted - wanted[::-1]).max() > 0.1  # turned round is something else
        # Sums of I + H + 2 terms below 3 in float32 by both, through two layers of T steps whose
        # sigmoids and tanh pass on at most the error that comes in.
        assert np.abs(got - wanted).max() <= 2 * (I + H + 2) * 3 * 2.0**-24 * 2 * T
    found["back"].config = {"go_backwards": True, "stateful": True}
    with pytest.raises(rl.LossyError, match="stateful=True"):
        rl.save(tmp_path / "c.keras", found["back"])
    rl.save(tmp_path / "c.weights.h5", found["back"])  # which say nothing of that
    found["back"].config = {}
    x = normal(seeded("x"), T, N, I)
    assert_computes(found["back"], as_numpy(layers[0], x), x[::-1].copy())


@pytest.mark.parametrize("kind", ["Dense", "Bidirectional"])
def test_a_backward_layer_of_another_class(kind, tmp_path):
    """This was a KeyError."""

    def change(config):
        lstm = layer_of(config, 1)
        both = {"layer": dict(lstm), "backward_layer": {"class_name": kind, "config": {}}}
        lstm.update(class_name="Bidirectional", config={"name": "lstm", **both})

    (tmp_path / "a.h5").write_bytes(good(".h5"))
    with pytest.raises(rl.LossyError, match=f"is a cell of class '{kind}'"):
        rl.load(changed(tmp_path / "a.h5", tmp_path, change))


# --------------------------------------------------------------------------------- our records


@pytest.mark.parametrize("old, new, says", [
    (b'"hidden_size": 8', b'"hidden_size": 4', "changed after rnnlayout wrote it"),
    (b"}", b"", "rnnlayout"),
])  # fmt: skip
def test_a_record_that_does_not_fit(old, new, says, tmp_path):
    path = tmp_path / "a.weights.h5"
    rl.save(path, filled(rl.Spec("lstm", I, H)))
    with h5py.File(path, "r+") as file:
        (text,) = file.attrs["rnnlayout"]
        assert old in text
        file.attrs["rnnlayout"] = np.array([text.replace(old, new)])
    with pytest.raises(rl.FileError, match=says):
        rl.load(path)


# ----------------------------------------------------------- new weights in a model of Keras


def trained(seed):
    """Return a model whose optimizer has variables."""
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    model = keras.Sequential([
        keras.Input((6, I)),
        layers.Bidirectional(layers.LSTM(3, return_sequences=True), name="both"),
        layers.GRU(4, name="gru"),
        layers.Dense(2, name="head"),
    ])  # fmt: skip
    model.compile("adam", keras.losses.MeanSquaredError())
    model.fit(np.random.default_rng(seed).normal(size=(8, 6, I)), np.ones((8, 2)), verbose=0)
    return model


@pytest.mark.parametrize("suffix", [".keras", ".h5", ".weights.h5"])
def test_all_else_stays_if_a_model_gets_new_weights(tmp_path, suffix):
    model, other, old = trained(1), trained(2), tmp_path / f"model{suffix}"
    (model.save_weights if suffix == ".weights.h5" else model.save)(old)
    name, *_ = rl.load(old)
    rl.save(tmp_path / "new.npz", {name: rl.Weights(other.get_layer("both")).to("torch")})
    convert_into(tmp_path / "new.npz", tmp_path / f"out{suffix}", into=old)
    if suffix == ".weights.h5":
        made = trained(7)
        made.load_weights(tmp_path / f"out{suffix}")
    else:
        made, before = (keras.saving.load_model(p) for p in (tmp_path / f"out{suffix}", old))
        assert made.get_config() == before.get_config()
        variables = zip(made.optimizer.variables, before.optimizer.variables, strict=True)
        assert all(np.array_equal(a, b) for a, b in variables)
    for name, of in (("both", other), ("gru", model), ("head", model)):
        arrays = (one.get_layer(name).get_weights() for one in (made, of))
        assert all(map(np.array_equal, *arrays))
