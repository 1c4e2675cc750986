"""Hostile files of Keras: .h5, .weights.h5 and .keras."""

import io
import json
import re
import zlib
from functools import cache

import h5py
import numpy as np
from files.hostile.case import EITHER, READ, each, files
from files.hostile.good import archive, good, members

ALL = (".h5", ".weights.h5", ".keras")
# The matrix that is spoiled, in a model and in variables alone.
WEIGHTS = "model.weights.h5"
MODEL, VARIABLES = "model_weights/lstm/lstm/lstm_cell/kernel", "layers/lstm/cell/vars/0"
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


def virtual(file, name, path):
    layout = h5py.VirtualLayout(SHAPE, "f4")
    layout[:] = h5py.VirtualSource(str(secret(path) / "other.h5"), "kernel", SHAPE, "f4")
    file.create_virtual_dataset(name, layout)


def dataset(shape=SHAPE, dtype="f4", chunk=None, **more):
    """Put another dataset there. chunk: what is stored as its first chunk."""

    def spoil(file, name, path):
        made = file.create_dataset(name, shape, dtype, **more)
        if chunk is not None:
            made.id.write_direct_chunk((0, 0), chunk())

    return spoil


@cache
def packed_zeros():
    return zlib.compress(bytes(BOMB), 1)


def plugin(file, name, path):
    """Use a filter whose library HDF5 would search and load."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk(SHAPE)
    properties.set_filter(32008, h5py.h5z.FLAG_OPTIONAL, ())
    space, group = h5py.h5s.create_simple(SHAPE), file.require_group(name.rsplit("/", 1)[0])
    made = h5py.h5d.create(group.id, name.rsplit("/", 1)[1].encode(), h5py.h5t.IEEE_F32LE, space,
                           properties)  # fmt: skip
    made.write_direct_chunk((0, 0), bytes(4 * 60))


def committed(file, name, path):
    file["a type"] = np.dtype("f4")
    file.create_dataset(name, SHAPE, file["a type"])


def set_to(value):
    """Put something else there. value: a function of the file and its path."""
    return lambda file, name, path: file.__setitem__(name, value(file, path))


def in_itself(file, name, path):
    file[name.rsplit("/", 1)[0]]["again"] = file["/"]


LINK, OTHER_FILE, BOMB_SAID = "is a link to another place", "is stored in another file", "bomb"
NO_NUMBER, ROWS, PACKED = "need one of float16", {"maxshape": (None, 12)}, {"compression": "gzip"}
SPOILERS = {
    "an external link": (set_to(
        lambda file, path: h5py.ExternalLink(str(secret(path) / "other.h5"), "/kernel")), LINK),
    "a soft link": (set_to(lambda file, path: h5py.SoftLink("/nowhere")), LINK),
    "data in another file": (
        lambda file, name, path: file.create_dataset(
            name, SHAPE, "f4", external=[(str(secret(path) / "raw"), 0, 4 * 60)]), OTHER_FILE),
    "a virtual dataset": (virtual, OTHER_FILE),
    "a shape of a petabyte": (dataset((1 << 45, 12)), BOMB_SAID),
    "a chunk of 3 GB": (dataset(chunks=(1 << 26, 12), **ROWS), BOMB_SAID),
    "a chunk that inflates": (
        dataset(chunk=packed_zeros, chunks=(1 << 12, 12), **ROWS, **PACKED),
        f"does not inflate to its {4 * 12 << 12} bytes"),
    "a damaged chunk": (dataset(chunk=lambda: b"no zlib", chunks=SHAPE, **PACKED), "a chunk"),
    "a filter's library": (plugin, "filter 32008 is not supported"),
    "a filter of HDF5": (dataset(chunks=SHAPE, fletcher32=True), "filter 3 is not supported"),
    "a committed datatype": (committed, "datatype is shared by several objects"),
    "object references": (dataset(dtype=h5py.ref_dtype), NO_NUMBER),
    "texts": (dataset(dtype=h5py.string_dtype()), NO_NUMBER),
    "arrays of any length": (dataset(dtype=h5py.vlen_dtype("f4")), NO_NUMBER),
    "records": (dataset(dtype=[("a", "f4")]), NO_NUMBER),
    "opaque bytes": (dataset(dtype="V4"), NO_NUMBER),
    "integers": (dataset(dtype="i4"), NO_NUMBER),
    "a type for an array": set_to(lambda file, path: np.dtype("f4")),
    "nothing": (set_to(lambda file, path: h5py.Empty("f4")),
                "nothing, need one of|no recurrent layer|weights of 0 cells"),
    "a group in itself": (in_itself, "is the same as"),
    "groups in groups": (
        lambda file, name, path: file.create_group("/".join(["x"] * 2000)), "groups deep: refused"),
}  # fmt: skip


def written(fill, **options):
    """Return the bytes of a new HDF5 file that fill(file) fills."""
    blob = io.BytesIO()
    with h5py.File(blob, "w", **options) as file:
        fill(file)
    return blob.getvalue()


def texts_in_a_heap():
    """Return a file with texts in a global heap, and where the heap's first entry and free space
    are."""
    data = bytearray(written(lambda file: file.attrs.update(layer_names=["a", "bc"])))
    first = data.index(b"GCOL") + 16
    return data, first, first + 2 * 24


def endless_heap(number=0):
    """Return a file whose heap has an entry of size 0 after its objects: the next is this one."""
    data, _, free = texts_in_a_heap()
    data[free : free + 2] = number.to_bytes(2, "little")
    data[free + 8 : free + 16] = bytes(8)
    return bytes(data)


def first_text_again(data, n):
    """Make the first of many texts of variable length stand for n others too."""
    made = bytearray(data)
    heaps = [match.start().to_bytes(8, "little") for match in re.finditer(b"GCOL", made)]
    first = (1000).to_bytes(4, "little")  # its length
    (at,) = (made.index(first + heap) for heap in heaps if first + heap in made)
    made[at + 16 : at + 16 * n + 16] = bytes(made[at : at + 16]) * n
    return bytes(made)


def edited(data, change):
    """Return an HDF5 file, or an archive with one, that change(file) has changed."""
    if data.startswith(b"PK"):
        parts = members(data)
        return archive(parts | {WEIGHTS: edited(parts[WEIGHTS], change)})
    made = io.BytesIO(data)
    with h5py.File(made, "r+") as file:
        change(file)
    return made.getvalue()


def with_config(data, change):
    """Return a model, an HDF5 file or an archive, whose config is change(its text)."""
    if data.startswith(b"PK"):
        parts = members(data)
        return archive(parts | {"config.json": change(parts["config.json"].decode()).encode()})

    def retell(file):
        file.attrs["model_config"] = change(file.attrs["model_config"])

    return edited(data, retell)


def spoiled(spoil):
    """Spoil the good file, or the member of a .keras archive."""

    def write(path):
        def change(file):
            name = MODEL if MODEL in file else VARIABLES
            del file[name]
            spoil(file, name, path)

        is_weights = path.name.endswith(".weights.h5")
        return edited(good(".weights.h5" if is_weights else path.suffix), change)

    return write


def plain(change=lambda file, path: None):
    """Change a file that h5py alone wrote: arrays by the names of a layout."""

    def write(path):
        def fill(file):
            for leaf, shape in {"kernel": (5, 12), "recurrent_kernel": (3, 12)}.items():
                file[f"enc/{leaf}"] = np.ones(shape, "f4")
            change(file, path)

        return written(fill)

    return write


def plain_spoiled(spoil):
    def change(file, path):
        del file["enc/kernel"]
        spoil(file, "enc/kernel", path)

    return plain(change)


def new_chunks(path):
    """Chunks with an index of HDF5 1.10."""
    return written(lambda file: file.create_dataset("enc/kernel", SHAPE, "f4", chunks=True),
                   libver="latest")  # fmt: skip


def names_of_layers(file, path):
    """Give the tensors of torch with layer numbers that no RNN has."""
    for number in ("99999999999999999999", "0" * 5000, "-1", "٣", "1e9"):
        file[f"rnn.weight_ih_l{number}"] = file[f"rnn.weight_hh_l{number}"] = np.ones((12, 3), "f4")


PLAIN = {
    "chunks of HDF5 1.10": (new_chunks, "opens without libver"),
    "one dataset as every tensor": (plain(lambda file, path: [
        file.__setitem__(f"{k}/{leaf}", file["enc/recurrent_kernel"])
        for k in range(100) for leaf in ("kernel", "recurrent_kernel")]), "is the same as"),
    "the names of a layer of any number": (plain(names_of_layers), "", EITHER),
    "names that are not UTF-8": (plain(lambda file, path: file.create_dataset(
        b"enc/kernel\xff", (5, 12), "f4")), "", EITHER),
    "the same name with dots and slashes": (plain(lambda file, path: file.update({
        "enc.kernel": np.zeros((5, 12), "f4"), "enc.recurrent_kernel": np.zeros((3, 12), "f4")})),
        "", EITHER),
    "a shape that does not fit": (plain(lambda file, path: file.move("enc/kernel", "a") or
        file.create_dataset("enc/kernel", (5, 13), "f4")), "13"),
    "layers of terabytes that are not written": (plain(lambda file, path: [
        file.create_dataset(f"rnn/weight_{part}_l{k}", (4 << 20, 1 << 20), "f4")
        for k in range(20) for part in ("ih", "hh")]), BOMB_SAID),
}  # fmt: skip


# ------------------------------------------------------------------------------------ the config

ODD = {
    "a Lambda": {"class_name": "Lambda", "config": {
        "name": "code", "function": ["4wEAAAA=", None, None], "function_type": "lambda"}},
    "a registered object": {"class_name": "LSTM", "module": "this", "registered_name": "this>it",
                            "config": {"name": "it", "units": 3}},
    "a TFSMLayer": {"class_name": "TFSMLayer", "module": "keras.layers",
                    "config": {"name": "saved", "filepath": "/etc/passwd"}},
}  # fmt: skip
NO_CONFIG = {
    "nothing": "",
    "a list": "[]",
    "lists in lists": "[" * 1_000_000,
    "models in models": '{"class_name":"Sequential","config":{"layers":[' * 300 + "]}}" * 300,
    "NaN": '{"config": NaN}',
    "a number of a million digits": '{"config":' + "9" * 1_000_000 + "}",
    "layers that are anything": '{"class_name":"Sequential","config":{"layers":[3,{"a":[]}]}}',
}


def of_layers(change):
    """Change the layers of the good file's config: change(list of layers)."""

    def changed(text):
        model = json.loads(text)
        change(model["config"]["layers"])
        return json.dumps(model)

    return lambda path: with_config(good(path.suffix), changed)


def told(**more):
    """Change the config of the LSTM, which follows the input."""
    return of_layers(lambda layers: layers[1]["config"].update(more))


# The length of the error is limited.
WRONG = {
    **each(told, "units", 10**30, "3", None, True, says=r"\A.{0,500}\Z"),
    **each(told, "activation", {"class_name": "function"}, says=r"\A.{0,500}\Z"),
    **each(told, "recurrent_activation", ["x"] * 1000, says=r"\A.{0,500}\Z"),
}
ATTRIBUTES = {"layer_names": "model_weights", "weight_names": "model_weights/lstm"}
VALUES = {"a number": 3, "numbers": np.ones(3), "no UTF-8": b"\xff\xfe", "a text": "text",
          "nothing": h5py.Empty("S3")}  # fmt: skip


def attribute(name, value, **more):
    def change(file):
        file[ATTRIBUTES.get(name, "/")].attrs.create(name, value, **more)

    return lambda path: edited(good(".h5"), change)


NAMES = {
    "names that all lie in one place": (
        attribute("layer_names", ["x" * 60_000] * 400, dtype=h5py.string_dtype()), "HDF5 texts",
    ),
    "names that lead out": attribute(
        "weight_names", ["../../secret/other.h5"] * 3, dtype=h5py.string_dtype()
    ),
    **{f"{name}, {kind}": attribute(name, value)
       for name in (*ATTRIBUTES, "model_config") for kind, value in VALUES.items()},
}  # fmt: skip


CASES = {
    **files({name: (spoiled(row[0]), *row[1:]) if isinstance(row, tuple) else spoiled(row)
             for name, row in SPOILERS.items()}, *ALL, kind="HDF5, "),
    **files({name: (plain_spoiled(row[0]), *row[1:]) if isinstance(row, tuple)
             else plain_spoiled(row) for name, row in SPOILERS.items()},
            ".h5", kind="plain HDF5, "),
    **files(PLAIN, ".h5", kind="plain HDF5, "),
    **files(WRONG, ".h5", ".keras", kind="config, ", codes=(3, 4)),
    **files(NAMES, ".h5"),
    # one more layer, which is not an RNN; and a config that names none: the weights tell the RNN
    **files({name: of_layers(lambda layers, one=one: layers.append(one))
             for name, one in ODD.items()}, ".h5", ".keras", kind="config, ", codes=READ),
    **files({name: lambda path, text=text: with_config(good(path.suffix), lambda _: text)
             for name, text in NO_CONFIG.items()}, ".h5", ".keras", kind="config, ", codes=EITHER),
}  # fmt: skip
