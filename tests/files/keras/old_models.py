"""Models of Keras 2 with real CuDNNLSTM and CuDNNGRU layers, as files, and what they compute.

tf_keras builds and saves these layers on a CPU but cannot run them there. What they compute comes
from a twin: the same model with LSTM and GRU, which loads its weights from the same file by
tf_keras's own loader. A model is a function of a namespace of layers, so both share their code.
"""

import json
from types import SimpleNamespace

import h5py
import numpy as np
import tf_keras
from oracles.frameworks import H, I, normal
from tf_keras import Model, Sequential
from tf_keras.src.layers.rnn.cudnn_gru import CuDNNGRU
from tf_keras.src.layers.rnn.cudnn_lstm import CuDNNLSTM

layers = tf_keras.layers
Input, Dense, Bidirectional = layers.Input, layers.Dense, layers.Bidirectional
N, T, IN = 4, 6, 3
WEIGHT = 0.4  # none is larger


def plain_gru(units, **options):
    return layers.GRU(units, recurrent_activation="sigmoid", reset_after=True, **options)


def hard_lstm(units, **options):
    return layers.LSTM(units, recurrent_activation="hard_sigmoid", **options)


def hard_gru(units, **options):
    return layers.GRU(units, recurrent_activation="hard_sigmoid", **options)


CUDNN = SimpleNamespace(LSTM=CuDNNLSTM, GRU=CuDNNGRU)
PLAIN = SimpleNamespace(LSTM=layers.LSTM, GRU=plain_gru)
HARD = SimpleNamespace(LSTM=hard_lstm, GRU=hard_gru)


def sequential(rnn):
    return Sequential([
        Input((T, IN)), rnn.LSTM(5, return_sequences=True), rnn.GRU(4), Dense(2),
    ])  # fmt: skip


def text(rnn):
    return Sequential([
        layers.Embedding(11, IN, input_length=T, input_shape=(T,)), layers.SpatialDropout1D(0.3),
        Bidirectional(rnn.GRU(5, return_sequences=True)), layers.Dropout(0.5),
        layers.BatchNormalization(), rnn.LSTM(4), layers.LeakyReLU(0.1),
        Dense(2, activation="softmax", kernel_regularizer="l2"),
    ])  # fmt: skip


def branches(rnn):
    """Two inputs: layers that both share, that take a mask, and that go backwards."""
    a, b = Input((T, IN), name="b"), Input((T + 1, IN), name="a")
    reader = Bidirectional(rnn.GRU(4), name="reader")
    masked = layers.LSTM(2)(layers.Masking(0.0)(b))  # no cuDNN layer takes a mask
    joined = layers.Concatenate()([layers.Subtract()([reader(a), reader(b)]), masked])
    there = rnn.LSTM(4, return_sequences=True, name="there")
    back = rnn.LSTM(4, return_sequences=True, go_backwards=True, name="back")
    both = Bidirectional(there, backward_layer=back)(a)
    backwards = rnn.GRU(5, go_backwards=True)
    turned = backwards(rnn.LSTM(4, go_backwards=True, return_sequences=True)(b))
    return Model([a, b], [Dense(3)(joined), both, turned])


def states(rnn):
    """States of an LSTM, a GRU and a Bidirectional with which other layers start."""
    source, target, start = Input((T, IN)), Input((None, 2)), Input((2,))
    _, h, c = rnn.LSTM(4, return_state=True, name="encoder")(source)
    y, *_ = rnn.LSTM(4, return_sequences=True, return_state=True, name="decoder")(
        target, initial_state=[h, c]
    )
    first, h = rnn.GRU(4, return_state=True)(source, initial_state=Dense(4)(start))
    second = rnn.GRU(4)(source, initial_state=h)
    _, *both = Bidirectional(rnn.LSTM(4, return_state=True))(source)
    last = Bidirectional(rnn.LSTM(4))(target, initial_state=both)
    return Model([source, target, start], [Dense(3)(y), first, second, last])


def nested(rnn):
    inner_x = Input((T, 4))
    frozen = rnn.LSTM(5, return_sequences=True, trainable=False)(inner_x)
    inner = Model(inner_x, layers.BatchNormalization()(rnn.GRU(5)(frozen)), name="inner")
    middle = Sequential([Input((T, IN)), rnn.GRU(4, return_sequences=True)], name="middle")
    x = Input((T, IN))
    y = middle(x)
    outputs = [inner(y), inner(layers.Activation("tanh")(y))]
    return Model(x, [Dense(2)(layers.Add()(outputs)), y, *outputs])


def nested_in_sequential(rnn):
    reader = Sequential([Input((T, IN)), Bidirectional(rnn.LSTM(4, return_sequences=True))])
    model = Sequential([reader, Sequential([Input((T, 8)), rnn.GRU(5), Dense(3)]), Dense(2)])
    model.build((None, T, IN))
    return model


def time_distributed(rnn):
    """Models and layers that a TimeDistributed repeats."""
    inner = Sequential([Input((T, IN)), rnn.GRU(4), Dense(2)])
    inner_x = Input((T, IN))
    _, h, c = rnn.LSTM(4, return_state=True)(inner_x)
    passed_on = Model(inner_x, rnn.LSTM(4)(inner_x, initial_state=[h, c]))
    x = Input((2, T, IN))
    y = [layers.TimeDistributed(inner)(x), layers.TimeDistributed(passed_on)(x)]
    z = layers.TimeDistributed(Bidirectional(rnn.LSTM(4, return_sequences=True)))(x)
    return Model(x, [rnn.LSTM(5)(layers.Concatenate()(y)), layers.TimeDistributed(rnn.GRU(5))(z)])


def hard_beside_cudnn(rnn):
    x = Input((T, IN))
    y = hard_lstm(4, return_sequences=True, activation="relu", dropout=0.1)(x)
    y = layers.LSTM(3, return_sequences=True)(rnn.LSTM(5, return_sequences=True)(y))
    y = hard_gru(5, return_sequences=True, reset_after=False, recurrent_dropout=0.1)(y)
    return Model(x, [Dense(2)(hard_gru(4, use_bias=False)(y)), rnn.GRU(3)(y)])


def hard_cells(rnn):
    squash = {"recurrent_activation": "hard_sigmoid"}
    stack = [
        layers.LSTMCell(4, **squash), layers.LSTMCell(3), layers.GRUCell(5, **squash),
        layers.GRUCell(2, reset_after=False, **squash), layers.SimpleRNNCell(3),
    ]  # fmt: skip
    return Sequential([
        Input((T, IN)), layers.RNN(stack, return_sequences=True),
        layers.RNN(layers.LSTMCell(4, **squash), go_backwards=True, return_sequences=True),
        Bidirectional(layers.RNN(layers.GRUCell(3, **squash))),
    ])  # fmt: skip


EITHER = [text, branches, states, nested, time_distributed]
MODELS = {f.__name__: f for f in (sequential, nested_in_sequential, *EITHER)}
# models with Keras 2's hard_sigmoid: the model, the layers of its RNNs, and those of the twin
HARD_MODELS = {"hard_beside_cudnn": (hard_beside_cudnn, CUDNN, PLAIN)} | {
    f.__name__: (f, HARD, HARD) for f in (hard_cells, *EITHER)
}


# ------------------------------------------------------------------------------------------ files


def write(name, folder):
    """Save a model with cuDNN layers. Returns as write_model() does."""
    return write_model(MODELS[name], CUDNN, PLAIN, folder)


def write_model(make, kind, kind_of_twin, folder):
    """Save the model make(kind) as an .h5 file with a .keras archive beside it, and its weights
    alone. Returns the paths of the .h5 files, and the twin make(kind_of_twin) that computes."""
    model = folder / f"{make.__name__}.h5"
    weights = model.with_stem(f"{model.stem}_weights")
    tf_keras.backend.clear_session()  # numbers layers from the first one again
    old = make(kind)
    fill(old, list(model.stem.encode()))
    old.compile("adam", "mse", metrics=["mae"])
    old.optimizer.build(old.trainable_variables)
    old.save(model)
    old.save(model.with_suffix(".keras"))
    old.save_weights(weights)
    twin = make(kind_of_twin)
    twin.load_weights(weights)
    return model, weights, twin


def fill(model, seed=1):
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        variance = 1 if "variance" in weight.name else 0  # from 1/2 to 3/2
        most = 0.5 if variance else WEIGHT
        weight.assign(rng.uniform(variance - most, variance + most, weight.shape))


def inputs_of(name, model, most=1):
    rng = np.random.default_rng(7)
    if name == "text":
        return rng.integers(0, 11, (N, T))
    sizes = [(N, T, IN) if len(x.shape) == 3 else (N, T, T, IN) for x in model.inputs]
    shapes = [
        [known or free for known, free in zip(x.shape, size, strict=False)]
        for x, size in zip(model.inputs, sizes, strict=True)
    ]
    arrays = [rng.uniform(-most, most, shape).astype("f4") for shape in shapes]
    return arrays[0] if len(arrays) == 1 else arrays


# --------------------------------------------------------------------------- weights of old Keras

# In the order of Keras 1's trainable_weights (keras/layers/recurrent.py, 1.2.2).
GATES_OF_KERAS_1 = {"LSTM": "icfo", "GRU": "zrh"}


def keras_1_arrays(kind, name, rng, joined=False):
    """Return {name: array} in the file's order. joined: consume_less="gpu", and SimpleRNN."""
    if joined:
        gates, wide = [""], {"LSTM": 4, "GRU": 3, "SimpleRNN": 1}[kind] * H
    else:
        gates, wide = [f"_{k}" for k in GATES_OF_KERAS_1[kind]], H
    shapes = {"W": (I, wide), "U": (H, wide), "b": (wide,)}
    return {
        f"{name}_{role}{gate}": normal(rng, *shape)
        for gate in gates
        for role, shape in shapes.items()
    }


def keras_1_layer(kind, name):
    return {"class_name": kind, "config": {
        "name": name, "trainable": True, "output_dim": H, "input_dim": I, "activation": "tanh",
        "inner_activation": "hard_sigmoid", "init": "glorot_uniform", "go_backwards": False,
        "stateful": False, "consume_less": "cpu", "return_sequences": True}}  # fmt: skip


def keras_1_model(name):
    return {"class_name": "Sequential", "config": [keras_1_layer("LSTM", name)]}


def write_arrays(path, layers, version=None, config=None, suffix=":0", libver=None, **stored):
    """Write the arrays of layers, {layer: {name: array}}, as Keras 1 and 2 do: with a config as a
    whole model. stored: options of each dataset."""
    with h5py.File(path, "w", libver=libver) as file:
        group = file.create_group("model_weights") if config else file
        if config:
            file.attrs["model_config"] = json.dumps(config).encode()
        if version:
            file.attrs["keras_version"] = version.encode()
        group.attrs["layer_names"] = [name.encode() for name in layers]
        for name, arrays in layers.items():
            part = group.create_group(name)
            part.attrs["weight_names"] = [(key + suffix).encode() for key in arrays]
            for key, array in arrays.items():
                part.create_dataset(key + suffix, data=array, **stored)


# ------------------------------------------------------------------------- the words of other years


def reword(path, reworded, version):
    """Change a file of tf_keras into one that an older Keras wrote."""
    with h5py.File(path, "r+") as file:
        config = reworded(json.loads(file.attrs["model_config"]))
        file.attrs["model_config"] = json.dumps(config).encode()
        for group in (file, file["model_weights"]):
            group.attrs["keras_version"] = version


def keras_2_1(entry):
    """Keras 2.1: a Sequential is a list, whose first layer knows the shape; no modules."""
    kind, config = entry["class_name"], dict(entry["config"])
    layers = config.get("layers")
    if layers and layers[0]["class_name"] == "InputLayer" and kind == "Sequential":
        shape = layers[0]["config"]["batch_input_shape"]
        layers = layers[1:]
        if "layers" not in layers[0]["config"]:  # a model records its own shape
            layers[0]["config"]["batch_input_shape"] = shape
    for key in ("build_input_shape", "time_major", "ragged", "optional"):
        config.pop(key, None)
    for key, value in config.items():
        if isinstance(value, dict) and "class_name" in value:
            config[key] = keras_2_1(value)
    if "cells" in config:
        config["cells"] = [keras_2_1(cell) for cell in config["cells"]]
    if layers:
        config["layers"] = [keras_2_1(layer) for layer in layers]
    words = {key: entry[key] for key in ("name", "inbound_nodes") if key in entry}
    if kind == "Sequential":
        config = config["layers"]
    return {"class_name": "Model" if kind == "Functional" else kind, "config": config, **words}


def tensorflow_1(entry):
    """tf.keras of TensorFlow 1: initializers with a dtype, and the first BatchNormalization."""
    if isinstance(entry, list):
        return [tensorflow_1(part) for part in entry]
    if not isinstance(entry, dict):
        return entry
    entry = {key: tensorflow_1(value) for key, value in entry.items() if key != "time_major"}
    if entry.get("module") == "keras.initializers":
        entry["config"] = {**entry["config"], "dtype": "float32"}
        del entry["module"], entry["registered_name"]
    if entry.get("class_name") == "BatchNormalization":
        entry["class_name"] = "BatchNormalizationV1"
    return entry


WORDS = {"2.21.0": lambda entry: entry, "2.1.6": keras_2_1, "2.1.6-tf": tensorflow_1}
