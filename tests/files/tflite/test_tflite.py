"""Models of TFLite: rl.RNN computes from their weights what TFLite's interpreter computes."""

import flatbuffers
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from oracles.frameworks import KERAS_NOISE
from oracles.tflites import IDENTIFIER, lstm_inputs, model_bytes, rnn_inputs
from tensorflow.lite.python import schema_py_generated as schema

import rnnlayout as rl

pytestmark = KERAS_NOISE
ANSWERS_FOR = ("tflite",)
N, T, I, H, P = 2, 4, 5, 3, 2  # noqa: E741
RNG = np.random.default_rng(8)
X = RNG.standard_normal((N, T, I)).astype("f4")
# T steps of sums of at most I + H products of numbers below 4, rounded by 2^-24, and TFLite's own
# tanh and sigmoid, which are exact to 2^-20
ERROR = 2e-5


def interpret(data, x=X):
    interpreter = tf.lite.Interpreter(model_content=data)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    found = [interpreter.get_tensor(one["index"]) for one in interpreter.get_output_details()]
    return found[0] if len(found) == 1 else np.concatenate(found, -1)


def converted(*layers, **options):
    """Return what TensorFlow's converter makes of Keras layers."""
    x = y = tf_keras.layers.Input((T, I), batch_size=N)
    for layer in layers:
        y = layer(y)
    model = tf_keras.Model(x, y)
    model.set_weights([RNG.standard_normal(w.shape).astype("f4") for w in model.get_weights()])
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    for name, value in options.items():
        setattr(converter, name, value)
    return model, converter.convert()


def put(folder, data):
    (folder / "m.tflite").write_bytes(data)
    return folder / "m.tflite"


def run(found, x=X):
    for weights in found.values():
        x, _ = rl.RNN(weights)(np.ascontiguousarray(x))
    return x


def lstm(**options):
    return tf_keras.layers.LSTM(H, return_sequences=True, **options)


def test_layers_of_keras(tmp_path):
    """The second one goes backwards; the converter clips cell states at 10."""
    model, data = converted(lstm(), lstm(go_backwards=True))
    found = rl.load(put(tmp_path, data))
    assert [w.config for w in found.values()] == [
        {"cell_clip": 10.0}, {"cell_clip": 10.0, "go_backwards": True},
    ]  # fmt: skip
    np.testing.assert_allclose(run(found), interpret(data), rtol=0, atol=ERROR)
    own = [array for weights in found.values() for array in weights.to("keras").values()]
    for ours, theirs in zip(own, model.get_weights(), strict=True):
        assert ours.tobytes() == theirs.tobytes()


def both(**options):
    return tf_keras.layers.Bidirectional(lstm() if options else tf_keras.layers.LSTM(H), **options)


def test_bidirectional_layers_of_keras_are_not_two_lstms_without_a_word(tmp_path):
    """The second returns the last steps alone. Each was two RNNs, and nothing named the reversal of
    the output of one."""
    _, data = converted(both(merge_mode="concat"), both())
    found = rl.load(put(tmp_path, data))
    assert not found.notes and [w.spec.bidirectional for w in found.values()] == [True, True]
    first, second = map(rl.RNN, found.values())
    _, (h_n, _) = second(first(X)[0])
    last = np.concatenate([*h_n], -1)
    np.testing.assert_allclose(last, interpret(data), rtol=0, atol=ERROR)


def test_directions_that_are_not_concatenated(tmp_path):
    """They stay two RNNs, one of which reverses x and turns y back."""
    _, data = converted(both(merge_mode="sum"))
    found = rl.load(put(tmp_path, data))
    (note,) = found.notes
    assert "reads the input of" in note and "directions of a Bidirectional" in note
    assert [w.config.get("direction") for w in found.values()].count("reverse") == 1
    y = sum(rl.RNN(weights)(X)[0] for weights in found.values())
    np.testing.assert_allclose(y, interpret(data), rtol=0, atol=ERROR)


@pytest.mark.parametrize("options", [{}, {"optimizations": [tf.lite.Optimize.DEFAULT]}], ids=str)
def test_weights_of_other_layers_are_left_out_by_name(options, tmp_path):
    """A conversion named nothing."""
    dense = tf_keras.layers.Dense(40, activation="tanh", use_bias=True)
    _, data = converted(dense, lstm(), tf_keras.layers.Dense(1, use_bias=False), **options)
    path = put(tmp_path, data)
    (weights,) = rl.load(path).values()
    details = tf.lite.Interpreter(model_content=data).get_tensor_details()
    sizes = {tuple(one["shape"]): one["name"] for one in details if len(one["name"])}
    done = rl.convert_file(path, tmp_path / "a.npz", to="keras")
    expected = {sizes[shape] for shape in ((40, I), (40,), (1, H))}
    assert expected == {*done.left_out} and weights.spec.input_size == 40


def representative():
    for k in range(20):
        yield [np.random.default_rng(k).standard_normal((N, T, I)).astype("f4")]


QUANTIZED = {  # options of the converter
    # the new quantizer leaves them as they are
    "hybrid": {"_experimental_new_quantizer": False,
               "experimental_new_dynamic_range_quantizer": False},
    "integers": {"representative_dataset": representative},
    "float16": {"target_spec": tf.lite.TargetSpec(supported_types=[tf.float16])},
}  # fmt: skip


@pytest.mark.parametrize("kind", QUANTIZED)
def test_quantized_weights(kind, tmp_path):
    """Each is within half a step, 2 max / 254, of Keras's; float16 within 2^-11 of itself."""
    options = QUANTIZED[kind] | {"optimizations": [tf.lite.Optimize.DEFAULT]}
    units = 64 if kind == "hybrid" else H  # smaller matrices are left as they are
    model, data = converted(tf_keras.layers.LSTM(units, return_sequences=True), **options)
    found = rl.load(put(tmp_path, data))
    (weights,) = found.values()
    assert bool(found.notes) == (kind != "float16") and weights.spec.dtype == "float32"
    for ours, theirs in zip(weights.to("keras").values(), model.get_weights(), strict=True):
        step = 2 * np.abs(theirs).max() / 254
        error = 2.0**-11 * np.abs(theirs) if kind == "float16" else 0.51 * step
        assert (np.abs(ours - theirs) <= error).all()
    # the operator also rounds x and h to 8 bits: 1/254 of numbers below 4, in sums of 67 products
    near = {"hybrid": 0.3, "integers": 0.3, "float16": ERROR}[kind]
    np.testing.assert_allclose(run(found), interpret(data), rtol=0, atol=near)


@pytest.mark.parametrize("layer", [tf_keras.layers.GRU, tf_keras.layers.SimpleRNN])
def test_layers_that_become_loops(layer, tmp_path):
    _, data = converted(layer(H))
    with pytest.raises(rl.FileError, match="a WHILE may hold an RNN that is not read"):
        rl.load(put(tmp_path, data))


def with_custom(data, name):
    """Add a custom operator, which nothing uses, to a model."""
    model = schema.ModelT.InitFromPackedBuf(data, 0)
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM
    code.customCode = name.encode()
    model.operatorCodes.append(code)
    builder = flatbuffers.Builder(0)
    builder.Finish(model.Pack(builder), IDENTIFIER)
    return bytes(builder.Output())


def test_constants_of_no_rnn_and_custom_operators_are_named(tmp_path):
    dense = tf_keras.layers.Dense(2)
    _, data = converted(lstm(), dense)
    found = rl.load(put(tmp_path, data))
    assert len(found) == 1 and not found.notes
    weights = {array.tobytes() for array in (dense.kernel.numpy().T, dense.bias.numpy())}
    details = tf.lite.Interpreter(model_content=data)
    names = {
        one["name"]
        for one in details.get_tensor_details()
        if one["dtype"] == np.float32 and constant_bytes(details, one["index"]) in weights
    }
    assert {*found.others} == names
    assert not rl.load(put(tmp_path, with_custom(data, "MyNorm"))).notes
    (note,) = rl.load(put(tmp_path, with_custom(data, "MyGRU"))).notes
    assert note.startswith("custom operators are not read: 'MyGRU': read the model")
    _, data = converted(tf_keras.layers.Dense(2))
    with pytest.raises(rl.FileError, match=r"no recurrent layer.* not read: 'MyNorm': read the mo"):
        rl.load(put(tmp_path, with_custom(data, "MyNorm")))


def constant_bytes(interpreter, number):
    try:
        return interpreter.get_tensor(number).tobytes()
    except ValueError:  # not a constant
        return None


# ------------------------------------------------------------------- operators made without Keras

LSTMS = {  # the options of an operator; the names of its inputs that are left out
    "plain": {},
    "peepholes": {"peepholes": True},
    "projection": {"projected": P},
    "both": {"peepholes": True, "projected": P},
    "clip": {"cell_clip": 0.3},
    "relu": {"activation": "relu"},
    "time first": {"time_major": True},
    "two directions": {"both": True},
    "two directions, time first": {"both": True, "time_major": True},
    "two directions, peepholes": {"both": True, "peepholes": True, "projected": P},
}


@pytest.mark.parametrize("name", LSTMS)
def test_an_operator_lstm(name, tmp_path):
    options = LSTMS[name]
    x = X if not options.get("time_major") else np.ascontiguousarray(X.swapaxes(0, 1))
    if "both" in options:  # of more sequences TFLite's backward states are not initialized
        x = x[:, :1] if options.get("time_major") else x[:1]
    inputs = lstm_inputs(np.random.default_rng(3), I, H, 1 if "both" in options else N, **options)
    data = model_bytes("lstm", x.shape, inputs, **options)
    (weights,) = rl.load(put(tmp_path, data)).values()
    assert weights.spec == rl.Spec(
        "lstm", I, H, bidirectional="both" in options, proj_size=options.get("projected", 0),
        peepholes=options.get("peepholes", False), activation=options.get("activation", "tanh"),
    )  # fmt: skip
    assert weights.batch_first == (not options.get("time_major"))
    y = rl.RNN(weights)(x)[0]
    np.testing.assert_allclose(y, interpret(data, x), rtol=0, atol=ERROR)
    if "cell_clip" in options:
        del weights.config["cell_clip"]
        assert np.abs(rl.RNN(weights)(x)[0] - y).max() > 0.01


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_an_operator_rnn(activation, both, tmp_path):
    inputs = rnn_inputs(np.random.default_rng(4), I, H, N, both=both)
    data = model_bytes("rnn", X.shape, inputs, both=both, activation=activation)
    (weights,) = rl.load(put(tmp_path, data)).values()
    assert weights.spec == rl.Spec(f"rnn_{activation}", I, H, bidirectional=both)
    np.testing.assert_allclose(run({"": weights}), interpret(data), rtol=0, atol=ERROR)


REFUSED = {  # what the error says -> options of an operator, the inputs that are replaced
    "coupled input gate": ({}, {1: None, 5: None, 12: None}),
    "layer normalization": ({}, {k: np.ones(H, "f4") for k in range(20, 24)}),
    "projection_bias is not 0": ({"projected": P}, {17: np.ones(P, "f4")}),
    "proj_clip=0.5": ({"projected": P, "proj_clip": 0.5}, {}),
    "activation is number 3": ({"activation": "relu6"}, {}),
    "recurrent matrices are diagonals": ({"diagonal": True}, {}),
}


@pytest.mark.parametrize("says", REFUSED)
def test_what_no_layout_represents(says, tmp_path):
    options, changed = REFUSED[says]
    inputs = lstm_inputs(np.random.default_rng(3), I, H, N, **options)
    inputs += [None] * (24 - len(inputs))
    for k, array in changed.items():
        inputs[k] = array
    path = put(tmp_path, model_bytes("lstm", X.shape, inputs, **options))
    with pytest.raises(rl.Error, match=says):
        found = rl.load(path)
        assert "proj_clip" in options  # it is read, and rl.RNN refuses it
        rl.RNN(found["lstm"])


# -------------------------------------------------------------------------------- hostile models


@pytest.mark.parametrize("subgraphs, operators, units", [
    (1, 490, H), (1, 600, H), (100, 100, H), (1, 400, 100),
])  # fmt: skip
def test_many_operators_of_the_same_tensors(subgraphs, operators, units, tmp_path, limited):
    import flatbuffers

    size = I if units == H else units
    data = model_bytes("lstm", (N, T, size), lstm_inputs(RNG, size, units, N))
    made, builder = schema.ModelT.InitFromPackedBuf(data, 0), flatbuffers.Builder(1024)
    made.subgraphs[0].operators *= operators
    made.subgraphs *= subgraphs
    builder.Finish(made.Pack(builder), IDENTIFIER)
    path = put(tmp_path, bytes(builder.Output()))
    with limited():
        try:
            rl.load(path)
        except rl.Error as error:
            assert "refused" in str(error)
