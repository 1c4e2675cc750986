"""Files that store one thing and use it n times: reading them, and all that commands do with what
was read, must cost what they store.

USES: name and suffix -> a function of n that returns the bytes of a file, or a function of its path
that also writes the file beside it. Each is one thing that a format lets a file use again.
"""

import io
import json
import os
import zipfile

import h5py
import numpy as np
import onnx
from files.hostile import onnxes
from files.hostile.case import EITHER, Case
from files.hostile.good import (
    BESIDE,
    HEADER,
    archive,
    beside,
    entry,
    indexed,
    members,
    stored,
    varint,
    weights,
)
from files.hostile.pickles import dumped, in_archive, view
from files.hostile.products import h5, keras
from onnx import helper

import rnnlayout as rl

DEFLATED = zipfile.ZIP_DEFLATED


def shapes(hidden_size):
    return dict(rl.describe(rl.Spec("lstm", 5, hidden_size), "torch").items())


# ------------------------------------------------------------------------------------------ Keras


def layer(kind, name, **config):
    return {"class_name": kind, "module": "keras.layers", "registered_name": None,
            "config": {"name": name, **config}}  # fmt: skip


def changed_keras(layers, change):
    """Return the good archive with more layers in its config, and a change of its variables."""
    parts = members(keras(lambda config: config.extend(layers)))
    with io.BytesIO(parts["model.weights.h5"]) as made:
        with h5py.File(made, "r+") as file:
            change(file)
        parts["model.weights.h5"] = made.getvalue()
    return archive(parts, DEFLATED)


def one_group(n):
    """n layers in one wrapper, which all have the group of the wrapper: a megabyte of zeros."""

    def change(file):
        cell = file.create_group("layers/time_distributed/layer/cell/vars")
        for number, shape in enumerate([(16, 1024), (256, 1024), (1024,)]):
            cell.create_dataset(f"{number}", shape, "f4")

    layers = [layer("LSTM", f"{k}", units=256) for k in range(n)]
    return changed_keras([layer("TimeDistributed", "wrapper", layer=layers)], change)


def wrappers(n):
    """n wrappers, in 25 others that are in each other."""

    def change(file):
        file.create_group("layers/time_distributed" + "/layer" * 30)

    inner = [
        layer("TimeDistributed", f"{k}", layer=layer("LSTM", f"{k}", units=3)) for k in range(n)
    ]
    for _ in range(25):
        inner = [layer("TimeDistributed", "wrapper", layer=inner)]
    return changed_keras(inner, change)


def config_paths(n):
    """n layers in 25 models with long names."""
    inner = [layer("LSTM", f"{k}", units=3) for k in range(n)]
    for _ in range(25):
        inner = [layer("Functional", "a" * 200, layers=inner)]
    return keras(lambda layers: layers.extend(inner), DEFLATED)


def spellings(n):
    """A cell in a list of weights up to 200 times, each time with other slashes: a//b for a/b."""

    def change(file):
        for name in [*file.attrs]:
            del file.attrs[name]
        steps = [
            f"lstm{'/' * (1 + k % 16)}lstm_cell{'/' * (1 + k // 16)}" for k in range(min(n, 200))
        ]
        leaves = ("kernel", "recurrent_kernel", "bias")
        names = [step + leaf for step in steps for leaf in leaves]
        file["model_weights/lstm"].attrs["weight_names"] = np.array(names, "S")

    return h5(change)


def zeros_h5(n):
    """An LSTM of n units, up to 2,000, whose matrices are not written."""

    def change(file):
        for name in [*file.attrs]:
            del file.attrs[name]
        cell, units = file["model_weights/lstm/lstm/lstm_cell"], min(n, 2000)
        for name, rows in {"kernel": (5,), "recurrent_kernel": (units,), "bias": ()}.items():
            del cell[name]
            cell.create_dataset(name, (*rows, 4 * units), "f4")

    return h5(change)


# ------------------------------------------------------------------------------------ one vector


def zeros(hidden_size, num_layers):
    """A weight space of zeros, deflated."""
    spec = rl.Spec("lstm", hidden_size, hidden_size, num_layers)
    record = {"prefix": "", "layout": "cudnn", "options": {}, "spec": spec.to_dict(), "config": {}}
    with io.BytesIO() as made:
        np.save(made, np.zeros(spec.num_params, "f4"))
        array = made.getvalue()
    text = json.dumps({"schema": 1, "entries": {"lstm": record}})
    return archive({"weight_space.npy": array, "rnnlayout.json": text}, DEFLATED)


# ---------------------------------------------------------------------------------------- pickles


def repeated(shape):
    """Return a tensor that is one number."""
    return view(shape, (0,) * len(shape))


def stride_0(n):
    """An LSTM of n units whose weights are one number."""
    return in_archive(dumped({name: repeated(shape) for name, shape in shapes(n).items()}))


def weight_norm(n):
    """The same LSTM with a matrix that is computed from its directions and lengths."""
    tensors = shapes(n)
    tensors["weight_hh_l0_v"] = tensors.pop("weight_hh_l0")
    tensors["weight_hh_l0_g"] = (4 * n, 1)
    return in_archive(dumped({name: repeated(shape) for name, shape in tensors.items()}))


def deflated(tensors):
    """Return an archive whose pickle alone is deflated."""
    with io.BytesIO() as made:
        with zipfile.ZipFile(made, "w") as file:
            file.writestr("m/data.pkl", dumped(tensors), DEFLATED)
            file.writestr("m/data/0", bytes(16))
            file.writestr("m/version", b"3\n")
        return made.getvalue()


def rnns(n):
    """n RNNs of the same number."""
    names = shapes(1).items()
    return deflated({f"{k}.{name}": repeated(shape) for k in range(n) for name, shape in names})


# ------------------------------------------------------------------------------------------- ONNX


def nodes(n, name, array, at):
    """n nodes with the same array as one of their inputs."""
    made = onnxes.model_of({name: array})
    for k in range(n):
        inputs = ["X", "W", "R", "B", *[""] * (at - 4), name]
        node = helper.make_node("LSTM", inputs, [f"Y{k}"], f"lstm{k}", hidden_size=3)
        made.graph.node.append(node)
    return made.SerializeToString()


def calls(n, inputs=1, outputs=1, attributes=0):
    """n calls of a function that has n inputs, outputs or attributes."""
    identity = helper.make_node("Identity", ["x0"], [f"y{k}" for k in range(outputs)])
    function = helper.make_function(
        "mine", "F", [f"x{k}" for k in range(inputs)], ["y0"], [identity],
        [helper.make_opsetid("", 14)], [],
        [helper.make_attribute(f"a{k}", 1) for k in range(attributes)])  # fmt: skip
    made = [helper.make_node("F", ["X"], [f"z{k}"], domain="mine") for k in range(n)]
    return onnxes.model(nodes=made, functions=[function])


def concats(n):
    """n nodes, whose W joins the tensor and n others without elements."""
    tensors = {"W": None, "n0": weights("onnx")["W"], "none": np.zeros((0, 12, 5), "f4")}
    join = helper.make_node("Concat", ["n0", *["none"] * n], ["W"], axis=0)
    return onnxes.model(tensors, [join], onnxes.lstms(n, "W"))


def unread_state(n):
    """n nodes, whose initial state comes from n nodes that are not read."""
    before = onnxes.chain_of(n, "Mul", "again")
    made = onnxes.model_of({"n0": np.ones((1, 1, 3), "f4")}, before)
    for k in range(n):
        inputs = ["X", "W", "R", "B", "", f"n{n}"]
        made.graph.node.append(
            helper.make_node("LSTM", inputs, [f"Y{k}"], f"lstm{k}", hidden_size=3)
        )
    return made.SerializeToString()


def sparse(n):
    """n sparse tensors without elements."""
    made = onnxes.model_of()
    for k in range(n):
        values = onnx.TensorProto(name=f"{k}", data_type=1, dims=[0])
        made.graph.sparse_initializer.append(onnx.SparseTensorProto(values=values, dims=[1]))
    return made.SerializeToString()


def hole(n):
    """Weights in a file of n / 16 MB, of which the disk stores nothing."""

    def write(path):
        hidden_size = 64 * int(n**0.5)
        dims = {"W": [1, 4 * hidden_size, 5], "R": [1, 4 * hidden_size, hidden_size]}
        other = path.with_name(BESIDE)
        other.unlink(missing_ok=True)
        other.touch()
        os.truncate(other, 4 * int(np.prod(dims["R"])))
        tensors = {"B": None}
        for name, shape in dims.items():
            tensor = onnx.TensorProto(name=name, data_type=1, dims=shape)
            tensors[name] = stored(tensor, location=BESIDE, length=4 * int(np.prod(shape)))
        made = onnxes.model_of(tensors)
        node = helper.make_node("LSTM", ["X", "W", "R"], ["Y"], "lstm", hidden_size=hidden_size)
        made.graph.node[0].CopyFrom(node)
        return made.SerializeToString()

    return write


# -------------------------------------------------------------------------------------------- TF


def slashes(n, start="/" * 3000):
    """n keys of a table that share their beginning, which the table stores once."""
    value = entry((0,), 0, 0)
    data = b"\0\0" + varint(len(HEADER)) + HEADER
    data += b"\0" + varint(len(start)) + varint(len(value)) + start.encode() + value
    for k in range(n):
        data += varint(len(start)) + varint(6) + varint(len(value)) + b"%06d" % k + value
    return indexed(data + bytes(4) + (1).to_bytes(4, "little") + bytes(5), ["a"])


USES = {
    "a group of many layers.keras": one_group,
    "wrappers.keras": wrappers,
    "paths in a config.keras": config_paths,
    "spellings.h5": spellings,
    "zeros.h5": zeros_h5,
    "zeros.npz": lambda n: zeros(min(n, 1000), 1),
    "layers of zeros.npz": lambda n: zeros(1, n),
    "stride 0.pt": stride_0,
    "weight norm of stride 0.pt": weight_norm,
    "names of dots.pt": lambda n: deflated(  # more exceed the characters of names
        {f"{k}/a." + "0/a." * 200: view() for k in range(min(n, 2800))}
    ),
    "tensors.pt": lambda n: deflated({f"{k}": view() for k in range(n)}),
    "RNNs.pt": rnns,
    "a state of many nodes.onnx": lambda n: nodes(n, "state", np.ones((1, n, 3), "f4"), 5),
    "lengths of many nodes.onnx": lambda n: nodes(n, "lengths", np.ones(n, "i4"), 4),
    "a state that is not read.onnx": unread_state,
    "inputs of a function.onnx": lambda n: calls(n, inputs=n),
    "outputs of a function.onnx": lambda n: calls(n, outputs=n),
    "attributes of a function.onnx": lambda n: calls(n, attributes=n),
    "inputs of Concat.onnx": concats,
    "sparse tensors.onnx": sparse,
    "a hole.onnx": hole,
    "shared slashes.index": slashes,
}
# The tests of a plain run read one file of each, of up to 40 KB.
CASES = {
    name.replace(".", ", used 500 times.", 1): Case(
        lambda path, make=make: made(path, make, 500), codes=EITHER
    )
    for name, make in USES.items()
}


def made(path, make, n):
    """Write the files of USES for n uses, except the file itself, whose bytes are returned."""
    beside(path)
    data = make(n)
    return data(path) if callable(data) else data
