"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rnnlayout._model.errors import Ask, Error, FileError, Message

# Errors of open() with O_TMPFILE on file systems and kernels without O_TMPFILE.
_NO_UNNAMED = {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL}
# Errors of link() on file systems without hard links: FAT, many network file systems.
_NO_LINKS = {
    errno.EPERM,
    errno.EOPNOTSUPP,
    errno.ENOTSUP,  # macOS
    errno.ENOSYS,
    errno.EMLINK,
    errno.EINVAL,  # Windows
}
# Errors of write() if a file cannot grow.
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass
class Output:
    """A file to write: open the Output as a path; the complete file appears as `target`. dry_run:
    whether the file is in memory only, and never appears. sources: the files that are read, and
    therefore never replaced."""

    target: Path
    path: Path
    dry_run: bool
    sources: list[Any]
    _files: ExitStack
    _parts: list[_OutputPart]

    def __fspath__(self) -> str:
        """Return the path to write to."""
        return str(self.path)

    def __str__(self) -> str:
        return str(self.target)

    @property
    def name(self) -> str:
        """The final name of the file."""
        return self.target.name

    def companion(self, suffix: str) -> Path:
        """Return the path of a further file to write. The final name is the target's + suffix."""
        target = self.target.with_name(self.name + suffix)
        self._parts.append(_open_part(target, self.dry_run, self._files))
        return self._parts[-1].path


@contextmanager
def write_whole_file(
    path: Any, *, force: bool, source: Any = None, dry_run: bool = False
) -> Iterator[Output]:
    """Yield an Output. The file appears as `path` if the block succeeds.

    If the block fails, nothing remains. If the process is killed, nothing remains on Linux: the
    file has no name until complete (O_TMPFILE). On systems and file systems without O_TMPFILE, the
    file has a hidden name in the folder of the target, and remains if the process is killed.

    force: replace an existing file (of a symbolic link the link, not the target of the link);
        without force, raise FileExistsError if the file exists, or is created in the meantime.
    source: the file that is read, never replaced, by whatever name `path` refers to the file.
    dry_run: write to memory only; a folder without permission to write raises the same error.

    Nothing is flushed to the disk: after a power failure the machine may have neither the old file
    nor the new file.
    """
    path = Path(path)
    sources = [] if source is None else [source]
    check_free(path, force, *sources)
    with ExitStack() as files:
        main_part = _open_part(path, dry_run, files)
        output = Output(path, main_part.path, dry_run, sources, files, [main_part])
        with name_full_disk(path):
            yield output
        check_free(path, True, *output.sources)  # with the companions, which reading has found
        for part in output._parts[1:]:
            check_free(part.target, force, *output.sources)
        for part in reversed([] if dry_run else output._parts):  # `path` appears last
            try:
                if not force:
                    _link_part(part, part.target)
                    continue
                temporary = part.temporary or _temporary_name(part.target)
                if not part.temporary:
                    _link_part(part, temporary)
                os.replace(temporary, part.target)
            except FileExistsError:
                raise FileExistsError(
                    f"{part.target} already exists: another process created it in the meantime"
                ) from None
            except OSError as error:
                raise _not_written(part.target, error) from None


def open_untruncated(path: str, flags: int) -> int:
    """Open an Output, an empty file, without truncating: an opener for open(). When a truncated
    file is closed, ext4 starts to write the file to the disk, which takes 0.4 s for 1 GB."""
    return os.open(path, flags & ~os.O_TRUNC, 0o666)


@contextmanager
def name_full_disk(path: Path | Output) -> Iterator[None]:
    """Raise a FileError with the name of the file if the disk is full."""
    try:
        yield
    except Error:
        raise
    except Exception as error:
        if (reason := full_disk_error(error)) is None:
            raise
        raise _not_written(path, reason) from None


def full_disk_error(error: BaseException | None) -> OSError | None:
    """Return the error of a full disk that led to `error`, which a library may have raised."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            return OSError(error.errno, os.strerror(error.errno))  # h5py's text is a page long
        error = error.__context__
    return None


def ran_out_of_memory(error: BaseException | None) -> bool:
    """Return whether a lack of memory led to `error`, which a library raised when it closed."""
    while error is not None and not isinstance(error, MemoryError):
        error = error.__context__
    return error is not None


@dataclass
class _OutputPart:
    """A file without the final name. temporary: the temporary name; None for a nameless file."""

    target: Path
    path: Path
    temporary: Path | None


def _open_part(target: Path, dry_run: bool, files: ExitStack) -> _OutputPart:
    """Create an empty file. Closing `files` removes the file."""
    try:
        if (handle := _create_unnamed(target, dry_run)) is not None:
            files.callback(os.close, handle)
            return _OutputPart(target, Path(f"/proc/self/fd/{handle}"), None)
        # for a dry run in the system's folder for temporary files
        folder = tempfile.gettempdir() if dry_run else target.parent
        path = _temporary_name(Path(folder, target.name))
        # closed, because Windows neither renames nor removes an open file
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        files.callback(path.unlink, missing_ok=True)
        return _OutputPart(target, path, path)
    except (OSError, ValueError) as error:
        raise _not_written(target, error) from None


def _create_unnamed(target: Path, dry_run: bool) -> int | None:
    """Create an empty nameless file in the target's folder, or in memory for a dry run; return the
    file descriptor, or None if the system or the file system lacks nameless files. Raises OSError
    if the target's folder cannot be written to."""
    if dry_run and not os.access(target.parent, os.W_OK):
        os.stat(target.parent)
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    if sys.platform == "linux" and dry_run:
        return os.memfd_create("rnnlayout")
    if sys.platform == "linux" and os.path.isdir("/proc/self/fd"):
        try:
            return os.open(target.parent, os.O_RDWR | os.O_TMPFILE, 0o666)
        except OSError as error:
            if error.errno not in _NO_UNNAMED or not target.parent.is_dir():
                raise
    return None


def _temporary_name(target: Path) -> Path:
    return target.with_name(f".{target.name[:40]}.{secrets.token_hex(4)}")


def _link_part(part: _OutputPart, name: Path) -> None:
    if not part.temporary:
        # with a descriptor of a folder, os.link() follows the link in /proc to the file itself
        folder = os.open(name.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.link(part.path, name.name, dst_dir_fd=folder, follow_symlinks=True)
        finally:
            os.close(folder)
        return
    try:
        os.link(part.temporary, name)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.close(os.open(name, os.O_CREAT | os.O_EXCL))  # reserve the name
        os.replace(part.temporary, name)


def check_free(path: Path, force: bool, *sources: Any) -> None:
    """Raise FileExistsError if `path` exists and must be kept, FileError if `path` cannot be
    written. sources: the files that are read; missing sources are ignored."""
    try:
        for source in filter(os.path.exists, sources if path.exists() else ()):
            if os.path.samefile(path, source):
                raise FileError(
                    f"{path} is the input ({source}): choose another name for the output"
                )
        if path.exists() and not path.is_file():
            kind = "a folder" if path.is_dir() else "not a regular file"
            raise FileError(f"{path} is {kind}: give the name of a file to write")
        if not force and os.path.lexists(path):
            why = f"{path} already exists: pass "
            raise FileExistsError(Message(why, Ask("force", True), " to overwrite it").text)
    except (FileError, FileExistsError):
        raise
    except (OSError, ValueError) as error:
        raise _not_written(path, error) from None


def _not_written(path: Path | Output, error: OSError | ValueError) -> FileError:
    return FileError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}")
