"""Limits on the memory and time that reading a file takes, in proportion to the size of the file.

Every reader charges a budget before taking memory or time; the limits are in one table. Only
amounts that may exceed the bytes of the file are charged: what a file declares, repeats or
compresses. All remaining amounts grow with the file.

JSON in files is UTF-8, with no name twice at any level, and no constants that JSON lacks.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import re
import stat
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from rnnlayout._model.errors import FileError


class BudgetError(FileError):
    """A file exceeds its budget: no RNN of the file is read, whichever RNN was charged."""


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
        unit="bytes of unpacked members",
        free=64 << 20,
        times=100,
        cause="it is a decompression bomb",
        why="zlib compresses zeros 1032 times; a small archive of zeros is harmless",
    ),
    "arrays": Limit(
        unit="bytes of arrays",
        free=64 << 20,
        times=100,
        cause="it is a decompression bomb, or its arrays overlap",
        why="tensors may share bytes, and a dataset of HDF5 may be deflated or not written at all",
    ),
    "weights": Limit(
        unit="bytes of weights",
        free=3 << 20,
        times=100,
        cause="its RNNs share arrays, or its arrays are not stored",
        why="an array counts for each RNN that uses it; integers are a fourth of the weights, and"
        " weights of which 1 % is not pruned deflate 12 times; a command makes up to 6 copies",
    ),
    "uses": Limit(
        unit="uses of arrays",
        free=600,
        times=1 / 64,
        cause="its RNNs share arrays",
        why="an array of an RNN has a name, a shape and numbers, in a vector only numbers; a"
        " command takes up to half a millisecond for each",
    ),
    "names": Limit(
        unit="characters of names",
        free=2 << 20,
        times=4,
        cause="its names repeat",
        why="the name of a tensor repeats the keys above it, which a file stores once",
    ),
    "tensors": Limit(
        unit="tensors",
        free=10_000,
        times=1 / 100,
        cause="they cannot have names, shapes and numbers of their own",
        why="a name, a dtype, a shape and numbers take 100 bytes or more; reading them takes 10 us",
    ),
    "metadata": Limit(
        unit="bytes of JSON and programs",
        free=2 << 20,
        times=2,
        cause="it is a decompression bomb",
        why="a model of a thousand layers has one megabyte; an empty list in JSON takes 27 times as"
        " much memory",
    ),
    "headers": Limit(
        unit="bytes of NumPy headers",
        free=128 << 10,
        times=1,
        cause="they are longer than its size explains",
        why="NumPy reads a megabyte per second; a header has 128 bytes, but 64 KB of spaces may be"
        " deflated to 100",
    ),
    "structures": Limit(
        unit="bytes of HDF5 structures",
        free=1 << 20,
        times=4,
        cause="they overlap or repeat",
        why="a correct file stores each structure once, and a few are read twice; in a .keras"
        " archive they may be deflated",
    ),
    "texts": Limit(
        unit="bytes of HDF5 texts",
        free=16 << 20,
        times=1 / 16,
        cause="they repeat, or are not stored",
        why="the config of a large model has 2 MB; a text becomes an object, which counts 64 bytes",
    ),
    "copied": Limit(
        unit="characters and items that a pickle copies",
        free=1 << 20,
        times=2,
        cause="it passes one again and again",
        why="to make an OrderedDict of pairs, or an array of a text, copies them once",
    ),
    "steps": Limit(
        unit="steps",
        free=800_000,
        times=1 / 4,
        cause="it is damaged, or made to take long",
        why="a step takes about half a microsecond and makes at most 80 bytes: an instruction of a"
        " pickle is 1, what it names or calls 12, a value of msgpack 2, an array of .eqx 400, a"
        " group of TensorFlow.js 20, a node of ONNX 4, one of a called function 40, one that is"
        " computed 80; a small tensor of an old .pt is 56, and has 150 bytes",
    ),
    "computed": Limit(
        unit="bytes of computed weights",
        free=16 << 20,
        times=8,
        cause="they are expanded, or repeat",
        why="ONNX: int8 becomes float32 and is transposed",
    ),
}


@dataclass
class Budget:
    """The amounts charged for a file. name: the file, in messages. size: the bytes of the file."""

    name: str
    size: int
    _used: dict[str, int] = field(default_factory=dict)

    def charge(self, kind: str, amount: int) -> None:
        """Add an amount before using it. Raises BudgetError if the sum is too much for the file."""
        used = self._used[kind] = self._used.get(kind, 0) + amount
        limit = LIMITS[kind]
        if used > limit.free and used > (most := limit.free + int(limit.times * self.size)):
            raise BudgetError(
                f"{self.name}: {used:,} {limit.unit}, more than {most:,}, the limit for a file of"
                f" {self.size:,} bytes: {limit.cause}: refused"
            )

    def charge_weights(self, nbytes: int, uses: int = 1) -> None:
        """Charge for weights before an RNN uses the weights. nbytes: of one array, or of a vector
        that has `uses` arrays. Each RNN that uses an array is charged."""
        self.charge("uses", uses)
        self.charge("weights", nbytes)


# -------------------------------------------------------------------------------------------- files


def require_regular_file(path: Any) -> Path:
    """Return `path` as a Path if a regular file exists there, is readable and not empty. Raises
    FileNotFoundError if nothing exists, FileError otherwise."""
    try:
        file_path = Path(path)
        is_file = file_path.is_file()
        exists = is_file or file_path.exists()
    except TypeError:
        raise FileError(f"need the path of a file, found a {type(path).__name__}") from None
    except (OSError, ValueError) as error:  # a name with a null byte, or too long
        raise FileError(f"{path!r}: {error}") from None
    if not exists:
        index = f"{file_path}.index"
        repair = f": pass {index}, of the TensorFlow checkpoint" if os.path.isfile(index) else ""
        raise FileNotFoundError(f"{path} does not exist{repair}")
    if not is_file:
        is_folder = os.path.isdir(file_path)
        repair = "it is a folder" if is_folder else "save what it contains to a file, and pass that"
        raise FileError(f"{path} is not a regular file: {repair}")
    try:
        with open(file_path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}") from None
    if not size:  # an empty file cannot be mapped
        raise FileError(
            f"{path} has 0 bytes: it is empty, or a file of the kernel as in /proc, whose content"
            " must be copied to a file on a disk"
        )
    return file_path


# A name without a folder, a drive of Windows ("C:x") or a stream of Windows ("x:y"); not hidden.
_BARE_NAME = re.compile(r"(?!\.)[^/\\:\0]+")
# A device of Windows in any folder; elsewhere a legal name.
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:[. ].*)?", re.IGNORECASE | re.DOTALL)
_SHOWN = 100  # characters of a name
_MOST_PARTS = 1000  # of a sparse file, which are looked for
# To open a regular file at a real path: without following a link, and without waiting for the
# writer of a FIFO. Windows lacks these flags.
_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0)
for _flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC"):
    _FLAGS |= getattr(os, _flag, 0)


class InputFile:
    """A file to read, and the budget of the file. str() returns the path. mmap: whether to map the
    file into memory. If a process truncates a mapped file, reading the map ends our process;
    without a map, the whole file is read instead. companions: the paths of all companions that were
    opened for the file. main: the file of which this one is a companion, at a real path."""

    def __init__(
        self, path: Path, mmap: bool = True, main: InputFile | None = None, real_path: str = ""
    ) -> None:
        self.path, self.mmap, self._opened_path = path, mmap, real_path or str(path)
        self.budget: Budget
        self.companions: list[Path]
        if main is not None:
            self.budget, self.companions = main.budget, main.companions
            return
        with open(path, "rb") as file:
            self.budget, self.companions = Budget(str(path), _stored_nbytes(file.fileno())), []

    def __str__(self) -> str:
        return str(self.path)

    def __fspath__(self) -> str:
        """Return the path to open. Of a companion, this is the real path that was checked."""
        return self._opened_path

    def data(self) -> mmap.mmap | bytes:
        """Return the bytes of the file. Raises FileError if the file cannot be mapped."""
        with open(self, "rb") as file:
            return self.data_of(file.fileno())

    def data_of(self, fd: int) -> mmap.mmap | bytes:
        """Return the bytes of the file as data() does, by a descriptor of the open file."""
        try:
            if not self.mmap:
                return open(fd, "rb", closefd=False).read()
            return mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # ValueError: an empty file
            raise FileError(
                f"{self} cannot be mapped into memory: {error}: copy it to a file on a disk"
            ) from None

    def companion(self, name: Any, folder: str = "") -> InputFile:
        """Return another file of the same model: a file that this file names, or whose name follows
        from the name of this file. It shares the budget, and its size is added to the budget.

        name: a bare name. Its real path must be in the folder of this file, or in the folder of the
            real path of this file: Hugging Face's cache consists of links into a folder of blobs.
        folder: the name of a folder beside this file that has the companion.

        Raises FileError if the name may lead elsewhere, or is not the name of a regular file.
        """
        label = repr(name[:_SHOWN] if isinstance(name, str) else name)
        need = f"need the name of another regular file in the folder of {self}"
        if not isinstance(name, str) or not _is_bare(name):
            raise FileError(f"{label} is not opened: {need}")
        path, nbytes = self.path.parent / folder / name, None
        try:
            real_path = Path(os.path.realpath(path, strict=True))
            real_file = Path(os.path.realpath(self.path, strict=True))
            folders = [Path(os.path.realpath(self.path.parent)), real_file.parent]
            is_inside = real_path.parent in [*folders, *(parent / folder for parent in folders)]
            if is_inside and real_path != real_file:
                nbytes = _regular_nbytes(real_path)
        except FileNotFoundError:
            raise FileError(f"{label} does not exist: copy it to the folder of {self}") from None
        except (OSError, ValueError) as error:  # ValueError: half of a surrogate pair
            why = getattr(error, "strerror", None) or error
            raise FileError(f"{label} cannot be read: {why}: {need}") from None
        if not is_inside:
            why = f"is a link out of the folder of {self}: replace the link by a copy of the file"
            raise FileError(f"{label} {why}")
        if nbytes is None:
            why = "is the file itself" if real_path == real_file else "is not a regular file"
            raise FileError(f"{label} {why}: {need}")
        self.budget.size += nbytes
        self.companions.append(path)
        return InputFile(path, self.mmap, self, str(real_path))


def _is_bare(name: str, windows: bool = os.name == "nt") -> bool:
    """Return whether a name is the name of a file in the same folder, to any system."""
    return bool(_BARE_NAME.fullmatch(name)) and not (windows and _DEVICE.fullmatch(name))


def _regular_nbytes(real_path: Path) -> int | None:
    """Return the number of stored bytes of a file; None if the file is not a regular file."""
    handle = os.open(real_path, _FLAGS)
    try:
        return _stored_nbytes(handle) if stat.S_ISREG(os.fstat(handle).st_mode) else None
    finally:
        os.close(handle)


def _stored_nbytes(handle: int) -> int:
    """Return the size of an open file without the holes of a sparse file, which no disk stores. The
    system does not report holes on Windows and in some file systems."""
    size, at, stored = os.fstat(handle).st_size, 0, 0
    if not hasattr(os, "SEEK_HOLE"):
        return size
    for _ in range(_MOST_PARTS):
        try:
            begin = os.lseek(handle, at, os.SEEK_DATA)
            at = os.lseek(handle, begin, os.SEEK_HOLE)
        except OSError as error:  # ENXIO: no more data
            return stored if error.errno == errno.ENXIO else size
        stored += at - begin
    return stored + size - at


@contextmanager
def name_file(file: InputFile) -> Iterator[None]:
    """Put the file's name before the text of a FileError, unless the text begins with the name."""
    try:
        yield
    except FileError as error:
        named = error.text.startswith(str(file))
        raise error if named else FileError(f"{file}: ", error) from None


def open_zip(file: InputFile) -> zipfile.ZipFile:
    """Return a zip archive that unpacks to at most the budget. The caller closes the archive.
    Raises FileError if the file is not a zip archive, or if members have the same name, overlap, or
    unpack to more than the budget."""
    try:
        archive = zipfile.ZipFile(file)
        archive.filename = str(file)  # of a companion, messages name the link
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:
        raise FileError(f"{file} is not a zip archive: {error}") from None
    members, size, end = archive.infolist(), file.path.stat().st_size, 0
    try:
        ((name, count),) = Counter(member.filename for member in members).most_common(1) or [
            ("", 0)
        ]
        if count > 1:
            raise FileError(f"{file} has two members named {name!r}")
        for member in sorted(members, key=lambda member: member.header_offset):
            label = f"{file}: member {member.filename!r}"
            if member.header_offset < end or member.header_offset + member.compress_size > size:
                raise FileError(f"{label} overlaps another member or the end of the file")
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                # zipfile's further methods use as much memory as the member declares
                raise FileError(
                    f"{label} is compressed with method {member.compress_type}, which is not"
                    " supported: write the archive again with deflate or without compression"
                )
            end = member.header_offset + member.compress_size
        file.budget.charge("unpacked", sum(member.file_size for member in members))
    except FileError:
        archive.close()
        raise
    return archive


@contextmanager
def open_member(archive: zipfile.ZipFile, name: str) -> Iterator[IO[bytes]]:
    """Open a member to read. Raises FileError for a missing, encrypted or damaged member."""
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
    """Return the bytes of a member. Raises FileError for a missing, encrypted or damaged member."""
    with open_member(archive, name) as file:
        # inflates at most the declared size: read() would inflate the whole member and then cut
        return file.read(archive.getinfo(name).file_size)


def read_json_member(file: InputFile, archive: zipfile.ZipFile, name: str) -> bytes:
    """Return the bytes of a JSON member as read_member() does, and charge the budget."""
    if name in archive.NameToInfo:
        file.budget.charge("metadata", archive.getinfo(name).file_size)
    return read_member(archive, name)


def parse_json_object(raw: bytes | str, label: str) -> dict[str, Any]:
    """Return the object of a JSON text. Raises FileError if malformed or not an object."""

    def refuse_double_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members: dict[str, Any] = {}
        for name, value in pairs:
            if name in members:
                raise ValueError(f"{name!r} occurs twice")
            members[name] = value
        return members

    def refuse_constant(word: str) -> None:
        raise ValueError(f"{word} is not JSON")

    try:
        text = raw if isinstance(raw, str) else raw.decode("utf-8")
        parsed = json.loads(
            text, object_pairs_hook=refuse_double_names, parse_constant=refuse_constant
        )
        if not isinstance(parsed, dict):
            raise ValueError("it is not a JSON object")
    except (ValueError, RecursionError) as error:
        raise FileError(f"{label} is malformed: {error}") from None
    return parsed


def object_of_texts(texts: Any, label: str) -> dict[str, str]:
    """Return `texts` if all keys and values are strings; raise FileError otherwise."""
    if not isinstance(texts, dict) or not all(
        isinstance(text, str) for pair in texts.items() for text in pair
    ):
        raise FileError(f"{label} must be an object whose keys and values are strings")
    check_texts([*texts, *texts.values()], label)
    return texts


def check_texts(texts: Any, label: str) -> None:
    """Refuse half a surrogate pair, which JSON allows, but which cannot be written again."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        raise FileError(f"{label} is malformed: {error}") from None
