"""Hostile files of Keras: .h5, .weights.h5 and .keras."""

import io
import json
import zlib
from functools import cache

import h5py
import numpy as np
from files.hostile.good import archive, good, members

# The matrix that is spoiled, by format.
KERNEL = {
    ".h5": "model_weights/lstm/lstm/lstm_cell/kernel",
    ".weights.h5": "layers/lstm/cell/vars/0",
}
SHAPE = (5, 12)
BOMB = 120 << 20


def secret(path):
    """Make another file; opening it would be noticed."""
    other = path.with_name("secret")
    other.mkdir(exist_ok=True)
    with h5py.File(other / "other.h5", "w") as file:
        file["kernel"] = np.ones(SHAPE, "f4")
    (other / "raw").write_bytes(np.ones(SHAPE, "f4").tobytes())
    return other


def external_link(file, name, path):
    file[name] = h5py.ExternalLink(str(secret(path) / "other.h5"), "/kernel")


def relative_link(file, name, path):
    secret(path)
    file[name] = h5py.ExternalLink("secret/other.h5", "/kernel")


def linked_group(file, name, path):
    group = name.rsplit("/", 1)[0]
    del file[group]
    file[group] = h5py.ExternalLink(str(secret(path) / "other.h5"), "/")


def link_aside(file, name, path):
    file.create_dataset(name, data=np.ones(SHAPE, "f4"))
    file["aside"] = h5py.ExternalLink(str(secret(path) / "other.h5"), "/kernel")


def external_data(file, name, path):
    raw = str(secret(path) / "raw")
    file.create_dataset(name, SHAPE, "f4", external=[(raw, 0, 4 * 60)])


def passwords(file, name, path):
    file.create_dataset(name, SHAPE, "u1", external=[("/etc/passwd", 0, 60)])


def device(file, name, path):
    file.create_dataset(name, SHAPE, "f4", external=[("/dev/zero", 0, h5py.h5f.UNLIMITED)])


def virtual(file, name, path, where=None, first=SHAPE[0]):
    layout = h5py.VirtualLayout(SHAPE, "f4", maxshape=(first, SHAPE[1]))
    where = where or str(secret(path) / "other.h5")
    source = h5py.VirtualSource(where, "kernel", SHAPE, "f4", maxshape=(first, SHAPE[1]))
    if first is None:
        layout[h5py.h5s.UNLIMITED :, :] = source[h5py.h5s.UNLIMITED :, :]
    else:
        layout[:] = source
    file.create_virtual_dataset(name, layout)


def shaped(rows, **more):
    return lambda file, name, path: file.create_dataset(name, (rows, SHAPE[1]), "f4", **more)


@cache
def packed_zeros():
    return zlib.compress(bytes(BOMB), 1)


def inflates(file, name, path):
    more = {"chunks": (1 << 12, 12), "maxshape": (None, 12), "compression": "gzip"}
    made = file.create_dataset(name, SHAPE, "f4", **more)
    made.id.write_direct_chunk((0, 0), packed_zeros())


def damaged_chunk(file, name, path):
    made = file.create_dataset(name, SHAPE, "f4", chunks=SHAPE, compression="gzip")
    made.id.write_direct_chunk((0, 0), b"no zlib")


def plugin(file, name, path):
    """Use a filter whose library HDF5 would search and load."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk(SHAPE)
    properties.set_filter(32008, h5py.h5z.FLAG_OPTIONAL, ())
    space, group = h5py.h5s.create_simple(SHAPE), file.require_group(name.rsplit("/", 1)[0])
    made = h5py.h5d.create(group.id, name.rsplit("/", 1)[1].encode(), h5py.h5t.IEEE_F32LE, space,
                           properties)  # fmt: skip
    made.write_direct_chunk((0, 0), bytes(4 * 60))


def references(file, name, path):
    made = file.create_dataset(name, SHAPE, h5py.ref_dtype)
    made[0, 0] = file["/"].ref


def regions(file, name, path):
    file.create_dataset("aside", SHAPE, "f4")
    made = file.create_dataset(name, SHAPE, h5py.regionref_dtype)
    made[0, 0] = file["aside"].regionref[0:1]


def texts(file, name, path):
    file.create_dataset(name, SHAPE, h5py.string_dtype())[:] = "x" * 1000


def named_type(file, name, path):
    file[name] = np.dtype("f4")


def many_bombs(file, name, path):
    for k in range(40):
        file.create_dataset(f"aside/{k}", (1 << 20, 12), "f4")


def in_itself(file, name, path):
    group = file[name.rsplit("/", 1)[0]]
    group["again"] = file["/"]


def groups(file, name, path):
    file.create_group("/".join(["x"] * 2000))


def empty(file, name, path):
    file[name] = h5py.Empty("f4")


SPOILERS = {
    "an external link": external_link,
    "an external link by a relative path": relative_link,
    "a group that is an external link": linked_group,
    "an external link aside": link_aside,
    "a soft link": lambda f, n, p: f.__setitem__(n, h5py.SoftLink("/nowhere")),
    "a soft link to itself": lambda f, n, p: f.__setitem__(n, h5py.SoftLink("/" + n)),
    "data in another file": external_data,
    "data of the system": passwords,
    "data of a device": device,
    "a virtual dataset": virtual,
    "a virtual dataset of this file": lambda f, n, p: virtual(f, n, p, "."),
    "a virtual dataset that grows": lambda f, n, p: virtual(f, n, p, None, None),
    "a shape of a petabyte": shaped(1 << 45),
    "a shape of 200 MB": shaped(BOMB // 48),
    "a shape in chunks": shaped(1 << 45, chunks=(1 << 10, 12)),
    "a chunk of 3 GB": shaped(5, chunks=(1 << 26, 12), maxshape=(None, 12)),
    "a chunk that inflates": inflates,
    "a damaged chunk": damaged_chunk,
    "many shapes": many_bombs,
    "a filter's library": plugin,
    "object references": references,
    "region references": regions,
    "texts": texts,
    "a type for an array": named_type,
    "nothing": empty,
    "a group in itself": in_itself,
    "groups in groups": groups,
}


def spoiled(spoil, suffix):
    def write(path):
        path.write_bytes(good(suffix))
        with h5py.File(path, "r+") as file:
            del file[KERNEL[suffix]]
            spoil(file, KERNEL[suffix], path)

    return write


def spoiled_within(spoil):
    """Do the same in the member of a .keras archive."""

    def write(path):
        parts = members(good(".keras"))
        inner = io.BytesIO(parts["model.weights.h5"])
        with h5py.File(inner, "r+") as file:
            del file[KERNEL[".weights.h5"]]
            spoil(file, KERNEL[".weights.h5"], path)
        path.write_bytes(archive(parts | {"model.weights.h5": inner.getvalue()}))

    return write


# ------------------------------------------------------------------------------------ the config

ODD = {
    "a Lambda": {"class_name": "Lambda", "config": {
        "name": "code", "function": ["4wEAAAA=", None, None], "function_type": "lambda"}},
    "a Lambda of Keras 3": {"class_name": "Lambda", "module": "keras.layers", "config": {
        "name": "code", "function": {"class_name": "__lambda__",
                                     "config": {"code": "4wEAAAA=", "defaults": None}}}},
    "a registered object": {"class_name": "LSTM", "module": "this", "registered_name": "this>it",
                            "config": {"name": "it", "units": 3}},
    "a module by its name": {"class_name": "system", "module": "os", "registered_name": None,
                             "config": {"name": "os", "command": "touch mark"}},
    "a function by its name": {"class_name": "Dense", "config": {
        "name": "d", "activation": {"module": "os", "class_name": "function", "config": "system",
                                    "registered_name": "system"}}},
    "enable_unsafe_deserialization": {
        "class_name": "function", "module": "keras.config", "config": {
            "name": "enable_unsafe_deserialization"},
        "registered_name": "enable_unsafe_deserialization"},
    "a TFSMLayer": {"class_name": "TFSMLayer", "module": "keras.layers",
                    "config": {"name": "saved", "filepath": "/etc/passwd"}},
    "a layer of another package": {"class_name": "Custom>LSTM", "config": {
        "name": "c", "layers": 3, "layer": "x"}},
}  # fmt: skip
NO_CONFIG = {
    "nothing": "",
    "cut short": "[",
    "a list": "[]",
    "lists in lists": "[" * 1_000_000,
    "objects in objects": '{"a":' * 50_000,
    "models in models": '{"class_name":"Sequential","config":{"layers":[' * 300 + "]}}" * 300,
    "NaN": '{"config": NaN}',
    "a number of a million digits": '{"config":' + "9" * 1_000_000 + "}",
    "layers that are a number": '{"class_name": "Sequential", "config": {"layers": 3}}',
    "layers that are anything": '{"class_name":"Sequential","config":{"layers":[3,{"a":[]}]}}',
}
UNITS = {"a huge number": 10**30, "negative": -3, "a text": "3", "another": 4, "null": None}


def reconfigured(change, suffix):
    """Make a good file whose config is change(text of the config)."""

    def write(path):
        path.write_bytes(good(suffix))
        if suffix == ".h5":
            with h5py.File(path, "r+") as file:
                text = change(file.attrs["model_config"])
                del file.attrs["model_config"]
                if len(text) < 60_000:
                    file.attrs["model_config"] = text
                else:  # attributes that do not fit into the group's header are stored in a heap
                    file.attrs.create("model_config", text, dtype=h5py.string_dtype())
        else:
            parts = members(good(suffix))
            text = change(parts["config.json"].decode())
            path.write_bytes(archive(parts | {"config.json": text.encode()}))

    return write


def one_more(layer):
    def change(text):
        model = json.loads(text)
        model["config"]["layers"].append(layer)
        return json.dumps(model)

    return change


def units(value):
    def change(text):
        model = json.loads(text)
        (lstm,) = (x for x in model["config"]["layers"] if x["class_name"] == "LSTM")
        lstm["config"]["units"] = value
        return json.dumps(model)

    return change


def attribute(name, value):
    def write(path):
        path.write_bytes(good(".h5"))
        with h5py.File(path, "r+") as file:
            file["model_weights" if name == "layer_names" else "model_weights/lstm"].attrs.create(
                name, value, dtype=h5py.string_dtype()
            )

    return write


CASES = {
    **{f"HDF5, {name}{suffix}": spoiled(spoil, suffix)
       for name, spoil in SPOILERS.items() for suffix in KERNEL},
    **{f"HDF5, {name}.keras": spoiled_within(spoil) for name, spoil in SPOILERS.items()},
    **{f"config, units {name}{suffix}": reconfigured(units(value), suffix)
       for name, value in UNITS.items() for suffix in (".h5", ".keras")},
    "names that all lie in one place.h5": attribute("layer_names", ["x" * 60_000] * 4000),
    "names that lead out.h5": attribute("weight_names", ["../../secret/other.h5"] * 3),
}  # fmt: skip
# Their RNN is intact: the file may be read or refused.
EITHER = {
    **{f"config, {name}{suffix}": reconfigured(one_more(layer), suffix)
       for name, layer in ODD.items() for suffix in (".h5", ".keras")},
    **{f"config, {name}{suffix}": reconfigured(lambda _, text=text: text, suffix)
       for name, text in NO_CONFIG.items() for suffix in (".h5", ".keras")},
}  # fmt: skip
