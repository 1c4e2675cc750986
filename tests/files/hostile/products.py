"""Files that multiply one of their parts by another: each grows with n, and so may their cost.

PRODUCTS: name and suffix -> a function of n that returns the bytes of a file. Random damage never
makes such files: many entries that refer to one block, n names of length n, strides of 0. Each is
tried with two n, of which the larger makes a file of about a megabyte at the most.
"""

import io
import json
import struct
import zipfile

import h5py
import msgpack
import numpy as np
import onnx
from files.hostile import onnxes, pickles, trees
from files.hostile.case import EITHER, Case
from files.hostile.good import (
    HEADER,
    MAGIC,
    archive,
    beside,
    block,
    entry,
    good,
    members,
    varint,
)
from onnx import helper

NOTHING = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}


# ---------------------------------------------------------------------------------- named tensors


def safetensors(names, metadata=None):
    """Return a file of tensors without elements."""
    told = {name: NOTHING for name in names}
    if metadata:
        told["__metadata__"] = metadata
    text = json.dumps(told).encode()
    return struct.pack("<Q", len(text)) + text


def records(n):
    """n records of RNNs of n layers, whose tensors do not exist."""
    spec = {"schema": 1, "cell": "lstm", "input_size": 1, "hidden_size": 1, "num_layers": n}
    one = {"prefix": "", "layout": "torch", "options": {}, "spec": spec, "config": {}}
    entries = {f"{k}": one for k in range(n)}
    text = json.dumps({"schema": 1, "entries": entries})
    return safetensors((f"{k}" for k in range(n)), {"rnnlayout": text})


def numpy_array(width=118):
    told = b"{'descr': '<f4', 'fortran_order': False, 'shape': (0,)}".ljust(width - 1) + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", width) + told


def long_headers(n):
    """n / 10 members whose headers are 64 KB of spaces each, deflated."""
    members = {f"{k}.npy": numpy_array(65000) for k in range(n // 10)}
    return archive(members, zipfile.ZIP_DEFLATED)


def numpy_names(n):
    return archive({f"{k}{'a.' * 20}.npy": numpy_array() for k in range(n // 10)})


# ---------------------------------------------------------------------------------------- pickles

ORDERED = b"ccollections\nOrderedDict\n"


def views(n):
    """n views of one storage, each a hundred times as large as it."""
    many = b"".join(
        b"U\6" + b"%06d" % k + b"ctorch._utils\n_rebuild_tensor_v2\n(" + pickles.storage(4)
        + pickles.long(0) + pickles.sizes(100, 4) + pickles.sizes(0, 1) + b"\x89N" + b"tR"
        for k in range(n)
    )  # fmt: skip
    return pickles.in_archive(b"\x80\x02}(" + many + b"u.")


def large_views(n):
    """n views of one storage of 1 KB, each of 64 MB."""
    many = b"".join(
        b"U\6" + b"%06d" % k + b"ctorch._utils\n_rebuild_tensor_v2\n(" + pickles.storage(4)
        + pickles.long(0) + pickles.sizes(1 << 22, 4) + pickles.sizes(0, 1) + b"\x89N" + b"tR"
        for k in range(n)
    )  # fmt: skip
    return pickles.in_archive(b"\x80\x02}(" + many + b"u.")


def pairs_again(n):
    """A tuple of n pairs, of which n dicts are made."""
    pairs = b"(" + b"".join(b"M" + struct.pack("<H", k) + b"N\x86" for k in range(n)) + b"t"
    return b"\x80\x02(" + ORDERED + b"q\0" + pairs + b"\x85q\1R" + b"h\0h\1R" * n + b"t."


def lists_again(n):
    """A list of n numbers, which is appended to n lists."""
    return b"\x80\x02](](" + b"K\1" * n + b"eq\0" + b"]h\0a" * n + b"e."


def deep_names(n):
    """A dict with a long key around n numbers."""
    key = b"X" + struct.pack("<I", 900) + b"a" * 900
    many = b"".join(b"M" + struct.pack("<H", k) + b"N" for k in range(n))
    return b"\x80\x02}" + key + b"}(" + many + b"us."


# ---------------------------------------------------------------------------- trees, checkpoints


def leaves(n):
    """One key of n characters over n arrays."""
    one = trees.array((0,), data=b"")
    return msgpack.packb({"a" * n: {f"{k}": one for k in range(n)}})


def nested_keys(n):
    """n / 100 arrays, each under 30 keys of its own."""
    found = trees.array((0,), data=b"")
    for _ in range(30):
        found = {"a" * (n // 10 + 1): found}
    return msgpack.packb({f"{k}": found for k in range(n // 100 + 1)})


def handles(n):
    """n handles of one block with n entries."""
    data = block({"": HEADER, **{f"{k:06d}": entry((0,), 0, 0) for k in range(n)}})
    handle = varint(0) + varint(len(data) - 5)
    index, none = block({f"{k:06d}": handle for k in range(n)}), block({})
    footer = varint(len(data)) + varint(len(none) - 5)
    footer += varint(len(data) + len(none)) + varint(len(index) - 5)
    return data + none + index + footer.ljust(40, b"\0") + MAGIC


def mxnet_names(n):
    arrays = [trees.nd((0,), data=b"")] * (n // 4)
    return trees.params(*arrays, names=[f"{k}{'a.' * 200}" for k in range(n // 4)])


# ------------------------------------------------------------------------------------------ Keras


def h5(change):
    """Return the good file of Keras 2, changed."""
    made = io.BytesIO(good(".h5"))
    with h5py.File(made, "r+") as file:
        change(file)
    return made.getvalue()


def texts(group, name, values):
    if name in group.attrs:
        del group.attrs[name]
    group.attrs.create(name, np.array(values, "S"))


def layers_again(n):
    """One layer that is listed n times, with one weight that is listed n times."""

    def change(file):
        weights = file["model_weights"]
        texts(weights, "layer_names", ["lstm"] * n)
        texts(weights["lstm"], "weight_names", ["lstm/lstm_cell/kernel"] * (n // 8))

    return h5(change)


def groups(n):
    """Groups in 60 groups with long names, over n datasets."""

    def change(file):
        group = file
        for _ in range(60):
            group = group.create_group("a" * (n // 10 + 1))
        for k in range(n):
            group.create_dataset(f"{k}", (0,), "f4")

    return h5(change)


def unwritten(n):
    """n datasets of one text of a million bytes, none of it written."""

    def change(file):
        for k in range(n):
            file.create_dataset(f"aside/{k}", (1,), "S1000000")

    return h5(change)


def keras(change):
    """Return the good archive of Keras 3 with another config."""
    parts = members(good(".keras"))
    model = json.loads(parts["config.json"])
    change(model["config"]["layers"])
    return archive(parts | {"config.json": json.dumps(model).encode()})


def classes(n):
    """n layers of n unknown classes that look recurrent."""
    own = {"units": 3, "recurrent_initializer": None, "return_sequences": True, "reset_after": True,
           "recurrent_activation": "sigmoid", "activation": "tanh"}  # fmt: skip
    return keras(
        lambda layers: layers.extend(
            {"class_name": f"Mine{k}", "registered_name": f"mine>Mine{k}", "module": "mine",
             "config": {"name": f"mine_{k}", **own}} for k in range(n)
        )
    )  # fmt: skip


def equal_names(n):
    """n recurrent layers of one name."""
    (one,) = (
        layer
        for layer in json.loads(members(good(".keras"))["config.json"])["config"]["layers"]
        if layer["class_name"] == "LSTM"
    )
    return keras(lambda layers: layers.extend([one] * n))


# ------------------------------------------------------------------------------------------- ONNX


def sequence(n):
    """n sequences, each of all before it."""
    nodes = [helper.make_node("SequenceConstruct", ["X"], ["s0"])]
    nodes += [helper.make_node("SequenceInsert", [f"s{k}", "X"], [f"s{k + 1}"]) for k in range(n)]
    return onnxes.model(nodes=nodes)


def uses(n):
    """n recurrent nodes whose weights are at the end of a chain of 90 nodes."""
    chain = onnxes.chain("Identity", 90)
    nodes = [
        helper.make_node("LSTM", ["X", "W", "R", "B"], [f"Y{k}"], f"lstm{k}", hidden_size=3)
        for k in range(n)
    ]
    return onnxes.model(onnxes.of_n0(), chain, nodes)


def value_names(n):
    """n initializers with names of n characters."""
    made = onnxes.model_of()
    for k in range(n // 10 + 1):
        made.graph.initializer.append(
            onnx.TensorProto(name=f"{k}" + "a." * (n // 4), data_type=1, dims=[0])
        )
    return made.SerializeToString()


# ------------------------------------------------------------------------------ real-time audio


def rtneural(layers, **more):
    return json.dumps({"in_shape": [None, None, 1], "layers": layers, **more}).encode()


def rtneural_layers(n, kind="lstm"):
    """n layers with one unit, or of another type."""
    arrays = [[[0, 0, 0, 0]], [[0, 0, 0, 0]], [0, 0, 0, 0]]
    return rtneural([{"type": kind, "shape": [1], "weights": arrays}] * n)


def nam(layers, hidden=1):
    """Return a model of that many layers."""
    count = layers * (8 * hidden**2 + 6 * hidden) + 4 * hidden * (1 - hidden) + hidden + 1
    sizes = {"input_size": 1, "hidden_size": hidden, "num_layers": layers}
    return json.dumps({"version": "0.5.4", "architecture": "LSTM", "config": sizes,
                       "weights": [0] * count}).encode()  # fmt: skip


PRODUCTS = {
    "layers.json": rtneural_layers,
    "types.json": lambda n: rtneural(
        [{"type": f"{k}" + "a" * (n // 10), "shape": [1], "weights": [1]} for k in range(n // 4)]
    ),
    "lists.json": lambda n: rtneural(
        [{"type": "lstm", "shape": [1], "weights": [[[]] * (50 * n)] * 3}]
    ),
    "in lists.json": lambda n: rtneural([]).replace(b"[]", b"[" * 100 * n + b"]" * 100 * n),
    "digits.json": lambda n: rtneural([], a=0).replace(b": 0", b": " + b"1" * 200 * n),
    "layers.nam": nam,
    "units.nam": lambda n: nam(1, n // 20),
    "a name of dots.safetensors": lambda n: safetensors(["a." * (5 * n)]),
    "names of dots.safetensors": lambda n: safetensors(
        f"{k}." + "a." * 100 for k in range(n // 20)
    ),
    "many names.safetensors": lambda n: safetensors(f"{k}/weight_hh_l0" for k in range(n // 2)),
    "names of RNNs.safetensors": lambda n: safetensors(
        f"{k}/{tensor}" for k in range(n // 8) for tensor in ("kernel", "recurrent_kernel", "bias")
    ),
    "records.safetensors": records,
    "long headers.npz": long_headers,
    "names.npz": numpy_names,
    "views.pt": views,
    "large views.pt": large_views,
    "pairs again.pkl": pairs_again,
    "lists again.pkl": lists_again,
    "a long key.pkl": deep_names,
    "a long key.msgpack": leaves,
    "long keys.msgpack": nested_keys,
    "handles of a block.index": handles,
    "names.params": mxnet_names,
    "a layer again.h5": layers_again,
    "groups.h5": groups,
    "unwritten texts.h5": unwritten,
    "unknown classes.keras": classes,
    "equal names.keras": equal_names,
    "sequences.onnx": sequence,
    "uses of a chain.onnx": uses,
    "long names.onnx": value_names,
}
SIZES = (480, 4800)
CASES = {
    f"{name[: name.rindex('.')]}, {n}{name[name.rindex('.') :]}": Case(
        lambda path, make=make, n=n: with_data(path, make(n)), codes=EITHER
    )
    for name, make in PRODUCTS.items()
    for n in SIZES
}


def with_data(path, data):
    beside(path)
    return data
