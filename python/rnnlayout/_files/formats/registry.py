"""The table of file formats, and the choice of the format of a file.

A format is an instance of a class below. The functions of a format raise FileError for a file that
is malformed or unsafe, and MissingExtraError if a package is missing. Reading opens only the named
file and its companions (InputFile.companion), and allocates little more than the size of the files
(tensor_sets/file_limits.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from rnnlayout._files.tensor_sets.file_limits import InputFile, require_regular_file
from rnnlayout._files.tensor_sets.file_rnns import Found
from rnnlayout._files.tensor_sets.find_rnns import TensorGroup
from rnnlayout._files.tensor_sets.tensor_set import Converted, FileTensor, Progress, TensorSet
from rnnlayout._files.tensor_sets.weight_map import is_part
from rnnlayout._model.config import changes_outputs, describe_config, unwritten_settings
from rnnlayout._model.errors import Ask, FileError, Message, join_parts
from rnnlayout._model.layout import Layout, known_layouts
from rnnlayout._model.similar import unknown_name
from rnnlayout._model.weights import Weights
from rnnlayout._native import LayoutError
from rnnlayout._sources.reading import Reading

from .content import DISTCP, content_of
from .foreign import core_ml, foreign_content, newest_step, orbax_content

if TYPE_CHECKING:  # not needed to load
    from rnnlayout._files.tensor_sets.dense_layer import DenseLayer
    from rnnlayout._files.tensor_sets.layerwise import LayerwiseConversion
    from rnnlayout._files.tensor_sets.output_file import Output

Pairs: TypeAlias = "list[tuple[TensorGroup, LayerwiseConversion]]"


@dataclass(frozen=True)
class NewWeights:
    """New weights for a copy of a model. rnns: by the names of the RNNs in the model. reading: how
    the model was read. head: for the outputs of the model; None if the head stays as it is."""

    rnns: Mapping[str, Weights]
    reading: Reading
    head: DenseLayer | None = None


@dataclass(frozen=True, kw_only=True)
class _Options:
    """What is true of few formats.

    options: the options of OF_FORMATS that the format takes.
    begins: suffix of the format that these files start like (.pdparams: .pkl).
    needs: further parts that a file must have, for formats that cannot write a new file.
    has_head: whether a copy takes a new head, for the outputs of the model.
    """

    options: tuple[str, ...] = ()
    begins: str = ""
    needs: str = ""
    has_head: bool = False


@dataclass(frozen=True)
class TensorFormat(_Options):
    """Files that are sets of named tensors: safetensors, npz, a state_dict.

    suffix: the suffix in messages.
    read(file): return the tensors, whose elements may be read later.
    write(out, tensor_set, progress): write a new file; None if the format is only read.
    replace(file, out, tensor_set, pairs, progress): for files with more than tensors: copy the file
        to `out`, with each RNN of `pairs` replaced; tensor_set has all tensors of the copy. Returns
        notes.
    separator: save() writes names of tensors as RNN + separator + tensor.
    """

    suffix: str
    read: Callable[[InputFile], TensorSet]
    write: Callable[[Output, TensorSet, Progress | None], None] | None
    replace: Callable[[InputFile, Output, TensorSet, Pairs, Progress | None], list[str]] | None = (
        None
    )
    separator: str = "."


@dataclass(frozen=True)
class ModelFormat(_Options):
    """Files with a special structure: a Keras model, an ONNX graph, one weight space.

    suffix: the suffix in messages. layouts: the possible layouts of RNNs in a file.
    read(file, reading): return the RNNs; None if the format is only written.
    write(out, entries): write a new file with the RNNs; None if new files cannot be written.
    replace(file, out, new): copy a file to `out`, with new weights. Returns notes.
    rewrite(file, out, reading, to, dtype, exact): copy a whole model to `out`, with all RNNs
        converted.
    single: whether a file can store only one RNN.
    read_others(file, names): return tensors of Found.others by name; None if only RNNs are read.
    """

    suffix: str
    layouts: tuple[str, ...]
    read: Callable[[InputFile, Reading], Found] | None
    write: Callable[[Output, Mapping[str, Weights]], None] | None
    replace: Callable[[InputFile, Output, NewWeights], list[str]] | None = None
    rewrite: Callable[[InputFile, Output, Reading, Layout, object, bool], Converted] | None = None
    single: bool = False
    read_others: Callable[[InputFile, Collection[str]], dict[str, FileTensor]] | None = None


Format = TensorFormat | ModelFormat

# suffix -> module and name of the format. The longest suffix of a file's name decides.
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
    ".json": "rtneural.FORMAT",
    ".nam": "nam.FORMAT",
    ".state_dict.json": "state_dict_json.FORMAT",
    ".tfjs.json": "keras.tfjs.FORMAT",
    ".index.json": "sharded.FORMAT",
    ".weights.json": "keras.formats.WEIGHTS_JSON",
}
_INDEXES = (".index.json", ".weights.json")  # of models in parts
# Suffix of several formats -> the formats that the content of a file decides: pytorch_model.bin,
# and every format of JSON under any name.
_BY_CONTENT = {
    ".bin": (".pt",),
    ".json": tuple(suffix for suffix in FORMATS if suffix.endswith(".json") and suffix != ".json"),
}


def _import_format(suffix: str) -> Format:
    module, _, attribute = FORMATS[suffix].rpartition(".")
    format: Format = getattr(import_module(f"rnnlayout._files.formats.{module}"), attribute)
    return format


def readable_suffixes() -> list[str]:
    return [suffix for suffix in sorted(FORMATS) if _import_format(suffix).read]


def writable_suffixes() -> list[str]:
    return [suffix for suffix in sorted(FORMATS) if _import_format(suffix).write]


def suffixes_with_option(name: str) -> list[str]:
    """Return the suffixes of formats that take an option of OF_FORMATS."""
    formats = map(_import_format, FORMATS)
    return list(dict.fromkeys(format.suffix for format in formats if name in format.options))


def _suffix_of(path: Any) -> str:
    """Return the suffix that decides the format, "" for an unknown suffix."""
    name = str(path).lower()
    return max((suffix for suffix in FORMATS if name.endswith(suffix)), key=len, default="")


def format_to_write(path: Any, *, copies: bool = False) -> Format:
    """Return the format of a new file. Raises FileError if the suffix belongs to no format that is
    written. copies: whether the file is a copy of an existing file, with new weights."""
    suffix = _suffix_of(path)
    format = _import_format(suffix) if suffix else None
    if format and (format.write or (copies and format.replace)):
        return format
    if format and format.needs:
        raise FileError(
            f"{path}: a {suffix} file needs {format.needs}, which an RNN does not have: write its"
            f" weights into an existing model, rnnlayout convert IN {path} --into MODEL{suffix}"
        )
    suffixes = writable_suffixes()
    listing = f"files are written as {', '.join(suffixes)}"
    if suffix:
        raise FileError(f"{path}: {suffix} files are only read; {listing}")
    raise FileError(unknown_name(f"{path}: unknown format", Path(path).suffix, suffixes, listing))


def layout_of_format(format: Format) -> str:
    """Return the layout of all files of a format. Raises LayoutError for a choice of layouts."""
    if isinstance(format, ModelFormat) and len(format.layouts) == 1:
        return format.layouts[0]
    why = f"a {format.suffix} file may have several layouts: choose one with "
    raise LayoutError(why, Ask("to"))


def why_not_in(format: Format, layout: Layout) -> Message | None:
    """Return why the files of a format cannot have a layout, with a repair; None if possible."""
    if not isinstance(format, ModelFormat) or layout.name in format.layouts:
        return None
    repairs = [Ask("to", name) for name in format.layouts if name in known_layouts()]
    why = f"a {format.suffix} file cannot have layout {layout}: "
    if not repairs:
        return Message(why, "omit ", Ask("to", None))
    return Message(why, "pass ", join_parts(" or ", repairs))


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_MOST_FILES = 1000  # names that are read of a folder


def file_to_read(path: Any) -> Path:
    """Return the file that load() reads: `path`; in a folder saved_model.pb of a SavedModel, or the
    only index of a model in parts. Raises FileNotFoundError if `path` does not exist, FileError if
    `path` cannot be read."""
    is_path = isinstance(path, (str, os.PathLike))
    if is_path and _URL.match(os.fspath(path)) and not os.path.lexists(path):
        raise FileError(f"{path} is an address: download it, and pass the downloaded file")
    if is_path and os.path.isdir(path):
        return _file_in_folder(Path(path))
    return require_regular_file(path)


def _file_in_folder(folder: Path) -> Path:
    """Return the file of a folder that load() reads. Raises FileError without such a file."""
    for model_folder in (folder, folder.parent) if folder.name == "variables" else (folder,):
        if (model_folder / "saved_model.pb").is_file():
            return model_folder / "saved_model.pb"
    subject = f"{folder} is a folder, "
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in islice(entries, _MOST_FILES))
    except OSError as error:
        raise FileError(f"{subject}which cannot be read: {error.strerror}") from None
    indexes = [name for name in names if name.lower().endswith(_INDEXES)]
    if len(indexes) == 1 and len(names) < _MOST_FILES:
        return require_regular_file(folder / indexes[0])
    if any(name.endswith(".distcp") for name in names):
        raise FileError(f"{folder} is {DISTCP.description}: ", DISTCP.repair)
    # most .json files of a folder are not models of RTNeural; an index comes before its parts
    suffixes = [*_INDEXES, *(suffix for suffix in FORMATS if not suffix.endswith(".json"))]
    readable = [name for suffix in suffixes for name in names if name.lower().endswith(suffix)]
    foreign = {name: content for name in names if (content := foreign_content(folder / name))}
    readable = [name for name in readable if name not in foreign]
    readable.sort(key=lambda name: is_part(Path(name)))
    if readable and is_part(Path(readable[0])):  # reading the part says which files are missing
        return require_regular_file(folder / readable[0])
    if readable:
        alternatives = f", or one of its {len(readable) - 1} others" if len(readable) > 1 else ""
        raise FileError(f"{subject}need a file: pass {folder / readable[0]}{alternatives}")
    for name, content in foreign.items():
        text = f"{folder} is a folder with {name}, {content.description}: "
        raise FileError(text, content.repair)
    if orbax := orbax_content(folder, names):
        raise FileError(f"{folder} is {orbax.description}: ", orbax.repair)
    if (step := newest_step(names)) and (folder / step).is_file():  # flax.training, before Orbax
        raise FileError(f"{subject}need a file: pass {folder / step}")
    if "Manifest.json" in names:
        content = core_ml(folder.absolute(), "an .mlpackage of Core ML, which is not read")
        raise FileError(f"{folder} is {content.description}: ", content.repair)
    return require_regular_file(folder)


def format_to_read(path: Path, name: str | None = None, *, asks: bool = True) -> Format:
    """Return the format of a file: by `name` if passed, else by the suffix, else by the content.
    name: a suffix without the first dot. asks: whether an error may suggest format=, because the
    caller accepts format= for this file. Raises FileError if the format is unknown."""
    if name is not None:
        return format_named(name)
    suffix = _suffix_of(path)
    content = content_of(path) if suffix in _BY_CONTENT and path.is_file() else None
    if content and content.suffix in _BY_CONTENT[suffix]:
        suffix = content.suffix
    if suffix:
        if _import_format(suffix).read:
            return _import_format(suffix)
        why = f"{path}: {suffix} files are only written, not read"
        raise FileError(f"{why}: read the file it was made from")
    content = content_of(path)
    if content and content.suffix:
        return _import_format(content.suffix)
    if content and content.repair:
        raise FileError(f"{path} is {content.description}: ", content.repair)
    names = ", ".join(readable_suffixes())
    description = f"it is {content.description}" if content else "its first bytes are those of none"
    repair = ["pass ", Ask("format")] if asks else ["give the file that suffix"]
    why = f"{path}: unknown format: {description}; readable are {names}: if it is one, "
    raise FileError(why, *repair)


def read_tensor_set(format: TensorFormat, file: InputFile) -> TensorSet:
    """Return the tensors of a file, and the names of those in other parts of a model."""
    tensor_set = format.read(file)
    if not is_part(file.path):
        return tensor_set
    whole: TensorSet = _sharded().complete_part(file, tensor_set)
    return whole


def read_model_file(format: ModelFormat, file: InputFile, reading: Reading) -> Found:
    """Return the RNNs of a file. Raises FileError if the file is a part of a model."""
    assert format.read, "format_to_read() refuses formats that are only written"
    if is_part(file.path):
        _sharded().refuse_part(file, format)
    return format.read(file, reading)


def _sharded() -> Any:
    return import_module("rnnlayout._files.formats.sharded")


def format_named(name: str) -> Format:
    """Return the format of this name. Raises FileError if the name is unknown."""
    names = [suffix[1:] for suffix in readable_suffixes()]
    if name not in names:
        problem, listing = f"format {name!r} is unknown", f"need one of {', '.join(names)}"
        raise FileError(unknown_name(problem, name, names, listing))
    return _import_format(f".{name}")


@contextmanager
def explain_wrong_suffix(path: Path, format: Format, *, asks: bool = True) -> Iterator[None]:
    """If the block raises an error, and the content of the file does not have the format, raise a
    FileError with the format of the content. asks: whether the error may suggest format=, because
    the caller accepts format= for this file."""
    try:
        yield
    except ValueError as error:
        try:
            content = content_of(path)
        except OSError:  # too many open files, which the first error says
            raise error from None
        if content and content.repair and not content.suffix:
            raise FileError(f"{path} is {content.description}: ", content.repair) from error
        if not content or content.suffix in ("", format.begins):
            raise
        if _import_format(content.suffix).read is format.read:
            raise
        raise FileError(
            f"{path} is not a {format.suffix} file but {content.description}: rename it to"
            f" {path.stem}{content.suffix}",
            *([", or pass ", Ask("format", content.suffix[1:])] if asks else ()),
        ) from error


def check_layout(weights: Weights, layout: str, owner_text: str) -> None:
    """Raise LayoutError if weights are not in the layout that the owner of `owner_text` needs."""
    if weights.layout.name != layout:
        raise LayoutError(
            f"{owner_text} needs layout {layout}, found {weights.layout}: convert with"
            f" .to({layout!r}) first, or ",
            Ask("to", layout),
        )


def compare_settings(name: str, new: Weights, old: Weights, model: str) -> list[str]:
    """Return notes about the settings that an RNN of a model keeps when it gets the weights of an
    RNN without these settings. model: the name of the file. Raises LossyError if the new RNN has
    settings that the old one lacks, because a copy of the model would lose them."""
    new_settings = changes_outputs(new.config, new.spec)
    old_settings = changes_outputs(old.config, old.spec)
    lost = {key: v for key, v in new_settings.items() if old_settings.get(key) != v}
    if lost:
        why = f"and {name} of {model} is not; to leave it out"
        raise unwritten_settings(name, lost, why)
    kept = {key: value for key, value in old_settings.items() if key not in new_settings}
    if not kept:
        return []
    return [
        f"{name} of {model} is used with {describe_config(kept)}, and the source is not: their"
        " outputs differ"
    ]
