"""Files that are cuDNN's weight space of one RNN: .npy, without a spec, and .bin, with a JSON file.

.bin is the weight space, little-endian, for C programs, with a companion in JSON: FILE.bin.json is
written; FILE.bin.json or else FILE.json is read. The JSON has Spec.to_dict(), followed by "layout",
"nbytes", "crc32", of the .bin, and "regions", the rows of rl.regions(); and, unless they are
defaults, "entry" (the RNN's name), "config" and "batch_first". Spec.to_dict() alone is enough.
Without a companion the caller passes spec and layout: most programs write other numbers in files of
this name.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Mapping
from dataclasses import dataclass, replace
from mmap import mmap
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from rnnlayout._files.tensor_sets.file_limits import InputFile, parse_json_object
from rnnlayout._files.tensor_sets.file_rnns import Found, arrays_in_vector, entry_name
from rnnlayout._files.tensor_sets.output_file import Output, open_untruncated
from rnnlayout._files.tensor_sets.record import Record, parse_record, rnn_as_json
from rnnlayout._files.tensor_sets.tensor_set import FileTensor
from rnnlayout._model.config import changes_outputs, unwritten_settings
from rnnlayout._model.describe import regions
from rnnlayout._model.dtypes import storage_dtype
from rnnlayout._model.errors import Ask, FileError, error_with_name
from rnnlayout._model.layout import CUDNN
from rnnlayout._model.spec import Spec
from rnnlayout._model.weights import Weights, changed_weights
from rnnlayout._native import SpecError
from rnnlayout._sources.read_source import read_source
from rnnlayout._sources.reading import Reading

from .foreign import descriptions_of_bin
from .npz import read_npy, write_npy
from .registry import ModelFormat

_RECORD_KEYS = ("layout", "nbytes", "crc32", "regions", "entry", "config", "batch_first")


def _weights_of_vector(tensor: FileTensor, reading: Reading, file: InputFile) -> Weights:
    try:
        known = replace(reading, layout=CUDNN, prefix="")
        charged = replace(tensor, budget=file.budget)
        return read_source(charged.floats("the array", arrays_in_vector(reading.spec)), known)
    except ValueError as error:
        raise error_with_name(error, str(file)) from None


def _read_npy(file: InputFile, reading: Reading) -> Found:
    array = read_npy(file)
    tensor = FileTensor.of(array, array.dtype.name)
    weights = _weights_of_vector(tensor, replace(reading, fields={}), file)
    return Found({entry_name("", weights.spec): weights})


def _write_npy(out: Output, entries: Mapping[str, Weights]) -> None:
    ((name, weights),) = entries.items()
    if changing := changes_outputs(weights.config, weights.spec):
        why = "and a .npy has nothing but numbers: write a .bin, or, to leave it out"
        raise unwritten_settings(name, changing, why)
    if weights.spec.dtype == "bfloat16":
        why = f"{out.name}: NumPy lacks bfloat16: use .safetensors or .bin, or "
        raise FileError(why, Ask("dtype"))
    with open(out, "wb", opener=open_untruncated) as file:
        write_npy(file, weights.arrays[0])


def _read_bin(file: InputFile, reading: Reading) -> Found:
    description = _read_bin_json(file)
    spec = description.record.spec if description else reading.spec
    if spec is None or not (description or reading.layout == CUDNN):
        first, second = (path.name for path in descriptions_of_bin(file.path))
        raise SpecError(
            f"{file} does not record which RNN it is, and neither {first} nor {second} beside it is"
            " a description of it by rnnlayout: if another program wrote it, pass the file that it"
            " was made from; if it is cuDNN's weight space, pass ",
            Ask("spec", spec or ...),
            " and ",
            Ask("layout", "cudnn"),
        )
    data = file.data()
    dtype = storage_dtype(spec.dtype).newbyteorder("<")
    if len(data) % dtype.itemsize:
        raise FileError(f"{file} has {len(data)} bytes, not a multiple of those of a {spec.dtype}")
    tensor = FileTensor.of(np.frombuffer(data, dtype), spec.dtype)
    weights = _weights_of_vector(tensor, Reading(spec), file)
    if not description:
        return Found({entry_name("", spec): weights})
    _check_crc32(file, data, description)
    record, entry = description.record, description.content.get("entry", "")
    weights = changed_weights(weights, config=record.config, batch_first=record.batch_first)
    return Found({entry or entry_name("", spec): weights})


@dataclass(frozen=True)
class _Description:
    """The companion of a .bin: its path, its JSON, and the record of the RNN."""

    path: Path
    content: Mapping[str, Any]
    record: Record


def _read_bin_json(file: InputFile) -> _Description | None:
    """Return the description of a .bin. A file of JSON without a schema is another program's: the
    model.json of a .bin in another format."""
    for json_path in descriptions_of_bin(file.path):
        if json_path.is_file():
            file.budget.charge("metadata", json_path.stat().st_size)
            text = bytes(file.companion(json_path.name).data())
            text = text.removeprefix(BOM_UTF8)  # which editors of Windows write
            content = parse_json_object(text, str(json_path))
            if "schema" not in content:
                continue
            config = content.get("config", {})
            if not isinstance(content.get("entry", ""), str) or not isinstance(config, dict):
                raise FileError(f"{json_path}: need entry as a name, config as an object")
            record = {
                "prefix": "",
                "layout": "cudnn",
                "options": {},
                "config": config,
                "spec": {key: content[key] for key in content if key not in _RECORD_KEYS},
                "batch_first": content.get("batch_first"),
            }
            parsed = parse_record(record, str(json_path))
            _check_description(content, parsed.spec, str(json_path))
            return _Description(json_path, content, parsed)
    return None


def _check_crc32(file: InputFile, data: mmap | bytes, description: _Description) -> None:
    """Raise FileError if a description records the CRC-32 of other bytes."""
    if "crc32" not in description.content:  # Spec.to_dict() alone
        return
    recorded, actual = description.content["crc32"], f"{crc32(data):08x}"
    if recorded != actual:
        raise FileError(
            f"{description.path} describes another {file.path.name}, with CRC-32"
            f" {repr(recorded)[:40]} instead of {actual!r}: two programs wrote these files at the"
            " same time, or one of the files is an old copy: write both again, or delete"
            ' "crc32" from the JSON if it describes these weights'
        )


def _check_description(content: Mapping[str, Any], spec: Spec, label: str) -> None:
    """Raise FileError if a description contradicts its spec."""
    if (layout := content.get("layout", "cudnn")) != "cudnn":
        raise FileError(f"{label}: layout is {repr(layout)[:40]}, and a .bin file has cudnn")
    if (nbytes := content.get("nbytes", spec.nbytes)) != spec.nbytes:
        raise FileError(f"{label}: nbytes is {repr(nbytes)[:40]}, and the spec has {spec.nbytes}")
    if "regions" in content and content["regions"] != _region_objects(spec):
        raise FileError(
            f"{label}: regions are not those of the spec: the description was edited, or is of"
            " another model"
        )


def _region_objects(spec: Spec) -> list[dict[str, Any]]:
    """Return the rows of rl.regions() for JSON."""
    rows = regions(spec)
    return [dict(zip(rows.dtype.names or (), row, strict=True)) for row in rows.tolist()]


def _write_bin(out: Output, entries: Mapping[str, Weights]) -> None:
    ((name, weights),) = entries.items()
    checksum = 0
    with open(out, "wb", opener=open_untruncated) as file:
        for chunk in FileTensor.of(weights.arrays[0], weights.spec.dtype).chunks():
            file.write(chunk)
            checksum = crc32(chunk, checksum)
    description = {
        **weights.spec.to_dict(),
        "layout": "cudnn",
        "nbytes": weights.spec.nbytes,
        "crc32": f"{checksum:08x}",
        "regions": _region_objects(weights.spec),
    }
    if name != entry_name("", weights.spec):
        description["entry"] = name
    if weights.config:
        description["config"] = weights.config
    if weights.batch_first is not None:
        description["batch_first"] = weights.batch_first
    text = rnn_as_json(description, indent=1)
    out.companion(".json").write_text(text + "\n", encoding="utf-8")


NPY = ModelFormat(".npy", ("cudnn",), _read_npy, _write_npy, single=True)
BIN = ModelFormat(".bin", ("cudnn",), _read_bin, _write_bin, single=True)
