"""docs/error-texts.md: the frameworks raise these errors, and what the page says helps."""

import json
import re
import zipfile

import equinox
import flax.linen
import flax.serialization
import haiku
import jax
import keras
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
import tf_keras
import torch
from commands import ROOT
from files.keras import old_models as old
from onnx import helper, numpy_helper

import rnnlayout as rl
from rnnlayout._cli.main import main as rnnlayout

pytestmark = pytest.mark.long

PAGE = (ROOT / "docs" / "error-texts.md").read_text()
LSTM = rl.Spec("lstm", 3, 5)
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and "`" in line]
MESSAGES = [re.findall(r"`(.+?)`", row.split(" | ")[0])[0] for row in ROWS if "(GPU" not in row]


def tensors(layout, spec=LSTM):
    shapes = rl.describe(spec, layout)
    return {name: np.full(shape, 0.1, "f4") for name, shape in shapes.items()}


def command(*arguments):
    assert rnnlayout([*arguments]) == 0, arguments


def keras_model(cell=keras.layers.LSTM):
    return keras.Sequential([keras.Input((4, 3)), cell(5, name="lstm"), keras.layers.Dense(2)])


def old_model(layer=None):
    layer = layer or old.layers.LSTM(5, name="lstm")
    return old.Sequential([old.Input((4, 3)), layer, old.layers.Dense(2)])


def loads_after_convert(old_file, new_file):
    command("convert", old_file, new_file, "--to", "keras")
    keras.models.load_model(new_file)


def file_of_keras_2(model, suffix, change=lambda config: config):
    model.save("saved" + suffix)
    if suffix == ".h5":
        return "saved.h5"
    with zipfile.ZipFile("saved.keras") as saved, zipfile.ZipFile("old.keras", "w") as changed:
        for name in saved.namelist():
            data = saved.read(name)
            is_config = name == "config.json"
            changed.writestr(name, json.dumps(change(json.loads(data))) if is_config else data)
    return "old.keras"


def keras_3_refuses(make, new_file):
    def case():
        path = make()
        yield lambda: keras.models.load_model(path)
        loads_after_convert(path, new_file)

    return case


def model_with_mask():
    embedding = old.layers.Embedding(10, 3, mask_zero=True, input_length=4)
    return old.Sequential([old.Input((4,)), embedding, old.layers.LSTM(5)])


def json_of_keras_2():
    model = old_model()
    model.save_weights("old.weights.h5")
    text = model.to_json()
    yield lambda: keras.models.model_from_json(text)
    weights = rl.load("old.weights.h5", keras_config=text)
    rl.assign(keras_model().layers[0], weights["lstm"])


def weights_alone():
    keras_model().save_weights("new.weights.h5")
    yield lambda: keras.models.load_model("new.weights.h5")
    rl.assign(keras_model().layers[0], rl.load("new.weights.h5")["lstm"])


def weights_of_cudnn():
    old_model(old.CUDNN.GRU(5, name="gru")).save_weights("old.h5")
    yield lambda: keras_model(keras.layers.GRU).load_weights("old.h5")
    command("convert", "old.h5", "new.h5", "--to", "keras")


def saved_model():
    old_model().save("folder", save_format="tf")
    yield lambda: keras.models.load_model("folder")
    command("convert", "folder", "lstm.weights.h5", "--to", "keras")


def tensors_of_torch():
    layer = keras_model().layers[0]
    yield lambda: layer.set_weights([*tensors("torch").values()])
    rl.assign(layer, rl.convert(tensors("torch"), to="keras"))


def another_cell_in_keras():
    keras_model().save_weights("new.weights.h5")
    yield lambda: keras_model(keras.layers.GRU).load_weights("new.weights.h5")
    command("inspect", "new.weights.h5")


def keras_3_in_keras_2():
    keras_model().save("model.keras")
    yield lambda: tf_keras.models.load_model("model.keras")
    command("convert", "model.keras", "lstm.weights.h5", "--to", "keras")
    rl.assign(old_model().layers[0], rl.load("lstm.weights.h5")["lstm"])


def keys_of_torch():
    module = torch.nn.LSTM(3, 5)
    state_dict = {f"encoder.{name}": tensor for name, tensor in module.state_dict().items()}
    torch.save(state_dict, "model.pt")
    yield lambda: module.load_state_dict(state_dict)
    rl.assign(module, rl.load("model.pt")["encoder"])
    rl.convert(state_dict, prefix="encoder", to="torch")


def another_cell_in_torch():
    turned = {name: torch.tensor(array.T) for name, array in tensors("torch").items()}
    yield lambda: torch.nn.LSTM(3, 5).load_state_dict(turned)
    with pytest.raises(rl.LayoutError, match="transposed"):
        rl.Weights(turned)


def a_file_of_torch(save):
    def case():
        save()
        yield lambda: torch.load("model.pt")
        command("convert", "model.pt", "lstm.safetensors", "--to", "torch")

    return case


def another_input_size():
    torch.save(torch.nn.LSTM(3, 5).state_dict(), "model.pt")
    yield lambda: torch.nn.LSTM(3, 5)(torch.zeros(2, 4, 6))
    command("inspect", "model.pt")


def another_batch_axis():
    state = torch.zeros(1, 2, 5), torch.zeros(1, 2, 5)
    yield lambda: torch.nn.LSTM(3, 5)(torch.zeros(2, 4, 3), state)


def names_of_tensorflow_1():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        with tf.compat.v1.variable_scope("rnn/basic_lstm_cell"):
            variables = {
                name: tf.compat.v1.get_variable(name, shape)
                for name, shape in (("kernel", (8, 20)), ("bias", (20,)))
            }
        session.run(tf.compat.v1.global_variables_initializer())
        renamed = {f"rnn/lstm_cell/{name}": variable for name, variable in variables.items()}
        tf.compat.v1.train.Saver(renamed).save(session, "./model.ckpt")
        yield lambda: tf.compat.v1.train.Saver().restore(session, "./model.ckpt")
    layout = "tf1(forget_bias=1.0)"
    command("convert", "model.ckpt.index", "lstm.safetensors", "--to", "torch", "--layout", layout)


def run_onnx(W, R, B):
    arrays = {"W": W, "R": R, "B": B}
    node = helper.make_node("LSTM", ["X", *arrays], ["Y"], hidden_size=5)
    graph = helper.make_graph(
        [node], "lstm", [helper.make_tensor_value_info("X", 1, ["T", "N", 3])],
        [helper.make_tensor_value_info("Y", 1, None)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )  # fmt: skip
    opset = [helper.make_opsetid("", 14)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, {"X": np.zeros((2, 1, 3), "f4")})


def a_wrong_shape_in_onnx(change):
    def case():
        right = rl.convert(tensors("keras"), to="onnx")
        yield lambda: run_onnx(**{**right, **change(tensors("keras"))})
        run_onnx(**right)

    return case


def not_onnx():
    rl.save("model.npz", rl.Weights(tensors("torch")))
    yield lambda: onnxruntime.InferenceSession("model.npz")
    command("inspect", "model.npz")


CELL, KEY = flax.linen.OptimizedLSTMCell(5), jax.random.key(0)


def run_flax(params):
    carry = CELL.initialize_carry(KEY, (1, 3))
    return CELL.apply({"params": params}, carry, np.zeros((1, 3), "f4"))


def flax_params():
    carry = CELL.initialize_carry(KEY, (1, 3))
    return CELL.init(KEY, carry, np.zeros((1, 3), "f4"))["params"]


def transposed_in_flax():
    yield lambda: run_flax(jax.tree.map(np.transpose, flax_params()))
    rl.convert(tensors("torch"), to="flax-linen")


def another_cell_in_flax():
    gru = flax.linen.GRUCell(5).init(KEY, np.zeros((1, 5)), np.zeros((1, 3)))["params"]
    yield lambda: CELL.apply({"params": {**gru, "ii": {}}}, CELL.initialize_carry(KEY, (1, 3)),
                             np.zeros((1, 3), "f4"))  # fmt: skip
    run_flax(rl.assign(flax_params(), rl.Weights(tensors("torch"))))


def another_cell_in_msgpack():
    gru = flax.linen.GRUCell(5).init(KEY, np.zeros((1, 5)), np.zeros((1, 3)))
    with open("model.msgpack", "wb") as file:
        file.write(flax.serialization.to_bytes({"params": flax_params()}))
    with open("model.msgpack", "rb") as file:
        data = file.read()
    yield lambda: flax.serialization.from_bytes(gru, data)
    command("inspect", "model.msgpack")


def another_cell_in_equinox():
    equinox.tree_serialise_leaves("model.eqx", equinox.nn.LSTMCell(3, 5, key=KEY))
    gru = equinox.nn.GRUCell(3, 5, key=KEY)
    yield lambda: equinox.tree_deserialise_leaves("model.eqx", gru)
    command("inspect", "model.eqx")


def another_path_in_haiku():
    def forward(x):
        lstm = haiku.LSTM(5)
        return lstm(x, lstm.initial_state(1))

    network = haiku.transform(forward)
    yield lambda: network.apply({}, None, np.zeros((1, 3), "f4"))
    rl.convert(tensors("torch"), to="haiku")


def in_module_of_keras_2(config):
    return config | {"module": "keras.src.engine.sequential", "registered_name": "Sequential"}


CASES = [
    keras_3_refuses(lambda: file_of_keras_2(old_model(), ".h5"), "new.h5"),
    keras_3_refuses(
        lambda: file_of_keras_2(old_model(old.CUDNN.LSTM(5, name="lstm")), ".h5"), "new.h5"
    ),
    keras_3_refuses(
        lambda: file_of_keras_2(old_model(), ".keras", in_module_of_keras_2), "new.keras"
    ),
    keras_3_refuses(lambda: file_of_keras_2(model_with_mask(), ".keras"), "new.keras"),
    json_of_keras_2, weights_alone, weights_of_cudnn, saved_model, tensors_of_torch,
    another_cell_in_keras, keras_3_in_keras_2, keys_of_torch, another_cell_in_torch,
    a_file_of_torch(lambda: torch.save(torch.nn.LSTM(3, 5), "model.pt")),
    a_file_of_torch(lambda: torch.jit.save(torch.jit.script(torch.nn.LSTM(3, 5)), "model.pt")),
    another_input_size, another_batch_axis, names_of_tensorflow_1,
    a_wrong_shape_in_onnx(lambda keras: {"W": keras["kernel"][None]}),
    a_wrong_shape_in_onnx(lambda keras: {"B": keras["bias"][None]}),
    not_onnx, transposed_in_flax, another_cell_in_flax, another_cell_in_msgpack,
    another_cell_in_equinox, another_path_in_haiku,
]  # fmt: skip


def letters(text):
    """Return a text without colours, backticks and ends of lines."""
    return re.sub(r"[`\s]+", " ", re.sub(r"\x1b\[\d*m", "", text))


@pytest.mark.parametrize("message, case", zip(MESSAGES, CASES, strict=True), ids=MESSAGES)
def test_the_framework_says_so_and_the_repair_works(message, case, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    steps = case()
    with pytest.raises(Exception) as caught:
        next(steps)()
    for part in letters(message).split("..."):
        assert part.strip() in letters(str(caught.value))
    next(steps, None)
