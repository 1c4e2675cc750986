"""Malformed files of named tensors: a FileError that names the mistake, and no allocation."""

import io
import json
import struct
import zipfile

import numpy as np
import pytest

import rnnlayout as rl

SPEC = rl.Spec("lstm", 5, 3)
F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def raw(header, data=b"\0" * 8, nbytes=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if nbytes is None else nbytes) + text + data


def changed(**more):
    return raw({"a": {**F32, **more}})


MALFORMED = {
    "empty": (b"", "has 0 bytes"),
    "short": (b"\2\0\0", "3 bytes"),
    "header beyond the end": (raw({"a": F32}, nbytes=1000), "length 1000 exceeds"),
    "header of an exabyte": (raw({"a": F32}, nbytes=1 << 60), "exceeds the maximum of"),
    "no JSON": (raw(b"{"), "malformed"),
    "not a JSON object": (raw(b"[]"), "begin with {"),
    "spaces first": (raw(b' {"a":1}'), "begin with {"),
    "no UTF-8": (raw(b'{"\xff":1}'), "malformed"),
    "half a surrogate": (raw(b'{"\\ud800":%s}' % json.dumps(F32).encode()), "malformed"),
    "NaN": (raw(b'{"a":NaN}'), "NaN is not JSON"),
    "an endless number": (raw(b'{"a":' + b"9" * 5000 + b"}"), "malformed"),
    "deep": (raw(b'{"a":' + b"[" * 100_000), "malformed"),
    "a name twice": (
        raw(b'{"a":%s,"a":%s}' % ((json.dumps(F32).encode(),) * 2)),
        "'a' occurs twice",
    ),
    "a key twice": (raw(b'{"a":{"dtype":"F32","dtype":"F32"}}'), "'dtype' occurs twice"),
    "metadata of numbers": (raw({"__metadata__": {"a": 1}}, b""), "values are strings"),
    "a key more": (changed(more=1), "needs exactly dtype"),
    "no dtype": (changed(dtype=""), "dtype is not a name"),
    "dtype of another kind": (changed(dtype=["F32"]), "dtype is not a name"),
    "NumPy's name of a dtype": (changed(dtype="float32"), "dtype is not a name"),
    "shape of another kind": (changed(shape="2"), "shape is not a list"),
    "a negative size": (changed(shape=[-2]), "shape is not a list"),
    "a size that is true": (changed(shape=[True, 2]), "shape is not a list"),
    "a size with a comma": (changed(shape=[2.0]), "shape is not a list"),
    "an overflow": (changed(shape=[1 << 62, 4]), "too large"),
    "an overflow with a zero": (changed(shape=[0, 1 << 62, 4], data_offsets=[0, 0]), "too large"),
    "too many axes": (changed(shape=[1] * 65), "shape is not a list"),
    "a shape of other bytes": (changed(shape=[3]), "8 bytes do not fit shape"),
    "offsets that are one": (changed(data_offsets=[0]), "not two sizes"),
    "offsets turned round": (changed(data_offsets=[8, 0]), "is at bytes 8 to 0"),
    "offsets beyond the end": (
        changed(shape=[4], data_offsets=[0, 16]),
        "is at bytes 0 to 16 of 8",
    ),
    "an overlap": (raw({"a": F32, "b": F32}), "overlaps another"),
    "a gap": (
        raw({"a": {**F32, "data_offsets": [4, 12]}}, b"\0" * 12),
        "has 4 unused bytes before",
    ),
    "bytes behind": (raw({"a": F32}, b"\0" * 9), "1 bytes after the last"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_safetensors_file(case, tmp_path):
    data, text = MALFORMED[case]
    path = tmp_path / "a.safetensors"
    path.write_bytes(data)
    with pytest.raises(rl.FileError) as caught:
        rl.load(path)
    assert text in str(caught.value) and str(path) in str(caught.value)


def npy(header, data=b"", version=b"\1\0"):
    text = header if isinstance(header, bytes) else repr(header).encode()
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text + data


def told(**more):
    return npy({"descr": "<f4", "fortran_order": False, "shape": (84,), **more}, b"\0" * 336)


ARRAYS = {
    "no magic": (b"NUMPY", "not a NumPy array"),
    "an unknown version": (npy({}, version=b"\7\0"), "version"),
    "a short header": (told()[:40], "expected 56 bytes got 30"),
    "no literal": (npy(b"__import__('os').abort()"), "malformed"),
    "deep": (npy(b"(" * 9000), "malformed"),
    "no dict": (npy([]), "not a dictionary"),
    "objects": (told(descr="|O"), "Python objects"),
    "an object inside": (told(descr=[("a", "<f4"), ("b", "|O")]), "Python objects"),
    "no dtype": (told(descr="<x9"), "descriptor: '<x9'"),
    "a dtype that is a number": (told(descr=7), "descriptor: 7"),
    "a bomb": (told(shape=(1 << 40,)), "cut short"),
    "an overflow": (told(shape=(1 << 62, 4)), "too large"),
    "a negative size": (told(shape=(-84,)), "is not a list of sizes"),
    "one number": (told(shape=84), "shape is not valid"),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_a_malformed_array(case, tmp_path):
    data, text = ARRAYS[case]
    (tmp_path / "a.npy").write_bytes(data)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("weight_space.npy", data)
    for name in ("a.npy", "a.npz"):
        with pytest.raises(rl.FileError) as caught:
            rl.load(tmp_path / name, SPEC)
        assert text in str(caught.value) and name in str(caught.value)


def test_no_pickle_is_ever_read(tmp_path):
    class Bomb:
        def __reduce__(self):
            return pytest.fail, ("it was run",)

    for name, write in (("a.npy", np.save), ("a.npz", np.savez)):
        write(tmp_path / name, np.array([Bomb()], dtype=object))
        with pytest.raises(rl.FileError, match="Python objects"):
            rl.load(tmp_path / name, SPEC)


def archive(compression=zipfile.ZIP_DEFLATED, **members):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", compression) as file:
        for name, member in members.items():
            file.writestr(name.replace("__", "."), member)
    return data.getvalue()


@pytest.mark.parametrize(
    "data, text",
    [
        (b"PK\3\4 nothing", "not a zip archive"),
        (
            archive(zipfile.ZIP_LZMA, a__npy=b""),
            "compressed with method 14, which is not supported",
        ),
        (
            archive(zipfile.ZIP_BZIP2, a__npy=b""),
            "compressed with method 12, which is not supported",
        ),
        (archive(a__npy=b"\0" * (80 << 20)), "refused as a decompression bomb"),
        (archive(rnnlayout__json=b"[]"), "not a JSON object"),
        (archive(rnnlayout__json=b'{"dtypes": {"a": 1}}'), "values are strings"),
        (
            archive(rnnlayout__json=b'{"dtypes": {"a": "bfloat16"}}', a__npy=told()),
            "says bfloat16: they do not fit",
        ),
        (archive(a__npy=told(), a=b""), "both be named 'a'"),
    ],
)
def test_a_malformed_archive(data, text, tmp_path):
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(rl.FileError, match=text):
        rl.load(tmp_path / "a.npz")


ENTRY = {"prefix": "", "layout": "cudnn", "options": {}, "spec": SPEC.to_dict(), "config": {}}


@pytest.mark.parametrize(
    "metadata, error, text",
    [
        ("{", rl.FileError, "malformed"),
        ({}, rl.FileError, "no schema version"),
        ({"schema": 2, "entries": {}}, rl.FileError, "newer release of rnnlayout.*update"),
        ({"schema": 1, "entries": []}, rl.FileError, "no entries"),
        ({"schema": 1, "entries": {"a": {**ENTRY, "spec": 1}}}, rl.FileError, "needs prefix"),
        ({"schema": 1, "entries": {"a": {**ENTRY, "layout": "x"}}}, rl.FileError, "entry 'a'"),
        (
            {"schema": 1, "entries": {"a": {**ENTRY, "batch_first": "no"}}},
            rl.FileError,
            "batch_first is 'no', need true or false",
        ),
        (
            {"schema": 1, "entries": {"a": {**ENTRY, "options": {"name": "x"}}}},
            rl.FileError,
            "entry 'a'",
        ),
        (
            {"schema": 1, "entries": {"a": {**ENTRY, "spec": {**SPEC.to_dict(), "cell": "x"}}}},
            rl.FileError,
            "entry 'a'",
        ),
        (
            {"schema": 1, "entries": {"a": {**ENTRY, "prefix": "x."}}},
            rl.LayoutError,
            "but tensors of it are missing",
        ),
        (
            {
                "schema": 1,
                "entries": {"a": {**ENTRY, "spec": SPEC.replace(hidden_size=4).to_dict()}},
            },
            rl.LayoutError,
            "^a: ",
        ),
        (
            {
                "schema": 1,
                "entries": {
                    "a": {
                        **ENTRY,
                        "layout": "torch",
                        "spec": SPEC.replace(num_layers=65536).to_dict(),
                    }
                },
            },
            rl.LayoutError,
            "but tensors of it are missing",
        ),
    ],
)
def test_malformed_metadata(metadata, error, text, tmp_path):
    flat = np.zeros(SPEC.num_params, "<f4").tobytes()
    word = metadata if isinstance(metadata, str) else json.dumps(metadata)
    tensor = {"dtype": "F32", "shape": [SPEC.num_params], "data_offsets": [0, len(flat)]}
    path = tmp_path / "a.safetensors"
    path.write_bytes(raw({"__metadata__": {"rnnlayout": word}, "weight_space": tensor}, flat))
    with pytest.raises(error, match=text):
        rl.load(path)


def test_an_unknown_dtype_passes_and_is_no_rnn(tmp_path):
    path = tmp_path / "a.safetensors"
    names = list(rl.describe(SPEC, "torch"))
    header = {n: {"dtype": "I4", "shape": [2, 3], "data_offsets": [3 * k, 3 * k + 3]}
              for k, n in enumerate(names)}  # fmt: skip
    path.write_bytes(raw(header, bytes(range(12))))
    with pytest.raises(rl.LayoutError, match="weight_ih_l0 is I4"):
        rl.load(path)


def test_a_file_that_is_only_written(tmp_path):
    (tmp_path / "a.h").write_text("#pragma once")
    with pytest.raises(rl.FileError, match="only written"):
        rl.load(tmp_path / "a.h")
