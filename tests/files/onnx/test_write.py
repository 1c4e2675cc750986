"""Models that save() writes, and models that get new weights, run in onnxruntime."""

import json

import numpy as np
import onnx
import pytest
from files.onnx import models
from files.onnx.models import assert_same_outputs, constant, node_of, session, wrapped, write
from files.outputs import assert_computes, run_ours
from marks import pairwise
from onnx import helper, numpy_helper
from oracles.frameworks import FORMS, RELU_FORMS, H, I, inputs, onnx_model, onnx_tensors, seeded
from oracles.reference import Run

import rnnlayout as rl
from rnnlayout._files.formats.onnx import model as format_module, write as writer
from rnnlayout._files.formats.registry import NewWeights
from rnnlayout._files.tensor_sets.file_limits import InputFile
from rnnlayout._sources.reading import Reading

LSTM, GRU = rl.Spec("lstm", I, H), rl.Spec("gru", I, H)


def weights_of(spec, seed="written"):
    return rl.Weights(onnx_tensors(spec, seeded(seed, spec)), spec, "onnx")


def saved(path, weights):
    rl.save(path, weights)
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    return model


def run_saved(model, x, h0, c0=None):
    feed, made = {"X": x, "initial_h": h0, "initial_c": c0}, session(model)
    return Run(*made.run(None, {one.name: feed[one.name] for one in made.get_inputs()}))


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


@pytest.mark.parametrize("config", [{"direction": "reverse"}, {"clip": 0.25},
                                    {"initial_h": np.full((1, 9, H), 0.5, "f4")}])  # fmt: skip
def test_what_changes_the_network_is_written_again(config, tmp_path):
    """The same operator, and so the same bits."""
    model = onnx_model(onnx_tensors(LSTM, seeded("config")), LSTM)
    node = node_of(model.graph)
    node.attribute.remove(next(a for a in node.attribute if a.name == "direction"))
    for name, value in config.items():
        if name == "initial_h":
            model.graph.initializer.append(numpy_helper.from_array(value, name))
            node.input[5] = name
        else:
            node.attribute.append(helper.make_attribute(name, value))
    (weights,) = rl.load(write(model, tmp_path / "a.onnx")).values()
    assert list(weights.config) == list(config)
    again = saved(tmp_path / "b.onnx", weights)
    given = inputs(seeded("inputs", LSTM), LSTM)
    theirs, ours = models.run(model, *given), run_saved(again, *given)
    assert all(np.array_equal(getattr(theirs, n), getattr(ours, n)) for n in "yhc")
    plain = rl.Weights(dict(weights), LSTM, "onnx")
    assert not np.array_equal(run_ours(plain, *given).y, theirs.y)
    assert rl.load(tmp_path / "b.onnx")["lstm"] == weights


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("repeated", [False, True])
def test_each_layer_of_a_stack_starts_where_the_network_says(layers, repeated, tmp_path):
    """repeated: the state is the same for each sequence of any batch."""
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


@pytest.mark.parametrize("suffix, spec", [(".keras", LSTM), (".h5", rl.Spec("gru", I, H, 2, True))])
def test_layout_1_is_the_order_of_keras(suffix, spec, tmp_path):
    """It could not be written to a model of Keras, which reads x as (N, T, I) too."""
    weights, old, new = weights_of(spec), tmp_path / "old.onnx", tmp_path / f"new{suffix}"
    weights.config["layout"] = 1
    saved(old, weights)
    rl.convert_file(old, new, to="keras")
    report = rl.verify(old, new)
    assert report and "x is" not in str(report)


def test_time_major_is_the_order_of_onnx(tmp_path):
    """It could not be written, although X is (T, N, I) without layout=1."""
    weights = weights_of(LSTM)
    plain = saved(tmp_path / "a.onnx", weights)
    weights.config["time_major"] = True  # as of a layer of Keras 2
    assert saved(tmp_path / "b.onnx", weights).graph.node == plain.graph.node


def test_a_record_that_does_not_fit_the_model(tmp_path):
    """It is used where the nodes agree with it; they decide what they compute."""
    path = tmp_path / "m.onnx"

    def recorded(model, **specs):
        entries = {
            name: {"prefix": "", "layout": "onnx", "options": {}, "spec": spec.to_dict(),
                   "config": {"clip": 3.0}}
            for name, spec in specs.items()
        }  # fmt: skip
        del model.metadata_props[:]
        text = json.dumps({"schema": 1, "entries": entries})
        model.metadata_props.add(key="rnnlayout", value=text)
        return rl.load(write(model, path))

    model = onnx_model(onnx_tensors(LSTM, seeded("claimed")), LSTM)
    one_bias, wide = LSTM.replace(bias="input"), LSTM.replace(dtype="float64", bias="input")
    found = recorded(model, a=LSTM.replace(num_layers=65536), b=GRU.replace(bias="input"))
    assert list(found) == ["0/Y"]
    for claimed, spec in ((one_bias, one_bias), (wide, LSTM)):
        (weights,) = recorded(model, **{"0/Y": claimed}).values()
        assert weights.spec == spec and weights.config == {}
    model = saved(path, {"x/0": weights_of(LSTM), "x/1": weights_of(LSTM)})
    assert set(recorded(model, x=LSTM.replace(num_layers=2))) == {"x/0", "x/1"}
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


# ----------------------------------------------------------------- models in more than one file


STACK = rl.Spec("lstm", I, H, 2, True)


@pytest.fixture
def beyond(monkeypatch):
    """Every model of a test is beyond the limit of 2 GB, which is lowered here."""
    monkeypatch.setattr(writer, "LARGEST", 5_000)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_model_beyond_the_limit(dtype, tmp_path, beyond):
    """It was refused after all work was done."""
    large = weights_of(STACK).to("onnx", dtype=dtype)
    rl.save(tmp_path / "m.onnx", large)
    assert names(tmp_path) == ["m.onnx", "m.onnx.data"]
    assert rl.load(tmp_path / "m.onnx")["lstm"] == large
    made = onnx.load(tmp_path / "m.onnx")  # which reads both
    onnx.checker.check_model(tmp_path / "m.onnx", full_check=True)
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in made.graph.initializer}
    assert all(stored[f"lstm/{n}"].tobytes() == array.tobytes() for n, array in large.items())
    alone = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    places = [{e.key: e.value for e in t.external_data} for t in alone.graph.initializer]
    assert any(places) and not all(places)  # the small ones are in the model
    assert all(int(one["offset"]) % 64 == 0 for one in places if one)


def test_the_limit_is_that_of_the_whole_file(tmp_path, monkeypatch):
    rl.save(tmp_path / "m.onnx", weights_of(STACK))
    size = (tmp_path / "m.onnx").stat().st_size
    monkeypatch.setattr(writer, "LARGEST", size)
    rl.save(tmp_path / "fits.onnx", weights_of(STACK))
    assert names(tmp_path) == ["fits.onnx", "m.onnx"]
    monkeypatch.setattr(writer, "LARGEST", size - 1)
    rl.save(tmp_path / "large.onnx", weights_of(STACK))
    assert names(tmp_path) == ["fits.onnx", "large.onnx", "large.onnx.data", "m.onnx"]
    monkeypatch.setattr(writer, "LARGEST", 100)
    with pytest.raises(rl.FileError, match="limited to 2 GB"):
        rl.save(tmp_path / "none.onnx", weights_of(STACK))
    assert len(names(tmp_path)) == 4


def test_both_files_or_none(tmp_path, beyond):
    path, data = tmp_path / "m.onnx", tmp_path / "m.onnx.data"
    rl.save(tmp_path / "a.npz", weights_of(STACK))
    data.write_bytes(b"mine")
    with pytest.raises(FileExistsError, match=r"m\.onnx\.data already exists"):
        rl.convert_file(tmp_path / "a.npz", path, to="onnx")
    assert names(tmp_path) == ["a.npz", "m.onnx.data"] and data.read_bytes() == b"mine"
    rl.convert_file(tmp_path / "a.npz", path, to="onnx", force=True, dry_run=True)
    assert names(tmp_path) == ["a.npz", "m.onnx.data"] and data.read_bytes() == b"mine"
    rl.convert_file(tmp_path / "a.npz", path, to="onnx", force=True)
    assert rl.load(path)["lstm"] == weights_of(STACK)
    # of a model that was renamed the data have the name that those of the new one would have
    path.rename(tmp_path / "old.onnx")
    before = data.read_bytes()
    with pytest.raises(rl.FileError, match=r"m\.onnx\.data is the input"):
        rl.convert_file(tmp_path / "old.onnx", path, to="onnx", force=True)
    assert names(tmp_path) == ["a.npz", "m.onnx.data", "old.onnx"] and data.read_bytes() == before


# ------------------------------------------------------------------------------- new weights


def model_and_new(spec, tmp_path, change=lambda model: None):
    model = onnx_model(onnx_tensors(spec, seeded("old", spec)), spec)
    node_of(model.graph).name = "layer"
    change(model)
    write(model, tmp_path / "old.onnx")
    return model, weights_of(spec, "new")


def replaced(entries, tmp_path, full_check=True):
    new = NewWeights(entries, Reading())
    format_module.FORMAT.replace(InputFile(tmp_path / "old.onnx"), tmp_path / "new.onnx", new)
    made = onnx.load(tmp_path / "new.onnx")
    onnx.checker.check_model(made, full_check=full_check)
    return made


@pytest.mark.parametrize("place", [*models.PLACES, "If", "Loop"], ids=str)
@pytest.mark.parametrize("spec", [LSTM, rl.Spec("gru", I, H, bidirectional=True)], ids=str)
def test_old_and_new_weights_in_every_place(spec, place, tmp_path):
    def change(model):
        models.PLACES.get(place, models.through_nodes)(model)
        if name != "layer":
            wrapped(model, place)

    name = "layer" if place in models.PLACES else "outer/layer"
    model, new = model_and_new(spec, tmp_path, change)
    assert_same_outputs(model, spec, rl.load(tmp_path / "old.onnx")[name])
    assert_same_outputs(replaced({name: new}, tmp_path), spec, new)
    assert rl.load(tmp_path / "new.onnx")[name] == new


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
        node = model.graph.node.add()
        node.CopyFrom(node_of(model.graph))
        node.name, node.output[:] = "other", ["other/Y", "other/h", "other/c"]

    _, new = model_and_new(LSTM, tmp_path, share)
    old = rl.load(tmp_path / "old.onnx")["layer"]
    made = replaced({"layer": new}, tmp_path)
    assert dict(rl.load(tmp_path / "new.onnx")) == {"layer": new, "other": old}
    assert_same_outputs(made, LSTM, new)
    made = replaced({"layer": new, "other": new}, tmp_path)  # none of the old ones is left
    assert not {"W", "R", "B"} & {tensor.name for tensor in made.graph.initializer}


@pytest.mark.parametrize("inner", [False, True])
def test_initializers_of_old_models_are_inputs(inner, tmp_path):
    """Up to IR version 3 onnx.checker needs an input of each initializer."""

    def as_old(model):
        node = node_of(model.graph)
        copies = [f"{name}_copy" for name in node.input[1:3]]
        for name, copy in zip(node.input[1:3], copies, strict=True):
            model.graph.node.insert(0, helper.make_node("Identity", [name], [copy]))
        node.input[1:3] = copies
        if inner:
            wrapped(model, "If")
        model.ir_version = 3
        model.opset_import[0].version = 9
        declared = {value.name for value in model.graph.input}
        for tensor in model.graph.initializer:
            if tensor.name not in declared:
                model.graph.input.append(
                    helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
                )

    name = "outer/layer" if inner else "layer"
    _, new = model_and_new(LSTM, tmp_path, as_old)
    onnx.checker.check_model(onnx.load(tmp_path / "old.onnx"))
    made = replaced({name: new}, tmp_path, full_check=not inner)  # the test's If has odd shapes
    assert rl.load(tmp_path / "new.onnx")[name] == new
    assert made.ir_version == 3


def in_a_function(model):
    tensors = [one for one in model.graph.initializer if one.name in ("W", "R", "B")]
    nodes = [constant(one.name, numpy_helper.to_array(one)) for one in tensors]
    nodes.append(helper.make_node("LSTM", ["x", "W", "R", "B", "", "h", "c"], ["y"], "layer",
                                  hidden_size=H))  # fmt: skip
    opsets = [helper.make_opsetid("", 14)]
    model.functions.append(
        helper.make_function("mine", "Layer", ["x", "h", "c"], ["y"], nodes, opsets)
    )
    model.opset_import.append(helper.make_opsetid("mine", 1))
    del model.graph.node[:], model.graph.output[:], model.graph.initializer[:]
    call = helper.make_node("Layer", ["x", "0/h0", "0/c0"], ["y"], "call", domain="mine")
    model.graph.node.append(call)
    model.graph.output.extend(models.values("y"))


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
