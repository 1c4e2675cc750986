"""Files that multiply one of their parts by another: each grows with n, and so may their cost.

PRODUCTS: name and suffix -> a function of n that returns the bytes of a file, and those of the
file beside it if it has one. Random damage never makes such files: many entries that refer to one
block, n names of length n, strides of 0. Each format has one; each is tried with two n, of which
the larger makes a file of about a megabyte at the most.
"""

import io
import json
import struct
import zipfile
from collections import OrderedDict

import h5py
import msgpack
import numpy as np
from files.hostile import modules, onnxes, tensor_sets, trees
from files.hostile.case import EITHER, Calls, Case
from files.hostile.good import (
    HEADER,
    VARIABLES,
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
    tfjs_model,
    weights,
)
from files.hostile.hdf5 import edited, first_text_again
from files.hostile.modules import PARAMETERS, module
from files.hostile.pickles import Instance, array, dumped, in_archive, in_old, view
from onnx import helper

# ---------------------------------------------------------------------------------- named tensors

ONE_UNIT = {"schema": 1, "cell": "lstm", "input_size": 1, "hidden_size": 1}
NUMPY = b"{'descr': '<f4', 'fortran_order': False, 'shape': (0,)}"


def safetensors(names, **metadata):
    """Return a file of tensors without elements."""
    nothing = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    return tensor_sets.header(dict.fromkeys(names, nothing) | metadata, b"")


def wrong_shapes(n):
    """An RNN of n / 3 layers, of whose matrices each may be the only one that is transposed."""
    sizes = {"kernel": [1, 2], "recurrent_kernel": [2, 1], "bias": [2]}
    tensors = {
        f"{k // 3}/{name}": {"dtype": "F32", "shape": shape, "data_offsets": [8 * k, 8 * k + 8]}
        for k, (name, shape) in enumerate(list(sizes.items()) * (n // 3))
    }
    return tensor_sets.header(tensors, bytes(8 * len(tensors)))


def index_json(weight_map):
    return json.dumps({"weight_map": weight_map}).encode()


def records(n):
    """n records of RNNs of n layers, whose tensors do not exist."""
    spec = ONE_UNIT | {"num_layers": n}
    one = {"prefix": "", "layout": "torch", "options": {}, "spec": spec, "config": {}}
    text = json.dumps({"schema": 1, "entries": {f"{k}": one for k in range(n)}})
    return safetensors((f"{k}" for k in range(n)), __metadata__={"rnnlayout": text})


def numpy_array(width=118):
    return tensor_sets.array(NUMPY.ljust(width - 1) + b"\n")


def fields(n):
    """An array whose dtype has n fields."""
    dtype = b"[%b]" % b",".join(b"('f%d','<f4')" % k for k in range(n))
    told = NUMPY.replace(b"'<f4'", dtype) + b"\n"
    return b"\x93NUMPY\2\0" + struct.pack("<I", len(told)) + told


# ---------------------------------------------------------------------------------------- pickles


def again(one, n):
    """Return a dict in which one object has n names."""
    return dict.fromkeys((f"{k:06d}" for k in range(n)), one)


def views(n, rows=100):
    """n views of one storage, each so many times as large as it."""
    return in_archive(dumped({f"{k:06d}": view((rows, 4), (0, 1)) for k in range(n)}))


def storages(n):
    """The older form, with n storages that are empty."""
    made = {key: view((0,), numel=0, key=key) for key in again(None, n)}
    return in_old(dumped(made), again(b"", n))


def arrays_again(n):
    """n / 4 arrays of the same 400 n bytes."""
    data = bytes(400 * n)
    return dumped({f"{k}": array((100 * n,), data=data) for k in range(n // 4)}, 3)


def objects_again(n):
    """An array of n / 4 objects, each of them the same array of 400 n bytes."""
    objects, made = np.empty(n // 4, object), io.BytesIO()
    objects[:] = [None] * len(objects)
    objects.fill(np.zeros(100 * n, "f4"))
    np.save(made, objects)
    return archive({"a.npy": made.getvalue()})


def pairs_again(n):
    """A tuple of n pairs, of which n dicts are made."""
    pairs = tuple((k, None) for k in range(n))
    return dumped([Calls(OrderedDict, pairs) for _ in range(n)])


def states_again(n):
    """An optimizer in which n parameters share n slots, and n groups share n hyperparameters."""
    names = [f"{k:06d}" for k in range(n)]
    slots, group = dict.fromkeys(names, view()), {"params": [], **dict.fromkeys(names, 1)}
    state = {"state": dict.fromkeys(range(n), slots), "param_groups": [group] * n}
    state["param_groups"].append({"params": [*range(n)]})
    return in_archive(dumped({"model": dict.fromkeys(names, view()), "optimizer": state}))


def optimizers(n):
    """16 optimizers of n / 16 parameters, each of which fits n / 8 models of 8 tensors."""
    moments = {f"{k}": {"exp_avg": view()} for k in range(n // 16)}
    states = [
        {"state": {k: dict(m) for k, m in enumerate(moments.values())},
         "param_groups": [{"params": [*range(n // 16)]}]}
        for _ in range(16)
    ]  # fmt: skip
    models = {f"{k}": {f"{k}": view() for k in range(8)} for k in range(n // 8)}
    return in_archive(dumped({"models": models, "optimizers": states}))


def module_again(n, form=in_archive):
    """A module with n tensors that is in another one n times."""
    inner = module(_parameters=again(view(), n))
    return form(dumped(module(_modules=again(inner, n))))


def many_modules(n, **state):
    """n / 8 RNNs of which each has this state."""
    return in_archive(dumped(module(_modules={f"{k}": module(**state) for k in range(n // 8)})))


def long_modules(n):
    """n / 4 tensors with names of n characters, up to 500, in 30 modules in each other."""
    one = view()
    made = module(_parameters={f"{k}" + "a" * min(n, 500): one for k in range(n // 4)})
    for _ in range(30):
        made = module(_modules={"a" * 12: made})
    return in_archive(dumped(made))


def programs(n):
    """n / 4 classes of RNNs, each with a program of its own."""
    text = b"\nclass LSTM(Module):\n" + b"  mode : Final[str] = 7\n" * 20
    names = [f"__torch__.torch.nn.modules.rnn.___torch_mangle_{k}" for k in range(n // 4)]
    parts = {f"m/code/{name.replace('.', '/')}.py": text for name in names}
    state = {"training": False, "weight_hh_l0": view()}
    many = {f"{k}": Instance(f"{name} LSTM", state) for k, name in enumerate(names)}
    data = dumped(Instance("__torch__ Net", many | {"training": False}))
    return archive(parts | {"m/data.pkl": data, "m/data/0": bytes(16)})


def packed_weights(n):
    """n / 8 names for the same packed weights."""
    one = modules.cell(modules.quantized(), modules.quantized())
    names = (f"{k}._all_weight_values.0.param" for k in range(n // 8))
    return in_archive(dumped(dict.fromkeys(names, one)))


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


def states(n):
    """16 states of optax with n / 16 names, over n trees that each have one of the names."""
    one = trees.array((0,), data=b"")
    state = {"count": one, "mu": {f"{k}": one for k in range(n // 16)}}
    many = {f"{k}": {"0": one} for k in range(n)}
    return msgpack.packb(many | {"opt_state": {f"{k}": state for k in range(16)}})


def slots(n):
    """A legacy file of Keras with n arrays of an optimizer, with long names."""

    def change(file):
        for k in range(n):
            file.create_dataset(f"optimizer_weights/{'a/' * 30}{k}_momentum", (1,), "f4")

    return h5(change)


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


def h5(change, suffix=".h5"):
    return edited(good(suffix), change)


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


def unwritten(n):
    """n datasets of one text of a million bytes, none of it written."""

    def change(file):
        for k in range(n):
            file.create_dataset(f"aside/{k}", (1,), "S1000000")

    return h5(change)


def variables(n):
    """Groups of layers with long names in each other, over n / 20 cells."""

    def change(file):
        group = file.create_group(f"layers/{'a' * (n // 10 + 1)}/" * 30)
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


def zeros_in_zeros(n):
    """A deflated file of a dataset of 20 n KB zeros, whose chunk is deflated too."""

    def change(file):
        shape = (5000 * n,)
        file.create_dataset("aside", shape, "f4", chunks=shape, compression="gzip")[:] = 0

    return archive(members(h5(change, ".keras")), zipfile.ZIP_DEFLATED)


def classes(n):
    """n layers of n unknown classes that look recurrent."""
    own = {"units": 3, "recurrent_initializer": None, "return_sequences": True, "reset_after": True,
           "recurrent_activation": "sigmoid", "activation": "tanh"}  # fmt: skip
    many = [{"class_name": f"Mine{k}", "registered_name": f"mine>Mine{k}", "module": "mine",
             "config": {"name": f"mine_{k}", **own}} for k in range(n)]  # fmt: skip
    return keras(lambda layers: layers.extend(many))


# ------------------------------------------------------------------------------------------- ONNX


def graphs(n):
    """Graphs with long names in each other, over n recurrent nodes."""
    nodes = [helper.make_node("LSTM", ["X"], [f"Y{k}"], f"{k}") for k in range(n)]
    for _ in range(20):
        inside = helper.make_graph(nodes, "g", [], [])
        nodes = [helper.make_node("If", ["X"], ["Z"], "a" * n, then_branch=inside)]
    return onnxes.model(nodes=nodes)


# ------------------------------------------------------------------------------ real-time audio


def rtneural(*layers):
    return json.dumps({"in_shape": [None, None, 1], "layers": layers}).encode()


def nam(layers):
    """Return a model of that many layers of one unit."""
    sizes = {"input_size": 1, "hidden_size": 1, "num_layers": layers}
    return json.dumps({"version": "0.5.4", "architecture": "LSTM", "config": sizes,
                       "weights": [0] * (14 * layers + 2)}).encode()  # fmt: skip


def tfjs(layers=1, weights=0, files=0, path="kernel"):
    """Return a model of TensorFlow.js with so many layers, weights without numbers, and files."""
    model = tfjs_model()
    (one,) = model["modelTopology"]["model_config"]["config"]["layers"]
    model["modelTopology"]["model_config"]["config"]["layers"] = [one] * layers
    (group,) = model["weightsManifest"]
    group["weights"] += [{"name": f"{k}/{path}", "shape": [0, 4], "dtype": "float32"}
                         for k in range(weights)]  # fmt: skip
    group["paths"] += [f"./{path}" for path in group["paths"]] * files
    return json.dumps(model).encode()


LSTM = {"type": "lstm", "shape": [1], "weights": [[[0] * 4], [[0] * 4], [0] * 4]}
PRODUCTS = {
    "states again.pt": states_again,
    "optimizers.pt": optimizers,
    "states.msgpack": states,
    "slots.h5": slots,
    "layers.json": lambda n: rtneural(*[LSTM] * n),
    "types.json": lambda n: rtneural(
        *({"type": f"{k}" + "a" * (n // 10), "shape": [1], "weights": [1]} for k in range(n // 4))),
    "lists.json": lambda n: rtneural(LSTM | {"weights": [[[]] * (50 * n)] * 3}),
    "layers.nam": nam,
    "layers.tfjs.json": lambda n: tfjs(layers=n),
    "weights.tfjs.json": lambda n: tfjs(weights=n),
    "groups.tfjs.json": lambda n: tfjs(weights=n, path="a/" * 100 + "vars/0"),
    "files.tfjs.json": lambda n: tfjs(files=n),
    "tensors.state_dict.json": lambda n: json.dumps(
        {"state_dict": {f"{k}.weight_hh_l0": [[0]] for k in range(n)}}).encode(),
    "lists.state_dict.json": lambda n: json.dumps({"a": [0], "b": [[[]] * (50 * n)] * 3}).encode(),
    "names in objects.state_dict.json": lambda n: json.dumps(
        {"state_dict": {"a" * min(n, 900): {f"{k}": [0] for k in range(n)}}}).encode(),
    "a name of dots.safetensors": lambda n: safetensors(["a." * (5 * n)]),
    "names of dots.safetensors": lambda n: safetensors(
        f"{k}." + "a." * 100 for k in range(n // 20)),
    "many names.safetensors": lambda n: safetensors(f"{k}/weight_hh_l0" for k in range(n // 2)),
    "names of RNNs.safetensors": lambda n: safetensors(
        f"{k}/{name}" for k in range(n // 8) for name in ("kernel", "recurrent_kernel", "bias")),
    "wrong shapes.safetensors": wrong_shapes,
    "records.safetensors": records,
    "names.index.json": lambda n: (
        index_json({f"{k}/weight_hh_l0": "last.safetensors" for k in range(n // 2)}),
        safetensors(f"{k}/weight_hh_l0" for k in range(n // 2))),
    "parts.index.json": lambda n: index_json({f"{k}": f"{k}.safetensors" for k in range(n)}),
    "parts again.weights.json": lambda n: index_json(
        dict.fromkeys([VARIABLES, *(f"/{k}/vars" for k in range(n // 20))],
                      ["m_00000.weights.h5", "m_00001.weights.h5"] * 20)),
    "long headers.npz": lambda n: archive(
        {f"{k}.npy": numpy_array(65000) for k in range(n // 10)}, zipfile.ZIP_DEFLATED),
    "objects again.npz": objects_again,
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
    "empty lists.keras": lambda n: keras(
        lambda layers: layers[0].update(more=[[]] * 1000 * n), zipfile.ZIP_DEFLATED),
    "zeros in zeros.keras": zeros_in_zeros,
    "graphs.onnx": graphs,
    "views.pt": views,
    "large views.pt": lambda n: views(n, 1 << 22),  # of 64 MB each
    "a module again.module.pt": module_again,
    "a module again.old.module.pt": lambda n: module_again(n, in_old),
    "hidden buffers.pt": lambda n: many_modules(
        n, _non_persistent_buffers_set=set(again(None, n)), _buffers=PARAMETERS),
    "names in modules.pt": long_modules,
    "recurrent modules.pt": lambda n: many_modules(n, _parameters=PARAMETERS, num_layers=10**9),
    "programs.script.pt": programs,
    "packed weights.packed.pt": packed_weights,
    "weights.pt2": weights_again,
    "pairs again.pkl": pairs_again,
    # n numbers, which are appended to n lists
    "lists again.pkl": lambda n: b"\x80\x02](](" + b"K\1" * n + b"eq\0" + b"]h\0a" * n + b"e.",
    # a long key around n numbers
    "a long key.pkl": lambda n: dumped({"a" * 900: dict.fromkeys(range(n))}),
    "long keys.msgpack": nested_keys,
    "handles of a block.index": handles,
    "names.params": lambda n: trees.params(
        *[trees.nd((0,), data=b"")] * (n // 4), names=[f"{k}{'a.' * 200}" for k in range(n // 4)]),
    "a layer again.h5": layers_again,
    "texts again.h5": texts_again,
    "unwritten texts.h5": unwritten,
    "unknown classes.keras": classes,
    "equal names.keras": lambda n: keras(
        lambda layers: layers.extend([one for one in layers if one["class_name"] == "LSTM"] * n)),
    # the weights of n nodes are at the end of a chain of 90 others
    "uses of a chain.onnx": lambda n: onnxes.model(
        onnxes.of_n0(), onnxes.chain("Identity", 90), onnxes.lstms(n, "W")),
    "claims of the same bytes.data.onnx": lambda n: (
        lambda path: onnxes.claimed_again(path, n // 4, 5)),
}  # fmt: skip
SIZES = (480, 4800)


def cases(n):
    return {
        name.replace(".", f", {n}.", 1): Case(
            lambda path, make=make: with_data(path, make(n)), codes=EITHER
        )
        for name, make in PRODUCTS.items()
    }


CASES, LARGE = map(cases, SIZES)


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
