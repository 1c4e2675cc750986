"""Cases of hints about files. A function yields what gives a hint, and then does what it says."""

import gzip
import json
import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import equinox
import flax
import jax
import keras
import numpy as np
import onnx
import tensorflow as tf
import tf_keras
import torch
from files.hostile.good import good, good_parts
from files.hostile.trees import nd, params
from hints.following import (
    GRU,
    LSTM,
    RELU,
    asked,
    convert,
    each,
    followed,
    notes,
    repaired,
    tensors,
    write_model_with_head,
)
from oracles.jax_cells import equinox_cell

import rnnlayout as rl
from rnnlayout._files.write_into import convert_into

DATA = Path(__file__).parents[1] / "data"
BFLOAT16 = LSTM.replace(dtype="bfloat16")


# -------------------------------------------------------------------------------- any format


def save_one(path="w.npz", layout="torch"):
    """Write an LSTM with what a file of ours records."""
    rl.save(path, rl.Weights(tensors(layout=layout)))


def save_plain():
    np.savez("w.npz", **tensors())


def save_unknown():
    save_one("w.bin")
    Path("w.bin").rename("unknown")


def save_misnamed():
    save_plain()
    Path("w.npz").rename("w.h5")


def save_hand_written():
    np.savez(
        "w.npz", **{"enc.W": np.ones((5, 12)), "enc.U": np.ones((3, 12)), "enc.b": np.ones(12)}
    )


rows_written_by_hand = asked(rl.load, "w.npz", before=save_hand_written)
a_prefix_where_no_rnn_has_one = asked(rl.load, "w.npz", prefix="enc", before=save_plain)
classes_of_arrays = asked(rl.load, "w.npz", as_class={"Own": "LSTM"}, before=save_plain)
arrays_without_names = asked(
    rl.load, "w.npz", known={"layout": "keras"},
    before=lambda: np.savez("w.npz", *tensors(layout="keras").values()),
)  # fmt: skip
further_tensors = asked(
    rl.convert_file, "w.npz", "n.npz", to="keras",
    before=lambda: np.savez("w.npz", **tensors(prefix="rnn."), **{"rnn.norm.weight": np.ones(3)}),
)  # fmt: skip
cells_whose_names_do_not_show_the_layout = asked(
    rl.load, "w.npz", layout="keras",
    before=lambda: np.savez("w.npz", **tensors(layout="tf1", prefix="rnn/lstm_cell/")),
)  # fmt: skip
a_layout_that_the_file_lacks = asked(rl.load, "w.npz", layout="onnx", before=save_plain)


def names_of_no_layout():
    rng = np.random.default_rng(0)
    x, weights = rng.standard_normal((6, 3, 5)).astype("f4"), tensors()
    y = rl.forward(x, weights)[0]
    w_ih, w_hh, b_ih, b_hh = weights.values()
    source = {"in.weight": w_ih, "again.weight": w_hh, "in.bias": b_ih, "again.bias": b_hh}
    np.savez("w.npz", **source)
    for tensors_or_path, call in ((source, rl.pack), ("w.npz", rl.load)):
        text = yield lambda call=call, tensors=tensors_or_path: call(tensors)
        identified = followed(text, r"(rl\.identify\(.*?\))", tensors=tensors_or_path, x=x, y=y)
        assert identified.best == rl.Weights(weights)


another_layout_than_the_files = asked(rl.load, "w.npz", layout="keras", before=save_one)
a_wrong_suffix = asked(rl.load, "w.h5", before=save_misnamed)
the_layout_of_the_output = asked(
    rl.convert_file, "w.npz", "n.npz", known={"to": "keras"}, before=save_plain
)


def an_unknown_rnn():
    save_unknown()
    Path("unknown.json").write_text('{"model": "of another program"}')
    yield lambda: rl.load("unknown", format="bin")
    text = yield lambda: rl.load("unknown", LSTM, format="bin")
    arguments = re.search(r"weight space, pass spec=(.*) and layout='cudnn'", text)[1]
    rl.load("unknown", eval(arguments, {"rl": rl}), layout="cudnn", format="bin")


def a_model_of_tensorflow_js():
    for name, data in good_parts(".tfjs.json").items():
        Path(name).write_bytes(data)
    Path("model.json").write_bytes(good(".tfjs.json"))
    text = yield lambda: rl.load("group1-shard1of2.bin")
    Path("config.json").write_text('{"class_name": "Sequential"}')
    yield lambda: rl.load("model.json", keras_config="config.json")
    rl.load(re.search(r"pass (.*\.json), which", text)[1])


layers_to_be_stacked = repaired(
    lambda: rl.convert_file("w.npz", "n.npz", to="keras", stack=["a", "b"]),
    lambda: rl.convert_file("w.npz", "n.npz", to="keras", stack=[["a", "b"]]),
    before=lambda: np.savez(
        "w.npz", **tensors(prefix="a.") | tensors(rl.Spec("lstm", 7, 7), prefix="b.")),
)  # fmt: skip


def axes_of_keras_layers():
    np.savez("w.npz", **tensors(layout="keras"))
    yield lambda: rl.load("w.npz").notes[-1]
    rnn = rl.RNN(rl.load("w.npz")["lstm"], batch_first=False)
    assert rnn.batch_first is False


def a_name_that_exists():
    np.savez("w.npz", **tensors(prefix="enc."), **{"enc.kernel": np.ones(3, "f4")})
    ignored = {"ignore": ["enc.kernel"]}
    yield lambda: rl.convert_file("w.npz", "n.npz", to="keras", **ignored)
    rl.save("n.npz", {"other": rl.load("w.npz", **ignored)["enc"].to("onnx")})


def what_a_file_records():
    save_one()
    half = LSTM.replace(dtype="float16")
    text = yield lambda: rl.load("w.npz", half)
    assert text.endswith("omit spec=, and pass dtype= to convert to another dtype")
    rl.load("w.npz", dtype="float16")


def rnns_that_cannot_be_converted():
    np.savez("w.npz", **tensors(prefix="enc."), **tensors(RELU, prefix="dec."))
    text = yield lambda: rl.convert_file("w.npz", "n.npz", to="keras")
    rl.convert_file("w.npz", "n.npz", to="keras", only=followed(text, r"only=(\[.*?\])"))
    found = rl.load("w.npz")
    text = yield lambda: rl.save("s.npz", found)
    assert text.endswith("save(path, dict(found)): ['enc']")
    rl.save("s.npz", dict(found))


def what_save_takes():
    yield lambda: rl.save("w.npz", [1])
    yield lambda: rl.save("w.npz", tensors())
    rl.save("w.npz", rl.Weights(tensors()))
    weights = {"enc": rl.Weights(tensors()), "dec": rl.Weights(tensors())}
    text = yield lambda: rl.save("w.bin", weights)
    rl.save("w.bin", followed(text, r"save\(path, (weights\[.*?\])\)", weights=weights))


def sums_that_round():
    weights = rl.Weights(tensors())
    text = yield lambda: rl.save("w.h5", weights)
    code = re.search(r"convert it with (\.to\(.*?\)) first", text)[1]
    rl.save("w.h5", eval(f"weights{code}"))
    np.savez("w.npz", **tensors())
    rl.convert_file("w.npz", "new.h5", to=followed(text, r"or to=('\w+')"))


def save_two_models():
    np.savez("w.npz", **tensors(prefix="enc."), **tensors(GRU, prefix="dec."))
    np.savez("m.npz", **tensors(prefix="x."), **tensors(GRU, prefix="y."))


rnns_of_other_names = asked(convert_into, "w.npz", "n.npz", into="m.npz", before=save_two_models)
a_pair_that_does_not_exist = asked(
    convert_into, "w.npz", "n.npz", into="m.npz", map={"encoder": "x"},
    known={"map": {"enc": "x"}}, before=save_two_models,
)  # fmt: skip


def new_weights_in_a_model():
    torch.save({"enc": torch.nn.LSTM(5, 7).state_dict()}, "s.pt")
    module = torch.nn.LSTM(5, 7)
    torch.export.save(torch.export.export(module, (torch.zeros(2, 1, 5),)), "m.pt2")
    yield lambda: convert_into("s.pt", "n.pt2", into="m.pt2")
    module = torch.export.load("m.pt2").module()
    rl.assign(torch.nn.LSTM(5, 7), rl.load("s.pt"))
    yield lambda: rl.save("w.nam", rl.Weights(tensors()))


def save_model_of_torch(**arrays):
    np.savez("w.npz", **tensors(prefix="rec."), **arrays)
    write_model_with_head("m.json")


LIN = {"lin.weight": np.ones((1, 7), "f4"), "lin.bias": np.ones(1, "f4")}
INTO = ("w.npz", "n.json")
an_unknown_head = asked(
    rl.convert_file, *INTO, into="m.json", head="line", force=True, known={"head": "lin"},
    before=lambda: save_model_of_torch(**LIN),
)  # fmt: skip
a_head_of_nothing = asked(
    rl.convert_file, *INTO, into="m.json", head="lin", before=save_model_of_torch
)
for_tensors_without_a_head = asked(
    rl.convert_file, "w.npz", "n.npz", into="w.npz", head="lin",
    before=lambda: save_model_of_torch(**LIN),
)  # fmt: skip
a_layout_of_a_copy = asked(
    rl.convert_file, *INTO, into="m.json", to="keras", before=save_model_of_torch
)
a_head_of_a_new_file = asked(
    rl.convert_file, "w.npz", "n.json", to="keras", head="lin", before=save_model_of_torch
)


def heads_of_other_sizes():
    arrays = {"two.weight": np.ones((2, 7), "f4"), "cube.weight": np.ones((1, 7, 1), "f4")}
    arrays |= {"odd.weight": np.ones((1, 7), "f4"), "odd.bias": np.ones(2, "f4")}
    save_model_of_torch(**LIN, **arrays)
    write_model_with_head("two.json", outputs=2)
    for name in ("two", "cube", "odd"):
        yield partial(rl.convert_file, *INTO, into="m.json", head=name, force=True)
        rl.convert_file(*INTO, into="m.json", head="lin", force=True)
    rl.convert_file(*INTO, into="two.json", head="two", force=True)


def the_head_of_the_model_that_stays():
    save_model_of_torch(**LIN)
    text = yield lambda: rl.convert_file(*INTO, into="m.json").notes[-1]
    head = followed(text, r"pass head=('lin')$")
    assert not rl.convert_file(*INTO, into="m.json", head=head, force=True).left_out


def a_model_with_two_dense_layers():
    save_model_of_torch(**LIN)
    write_model_with_head("m.json", count=2)
    yield lambda: rl.convert_file(*INTO, into="m.json", head="lin")
    rl.convert_file(*INTO, into="m.json")


def a_head_of_a_format_with_rnns_alone():
    save_model_of_torch()
    rl.save("w.onnx", rl.Weights(tensors()))
    model = onnx.load("w.onnx")
    for name, array in LIN.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, "w.onnx")
    yield lambda: rl.convert_file("w.onnx", "n.json", into="m.json", head="lin")
    torch.save({f"rec.{k}": torch.from_numpy(v) for k, v in tensors().items()}
               | {k: torch.from_numpy(v) for k, v in LIN.items()}, "w.pt")  # fmt: skip
    rl.convert_file("w.pt", "n.json", into="m.json", head="lin")


def settings_that_a_format_lacks():
    rl.save("w.npz", rl.Weights(tensors()))
    weights = rl.load("w.npz")["lstm"]
    weights.config["go_backwards"] = True
    rl.save("w.npz", weights)
    text = yield lambda: rl.convert_file("w.npz", "n.onnx", to="onnx")
    exec(text.partition("in Python ")[2], {"rl": rl, "path": "w.npz", "new_path": "n.npz"})
    rl.convert_file("n.npz", "n.onnx", to="onnx")
    weights = rl.Weights(tensors(layout="onnx"), layout="onnx")
    weights.config["initial_h"] = [[[1.0], [2.0, 3.0]]]
    yield lambda: rl.save("n2.onnx", weights)
    weights.config["initial_h"] = np.ones((1, 1, 7)).tolist()
    rl.save("n2.onnx", weights)


def dtypes_that_a_format_lacks():
    weights = rl.Weights(tensors(BFLOAT16))
    text = yield lambda: rl.save("w.npy", weights)
    for suffix in each(r"use (\.\w+) or (\.\w+)", text)[0]:
        rl.save(f"w{suffix}", weights)
    rl.save("w.npy", rl.Weights(weights, dtype="float32"))
    keras = rl.Weights(tensors(BFLOAT16, "keras"))
    yield lambda: rl.save("w.h5", keras)
    rl.save("w.keras", keras)
    rl.save("w.h5", rl.Weights(keras, dtype="float32"))
    wide = rl.Weights(tensors(LSTM.replace(dtype="float64"), "keras"))
    text = yield lambda: rl.save("m.json", wide)
    code = re.search(r"convert it with (\.to\(.*?\)) first", text)[1]
    rl.save("m.json", eval(f"wide{code}"))
    rl.save("w.npz", wide)
    dtype = followed(text, r"or dtype=('float32')")
    rl.convert_file("w.npz", "new.json", to="keras", dtype=dtype)


# ------------------------------------------------------------------------------------- texts


def write_parts():
    """Write m.index.json and its two parts."""
    items = [*tensors().items()]
    for name, part in (("1", items[:2]), ("2", items[2:])):
        torch.save({key: torch.from_numpy(array) for key, array in part}, f"{name}.pt")
    parts = {key: "1.pt" if k < 2 else "2.pt" for k, (key, _) in enumerate(items)}
    Path("m.index.json").write_text(json.dumps({"weight_map": parts}))


def new_weights_in_a_model_in_parts():
    write_parts()
    rl.save("w.npz", rl.Weights(tensors()))
    yield lambda: convert_into("w.npz", "n.npz", into="m.index.json")
    module = torch.nn.LSTM(5, 7)
    module.load_state_dict({**torch.load("1.pt"), **torch.load("2.pt")})
    rl.assign(module, rl.load("w.npz"))
    torch.save(module.state_dict(), "n.pt")
    assert rl.verify("n.pt", "w.npz").equal


def an_inference_model_of_paddle():
    """The framework, which is large, is a fake here; Paddle 3.3.1 itself gives these names."""
    arrays = dict(zip(("w_0", "w_1", "b_0", "b_1"), tensors().values(), strict=True))
    tensors_of_paddle = [
        SimpleNamespace(name=f"lstm_cell_0.{name}_0", numpy=lambda array=array: array)
        for name, array in sorted(arrays.items())
    ]
    program = {"base_code": {"magic": "pir", "version": 4}}
    Path("inference.json").write_text(json.dumps(program))
    Path("inference.pdiparams").write_bytes(bytes(8))
    Path("old.pdmodel").write_bytes(b"\n\x05")
    load = {"inference": SimpleNamespace(parameters=lambda: tensors_of_paddle)}.__getitem__
    paddle = SimpleNamespace(jit=SimpleNamespace(load=load))
    yield lambda: rl.load("old.pdmodel")
    for name in ("inference.json", "inference.pdiparams"):
        text = yield lambda name=name: rl.load(name)
        found = followed(text, r"arrays = (\{.*?\}) has names", paddle=paddle)
        cell = [found[f"lstm_cell_0.{end}_0"] for end in ("w_0", "w_1", "b_0", "b_1")]
        assert rl.Weights(cell, layout="torch") == rl.Weights(tensors())


def a_file_of_torch_7():
    """torchfile, a fake here, reads the attributes of modules from such a file."""
    text = (3).to_bytes(4, "little") + b"V 1" + (10).to_bytes(4, "little") + b"cudnn.LSTM"
    binary = (4).to_bytes(4, "little") + (1).to_bytes(4, "little") + text
    ascii_text = b"4\n1\n3\nV 1\n10\ncudnn.LSTM\n"
    for name, data in (("m.t7", binary), ("m.net", binary), ("ascii.t7", ascii_text)):
        Path(name).write_bytes(data)
        vector = rl.pack(tensors())
        torchfile = SimpleNamespace(load={name: SimpleNamespace(weight=vector)}.__getitem__)
        message = yield lambda name=name: rl.load(name)
        module = followed(message, r"model = (.*?\)) \(pip", torchfile=torchfile)
        weights = followed(message, r"and (rl\.Weights\(.*?\)) reads", module=module, spec=LSTM)
        assert (weights.pack() == vector).all()


def a_model_of_core_ml():
    """coremltools, a fake here, has the arrays of operations; 9.0 itself gives these names."""
    arrays = tensors(layout="coreml")
    names = {role: f"concat_{k}" for k, role in enumerate(arrays)} | {"initial_h": "const_9"}
    operation = SimpleNamespace(params_name_mapping=names)
    weights = {
        names[role]: SimpleNamespace(val=array, child_ops=[operation])
        for role, array in arrays.items()
    }
    Path("m.mlpackage").mkdir()
    Path("m.mlpackage/Manifest.json").write_text("{}")
    Path("m.mlmodel").write_bytes(b"\x08\x05\x12\x00")
    models = SimpleNamespace(MLModel=lambda path, skip_model_load: Path(path))
    coreml = SimpleNamespace(get_weights_metadata=lambda path, weight_threshold: weights)
    coremltools = SimpleNamespace(models=models, optimize=SimpleNamespace(coreml=coreml))
    for name in ("m.mlpackage", "m.mlmodel"):
        text = yield lambda name=name: rl.load(name)
        w = followed(text, r"w = (coremltools\..*?weight_threshold=1\))", coremltools=coremltools)
        found = followed(text, r"(\{role: .*?\}) has the arrays", w=w, name="concat_0")
        assert rl.Weights(found, layout="coreml") == rl.Weights(arrays, layout="coreml")


def a_dict_in_an_array_of_objects():
    np.savez("m.npz", np.array({"epoch": 3, "params": tensors(prefix="enc.")}, dtype=object))
    text = yield lambda: rl.load("m.npz")
    source = followed(text, r"(numpy\.load\(.*\.tolist\(\))", numpy=np)
    assert rl.Weights(source["params"], prefix="enc") == rl.Weights(tensors())


def an_object_of_r():
    Path("m.rds").write_bytes(gzip.compress(b"X\n\0\0\0\3"))
    text = yield lambda: rl.load("m.rds")
    arrays = list(tensors().values())
    rdata = SimpleNamespace(read_rds={"m.rds": arrays}.__getitem__)  # 1.1 reads a list of arrays
    source = followed(text, r"rl\.Weights\((rdata.*?\)),", rdata=rdata)
    assert rl.Weights(source, layout="torch") == rl.Weights(tensors())


def parts_of_torch_distributed():
    from torch.distributed import checkpoint

    state = {name: torch.from_numpy(array) for name, array in tensors().items()}
    checkpoint.save(state, checkpoint_id="folder")
    text = yield lambda: rl.load("folder")
    call = re.search(r"(torch\.distributed\.\S+\(folder, 'model.pt'\)), and pass that file", text)[
        1
    ]
    exec(f"import torch.distributed.checkpoint.format_utils\n{call}", {"folder": "folder"})
    assert rl.load("model.pt")["lstm"].spec == LSTM


def tensors_that_are_not_dense():
    state = torch.nn.LSTM(5, 7).state_dict()
    w = state["weight_hh_l0"]
    for x in (w.to_sparse(), torch.quantize_per_tensor(w, 0.1, 0, torch.qint32),
              torch._neg_view(w), torch.nested.nested_tensor([w])):  # fmt: skip
        torch.save({**state, "weight_hh_l0": x}, "m.pt")
        text = yield lambda: rl.load("m.pt")["rnn"]
        repaired_tensor = followed(text, r"(x\.\w+\(\))", x=x)
        if isinstance(repaired_tensor, tuple):  # of unbind()
            (repaired_tensor,) = repaired_tensor
        torch.save({**state, "weight_hh_l0": repaired_tensor}, "m.pt")
        assert rl.load("m.pt")["lstm"].spec == LSTM


def a_compiled_package():
    from torch.export.pt2_archive._package import package_pt2

    Path("m.wrapper.so").write_bytes(b"compiled")
    package_pt2("m.pt2", aoti_files=["m.wrapper.so"])
    text = yield lambda: rl.load("m.pt2")
    program = torch.export.export(torch.nn.LSTM(5, 7), (torch.zeros(2, 1, 5),))
    exec(re.search(r"written with (.*?\)), or", text)[1], {"torch": torch, "program": program})
    assert rl.load("program.pt2")["lstm"].spec == LSTM


def a_state_dict_as_json_with_two_dense_layers():
    save_model_of_torch(**LIN)
    state = {name: array.tolist() for name, array in np.load("w.npz").items()}
    Path("m.json").write_text(json.dumps(state | {"top.weight": [[1.0] * 7]}))
    yield lambda: rl.convert_file(*INTO, into="m.json", head="lin")
    rl.convert_file(*INTO, into="m.json")


def a_keras_config():
    import keras

    model = keras.Sequential([keras.Input((4, 5)), keras.layers.LSTM(7, name="enc")])
    Path("config.json").write_text(model.to_json())
    model.save_weights("m.weights.h5")
    yield lambda: rl.load("config.json")
    rl.load("m.weights.h5", keras_config="config.json")
    rl.save("r.weights.h5", {"enc": rl.Weights(tensors(layout="keras"), activation="relu")})
    yield lambda: rl.load("r.weights.h5", keras_config="config.json")["enc"]
    rl.load("r.weights.h5")["enc"]


def checkpoints_of_orbax():
    import orbax.checkpoint

    params = flax.traverse_util.unflatten_dict(tensors(layout="flax-linen"), sep="/")
    step = Path("checkpoints/7").absolute()  # as CheckpointManager writes it
    orbax.checkpoint.PyTreeCheckpointer().save(step / "params", {"enc": params})
    for folder in ("checkpoints", step, step / "params"):
        text = yield lambda folder=folder: rl.load(folder)
        tree = followed(text, r"tree = (.*) restores its", orbax=orbax)
        code = re.search(r"(rl\.Weights\(tree, prefix=)\.\.\.\)", text)[1]
        assert rl.pack(eval(f"{code}'enc')", {"rl": rl, "tree": tree})).size


# ------------------------------------------------------------------------------- other formats


def files_of_equinox():
    cell = equinox_cell(equinox.nn.LSTMCell, 5, 7)
    equinox.tree_serialise_leaves("m.eqx", cell)
    yield lambda: rl.load("m.eqx", layout="torch")
    rl.load("m.eqx")
    model = {"enc": cell, "fc": equinox.nn.Linear(7, 2, key=jax.random.key(1))}
    equinox.tree_serialise_leaves("m.eqx", model)
    text = yield lambda: rl.load("m.eqx")
    code = re.search(r"model = (eqx\.\w+\(.*?\))", text)[1]
    rl.pack(eval(code, {"eqx": equinox, "model": model})["enc"])


sparse_arrays_of_mxnet = repaired(
    lambda: rl.load("m.params"), lambda: rl.load(DATA / "mxnet-gluon.params"),  # of dense arrays
    before=lambda: Path("m.params").write_bytes(params(nd(stype=1))),
)  # fmt: skip


def variables_of_an_optimizer_alone():
    names = [f"optimizer/_trainable_variables/{k}" for k in range(2)]
    arrays = [np.ones((8, 12), "f4")] * 2
    tf.raw_ops.SaveV2(prefix="m", tensor_names=names, shape_and_slices=["", ""], tensors=arrays)
    yield lambda: rl.load("m.index")
    keras.Sequential([keras.Input((None, 5)), keras.layers.LSTM(3)]).save("m.keras")
    assert len(rl.load("m.keras")) == 1


def a_checkpoint_of_tensorflow_1():
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        for name, shape in {"kernel": (8, 3), "bias": (3,)}.items():
            v1.get_variable(f"rnn/basic_rnn_cell/{name}", shape)
        session.run(v1.global_variables_initializer())
        old, path = {"write_version": v1.train.SaverDef.V1}, str(Path("old").resolve())
        v1.train.Saver(**old).save(session, path, write_meta_graph=False)
        yield lambda: rl.load("old", format="index")
        saver = v1.train.Saver()
        saver.restore(session, path)
        saver.save(session, path.replace("old", "new"), write_meta_graph=False)
    (found,) = rl.load("new.index", cell="rnn_tanh", layout="tf1").values()
    assert found.spec == rl.Spec("rnn_tanh", 5, 3)


def weights_of_a_model_that_keras_3_trained():
    layers = [keras.Input((4, 5)), keras.layers.LSTM(3)]
    model = keras.Sequential(layers)
    model.compile("adam", "mse")
    model.fit(np.ones((2, 4, 5)), np.ones((2, 3)), verbose=0)
    model.save_weights("m.weights.h5")
    text = yield lambda: notes(rl.load("m.weights.h5"))
    followed(text, r"(model\.save\(.*?\))", model=model)
    (weights,) = rl.load("model.keras").values()
    assert weights.optimizer.step == 1


def a_checkpoint_of_a_model_that_keras_3_trained():
    text = yield lambda: notes(rl.load(DATA / "keras-checkpoint" / "trained.index"))
    assert text.count("model.save('model.keras')") == 2
    saved = rl.load(DATA / "keras-checkpoint" / "model.keras")  # of the same model
    assert len(saved) == 2 and all(weights.optimizer.slots for weights in saved.values())


def a_model_that_keras_2_trained():
    layers = [tf_keras.Input((4, 5)), tf_keras.layers.GRU(3, name="enc")]
    model = tf_keras.Sequential(layers)
    model.compile("adam", "mse")
    model.fit(np.ones((2, 4, 5)), np.ones((2, 3)), verbose=0)
    model.save("old.h5")
    yield lambda: convert("old.h5", "new.h5", to="keras")
    state = rl.load("old.h5")["enc"].optimizer
    assert state.step == 1 and {*state.slots} == {"m", "v"}


def two_equal_rnns_of_an_optimizer():
    model = torch.nn.ModuleDict({name: torch.nn.LSTM(5, 7) for name in "ab"})

    def load_trained(parameters):
        optimizer = torch.optim.Adam(parameters)
        sum(rnn(torch.ones(4, 5))[0].sum() for rnn in model.values()).backward()
        optimizer.step()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "m.pt")
        return rl.load("m.pt")["model.a"].optimizer

    text = yield lambda: load_trained(model.parameters()).notes[0]
    assert not load_trained(followed(text, r"pass (.*?) to it", model=model)).notes


gradients_in_a_file = asked(
    rl.convert_file, "g.npz", "new.npz", to="keras",
    before=lambda: (np.savez("w.npz", **{name: np.ones_like(a) for name, a in tensors().items()}),
                    rl.convert_file("w.npz", "g.npz", to="torch", kind="gradient")),
)  # fmt: skip
