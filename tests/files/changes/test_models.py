"""Whole models that were changed by the library of their format: Keras's, ONNX's, RTNeural's."""

import io
import json
import shutil
import zipfile

import h5py
import keras
import numpy as np
import onnx
import pytest
import tf_keras
from oracles.frameworks import KERAS_NOISE
from oracles.some import normal_weights

import rnnlayout as rl

from .changing import reply
from .sources import CHANGED, KEPT

pytestmark = KERAS_NOISE


# ------------------------------------------------------------------------------------------- Keras


def model_of(kit):
    x = kit.Input((4, 5))
    make, sequences = kit.layers, {"return_sequences": True}
    y = make.Bidirectional(make.LSTM(3, **sequences), name=CHANGED)(x)
    y = make.GRU(4, **sequences, name=KEPT)(y)
    model = kit.Model(x, make.Dense(2, name="head")(y))
    rng = np.random.default_rng(0)
    model.set_weights([rng.standard_normal(a.shape).astype("f4") for a in model.get_weights()])
    return model


SILENT = ("the same", "another", "lost")
KERAS_FILES = ("a.h5", "a.keras", "a.weights.h5")


@pytest.fixture(scope="module", params=[keras, tf_keras], ids=["keras 3", "keras 2"])
def keras_files(request, tmp_path_factory):
    folder, model = tmp_path_factory.mktemp("keras"), model_of(request.param)
    for name in KERAS_FILES:
        (model.save_weights if "weights" in name else model.save)(folder / name)
    return folder


def edited(path, folder, change):
    """Return a copy of a file of Keras after change(its HDF5 file)."""
    copied = folder / path.name
    if path.suffix == ".json":  # the index of a part
        (part,) = path.parent.glob(f"{path.name.partition('.')[0]}_*.h5")
        edited(part, folder, change)
        return shutil.copy(path, copied)
    if path.suffix != ".keras":
        shutil.copy(path, copied)
        with h5py.File(copied, "r+") as file:
            change(file)
        return copied
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    data = io.BytesIO(members["model.weights.h5"])
    with h5py.File(data, "r+") as file:
        change(file)
    with zipfile.ZipFile(copied, "w") as archive:
        for name, content in (members | {"model.weights.h5": data.getvalue()}).items():
            archive.writestr(name, content)
    return copied


def datasets(path, folder):
    """Return the paths of the arrays of the changed RNN."""
    paths = []

    def add(name, item):
        if isinstance(item, h5py.Dataset) and not name.startswith("optimizer"):
            paths.append(name)

    edited(path, folder, lambda file: file.visititems(add))
    return [path for path in paths if "bidirectional" in path or f"/{CHANGED}/" in path]


def drop(*paths):
    def change(file):
        for path in paths:
            del file[path]

    return change


def group_of(path, start):
    """Return the group in a path whose name starts with a text."""
    parts = path.split("/")
    at = next(k for k, part in enumerate(parts) if part.startswith(start))
    return "/".join(parts[: at + 1])


def keras_changes(paths):
    """Yield (kind, change of the HDF5 file, names of which the answer needs one)."""
    incomplete = ("cells, its config has", "is listed, but not in the file", "lacks its weights",
                  "the index and its parts are not of one model")  # fmt: skip
    roles = {"0": "kernel", "1": "recurrent kernel", "2": "bias"}
    for path in paths:
        leaf = path.rpartition("/")[2]
        yield f"drop {leaf}", drop(path), (roles.get(leaf, leaf), *incomplete)
    first, renamed = paths[0], f"{paths[0]}_v2"
    yield "rename", lambda file: file.move(first, renamed), ("kernel", *incomplete)
    added = f"{first.rpartition('/')[0]}/gain"
    yield "add", lambda file: file.create_dataset(added, data=np.ones(3, "f4")), ("gain",)
    for side, other in (("forward", "backward"), ("backward", "forward")):
        path = next(path for path in paths if f"/{side}_" in path)
        names = (f"the {other} direction", *incomplete)
        yield f"drop {side}", drop(group_of(path, f"{side}_")), names
    biases = [path for path in paths if path.endswith(("bias", "bias:0", "/2"))]
    yield "drop biases", drop(*biases), ("biases", *incomplete)
    start = "bidirectional" if "bidirectional" in first else CHANGED
    yield "drop layer", drop(group_of(first, start)), (CHANGED, *incomplete)


def silent_changes(path, folder):
    """Return the kinds of changes of a file that load() does not name."""
    good = dict(zip((CHANGED, KEPT), rl.load(path).values(), strict=True))
    answers = {}
    for k, (kind, change, names) in enumerate(keras_changes(datasets(path, folder))):
        changed = folder / str(k)
        changed.mkdir()
        answers[f"{kind}, {k}"] = reply(edited(path, changed, change), good, names)
    return {kind.partition(",")[0] for kind in answers if answers[kind] in SILENT}


@pytest.mark.parametrize("name", KERAS_FILES)
def test_keras(name, keras_files, tmp_path):
    # docs/files.md lists these changes, which a file of weights alone does not show
    silent = {"drop biases", "drop layer"} if "weights" in name else set()
    assert silent_changes(keras_files / name, tmp_path) == silent


@pytest.mark.long
def test_parts_of_keras(tmp_path):
    (tmp_path / "good").mkdir()
    path = tmp_path / "good/a.weights.json"
    model_of(keras).save_weights(path, max_shard_size=1)
    assert silent_changes(path, tmp_path) == {"drop biases"}  # the index names the layers


# -------------------------------------------------------------------------------------------- ONNX


def onnx_model(folder):
    """Return a model, and its RNNs by name."""
    specs = {CHANGED: rl.Spec("lstm", 5, 3, bidirectional=True), KEPT: rl.Spec("gru", 6, 4)}
    rnns = {
        name: rl.Weights(normal_weights(rl.layout("onnx"), spec, k), spec, "onnx")
        for k, (name, spec) in enumerate(specs.items())
    }
    rl.save(folder / "good.onnx", rnns)
    return onnx.load(folder / "good.onnx"), dict(rl.load(folder / "good.onnx"))


def remove_tensor(model, node, at):
    tensor = next(one for one in model.graph.initializer if one.name == node.input[at])
    model.graph.initializer.remove(tensor)


def rename_tensor(model, node, at):
    tensor = next(one for one in model.graph.initializer if one.name == node.input[at])
    tensor.name += "_v2"


def disconnect(model, node, at):
    node.input[at] = ""


def scale_tensor(model, node, at):
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.full(1, 2, "f4"), "two"))
    model.graph.node.insert(0, onnx.helper.make_node("Mul", [node.input[at], "two"], ["scaled"]))
    node.input[at] = "scaled"


def add_attribute(model, node, at):
    node.attribute.append(onnx.helper.make_attribute("gain", 2.0))


def add_input(model, node, at):
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(9, "f4"), "gain"))
    node.input.extend([""] * (8 - len(node.input)) + ["gain"])


def drop_direction(model, node, at):
    next(one for one in node.attribute if one.name == "direction").s = b"forward"


def drop_node(model, node, at):
    model.graph.node.remove(node)


@pytest.mark.parametrize("change, at, names", [
    *((change, at, (f"{CHANGED}/{role}",))
      for change in (remove_tensor, rename_tensor) for at, role in enumerate("WRB", 1)),
    (disconnect, 1, ("W: missing",)), (disconnect, 2, ("R: missing",)), (scale_tensor, 2, ("Mul",)),
    (add_attribute, 0, ("gain",)), (add_input, 0, ("gain",)), (drop_direction, 0, ("direction",)),
])  # fmt: skip
def test_onnx(change, at, names, tmp_path):
    model, good = onnx_model(tmp_path)
    change(model, next(node for node in model.graph.node if node.op_type == "LSTM"), at)
    onnx.save(model, tmp_path / "a.onnx")
    assert reply(tmp_path / "a.onnx", good, names) == "refused"


@pytest.mark.parametrize("change, answer", [(disconnect, "another"), (drop_node, "lost")])
def test_changes_that_make_another_model_of_onnx(change, answer, tmp_path):
    """All biases, or a whole RNN: docs/files.md lists these changes."""
    model, good = onnx_model(tmp_path)
    change(model, next(node for node in model.graph.node if node.op_type == "LSTM"), 3)
    onnx.save(model, tmp_path / "a.onnx")
    assert reply(tmp_path / "a.onnx", good, ("bias",)) == answer


# ---------------------------------------------------------------------------------------- RTNeural


def test_a_layer_between_the_layers_of_a_stack(tmp_path):
    """The record of rnnlayout joined LSTMs around a Dense that was inserted, without the Dense."""
    spec = rl.Spec("lstm", 5, 3, 2)
    stack = rl.Weights(normal_weights(rl.layout("keras"), spec), spec, "keras")
    rl.save(tmp_path / "a.json", stack)
    assert list(rl.load(tmp_path / "a.json").values()) == [stack]
    model = json.loads((tmp_path / "a.json").read_text())
    dense = {"type": "dense", "activation": "tanh", "shape": [None, None, 3],
             "weights": [np.eye(3).tolist(), [0.0] * 3]}  # fmt: skip
    model["layers"].insert(1, dense)
    (tmp_path / "a.json").write_text(json.dumps(model))
    found = rl.load(tmp_path / "a.json")
    assert [weights.spec.num_layers for weights in found.values()] == [1, 1]
    assert found.others and all(name.startswith("dense") for name in found.others)
