"""Tensors that an ONNX model stores in another file, as torch.onnx.export does: m.onnx.data.

No other name in a file is opened, and this one only if it is the bare name of a regular file in the
model's own folder, not of a link, and not hidden.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import Any

from rnnlayout._files.tensor_sets.file_limits import InputFile
from rnnlayout._model.errors import FileError

_NUMBER = re.compile(r"[0-9]{1,19}")
# Without following a link, and without waiting for the writer of a FIFO. Windows has none of these.
_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0)
for _flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC"):
    _FLAGS |= getattr(os, _flag, 0)
_SHOWN = 100  # characters of a name
_ONE_FILE = (
    "write the model into one file: torch.onnx.export(..., external_data=False), or"
    " onnx.save(onnx.load(path), new, save_as_external_data=False)"
)


def is_external(tensor: Any) -> bool:
    """Return whether a TensorProto says that it is stored in another file."""
    return bool(tensor.data_location == tensor.EXTERNAL or tensor.external_data)


class DataFiles:
    """The files beside a model that its tensors are stored in, each opened when it is needed."""

    def __init__(self, model: InputFile) -> None:
        self._model = model
        self._files: dict[str, memoryview] = {}

    @property
    def paths(self) -> list[Path]:
        """The files that were opened."""
        return [self._model.path.parent / name for name in self._files]

    def find(self, tensor: Any, what: str) -> memoryview:
        """Return the bytes of a tensor that is stored in another file.

        Raises FileError if that is not a regular file in the model's own folder, or too short.
        """
        what = f"{what}: tensor {tensor.name[:_SHOWN]!r}"
        if tensor.data_location != tensor.EXTERNAL or tensor.HasField("raw_data"):
            raise FileError(f"{what} is stored in the model and in another file: {_ONE_FILE}")
        pairs = [(one.key, one.value) for one in tensor.external_data]
        given = dict(pairs)
        if len(given) < len(pairs):
            raise FileError(f"{what}: it is recorded twice where it is stored: {_ONE_FILE}")
        name = given.get("location", "")
        if name not in self._files:
            self._files[name] = self._map(name, what)
        data = self._files[name]
        start = _whole_number(given.get("offset", "0"), what)
        count = _whole_number(given.get("length", f"{max(0, len(data) - start)}"), what)
        if start + count > len(data):
            raise FileError(
                f"{what} is stored in bytes {start} to {start + count} of {name}, which has"
                f" {len(data)}: it is cut short, or belongs to another model: export both files"
                " again, or into one with external_data=False"
            )
        return data[start : start + count]

    def _map(self, name: Any, what: str) -> memoryview:
        what += f" is stored in {name[:_SHOWN]!r}, which"
        beside = f"need the name of a regular file in the folder of {self._model}"
        bare = isinstance(name, str) and name and not re.search(r"^\.|[/\\\0]", name)
        if not bare or name == self._model.path.name:
            raise FileError(f"{what} is not opened: {beside}: {_ONE_FILE}")
        path = self._model.path.parent / name
        try:
            if path.is_symlink():  # for Windows; elsewhere O_NOFOLLOW, which no link can race with
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            handle = os.open(path, _FLAGS)
        except (OSError, ValueError) as error:
            if isinstance(error, FileNotFoundError):
                repair = f"copy it to the folder of {self._model}, or export the model again with"
                raise FileError(f"{what} does not exist: {repair} external_data=False") from None
            why = f"cannot be read: {getattr(error, 'strerror', error)}"
            if isinstance(error, OSError) and error.errno == errno.ELOOP:
                why = "is a link: copy both files to another folder with cp -L"
            raise FileError(f"{what} {why}: {beside}: {_ONE_FILE}") from None
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise FileError(f"{what} is not a regular file: {beside}: {_ONE_FILE}")
            return memoryview(self._model.beside(path).data_of(handle) if found.st_size else b"")
        finally:
            os.close(handle)


def _whole_number(text: Any, what: str) -> int:
    if not isinstance(text, str) or not _NUMBER.fullmatch(text):
        raise FileError(f"{what}: its place {text[:_SHOWN]!r} is not a number: {_ONE_FILE}")
    return int(text)
