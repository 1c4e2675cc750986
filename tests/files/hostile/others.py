"""Under every suffix: not a regular file, a file of another format, an empty file."""

import os

from files.hostile.good import LAYOUTS, good

SUFFIXES = (".safetensors", ".npz", ".npy", ".bin", ".pt", ".h5", ".weights.h5", ".keras", ".onnx",
            ".msgpack", ".eqx", ".pdparams")  # fmt: skip


def itself(path):
    path.symlink_to(path)


def to(target):
    return lambda path: path.symlink_to(target)


def gone(path):
    path.symlink_to(path.with_name("nowhere"))


def bytes_of(data):
    return lambda path: path.write_bytes(data)


def another(suffix):
    return lambda path: path.write_bytes(good(suffix))


NO_FILES = {
    "a FIFO": os.mkfifo,
    "a folder": os.mkdir,
    "a link to itself": itself,
    "a link to nothing": gone,
    "a link to dev zero": to("/dev/zero"),
    "a link to dev null": to("/dev/null"),
    "a link to proc": to("/proc/self/mem"),
}
CONTENTS = {
    "no bytes": b"",
    "a byte": b"\0",
    "a thousand zeros": bytes(1000),
    "a thousand times ff": b"\xff" * 1000,
    "a text": b"weight_ih_l0\n" * 100,
    "a page": b"<!DOCTYPE html><html>",
    "git-lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    "the head of HDF5": b"\x89HDF\r\n\x1a\n",
    "the head of a pickle": b"\x80\x02",
    "gzip": b"\x1f\x8b\x08" + bytes(50),
    "a tar archive": bytes(257) + b"ustar" + bytes(300),
}
# The bytes of another format. A .bin accepts any bytes; a vector alone is an RNN by its spec.
EITHER = {
    f"really {real[1:]}{suffix}": another(real)
    for suffix in SUFFIXES
    for real in LAYOUTS
    if real not in (".bin", ".npy") and not real.endswith(suffix) and not suffix.endswith(real)
}
CASES = {
    **{f"{name}{suffix}": make for name, make in NO_FILES.items() for suffix in SUFFIXES},
    **{f"{name}{suffix}": bytes_of(data) for name, data in CONTENTS.items()
       for suffix in SUFFIXES},
}  # fmt: skip
