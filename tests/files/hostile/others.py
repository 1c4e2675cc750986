"""Under every suffix: not a regular file, a file of another format, an empty file."""

import os

from files.hostile.case import EITHER, bound, files, link_to
from files.hostile.good import LAYOUTS, good

SUFFIXES = [suffix for suffix in LAYOUTS if suffix not in (".old.pt", ".pkl", ".data.onnx")]


IRREGULAR, KERNEL = "is not a regular file", "has 0 bytes: it is empty, or a file of the kernel"
NO_FILES = {
    "a FIFO": (os.mkfifo, IRREGULAR),
    "a folder": (os.mkdir, IRREGULAR),
    "a socket": (bound, IRREGULAR),
    "a link to dev zero": (link_to("/dev/zero"), IRREGULAR),
    "a link to dev null": (link_to("/dev/null"), IRREGULAR),
    "a link to itself": (lambda path: path.symlink_to(path), "does not exist"),
    "a link to nothing": (link_to("nowhere"), "does not exist"),
    # regular files without a size, or with one that is not that of their content
    **{f"a link to {name}": (link_to(f"/proc/self/{name}"), KERNEL)
       for name in ("mem", "environ", "maps", "clear_refs")},
    "a link to sys": link_to("/sys/devices/system/cpu/online"),
}  # fmt: skip
CONTENTS = {
    "no bytes": (b"", "has 0 bytes: it is empty, or"),
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
CASES = files({**NO_FILES, **CONTENTS}, *SUFFIXES)
# The bytes of another format. A .bin accepts any bytes; a vector alone is an RNN by its spec.
for suffix in SUFFIXES:
    real = [one for one in LAYOUTS if one not in (".bin", ".npy")
            and not one.endswith(suffix) and not suffix.endswith(one)]  # fmt: skip
    CASES |= files({f"really {one[1:]}": good(one) for one in real}, suffix, codes=EITHER)
