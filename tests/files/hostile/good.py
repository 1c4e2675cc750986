"""Correct files, one per format, from which the hostile ones are made."""

import io
import json
import pickle
import re
import tempfile
import zipfile
from functools import cache
from pathlib import Path

import h5py
import numpy as np
import onnx
import safetensors.numpy
from google.protobuf.message import DecodeError

import rnnlayout as rl

RECORDED = {
    ".pdparams": "paddle.pdparams", ".params": "mxnet-gluon.params", ".tflite": "lstm.tflite",
}  # fmt: skip
DATA = Path(__file__).parents[2] / "data"
SPEC = rl.Spec("lstm", 5, 3)
LAYOUTS = {
    ".safetensors": "cudnn", ".npz": "torch", ".npy": "cudnn", ".bin": "cudnn", ".pt": "torch",
    ".old.pt": "torch", ".h5": "keras", ".weights.h5": "keras", ".keras": "keras", ".onnx": "onnx",
    ".pkl": "torch", ".msgpack": "flax-linen",
    ".eqx": "equinox", ".pdparams": "torch", ".index": "torch",
    ".params": "mxnet-gluon", ".data.onnx": "onnx", ".json": "keras", ".nam": "nam",
    ".module.pt": "torch", ".old.module.pt": "torch", ".script.pt": "torch", ".pt2": "torch",
    ".packed.pt": "torch", ".tflite": "tflite", ".pb": "keras", ".index.json": "torch",
    ".weights.json": "keras", ".state_dict.json": "torch",
    ".tfjs.json": "keras",
}  # fmt: skip


def weights(layout):
    rng = np.random.default_rng(7)
    shapes = rl.describe(SPEC, layout).items()
    tensors = {name: rng.standard_normal(shape).astype("f4") for name, shape in shapes}
    return rl.Weights(tensors["weight_space"] if layout == "cudnn" else tensors, SPEC, layout)


@cache
def good(suffix):
    """Return the bytes of a correct file of that suffix."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a{suffix}"
        made = weights(LAYOUTS[suffix])
        if suffix in TORCH:
            save_torch(suffix, made, path)
        elif suffix == ".eqx":
            with open(path, "wb") as file:
                for array in made.values():
                    np.save(file, array)
        elif suffix == ".index":
            return table(entries_of(made))
        elif suffix in PARTS:
            return json.dumps(index_of(suffix)).encode()
        elif suffix == ".data.onnx":
            rl.save(path, made)
            return in_another_file(onnx.load(path)).SerializeToString()
        elif suffix == ".state_dict.json":
            return json.dumps(guitarml_model(made)).encode()
        elif suffix == ".nam":
            return json.dumps(nam_model(made)).encode()
        elif suffix == ".pb":
            return b"\x08\x01"  # of a SavedModel only the variables are read
        elif suffix in RECORDED:
            return (DATA / RECORDED[suffix]).read_bytes()
        elif suffix == ".pkl":
            path.write_bytes(pickle.dumps({**made, "loss": np.float64(0.5)}))
        else:
            rl.save(path, made)
        return path.read_bytes()


def guitarml_model(made):
    """Return a model of GuitarML with a dense layer of ones, which adds its first input."""
    H = SPEC.hidden_size
    facts = {"model": "SimpleRNN", "input_size": SPEC.input_size, "skip": 1, "output_size": 1,
             "unit_type": "LSTM", "num_layers": 1, "hidden_size": H, "bias_fl": True}  # fmt: skip
    state = {f"rec.{name}": array.tolist() for name, array in made.items()}
    state |= {"lin.weight": [[1.0] * H], "lin.bias": [1.0]}
    return {"model_data": facts, "state_dict": state}


def nam_model(made):
    """Return a model of Neural Amp Modeler with zero initial states and a head of ones."""
    H = SPEC.hidden_size
    numbers = [*made["W"].ravel().tolist(), *made["b"].tolist(), *[0.0] * 2 * H, *[1.0] * (H + 1)]
    sizes = {"input_size": SPEC.input_size, "hidden_size": H, "num_layers": 1}
    return {"version": "0.5.4", "metadata": {"name": "a"}, "architecture": "LSTM",
            "config": sizes, "weights": numbers, "sample_rate": 48000}  # fmt: skip


NUMBERS = "data-00000-of-00001"  # beside the index of a checkpoint of TensorFlow
BESIDE = "onnx.data"  # a model of ONNX


def in_another_file(model):
    """Return a model whose W, R and B are in the file onnx.data."""
    at = 0
    for tensor in model.graph.initializer:
        if (role := tensor.name.split("/")[-1]) in "WRB":
            nbytes = weights("onnx")[role].nbytes
            tensor.ClearField("raw_data")
            stored(tensor, location=BESIDE, offset=at, length=nbytes)
            at += nbytes
    return model


def stored(tensor, **place):
    """Store a tensor in another file."""
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in place.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


PARTS = {  # of an index: the name of each part -> the names that are in it
    ".index.json": {
        "first.safetensors": ["weight_ih_l0", "bias_ih_l0"],
        "last.safetensors": ["weight_hh_l0", "bias_hh_l0"],
    },
    ".weights.json": {"m_00000.weights.h5": ["0", "1"], "m_00001.weights.h5": ["2"]},
    ".tfjs.json": {"group1-shard1of2.bin": [], "group1-shard2of2.bin": []},  # one stream
}  # fmt: skip
VARIABLES = "/layers/lstm/cell/vars"


def index_of(suffix):
    """Return the index of the good parts."""
    if suffix == ".tfjs.json":
        return tfjs_model()
    places = {VARIABLES: [*PARTS[suffix]]}
    if suffix == ".index.json":
        places = {name: part for part, names in PARTS[suffix].items() for name in names}
    return {"metadata": {"total_size": 1}, "weight_map": places}


def tfjs_model(**more):
    """Return a layers model of TensorFlow.js with an LSTM. more: keys of its config."""
    config = {"name": "lstm", "units": SPEC.hidden_size, "activation": "tanh",
              "recurrent_activation": "sigmoid", "use_bias": True, **more}  # fmt: skip
    layers = [{"class_name": "LSTM", "config": config}]
    model = {"class_name": "Sequential", "config": {"name": "model", "layers": layers}}
    stored = [{"name": f"lstm/{name}", "shape": list(array.shape), "dtype": "float32"}
              for name, array in weights("keras").items()]  # fmt: skip
    manifest = [{"paths": [*PARTS[".tfjs.json"]], "weights": stored}]
    topology = {"keras_version": "2.15.0", "model_config": model}
    return {"format": "layers-model", "modelTopology": topology, "weightsManifest": manifest}


def good_parts(suffix):
    """Return the bytes of each part, by its name; {} for a suffix that is not an index's."""
    made, found = weights(LAYOUTS[suffix]) if suffix else {}, {}
    if suffix == ".tfjs.json":  # a tensor is in both files
        stream = b"".join(array.tobytes() for array in made.values())
        return dict(zip(PARTS[suffix], (stream[:300], stream[300:]), strict=True))
    arrays = {str(k): array for k, array in enumerate(made.values())} | dict(made)
    for part, names in PARTS.get(suffix, {}).items():
        tensors = {name: arrays[name] for name in names}
        if suffix == ".index.json":
            found[part] = safetensors.numpy.save(tensors)
            continue
        with io.BytesIO() as file:
            with h5py.File(file, "w") as h5:
                for name, array in tensors.items():
                    h5[f"{VARIABLES}/{name}"] = array
            found[part] = file.getvalue()
    return found


def parts_suffix(path):
    """Return the suffix of an index in PARTS, "" for any other file."""
    return next((suffix for suffix in PARTS if path.name.endswith(suffix)), "")


def varint(n):
    found = bytearray()
    while n > 127:
        found.append(n & 127 | 128)
        n >>= 7
    return bytes([*found, n])


def field(number, value):
    """Return a field of a protocol buffer: an integer, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


HEADER = field(1, 1) + field(3, field(1, 1))


def entry(shape, at, size, dtype=1, **more):
    """Return a BundleEntryProto. more: further fields, as f7=..."""
    dims = b"".join(field(2, field(1, n)) for n in shape)
    rest = b"".join(field(int(name[1:]), value) for name, value in more.items())
    return field(1, dtype) + field(2, dims) + field(4, at) + field(5, size) + rest


def entries_of(made):
    found, at = {"": HEADER}, 0
    for name, array in sorted(made.items()):
        found[name] = entry(array.shape, at, array.nbytes)
        at += array.nbytes
    return found


def numbers(layout="torch"):
    """Return the bytes of the data of the good index."""
    return b"".join(array.tobytes() for _, array in sorted(weights(layout).items()))


def block(entries, compression=0):
    """Return a block of a table, without shared beginnings of keys; its sum is not looked at."""
    parts = []
    for key, value in entries.items():
        key = key.encode() if isinstance(key, str) else key
        parts += b"\0", varint(len(key)), varint(len(value)), key, value
    parts += bytes(4), (1).to_bytes(4, "little"), bytes([compression]), bytes(4)
    return b"".join(parts)


def table(entries, compression=0, handles=1):
    """Return the table of an index. handles: so many of the same block."""
    return indexed(block(entries, compression), [f"{k}" for k in range(handles)])


def indexed(data, keys):
    """Return a table with one block of data, which its index has under each of the keys."""
    index, none = block(dict.fromkeys(keys, varint(0) + varint(len(data) - 5))), block({})
    footer = varint(len(data)) + varint(len(none) - 5)
    footer += varint(len(data) + len(none)) + varint(len(index) - 5)
    return data + none + index + footer.ljust(40, b"\0") + MAGIC


MAGIC = bytes.fromhex("57fb808b247547db")


def beside(path):
    """Write what belongs to the good file of a suffix, next to it."""
    if path.suffix == ".bin":
        path.with_name(path.name + ".json").write_text(json.dumps(described()))
    for name, data in good_parts(parts_suffix(path)).items():
        path.with_name(name).write_bytes(data)
    if path.suffix == ".index":
        allowed(path)[-1].write_bytes(numbers())
    if path.suffix == ".onnx":
        values = b"".join(array.tobytes() for array in weights("onnx").values())
        path.with_name(BESIDE).write_bytes(values)
    if path.suffix == ".pb":
        folder, index, data = allowed(path)[-3:]
        folder.mkdir(exist_ok=True)
        index.write_bytes(table(entries_of(weights("keras"))))
        data.write_bytes(numbers("keras"))


def allowed(path):
    """Return the files that reading one may open."""
    names = (path.name, f"{path.name}.json", f"{path.stem}.json", f"{path.stem}.{NUMBERS}")
    if path.suffix == ".pb":
        names += ("variables", "variables/variables.index", f"variables/variables.{NUMBERS}")
    names = (path.name, BESIDE) if path.suffix == ".onnx" else names
    names += (*PARTS.get(parts_suffix(path), ()),)
    return [path.parent / name for name in names]


def named(path):
    """Return the files in its own folder that a model of ONNX names, which may be opened."""
    if path.suffix != ".onnx":
        return []
    try:
        tensors = onnx.ModelProto.FromString(path.read_bytes()).graph.initializer
    except DecodeError:
        return []
    places = [one.value for tensor in tensors for one in tensor.external_data]
    bare = [one for one in places if isinstance(one, str) and re.fullmatch(r"[^/\\\0]+", one)]
    return [path.with_name(one) for one in bare if not one.startswith(".")]


TORCH = (".old.pt", ".module.pt", ".old.module.pt", ".script.pt", ".pt2", ".packed.pt")


def save_torch(suffix, made, path):
    """Save a state_dict as torch did before 1.6, or a module with these weights in another one."""
    import torch

    lstm, old = torch.nn.LSTM(5, 3), {"_use_new_zipfile_serialization": False}
    lstm.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in made.items()})
    module = torch.nn.Sequential(lstm).eval()
    if suffix == ".old.pt":
        torch.save(lstm.state_dict(), path, **old)
    elif suffix == ".script.pt":
        torch.jit.save(torch.jit.script(module), path)
    elif suffix == ".pt2":
        with torch.no_grad():
            torch.export.save(torch.export.export(module, (torch.zeros(2, 1, 5),)), path)
    elif suffix == ".packed.pt":
        packed = torch.ao.quantization.quantize_dynamic(module, {torch.nn.LSTM})
        torch.save(packed.state_dict(), path)
    else:
        torch.save(module, path, **(old if "old" in suffix else {}))


def described():
    """Return the JSON that belongs to a .bin file."""
    return SPEC.to_dict()


def members(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archive(members, compression=zipfile.ZIP_STORED):
    """Return a zip archive of members, given as a dict or as pairs."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", compression) as file:
        for name, data in members.items() if isinstance(members, dict) else members:
            file.writestr(name, data)
    return made.getvalue()
