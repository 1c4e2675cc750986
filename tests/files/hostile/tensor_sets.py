"""Hostile files of named tensors: .safetensors, .npz, .npy, .bin; and JSON in any of them."""

import json
import os
import struct
import zipfile

import numpy as np
from files.hostile.case import EITHER, Calls, each, files
from files.hostile.good import (
    PARTS,
    SPEC,
    archive,
    beside as write_beside,
    described,
    good,
    index_of,
    members,
    parts_suffix,
)

import rnnlayout as rl

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


def shaped(shape=(4,), descr="<f4"):
    return array({"descr": descr, "fortran_order": False, "shape": shape}, bytes(400))


# ----------------------------------------------------------------------------------------- JSON

JSON = {
    "nothing": b"",
    "an open brace": b"{",
    "a list": b"[]",
    "spaces first": b' {"a":1}',
    "no UTF-8": b'{"\xff\xfe":1}',
    "half a surrogate": b'{"\\ud800":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
    "NaN": b'{"a":NaN}',
    "a number of a million digits": b'{"a":' + b"9" * 1_000_000 + b"}",
    "lists in lists": b'{"a":' + b"[" * 1_000_000,
    "lists in lists, closed": b'{"a":' + b"[" * 900 + b"]" * 900 + b"}",
    "a key twice": b'{"a":1,"a":1}',
    "very many keys": b"{" + b",".join(b'"%d":0' % k for k in range(30_000)) + b"}",
    "no key but quotes": b'{"' + b'\\"' * 500_000 + b'":0}',
}
# What the error about a header of safetensors says of them.
SAID = r"malformed|begin with \{|NaN is not JSON|'a' occurs twice|needs exactly dtype"
SAFETENSORS = {
    "a header of an exabyte": (header({"a": F32}, nbytes=1 << 60), "exceeds the maximum of"),
    "a header beyond the end": (header({"a": F32}, nbytes=1000), "length 1000 exceeds"),
    "a key more": (changed(more=1), "needs exactly dtype"),
    "an overlap": (header({"a": F32, "b": F32}), "overlaps another"),
    "a gap": (header({"a": {**F32, "data_offsets": [4, 12]}}, bytes(12)), "has 4 unused bytes"),
    "bytes behind": (header({"a": F32}, bytes(9)), "1 bytes after the last"),
    "one offset": (changed(data_offsets=[0]), "not two sizes"),
    "offsets turned round": (changed(data_offsets=[8, 0]), "is at bytes 8 to 0"),
    "offsets beyond the end": (
        changed(shape=[4], data_offsets=[0, 16]), "is at bytes 0 to 16 of 8",
    ),
    **each(changed, "shape", [-2], [-1, -2], [True, 2], [2.0], "2", [1] * 65, [1] * 100_000 + [2],
           says="shape is not a list"),
    **each(changed, "shape", [1 << 62, 4], [1 << 32, 1 << 32], says="too large"),
    "an overflow with a zero": (changed(shape=[0, 1 << 62, 4], data_offsets=[0, 0]), "too large"),
    "a shape of other bytes": (changed(shape=[3]), "8 bytes do not fit shape"),
    "a list for a dtype": (changed(dtype=["F32"]), "dtype is not a name"),
    "very many tensors of nothing": header(
        {f"{k}.weight_ih_l0": {**F32, "shape": [0], "data_offsets": [0, 0]} for k in range(5_000)},
        b"",
    ),
    "metadata of numbers": (
        header({"__metadata__": {"a": 1}, "a": F32}), "values are strings",
    ),
    "numbers of half a byte": (
        header({name: {"dtype": "I4", "shape": [2, 3], "data_offsets": [3 * k, 3 * k + 3]}
                for k, name in enumerate(rl.describe(SPEC, "torch"))}, bytes(12)),
        "weight_ih_l0: dtype I4",
    ),
}  # fmt: skip
NPY = {
    "no magic": (b"NUMPY" + bytes(100), "not a NumPy array"),
    "an unknown version": (array({}, version=b"\7\0"), "version"),
    "a header that is cut": (shaped((84,))[:40], "expected 5. bytes got 30"),
    "code for a header": (array(b"__import__('os').system('touch mark')"), "malformed"),
    "a list for a header": (array([]), "not a dictionary"),
    "a deep header": (array(b"(" * 20_000), "malformed"),
    "a deep header of signs": (array(b"-" * 20_000 + b"1"), "malformed"),
    "a header of 4 GB": b"\x93NUMPY\2\0" + struct.pack("<I", (1 << 32) - 1) + bytes(100),
    **each(shaped, "descr", "|O", [("a", [("b", [("c", "|O")])])], says="Python objects"),
    **each(shaped, "descr", [("a", "<f4", (1 << 30,))], "|S2147483647"),
    **each(shaped, "descr", "<x9", 7, says="descriptor: ('<x9'|7)"),
    "a shape of a petabyte": (shaped((1 << 48,)), "cut short"),
    "a product of 2**64": (shaped((1 << 32, 1 << 32)), "too large"),
    "a negative size": (shaped((-84,)), "is not a list of sizes"),
    "a shape that is a number": (shaped(84), "shape is not valid"),
    "a size of many digits": array(
        b"{'descr':'<f4','fortran_order':False,'shape':(" + b"9" * 60_000 + b",)}", bytes(400)
    ),
    "very many axes": shaped((1,) * 10_000),
    "no axes": shaped(()),
    "texts without letters": shaped((1 << 40,), "|S0"),
    "fields of nothing": shaped((1 << 40,), []),
}


def touches(path):
    """Return what makes a file beside this one, if it is unpickled."""
    return Calls(open, str(path.with_name("mark")), "w")


def pickled_array(path):
    """Object arrays as NumPy itself writes them."""
    save = np.save if path.suffix == ".npy" else np.savez
    save(path, np.array([touches(path)] * 3, dtype=object))


# -------------------------------------------------------------------- the record of rnnlayout


def entry(layout="cudnn", **more):
    return {"prefix": "", "layout": layout, "options": {}, "spec": described(), "config": {}} | more


def recorded(words):
    """Return a weight space with a record."""
    text = words if isinstance(words, str) else json.dumps(words)
    tensor = {"dtype": "F32", "shape": [SPEC.num_params], "data_offsets": [0, len(FLAT)]}
    return header({"__metadata__": {"rnnlayout": text}, "weight_space": tensor}, FLAT)


def of_an_entry(*arguments, **more):
    return recorded({"schema": 1, "entries": {"a": entry(*arguments, **more)}})


# Settings whose values are of the wrong kind.
SETTINGS = [("merge_mode", [1]), ("merge_mode", {"a": 1}), ("go_backwards", "yes"),
            ("direction", 1), ("clip", [1]), ("initial_h", 1), ("initial_h", [1])]  # fmt: skip
RECORDS = {
    **{f"{key} {json.dumps(value)}": (of_an_entry(config={key: value}), key)
       for key, value in SETTINGS},
    "cut short": (recorded("{"), "malformed"),
    "no schema": (recorded({}), "no schema version"),
    "a later schema": (recorded({"schema": 2, "entries": {}}), "newer release .*update"),
    "a list of entries": (recorded({"schema": 1, "entries": []}), "no entries"),
    "a number for a spec": (of_an_entry(spec=1), "needs prefix"),
    "an unknown layout": (of_an_entry("x"), "entry 'a'"),
    "no axes": (of_an_entry(batch_first="no"), "batch_first is 'no', need true or false"),
    "an unknown option": (of_an_entry(options={"name": "x"}), "entry 'a'"),
    "tensors that are missing": (of_an_entry(prefix="x."), "but tensors of it are missing"),
    "another size": (of_an_entry(spec={**described(), "hidden_size": 4}), r"\ba: "),
    "very many layers": (
        of_an_entry("torch", spec={**described(), "num_layers": 65536}), "of it are missing",
    ),
    "a layer too many": (
        of_an_entry("torch", spec={**described(), "num_layers": 2**31 - 1}), "need at most 65536",
    ),
}  # fmt: skip
ARCHIVES = {
    "a record of numbers": (
        archive({"rnnlayout.json": b'{"dtypes": {"a": 1}}'}), "values are strings",
    ),
    "a record of another dtype": (
        archive({"rnnlayout.json": b'{"dtypes": {"a": "bfloat16"}}', "a.npy": shaped((84,))}),
        "says bfloat16: they do not fit",
    ),
    "an array twice": (archive({"a.npy": shaped((84,)), "a": b""}), "both be named 'a'"),
}  # fmt: skip


# --------------------------------------------------------------------------- .bin and its JSON


def beside(told, data=FLAT):
    """Return a function that writes a .bin file and the JSON that describes it. Each is bytes, or a
    function that makes the file; told may be the JSON's content too."""

    def write(path):
        other = path.with_name(f"{path.name}.json")
        if callable(told):
            told(other)
        else:
            other.write_bytes(told if isinstance(told, bytes) else json.dumps(told).encode())
        return data(path) if callable(data) else data

    return write


def told(**more):
    return beside({**described(), **more})


BIN = {
    **each(told, "hidden_size", 4, 1 << 40, 10**400),
    **each(told, "input_size", -5, "5"),
    **each(told, "num_layers", 1 << 31),
    **each(told, "schema", 2),
    **each(told, "dtype", "object"),
    **each(told, "cell", "/etc/passwd"),
    **each(told, "file", "/etc/passwd"),
    "a description of 20 MB": beside(b" " * (20 << 20)),
    "no description": (FLAT, "neither .*bin.json nor .*json beside it"),
    "an odd byte": beside(described(), FLAT + b"\0"),
    "a terabyte of holes": beside(
        described(), lambda path: path.touch() or os.truncate(path, 1 << 40)
    ),
    "a FIFO for a description": beside(os.mkfifo),
    "a description that leads to itself": beside(lambda link: link.symlink_to(link)),
    "axes that are a number": (told(batch_first=1), "batch_first"),
    "an entry that is a number": (told(entry=2), "entry"),
    "a config that is a list": (told(config=[]), "config"),
    **{f"{key} {json.dumps(value)}": (told(config={key: value}), key) for key, value in SETTINGS},
}


# ------------------------------------------------------------------------ the index of a model


def indexed(change, suffix=".index.json"):
    """Return a function that writes the parts of an index, and returns the index after change(),
    which gets the weight map and the path."""

    def write(path):
        write_beside(path)
        index = index_of(suffix)
        change(index["weight_map"], path)
        return json.dumps(index).encode()

    return write


def naming(place, suffix=".index.json"):
    """Return an index whose first part is at a place; the file is there."""
    first = next(iter(PARTS[suffix]))

    def change(weight_map, path):
        other = path.with_name("other")
        other.mkdir()
        (other / first).write_bytes((path.parent / first).read_bytes())
        where = place.format(other=other, first=first, path=path.name)
        for name, parts in weight_map.items():
            is_list = isinstance(parts, list)
            new = [where if part == first else part for part in (parts if is_list else [parts])]
            weight_map[name] = new if is_list else new[0]

    return indexed(change, suffix)


def link_out(weight_map, path):
    """Replace a part by a link out of the folder."""
    first = path.with_name(next(iter(PARTS[parts_suffix(path)])))
    path.with_name("other").mkdir()
    first.rename(path.with_name("other") / first.name)
    first.symlink_to(path.with_name("other") / first.name)


def fifo(weight_map, path):
    first = path.with_name(next(iter(PARTS[parts_suffix(path)])))
    first.unlink()
    os.mkfifo(first)


PLACES = ("other/{first}", "{other}/{first}", "../{first}", "./{first}", "..", "", "/dev/zero",
          "C:{first}", "{first}::$DATA", "other\\{first}", "{first}\0", "x/" * 50_000)  # fmt: skip


def indexes(suffix):
    first = next(iter(PARTS[suffix]))
    return {
        **{f"a part at {place[:20]!r}": (naming(place, suffix), "is not opened")
           for place in PLACES},
        "itself as a part": (naming("{path}", suffix), "is the file itself"),
        "a part that does not exist": (naming("none.safetensors", suffix), "does not exist"),
        "half of a pair as a part": (naming("\ud800", suffix), "cannot be read"),
        "a part that is a link": (indexed(link_out, suffix), "is a link out of"),
        "a part that is a FIFO": (indexed(fifo, suffix), "is not a regular file"),
        "a number as a part": (indexed(lambda m, path: m.update(a=1), suffix), "not the name of"),
        "a tensor too many": (indexed(lambda m, path: m.update(a=first), suffix), "lacks 'a'"),
        "no tensors": (indexed(lambda m, path: m.clear(), suffix), "no weight_map"),
        "a thousand parts": (
            indexed(lambda m, path: m.update((f"{k}", f"{k}") for k in range(1000)), suffix),
            r"has 100\d parts",
        ),
        "a link to each part": (
            indexed(lambda m, path: [path.with_name(f"{k}{first}").symlink_to(first)
                                     or m.update({f"{k}": f"{k}{first}"}) for k in range(200)],
                    suffix),
            "lacks '0'",
        ),
    }  # fmt: skip


CASES = {
    **{name: case for suffix in (".index.json", ".weights.json")
       for name, case in files(indexes(suffix), suffix).items()},
    **files(JSON, *PARTS, kind="JSON, "),
    **files(JSON, ".safetensors", kind="JSON, ", form=header, says=SAID),
    **files({name: beside(data) for name, data in JSON.items()}, ".bin", kind="JSON, "),
    # unknown keys are ignored: the arrays beside them may be read
    **files(JSON, ".npz", kind="JSON, ", codes=EITHER,
            form=lambda text: archive({**members(good(".npz")), "rnnlayout.json": text})),
    **files(SAFETENSORS, ".safetensors"),
    **files(RECORDS, ".safetensors", kind="a record, "),
    **files(NPY, ".npy"),
    **files(NPY, ".npz", form=lambda data: archive({"w.npy": data}, zipfile.ZIP_DEFLATED)),
    **files({"objects of NumPy's": (pickled_array, "Python objects")}, ".npy", ".npz"),
    **files(ARCHIVES, ".npz"),
    **files(BIN, ".bin"),
}  # fmt: skip
