"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from rnnlayout._model.errors import FileError

from . import ending

_LARGE = 64 << 20  # bytes: to forget fewer takes less than to start a process
_PATIENCE = 0.05  # seconds that who pressed Ctrl-C may wait for a disk
# What os.link says on file systems without hard links: FAT, many of the network.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


@contextmanager
def whole(path: Any, *, force: bool, source: Any = None) -> Iterator[Path]:
    """A path beside `path` to write to, which becomes `path` if all goes well and else is gone.

    force: a file that is there is replaced (of a symbolic link the link, not what it leads to);
    otherwise it is a FileError, also where it comes up in the meantime.
    source: the file that is read, which is never replaced, by whatever name it is called.
    Other files that are written into the same folder come along, under their own names.

    Nothing waits for the disk: a process that dies leaves the old file or the new one, a machine
    that loses its power may leave neither.
    """
    path = Path(path)
    check_free(path, force, source)
    with _folder(path) as folder:
        part = folder / path.name  # the same name: its suffix says what it is
        yield part
        beside = sorted(other for other in part.parent.iterdir() if other != part)
        for other in beside:
            check_free(path.with_name(other.name), force, source)
        try:
            with ending.lock:  # all or none
                for written in (*beside, part):
                    _move(written, path.with_name(written.name), force)
        except FileExistsError:
            raise FileError(f"{path} is there already: it came up in the meantime") from None
        except OSError as error:
            raise _not_written(path, error) from None


@contextmanager
def _folder(path: Path) -> Iterator[Path]:
    """One beside a path, which is gone afterwards, however it ends."""
    with ExitStack() as stack:
        with ending.lock:
            try:
                made = tempfile.mkdtemp(prefix=f".{path.name[:40]}.", dir=path.parent)
            except (OSError, ValueError) as error:
                raise _not_written(path, error) from None
            stack.callback(shutil.rmtree, made, ignore_errors=True)
            stack.enter_context(ending.undone(partial(_remove, made)))
        yield Path(made)


def _remove(folder: str) -> None:
    """Also while another thread writes to it still, and the process ends then.

    What is written at once may have to be waited for, on a busy disk for a second: then the other
    process does it, as soon as this one is gone.
    """
    held = False
    with suppress(OSError, TypeError):  # TypeError: nobody knows which program this is
        held = _hold(folder)
    thread = threading.Thread(target=_remove_at_last, args=(folder,), daemon=True)
    thread.start()
    thread.join(_PATIENCE if held else None)


def _remove_at_last(folder: str) -> None:
    for _ in range(100):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.lexists(folder):
            return


def _hold(folder: str) -> bool:
    """Have a process of its own keep the large files of a folder open until this one is gone, and
    then remove the folder, if it is there still. False: there are none.

    A file that is removed goes when nobody has it open. Of a gigabyte that takes the system 0.1 s,
    on a busy machine 0.4 s, and the process that had it open last does not end before.
    """
    large = [file.path for file in os.scandir(folder) if file.stat().st_size >= _LARGE]
    if not large:
        return False
    for path in large:
        os.set_inheritable(os.open(path, os.O_RDONLY), True)
    ours, _ = os.pipe()  # ends when we do
    program = "import os, shutil, sys; os.read(0, 1); shutil.rmtree(sys.argv[1], True)"
    arguments = [sys.executable, "-I", "-S", "-c", program, folder]
    silent = [(os.POSIX_SPAWN_DUP2, ours, 0), (os.POSIX_SPAWN_CLOSE, 1), (os.POSIX_SPAWN_CLOSE, 2)]
    os.posix_spawn(sys.executable, arguments, os.environ, file_actions=silent)
    return True


def check_free(path: Path, force: bool, source: Any) -> None:
    """FileError: no file can be written there, or it must not be."""
    try:
        if source is not None and path.exists() and os.path.samefile(path, source):
            raise FileError(f"{path} is the file that is read ({source}): name another one")
        if path.exists() and not path.is_file():
            kind = "a folder" if path.is_dir() else "no regular file"
            raise FileError(f"{path} is {kind}: name a file to write")
        if not force and os.path.lexists(path):
            raise FileError(f"{path} is there already: remove it or use --force (force=True)")
    except (OSError, ValueError) as error:
        if isinstance(error, FileError):
            raise
        raise _not_written(path, error) from None


def _not_written(path: Path, error: OSError | ValueError) -> FileError:
    return FileError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}")


def _move(part: Path, path: Path, force: bool) -> None:
    """FileExistsError: there is one, and it is not to be replaced."""
    if force:
        os.replace(part, path)
        return
    try:
        os.link(part, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))  # the name is ours now
        try:
            os.replace(part, path)
        except BaseException:
            os.unlink(path)
            raise
