"""The formats of files, by the suffixes of their names.

A format is a module of this folder. It has either, for a bag of named tensors (safetensors, npz, a
state_dict),

    read_tensors(path) -> Bag
    write_tensors(path, bag) -> None    # a new file at this path; tensors by their chunks()
    rewrite_tensors(path, out, bag, made, progress) -> notes  # where a file is more than its bag

or, for what has a structure of its own (a Keras model, an ONNX graph),

    read(path, ask: Ask) -> Found
    write(path, entries: Mapping[str, Weights]) -> None       # what load() reads again
    rewrite(path, out, ask, to, **options) -> Converted       # where a whole model can be converted

Those that write may be missing. All of them raise FileError for what is malformed or unsafe, and
MissingExtraError if a package is missing. They open no file but the one named (raw.py also the one
beside it), and allocate little more than its size: bags/limits.py.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from rnnlayout._model.errors import FileError

# suffix -> the module that reads or writes it. The longest suffix that fits a name decides; the
# first suffix of a module is the one that messages name.
FORMATS = {
    ".safetensors": "safetensors",
    ".npz": "npz",
    ".npy": "npy",
    ".bin": "raw",
    ".h": "c_header",
    ".pt": "torch.checkpoint",
    ".pth": "torch.checkpoint",
    ".ckpt": "torch.checkpoint",
    ".jit": "torch.checkpoint",
    ".pt2": "torch.checkpoint",
    ".h5": "keras.h5",
    ".hdf5": "keras.h5",
    ".weights.h5": "keras.weights_h5",
    ".keras": "keras.archive_file",
    ".onnx": "onnx.model",
}


def format_of(path: Any) -> ModuleType:
    """Return the module for a path. Raises FileError if no format has its suffix."""
    name = str(path).lower()
    fits = [suffix for suffix in FORMATS if name.endswith(suffix)]
    if not fits:
        raise FileError(f"{path}: no known format; known are {', '.join(sorted(FORMATS))}")
    return import_module(f"rnnlayout._files.formats.{FORMATS[max(fits, key=len)]}")


def suffix_of(module: ModuleType) -> str:
    """Return the suffix by which messages name a format."""
    return next(suffix for suffix, name in FORMATS.items() if module.__name__.endswith(f".{name}"))
