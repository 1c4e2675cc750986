"""The formats of files, by the suffixes of their names."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from rnnlayout._model.errors import FileError

from .format import Format

# suffix -> the format, in the module of that name. The longest suffix of a file's name decides.
FORMATS = {
    ".safetensors": "safetensors.FORMAT",
    ".npz": "npz.FORMAT",
    ".npy": "npy.FORMAT",
    ".bin": "raw.FORMAT",
    ".h": "c_header.FORMAT",
    ".pt": "torch.checkpoint.FORMAT",
    ".pth": "torch.checkpoint.FORMAT",
    ".ckpt": "torch.checkpoint.FORMAT",
    ".jit": "torch.checkpoint.FORMAT",
    ".pt2": "torch.checkpoint.FORMAT",
    ".h5": "keras.files.H5",
    ".hdf5": "keras.files.H5",
    ".weights.h5": "keras.files.WEIGHTS_H5",
    ".keras": "keras.files.ARCHIVE",
    ".onnx": "onnx.model.FORMAT",
}


def format_of(path: Any) -> Format:
    """Return the format of a path. Raises FileError if no format has its suffix."""
    name = str(path).lower()
    suffixes = [suffix for suffix in FORMATS if name.endswith(suffix)]
    if not suffixes:
        raise FileError(f"{path}: unknown format; known suffixes are {', '.join(sorted(FORMATS))}")
    module, _, attribute = FORMATS[max(suffixes, key=len)].rpartition(".")
    found: Format = getattr(import_module(f"rnnlayout._files.formats.{module}"), attribute)
    return found
