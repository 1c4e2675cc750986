"""Old Keras models with cuDNN layers, converted: Keras 3 loads them and computes the same.

tf_keras writes the files with its own CuDNNLSTM and CuDNNGRU. The right results are those of
tf_keras's LSTM and GRU with the weights that its own loader makes of them.
"""

import functools
import io
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import h5py
import keras
import numpy as np
import pytest
import tf_keras
from files.hostile.good import members
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

import rnnlayout as rl

pytestmark = [KERAS_NOISE, pytest.mark.filterwarnings("ignore::UserWarning:keras")]

CUDNN_PARTS = ("kernel:0", "recurrent_kernel:0", "bias:0")


@dataclass(frozen=True)
class Case:
    """The files of a model and of its weights, inputs with the right outputs, and the version of
    Keras whose words it gets."""

    model: Path
    weights: Path
    x: object
    y: list
    version: str
    tolerance: float = TOLERANCE


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Return a function: the name of a model -> what old.write() returns, written once."""
    folder = tmp_path_factory.mktemp("old_keras")
    return functools.cache(lambda name: old.write(name, folder))


@pytest.fixture(scope="module", params=sample(old.MODELS, 5))
def cudnn(request, written):
    name, version = request.param, dict(in_turn(old.MODELS, old.WORDS))[request.param]
    model, weights, twin = written(name)
    x = old.inputs_of(name, twin)
    return Case(model, weights, x, flat(twin(x)), version)


@pytest.fixture(scope="module", params=sample(old.HARD_MODELS, 5))
def hard(request, tmp_path_factory):
    """A model with Keras 2's hard_sigmoid, which is another function in Keras 3: the gates' weights
    compensate for it. Some gates are saturated."""
    name, version = request.param, dict(in_turn(old.HARD_MODELS, old.WORDS))[request.param]
    folder = tmp_path_factory.mktemp("hard_sigmoid")
    model, weights, twin = old.write_model(*old.HARD_MODELS[name], folder)
    x = old.inputs_of(name, twin)
    x = [4 * part for part in x] if isinstance(x, list) else x if x.dtype.kind == "i" else 4 * x
    return Case(model, weights, x, flat(twin(x)), version, ONE_MORE)


def cudnn_tensors(path):
    """Return the names of the tensors of cuDNN layers, without an optimizer's of the same names."""
    with h5py.File(path, "r") as file:
        owners = []
        file.visititems(lambda name, item: owners.append(item) if is_cudnn(item) else None)
        names = [owner.name[1:] for owner in owners if "optimizer_weights" not in owner.name]
        return {f"{name}/{part}" for name in names for part in CUDNN_PARTS}


def is_cudnn(item):
    if not isinstance(item, h5py.Group) or set(item) != set(CUDNN_PARTS):
        return False
    units = item["recurrent_kernel:0"].shape[0]
    return item["bias:0"].shape in ((8 * units,), (6 * units,))


# ------------------------------------------------------------------------- every shape of model


def test_keras_3_computes_the_same(cudnn, tmp_path):
    assert_same_in_keras_3(cudnn, tmp_path)


def test_keras_3_computes_the_same_with_its_own_hard_sigmoid(hard, tmp_path):
    assert_same_in_keras_3(hard, tmp_path)


def assert_same_in_keras_3(case, tmp_path):
    """In an .h5 file with the words of a version, and in an archive."""
    source = tmp_path / "old.h5"
    shutil.copy(case.model, source)
    old.reword(source, old.WORDS[case.version], case.version)
    for path in (source, case.model.with_suffix(".keras")):
        new = tmp_path / f"new{path.suffix}"
        reasons = [one.reason for one in rl.convert_file(path, new, to="keras").reports.values()]
        assert any("hard_sigmoid" in reason for reason in reasons) == (case.tolerance == ONE_MORE)
        assert reasons
        computes(keras.models.load_model(new), case.x, case.y, case.tolerance)


def test_all_else_stays(cudnn, tmp_path):
    model = cudnn.model
    rl.convert_file(model, tmp_path / "new.h5", to="keras")
    before, after = tree(model), tree(tmp_path / "new.h5")
    assert before.keys() == after.keys()
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"", *cudnn_tensors(model)}
    a, b = before[""][0], after[""][0]
    assert a.pop("training_config")[0] == b.pop("training_config_of_keras_2")[0]
    assert a.keys() == b.keys()
    assert {key for key in a if a[key] != b[key]} == {"model_config", "keras_version"}


def test_weights_alone(cudnn, tmp_path):
    weights = cudnn.weights
    rl.convert_file(cudnn.model, tmp_path / "new.h5", to="keras")
    loaded = keras.models.load_model(tmp_path / "new.h5")
    for variable in loaded.weights:
        variable.assign(np.full(variable.shape, 0.125))
    rl.convert_file(weights, tmp_path / "new_weights.h5", to="keras")
    loaded.load_weights(tmp_path / "new_weights.h5")
    computes(loaded, cudnn.x, cudnn.y)
    before, after = tree(weights), tree(tmp_path / "new_weights.h5")
    assert {name for name in before if before[name] != after.get(name)} == cudnn_tensors(weights)


# ----------------------------------------------------------------------------------- in particular


@pytest.fixture(scope="module")
def stack(written):
    """A file of an LSTM, a GRU and a Dense."""
    return written("sequential")[0]


@pytest.fixture(params=[".h5", ".keras"])
def either(stack, request):
    """The same as a file or as an archive."""
    return stack.with_suffix(request.param)


def test_what_was_done(stack, tmp_path):
    done = rl.convert_file(stack, tmp_path / "new.h5", to="keras")
    assert done.reports["cu_dnnlstm"] == rl.check(
        [w for w in tensors(stack, "cu_dnnlstm")], layout="keras-cudnn", to="keras"
    )
    assert {name: r.grade for name, r in done.reports.items()} == {
        "cu_dnnlstm": "rounds", "cu_dnngru": "exact",
    }  # fmt: skip
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


def tensors(path, layer):
    with h5py.File(path) as file:
        group = file["model_weights"][layer]
        return [group[name][()] for name in group.attrs["weight_names"]]


def test_both_directions_are_one_entry(written, tmp_path):
    weights = written("backward_layer")[1]
    done = rl.convert_file(weights, tmp_path / "new.h5", to="keras")
    assert list(done.reports) == ["bidirectional"]
    assert done.reports["bidirectional"].rounded_sums == 2 * 4 * 4
    assert done.reports["bidirectional"].reason == "32 sums of two non-zero biases"
    assert rl.load(weights)["bidirectional"].spec.bidirectional


def test_a_second_time_nothing_changes(either, tmp_path):
    new, again = tmp_path / f"new{either.suffix}", tmp_path / f"again{either.suffix}"
    rl.convert_file(either, new, to="keras")
    done = rl.convert_file(new, again, to="keras")
    assert not done.reports
    assert ["copied" in note for note in done.notes] == [True]
    assert again.read_bytes() == new.read_bytes()


def test_another_dtype(either, tmp_path):
    """Of the RNNs only."""
    new = tmp_path / f"new{either.suffix}"
    rl.convert_file(either, new, to="keras", dtype="float64")
    assert {one.spec.dtype for one in rl.load(new).values()} == {"float64"}
    file = io.BytesIO(members(new.read_bytes())["model.weights.h5"]) if "k" in new.suffix else new
    kinds = [form[2] for name, form in tree(file).items() if "dense" in name and len(form) > 1]
    assert set(kinds) == {np.dtype("f4")}


def test_compressed_arrays_stay_compressed(stack, tmp_path):
    source = tmp_path / "old.h5"
    with h5py.File(stack) as a, h5py.File(source, "w") as b:
        b.attrs.update(a.attrs)
        a.copy("model_weights", b)
        bias = b["model_weights/cu_dnngru/cu_dnngru/bias:0"]
        values, name = bias[()], bias.name
        del b[name]
        b.create_dataset(name, data=values, compression="gzip", shuffle=True).attrs["of"] = "mine"
    rl.convert_file(source, tmp_path / "new.h5", to="keras")
    with h5py.File(tmp_path / "new.h5") as file:
        bias = file[name]
        assert (bias.shape, bias.compression, bias.shuffle) == ((2, 12), "gzip", True)
        assert dict(bias.attrs) == {"of": "mine"}
        assert np.array_equal(bias[()].ravel(), values)


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


def test_arguments_of_a_call_with_states(tmp_path):
    """Keras 2 records them beside each state; Keras 3 has no constants, which are None here."""
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


def test_mixed_precision_policy_of_old(stack, tmp_path):
    policy = {"class_name": "Policy", "config": {"name": "mixed_float16"}}
    source = changed(stack, tmp_path, lambda c: layer_of(c, 3)["config"].update(dtype=policy))
    rl.convert_file(source, tmp_path / "new.h5", to="keras")
    assert keras.models.load_model(tmp_path / "new.h5").layers[-1].compute_dtype == "float16"


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
def test_what_is_refused(stack, tmp_path, k, suffix):
    change, more, _, error, why = REFUSED[k]
    refused(changed(stack.with_suffix(suffix), tmp_path, change), error, why, **more)


def test_code_in_a_config_is_left_alone(stack, tmp_path):
    code = {"class_name": "Lambda", "config": {"function": ["os.system('false')", None, None]}}
    source = changed(stack, tmp_path, lambda c: c["config"]["layers"].append(code))
    rl.convert_file(source, tmp_path / "new.h5", to="keras")
    with h5py.File(tmp_path / "new.h5") as file:
        assert json.loads(file.attrs["model_config"])["config"]["layers"][-1] == code


def test_no_file_of_keras_2(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.ones(3)
    refused(tmp_path / "a.h5", rl.FileError, "layer_names")


@pytest.mark.parametrize("suffix", [".h5", ".keras"])
def test_a_convlstm2d_loses_time_major(tmp_path, suffix):
    """Keras 3 refuses the key, which Keras 2 always writes."""
    L = tf_keras.layers
    model = tf_keras.Sequential([
        L.Input((3, 6, 6, 2)), L.ConvLSTM2D(2, 3, recurrent_activation="sigmoid", name="conv"),
        L.Reshape((16, 2)), L.LSTM(3),
    ])  # fmt: skip
    old.fill(model)
    model.save(tmp_path / f"old{suffix}")
    rl.convert_file(tmp_path / f"old{suffix}", tmp_path / f"new{suffix}", to="keras")
    x = np.random.default_rng(0).random((2, 3, 6, 6, 2), "f4")
    computes(keras.models.load_model(tmp_path / f"new{suffix}"), x, flat(model(x)))


@pytest.mark.parametrize("curve", ["relu", "elu"])
@pytest.mark.parametrize("suffix", [".h5", ".keras"])
def test_activations_that_few_layouts_have(tmp_path, suffix, curve):
    """Keras 3 computes them as Keras 2 does, also one that no other layout has."""
    L = tf_keras.layers
    model = tf_keras.Sequential([
        L.Input((4, 3)), L.LSTM(5, activation=curve, return_sequences=True),
        L.GRU(3, activation=curve, recurrent_activation="hard_sigmoid"),
    ])  # fmt: skip
    source, new = tmp_path / f"old{suffix}", tmp_path / f"new{suffix}"
    old.fill(model)
    model.save(source)
    rl.convert_file(source, new, to="keras")
    x = np.random.default_rng(0).random((2, 4, 3), "f4")
    loaded = keras.models.load_model(new)
    computes(loaded, x, flat(model(x)), 4 * TOLERANCE)
    again = tmp_path / f"again{suffix}"
    rl.convert_file(new, again, to="keras")
    computes(keras.models.load_model(again), x, flat(model(x)), 4 * TOLERANCE)
