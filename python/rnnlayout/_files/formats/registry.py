"""The formats of files: which one a file has, and what each can do.

Each format is a value of one of the classes below. Its functions raise FileError for a file that is
malformed or unsafe, and MissingExtraError if a package is missing. They open no file but the one
named (weight_space.py also the JSON beside it, tensorflow the variables, onnx the data), and
allocate little more than its size (tensor_sets/file_limits.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from rnnlayout._files.tensor_sets.file_limits import InputFile, require_regular_file
from rnnlayout._files.tensor_sets.file_rnns import Found
from rnnlayout._files.tensor_sets.find_rnns import TensorGroup
from rnnlayout._files.tensor_sets.tensor_set import Converted, Progress, TensorSet
from rnnlayout._model.errors import Ask, FileError, Message, join_parts
from rnnlayout._model.layout import Layout, known_layouts
from rnnlayout._native import LayoutError
from rnnlayout._sources.reading import Reading
from rnnlayout._weights.weights import Weights

from .content import CORE_ML, content_of

if TYPE_CHECKING:  # what a load does not need
    from rnnlayout._files.tensor_sets.layerwise import LayerwiseConversion
    from rnnlayout._files.tensor_sets.output_file import Output

Pairs: TypeAlias = "list[tuple[TensorGroup, LayerwiseConversion]]"


@dataclass(frozen=True)
class TensorFormat:
    """Files that are sets of named tensors: safetensors, npz, a state_dict.

    suffix: the suffix that messages name.
    read(file): return the tensors, which may be read only when they are asked for.
    write(out, tensor_set, progress): write a new file; None if the format is only read.
    replace(file, out, tensor_set, pairs, progress): copy a file that is more than its tensors to
        `out`, with each RNN of `pairs` replaced; tensor_set has all tensors of the copy. Returns
        notes.
    separator: what save() puts between the name of an RNN and those of its tensors.
    options: those of OF_FORMATS that it takes.
    begins: the suffix of another format, with a file of which its files begin.
    """

    suffix: str
    read: Callable[[InputFile], TensorSet]
    write: Callable[[Output, TensorSet, Progress | None], None] | None
    replace: Callable[[InputFile, Output, TensorSet, Pairs, Progress | None], list[str]] | None = (
        None
    )
    separator: str = "."
    options: tuple[str, ...] = ()
    begins: str = ""


@dataclass(frozen=True)
class ModelFormat:
    """Files with a structure of their own: a Keras model, an ONNX graph, one weight space.

    suffix: the suffix that messages name. layouts: the layouts that RNNs in such a file may have.
    read(file, reading): return the RNNs; None if the format is only written.
    write(out, entries): write a new file with these RNNs; None if that is not possible.
    replace(file, out, entries): copy a file to `out`, with new weights in the RNNs of these names.
        Returns notes.
    rewrite(file, out, reading, to, dtype, exact): copy a whole model to `out`, with its RNNs
        converted.
    options: those of OF_FORMATS that it takes.
    begins: the suffix of another format, with a file of which its files begin.
    single: can a file store only one RNN?
    needs: what a file needs beside RNNs, if therefore only an existing one gets new weights.
    """

    suffix: str
    layouts: tuple[str, ...]
    read: Callable[[InputFile, Reading], Found] | None
    write: Callable[[Output, Mapping[str, Weights]], None] | None
    replace: Callable[[InputFile, Output, Mapping[str, Weights]], list[str]] | None = None
    rewrite: Callable[[InputFile, Output, Reading, Layout, object, bool], Converted] | None = None
    options: tuple[str, ...] = ()
    begins: str = ""
    single: bool = False
    needs: str = ""


Format = TensorFormat | ModelFormat

# suffix -> the format, in the module of that name. The longest suffix of a file's name decides.
FORMATS = {
    ".safetensors": "safetensors.FORMAT",
    ".npz": "npz.FORMAT",
    ".npy": "weight_space.NPY",
    ".bin": "weight_space.BIN",
    ".h": "c_header.FORMAT",
    ".c": "c_source.FORMAT",
    ".pt": "torch.checkpoint.FORMAT",
    ".pth": "torch.checkpoint.FORMAT",
    ".ckpt": "torch.checkpoint.FORMAT",
    ".pt2": "torch.checkpoint.PT2",
    ".pkl": "torch.checkpoint.PICKLE",
    ".pickle": "torch.checkpoint.PICKLE",
    ".msgpack": "flax.FORMAT",
    ".eqx": "eqx.FORMAT",
    ".pdparams": "paddle.FORMAT",
    ".params": "mxnet.FORMAT",
    ".index": "tensorflow.checkpoint.FORMAT",
    ".pb": "tensorflow.saved_model.FORMAT",
    ".tflite": "tflite.FORMAT",
    ".h5": "keras.formats.H5",
    ".hdf5": "keras.formats.H5",
    ".weights.h5": "keras.formats.WEIGHTS_H5",
    ".keras": "keras.formats.ARCHIVE",
    ".onnx": "onnx.model.FORMAT",
    ".json": "audio.RTNEURAL",
    ".nam": "audio.NAM",
}


def _import_format(suffix: str) -> Format:
    module, _, attribute = FORMATS[suffix].rpartition(".")
    found: Format = getattr(import_module(f"rnnlayout._files.formats.{module}"), attribute)
    return found


def readable_suffixes() -> list[str]:
    return [suffix for suffix in sorted(FORMATS) if _import_format(suffix).read]


def writable_suffixes() -> list[str]:
    return [suffix for suffix in sorted(FORMATS) if _import_format(suffix).write]


def suffixes_with_option(name: str) -> list[str]:
    """Return the suffixes of formats that take an option of OF_FORMATS."""
    formats = map(_import_format, FORMATS)
    return list(dict.fromkeys(one.suffix for one in formats if name in one.options))


def _suffix_of(path: Any) -> str:
    """Return the suffix that decides the format, "" if none does."""
    name = str(path).lower()
    return max((suffix for suffix in FORMATS if name.endswith(suffix)), key=len, default="")


def format_to_write(path: Any, *, copies: bool = False) -> Format:
    """Return the format of a new file. Raises FileError if no format that is written has its
    suffix. copies: is the file a copy of another one, with new weights?"""
    suffix = _suffix_of(path)
    format = _import_format(suffix) if suffix else None
    if format and (format.write or (copies and format.replace)):
        return format
    if isinstance(format, ModelFormat) and format.needs:
        raise FileError(
            f"{path}: a {suffix} file needs {format.needs}, which an RNN does not have: write its"
            f" weights into an existing model, rnnlayout convert IN {path} --into MODEL{suffix}"
        )
    why = f"{suffix} files are only read" if suffix else "unknown format"
    raise FileError(f"{path}: {why}; files are written as {', '.join(writable_suffixes())}")


def layout_of_format(format: Format) -> str:
    """Return the layout of all files of a format. Raises LayoutError if they may have others."""
    if isinstance(format, ModelFormat) and len(format.layouts) == 1:
        return format.layouts[0]
    why = f"a {format.suffix} file may have several layouts: choose one with "
    raise LayoutError(why, Ask("to"))


def why_not_in(format: Format, layout: Layout) -> Message | None:
    """Return why the files of a format cannot have a layout, and what to pass; None if they can."""
    if not isinstance(format, ModelFormat) or layout.name in format.layouts:
        return None
    known = [Ask("to", name) for name in format.layouts if name in known_layouts()]
    why = f"a {format.suffix} file cannot have layout {layout}: "
    if not known:
        return Message(why, "omit ", Ask("to", None))
    return Message(why, "pass ", join_parts(" or ", known))


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_MOST_FILES = 1000  # of a folder that are looked at
_ORBAX = {"orbax.checkpoint", "pytree.orbax-checkpoint", "checkpoint_metadata", "manifest.ocdbt",
          "_CHECKPOINT_METADATA", "_METADATA"}  # fmt: skip


def file_to_read(path: Any) -> Path:
    """Return the file that load() reads: `path`, or saved_model.pb in the folder of a SavedModel.
    Raises FileNotFoundError if it does not exist, FileError if it is something else."""
    is_path = isinstance(path, (str, os.PathLike))
    if is_path and _URL.match(os.fspath(path)) and not os.path.lexists(path):
        raise FileError(f"{path} is an address: download it, and pass the downloaded file")
    if is_path and os.path.isdir(path):
        folder = Path(path)
        for own in (folder, folder.parent) if folder.name == "variables" else (folder,):
            if (own / "saved_model.pb").is_file():
                return own / "saved_model.pb"
        what = f"{path} is a folder, "
        try:
            with os.scandir(folder) as entries:
                names = sorted(entry.name for entry in islice(entries, _MOST_FILES))
        except OSError as error:
            raise FileError(f"{what}which cannot be read: {error.strerror}") from None
        # most .json files of a folder are not models of RTNeural
        suffixes = [suffix for suffix in FORMATS if suffix != ".json"]
        known = [name for suffix in suffixes for name in names if name.lower().endswith(suffix)]
        if known:
            more = f", or one of its {len(known) - 1} others" if len(known) > 1 else ""
            raise FileError(f"{what}need a file: pass {folder / known[0]}{more}")
        if not _ORBAX.isdisjoint(names):
            raise FileError(
                f"{what}a checkpoint of Orbax, which is not read: load it with the program that"
                " wrote it, and save the model as .keras, or the parameters with"
                " flax.serialization.to_bytes() as .msgpack"
            )
        if "Manifest.json" in names:
            raise FileError(f"{what}an .mlpackage of Core ML, which is not read: {CORE_ML}")
    return require_regular_file(path)


def format_to_read(path: Path, name: str | None = None, *, asks: bool = True) -> Format:
    """Return the format of a file: of this name, else by its suffix, else by its content. name: a
    suffix without its first dot. asks: whether an error may suggest format=, because the caller
    takes it for this file. Raises FileError if none of them is of a known format."""
    if name is not None:
        return format_named(name)
    suffix = _suffix_of(path)
    content = content_of(path) if suffix == ".bin" and path.is_file() else None
    if content and content.suffix == ".pt":  # pytorch_model.bin
        suffix = ".pt"
    if suffix:
        if _import_format(suffix).read:
            return _import_format(suffix)
        why = f"{path}: {suffix} files are only written, not read"
        raise FileError(f"{why}: read the file it was made from")
    content = content_of(path)
    if content and content.suffix:
        return _import_format(content.suffix)
    if content and content.repair:
        raise FileError(f"{path} is {content.what}: ", content.repair)
    names = ", ".join(readable_suffixes())
    what = f"it is {content.what}" if content else "its first bytes are those of none"
    repair = ["pass ", Ask("format")] if asks else ["give the file that suffix"]
    why = f"{path}: unknown format: {what}; readable are {names}: if it is one, "
    raise FileError(why, *repair)


def format_named(name: str) -> Format:
    """Return the format of this name. Raises FileError if it does not exist."""
    names = [suffix[1:] for suffix in readable_suffixes()]
    if name not in names:
        raise FileError(f"format {name!r} is unknown: need one of {', '.join(names)}")
    return _import_format(f".{name}")


@contextmanager
def explain_wrong_suffix(path: Path, format: Format, *, asks: bool = True) -> Iterator[None]:
    """If reading a file raises an error, and the file has another format than its suffix says,
    raise a FileError that says so. asks: whether the error may suggest format=, because the caller
    takes it for this file."""
    try:
        yield
    except ValueError as error:
        content = content_of(path)
        if content and content.repair and not content.suffix:
            raise FileError(f"{path} is {content.what}: ", content.repair) from error
        if not content or content.suffix in ("", format.begins):
            raise
        if _import_format(content.suffix).read is format.read:
            raise
        raise FileError(
            f"{path} is not a {format.suffix} file but {content.what}: rename it to"
            f" {path.stem}{content.suffix}",
            *([", or pass ", Ask("format", content.suffix[1:])] if asks else ()),
        ) from error


def check_layout(weights: Weights, layout: str, what: str) -> None:
    """Raise LayoutError if weights are not in the layout that `what` needs."""
    if weights.layout.name != layout:
        raise LayoutError(
            f"{what} needs layout {layout}, found {weights.layout}: convert with .to({layout!r})"
            " first, or ",
            Ask("to", layout),
        )
