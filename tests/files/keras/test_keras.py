"""Keras's files: written by Keras 2 and 3 and read by rnnlayout, and the other way round."""

import functools
import gc
import weakref

import h5py
import numpy as np
import pytest
import tf_keras
from files.hostile.good import good
from files.keras.comparison import changed, layer_of
from files.outputs import assert_computes
from keras.src.saving import serialization_lib
from oracles.frameworks import KERAS_NOISE, H, I, N, T, fill_keras, keras, normal, seeded

import rnnlayout as rl
from rnnlayout._files.write_file import convert_into

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
    """{kit: (folder of its files, the layers in each)}, made on first use"""

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


every_kit = pytest.mark.parametrize("kit", KITS, ids=["keras 3", "keras 2"])


def as_numpy(layer, x):
    """Return what the layer itself computes. x, y: (T, N, ...)"""
    x = np.ascontiguousarray(x.swapaxes(0, 1))
    if isinstance(layer, keras.Layer):
        return keras.ops.convert_to_numpy(layer(keras.ops.convert_to_tensor(x))).swapaxes(0, 1)
    return layer(x).numpy().swapaxes(0, 1)


def same_arrays(weights, layer):
    arrays = [
        keras.ops.convert_to_numpy(v) if isinstance(layer, keras.Layer) else v.numpy()
        for v in layer.weights
    ]
    ours = list(weights.values())
    return len(arrays) == len(ours) and all(map(np.array_equal, arrays, ours))


def assert_is_the_layer(weights, layer, spec):
    assert weights.spec.replace(bias=spec.bias) == spec and weights.layout.name == "keras"
    assert weights.config == {} and same_arrays(weights, layer)
    x = normal(seeded("x", spec), T, N, spec.input_size)
    assert_computes(weights, as_numpy(layer, x), x)


@pytest.mark.parametrize("name", ["model.h5", "model.keras"])
@every_kit
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
            self.words = keras.layers.Bidirectional(
                keras.layers.LSTM(H, return_sequences=True, name="w"), name="words"
            )
            self.stack = [keras.layers.GRU(H, return_sequences=True, name="upper")]

        def call(self, x):
            return self.stack[0](self.words(x))

    model = Tagger()
    model(np.zeros((1, 2, I), "f4"))
    model.save(tmp_path / "model.keras")
    found = rl.load(tmp_path / "model.keras")
    assert [name.split("/")[-1] for name in sorted(found)] == ["upper", "words"]
    (note,) = found.notes
    assert "activation tanh, recurrent activation sigmoid" in note
    for name, layer in zip(sorted(found), (model.stack[0], model.words), strict=True):
        assert same_arrays(found[name], layer)
    told = rl.load(tmp_path / "model.keras", activation="relu")
    (note,) = told.notes
    assert told["words"].spec.activation == "relu" and "config: recurrent activation" in note


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
        own = [k for k, (layer, _) in layers.items() if same_arrays(weights, layer)]
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


def filled(spec, *labels, layout="keras"):
    rng = seeded("written", spec, *labels)
    names = rl.describe(spec.replace(bias="double") if layout != "keras" else spec, layout)
    arrays = {name: normal(rng, *shape) * np.float32(0.12) for name, shape in names.items()}
    return rl.Weights(arrays, spec, layout)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    entries = {name: filled(spec) for name, spec in WRITTEN.items()}
    for suffix in (".h5", ".keras", ".weights.h5"):
        rl.save(folder / f"model{suffix}", entries)
    return folder, entries


def same_outputs(model, entries):
    xs = [normal(seeded("x", name), T, N, w.spec.input_size) for name, w in entries.items()]
    ys = model([np.ascontiguousarray(x.swapaxes(0, 1)) for x in xs])
    for x, y, weights in zip(xs, ys, entries.values(), strict=True):
        assert_computes(weights, keras.ops.convert_to_numpy(y).swapaxes(0, 1), x)


@pytest.mark.parametrize("suffix", [".h5", ".keras", ".weights.h5"])
def test_keras_3_loads_what_is_written(written, suffix):
    folder, entries = written
    whole = folder / f"model{'.keras' if 'w' in suffix else suffix}"
    model = keras.models.load_model(whole, compile=False)
    if suffix == ".weights.h5":
        for variable in model.variables:
            variable.assign(variable * 0)
        model.load_weights(folder / "model.weights.h5")
    same_outputs(model, entries)


def test_load_finds_the_weights_of_each_layer_as_keras_does(written):
    """Layers of stacks and other layers: Keras orders its list of weights by depth."""
    folder, _ = written
    model = keras.models.load_model(folder / "model.keras", compile=False)
    found = rl.load(folder / "model.keras")
    layers = [one for one in model.layers if not isinstance(one, keras.layers.InputLayer)]
    assert {one.name: rl.Weights(one) for one in layers} == dict(found)


class ReusedAddresses:
    """id() where a new layer always gets the address of a dead one, if there is one."""

    def __init__(self):
        self._layers = {}  # address -> a weak reference to the layer

    def __call__(self, layer):
        if not isinstance(layer, keras.layers.Layer):
            return id(layer)
        gc.collect()
        address_of = {id(one()): address for address, one in self._layers.items()}
        new = -1 - len(self._layers)
        address = address_of.get(id(layer), address_of.get(id(None), new))
        self._layers[address] = weakref.ref(layer)
        return address


def test_keras_loads_bidirectional_layers_whatever_their_addresses(tmp_path, monkeypatch):
    """Keras takes two layers for one if they had the same address while the model is loaded."""
    spec = rl.Spec("lstm", I, H, bidirectional=True)
    entries = {f"both_{k}": filled(spec, k) for k in range(3)}
    rl.save(tmp_path / "model.keras", entries)
    monkeypatch.setattr(serialization_lib, "id", ReusedAddresses(), raising=False)
    gc.collect()
    gc.freeze()  # the collections look only at what is created from here on
    model = keras.models.load_model(tmp_path / "model.keras", compile=False)
    gc.unfreeze()
    for name, weights in entries.items():
        assert rl.Weights(model.get_layer(name)) == weights


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
    x = normal(seeded("x"), T, N, I)
    layer = keras.layers.LSTM(H, return_sequences=True, go_backwards=True, name="back")
    summed = keras.layers.Bidirectional(
        keras.layers.GRU(H, return_sequences=True), merge_mode="sum", name="summed"
    )
    model = keras.Sequential([keras.Input((T, I)), layer, summed])
    model.save(tmp_path / "a.keras")
    found = rl.load(tmp_path / "a.keras")
    assert found["back"].config == {"go_backwards": True}
    assert found["summed"].config == {"merge_mode": "sum"}
    forwards = rl.Weights(found["back"])
    forwards.config = {}
    assert_computes(forwards, as_numpy(layer, x), x[::-1].copy())
    rl.save(tmp_path / "b.h5", dict(found))
    again = keras.models.load_model(tmp_path / "b.h5", compile=False)
    for ours, theirs, wide in ((again.layers[2], layer, I), (again.layers[3], summed, H)):
        x = normal(seeded("x", wide), T, N, wide)
        assert np.array_equal(as_numpy(ours, x), as_numpy(theirs, x))
    found["back"].config["stateful"] = True
    with pytest.raises(rl.LossyError, match="stateful=True"):
        rl.save(tmp_path / "c.keras", found["back"])
    rl.save(tmp_path / "c.weights.h5", found["back"])  # which say nothing of that


def test_a_stack_that_goes_backwards_does_so_once(tmp_path):
    """Its first layer reverses the sequence; no other layer reverses it again."""
    cells = keras.layers.StackedRNNCells([keras.layers.GRUCell(H) for _ in range(2)])
    stack = keras.layers.RNN(cells, return_sequences=True, go_backwards=True, name="stack")
    model = keras.Sequential([keras.Input((T, I)), stack])
    fill_keras([stack], seeded("backwards"))
    model.save(tmp_path / "a.keras")
    rl.save(tmp_path / "b.keras", dict(rl.load(tmp_path / "a.keras")))
    again = keras.models.load_model(tmp_path / "b.keras")
    x = normal(seeded("x"), T, N, I)
    wanted, got = as_numpy(model, x), as_numpy(again, x)
    assert np.abs(wanted - wanted[::-1]).max() > 0.1  # turned round is something else
    # Sums of I + H + 2 terms below 3 in float32 by both, through two layers of T steps whose
    # sigmoids and tanh pass on at most the error that comes in.
    assert np.abs(got - wanted).max() <= 2 * (I + H + 2) * 3 * 2.0**-24 * 2 * T


def test_layers_that_no_other_framework_has_are_refused_by_name(tmp_path):
    L = keras.layers
    odd = {
        "elu": L.LSTM(H, activation="elu", name="elu"),
        "soft": L.GRU(H, recurrent_activation="softsign", name="soft"),
        "stacks": L.Bidirectional(L.RNN(L.StackedRNNCells([L.GRUCell(H)] * 2)), name="stacks"),
        "unlike": L.Bidirectional(
            L.LSTM(H), backward_layer=L.LSTM(H, use_bias=False, go_backwards=True), name="unlike"
        ),
    }
    fine, x = L.GRU(H, name="fine"), keras.Input((T, I))
    keras.Model(x, [layer(x) for layer in [fine, *odd.values()]]).save(tmp_path / "a.keras")
    found = rl.load(tmp_path / "a.keras")
    assert list(found) == ["fine"] and set(found.refused) == set(odd)
    for name, error in found.refused.items():
        assert name in str(error) and isinstance(error, rl.LayoutError)


@pytest.mark.parametrize("suffix", [".h5", ".keras", ".weights.h5"])
def test_what_belongs_to_no_rnn_is_named(suffix, tmp_path):
    layers = [keras.layers.LSTM(H, name="reader"), keras.layers.Dense(2, name="head")]
    model = keras.Sequential([keras.Input((T, I)), *layers])
    model.compile("adam", "mse")
    write = model.save_weights if suffix == ".weights.h5" else model.save
    write(tmp_path / f"a{suffix}")
    found = rl.load(tmp_path / f"a{suffix}")
    assert len(found.others) == 2 and all("head" in n or "dense" in n for n in found.others)
    done = rl.convert_file(tmp_path / f"a{suffix}", tmp_path / "b.npz", to="cudnn")
    assert done.left_out == found.others


# --------------------------------------------------------- odd but honest; the others of hostile/


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


def test_what_a_file_of_keras_cannot_have(tmp_path):
    plain = rl.Spec("lstm", I, H)
    hard = filled(plain.replace(recurrent_activation="hard_sigmoid_keras2"))
    narrow = [filled(plain, layout=layout).to(layout, dtype="bfloat16")
              for layout in ("keras", "keras-cudnn")]  # fmt: skip
    refused = [(hard, ".h5", "0.2 x"), (hard, ".keras", "0.2 x")]
    refused += [(one, ".h5", r"legacy \.h5 cannot store") for one in narrow]
    for weights, suffix, why in refused:
        with pytest.raises((rl.LayoutError, rl.LossyError), match=why):
            rl.save(tmp_path / f"a{suffix}", weights)
    assert not list(tmp_path.iterdir())


def test_keras_reads_a_file_with_records(tmp_path):
    """Keras ignores the attribute; many records do not fit into one."""
    entries = {f"{k:a<900}": filled(rl.Spec("lstm", I, H), k) for k in range(60)}
    for weights in entries.values():
        weights.config = {"go_backwards": True}
    x = keras.Input((None, I))
    model = keras.Model(x, [
        keras.layers.LSTM(H, name=name, return_sequences=True, go_backwards=True)(x)
        for name in entries
    ])  # fmt: skip
    rl.save(tmp_path / "a.weights.h5", entries)
    with h5py.File(tmp_path / "a.weights.h5") as file:
        assert sum(name.startswith("rnnlayout") for name in file.attrs) > 1
    model.load_weights(tmp_path / "a.weights.h5")
    assert all(same_arrays(w, model.get_layer(name)) for name, w in entries.items())
    assert dict(rl.load(tmp_path / "a.weights.h5")) == entries
    model.save_weights(tmp_path / "b.weights.h5")
    assert not any(one.config for one in rl.load(tmp_path / "b.weights.h5").values())


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
