"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rnnlayout._errors import FileError


@contextmanager
def whole(path: Any, *, force: bool) -> Iterator[Path]:
    """A path beside `path` to write to, which becomes `path` if all goes well and else is gone.

    force: a file that is there is replaced; otherwise it is a FileError, also where it comes up
    in the meantime.
    """
    path = Path(path)
    if not force and os.path.lexists(path):
        raise FileError(f"{path} is there already: remove it or use --force (force=True)")
    try:
        folder = tempfile.mkdtemp(prefix=f".{path.name[:40]}.", dir=path.parent)
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror}") from None
    part = Path(folder) / path.name  # the same name: its suffix says what it is
    try:
        yield part
        with open(part, "rb") as written:
            os.fsync(written.fileno())
        if force:
            os.replace(part, path)
        else:
            os.link(part, path)
            part.unlink()
    except FileExistsError:
        raise FileError(f"{path} is there already: it came up in the meantime") from None
    finally:
        part.unlink(missing_ok=True)
        os.rmdir(folder)
