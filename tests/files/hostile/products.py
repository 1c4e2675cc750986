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
    table,
    weights,
)
from files.hostile.hdf5 import first_text_again
from onnx import helper


def times(n, one):
    """Return one(0) + one(1) + ... of n bytes."""
    return b"".join(map(one, range(n)))


# ---------------------------------------------------------------------------------- named tensors

ONE_UNIT = {"schema": 1, "cell": "lstm", "input_size": 1, "hidden_size": 1}
NUMPY = b"{'descr': '<f4', 'fortran_order': False, 'shape': (0,)}"


def safetensors(names, **metadata):
    """Return a file of tensors without elements."""
    nothing = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    return tensor_sets.header(dict.fromkeys(names, nothing) | metadata, b"")


def records(n):
    """n records of RNNs of n layers, whose tensors do not exist."""
    spec = ONE_UNIT | {"num_layers": n}
    one = {"prefix": "", "layout": "torch", "options": {}, "spec": spec, "config": {}}
    text = json.dumps({"schema": 1, "entries": {f"{k}": one for k in range(n)}})
    return safetensors((f"{k}" for k in range(n)), __metadata__={"rnnlayout": text})


def numpy_array(width=118):
    return tensor_sets.array(NUMPY.ljust(width - 1) + b"\n")


def arrays(n, name, *more):
    """An archive of n / 10 arrays. more: the width of a header, the compression."""
    width, *compression = more or [118]
    members = {f"{k}{name}.npy": numpy_array(width) for k in range(n // 10)}
    return archive(members, *compression)


def fields(n):
    """An array whose dtype has n fields."""
    dtype = b"[%b]" % b",".join(b"('f%d','<f4')" % k for k in range(n))
    told = NUMPY.replace(b"'<f4'", dtype) + b"\n"
    return b"\x93NUMPY\2\0" + struct.pack("<I", len(told)) + told


# ---------------------------------------------------------------------------------------- pickles


def key(k):
    return b"U\6%06d" % k


def rebuilt(storage, shape, strides):
    """Return the program of a tensor."""
    place = storage + pickles.long(0) + pickles.sizes(*shape) + pickles.sizes(*strides)
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + place + b"\x89NtR"


def views(n, rows=100):
    """n views of one storage, each so many times as large as it."""
    view = rebuilt(pickles.storage(4), (rows, 4), (0, 1))
    return pickles.in_archive(b"\x80\x02}(" + times(n, lambda k: key(k) + view) + b"u.")


def storages(n):
    """The older form, with n storages that are empty."""
    many = times(n, lambda k: key(k) + rebuilt(pickles.storage(0, key=key(k)), (0,), (1,)))
    made = pickles.in_old(b"\x80\x02}(" + many + b"u.").removesuffix(pickle.dumps([], 2))
    return made + pickle.dumps([f"{k:06d}" for k in range(n)], 2) + bytes(8 * n)


def arrays_again(n):
    """n / 4 arrays of the same 400 n bytes."""
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0\x85U\1btR"
    dtype = b"cnumpy\ndtype\n(U\2f4K\0K\1tR"
    state = b"(K\1" + pickles.long(100 * n) + b"\x85" + dtype + b"\x89h\0tb"
    data = b"B" + struct.pack("<I", 400 * n) + bytes(400 * n)
    return b"\x80\x02(" + data + b"q\0}(" + times(n // 4, lambda k: key(k) + array + state) + b"ut."


def numbered(n, one=b"N"):
    """Return the program of n numbers, each followed by a value."""
    return times(n, lambda k: b"M" + struct.pack("<H", k) + one)


def pairs_again(n):
    """A tuple of n pairs, of which n dicts are made."""
    pairs = b"(" + numbered(n, b"N\x86") + b"t\x85q\1R"
    return b"\x80\x02(ccollections\nOrderedDict\nq\0" + pairs + b"h\0h\1R" * n + b"t."


def deep_names(n):
    """A dict with a long key around n numbers."""
    return b"\x80\x02}X" + struct.pack("<I", 900) + b"a" * 900 + b"}(" + numbered(n) + b"us."


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
    """n / 8 modules of which each has the same set of n texts."""
    hidden = b"c__builtin__\nset\n](" + times(n, lambda k: modules.text(b"%06d" % k)) + b"e\x85Rq\5"
    one = modules.module(_non_persistent_buffers_set=b"h\5", _buffers=modules.PARAMETERS)
    return in_pickle(hidden + modules.module(modules=again(one, n // 8)))


def long_modules(n):
    """n / 4 tensors with names of n characters, up to 500, in 30 modules in each other."""
    tensors = ((b"%06d" % k + b"a" * min(n, 500), b"h\7") for k in range(n // 4))
    made = modules.one_tensor() + b"q\7" + modules.module(parameters=modules.mapping(tensors))
    for _ in range(30):
        made += b"q\5" + modules.module(modules=modules.mapping([(b"a" * 12, b"h\5")]))
    return in_pickle(made)


def programs(n):
    """n / 4 classes of RNNs, each with a program of its own."""
    text = b"\nclass LSTM(Module):\n" + b"  mode : Final[str] = 7\n" * 20
    names = [f"__torch__.torch.nn.modules.rnn.___torch_mangle_{k}" for k in range(n // 4)]
    parts = {f"m/code/{name.replace('.', '/')}.py": text for name in names}
    state = modules.mapping([(b"training", b"\x89"), (b"weight_hh_l0", b"h\7")])
    many = [(b"%06d" % k, modules.instance(state, name.encode() + b"\nLSTM"))
            for k, name in enumerate(names)]  # fmt: skip
    whole = modules.mapping([*many, (b"training", b"\x89")])
    data = modules.one_tensor() + b"q\7" + modules.instance(whole, b"__torch__\nNet")
    return archive(parts | {"m/data.pkl": b"\x80\x02" + data + b".", "m/data/0": bytes(16)})


def packed_weights(n):
    """n / 8 names for the same packed weights."""
    state = modules.cell(modules.linear(modules.quantized(modules.RIGHT)) * 2)
    names = (b"%06d._all_weight_values.0.param" % k for k in range(n // 8))
    again = modules.mapping((name, b"h\5") for name in names)
    return in_pickle(modules.instance(state, modules.CELL) + b"q\5" + again)


def weights_again(n):
    """n weights of a program that are the same member of the archive."""
    one = {"path_name": "weight_0", "tensor_meta": {
        "dtype": 7, "sizes": modules.ints(3, 1), "strides": modules.ints(1, 1),
        "storage_offset": {"as_int": 0}}}  # fmt: skip
    return modules.exported({f"{k}.weight_hh_l0": one for k in range(n)})


# ---------------------------------------------------------------------------- trees, checkpoints


def nested_keys(n):
    """n / 100 arrays, each under 30 keys of its own."""
    found = trees.array((0,), data=b"")
    for _ in range(30):
        found = {"a" * (n // 10 + 1): found}
    return msgpack.packb({f"{k}": found for k in range(n // 100 + 1)})


def handles(n):
    """n handles of one block with n entries."""
    names = [f"{k:06d}" for k in range(n)]
    return indexed(block({"": HEADER} | dict.fromkeys(names, entry((0,), 0, 0))), names)


def entries_again(n, layout="torch"):
    """An RNN, and n tensors at the same 400 n bytes."""
    many = {f"{k:06d}": entry((100 * n,), 0, 400 * n) for k in range(n)}
    return table(entries_of(weights(layout)) | many), numbers(layout) + bytes(400 * n)


def subgraphs(n):
    """A model of TFLite whose new list, behind it, has n times the subgraph of a copy behind that:
    offsets only point forward."""
    old = bytearray(good(".tflite"))

    def number(at, kind="I"):
        return struct.unpack_from(f"<{kind}", old, at)[0]

    root = number(0)
    field = root + number(root - number(root, "i") + 8, "H")  # the subgraphs are the third field
    graphs = field + number(field)
    old += bytes(-len(old) % 16)
    begin, copy = len(old), len(old) + -(-(4 + 4 * n) // 16) * 16
    first = copy + graphs + 4 + number(graphs + 4)
    places = [first - (begin + 4 + 4 * k) for k in range(n)]
    behind = struct.pack(f"<I{n}I", n, *places).ljust(copy - begin, b"\0") + old
    struct.pack_into("<I", old, field, begin - field)
    return bytes(old + behind)


# ------------------------------------------------------------------------------------------ Keras


def h5(change, what=".h5"):
    """Return a good HDF5 file, by its suffix or its bytes, changed."""
    made = io.BytesIO(good(what) if isinstance(what, str) else what)
    with h5py.File(made, "r+") as file:
        change(file)
    return made.getvalue()


def keras(change, compression=zipfile.ZIP_STORED):
    """Return the good archive of Keras 3 with other layers in its config."""
    parts = members(good(".keras"))
    model = json.loads(parts["config.json"])
    change(model["config"]["layers"])
    return archive(parts | {"config.json": json.dumps(model).encode()}, compression)


def texts_again(n):
    """n / 2 names of layers in one place, of 1 KB."""
    names = ["x" * 1000, *["y"] * (n // 2)]

    def change(file):
        del file["model_weights"].attrs["layer_names"]
        file["model_weights"].attrs.create("layer_names", names, dtype=h5py.string_dtype())

    return first_text_again(h5(change), n // 2)


def layers_again(n):
    """One layer that is listed n times, with one weight that is listed n / 8 times."""

    def change(file):
        weights = file["model_weights"]
        weights.attrs["layer_names"] = np.array(["lstm"] * n, "S")
        names = np.array(["lstm/lstm_cell/kernel"] * (n // 8), "S")
        weights["lstm"].attrs["weight_names"] = names

    return h5(change)


def deep_group(file, levels, name):
    for _ in range(levels):
        file = file.create_group(name)
    return file


def groups(n):
    """Groups in 60 groups with long names, over n / 2 datasets."""

    def change(file):
        group = deep_group(file, 60, "a" * (n // 10 + 1))
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
    """Groups of layers with long names in each other, over n / 20 cells."""

    def change(file):
        group = deep_group(file, 30, f"layers/{'a' * (n // 10 + 1)}")
        for k in range(n // 20):
            for number in range(2):
                group.create_dataset(f"layers/lstm_{k}/cell/vars/{number}", (1, 4), "f4")

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


def zeros_in_zeros(n):
    """A deflated file of a dataset of 20 n KB zeros, whose chunk is deflated too."""

    def change(file):
        shape = (5000 * n,)
        file.create_dataset("aside", shape, "f4", chunks=shape, compression="gzip")[:] = 0

    parts = members(good(".keras"))
    parts["model.weights.h5"] = h5(change, parts["model.weights.h5"])
    return archive(parts, zipfile.ZIP_DEFLATED)


def classes(n):
    """n layers of n unknown classes that look recurrent."""
    own = {"units": 3, "recurrent_initializer": None, "return_sequences": True, "reset_after": True,
           "recurrent_activation": "sigmoid", "activation": "tanh"}  # fmt: skip
    many = [{"class_name": f"Mine{k}", "registered_name": f"mine>Mine{k}", "module": "mine",
             "config": {"name": f"mine_{k}", **own}} for k in range(n)]  # fmt: skip
    return keras(lambda layers: layers.extend(many))


# ------------------------------------------------------------------------------------------- ONNX


def sequence(n):
    """n sequences, each of all before it."""
    nodes = [helper.make_node("SequenceConstruct", ["X"], ["s0"])]
    nodes += [helper.make_node("SequenceInsert", [f"s{k}", "X"], [f"s{k + 1}"]) for k in range(n)]
    return onnxes.model(nodes=nodes)


def graphs(n):
    """Graphs with long names in each other, over n recurrent nodes."""
    nodes = [helper.make_node("LSTM", ["X"], [f"Y{k}"], f"{k}") for k in range(n)]
    for _ in range(20):
        inside = helper.make_graph(nodes, "g", [], [])
        nodes = [helper.make_node("If", ["X"], ["Z"], "a" * n, then_branch=inside)]
    return onnxes.model(nodes=nodes)


def value_names(n):
    """n / 10 initializers with names of n / 2 characters."""
    made = onnxes.model_of()
    for k in range(n // 10 + 1):
        name = f"{k}" + "a." * (n // 4)
        made.graph.initializer.append(onnx.TensorProto(name=name, data_type=1, dims=[0]))
    return made.SerializeToString()


# ------------------------------------------------------------------------------ real-time audio


def rtneural(*layers):
    return json.dumps({"in_shape": [None, None, 1], "layers": layers}).encode()


def nam(layers):
    """Return a model of that many layers of one unit."""
    sizes = {"input_size": 1, "hidden_size": 1, "num_layers": layers}
    return json.dumps({"version": "0.5.4", "architecture": "LSTM", "config": sizes,
                       "weights": [0] * (14 * layers + 2)}).encode()  # fmt: skip


LSTM = {"type": "lstm", "shape": [1], "weights": [[[0] * 4], [[0] * 4], [0] * 4]}
PRODUCTS = {
    "layers.json": lambda n: rtneural(*[LSTM] * n),
    "types.json": lambda n: rtneural(
        *({"type": f"{k}" + "a" * (n // 10), "shape": [1], "weights": [1]} for k in range(n // 4))),
    "lists.json": lambda n: rtneural(LSTM | {"weights": [[[]] * (50 * n)] * 3}),
    "layers.nam": nam,
    "a name of dots.safetensors": lambda n: safetensors(["a." * (5 * n)]),
    "names of dots.safetensors": lambda n: safetensors(
        f"{k}." + "a." * 100 for k in range(n // 20)),
    "many names.safetensors": lambda n: safetensors(f"{k}/weight_hh_l0" for k in range(n // 2)),
    "names of RNNs.safetensors": lambda n: safetensors(
        f"{k}/{name}" for k in range(n // 8) for name in ("kernel", "recurrent_kernel", "bias")),
    "records.safetensors": records,
    "long headers.npz": lambda n: arrays(n, "", 65000, zipfile.ZIP_DEFLATED),
    "names.npz": lambda n: arrays(n, "a." * 20),
    "fields.npy": fields,
    # the spec of n layers, with many lists as a setting
    "layers and lists.bin": lambda n: (bytes(4), json.dumps(
        ONE_UNIT | {"num_layers": n, "config": {"a": [[]] * 40 * n}}).encode()),
    "storages.old.pt": storages,
    "arrays again.pkl": arrays_again,
    "arrays again.pdparams": arrays_again,
    "arrays.eqx": lambda n: numpy_array() * n,
    "entries again.index": entries_again,
    "variables again.pb": lambda n: (good(".pb"), entries_again(n, "keras")),
    "subgraphs.tflite": subgraphs,
    "variables.weights.h5": variables,
    "models.keras": models,
    "kinds.keras": kinds,
    "empty lists.keras": lambda n: keras(
        lambda layers: layers[0].update(more=[[]] * 1000 * n), zipfile.ZIP_DEFLATED),
    "zeros in zeros.keras": zeros_in_zeros,
    "graphs.onnx": graphs,
    "views.pt": views,
    "large views.pt": lambda n: views(n, 1 << 22),  # of 64 MB each
    "a module again.module.pt": module_again,
    "a module again.old.module.pt": lambda n: module_again(n, pickles.in_old),
    "hidden buffers.pt": hidden_buffers,
    "names in modules.pt": long_modules,
    # n / 8 RNNs, of which each says something about itself
    "recurrent modules.pt": lambda n: in_pickle(modules.module(modules=again(
        modules.module(parameters=modules.PARAMETERS, num_layers=pickles.long(10**9)), n // 8))),
    "programs.script.pt": programs,
    "packed weights.packed.pt": packed_weights,
    "weights.pt2": weights_again,
    "pairs again.pkl": pairs_again,
    # n numbers, which are appended to n lists
    "lists again.pkl": lambda n: b"\x80\x02](](" + b"K\1" * n + b"eq\0" + b"]h\0a" * n + b"e.",
    "a long key.pkl": deep_names,
    "long keys.msgpack": nested_keys,
    "handles of a block.index": handles,
    "names.params": lambda n: trees.params(
        *[trees.nd((0,), data=b"")] * (n // 4), names=[f"{k}{'a.' * 200}" for k in range(n // 4)]),
    "a layer again.h5": layers_again,
    "texts again.h5": texts_again,
    "groups.h5": groups,
    "unwritten texts.h5": unwritten,
    "unknown classes.keras": classes,
    "equal names.keras": lambda n: keras(
        lambda layers: layers.extend([one for one in layers if one["class_name"] == "LSTM"] * n)),
    "sequences.onnx": sequence,
    # the weights of n nodes are at the end of a chain of 90 others
    "uses of a chain.onnx": lambda n: onnxes.model(
        onnxes.of_n0(), onnxes.chain("Identity", 90), onnxes.lstms(n, "W")),
    "claims of the same bytes.data.onnx": lambda n: (
        lambda path: onnxes.claimed_again(path, n // 4, 5)),
    "long names.onnx": value_names,
}  # fmt: skip
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
    if callable(data):
        return data(path)
    if isinstance(data, tuple):
        data, more = data
        if path.suffix == ".pb":
            index, more = more
            allowed(path)[-2].write_bytes(index)
        allowed(path)[1 if path.suffix == ".bin" else -1].write_bytes(more)
    return data
