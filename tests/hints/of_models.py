"""Cases of hints about files of PyTorch, ONNX and Keras. A function yields what gives a hint, and
then does what it says.
"""

import contextlib
import io
import pickle
import re
import tarfile
from pathlib import Path

import numpy as np
import onnx
import tf_keras
import torch
from files.hostile.good import archive as zip_of, good
from files.keras import old_models as old
from hints.following import LSTM, asked, convert, followed, notes, repaired, tensors

import rnnlayout as rl

# -------------------------------------------------------------------------------------- torch


def pickles():
    state = {name: array for name, array in tensors().items()}
    Path("w.pkl").write_bytes(pickle.dumps(state, protocol=0))
    yield lambda: rl.load("w.pkl")
    Path("w.pkl").write_bytes(pickle.dumps(state, protocol=2))
    rl.load("w.pkl")
    state = torch.nn.LSTM(5, 7).state_dict()
    Path("w.pkl").write_bytes(pickle.dumps(state))
    yield lambda: rl.load("w.pkl")
    torch.save(pickle.loads(Path("w.pkl").read_bytes()), "w.pt")
    rl.load("w.pt")


def archives_of_torch():
    with torch.package.PackageExporter("package.pt") as exporter:
        exporter.extern("**")
        exporter.save_pickle("model", "model.pkl", torch.nn.LSTM(5, 7))
    yield lambda: rl.load("package.pt")
    model = torch.package.PackageImporter("package.pt").load_pickle("model", "model.pkl")
    torch.save(model.state_dict(), "w.pt")
    rl.load("w.pt")
    Path("old.pt2").write_bytes(
        zip_of({"serialized_exported_program.json": b"{}", "version": b"8.8"})
    )
    yield lambda: rl.load("old.pt2")
    Path("m.pt2").write_bytes(good(".pt2"))
    torch.export.save(torch.export.load("m.pt2"), "new.pt2")
    rl.load("new.pt2")
    with tarfile.open("old.pt", "w") as file:  # as torch.save() wrote before 0.2
        for name in ("sys_info", "pickle", "tensors", "storages"):
            file.addfile(tarfile.TarInfo(name))
    yield lambda: rl.load("old.pt")
    torch.save(torch.nn.LSTM(5, 7).state_dict(), "new.pt")
    rl.load("new.pt")


def quantized_checkpoints():
    """Packed weights of two layers, or of two directions."""
    model = torch.nn.ModuleDict({"enc": torch.nn.LSTM(7, 7, 2), "dec": torch.nn.LSTM(5, 7)})
    made = torch.ao.quantization.quantize_dynamic(model, {torch.nn.LSTM})
    torch.save(made.state_dict(), "q.pt")
    yield lambda: notes(rl.load("q.pt"))
    torch.save(made, "m.pt")
    rl.load("m.pt")["enc"]


a_checkpoint_that_is_a_list = repaired(
    lambda: convert("w.pt", "n.pt", to="cudnn"), lambda: rl.load("n.pt", spec=LSTM),
    before=lambda: torch.save([torch.nn.LSTM(5, 7).state_dict()], "w.pt"),
)  # fmt: skip


class Mine(torch.nn.LSTM):
    pass


def load_enc(path, **more):
    return rl.load(path, **more)["enc"]


a_class_of_the_users = asked(
    load_enc, "m.pt",
    before=lambda: torch.save(torch.nn.ModuleDict({"enc": Mine(5, 7)}), "m.pt"),
)  # fmt: skip


# --------------------------------------------------------------------------------------- onnx


class Net(torch.nn.Module):
    def __init__(self, rnn):
        super().__init__()
        self.enc = rnn

    def forward(self, x):
        return self.enc(x)[0]


def export(rnn, path, **options):
    with contextlib.redirect_stdout(io.StringIO()):
        torch.onnx.export(Net(rnn).eval(), (torch.zeros(4, 1, 5),), path, **options)


def weights_beside_a_model():
    rnn = torch.nn.LSTM(5, 70)
    export(rnn, "m.onnx")
    data = Path("m.onnx.data").read_bytes()
    Path("m.onnx.data").write_bytes(data[:-100])
    yield lambda: rl.load("m.onnx")["enc"]
    export(rnn, "alone.onnx", external_data=False)
    rl.load("alone.onnx")["enc"]
    model = onnx.load("m.onnx", load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            entry.value = "sub/m.data" if entry.key == "location" else entry.value
    Path("m.onnx.data").unlink()
    Path("sub").mkdir()
    Path("sub/m.data").write_bytes(data)
    Path("m.onnx").write_bytes(model.SerializeToString())
    text = yield lambda: rl.load("m.onnx")["enc"]  # which asks for alone.onnx again, or:
    exec(text.split(", or ")[-1], {"onnx": onnx, "path": "m.onnx", "new": "new.onnx"})
    rl.load("new.onnx")["enc"]


def exported_programs():
    model = torch.nn.LSTM(5, 7).eval()
    program = torch.export.export(model, (torch.zeros(4, 1, 5),))
    yield lambda: rl.Weights(program)
    assert rl.Weights(program.state_dict) == rl.Weights(model.state_dict())


def frozen_programs():
    model = torch.nn.Sequential(torch.nn.LSTM(5, 7)).eval()
    program = torch.jit.script(model)
    yield lambda: rl.Weights(torch.jit.freeze(program))
    assert rl.Weights(program) == rl.Weights(model)


def what_exporters_of_torch_lose():
    rl.save("m.onnx", rl.Weights(torch.nn.GRU(5, 7)).to("onnx"))
    model = onnx.load("m.onnx")
    del model.metadata_props[:]
    (node,) = (one for one in model.graph.node if one.op_type == "GRU")
    node.attribute.remove(next(a for a in node.attribute if a.name == "linear_before_reset"))
    onnx.save(model, "m.onnx")
    text = yield lambda: notes(rl.load("m.onnx"))
    assert not rl.load("m.onnx", reset=followed(text, r"pass reset=('\w+')")).notes
    export(torch.nn.RNN(5, 7), "m.onnx")
    yield lambda: rl.load("m.onnx")
    export(torch.nn.RNN(5, 7), "m.onnx", dynamo=False)
    rl.load("m.onnx")["/enc/RNN"]
    module = torch.nn.LSTM(5, 7, proj_size=3)
    export(module, "m.onnx", dynamo=True)
    yield lambda: rl.load("m.onnx")
    rl.convert(module, to="torch")
    rl.convert(module.state_dict(), to="torch")


# -------------------------------------------------------------------------------------- keras


def weights_of_keras_2(libver=None, **stored):
    """Write the weights of an LSTM as Keras 2.2 does: without its activations."""
    made = {f"enc/{name}": array for name, array in tensors(layout="keras").items()}
    old.write_arrays("w.h5", {"enc": made}, "2.2.4", libver=libver, **stored)


def keras_config(path, activation="hard_sigmoid"):
    layer = tf_keras.layers.LSTM(7, recurrent_activation=activation, name="enc")
    model = tf_keras.Sequential([tf_keras.Input((4, 5)), layer])
    Path(path).write_text(model.to_json())
    return model


def save_weights_and_config():
    weights_of_keras_2()
    keras_config("config.json")


an_activation_that_is_not_recorded = asked(
    load_enc, "w.h5", known={"keras_config": "config.json"}, before=save_weights_and_config
)
an_activation_of_another_keras = asked(
    load_enc, "w.h5", recurrent_activation="hard_sigmoid", before=weights_of_keras_2
)


def save_whole(activation="hard_sigmoid"):
    keras_config("config.json", activation).save("m.h5")


def save_smooth():
    save_whole("sigmoid")


CONVERT = (convert, "m.h5", "n.h5")
a_config_of_a_whole_model = asked(rl.load, "m.h5", keras_config="config.json", before=save_whole)
a_prefix_of_a_whole_model = asked(*CONVERT, to="keras", prefix="enc", before=save_whole)
classes_of_a_whole_model = asked(*CONVERT, to="keras", as_class={"A": "LSTM"}, before=save_whole)
bfloat16_of_a_whole_model = asked(*CONVERT, to="keras", dtype="bfloat16", before=save_whole)
float16_of_a_whole_model = asked(*CONVERT, to="keras", dtype="float16", before=save_smooth)


def weights_alone():
    model = tf_keras.Sequential([tf_keras.Input((4, 5))])
    model.add(tf_keras.layers.LSTM(7, recurrent_activation="hard_sigmoid", name="enc"))
    model.save_weights("w.h5")
    text = yield lambda: convert("w.h5", "n.h5", to="keras")
    activation = followed(text, r"pass recurrent_activation=('\w+')")
    assert "if the model has one" not in convert(
        "w.h5", "n.h5", to="keras", recurrent_activation=activation
    )
    model.save("m.h5")
    convert("m.h5", "n.h5", to="keras")


def files_of_keras_1():
    arrays = old.keras_1_arrays("LSTM", "enc", np.random.default_rng(0))
    for config, told in (
        (old.keras_1_model("enc"), {}),
        (None, {"recurrent_activation": "hard_sigmoid_keras2"}),
    ):
        old.write_arrays("old.h5", {"enc": arrays}, "1.2.2", config, suffix="")
        yield lambda told=told: convert("old.h5", "n.h5", to="keras", **told)
        rl.load("old.h5", **told)["enc"]


def classes_of_a_model():
    import keras

    own = type("OwnLSTM", (keras.layers.LSTM,), {})
    keras.Sequential([keras.Input((4, 5)), own(7, name="enc")]).save("m.keras")
    yield from asked(load_enc, "m.keras")()
    text = yield lambda: rl.load("m.keras", as_class={"Other": "LSTM"})
    name = followed(text, r"unknown classes: (.*)")
    rl.load("m.keras", as_class={name: "LSTM"})["enc"]


def layers_of_two_classes_or_of_one_name():
    one = rl.Weights(tensors(layout="keras"))
    both = {"a": one, "b": one.to("keras-cudnn")}
    text = yield lambda: rl.save("m.h5", both)
    to = re.search(r"convert with (\.to\(.*?\)) first", text)[1]
    convert = eval(f"lambda one: one{to}")  # CPython 3.13.0 crashes at eval() in a comprehension
    rl.save("m.h5", {name: convert(one) for name, one in both.items()})
    stack = rl.Weights(tensors(rl.Spec("lstm", 5, 7, 2), "keras"))
    yield lambda: rl.save("m.keras", {"enc": stack, "enc_1": one})
    rl.save("m.keras", {"a": stack, "b": one})
    rl.save("m.keras", stack)


def chunks_of_the_newest_hdf5():
    weights_of_keras_2(libver="latest", chunks=True)
    yield lambda: rl.load("w.h5")
    weights_of_keras_2(chunks=True)
    rl.load("w.h5", recurrent_activation="sigmoid")["enc"]
