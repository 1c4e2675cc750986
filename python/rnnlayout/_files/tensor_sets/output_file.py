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

# What open() says of O_TMPFILE on file systems and kernels without it.
_NO_UNNAMED = {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL}
# What link() says on file systems without hard links: FAT, many network file systems. Windows says
# EINVAL, macOS ENOTSUP.
_NO_LINKS = {
    errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EINVAL,
}  # fmt: skip
# What write() says if a file cannot grow.
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass
class Output:
    """A file that is being written: open it as a path; at the end it appears as `target`. dry_run:
    whether it is in memory only, and does not appear. sources: the files that are read, which are
    never replaced."""

    target: Path
    path: Path
    dry_run: bool
    sources: list[Any]
    _files: ExitStack
    _parts: list[_OutputPart]

    def __fspath__(self) -> str:
        """Return where to write it now."""
        return str(self.path)

    def __str__(self) -> str:
        return str(self.target)

    @property
    def name(self) -> str:
        """Its final name."""
        return self.target.name

    def companion(self, suffix: str) -> Path:
        """Return a path to write a second file to, which appears as the target's name + suffix."""
        target = self.target.with_name(self.name + suffix)
        self._parts.append(_open_part(target, self.dry_run, self._files))
        return self._parts[-1].path


@contextmanager
def write_whole_file(
    path: Any, *, force: bool, source: Any = None, dry_run: bool = False
) -> Iterator[Output]:
    """Yield an Output, whose file appears as `path` if the block succeeds.

    If it fails, nothing remains. If the process is killed, nothing remains on Linux either: the
    file has no name until it is complete (O_TMPFILE). On other systems, and on file systems without
    such files, it has a hidden one beside the target, which stays if the process is killed.

    force: replace an existing file (of a symbolic link the link, not its target); otherwise raise
        FileExistsError if one exists, or is created in the meantime.
    source: the file that is read, which is never replaced, whatever name it is called by.
    dry_run: write to memory only; the error is the same if the folder cannot be written to.

    Nothing is flushed to the disk: a machine that loses power may keep neither the old file nor
    the new one.
    """
    path = Path(path)
    sources = [] if source is None else [source]
    check_free(path, force, *sources)
    with ExitStack() as files:
        part = _open_part(path, dry_run, files)
        output = Output(path, part.path, dry_run, sources, files, [part])
        with name_full_disk(path):
            yield output
        for one in output._parts[1:]:
            check_free(one.target, force, *output.sources)
        for one in reversed([] if dry_run else output._parts):  # the one asked for comes last
            try:
                if not force:
                    _link_part(one, one.target)
                    continue
                temporary = one.temporary or _temporary_name(one.target)
                if not one.temporary:
                    _link_part(one, temporary)
                os.replace(temporary, one.target)
            except FileExistsError:
                raise FileExistsError(
                    f"{one.target} already exists: another process created it in the meantime"
                ) from None
            except OSError as error:
                raise _not_written(one.target, error) from None


def open_untruncated(path: str, flags: int) -> int:
    """Open an Output, which is empty: the opener of open(). ext4 starts to write a file that was
    truncated to the disk when it is closed, which takes 0.4 s for 1 GB."""
    return os.open(path, flags & ~os.O_TRUNC, 0o666)


@contextmanager
def name_full_disk(path: Path | Output) -> Iterator[None]:
    """Raise a FileError that names the file if the block finds no room on the disk for it."""
    try:
        yield
    except Error:
        raise
    except Exception as error:
        if (reason := full_disk_error(error)) is None:
            raise
        raise _not_written(path, reason) from None


def full_disk_error(error: BaseException | None) -> OSError | None:
    """Return the error of a full disk that led to this one, which a library may have raised."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            return OSError(error.errno, os.strerror(error.errno))  # h5py's text is a page long
        error = error.__context__
    return None


@dataclass
class _OutputPart:
    """A file before it has its final name. temporary: its name until then; None if it has none."""

    target: Path
    path: Path
    temporary: Path | None


def _open_part(target: Path, dry_run: bool, files: ExitStack) -> _OutputPart:
    """Create an empty file, which exists until `files` are closed."""
    try:
        if (handle := _create_unnamed(target, dry_run)) is not None:
            files.callback(os.close, handle)
            return _OutputPart(target, Path(f"/proc/self/fd/{handle}"), None)
        # for a dry run in the system's folder for temporary files
        folder = tempfile.gettempdir() if dry_run else target.parent
        path = _temporary_name(Path(folder, target.name))
        # closed, because Windows neither renames nor removes an open one
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        files.callback(path.unlink, missing_ok=True)
        return _OutputPart(target, path, path)
    except (OSError, ValueError) as error:
        raise _not_written(target, error) from None


def _create_unnamed(target: Path, dry_run: bool) -> int | None:
    """Create an empty file in the target's folder, for a dry run in memory; return its descriptor.
    None: the system or the file system has no files without a name. Raises OSError if the target's
    folder cannot be written to."""
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
    """Raise FileExistsError if a file exists at `path` and must be kept, FileError if none can be
    written there. sources: the files that are read; those that do not exist are another's
    matter."""
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
