"""HDF5 files for Keras, written with h5py."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, Any

import numpy as np

from rnnlayout._files.tensor_sets.output_file import Output, full_disk_error
from rnnlayout._files.tensor_sets.record import KEY, Record, write_records
from rnnlayout._model.errors import FileError, missing
from rnnlayout._native import Error

_RECORD_PART = 1000  # characters
_ATTRIBUTE = 60_000  # bytes; libhdf5 stores a little less than 64 KiB in one


@contextmanager
def new_hdf5(file: Output | IO[bytes], what: str = "an HDF5 file") -> Iterator[Any]:
    """Yield a new HDF5 file of h5py's. what: the file's name in messages.

    Raises MissingExtraError if h5py is not installed.
    """
    h5py = import_h5py()
    with _h5py_errors(what), ExitStack() as files:
        if isinstance(file, Output):  # libhdf5 itself wants a file that has a name
            file = files.enter_context(open(file, "w+b"))
        yield files.enter_context(h5py.File(file, "w"))


def import_h5py() -> Any:
    """Return the package h5py. Raises MissingExtraError if it is not installed."""
    try:
        import h5py  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise missing("h5py", "h5", "writing an HDF5 file") from None
    return h5py


@contextmanager
def _h5py_errors(what: str) -> Iterator[None]:
    """Turn the errors that h5py raises into a FileError, except that of a full disk."""
    try:
        yield
    except (Error, MemoryError):
        raise
    except Exception as error:
        if full_disk_error(error):
            raise
        raise FileError(f"{what}: {error or type(error).__name__}") from None


def write_texts(h5: Any, name: str, texts: Sequence[str]) -> None:
    """Write a list of texts as an attribute, or a long list as several, as Hdf5Group.texts()
    reads.
    """
    array = np.array([text.encode() for text in texts]) if texts else np.empty(0)
    parts = -(-array.nbytes // _ATTRIBUTE) if texts else 1
    for k, part in enumerate(np.array_split(array, parts)):
        h5.attrs[f"{name}{k}" if parts > 1 else name] = part


def write_record_attribute(h5: Any, records: Mapping[str, Record]) -> None:
    """Write the records of RNNs as an attribute of the root, which Keras ignores.

    It is in parts: libhdf5 limits its size.
    """
    for name in [name for name in h5.attrs if re.fullmatch(rf"{KEY}\d*", name)]:
        del h5.attrs[name]  # of the file that it is a copy of
    text = write_records(records)[KEY]
    parts = [text[at : at + _RECORD_PART] for at in range(0, len(text), _RECORD_PART)]
    write_texts(h5, KEY, parts)
