"""Hostile files of named tensors: .safetensors, .npz, .npy, .bin; and JSON in any of them."""

import json
import struct
import zipfile

import numpy as np
from files.hostile.good import SPEC, archive, described, good, members

F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
FLAT = np.ones(SPEC.num_params, "<f4").tobytes()


def header(told, data=b"\0" * 8, nbytes=None):
    text = told if isinstance(told, bytes) else json.dumps(told).encode()
    return struct.pack("<Q", len(text) if nbytes is None else nbytes) + text + data


def changed(**more):
    return header({"a": {**F32, **more}})


def array(told, data=b"", version=b"\1\0"):
    text = told if isinstance(told, bytes) else repr(told).encode()
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text + data


def shaped(shape, descr="<f4"):
    return array({"descr": descr, "fortran_order": False, "shape": shape}, bytes(400))


# ----------------------------------------------------------------------------------------- JSON

JSON = {
    "nothing": b"",
    "cut short": b'{"a":',
    "a list": b"[]",
    "no UTF-8": b'{"\xff\xfe":1}',
    "half a surrogate": b'{"\\ud800":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
    "NaN": b'{"a":NaN}',
    "infinity": b'{"a":-Infinity}',
    "a number of a million digits": b'{"a":' + b"9" * 1_000_000 + b"}",
    "an exponent": b'{"a":1e999999999}',
    "lists in lists": b'{"a":' + b"[" * 1_000_000,
    "objects in objects": b'{"a":' * 200_000 + b"1" + b"}" * 200_000,
    "lists in lists, closed": b'{"a":' + b"[" * 900 + b"]" * 900 + b"}",
    "a key twice": b'{"a":1,"a":1}',
    "very many keys": b"{" + b",".join(b'"%d":0' % k for k in range(100_000)) + b"}",
    "no key but quotes": b'{"' + b'\\"' * 500_000 + b'":0}',
}
SAFETENSORS = {
    "an empty file": b"",
    "seven bytes": bytes(7),
    "a header of 2**63 bytes": header({"a": F32}, nbytes=1 << 63),
    "a header of all bytes": header({"a": F32}, nbytes=(1 << 64) - 1),
    "a header beyond the end": header({"a": F32}, nbytes=1000),
    "a header of 100 MB": header({"a": F32}, nbytes=100_000_000),
    "a tensor twice": header(b'{"a":%s,"a":%s}' % ((json.dumps(F32).encode(),) * 2)),
    "an overlap": header({"a": F32, "b": F32}),
    "a nested overlap": header({"a": {**F32, "shape": [1], "data_offsets": [2, 6]}, "b": F32}),
    "a gap": header({"a": {**F32, "data_offsets": [8, 16]}}, bytes(16)),
    "bytes behind": header({"a": F32}, bytes(9)),
    "offsets turned round": changed(data_offsets=[8, 0]),
    "offsets beyond the end": changed(shape=[4], data_offsets=[0, 16]),
    "offsets that overflow": changed(data_offsets=[0, (1 << 64) + 8]),
    "negative offsets": changed(data_offsets=[-8, 0]),
    "a negative size": changed(shape=[-2]),
    "two negative sizes": changed(shape=[-1, -2]),
    "a huge size": changed(shape=[1 << 62]),
    "a product of 2**64": changed(shape=[1 << 32, 1 << 32]),
    "a size of a million digits": header(b'{"a":{"shape":[' + b"9" * 1_000_000 + b"]}}"),
    "a size with a point": changed(shape=[2.0]),
    "a size that is true": changed(shape=[True, 2]),
    "very many axes": changed(shape=[1] * 100_000 + [2]),
    "a dtype of a megabyte": changed(dtype="F" * 1_000_000),
    "very many tensors of nothing": header(
        {f"{k}.weight_ih_l0": {**F32, "shape": [0], "data_offsets": [0, 0]} for k in range(5_000)},
        b"",
    ),
    "metadata of numbers": header({"__metadata__": {"a": 1}, "a": F32}),
    "a spec of a layer too many": header(
        {"__metadata__": {"rnnlayout": json.dumps({"schema": 1, "entries": {"a": {
            "prefix": "", "layout": "torch", "options": {}, "config": {},
            "spec": {**described(), "num_layers": 2**31 - 1}}}})}, "a": F32}
    ),
    "a layout by its path": header(
        {"__metadata__": {"rnnlayout": json.dumps({"schema": 1, "entries": {"a": {
            "prefix": "../../", "layout": "/etc/passwd", "options": {}, "config": {},
            "spec": described()}}})}, "a": F32}
    ),
}  # fmt: skip
NPY = {
    "an empty file": b"",
    "no magic": b"NUMPY" + bytes(100),
    "an unknown version": array({}, version=b"\7\0"),
    "code for a header": array(b"__import__('os').system('touch mark')"),
    "a deep header": array(b"(" * 60_000),
    "a deep header of signs": array(b"-" * 60_000 + b"1"),
    "a header of 4 GB": b"\x93NUMPY\2\0" + struct.pack("<I", (1 << 32) - 1) + bytes(100),
    "objects": shaped((4,), "|O"),
    "an object in a field": shaped((4,), [("a", "<f4"), ("b", "|O")]),
    "fields in fields": shaped((4,), [("a", [("b", [("c", "|O")])])]),
    "a huge field": shaped((4,), [("a", "<f4", (1 << 30,))]),
    "a huge text": shaped((4,), "|S2147483647"),
    "a dtype that is a path": shaped((4,), "../../etc/passwd"),
    "a shape of a petabyte": shaped((1 << 48,)),
    "a product of 2**64": shaped((1 << 32, 1 << 32)),
    "a negative size": shaped((-84,)),
    "a size of many digits": array(
        b"{'descr':'<f4','fortran_order':False,'shape':(" + b"9" * 60_000 + b",)}", bytes(400)
    ),
    "very many axes": shaped((1,) * 10_000),
    "no axes": shaped(()),
    "texts without letters": shaped((1 << 40,), "|S0"),
    "fields of nothing": shaped((1 << 40,), []),
}


def pickled_array(path):
    """Object arrays as NumPy itself writes them."""
    save = np.save if path.suffix == ".npy" else np.savez
    save(path, np.array([Touches(path.with_name("mark"))] * 3, dtype=object))


class Touches:
    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return open, (self.mark, "w")


def beside(told, data=FLAT, name="{}.json"):
    """Write a .bin file and the JSON that describes it."""

    def write(path):
        path.write_bytes(data)
        text = told if isinstance(told, bytes) else json.dumps(told).encode()
        path.with_name(name.format(path.name)).write_bytes(text)

    return write


def sparse(path):
    with open(path, "wb") as file:
        file.truncate(1 << 40)
    path.with_name(path.name + ".json").write_text(json.dumps(described()))


def fifo_beside(path):
    import os

    path.write_bytes(FLAT)
    os.mkfifo(path.with_name(path.name + ".json"))


def linked_beside(path):
    """The JSON may be a link; this one leads to itself."""
    path.write_bytes(FLAT)
    link = path.with_name(path.name + ".json")
    link.symlink_to(link)


def told(**more):
    return {**described(), **more}


def bytes_of(data):
    return lambda path: path.write_bytes(data)


def npz_told(text):
    return archive({**members(good(".npz")), "rnnlayout.json": text})


CASES = {
    **{f"JSON, {k}.safetensors": bytes_of(header(v)) for k, v in JSON.items()},
    **{f"JSON, {k}.bin": beside(v) for k, v in JSON.items()},
    **{f"{k}.safetensors": bytes_of(v) for k, v in SAFETENSORS.items()},
    **{f"{k}.npy": bytes_of(v) for k, v in NPY.items()},
    **{f"{k}.npz": bytes_of(archive({"w.npy": v}, zipfile.ZIP_DEFLATED)) for k, v in NPY.items()},
    "objects of NumPy's.npy": pickled_array,
    "objects of NumPy's.npz": pickled_array,
    "a spec of another size.bin": beside(told(hidden_size=4)),
    "a spec of a huge size.bin": beside(told(hidden_size=1 << 40)),
    "a spec of a size beyond all.bin": beside(told(hidden_size=10**400)),
    "a spec of very many layers.bin": beside(told(num_layers=1 << 31)),
    "a spec of a negative size.bin": beside(told(input_size=-5)),
    "a spec of a text.bin": beside(told(input_size="5")),
    "a spec of a later schema.bin": beside(told(schema=2)),
    "a cell that is a path.bin": beside(told(cell="/etc/passwd")),
    "a path in its place.bin": beside({**described(), "file": "/etc/passwd"}),
    "a spec of no dtype.bin": beside(told(dtype="object")),
    "a description of 20 MB.bin": beside(b" " * (20 << 20)),
    "no description.bin": bytes_of(FLAT),
    "no data.bin": beside(described(), b""),
    "an odd byte.bin": beside(described(), FLAT + b"\0"),
    "a terabyte of holes.bin": sparse,
    "a FIFO for a description.bin": fifo_beside,
    "a description that leads to itself.bin": linked_beside,
}  # fmt: skip
# Unknown keys are ignored: the arrays beside them may be read.
EITHER = {f"JSON, {k}.npz": (lambda path, v=v: path.write_bytes(npz_told(v)))
          for k, v in JSON.items()}  # fmt: skip
