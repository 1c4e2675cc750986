"""Files that multiply one of their parts by another: each grows with n, and so may their cost.

PRODUCTS: name and suffix -> a function of n that returns the bytes of a file, and those of the
file beside it if it has one. Random damage never makes such files: many entries that refer to one
block, n names of length n, strides of 0. Each format has one; each is tried with two n, of which
the larger makes a file of about a megabyte at the most.
"""

import io
import json
import pickle
import struct
import zipfile

import h5py
import msgpack
import numpy as np
import onnx
from files.hostile import modules, onnxes, pickles, tensor_sets, trees
from files.hostile.case import EITHER, Case
from files.hostile.good import (
    BESIDE,
    HEADER,
    allowed,
    archive,
    beside,
    block,
    entries_of,
    entry,
    good,
    indexed,
    members,
    numbers,
    stored,
    table,
    weights,
)
from files.hostile.hdf5 import first_text_again
from onnx import helper

NOTHING = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}


# ---------------------------------------------------------------------------------- named tensors


def safetensors(names, **metadata):
    """Return a file of tensors without elements."""
    return tensor_sets.header(dict.fromkeys(names, NOTHING) | metadata, b"")


def records(n):
    """n records of RNNs of n layers, whose tensors do not exist."""
    spec = {"schema": 1, "cell": "lstm", "input_size": 1, "hidden_size": 1, "num_layers": n}
    one = {"prefix": "", "layout": "torch", "options": {}, "spec": spec, "config": {}}
    entries = {f"{k}": one for k in range(n)}
    text = json.dumps({"schema": 1, "entries": entries})
    return safetensors((f"{k}" for k in range(n)), __metadata__={"rnnlayout": text})


def numpy_array(width=118):
    told = b"{'descr': '<f4', 'fortran_order': False, 'shape': (0,)}"
    return tensor_sets.array(told.ljust(width - 1) + b"\n")


def long_headers(n):
    """n / 10 members whose headers are 64 KB of spaces each, deflated."""
    members = {f"{k}.npy": numpy_array(65000) for k in range(n // 10)}
    return archive(members, zipfile.ZIP_DEFLATED)


def numpy_names(n):
    return archive({f"{k}{'a.' * 20}.npy": numpy_array() for k in range(n // 10)})


def fields(n):
    """An array whose dtype has n fields."""
    dtype = ",".join(f"('f{k}','<f4')" for k in range(n))
    told = b"{'descr': [%b], 'fortran_order': False, 'shape': (0,)}\n" % dtype.encode()
    return b"\x93NUMPY\2\0" + struct.pack("<I", len(told)) + told


def described_layers(n):
    """A weight space of one number, with the JSON of an RNN of n layers and n lists."""
    spec = {"cell": "lstm", "input_size": 1, "hidden_size": 1, "num_layers": n}
    return bytes(4), json.dumps({"schema": 1, **spec, "config": {"a": [[]] * 40 * n}}).encode()


# ---------------------------------------------------------------------------------------- pickles

ORDERED = b"ccollections\nOrderedDict\n"


def key(k):
    return b"U\6%06d" % k


def rebuilt(storage, shape, strides):
    """Return the program of a tensor."""
    place = storage + pickles.long(0) + pickles.sizes(*shape) + pickles.sizes(*strides)
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + place + b"\x89NtR"


def views(n, rows=100):
    """n views of one storage, each so many times as large as it."""
    view = rebuilt(pickles.storage(4), (rows, 4), (0, 1))
    return pickles.in_archive(b"\x80\x02}(" + b"".join(key(k) + view for k in range(n)) + b"u.")


def storages(n):
    """The older form, with n storages that are empty."""
    many = (key(k) + rebuilt(pickles.storage(0, key=key(k)), (0,), (1,)) for k in range(n))
    made = pickles.in_old(b"\x80\x02}(" + b"".join(many) + b"u.").removesuffix(pickle.dumps([], 2))
    return made + pickle.dumps([f"{k:06d}" for k in range(n)], 2) + bytes(8 * n)


def arrays_again(n):
    """n arrays of the same 400 n bytes."""
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0\x85U\1btR"
    dtype = b"cnumpy\ndtype\n(U\2f4K\0K\1tR"
    state = b"(K\1" + pickles.long(100 * n) + b"\x85" + dtype + b"\x89"
    data = b"B" + struct.pack("<I", 400 * n) + bytes(400 * n)
    many = (key(k) + array + state + b"h\0tb" for k in range(n // 4))
    return b"\x80\x02(" + data + b"q\0" + b"}(" + b"".join(many) + b"ut."


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


def in_pickle(program, form=pickles.in_archive):
    return form(b"\x80\x02" + program + b".", pickles.VALUES)


def again(one, n):
    """Return the program of a dict of n times the same."""
    return modules.mapping((b"%06d" % k, one) for k in range(n))


def module_again(n, form=pickles.in_archive):
    """A module with n tensors that is in another one n times."""
    first = modules.one_tensor() + b"q\7" + modules.module(parameters=again(b"h\7", n))
    return in_pickle(first + b"q\5" + modules.module(modules=again(b"h\5", n)), form)


def hidden_buffers(n):
    """n modules of which each has the same set of n texts."""
    texts = b"".join(modules.text(b"%06d" % k) for k in range(n))
    hidden = b"c__builtin__\nset\n](" + texts + b"e\x85Rq\5"
    one = modules.module(_non_persistent_buffers_set=b"h\5", _buffers=modules.PARAMETERS)
    return in_pickle(hidden + modules.module(modules=again(one, n // 8)))


def long_modules(n):
    """n tensors with names of n characters, up to 900, in 30 modules in each other."""
    tensors = ((b"%06d" % k + b"a" * min(n, 500), b"h\7") for k in range(n // 4))
    made = modules.one_tensor() + b"q\7" + modules.module(parameters=modules.mapping(tensors))
    for _ in range(30):
        made = made + b"q\5" + modules.module(modules=modules.mapping([(b"a" * 12, b"h\5")]))
    return in_pickle(made)


def rnns(n):
    """n RNNs, of which each says something about itself."""
    one = modules.module(parameters=modules.PARAMETERS, num_layers=pickles.long(10**9))
    return in_pickle(modules.module(modules=again(one, n // 8)))


def programs(n):
    """n classes of RNNs, each with a program of its own."""
    text = b"\nclass LSTM(Module):\n" + b"  mode : Final[str] = 7\n" * 20
    name = "__torch__.torch.nn.modules.rnn.___torch_mangle_{}"
    parts = {
        f"m/code/{name.format(k).replace('.', '/')}.py": text for k in range(n // 4)
    }  # fmt: skip
    state = modules.mapping([(b"training", b"\x89"), (b"weight_hh_l0", b"h\7")])
    many = (
        (b"%06d" % k, modules.instance(state, name.format(k).encode() + b"\nLSTM"))
        for k in range(n // 4)
    )
    whole = modules.mapping([*many, (b"training", b"\x89")])
    data = modules.one_tensor() + b"q\7" + modules.instance(whole, b"__torch__\nNet")
    return archive(parts | {"m/data.pkl": b"\x80\x02" + data + b".", "m/data/0": bytes(16)})


def packed_weights(n):
    """n / 8 names for the same packed weights."""
    first = modules.instance(modules.cell(modules.linear(modules.quantized(modules.RIGHT)) * 2),
                             modules.CELL)  # fmt: skip
    names = (b"%06d._all_weight_values.0.param" % k for k in range(n // 8))
    return in_pickle(first + b"q\5" + modules.mapping((name, b"h\5") for name in names))


def weights_again(n):
    """n weights of a program that are the same member of the archive."""
    one = {"path_name": "weight_0", "tensor_meta": {
        "dtype": 7, "sizes": modules.ints(3, 1), "strides": modules.ints(1, 1),
        "storage_offset": {"as_int": 0}}}  # fmt: skip
    return modules.exported({f"{k}.weight_hh_l0": one for k in range(n)})


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
    return indexed(data, [f"{k:06d}" for k in range(n)])


def entries_again(n, layout="torch"):
    """An RNN, and n tensors at the same 400 n bytes."""
    many = {f"{k:06d}": entry((100 * n,), 0, 400 * n) for k in range(n)}
    return table(entries_of(weights(layout)) | many), numbers(layout) + bytes(400 * n)


def saved_variables(n):
    """A SavedModel with n variables at the same 400 n bytes."""
    return good(".pb"), entries_again(n, "keras")


def subgraphs(n):
    """A model of TFLite with the same subgraph n times: a new table of the model and a new list of
    subgraphs, before all else, because offsets only point forward."""
    old = good(".tflite")

    def number(at, kind="I"):
        return struct.unpack_from(f"<{kind}", old, at)[0]

    root = number(0)
    fields = root - number(root, "i")
    codes, graphs, buffers = (
        at + number(at) for at in (root + number(fields + 4 + 2 * k, "H") for k in (1, 2, 4))
    )
    first = graphs + 4 + number(graphs + 4)
    at_fields, at_table, at_list = 8, 24, 44
    moved = -(-(at_list + 4 + 4 * n - 8) // 16) * 16  # by which all else moves
    table = struct.pack("<iIIII", at_table - at_fields, 3, *(
        to - (at_table + at) for at, to in
        ((8, codes + moved), (12, at_list), (16, buffers + moved))
    ))  # fmt: skip
    many = [first + moved - (at_list + 4 + 4 * k) for k in range(n)]
    made = struct.pack("<I4s7H2x", at_table, b"TFL3", 14, 20, 4, 8, 12, 0, 16)
    made += table + struct.pack(f"<I{n}I", n, *many)
    return made.ljust(8 + moved, b"\0") + old[8:]


def small_arrays(n):
    return numpy_array() * n


def mxnet_names(n):
    arrays = [trees.nd((0,), data=b"")] * (n // 4)
    return trees.params(*arrays, names=[f"{k}{'a.' * 200}" for k in range(n // 4)])


# ------------------------------------------------------------------------------------------ Keras


def h5(change, what=".h5"):
    """Return a good HDF5 file, by its suffix or its bytes, changed."""
    made = io.BytesIO(good(what) if isinstance(what, str) else what)
    with h5py.File(made, "r+") as file:
        change(file)
    return made.getvalue()


def texts(group, name, values):
    if name in group.attrs:
        del group.attrs[name]
    group.attrs.create(name, np.array(values, "S"))


def texts_again(n):
    """n / 2 names of layers in one place, of 1 KB."""
    return first_text_again(
        h5(lambda file: texts_of(file, ["x" * 1000, *["y"] * (n // 2)])), n // 2
    )


def texts_of(file, values):
    del file["model_weights"].attrs["layer_names"]
    file["model_weights"].attrs.create("layer_names", values, dtype=h5py.string_dtype())


def layers_again(n):
    """One layer that is listed n times, with one weight that is listed n times."""

    def change(file):
        weights = file["model_weights"]
        texts(weights, "layer_names", ["lstm"] * n)
        texts(weights["lstm"], "weight_names", ["lstm/lstm_cell/kernel"] * (n // 8))

    return h5(change)


def groups(n):
    """Groups in 60 groups with long names, over n / 2 datasets."""

    def change(file):
        group = file
        for _ in range(60):
            group = group.create_group("a" * (n // 10 + 1))
        for k in range(n // 2):
            group.create_dataset(f"{k}", (0,), "f4")

    return h5(change)


def unwritten(n):
    """n datasets of one text of a million bytes, none of it written."""

    def change(file):
        for k in range(n):
            file.create_dataset(f"aside/{k}", (1,), "S1000000")

    return h5(change)


def variables(n):
    """Groups of layers with long names in each other, over n cells."""

    def change(file):
        group = file
        for _ in range(30):
            group = group.create_group(f"layers/{'a' * (n // 10 + 1)}")
        for k in range(n // 20):
            for number, shape in enumerate([(1, 4), (1, 4)]):
                group.create_dataset(f"layers/lstm_{k}/cell/vars/{number}", shape, "f4")

    return h5(change, ".weights.h5")


def models(n):
    """Models in each other with long names, over n layers that have no weights."""
    inside = [{"class_name": "LSTM", "module": "keras.layers", "registered_name": None,
               "config": {"name": f"{k}", "units": 3}} for k in range(n)]  # fmt: skip
    for _ in range(30):
        inside = [{"class_name": "Functional", "config": {"name": "a" * n, "layers": inside}}]
    return keras(lambda layers: layers.extend(inside))


def kinds(n):
    """n / 4 layers of as many classes, with a group for each."""
    layers = [{"class_name": f"Kind{k}x", "config": {"name": f"{k}"}} for k in range(n // 4)]
    parts = members(keras(lambda others: others.extend(layers)))

    def change(file):
        for k in range(n // 4):
            file.create_group(f"layers/kind_{k}x")

    return archive(parts | {"model.weights.h5": h5(change, parts["model.weights.h5"])})


def empty_lists(n):
    """A deflated config of 1000 n empty lists."""
    return keras(lambda layers: layers[0].update(more=[[]] * 1000 * n), zipfile.ZIP_DEFLATED)


def zeros_in_zeros(n):
    """A deflated file of a dataset of 20 n KB zeros, whose chunk is deflated too."""

    def change(file):
        shape = (5000 * n,)
        file.create_dataset("aside", shape, "f4", chunks=shape, compression="gzip")[:] = 0

    parts = members(good(".keras"))
    parts["model.weights.h5"] = h5(change, parts["model.weights.h5"])
    return archive(parts, zipfile.ZIP_DEFLATED)


def keras(change, compression=zipfile.ZIP_STORED):
    """Return the good archive of Keras 3 with another config."""
    parts = members(good(".keras"))
    model = json.loads(parts["config.json"])
    change(model["config"]["layers"])
    return archive(parts | {"config.json": json.dumps(model).encode()}, compression)


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

    def change(layers):
        layers += [layer for layer in layers if layer["class_name"] == "LSTM"] * n

    return keras(change)


# ------------------------------------------------------------------------------------------- ONNX


def sequence(n):
    """n sequences, each of all before it."""
    nodes = [helper.make_node("SequenceConstruct", ["X"], ["s0"])]
    nodes += [helper.make_node("SequenceInsert", [f"s{k}", "X"], [f"s{k + 1}"]) for k in range(n)]
    return onnxes.model(nodes=nodes)


def uses(n):
    """n recurrent nodes whose weights are at the end of a chain of 90 nodes."""
    return onnxes.model(onnxes.of_n0(), onnxes.chain("Identity", 90), onnxes.lstms(n, "W"))


def claims(n):
    """n / 4 recurrent nodes, each with its own W: all are the same bytes of another file."""
    made = onnxes.model_of(nodes=onnxes.lstms(n // 4, "W{}"))
    for k in range(n // 4):
        tensor = onnx.TensorProto(name=f"W{k}", data_type=1, dims=[1, 12, 5])
        made.graph.initializer.append(stored(tensor, location=BESIDE, offset=0, length=240))
    return made.SerializeToString()


def graphs(n):
    """Graphs with long names in each other, over n recurrent nodes."""
    nodes = [helper.make_node("LSTM", ["X"], [f"Y{k}"], f"{k}") for k in range(n)]
    for _ in range(20):
        inside = helper.make_graph(nodes, "g", [], [])
        nodes = [helper.make_node("If", ["X"], ["Z"], "a" * n, then_branch=inside)]
    return onnxes.model(nodes=nodes)


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


def nam(layers):
    """Return a model of that many layers of one unit."""
    sizes = {"input_size": 1, "hidden_size": 1, "num_layers": layers}
    return json.dumps({"version": "0.5.4", "architecture": "LSTM", "config": sizes,
                       "weights": [0] * (14 * layers + 2)}).encode()  # fmt: skip


PRODUCTS = {
    "layers.json": rtneural_layers,
    "types.json": lambda n: rtneural(
        [{"type": f"{k}" + "a" * (n // 10), "shape": [1], "weights": [1]} for k in range(n // 4)]
    ),
    "lists.json": lambda n: rtneural(
        [{"type": "lstm", "shape": [1], "weights": [[[]] * (50 * n)] * 3}]
    ),
    "layers.nam": nam,
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
    "fields.npy": fields,
    "layers and lists.bin": described_layers,
    "storages.old.pt": storages,
    "arrays again.pkl": arrays_again,
    "arrays again.pdparams": arrays_again,
    "arrays.eqx": small_arrays,
    "entries again.index": entries_again,
    "variables again.pb": saved_variables,
    "subgraphs.tflite": subgraphs,
    "variables.weights.h5": variables,
    "models.keras": models,
    "kinds.keras": kinds,
    "empty lists.keras": empty_lists,
    "zeros in zeros.keras": zeros_in_zeros,
    "graphs.onnx": graphs,
    "views.pt": views,
    "large views.pt": lambda n: views(n, 1 << 22),  # of 64 MB each
    "a module again.module.pt": module_again,
    "a module again.old.module.pt": lambda n: module_again(n, pickles.in_old),
    "hidden buffers.pt": hidden_buffers,
    "names in modules.pt": long_modules,
    "recurrent modules.pt": rnns,
    "programs.script.pt": programs,
    "packed weights.packed.pt": packed_weights,
    "weights.pt2": weights_again,
    "pairs again.pkl": pairs_again,
    "lists again.pkl": lists_again,
    "a long key.pkl": deep_names,
    "a long key.msgpack": leaves,
    "long keys.msgpack": nested_keys,
    "handles of a block.index": handles,
    "names.params": mxnet_names,
    "a layer again.h5": layers_again,
    "texts again.h5": texts_again,
    "groups.h5": groups,
    "unwritten texts.h5": unwritten,
    "unknown classes.keras": classes,
    "equal names.keras": equal_names,
    "sequences.onnx": sequence,
    "uses of a chain.onnx": uses,
    "claims of the same bytes.data.onnx": claims,
    "long names.onnx": value_names,
}
SIZES = (480, 4800)
CASES = {
    name.replace(".", f", {n}.", 1): Case(
        lambda path, make=make, n=n: with_data(path, make(n)), codes=EITHER
    )
    for name, make in PRODUCTS.items()
    for n in SIZES
}


def with_data(path, data):
    beside(path)
    if isinstance(data, tuple):
        data, more = data
        if path.suffix == ".pb":
            index, more = more
            allowed(path)[-2].write_bytes(index)
        allowed(path)[1 if path.suffix == ".bin" else -1].write_bytes(more)
    return data
