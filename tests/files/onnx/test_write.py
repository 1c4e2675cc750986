"""Models that save() writes, and models that get new weights, run in onnxruntime."""

import json

import numpy as np
import onnx
import pytest
from files.onnx.models import (
    PLACES,
    assert_same_outputs,
    constant,
    node_of,
    run,
    session,
    through_nodes,
    values,
    wrapped,
    write,
)
from files.outputs import assert_computes, run_ours
from marks import pairwise
from onnx import helper, numpy_helper
from oracles.frameworks import (
    FORMS,
    KERAS_NOISE,
    RELU_FORMS,
    H,
    I,
    inputs,
    keras,
    onnx_model,
    onnx_tensors,
    seeded,
)
from oracles.reference import Run

import rnnlayout as rl
from rnnlayout._files.formats.onnx import model as format_module
from rnnlayout._files.tensor_sets.file_limits import InputFile

LSTM, GRU = rl.Spec("lstm", I, H), rl.Spec("gru", I, H)


def weights_of(spec, seed="written"):
    return rl.Weights(onnx_tensors(spec, seeded(seed, spec)), spec, "onnx")


def saved(path, weights):
    rl.save(path, weights)
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    return model


def run_saved(model, x, h0, c0=None, prefix=""):
    feed = {"X": x, "initial_h": h0} | ({} if c0 is None else {"initial_c": c0})
    made = session(model)
    names = [f"{prefix}{n}" for n in ("Y", "Y_h", *(["Y_c"] if c0 is not None else []))]
    given = {i.name for i in made.get_inputs()}
    return Run(*made.run(names, {prefix + n: a for n, a in feed.items() if prefix + n in given}))


@pytest.mark.parametrize("form, shape, curve, bias", pairwise(
    [*FORMS, *RELU_FORMS], [(1, False), (1, True), (3, False), (2, True)],
    ["sigmoid", "hard_sigmoid", "hard_sigmoid_keras2"], ["double", "none"],
    fits=lambda form, _, curve, *__: curve == "sigmoid" or not form[0].startswith("rnn"),
), ids=str)  # fmt: skip
def test_written_models_run(form, shape, curve, bias, tmp_path):
    cell, options = form
    spec = rl.Spec(cell, I, H, *shape, bias=bias, recurrent_activation=curve, **options)
    weights, given = weights_of(spec), inputs(seeded("inputs", spec), spec)
    model = saved(tmp_path / "m.onnx", weights)
    assert_computes(weights, run_saved(model, *given), *given)
    (read,) = rl.load(tmp_path / "m.onnx").values()
    assert read == weights


def test_several_entries_of_one_model(tmp_path):
    entries = {"a/b": weights_of(LSTM), "c": weights_of(rl.Spec("gru", I, 5, 2, True))}
    model = saved(tmp_path / "m.onnx", entries)
    assert dict(rl.load(tmp_path / "m.onnx")) == entries
    given = {name: inputs(seeded("inputs", w.spec), w.spec) for name, w in entries.items()}
    feeds = {f"{name}/{key}": array for name, arrays in given.items()
             for key, array in zip(("X", "initial_h", "initial_c"), arrays, strict=True)
             if array is not None}  # fmt: skip
    for name, w in entries.items():
        results = [f"{name}/{key}" for key in ("Y", "Y_h", "Y_c")[: 2 + (w.spec.cell == "lstm")]]
        assert_computes(w, Run(*session(model).run(results, feeds)), *given[name])


def read_with(config, spec, tmp_path, name):
    """Return weights whose config comes from a file."""
    model = onnx_model(onnx_tensors(spec, seeded("config", spec)), spec)
    node_of(model.graph).attribute.extend(
        helper.make_attribute(n, v) for n, v in config.items() if not isinstance(v, np.ndarray)
    )
    for k, state in enumerate(("initial_h", "initial_c")):
        if state in config:
            model.graph.initializer.append(numpy_helper.from_array(config[state], state))
            node_of(model.graph).input[5 + k] = state
    if "direction" in config:
        node = node_of(model.graph)
        node.attribute.remove(next(a for a in node.attribute if a.s == b"forward"))
    (weights,) = rl.load(write(model, tmp_path / name)).values()
    return model, weights


@pytest.mark.parametrize("config", [{"direction": "reverse"}, {"clip": 0.25},
                                    {"initial_h": np.full((1, 9, H), 0.5, "f4")}])  # fmt: skip
def test_what_changes_the_network_is_written_again(config, tmp_path):
    """The same operator, and so the same bits."""
    model, weights = read_with(config, LSTM, tmp_path, "a.onnx")
    assert list(weights.config) == list(config)
    again = saved(tmp_path / "b.onnx", weights)
    given = inputs(seeded("inputs", LSTM), LSTM)
    theirs, ours = run(model, LSTM, *given), run_saved(again, *given)
    assert all(np.array_equal(getattr(theirs, n), getattr(ours, n)) for n in "yhc")
    plain = rl.Weights(weights)
    plain.config = {}
    assert not np.array_equal(run_ours(plain, *given).y, theirs.y)
    assert rl.load(tmp_path / "b.onnx")["lstm"] == weights


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("repeated", [False, True])
def test_each_layer_of_a_stack_starts_where_the_network_says(layers, repeated, tmp_path):
    """The states of all layers but the first were lost; a state that is the same for each sequence
    was written for a batch of one."""
    spec = rl.Spec("lstm", I, H, layers, True)
    weights, (x, h0, c0) = weights_of(spec), inputs(seeded("starts", spec), spec)
    wide = slice(None, 1 if repeated else None)
    h0[:] = h0[:, wide]
    expected = run_saved(saved(tmp_path / "a.onnx", weights), x, h0, c0)
    weights.config = {"initial_h": h0[:, wide].astype("f8").tolist()}
    if not repeated:
        weights.config["initial_c"] = c0.astype("f8").tolist()
    theirs = run_saved(saved(tmp_path / "b.onnx", weights), x, h0, c0)
    assert all(np.array_equal(getattr(theirs, n), getattr(expected, n)) for n in "yhc")
    assert rl.load(tmp_path / "b.onnx")["lstm"] == weights


@KERAS_NOISE
@pytest.mark.filterwarnings("ignore:The structure of `inputs`")
@pytest.mark.parametrize("suffix", [".keras", ".h5"])
@pytest.mark.parametrize("spec", [LSTM, rl.Spec("gru", I, H, 2, True)], ids=str)
def test_layout_1_is_the_order_of_keras(suffix, spec, tmp_path):
    """It could not be written to a model of Keras, which reads x as (N, T, I) too.

    onnxruntime does not run layout=1: it gets the same node with layout 0, and x transposed.
    """
    weights = weights_of(spec)
    model = saved(tmp_path / "0.onnx", weights)
    weights.config["layout"] = 1
    saved(tmp_path / "1.onnx", weights)
    x, h0, c0 = inputs(seeded("layout 1", spec), spec)
    expected = run_saved(model, x, h0 * 0, None if c0 is None else c0 * 0).y
    new = tmp_path / f"new{suffix}"
    rl.convert_file(tmp_path / "1.onnx", new, to="keras")
    theirs = keras.saving.load_model(new)(x.transpose(1, 0, 2))
    # A step rounds sums of at most 2 H + H products and biases, none above 4; |y| < 1, and the
    # second layer adds the error of the first one times the sum of a row, below 4 as well
    error = 4 * spec.num_layers * len(x) * 3 * H * 4 * np.finfo("f4").eps
    assert np.abs(keras.ops.convert_to_numpy(theirs).transpose(1, 0, 2) - expected).max() < error


def test_time_major_is_the_order_of_onnx(tmp_path):
    """It could not be written, although X is (T, N, I) without layout=1."""
    weights, given = weights_of(LSTM), inputs(seeded("inputs", LSTM), LSTM)
    expected = run_saved(saved(tmp_path / "a.onnx", weights), *given)
    weights.config["time_major"] = True  # as of a layer of Keras 2
    theirs = run_saved(saved(tmp_path / "b.onnx", weights), *given)
    assert all(np.array_equal(getattr(theirs, n), getattr(expected, n)) for n in "yhc")


def test_a_record_that_does_not_fit_the_model(tmp_path):
    """It is used where the nodes agree with it; they decide what they compute."""

    def recorded(path, **changes):
        entries = {
            name: {"prefix": "", "layout": "onnx", "options": {}, "spec": spec.to_dict(),
                   "config": {"clip": 3.0}}
            for name, spec in changes.items()
        }  # fmt: skip
        del model.metadata_props[:]
        text = json.dumps({"schema": 1, "entries": entries})
        model.metadata_props.add(key="rnnlayout", value=text)
        return rl.load(write(model, path))

    model = onnx_model(onnx_tensors(LSTM, seeded("claimed")), LSTM)
    path = tmp_path / "m.onnx"
    (huge, gru) = rl.Spec("lstm", I, H, 65536), rl.Spec("gru", I, H, bias="input")
    assert list(recorded(path, a=huge, b=gru)) == ["0/Y"]
    (weights,) = recorded(path, **{"0/Y": LSTM.replace(bias="input")}).values()
    assert weights.spec == LSTM.replace(bias="input") and weights.config == {}
    (weights,) = recorded(path, **{"0/Y": LSTM.replace(dtype="float64", bias="input")}).values()
    assert weights.spec == LSTM
    saved(path, {"x/0": weights_of(LSTM), "x/1": weights_of(LSTM)})
    model = onnx.load(path)
    assert set(recorded(path, x=rl.Spec("lstm", I, H, 2))) == {"x/0", "x/1"}
    for nonsense in ["{", "[1]", "[" * 100_000]:
        model.metadata_props[0].value = nonsense
        with pytest.raises(rl.FileError, match="is malformed"):
            rl.load(write(model, path))


@pytest.mark.parametrize(
    ("dtype", "config"),
    [("float32", {"clip": 0.1}), ("float16", {"initial_h": [[[0.1] * H]]})],
)
def test_settings_that_the_model_would_round(dtype, config, tmp_path):
    """The error has the line that rounds them."""
    w = weights_of(LSTM).to("onnx", dtype=dtype)
    w.config = config
    with pytest.raises(rl.LossyError, match="which the model would round") as error:
        rl.save(tmp_path / "m.onnx", w)
    exec(str(error.value).partition("round it first, ")[2], {"w": w, "numpy": np})
    rl.save(tmp_path / "m.onnx", w)
    assert rl.load(tmp_path / "m.onnx")["lstm"] == w


# ------------------------------------------------------------------------------- new weights


def model_and_new(spec, tmp_path, change=lambda model: None):
    model = onnx_model(onnx_tensors(spec, seeded("old", spec)), spec)
    node_of(model.graph).name = "layer"
    change(model)
    write(model, tmp_path / "old.onnx")
    return model, weights_of(spec, "new")


def replaced(entries, tmp_path):
    format_module.FORMAT.replace(InputFile(tmp_path / "old.onnx"), tmp_path / "new.onnx", entries)
    made = onnx.load(tmp_path / "new.onnx")
    onnx.checker.check_model(made, full_check=True)
    return made


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
@pytest.mark.parametrize("spec", [LSTM, rl.Spec("gru", I, H, bidirectional=True)], ids=str)
def test_old_and_new_weights_in_every_place(spec, place, tmp_path):
    model, new = model_and_new(spec, tmp_path, place)
    assert_same_outputs(model, spec, rl.load(tmp_path / "old.onnx")["layer"])
    assert_same_outputs(replaced({"layer": new}, tmp_path), spec, new)
    assert rl.load(tmp_path / "new.onnx")["layer"] == new


@pytest.mark.parametrize("operator", ["If", "Loop"])
def test_new_weights_in_a_subgraph(operator, tmp_path):
    _, new = model_and_new(LSTM, tmp_path, lambda model: (through_nodes(model),
                                                        wrapped(model, operator)))  # fmt: skip
    assert_same_outputs(replaced({"outer0/layer": new}, tmp_path), LSTM, new)


def test_nothing_else_changes(tmp_path):
    """The same weights give the same bytes. Others change the values of three tensors."""
    model, new = model_and_new(LSTM, tmp_path)
    old = rl.load(tmp_path / "old.onnx")["layer"]
    assert replaced({"layer": old}, tmp_path).SerializeToString() == model.SerializeToString()
    made = replaced({"layer": new}, tmp_path)
    for tensor in model.graph.initializer:
        if tensor.name in new:
            tensor.CopyFrom(numpy_helper.from_array(new[tensor.name], tensor.name))
    assert made.SerializeToString() == model.SerializeToString()


def test_weights_that_two_nodes_share(tmp_path):
    def share(model):
        node = onnx.NodeProto()
        node.CopyFrom(node_of(model.graph))
        node.name, node.output[:] = "other", ["other/Y", "other/h", "other/c"]
        model.graph.node.append(node)

    _, new = model_and_new(LSTM, tmp_path, share)
    old = rl.load(tmp_path / "old.onnx")["layer"]
    made = replaced({"layer": new}, tmp_path)
    found = rl.load(tmp_path / "new.onnx")
    assert (found["layer"], found["other"]) == (new, old)
    assert_same_outputs(made, LSTM, new)
    # of both: none of the old ones is left
    made = replaced({"layer": new, "other": new}, tmp_path)
    assert not {"W", "R", "B"} & {tensor.name for tensor in made.graph.initializer}


def in_a_function(model):
    body = helper.make_function(
        "mine", "Layer", ["x", "h", "c"], ["y"],
        [*[constant(n, numpy_helper.to_array(t)) for n, t in
           ((t.name, t) for t in model.graph.initializer) if n in "WRB"],
         helper.make_node("LSTM", ["x", "W", "R", "B", "", "h", "c"], ["y"], "layer",
                          hidden_size=H)],
        [helper.make_opsetid("", 14)],
    )  # fmt: skip
    del model.graph.node[:], model.graph.output[:], model.graph.initializer[:]
    model.graph.node.append(helper.make_node("Layer", ["x", "0/h0", "0/c0"], ["y"], "call",
                                             domain="mine"))  # fmt: skip
    model.graph.output.extend(values("y"))
    model.functions.append(body)
    model.opset_import.append(helper.make_opsetid("mine", 1))


def test_what_cannot_be_replaced(tmp_path):
    _, new = model_and_new(LSTM, tmp_path)
    for entries, match in [
        ({"elsewhere": new}, "has no RNN 'elsewhere'; it has 'layer'"),
        ({"layer": new.to("torch")}, "layout onnx"),
        ({"layer": weights_of(rl.Spec("lstm", I, 5))}, "hidden_size 8, the new weights are"),
        ({"layer": weights_of(LSTM.replace(bias="none"))}, "B of node 'layer': the new weights do"),
        ({"layer": weights_of(rl.Spec("lstm", I, H, 2))}, "num_layers 2"),
    ]:
        with pytest.raises(rl.LayoutError, match=match):
            replaced(entries, tmp_path)
    _, new = model_and_new(LSTM, tmp_path, in_a_function)
    with pytest.raises(rl.LayoutError, match="inside a function"):
        replaced({"call/layer": new}, tmp_path)
    assert not (tmp_path / "new.onnx").exists()
