"""Layers models of TensorFlow.js, whose weights tensorflowjs wrote (tests/data/record_tfjs.py)."""

import io
import json
import zipfile

import h5py
import keras
import numpy as np
import pytest
from commands import TESTS
from oracles.frameworks import KERAS_NOISE

import rnnlayout as rl

pytestmark = KERAS_NOISE
RECORD = np.load(TESTS / "data" / "tfjs.npz")
KINDS = ["float32", "float16", "uint16", "uint8"]
LEAVES = ("kernel", "recurrent_kernel", "bias")
# sums of 9 products below 4, in 6 steps, whose slopes are below 1
ATOL = 6 * 9 * 4 * 2.0**-23


def lstm(name="lstm", kind="LSTM", **config):
    """Return the node of a layer as TensorFlow.js writes it."""
    return {"class_name": kind, "config": {
        "name": name, "units": 3, "activation": "tanh", "recurrent_activation": "sigmoid",
        "use_bias": True, "return_sequences": True, "go_backwards": False, **config}}  # fmt: skip


BOTH = {"class_name": "Bidirectional", "config": {
    "name": "bidirectional", "layer": lstm(), "merge_mode": "concat"}}  # fmt: skip


def topology(*layers, version="2.15.0"):
    model = {"class_name": "Sequential", "config": {"name": "sequential", "layers": [*layers]}}
    if version.startswith("tfjs"):  # written by TensorFlow.js itself
        return model | {"keras_version": version, "backend": "tensor_flow.js"}
    return {"keras_version": version, "backend": "tensorflow", "model_config": model}


def put(folder, kind="float32", model=None):
    """Write a recorded manifest and its files; return the path of model.json."""
    for name in RECORD.files:
        start, _, rest = name.partition("/")
        if start == kind and "=" not in name:
            (folder / rest).write_bytes(RECORD[name].tobytes())
    manifest = json.loads((folder / "manifest").read_bytes())
    (folder / "manifest").unlink()
    return write(folder, manifest, model or topology(BOTH, {"class_name": "Dense", "config": {
        "name": "dense", "units": 2}}))  # fmt: skip


def write(folder, manifest, model):
    contents = {"format": "layers-model", "generatedBy": "keras v2.15.0", "convertedBy": "",
                "modelTopology": model, "weightsManifest": manifest}  # fmt: skip
    (folder / "model.json").write_text(json.dumps(contents))
    return folder / "model.json"


def write_arrays(folder, arrays, model, paths=("group1-shard1of1.bin",)):
    """Write arrays into one file, as the manifest describes."""
    weights = [{"name": n, "shape": list(a.shape), "dtype": a.dtype.name}
               for n, a in arrays.items()]  # fmt: skip
    data = b"".join(array.tobytes() for array in arrays.values())
    (folder / paths[0].removeprefix("./")).write_bytes(data)
    return write(folder, [{"paths": [*paths], "weights": weights}], model)


def cell(prefix, seed, gates=4):
    rng = np.random.default_rng(seed)
    shapes = {"kernel": (5, 3 * gates), "recurrent_kernel": (3, 3 * gates), "bias": (3 * gates,)}
    return {f"{prefix}/{leaf}": rng.standard_normal(s, "f4") for leaf, s in shapes.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_weights_as_tensorflowjs_wrote_them(kind, tmp_path):
    """Tensors of the first are in two files; the package itself reads the quantized ones."""
    found = rl.load(put(tmp_path, kind))
    assert list(found) == ["bidirectional"] and found.others == ("dense/kernel", "dense/bias")
    assert len(found.files) == (2 if kind == "float32" else 1)
    assert len(found.notes) == (kind != "float32")
    assert all(f"quantized to {kind} by the converter" in note for note in found.notes)
    arrays = [RECORD[f"{kind}=bidirectional/{side}_lstm/lstm_cell/{leaf}"]
              for side in ("forward", "backward") for leaf in LEAVES]  # fmt: skip
    for array, other in zip(found["bidirectional"].values(), arrays, strict=True):
        # the package computes in float32, with two roundings of numbers below 4
        np.testing.assert_allclose(array, other, rtol=0, atol=2 * 2.0**-22 * (kind[0] == "u"))


def test_the_layer_computes_what_keras_computes(tmp_path):
    layer = keras.layers.Bidirectional(keras.layers.LSTM(3, return_sequences=True))
    x = np.random.default_rng(1).standard_normal((2, 6, 5), "f4")
    layer(x)
    layer.set_weights([RECORD[f"float32=bidirectional/{side}_lstm/lstm_cell/{leaf}"]
                       for side in ("forward", "backward") for leaf in LEAVES])  # fmt: skip
    wanted = keras.ops.convert_to_numpy(layer(x))
    y = rl.RNN(rl.load(put(tmp_path))["bidirectional"])(x)[0]
    np.testing.assert_allclose(y, wanted, rtol=0, atol=ATOL)


def test_weights_are_paired_by_name_not_by_order(tmp_path):
    """The converter sorts layers by name; TensorFlow.js has the names of directions alone."""
    arrays = cell("a_lstm/lstm_cell", 1) | cell("z_lstm/lstm_cell", 2)
    model = topology(lstm("z_lstm"), lstm("a_lstm"))
    found = rl.load(write_arrays(tmp_path, arrays, model))
    assert list(found) == ["z_lstm", "a_lstm"]
    assert np.array_equal(found["a_lstm"]["kernel"], arrays["a_lstm/lstm_cell/kernel"])
    arrays = cell("backward_lstm_LSTM1", 1) | cell("forward_lstm_LSTM1", 2)
    both = {"class_name": "Bidirectional", "config": {
        "name": "bidirectional_1", "layer": lstm("lstm_LSTM1"), "merge_mode": "sum"}}  # fmt: skip
    model = topology(both, version="tfjs-layers 4.22.0")
    weights = rl.load(write_arrays(tmp_path, arrays, model))["bidirectional_1"]
    kernel = arrays["forward_lstm_LSTM1/kernel"]
    assert np.array_equal(weights["0/forward/kernel"], kernel)
    assert weights.config["merge_mode"] == "sum"


def test_two_layers_whose_inner_layers_have_one_name(tmp_path):
    names, arrays = ("bidirectional", "bidirectional_1"), {}
    for k, name in enumerate(names):
        for side in ("forward", "backward"):
            arrays |= cell(f"{name}/{side}_lstm/lstm_cell", k)
    layers = [BOTH | {"config": BOTH["config"] | {"name": name}} for name in names]
    found = rl.load(write_arrays(tmp_path, arrays, topology(*layers)))
    for name in names:
        kernel = arrays[f"{name}/forward_lstm/lstm_cell/kernel"]
        assert np.array_equal(found[name]["0/forward/kernel"], kernel)


def test_a_hard_sigmoid_of_tensorflow_js_is_keras_2_s(tmp_path):
    """tfjs-layers/src/activations.ts: 0.2 x + 0.5."""
    model = topology(lstm(recurrent_activation="hard_sigmoid"), version="tfjs-layers 1.2.7")
    weights = rl.load(write_arrays(tmp_path, cell("lstm", 1), model))["lstm"]
    assert weights.spec.recurrent_activation == "hard_sigmoid_keras2"


def test_a_list_of_magenta(tmp_path):
    """It has no config; TF 1 adds the forget bias at run time, so layout= is needed."""
    name = "rnn/multi_rnn_cell/cell_0/basic_lstm_cell"
    rng = np.random.default_rng(3)
    arrays = {
        f"{name}/kernel": rng.standard_normal((8, 12), "f4"),
        f"{name}/bias": np.ones(12, "f4"),
    }
    path = write_arrays(tmp_path, arrays, {}, ("./weights.bin",))
    manifest = json.loads(path.read_text())["weightsManifest"]
    path.with_name("weights_manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(rl.FileError, match=r"names do not show the layout: pass layout=rl\.layout"):
        rl.load(tmp_path / "weights_manifest.json")
    found = rl.load(tmp_path / "weights_manifest.json", layout="tf1")
    (weights,) = found.values()
    assert np.array_equal(weights["kernel"], arrays[f"{name}/kernel"])


@pytest.mark.parametrize("leaves", [("kernel", "bias"), ("weights", "biases")])
def test_a_manifest_of_deeplearn_js_was_not_a_model_of_rtneural(leaves, tmp_path):
    """Also with the names of TensorFlow before 1.2, as ml5's models charRNN have them."""
    rng, name = np.random.default_rng(4), "rnnlm/multi_rnn_cell/cell_0/basic_lstm_cell"
    arrays = [rng.standard_normal((8, 12), "f4"), np.ones(12, "f4")]
    manifest = {"Variable": {"filename": "Variable", "shape": []}}
    (tmp_path / "Variable").write_bytes(bytes(4))
    for leaf, array in zip(leaves, arrays, strict=True):
        path = f"{name}/{leaf}".replace("/", "_")
        manifest[f"{name}/{leaf}"] = {"filename": path, "shape": [*array.shape]}
        (tmp_path / path).write_bytes(array.tobytes())
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    found = rl.load(tmp_path / "manifest.json", layout=rl.layout("tf1", forget_bias=1.0))
    assert list(found) == ["rnnlm/multi_rnn_cell/cell_0"] and found.others == ("Variable",)
    for array, other in zip(found["rnnlm/multi_rnn_cell/cell_0"].values(), arrays, strict=True):
        assert np.array_equal(array, other)


def converted(archive, folder):
    """Write what tensorflowjs 4.22 makes of a .keras file, keras_h5_conversion.py: the paths in it
    are the names, and its config loses three keys. Return the path of model.json."""
    with zipfile.ZipFile(archive) as members:
        config = json.loads(members.read("config.json"))
        with h5py.File(io.BytesIO(members.read("model.weights.h5"))) as file:
            arrays = {}
            file.visititems(
                lambda name, item: (
                    arrays.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None
                )
            )

    def without(node):
        if isinstance(node, list):
            return [*map(without, node)]
        dropped = ("module", "registered_name", "date_saved")
        is_object = isinstance(node, dict)
        return {k: without(v) for k, v in node.items() if k not in dropped} if is_object else node

    model = {"keras_version": keras.__version__, "model_config": without(config)}
    return write_arrays(folder, {name: np.asarray(a, "f4") for name, a in arrays.items()}, model)


def test_the_numbered_variables_of_keras_3(tmp_path):
    """The k-th layer of a class has the k-th group of the class, whatever the names."""
    make, x = keras.layers, keras.Input((None, 5))
    y = make.Bidirectional(make.LSTM(3, return_sequences=True), name="both")(x)
    y = make.LSTM(4, return_sequences=True, go_backwards=True, name="z")(y)
    y = make.LSTM(2, return_sequences=True, name="a")(y)
    y = make.RNN([make.GRUCell(2), make.GRUCell(3)], return_sequences=True, name="stack")(y)
    keras.Model(x, make.Dense(2)(y)).save(tmp_path / "m.keras")
    path = converted(tmp_path / "m.keras", tmp_path)
    found, wanted = rl.load(path), rl.load(tmp_path / "m.keras")
    assert list(found) == list(wanted) and len(found) == 5 and found.notes == []
    for name, weights in wanted.items():
        assert found[name] == weights and found[name].config == weights.config
    assert found["z"].config["go_backwards"] is True
    model = json.loads(path.read_text())
    for weight in model["weightsManifest"][0]["weights"]:
        weight["name"] = weight["name"].replace("layers/lstm_1/", "layers/other/")
    path.write_text(json.dumps(model))
    assert "the file lacks its weights" in str(rl.load(path).refused["a"])


def test_files_that_are_not_of_the_model(tmp_path):
    path = put(tmp_path)
    last = tmp_path / "group1-shard2of2.bin"
    last.write_bytes(last.read_bytes() + bytes(4))
    with pytest.raises(rl.FileError, match="4 bytes more than its weights"):
        rl.load(path)
    last.write_bytes(last.read_bytes()[:-8])
    with pytest.raises(rl.FileError, match="beyond the end of its files"):
        rl.load(path)
    last.unlink()
    with pytest.raises(rl.FileError, match=r"shard2of2.bin' does not exist: copy it to the folder"):
        rl.load(path)
