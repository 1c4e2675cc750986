"""Which format a file has: its suffix decides, else its content, and format= before both."""

import builtins
import gzip
import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from files.hostile.good import SPEC, archive, good, weights
from marks import in_turn

import rnnlayout as rl

# Those that begin with a signature; .npy has one too, but needs a spec.
SIGNED = [".safetensors", ".npz", ".pt", ".old.pt", ".h5", ".keras", ".onnx", ".msgpack", ".params",
          ".json", ".nam"]  # fmt: skip
NAMES = ["model", "model.pth.tar", "MODEL.Model", "model.tar", "model.v2.best", "model.pkl.bak"]


def put(path, suffix):
    """Write the correct file of a format under another name."""
    path.write_bytes(good(suffix))
    if suffix == ".bin":
        path.with_name(path.name + ".json").write_text(json.dumps(SPEC.to_dict()))
    return path


def packed(found):
    return [one.pack().tobytes() for one in found.values()]


@cache
def right(suffix):
    """Return the weight spaces of the correct file under its own name."""
    with TemporaryDirectory() as folder:
        path = put(Path(folder) / f"a{suffix}", suffix)
        return packed(rl.load(path, SPEC if suffix == ".npy" else None))


@pytest.mark.parametrize("suffix, name", in_turn(SIGNED, NAMES))
def test_the_content_decides_where_the_suffix_does_not(suffix, name, tmp_path):
    path = put(tmp_path / name, suffix)
    assert packed(rl.load(path)) == right(suffix)
    rl.convert_file(path, tmp_path / "new.npz", to="torch")
    assert packed(rl.load(tmp_path / "new.npz")) == right(suffix)


@pytest.mark.parametrize("suffix", [*SIGNED, ".weights.h5", ".pkl", ".eqx", ".pt2", ".packed.pt"])
def test_no_note_of_a_good_file_is_empty(suffix, tmp_path):
    assert all(rl.load(put(tmp_path / f"a{suffix}", suffix)).notes)


@pytest.mark.parametrize("suffix", [*SIGNED, ".bin", ".npy", ".weights.h5"])
def test_format_overrides_the_suffix(suffix, tmp_path):
    path = put(tmp_path / ("model.npz" if suffix != ".npz" else "model.onnx"), suffix)
    spec = SPEC if suffix == ".npy" else None
    name = {".old.pt": "pt"}.get(suffix, suffix[1:])
    assert packed(rl.load(path, spec, format=name)) == right(suffix)
    rl.convert_file(path, tmp_path / "n.safetensors", to="cudnn", spec=spec, format=name)
    assert packed(rl.load(tmp_path / "n.safetensors")) == right(suffix)


WRONG = {  # suffix, what it is -> what the error says
    (".h5", ".keras"): r"zip archive with model\.weights\.h5.*format='keras'",
    (".h5", ".pt"): r"zip archive with .*data\.pkl.*format='pt'",
    (".npz", ".pt"): "format='pt'",
    (".pt", ".npz"): r"zip archive with .*\.npy.*format='npz'",
    (".bin", ".safetensors"): "format='safetensors'",
    (".pt", ".safetensors"): "safetensors file: .*format='safetensors'",
    (".keras", ".h5"): "HDF5 file: .*format='h5'",
    (".safetensors", ".onnx"): "ONNX model: .*format='onnx'",
    (".onnx", ".old.pt"): "PyTorch file: .*format='pt'",
    (".npz", ".npy"): "NumPy array: .*format='npy'",
}


@pytest.mark.parametrize("suffix, other", WRONG)
def test_a_content_that_contradicts_the_suffix(suffix, other, tmp_path):
    path = put(tmp_path / f"model{suffix}", other)
    to = {".onnx": "onnx", ".bin": "cudnn"}.get(suffix, "keras")
    for use in (
        lambda: rl.load(path),
        lambda: rl.convert_file(path, tmp_path / f"n{suffix}", to=to),
        lambda: rl.verify(path, path),
    ):
        with pytest.raises(rl.FileError, match=WRONG[suffix, other]) as caught:
            use()
        assert f"rename it to model{ {'.old.pt': '.pt'}.get(other, other) }" in str(caught.value)
    hint = str(caught.value).rpartition("format='")[2].rstrip("'")
    assert packed(rl.load(path, SPEC if hint == "npy" else None, format=hint)) == right(other)


@pytest.mark.parametrize("name", ["a", "a.jit", "a.tar"])
def test_what_cannot_be_written(name, tmp_path):
    with pytest.raises(rl.FileError, match=r"unknown format: .*\.h, .*\.safetensors") as caught:
        rl.save(tmp_path / name, weights("torch"))
    listed = str(caught.value).partition("written as ")[2].split(", ")
    assert not {".jit", ".pt2", ".pkl"} & set(listed) and ".h" in listed


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0a1b\nsize 1234\n"
PAGE = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>"
# All suffixes but those of files that are only written, and the repair.
UNKNOWN = r"\A(?!.*\.(h|jit),).*unknown format.*\.safetensors.*format="
UNREAD = [  # the name of a file, its bytes, what the error says
    ("model", b"\x08", UNKNOWN),
    ("model", b"hello, world\n" * 9, UNKNOWN),
    ("model", b"\x80", UNKNOWN),
    (
        "model",
        archive({"word/document.xml": b""}),
        "unknown format.*archive with word/document.xml",
    ),
    ("a.h", b"#pragma once", r"\.h files are only written"),
    ("a.weights.h5", good(".weights.h5")[:900], r"\A(?!.*format=)"),
    ("frozen.pb", b"\n\x0f\n\x01x\x12\x0bPlaceholder", "graph are not read: pass the checkpoint"),
    ("a.mlmodel", b"\x08\x05\x12\x00", "a Core ML model: pass the file of the model that it was"),
    ("a.ort", b"\x18\0\0\0ORTM" + bytes(40), r"\.ort format: pass the \.onnx file"),
    ("m.onnx.data", bytes(4) + b"?" * 40, r"weights of an ONNX model: pass m\.onnx beside it"),
    ("model.meta", b"\n\x04meta", r"graph of a TensorFlow checkpoint: pass the \.index file"),
    ("model.data-00000-of-00001", bytes(range(90)), r"pass model\.index beside it"),
    ("model.pt", LFS, r"model\.pt is a pointer of Git LFS, not the file: run `git lfs pull`"),
    ("model.safetensors", LFS, "a pointer of Git LFS"),
    ("model.h5", PAGE, r"model\.h5 is a web page, not a file of weights: open it in a browser"),
    ("model.onnx", b"\n<html>", "a web page"),
    ("model", PAGE, "a web page"),
    (
        "model.npz",
        b"\x1f\x8b\x08" + bytes(40),
        r"with gzip: decompress it \(gunzip < model.npz > new-model",
    ),
    (
        "model.pt.gz",
        gzip.compress(good(".pt")),
        r"decompress it \(gunzip -k model.pt.gz\) and pass model.pt$",
    ),
    (
        "model.pt.zst",
        b"\x28\xb5\x2f\xfd" + bytes(40),
        r"decompress it \(zstd -d -k model.pt.zst\) and pass model.pt$",
    ),
]


@pytest.mark.parametrize("name, data, says", UNREAD, ids=[row[0] for row in UNREAD])
def test_a_file_that_is_not_read_says_what_to_do(name, data, says, tmp_path):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(rl.FileError, match=says):
        rl.load(tmp_path / name)
    if name == "model.pt.gz":  # as the message says
        subprocess.run(["gunzip", "-k", tmp_path / name], check=True)
        assert packed(rl.load(tmp_path / "model.pt")) == right(".pt")


FOLDERS = {  # the files in a folder -> what the error says
    ("config.json", "model.safetensors"): r"need a file: pass .*/model\.safetensors$",
    ("model-1.safetensors", "model-2.safetensors"): "model-1.safetensors, or one of its 1 others$",
    ("checkpoint", "ckpt-7.index", "ckpt-7.data-00000-of-00001"): r"pass .*/ckpt-7\.index$",
    ("_CHECKPOINT_METADATA", "_METADATA"): r"Orbax, .*\.restore\('/.*'\) restores",
    ("checkpoint_2", "checkpoint_10"): r"need a file: pass .*/checkpoint_10$",
    ("Manifest.json",): "an .mlpackage of Core ML, which is not read: pass the file of the model",
    ("notes.txt",): "is not a regular file: it is a folder",
}


@pytest.mark.parametrize("names", FOLDERS)
def test_a_folder_that_is_not_read_says_which_file_to_pass(names, tmp_path):
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(rl.FileError, match=FOLDERS[names]):
        rl.load(tmp_path)


@pytest.mark.parametrize("name", ["sb3.zip", "a b.zip", "sb3"])
def test_an_archive_of_files_says_how_to_unpack_it(name, tmp_path, monkeypatch):
    """The command works. Stable-Baselines3 writes such archives, with the policy's state_dict."""
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile(name, "w") as file:
        file.writestr("data", "{}")
        file.writestr("pytorch_variables.pth", b"")
        file.writestr("policy.pth", good(".pt"))
    with pytest.raises(rl.FileError, match=r"such as policy\.pth: unpack it, python -m") as caught:
        rl.load(name)
    command, path = re.search("unpack it, python (.*), and pass (.*)", str(caught.value)).groups()
    subprocess.run([sys.executable, *shlex.split(command)], check=True)
    assert packed(rl.load(path)) == right(".pt")


def test_a_pipe_and_an_address(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(rl.FileError, match="save what it contains to a file, and pass that"):
        rl.load(tmp_path / "pipe")
    for path in ("https://example.org/model.pt", "s3://bucket/model.keras"):
        with pytest.raises(rl.FileError, match=f"{path} is an address: download it, and pass"):
            rl.load(path)


@pytest.mark.parametrize("suffix", ["pt", "safetensors", "npz", "h5", "onnx"])
def test_a_file_that_may_not_be_read(suffix, tmp_path, monkeypatch):
    """root may read every file."""
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(b"a")

    def refused(file, *arguments, **options):
        if str(file) == str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return true_open(file, *arguments, **options)

    true_open = builtins.open
    monkeypatch.setattr(builtins, "open", refused)
    with pytest.raises(rl.FileError, match="cannot be read: Permission denied"):
        rl.load(path)


def test_a_json_with_a_byte_order_mark_is_read(tmp_path):
    path = put(tmp_path / "a.bin", ".bin")
    beside = tmp_path / "a.bin.json"
    beside.write_bytes(b"\xef\xbb\xbf" + beside.read_bytes())
    assert packed(rl.load(path)) == right(".bin")
