"""The weight map of a model in parts: which file has which names.

An index is JSON with a weight map, {"weight_map": {name: part}}. Hugging Face's has the names of
tensors (formats/sharded.py), Keras's the paths of groups of variables (formats/keras/parts.py).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from rnnlayout._model.errors import FileError
from rnnlayout._sources.mismatch import list_names

from .file_limits import InputFile, check_texts, parse_json_object

# A part by Hugging Face's names: stem, number, count, suffix.
PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.\w+)")
MOST_PARTS = 256  # each is open, and a mapped part twice; the largest public models have about 200
_MOST_NBYTES = 32 << 20  # an index of 90,000 tensors has 9 MB
_SHOWN = 3  # names in a message
_AGAIN = "download or save all files of the model again"


def is_part(path: Path) -> bool:
    """Return whether a file is one of several parts of a model, by its name."""
    match = PART.fullmatch(path.name)
    return match is not None and int(match[3]) > 1


def read_weight_map(index: InputFile) -> dict[str, Any]:
    """Return the weight map of an index: name of a tensor or group -> its part or parts. Raises
    FileError if the index is malformed or too large."""
    if (size := index.path.stat().st_size) > _MOST_NBYTES:
        raise FileError(f"{index} has {size} bytes, and indexes of up to {_MOST_NBYTES} are read")
    weight_map = parse_json_object(bytes(index.data()), str(index)).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise FileError(f"{index} has no weight_map: it is not the index of a model in parts")
    check_texts(weight_map, f"{index}: a name")
    return weight_map


def names_by_part(index: InputFile, places: Iterable[tuple[str, Any]]) -> dict[str, list[str]]:
    """Return part -> names in the part. places: (name, part) pairs. Raises FileError for a part
    that is not a name, and for too many parts."""
    parts: dict[str, list[str]] = {}
    for name, part in places:
        if not isinstance(part, str):
            raise FileError(f"{index}: the part of {name!r} is not the name of a file")
        parts.setdefault(part, []).append(name)
    if len(parts) > MOST_PARTS:
        raise FileError(f"{index} has {len(parts)} parts, and up to {MOST_PARTS} are read")
    for part in parts:
        match = PART.fullmatch(part)
        if match and int(match[3]) > len(parts):
            listed = f"{len(parts)} of {int(match[3])} parts"
            raise FileError(f"{index} lists {listed}, by the name of {part}: {_AGAIN}")
    return parts


def check_part_names(
    index: InputFile, part: str, names: Collection[str], listed: list[str]
) -> None:
    """Raise FileError unless the index lists exactly the names that a part has."""
    missing = [name for name in listed if name not in names]
    unlisted = sorted(set(names).difference(listed))
    if missing or unlisted:
        has = "lacks" if missing else "has, and the index does not list"
        shown = list_names(missing or unlisted, _SHOWN)
        raise FileError(
            f"{index}: {part} {has} {shown}: the index and its parts are not of one model: {_AGAIN}"
        )
