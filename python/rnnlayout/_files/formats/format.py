"""The formats of files: by which suffix, and what each can do.

Each format is a value of one of the classes below. Its functions raise FileError for a file that is
malformed or unsafe, and MissingExtraError if a package is missing. They open no file but the one
named (raw.py also the JSON beside it), and allocate little more than its size (bags/limits.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from rnnlayout._files.bags.bag import Bag, Converted, Hints, Progress
from rnnlayout._files.bags.found import Found
from rnnlayout._files.bags.groups import Group
from rnnlayout._files.bags.layerwise import Conversion
from rnnlayout._files.bags.output import Output
from rnnlayout._model.errors import FileError
from rnnlayout._model.layout import Layout
from rnnlayout._native import LayoutError
from rnnlayout._weights.weights import Weights

Pairs = list[tuple[Group, Conversion]]


@dataclass(frozen=True)
class TensorFormat:
    """Files that are bags of named tensors: safetensors, npz, a state_dict.

    suffix: the one that messages name.
    read(path): the tensors, which may be read when they are asked for.
    write(out, bag, progress): write a new file.
    replace(path, out, bag, pairs, progress): copy a file that is more than its tensors to `out`,
        with each RNN of `pairs` replaced; bag: all tensors of the copy. Returns notes.
    """

    suffix: str
    read: Callable[[Path], Bag]
    write: Callable[[Output, Bag, Progress | None], None]
    replace: Callable[[Path, Output, Bag, Pairs, Progress | None], list[str]] | None = None


@dataclass(frozen=True)
class ModelFormat:
    """Files with a structure of their own: a Keras model, an ONNX graph, one weight space.

    suffix: the one that messages name.
    read(path, hints): the RNNs.
    write(out, entries): write a new file with these RNNs, which read() reads.
    replace(path, out, entries): copy a file to `out`, with new weights in the RNNs of these names.
    rewrite(path, out, hints, to, dtype, exact): copy a whole model to `out`, with its RNNs
        converted.
    """

    suffix: str
    read: Callable[[Path, Hints], Found]
    write: Callable[[Output, Mapping[str, Weights]], None]
    replace: Callable[[Path, Output, Mapping[str, Weights]], None] | None = None
    rewrite: Callable[[Path, Output, Hints, Layout, object, bool], Converted] | None = None


Format = TensorFormat | ModelFormat

# suffix -> the format, in the module of that name. The longest suffix of a file's name decides.
FORMATS = {
    ".safetensors": "safetensors.FORMAT",
    ".npz": "npz.FORMAT",
    ".npy": "raw.NPY",
    ".bin": "raw.BIN",
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


def check_layout(weights: Weights, layout: str, what: str) -> None:
    """Raise LayoutError if weights are not in the layout that `what` needs."""
    if weights.layout.name != layout:
        raise LayoutError(
            f"{what} needs layout {layout}, found {weights.layout}: convert with .to({layout!r})"
            f" first, or --to {layout}"
        )
