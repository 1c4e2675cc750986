"""Hostile zip archives, under each suffix that is one: .npz, .pt, .keras."""

import re
import struct
import zipfile
import zlib
from functools import cache

from files.hostile.case import EITHER, files
from files.hostile.good import archive, good, members

ZEROS = 120 << 20
DEFLATED = zipfile.ZIP_DEFLATED


@cache
def zeros(nbytes):
    """Return zeros deflated two hundred to one, without needing their size in memory."""
    made = zlib.compressobj(1, zlib.DEFLATED, -15)
    block = bytes(1 << 20)
    return b"".join([*(made.compress(block) for _ in range(nbytes >> 20)), made.flush()])


class Zip:
    """A zip archive with any directory."""

    def __init__(self):
        self.data, self.directory, self.count = bytearray(), bytearray(), 0

    def add(self, name, stored, method=0, size=None, *, crc=0, flags=0, at=None, packed=None,
            extra=b""):  # fmt: skip
        """Add a member. at: the place that the directory names; then nothing is written there."""
        name = name.encode()
        size, packed = (len(stored) if n is None else n for n in (size, packed))
        fields = struct.pack("<HHHHIIIH", flags, method, 0, 0x21, crc, packed, size, len(name))
        if at is None:
            at = len(self.data)
            local = b"PK\3\4" + struct.pack("<H", 20) + fields + struct.pack("<H", 0)
            self.data += local + name + stored
        self.directory += b"PK\1\2" + struct.pack("<HH", 20, 20) + fields
        self.directory += struct.pack("<HHHHII", len(extra), 0, 0, 0, 0, at) + name + extra
        self.count += 1

    def __bytes__(self):
        end = struct.pack("<HHHHIIH", 0, 0, self.count, self.count, len(self.directory),
                          len(self.data), 0)  # fmt: skip
        return bytes(self.data + self.directory + b"PK\5\6" + end)


def first(parts):
    return next(iter(parts))


def of(parts, **more):
    """The good members, one of them as `more` says."""
    made = Zip()
    for k, (name, data) in enumerate(parts.items()):
        if k == 0 and more:
            made.add(name, more.pop("stored", data), **more)
        else:
            made.add(name, data, crc=zlib.crc32(data))
    return bytes(made)


def overlapping(parts):
    """The known zip bomb: many members in the directory share the same bytes."""
    made = Zip()
    packed = zeros(32 << 20)
    for k in range(1000):
        name = f"m/data/{k}" if k else first(parts)
        made.add(name, packed, DEFLATED, 32 << 20, at=None if k == 0 else 0)
    return bytes(made)


def with_end(form, at, *numbers):
    """Return a function that makes an archive with other numbers in its end record."""

    def make(parts):
        data = bytearray(archive(parts))
        struct.pack_into(form, data, data.rindex(b"PK\5\6") + at, *numbers)
        return bytes(data)

    return make


def zip64(**lies):
    """Sizes or places in a Zip64 field of the directory."""

    def make(parts):
        made, most = Zip(), (1 << 32) - 1
        values = [lies.get("size", 4), lies.get("packed", 4), lies.get("at", 0)]
        extra = struct.pack("<HHQQQ", 1, 24, *values)
        for name, data in parts.items():
            is_first = not made.data
            made.add(name, data, crc=0 if is_first else zlib.crc32(data))
            if is_first:  # its entry in the directory is replaced
                made.directory.clear()
                made.count = 0
                made.add(name, b"", size=most, packed=most, at=most, extra=extra)
        return bytes(made)

    return make


def zip64_end(parts):
    """An end record that points to a Zip64 directory of an exabyte."""
    data = archive(parts)
    at = data.rindex(b"PK\5\6")
    end64 = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, 1 << 40, 1 << 40, 1 << 60, 0)
    place = struct.pack("<4sIQI", b"PK\6\7", 0, at, 1)
    end = b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 65535, 65535, (1 << 32) - 1, (1 << 32) - 1, 0)
    return data[:at] + end64 + place + end


MAKERS = {
    "a member that is a bomb": (
        lambda p: of(p, stored=zeros(ZEROS), method=DEFLATED, size=ZEROS), "bomb|compressed",
    ),
    "a bomb that says it is small": lambda p: of(p, stored=zeros(ZEROS), method=DEFLATED, size=100),
    "a size that nothing stands for": lambda p: of(p, size=(1 << 32) - 2),
    "a member beyond the end": lambda p: of(p, packed=1 << 30, size=1 << 30),
    "a wrong checksum": lambda p: of(p, crc=1),
    "members in each other": overlapping,
    "a name twice": lambda p: archive([*p.items(), (first(p), b"other")]),
    "encrypted": lambda p: of(p, stored=bytes(12) + p[first(p)], flags=1, size=len(p[first(p)])),
    "an unknown method": lambda p: of(p, method=97),
    "no deflate": lambda p: of(p, method=DEFLATED),
    "a directory that does not exist": with_end("<I", 16, 1 << 31),
    "Zip64, a size": zip64(size=1 << 62, packed=1 << 62),
    "Zip64, a negative place": zip64(at=(1 << 64) - 1),
    "Zip64, a place beyond the end": zip64(at=1 << 62),
    "Zip64, a directory of an exabyte": zip64_end,
    "very many members": lambda p: archive({**{f"x/{k}": b"" for k in range(3_000)}, "y": b"\0"}),
    "an empty archive": lambda p: archive({}),
    "text before an empty archive": lambda p: b"PK\3\4" + archive({}),
    "the end alone": lambda p: b"PK\5\6" + bytes(18),
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
    for data in (None, b"", b"[]", b"{", bytes(1000))
}  # fmt: skip


def replaced(parts, name, data):
    return {k: v for k, v in ({**parts, name: data}).items() if v is not None}


def of_torch(**members):
    """Return a function that replaces members of an archive of torch, or leaves them out."""

    def make(parts):
        folder = first(parts).partition("/")[0]
        for name, data in members.items():
            parts = replaced(parts, f"{folder}/{name}", data)
        return archive(parts)

    return make


# Archives of torch that torch itself does not write.
TORCH = {
    "compressed": (lambda p: archive(p, DEFLATED), "compressed"),
    "of a big-endian machine": (of_torch(byteorder=b"big"), "big-endian"),
    "without a storage": (of_torch(**{"data/1": None}), "no member .*data/1"),
    "without its pickle": (of_torch(**{"data.pkl": None}), r"data\.pkl"),
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
