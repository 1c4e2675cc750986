"""How much a file may ask for: nothing much beyond its own size, and nothing beside itself."""

from __future__ import annotations

import math
import os
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from rnnlayout._model.errors import FileError

FREE_NBYTES = 64 << 20  # what any file may claim: a small one that packs well is no bomb
MOST_TIMES = 100  # beyond that; zlib reaches 1032


def check_claim(claimed: int, stored: int, what: str) -> None:
    """Refuse, before any allocation, what claims to be much larger than what is stored of it."""
    if claimed > max(FREE_NBYTES, MOST_TIMES * stored):
        raise FileError(
            f"{what} claims {claimed} bytes, but {stored} are stored: refused as a bomb"
        )


def check_shape(shape: tuple[int, ...], what: str) -> None:
    """Refuse a shape of which NumPy has no array, also where that has no elements."""
    if math.prod(n or 1 for n in shape) >= 1 << 56:
        raise FileError(f"{what}: shape {shape} is too large")


def regular_file(path: Any) -> Path:
    """The path of a file that is there, and is one. FileError: it is not."""
    try:
        found = Path(path)
        is_file = found.is_file()
    except (OSError, ValueError) as error:  # a name with a null byte, or too long
        raise FileError(f"{path!r}: {error}") from None
    if not is_file:
        raise FileError(f"{path} {'is no file' if found.exists() else 'does not exist'}")
    return found


def open_zip(path: Path) -> zipfile.ZipFile:
    """A zip archive whose members can be read in memory; nothing is ever unpacked to the disk.

    It is for the caller to close: `with open_zip(path) as archive`.

    FileError: no zip archive, two members of one name, members that overlap, or a claim that
    check_claim() refuses.
    """
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:
        raise FileError(f"{path} is no zip archive: {error}") from None
    try:
        _check_members(path, archive)
    except FileError:
        archive.close()
        raise
    return archive


def _check_members(path: Path, archive: zipfile.ZipFile) -> None:
    members = archive.infolist()
    names = [member.filename for member in members]
    if len(set(names)) != len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise FileError(f"{path} has two members named {twice!r}")
    size = os.path.getsize(path)
    end = 0
    for member in sorted(members, key=lambda m: m.header_offset):
        if member.header_offset < end or member.header_offset + member.compress_size > size:
            raise FileError(f"{path}: member {member.filename!r} overlaps another or the end")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise FileError(  # the others of zipfile take whatever memory the member asks for
                f"{path}: member {member.filename!r} is compressed by method"
                f" {member.compress_type}, not read here: store or deflate it"
            )
        end = member.header_offset + member.compress_size
        check_claim(member.file_size, member.compress_size, f"{path}: member {member.filename!r}")
    check_claim(sum(m.file_size for m in members), size, str(path))


@contextmanager
def open_member(archive: zipfile.ZipFile, name: str) -> Iterator[IO[bytes]]:
    """A member to read from. FileError: it is not there, encrypted, or damaged."""
    what = f"{archive.filename}: member {name!r}"
    try:
        with archive.open(name) as file:
            yield file
    except KeyError:
        raise FileError(f"{archive.filename} has no member {name!r}") from None
    except FileError:
        raise
    except (zipfile.BadZipFile, RuntimeError, ValueError, EOFError, OSError) as error:
        raise FileError(f"{what}: {error}") from None
    except Exception as error:
        if type(error).__module__ in ("zlib", "lzma", "_lzma"):
            raise FileError(f"{what}: {error}") from None
        raise


def read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """A member's bytes; errors as open_member()."""
    with open_member(archive, name) as file:
        # no more than it claims is inflated: read() would inflate all and cut it off
        return file.read(archive.getinfo(name).file_size)
