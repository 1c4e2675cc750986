""".index.json: the index of a model in parts, and a part alone.

Hugging Face writes a large model as model-00001-of-00002.safetensors ... with the index
model.safetensors.index.json, or as pytorch_model-00001-of-00002.bin ... with the index
pytorch_model.bin.index.json. An index has the name of the part of each tensor:
{"metadata": {...}, "weight_map": {"encoder.weight_ih_l0": "model-00001-of-00002.safetensors"}}.

The index is read as one file with the tensors of all parts. A part alone is read with the names of
the tensors in other parts, so an RNN with tensors in several parts is refused.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import NoReturn

from rnnlayout._files.tensor_sets.file_limits import InputFile
from rnnlayout._files.tensor_sets.record import Record, read_records, write_records
from rnnlayout._files.tensor_sets.tensor_set import TensorSet
from rnnlayout._files.tensor_sets.weight_map import (
    MOST_PARTS,
    PART,
    check_part_names,
    names_by_part,
    read_weight_map,
)
from rnnlayout._model.errors import FileError
from rnnlayout._sources.mismatch import list_names

from .registry import Format, TensorFormat, format_to_read

_PARTS = (".safetensors", ".pt")  # formats of parts
_SHOWN = 4  # names of missing files in a message


# ---------------------------------------------------------------------------------------- the index


def _read_sharded(index: InputFile) -> TensorSet:
    names = names_by_part(index, read_weight_map(index).items())
    files = {name: index.companion(name) for name in names}
    formats = {name: _part_format(index, part) for name, part in files.items()}
    joined, parts = TensorSet({}), list[TensorSet]()
    records: dict[str, Record] = {}
    for name, part in files.items():
        try:
            parts.append(tensor_set := formats[name].read(part))
        except OSError as error:  # of the system: too many open files
            raise FileError(f"{part} cannot be read: {error.strerror}") from None
        check_part_names(index, name, tensor_set.tensors, names[name])
        records |= read_records(tensor_set.metadata, part)
        joined.tensors |= tensor_set.tensors
        joined.metadata |= tensor_set.metadata
        joined.skipped |= tensor_set.skipped
        joined.advice |= tensor_set.advice
        joined.modules = {**joined.modules, **tensor_set.modules}
        joined.derived = {*joined.derived, *tensor_set.derived}
        joined.notes += [note for note in tensor_set.notes if note not in joined.notes]
        for value in tensor_set.values:
            joined.add_value(value)
    if records:
        joined.metadata |= write_records(records)
    joined.forget = lambda: [part.forget() for part in parts]
    joined.copy = lambda out, chunk: next(filter(None, (p.copy(out, chunk) for p in parts)), 0)
    return joined


def _part_format(index: InputFile, part: InputFile) -> TensorFormat:
    format = format_to_read(part.path, asks=False)
    if not isinstance(format, TensorFormat) or format.suffix not in _PARTS:
        raise FileError(
            f"{index}: {part.path.name} is a {format.suffix} file, and only parts that are"
            f" {' or '.join(_PARTS)} files are read: load the model with its own program, and save"
            " it in one of these formats"
        )
    return format


FORMAT = TensorFormat(".index.json", _read_sharded, None)


# ----------------------------------------------------------------------------------------- one part


def complete_part(file: InputFile, tensor_set: TensorSet) -> TensorSet:
    """Return the tensors of a part, with the names of the tensors in other parts. Raises FileError
    if the index does not exist, or contradicts the part."""
    name = file.path.name
    index = file.companion(_index_name(file))
    parts = names_by_part(index, read_weight_map(index).items())
    check_part_names(index, name, tensor_set.tensors, parts.pop(name, []))
    elsewhere = {
        tensor: f"{tensor} is in {part}, another part of the model: pass {index}"
        for part, tensors in parts.items()
        for tensor in tensors
    }
    file.budget.charge("tensors", len(elsewhere))
    file.budget.charge("names", sum(map(len, elsewhere)))
    note = f"{name} is a part of a model: for the whole model pass {index}"
    notes = [*tensor_set.notes, *([note] if elsewhere else [])]
    return replace(tensor_set, elsewhere=elsewhere, notes=notes)


def refuse_part(file: InputFile, format: Format) -> NoReturn:
    """Raise FileError for a part of a model in a format whose parts are not read."""
    index = _index_name(file)
    raise FileError(
        f"{file} is a part of a model, and parts that are {format.suffix} files are not read: load"
        f" the model of {index} with its own program, and save it as one file"
    )


def _index_name(file: InputFile) -> str:
    """Return the name of the index beside a part. Raises FileError if it does not exist."""
    name = file.path.name
    match = PART.fullmatch(name)
    assert match, "the caller knows that it is a part"
    stem, number, count, suffix = match.groups()
    stem_of_variant, _, variant = stem.rpartition(".")  # model.fp16-00001-of-00002.safetensors
    index_names = [f"{stem}{suffix}.index.json", f"{stem_of_variant}{suffix}.index.{variant}.json"]
    for index_name in index_names:
        if file.path.with_name(index_name).is_file():
            return index_name
    part_names = (f"{stem}-{k:05d}-of-{count}{suffix}" for k in range(1, int(count) + 1))
    missing = [n for n in islice(part_names, MOST_PARTS) if not file.path.with_name(n).exists()]
    names = list_names([index_names[0], *missing], _SHOWN)
    raise FileError(
        f"{file} is, by its name, part {int(number)} of {int(count)} of a model, and its folder"
        f" lacks {names}: copy the missing files there and pass {index_names[0]}, or rename this"
        " file if it is a whole model"
    )
