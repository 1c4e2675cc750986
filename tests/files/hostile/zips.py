"""Hostile zip archives, under each suffix that is one: .npz, .pt, .keras."""

import copy
import io
import re
import struct
import zipfile

from files.hostile.case import EITHER, files
from files.hostile.good import archive, good, members

ZEROS = 120 << 20
DEFLATED = zipfile.ZIP_DEFLATED


def first(parts):
    return next(iter(parts))


def bomb(parts, change=lambda file: None, size=ZEROS):
    """Return the good archive, whose first member is zeros; its directory is changed then."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", DEFLATED, compresslevel=1) as file:
        for name, data in parts.items():
            file.writestr(name, bytes(size) if name == first(parts) else data)
        change(file)
    return made.getvalue()


def told(**fields):
    """Return a function that makes the good archive, whose directory says something else of the
    first member."""

    def make(parts):
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as file:
            for name, data in parts.items():
                file.writestr(name, data)
            for field, value in fields.items():
                setattr(file.filelist[0], field, value)
        return made.getvalue()

    return make


def overlap(file):
    """The known zip bomb: many members in the directory share the same bytes."""
    for k in range(1, 1000):
        file.filelist.append(copy.copy(file.filelist[0]))
        file.filelist[-1].filename = f"m/data/{k}"


def with_end(form, at, *numbers):
    """Return a function that makes an archive with other numbers in its end record."""

    def make(parts):
        data = bytearray(archive(parts))
        struct.pack_into(form, data, data.rindex(b"PK\5\6") + at, *numbers)
        return bytes(data)

    return make


MAKERS = {
    "a member that is a bomb": (bomb, "bomb|compressed"),
    "a bomb that says it is small": lambda p: bomb(
        p, lambda file: setattr(file.filelist[0], "file_size", 100)),
    "members in each other": (lambda p: bomb(p, overlap, 32 << 20), "overlaps another member"),
    "a size that nothing stands for": told(file_size=(1 << 32) - 2),
    "a member beyond the end": told(compress_size=1 << 30, file_size=1 << 30),
    "a wrong checksum": told(CRC=1),
    "encrypted": (told(flag_bits=1), "is encrypted"),
    "an unknown method": (told(compress_type=97), "is compressed with method 97"),
    "no deflate": told(compress_type=DEFLATED),
    "Zip64, a size": told(compress_size=1 << 62, file_size=1 << 62),
    "Zip64, a negative place": told(header_offset=(1 << 64) - 1),
    "Zip64, a place beyond the end": told(header_offset=1 << 62),
    "a directory that does not exist": with_end("<I", 16, 1 << 31),
    "a name twice": (
        lambda p: archive([*p.items(), (first(p), b"other")]), "has two members named"),
    "very many members": lambda p: archive({**{f"x/{k}": b"" for k in range(1000)}, "y": b"\0"}),
    "text before an empty archive": lambda p: b"PK\3\4" + archive({}),
    "the end alone": lambda p: archive({}),
    "a comment of ends": lambda p: b"PK\5\6" * 15_000,
}  # fmt: skip
WAYS_OUT = ["../mark", "/tmp/rnnlayout-mark", "a/../../mark", "..\\mark", "C:\\mark", "con\0mark"]
# These contain an RNN. Names lead nowhere, and the directory's count is not needed.
INTACT = {
    "names that lead out": lambda p: archive({**p, **dict.fromkeys(WAYS_OUT, bytes(3))}),
    "members that are not there": with_end("<HH", 8, 65535, 65535),
}
KERAS = {
    f"{name} {ascii(data)[:10]}": (
        lambda p, name=name, data=data: archive(replaced(p, name, data)), re.escape(name),
    )
    for name in ("metadata.json", "config.json", "model.weights.h5")
    for data in (None, b"[]", bytes(1000))
}  # fmt: skip


def replaced(parts, name, data):
    return {k: v for k, v in ({**parts, name: data}).items() if v is not None}


def of_torch(name, data=None):
    """Return a function that replaces a member of an archive of torch, or leaves it out."""
    return lambda parts: archive(replaced(parts, f"{first(parts).partition('/')[0]}/{name}", data))


# Archives of torch that torch itself does not write.
TORCH = {
    "compressed": (lambda p: archive(p, DEFLATED), "compressed"),
    "of a big-endian machine": (of_torch("byteorder", b"big"), "big-endian"),
    "without a storage": (of_torch("data/1"), "no member .*data/1"),
    "without its pickle": (of_torch("data.pkl"), r"data\.pkl"),
    "of torch.export": (
        lambda p: archive({"m/archive_format": b"pt2", "m/models/model.json": b"{}"}),
        r"archive of torch\.export without the weights",
    ),
}  # fmt: skip


def of_good(table, *suffixes, **more):
    """Return the cases of a table whose functions take the parts of the good archive."""
    rows = {name: row if isinstance(row, tuple) else (row,) for name, row in table.items()}
    rows = {name: (lambda path, make=make: make(members(good(path.suffix))), *says)
            for name, (make, *says) in rows.items()}  # fmt: skip
    return files(rows, *suffixes, kind="zip, ", **more)


ALL = (".npz", ".pt", ".keras")
CASES = {
    **of_good(MAKERS, *ALL),
    **of_good(INTACT, *ALL, codes=EITHER),
    **of_good(TORCH, ".pt"),
    **of_good(KERAS, ".keras"),
}
