"""Limits on what a file may make us allocate (by its own size) or open (nothing but itself).

Every reader charges what it takes to a budget, whose limits are in one table. Only what can be more
than the bytes of the file is charged: what a file declares, repeats or compresses. All else grows
with the file.

JSON in files is UTF-8, with no name twice at any level, and no constants that JSON lacks.
"""

from __future__ import annotations

import json
import mmap
import os
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from rnnlayout._model.errors import FileError


@dataclass(frozen=True)
class Limit:
    """A limit: `free` for every file, and `times` per byte of the file. unit: the counted unit.
    cause: what is wrong with a file that exceeds the limit. why: the reason for the numbers, shown
    in docs/security.md."""

    unit: str
    free: int
    times: float
    cause: str
    why: str


LIMITS = {
    "unpacked": Limit(
        "bytes of unpacked members", 64 << 20, 100, "it is a decompression bomb",
        "zlib compresses zeros 1032 times; a small archive of zeros is harmless",
    ),
    "arrays": Limit(
        "bytes of arrays", 64 << 20, 100, "it is a decompression bomb, or its arrays overlap",
        "tensors may share bytes, and a dataset of HDF5 may be deflated or not written at all",
    ),
    "names": Limit(
        "characters of names", 8 << 20, 1, "its names repeat",
        "the name of a tensor repeats the keys above it, which a file stores once",
    ),
    "tensors": Limit(
        "tensors", 10_000, 1 / 100, "they cannot have names, shapes and numbers of their own",
        "a name, a dtype, a shape and numbers take 100 bytes or more; reading them takes 10 us",
    ),
    "metadata": Limit(
        "bytes of JSON and programs", 2 << 20, 2, "it is a decompression bomb",
        "a model of a thousand layers has one megabyte; an empty list in JSON takes 27 times as"
        " much memory",
    ),
    "headers": Limit(
        "bytes of NumPy headers", 128 << 10, 1, "they are longer than its size explains",
        "NumPy reads a megabyte per second; a header has 128 bytes, but 64 KB of spaces may be"
        " deflated to 100",
    ),
    "structures": Limit(
        "bytes of HDF5 structures", 1 << 20, 4, "they overlap or repeat",
        "a correct file stores each structure once, and a few are read twice; in a .keras archive"
        " they may be deflated",
    ),
    "texts": Limit(
        "bytes of HDF5 texts", 16 << 20, 1 / 16, "they repeat, or are not stored",
        "the config of a large model has 2 MB; a text becomes an object, which counts 64 bytes",
    ),
    "copied": Limit(
        "characters and items that a pickle copies", 1 << 20, 2, "it passes one again and again",
        "to make an OrderedDict of pairs, or an array of a text, copies them once",
    ),
    "steps": Limit(
        "steps", 800_000, 1 / 4, "it is damaged, or made to take long",
        "a step takes about half a microsecond and makes at most 80 bytes: an instruction of a"
        " pickle is 1, what it names or calls 12, a value of msgpack 2, an array of .eqx 400, a"
        " node of ONNX 4, one of a called function 40, one that is computed 80; a small tensor of"
        " an old .pt is 56, and has 150 bytes",
    ),
    "computed": Limit(
        "bytes of computed weights", 16 << 20, 8, "they are expanded, or repeat",
        "ONNX: int8 becomes float32 and is transposed",
    ),
}  # fmt: skip


@dataclass
class Budget:
    """What may still be taken for a file. name: of the file, in messages. size: its bytes."""

    name: str
    size: int
    _used: dict[str, int] = field(default_factory=dict)

    def charge(self, kind: str, amount: int) -> None:
        """Count what is about to be made. Raises FileError if that is too much for the file."""
        used = self._used[kind] = self._used.get(kind, 0) + amount
        limit = LIMITS[kind]
        if used > limit.free and used > (most := limit.free + int(limit.times * self.size)):
            raise FileError(
                f"{self.name}: {used:,} {limit.unit}, more than {most:,}, the limit for a file of"
                f" {self.size:,} bytes: {limit.cause}: refused"
            )


# -------------------------------------------------------------------------------------------- files


def require_regular_file(path: Any) -> Path:
    """Return path if it is a regular file that may be read and has a size. Raises FileNotFoundError
    if it does not exist, FileError if it is something else, or no path."""
    try:
        found = Path(path)
        is_file = found.is_file()
        exists = is_file or found.exists()
    except TypeError:
        raise FileError(f"need the path of a file, found a {type(path).__name__}") from None
    except (OSError, ValueError) as error:  # a name with a null byte, or too long
        raise FileError(f"{path!r}: {error}") from None
    if not exists:
        index = f"{found}.index"
        more = f": pass {index}, of the TensorFlow checkpoint" if os.path.isfile(index) else ""
        raise FileNotFoundError(f"{path} does not exist{more}")
    if not is_file:
        is_folder = os.path.isdir(found)
        repair = "it is a folder" if is_folder else "save what it contains to a file, and pass that"
        raise FileError(f"{path} is not a regular file: {repair}")
    try:
        with open(found, "rb") as file:
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}") from None
    if not size:  # and so it cannot be mapped
        raise FileError(
            f"{path} has 0 bytes: it is empty, or a file of the kernel as in /proc, whose content"
            " must be copied to a file on a disk"
        )
    return found


class InputFile:
    """A file that is read, and its budget. str() is its path. mmap: whether it may be mapped into
    memory. If another process truncates a mapped file, reading it ends this process; without a map,
    the whole file is read instead."""

    def __init__(self, path: Path, mmap: bool = True) -> None:
        self.path, self.mmap, self._name = path, mmap, str(path)
        self.budget = Budget(self._name, os.stat(path).st_size)

    def __str__(self) -> str:
        return self._name

    def __fspath__(self) -> str:
        return self._name

    def data(self) -> mmap.mmap | bytes:
        """Return its bytes. Raises FileError if it must be mapped, and that is impossible."""
        with open(self.path, "rb") as file:
            return self.data_of(file.fileno())

    def data_of(self, fd: int) -> mmap.mmap | bytes:
        """Return the bytes of the file, which is open, as data() does."""
        try:
            if not self.mmap:
                return open(fd, "rb", closefd=False).read()
            return mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # ValueError: it has no size
            raise FileError(
                f"{self} cannot be mapped into memory: {error}: copy it to a file on a disk"
            ) from None

    def companion(self, path: Path) -> InputFile:
        """Return a file that belongs to this one, whose budget is the same and grows with it."""
        found = InputFile(path, self.mmap)
        self.budget.size += found.budget.size
        found.budget = self.budget
        return found


@contextmanager
def name_file(file: InputFile) -> Iterator[None]:
    """Put the file's name before the text of a FileError that does not begin with it."""
    try:
        yield
    except FileError as error:
        named = error.text.startswith(str(file))
        raise error if named else FileError(f"{file}: ", error) from None


def open_zip(file: InputFile) -> zipfile.ZipFile:
    """Return a zip archive whose members may be read into memory. The caller closes it. Raises
    FileError if it is not a zip archive, has two members of one name or overlapping ones, or
    unpacks to more than its budget."""
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:
        raise FileError(f"{file} is not a zip archive: {error}") from None
    members, size, end = archive.infolist(), file.path.stat().st_size, 0
    try:
        ((name, count),) = Counter(m.filename for m in members).most_common(1) or [("", 0)]
        if count > 1:
            raise FileError(f"{file} has two members named {name!r}")
        for member in sorted(members, key=lambda m: m.header_offset):
            what = f"{file}: member {member.filename!r}"
            if member.header_offset < end or member.header_offset + member.compress_size > size:
                raise FileError(f"{what} overlaps another member or the end of the file")
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise FileError(  # zipfile's others use as much memory as the member asks for
                    f"{what} is compressed with method {member.compress_type}, which is not"
                    " supported: write the archive again with deflate or without compression"
                )
            end = member.header_offset + member.compress_size
        file.budget.charge("unpacked", sum(m.file_size for m in members))
    except FileError:
        archive.close()
        raise
    return archive


@contextmanager
def open_member(archive: zipfile.ZipFile, name: str) -> Iterator[IO[bytes]]:
    """Open a member to read. Raises FileError if it is missing, encrypted or damaged."""
    try:
        with archive.open(name) as file:
            yield file
    except KeyError:
        raise FileError(f"{archive.filename} has no member {name!r}") from None
    except FileError:
        raise
    except (zipfile.BadZipFile, zlib.error, RuntimeError, ValueError, EOFError, OSError) as error:
        raise FileError(f"{archive.filename}: member {name!r}: {error}") from None


def read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """Return the bytes of a member. Raises FileError if it is missing, encrypted or damaged."""
    with open_member(archive, name) as file:
        # inflates no more than the declared size: read() would inflate all of it and then cut it
        return file.read(archive.getinfo(name).file_size)


def read_json_member(file: InputFile, archive: zipfile.ZipFile, name: str) -> bytes:
    """Return the bytes of a member that is JSON, as read_member() does."""
    if name in archive.NameToInfo:
        file.budget.charge("metadata", archive.getinfo(name).file_size)
    return read_member(archive, name)


def parse_json_object(raw: bytes | str, what: str) -> dict[str, Any]:
    """Return the object of a JSON text. Raises FileError if it is malformed or not an object."""

    def refuse_double_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            if name in found:
                raise ValueError(f"{name!r} occurs twice")
            found[name] = value
        return found

    def refuse_constant(word: str) -> None:
        raise ValueError(f"{word} is not JSON")

    try:
        text = raw if isinstance(raw, str) else raw.decode("utf-8")
        found = json.loads(
            text, object_pairs_hook=refuse_double_names, parse_constant=refuse_constant
        )
        if not isinstance(found, dict):
            raise ValueError("it is not a JSON object")
    except (ValueError, RecursionError) as error:
        raise FileError(f"{what} is malformed: {error}") from None
    return found


def object_of_texts(found: Any, what: str) -> dict[str, str]:
    """Return `found` if it is an object whose values are strings; raise FileError otherwise."""
    if not isinstance(found, dict) or not all(
        isinstance(one, str) for pair in found.items() for one in pair
    ):
        raise FileError(f"{what} must be an object whose keys and values are strings")
    check_texts([*found, *found.values()], what)
    return found


def check_texts(found: Any, what: str) -> None:
    """Refuse half a surrogate pair: JSON allows it, but it cannot be written again."""
    try:
        "".join(found).encode()
    except UnicodeEncodeError as error:
        raise FileError(f"{what} is malformed: {error}") from None
