"""Files without names of tensors, or with names in a graph: changed by, or as, other programs write
them."""

import json

import equinox as eqx
import flatbuffers
import jax
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from commands import TESTS
from oracles.frameworks import KERAS_NOISE
from oracles.tflites import IDENTIFIER
from tensorflow.lite.python import schema_py_generated as schema

import rnnlayout as rl

from .changing import reply
from .sources import CHANGED, KEPT

pytestmark = KERAS_NOISE
GAIN = np.ones(3, "f4")


# ---------------------------------------------------------------------------------- without names


def without_or_with_more(items, more):
    """Yield the items without one of them, and with one more, at each place."""
    for k in range(len(items)):
        yield items[:k] + items[k + 1 :]
    for k in range(len(items) + 1):
        yield [*items[:k], more, *items[k:]]


@pytest.mark.long
def test_equinox(tmp_path):
    key = jax.random.PRNGKey(0)
    arrays = jax.tree.leaves([eqx.nn.LSTMCell(5, 3, key=key), eqx.nn.LSTMCell(3, 3, key=key)])
    for changed in without_or_with_more(arrays, GAIN):
        eqx.tree_serialise_leaves(tmp_path / "a.eqx", changed)
        with pytest.raises(rl.FileError, match=f"its {len(changed)} arrays are not those of"):
            rl.load(tmp_path / "a.eqx")


@pytest.mark.parametrize("suffix", [".npy", ".bin", ".bin with its JSON"])
def test_one_vector(suffix, tmp_path):
    """Another number of values is refused: the values themselves show nothing."""
    path, spec = tmp_path / f"a{suffix[:4]}", rl.Spec("lstm", 5, 3)
    options = {".npy": {"spec": spec}, ".bin": {"spec": spec, "layout": "cudnn"}}.get(suffix, {})
    if not options:
        (tmp_path / "a.bin.json").write_text(json.dumps(spec.to_dict()))
    size = spec.nbytes // 4
    for count in (size, size - 1, size + 1, size - 3, size + 3):
        vector = np.ones(count, "f4")
        np.save(path, vector) if suffix == ".npy" else vector.tofile(path)
        if count == size:
            assert rl.load(path, **options)["lstm"].spec == spec
        else:
            with pytest.raises(rl.LayoutError, match=f"{count} elements, need {size}"):
                rl.load(path, **options)


@pytest.mark.parametrize("name", ["one.nam", "two.nam"])
def test_nam(name, tmp_path):
    model = json.loads((TESTS / "data/audio.json").read_text())[name]["model"]
    weights, config = model["weights"], model["config"]
    changes = [{"weights": numbers} for numbers in (weights[3:], weights[:-1], [*weights, 1.0])]
    changes += [{"config": config | {key: 4}} for key in ("num_layers", "hidden_size")]
    for change in changes:
        (tmp_path / name).write_text(json.dumps(model | change))
        with pytest.raises(rl.FileError, match=r"weights has \d+ numbers, an LSTM with"):
            rl.load(tmp_path / name)


# ------------------------------------------------------------------------------------- TensorFlow


@pytest.fixture(scope="module")
def model():
    x = tf_keras.Input((4, 5), batch_size=2)
    y = tf_keras.layers.LSTM(3, return_sequences=True, name=CHANGED)(x)
    y = tf_keras.layers.LSTM(4, return_sequences=True, name=KEPT)(y)
    model = tf_keras.Model(x, tf_keras.layers.Dense(2, name="head")(y))
    rng = np.random.default_rng(0)
    model.set_weights([rng.standard_normal(a.shape).astype("f4") for a in model.get_weights()])
    return model


def scaled(graph, model, operator, at):
    """Put an operator between a weight and its use."""
    model.operatorCodes.append(schema.OperatorCodeT())
    model.operatorCodes[-1].builtinCode = schema.BuiltinOperator.MUL
    weight = operator.inputs[at]
    result = schema.TensorT()
    result.shape, result.name, result.buffer = graph.tensors[weight].shape, b"gain", 0
    graph.tensors.append(result)
    multiply = schema.OperatorT()
    multiply.opcodeIndex = len(model.operatorCodes) - 1
    multiply.inputs, multiply.outputs = [weight, weight], [len(graph.tensors) - 1]
    graph.operators.insert(0, multiply)
    operator.inputs[at] = multiply.outputs[0]


def without_tensor(graph, model, operator, at):
    operator.inputs[at] = -1


def without_data(graph, model, operator, at):
    graph.tensors[operator.inputs[at]].buffer = 0


def further_input(graph, model, operator, at):
    operator.inputs = [*operator.inputs, operator.inputs[at]]


def renamed(graph, model, operator, at):
    """The names of tensors mean nothing to TFLite."""
    graph.tensors[operator.inputs[at]].name = b"gain"


@pytest.fixture(scope="module")
def tflite(model):
    return tf.lite.TFLiteConverter.from_keras_model(model).convert()


@pytest.mark.long
@pytest.mark.parametrize("change, says", [
    (scaled, "not a constant"), (without_data, "not a constant"), (further_input, "24 inputs"),
    (without_tensor, ("missing", "biases", "coupled input gate")), (renamed, ""),
])  # fmt: skip
def test_tflite(change, says, tflite, tmp_path):
    (tmp_path / "good.tflite").write_bytes(tflite)
    good = dict(zip((CHANGED, KEPT), rl.load(tmp_path / "good.tflite").values(), strict=True))
    for at in (*range(1, 9), *range(12, 16)):  # matrices and biases
        changed = schema.ModelT.InitFromPackedBuf(tflite, 0)
        (graph,) = changed.subgraphs
        operator = next(node for node in graph.operators if len(node.inputs) > 20)
        operator.inputs = list(map(int, operator.inputs))
        change(graph, changed, operator, at)
        builder = flatbuffers.Builder(1024)
        builder.Finish(changed.Pack(builder), IDENTIFIER)
        path = tmp_path / f"{at}.tflite"
        path.write_bytes(bytes(builder.Output()))
        answer = reply(path, good, (says,) if isinstance(says, str) else says)
        assert answer == ("the same" if change is renamed else "refused"), at


@pytest.mark.long
def test_saved_model(model, tmp_path):
    """TensorFlow finds a variable by the graph of objects, so a further variable is left out."""
    model.save(tmp_path / "a", save_format="tf")
    good, end = dict(rl.load(tmp_path / "a")), "/.ATTRIBUTES/VARIABLE_VALUE"
    prefix = str(tmp_path / "a/variables/variables")
    reader = tf.train.load_checkpoint(prefix)
    tensors = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    for number in range(3):  # the variables of the first layer
        name = f"variables/{number}{end}"
        kept = {key: array for key, array in tensors.items() if key != name}
        renamed, added = f"variables/{number}_v2", f"variables/{number}/gain"
        for changed in (kept, kept | {renamed + end: tensors[name]}, tensors | {added + end: GAIN}):
            tf.raw_ops.SaveV2(
                prefix=prefix,
                tensor_names=[*changed],
                tensors=[*changed.values()],
                shape_and_slices=[""] * len(changed),
            )
            answer = reply(tmp_path / "a", good, ("kernel", "use_bias True, the file has no"))
            if name in changed:
                assert answer == "the same" and added in rl.load(tmp_path / "a").others
            else:
                assert answer == "refused"
