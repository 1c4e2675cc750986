"""Cases of hints about files. A function yields what gives a hint, and then does what it says."""

import json
import re
from functools import partial
from pathlib import Path

import equinox
import flax
import jax
import numpy as np
import onnx
import tensorflow as tf
import torch
from files.hostile.trees import nd, params
from hints.following import (
    GRU,
    LSTM,
    RELU,
    asked,
    each,
    followed,
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
    Path("group1-shard1of1.bin").write_bytes(bytes(1456))
    Path("model.json").write_text('{"format": "layers-model", "modelTopology": {}}')
    Path("weights_manifest.json").write_text('[{"paths": ["group1-shard1of1.bin"]}]')
    yield lambda: rl.load("model.json")
    yield lambda: rl.load("weights_manifest.json")
    yield lambda: rl.load("group1-shard1of1.bin")
    rl.save("model.h5", rl.Weights(tensors(layout="keras")))  # as tensorflowjs_converter does
    rl.load("model.h5")


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


def json_that_is_not_weights():
    path, weights = "state.json", tensors()
    Path(path).write_text(json.dumps({name: array.tolist() for name, array in weights.items()}))
    text = yield lambda: rl.load(path)
    code = re.search(r"in Python, (rl\.Weights\(.*\))", text)[1].replace("prefix=...", 'prefix=""')
    names = {"rl": rl, "numpy": np, "json": json, "path": path}
    assert eval(code, names).spec == LSTM
    state = {f"rec.{name}": array.tolist() for name, array in weights.items()}
    Path(path).write_text(json.dumps({"model_data": {}, "state_dict": state}))  # of GuitarML
    text = yield lambda: rl.load(path)
    assert (
        eval(re.search(r"in Python, (rl\.Weights\(.*\)) is its RNN", text)[1], names).spec == LSTM
    )


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
    Path("orbax").mkdir()
    Path("orbax/_CHECKPOINT_METADATA").write_bytes(b"x")
    yield lambda: rl.load("orbax")
    params = flax.traverse_util.unflatten_dict(tensors(layout="flax-linen"), sep="/")
    Path("w.msgpack").write_bytes(flax.serialization.to_bytes(params))
    rl.load("w.msgpack")


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
