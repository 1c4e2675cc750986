"""Old Keras models with cuDNN layers, converted: Keras 3 loads them and computes the same.

tf_keras writes the files with its own CuDNNLSTM and CuDNNGRU. The right results are those of
tf_keras's LSTM and GRU with the weights that its own loader makes of them.
"""

import io
import itertools
import json
import shutil
import zipfile

import h5py
import keras
import numpy as np
import pytest
import tf_keras
from files.hostile.good import members
from files.hostile.hdf5 import edited
from files.keras import old_models as old
from files.keras.comparison import (
    ONE_MORE,
    TOLERANCE,
    changed,
    computes,
    flat,
    layer_of,
    refused,
    tree,
)
from marks import in_turn, sample
from oracles.frameworks import KERAS_NOISE
from tf_keras.src.saving import saving_lib

import rnnlayout as rl

pytestmark = [KERAS_NOISE, pytest.mark.filterwarnings("ignore::UserWarning:keras")]

# ------------------------------------------------------------------------- every shape of model


def runs_in_keras_3(model, version, x, y, tolerance=TOLERANCE):
    """Convert an archive, and an .h5 file with the words of a version of Keras; assert that Keras 3
    computes y from both. Returns both .h5 files, and the model that Keras loaded."""
    source = model.with_stem("old")
    shutil.copy(model, source)
    old.reword(source, old.WORDS[version], version)
    for path in (model.with_suffix(".keras"), source):
        new = path.with_stem("new")
        reasons = [one.reason for one in rl.convert_file(path, new, to="keras").reports.values()]
        assert any("hard_sigmoid" in reason for reason in reasons) == (tolerance == ONE_MORE)
        assert reasons
        loaded = keras.models.load_model(new)
        computes(loaded, x, y, tolerance)
    return source, new, loaded


def test_each_layer_in_a_bidirectional_layer_has_an_id(tmp_path):
    """Keras takes two for one if they had the same address while it loads the model."""
    model, _, _ = old.write("states", tmp_path)
    rl.convert_file(model.with_suffix(".keras"), tmp_path / "new.keras", to="keras")
    spec = rl.Spec("lstm", 5, 3, bidirectional=True)
    weights = rl.Weights(np.ones(spec.num_params, "f4"), spec).to("keras")
    rl.save(tmp_path / "own.keras", {f"both_{k}": weights for k in range(3)})
    for name, count in (("new.keras", 2), ("own.keras", 3)):
        config = json.loads(members((tmp_path / name).read_bytes())["config.json"])["config"]
        ids = [layer["config"]["layer"]["shared_object_id"] for layer in config["layers"]
               if layer["class_name"] == "Bidirectional"]  # fmt: skip
        assert len({*ids}) == len(ids) == count


@pytest.mark.parametrize("name, version", sample(in_turn(old.HARD_MODELS, old.WORDS), 5))
def test_keras_3_computes_the_same_with_its_own_hard_sigmoid(name, version, tmp_path):
    """Keras 3's is another function: the gates' weights compensate. Some gates are saturated."""
    model, _, twin = old.write_model(*old.HARD_MODELS[name], tmp_path)
    x = old.inputs_of(name, twin, most=4)
    runs_in_keras_3(model, version, x, flat(twin(x)), ONE_MORE)


@pytest.mark.parametrize("name, version", sample(in_turn(old.MODELS, old.WORDS), 2))
def test_keras_3_computes_the_same_and_all_else_stays(name, version, tmp_path):
    """Also if it loads the weights alone."""
    model, weights, twin = old.write(name, tmp_path)
    x = old.inputs_of(name, twin)
    y = flat(twin(x))
    source, new, loaded = runs_in_keras_3(model, version, x, y)
    before, after = tree(source), tree(new)
    assert before.keys() == after.keys()
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"", *cudnn_tensors(before)}
    a, b = before[""][0], after[""][0]
    assert a.pop("training_config")[0] == b.pop("training_config_of_keras_2")[0]
    assert a.keys() == b.keys()
    assert {key for key in a if a[key] != b[key]} == {"model_config", "keras_version"}

    for variable in loaded.weights:
        variable.assign(np.full(variable.shape, 0.125))
    rl.convert_file(weights, tmp_path / "new_weights.h5", to="keras")
    loaded.load_weights(tmp_path / "new_weights.h5")
    computes(loaded, x, y)
    before, after = tree(weights), tree(tmp_path / "new_weights.h5")
    assert {name for name in before if before[name] != after.get(name)} == cudnn_tensors(before)


def cudnn_tensors(objects):
    """Return which objects of tree() are tensors of cuDNN layers: these have two biases."""
    layers = [name.rpartition("/")[0] for name in objects if name.endswith("/recurrent_kernel:0")]
    return {
        f"{layer}/{part}:0"
        for layer in layers
        if "optimizer" not in layer
        and objects[f"{layer}/bias:0"][1] == (2 * objects[f"{layer}/recurrent_kernel:0"][1][1],)
        for part in ("kernel", "recurrent_kernel", "bias")
    }


# ----------------------------------------------------------------------------------- in particular


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    """A file of an LSTM, a GRU and a Dense."""
    return old.write("sequential", tmp_path_factory.mktemp("stack"))[0]


@pytest.fixture(scope="module")
def archived(stack):
    return stack.with_suffix(".keras")


@pytest.fixture(params=[".h5", ".keras"])
def either(stack, request):
    """The same as a file or as an archive."""
    return stack.with_suffix(request.param)


def test_what_was_done(stack, tmp_path):
    done = rl.convert_file(stack, tmp_path / "new.h5", to="keras")
    report = rl.check(rl.load(stack)["cu_dnnlstm"], to="keras")
    assert report.grade == "rounds"
    assert done.reports == {"cu_dnnlstm": report, "cu_dnngru": rl.Report("exact")}
    assert not done.left_out
    assert ["training_config" in note for note in done.notes] == [True]


@pytest.mark.parametrize(("first", "second"), [(".h5", ".keras"), (".keras", ".h5")])
def test_what_is_not_the_whole_model_says_so(first, second, tmp_path):
    model = keras.Sequential([keras.Input((None, 3)), keras.layers.LSTM(5), keras.layers.Dense(2)])
    model.save(tmp_path / f"a{first}")
    done = rl.convert_file(tmp_path / f"a{first}", tmp_path / f"b{second}", to="keras")
    assert len(done.left_out) == 2  # the Dense
    assert [f"give it the old one's suffix, {first}" in note for note in done.notes] == [True]
    done = rl.convert_file(tmp_path / f"a{first}", tmp_path / "b.safetensors", to="torch")
    assert len(done.left_out) == 2 and not done.notes  # nobody expects a model there


def test_another_dtype(either, tmp_path):
    """Of the RNNs only."""
    new = tmp_path / f"new{either.suffix}"
    rl.convert_file(either, new, to="keras", dtype="float64")
    assert {one.spec.dtype for one in rl.load(new).values()} == {"float64"}
    found = tree(new) if new.suffix == ".h5" else tree(variables(new))
    assert {form[2] for name, form in found.items() if "dense" in name and form[1:]} == {
        np.dtype("f4")
    }


def test_compressed_arrays_stay_compressed(stack, tmp_path):
    shutil.copy(stack, tmp_path / "old.h5")
    with h5py.File(tmp_path / "old.h5", "r+") as file:
        name = "model_weights/cu_dnngru/cu_dnngru/bias:0"
        values = file.pop(name)[()]
        made = file.create_dataset(name, data=values, compression="gzip", shuffle=True)
        made.attrs["of"] = "mine"
    rl.convert_file(tmp_path / "old.h5", tmp_path / "new.h5", to="keras")
    with h5py.File(tmp_path / "new.h5") as file:
        bias = file[name]
        assert (bias.shape, bias.compression, bias.shuffle) == ((2, 12), "gzip", True)
        assert dict(bias.attrs) == {"of": "mine"} and np.array_equal(bias[()].ravel(), values)


def test_a_gru_of_keras_2_resets_before(tmp_path):
    """It does if the config does not say; Keras 3 would read it as one that resets after."""
    x = np.random.default_rng(3).uniform(-1, 1, (2, 6, 3)).astype("f4")
    options = {"reset_after": False, "recurrent_activation": "sigmoid"}
    model = tf_keras.Sequential([old.Input((6, 3)), tf_keras.layers.GRU(4, **options)])
    model.save(tmp_path / "old.h5")
    source = changed(
        tmp_path / "old.h5", tmp_path, lambda c: layer_of(c, 1)["config"].pop("reset_after")
    )
    old.reword(source, old.keras_2_1, "2.1.6")
    assert not rl.convert_file(source, tmp_path / "new.h5", to="keras").reports
    computes(keras.models.load_model(tmp_path / "new.h5"), x, flat(model(x)))


@pytest.mark.parametrize("suffix", [".h5", ".keras"])
def test_what_was_frozen_was_trained_in_keras_3(suffix, tmp_path):
    """Keras 2 freezes all that is in a frozen wrapper or RNN, Keras 3 what is frozen itself."""
    L = tf_keras.layers
    frozen = {"trainable": False}
    model = tf_keras.Sequential([
        L.Input((4, 3)), L.Bidirectional(L.LSTM(5, return_sequences=True), **frozen),
        L.TimeDistributed(L.Dense(4), **frozen),
        L.TimeDistributed(tf_keras.Sequential([L.Input((4,)), L.Dense(3)]), **frozen),
        L.RNN([L.GRUCell(3, recurrent_activation="sigmoid"), L.LSTMCell(2)], **frozen), L.Dense(2),
    ])  # fmt: skip
    model.save(tmp_path / f"a{suffix}")
    rl.convert_file(tmp_path / f"a{suffix}", tmp_path / f"b{suffix}", to="keras")
    loaded = keras.models.load_model(tmp_path / f"b{suffix}")
    assert len(model.trainable_variables) == 2
    for new, variable in zip(loaded.trainable_variables, model.trainable_variables, strict=True):
        assert f"{new.path}:0".endswith(variable.name)  # dense_2/kernel:0


def test_a_compiled_model_inside_was_not_loaded(tmp_path):
    """Keras 3 fails on the options of its optimizer."""
    L = tf_keras.layers
    encoder = tf_keras.Sequential([L.Input((4, 3)), L.LSTM(5)], name="encoder")
    encoder.compile(tf_keras.optimizers.Adam(0.01), "mse")
    model = tf_keras.Sequential([L.Input((4, 3)), encoder, L.Dense(2)], name="whole")
    old.fill(model)
    model.save(tmp_path / "old.keras")
    done = rl.convert_file(tmp_path / "old.keras", tmp_path / "new.keras", to="keras")
    (note,) = done.notes
    assert note.startswith("whole/encoder: compile_config is kept as compile_config_of_keras_2: ")
    x = np.random.default_rng(3).uniform(-1, 1, (2, 4, 3)).astype("f4")
    loaded = keras.models.load_model(tmp_path / "new.keras")
    computes(loaded, x, flat(model(x)))
    loaded.layers[0].compile("adam", "mse")


def test_arguments_of_a_call_with_states(tmp_path):
    """Keras 2 records them beside each state; Keras 3 has no constants."""
    L = tf_keras.layers
    x, *states = L.Input((old.T, 3)), L.Input((4,)), L.Input((4,))
    reader = L.Bidirectional(L.GRU(4, dropout=0.5, recurrent_activation="sigmoid"))
    model = tf_keras.Model([x, *states], reader(x, initial_state=states, training=True))
    model.save(tmp_path / "old.h5")
    with h5py.File(tmp_path / "old.h5") as file:
        (node,) = json.loads(file.attrs["model_config"])["config"]["layers"][-1]["inbound_nodes"]
    assert [(ref[3]["training"], ref[3]["constants"]) for ref in node] == 3 * [(True, None)]
    rl.convert_file(tmp_path / "old.h5", tmp_path / "new.h5", to="keras")
    given = [np.ones((99, *known.shape[1:]), "f4") for known in model.inputs]
    for net in (model, keras.models.load_model(tmp_path / "new.h5")):
        first, second = (flat(net(given))[0] for _ in range(2))
        assert (first != second).any(axis=1).sum() > 9  # by dropout: another for each sequence


def test_other_layers_keep_their_old_policy_and_code(stack, tmp_path):
    policy = {"class_name": "Policy", "config": {"name": "mixed_float16"}}
    source = changed(stack, tmp_path, lambda c: layer_of(c, 3)["config"].update(dtype=policy))
    rl.convert_file(source, tmp_path / "new.h5", to="keras")
    assert keras.models.load_model(tmp_path / "new.h5").layers[-1].compute_dtype == "float16"
    code = {"class_name": "Lambda", "config": {"function": ["os.system('false')", None, None]}}
    source = changed(stack, tmp_path, lambda c: c["config"]["layers"].append(code))
    rl.convert_file(source, tmp_path / "new.h5", to="keras", force=True)
    with h5py.File(tmp_path / "new.h5") as file:
        assert json.loads(file.attrs["model_config"])["config"]["layers"][-1] == code


@pytest.mark.parametrize("suffix", [".h5", ".keras"])
def test_what_no_layout_can_hold_stays(tmp_path, suffix):
    """A ConvLSTM2D, with the time_major that Keras 3 refuses, and activations."""
    L = tf_keras.layers
    model = tf_keras.Sequential([
        L.Input((3, 6, 6, 2)), L.ConvLSTM2D(2, 3, recurrent_activation="sigmoid", name="conv"),
        L.Reshape((4, 8)), L.LSTM(5, activation="elu", return_sequences=True),
        L.GRU(3, activation="relu", recurrent_activation="hard_sigmoid"),
    ])  # fmt: skip
    old.fill(model)
    x = np.random.default_rng(0).random((2, 3, 6, 6, 2), "f4")
    paths = [tmp_path / f"{name}{suffix}" for name in ("old", "new", "again")]
    model.save(paths[0])
    for source, new in itertools.pairwise(paths):
        rl.convert_file(source, new, to="keras")
        computes(keras.models.load_model(new), x, flat(model(x)), 4 * TOLERANCE)


# ----------------------------------------------------------------------------------- archives


VARIABLES = "model.weights.h5"
PARTS = {"config.json", "metadata.json", VARIABLES}


def variables(path):
    return io.BytesIO(members(path.read_bytes())[VARIABLES])


def arrays(path):
    """Return the form and the values of all variables by path."""
    return {name: form for name, (_, *form) in tree(variables(path)).items() if form}


def test_all_else_in_an_archive_stays(archived, tmp_path):
    source = tmp_path / "old.keras"
    parts = {"assets/words.txt": b"a\nb\n", **members(archived.read_bytes()), "last": b""}
    with zipfile.ZipFile(source, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in parts.items():
            how = zipfile.ZIP_STORED if name == VARIABLES else None
            file.writestr(zipfile.ZipInfo(name, (2019, 1, 2, 3, 4, 6)), content, how)
    rl.convert_file(source, tmp_path / "new.keras", to="keras")
    with zipfile.ZipFile(source) as a, zipfile.ZipFile(tmp_path / "new.keras") as b:
        for before, after in zip(a.infolist(), b.infolist(), strict=True):
            for key in ("filename", "date_time", "compress_type", "external_attr"):
                assert getattr(before, key) == getattr(after, key)
    after = members((tmp_path / "new.keras").read_bytes())
    assert {name for name in parts if parts[name] != after[name]} == PARTS
    a, b = (json.loads(p["metadata.json"]) for p in (parts, after))
    assert a | {"keras_version": "3.0.0"} == b and a["date_saved"]
    a, b = arrays(source), arrays(tmp_path / "new.keras")
    moved = {f"layers/cu_dnn{x}/vars/{k}": f"layers/{x}/cell/vars/{k}"
             for x in ("lstm", "gru") for k in range(3)}  # fmt: skip
    assert list(moved) == [name for name in moved if name in a]
    assert {moved.get(name, name) for name in a} == b.keys()
    assert any(name.startswith("optimizer/") for name in a)
    assert all(a[name] == b[name] for name in a.keys() - moved.keys())
    a, b = (json.loads(p["config.json"]) for p in (parts, after))
    assert a["compile_config"] == b["compile_config_of_keras_2"] and "compile_config" not in b


def test_the_groups_of_keras_2_13(tmp_path, monkeypatch):
    """An attribute that names each layer twice was not skipped."""
    skipped = (saving_lib.ATTR_SKIPLIST - {"_layer_checkpoint_dependencies"}) | {"layers"}
    monkeypatch.setattr(saving_lib, "ATTR_SKIPLIST", skipped)
    model, _, twin = old.write("nested_in_sequential", tmp_path)
    source = model.with_suffix(".keras")
    assert any("_layer_checkpoint_dependencies/cu_dnngru" in name for name in arrays(source))
    assert [*rl.load(source)] == ["sequential/bidirectional", "sequential_1/cu_dnngru"]
    rl.convert_file(source, tmp_path / "new.keras", to="keras")
    x = old.inputs_of("nested_in_sequential", twin)
    computes(keras.models.load_model(tmp_path / "new.keras"), x, flat(twin(x)))


# ------------------------------------------------------------------------------------- refused


NO_CONFIG, BOTH = "model_config|config.json", (".h5", ".keras")


def config(k, **more):
    """Return a function that changes the config of a layer."""
    return lambda c: layer_of(c, k)["config"].update(more)


REFUSED = [  # how the model is changed (dict: not at all), the options, the formats, the error
    (config(1, time_major=True), {}, BOTH, rl.LossyError, "cu_dnnlstm has time_major"),
    (config(3, activation="hard_sigmoid"), {}, BOTH, rl.LossyError,
     "dense has activation='hard_sigmoid', clip"),
    (config(3, recurrent_activation="hard_sigmoid"), {}, BOTH, rl.LossyError,
     "dense has recurrent_activation='hard_sigmoid', clip"),
    (lambda c: c.update(config={"layers": 5}), {}, BOTH, rl.FileError, NO_CONFIG),
    (lambda c: c.update(config={}), {}, BOTH, rl.FileError, NO_CONFIG),
    ("[1]", {}, BOTH, rl.FileError, NO_CONFIG),
    ("{", {}, BOTH, rl.FileError, NO_CONFIG),
    ('{"a":' * 5000 + "1" + "}" * 5000, {}, BOTH, rl.FileError, NO_CONFIG),
    (lambda c: layer_of(c, 1).update(class_name="CuDNNGRU"), {}, [".keras"], rl.FileError,
     "has 2 cuDNN layers, 1 have weights"),
    (lambda c: layer_of(c, 3).update(class_name="CuDNNGRU"), {}, [".keras"], rl.FileError,
     "has 3 cuDNN layers, 2 have weights"),
    (lambda c: c["config"]["layers"].__delitem__(slice(1, 3)), {}, [".h5"], rl.FileError,
     "has 0 cuDNN layers, 2 have weights"),
    (config(3, rnn={"class_name": "CuDNNLSTM", "config": {}}), {}, [".h5"], rl.FileError,
     "has 3 cuDNN layers, 2 have weights"),  # one in a layer of the user's
    (dict, {"exact": True}, BOTH, rl.LossyError, "sums"),
    (dict, {"to": "torch"}, BOTH, rl.LayoutError, "not to 'torch'"),
    (dict, {"recurrent_activation": "hard_sigmoid"}, BOTH, rl.SpecError,
     "recurrent_activation 'hard_sigmoid' contradicts"),
    (dict, {"layout": "torch"}, BOTH, rl.LayoutError, "whole"),
    (dict, {"spec": rl.Spec("gru", 3, 4)}, BOTH, rl.LayoutError, "whole"),
]  # fmt: skip


@pytest.mark.parametrize("k, suffix", [(k, s) for k, row in enumerate(REFUSED) for s in row[2]])
def test_what_is_refused(stack, tmp_path, limited, k, suffix):
    change, more, _, error, why = REFUSED[k]
    refused(limited, changed(stack.with_suffix(suffix), tmp_path, change), error, why, **more)


def test_a_name_that_is_taken_in_an_archive(archived, tmp_path, limited):
    source = tmp_path / "old.keras"
    made = edited(archived.read_bytes(), lambda file: file.create_group("layers/lstm"))
    source.write_bytes(made)
    refused(limited, source, rl.FileError, r"model\.weights\.h5")


def test_a_bomb_beside_the_weights_in_an_archive(archived, tmp_path, limited):
    """The limits of the archive also hold for a member that is only copied."""
    source = tmp_path / "old.keras"
    source.write_bytes(archived.read_bytes())
    with zipfile.ZipFile(source, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr("assets/zeros", bytes(200 << 20))
    refused(limited, source, rl.FileError, "bomb")
