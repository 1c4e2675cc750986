""".bin: cuDNN's weight space as it is, little-endian, for a program in C; beside it, as JSON, what
it is of.

FILE.bin.json is written; FILE.bin.json or else FILE.json is read. It is Spec.to_dict() with
"layout", "nbytes" and "regions", the rows of rl.regions(), behind; Spec.to_dict() alone will do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rnnlayout._files.bags.bag import Ask, Tensor
from rnnlayout._files.bags.found import Found
from rnnlayout._files.bags.groups import entry_of, flat, flat_of
from rnnlayout._files.bags.json_text import json_object
from rnnlayout._model.describe import regions
from rnnlayout._model.dtypes import storage
from rnnlayout._model.errors import FileError
from rnnlayout._model.spec import Spec
from rnnlayout._native import SpecError
from rnnlayout._weights.weights import Weights

_MOST_NBYTES = 16 << 20  # of the JSON: that of a thousand layers has a tenth of it
_MORE = ("layout", "nbytes", "regions")


# ---------------------------------------------------------------------------------------- reading


def read(path: Path, ask: Ask) -> Found:
    """The RNN whose weight space the file is, mapped."""
    with open(path, "rb") as file:
        if file.read(4) == b"PK\x03\x04":
            raise FileError(
                f"{path} is a zip archive, most likely a checkpoint of torch: name it .pt"
            )
    spec = _beside(path) or ask.spec
    if spec is None:
        raise SpecError(
            f"{path} does not tell what RNN it holds, and neither {path.name}.json nor"
            f" {path.stem}.json stands beside it: pass spec="
        )
    size, dtype = path.stat().st_size, storage(spec.dtype).newbyteorder("<")
    if size % dtype.itemsize:
        raise FileError(f"{path} has {size} bytes, no whole number of {spec.dtype}")
    array = np.memmap(path, dtype, "r").view(np.ndarray) if size else np.empty(0, dtype)
    weights = flat(Tensor.of(array, spec.dtype), Ask(spec, ask.layout), path)
    return Found({entry_of("", weights.spec): weights})


def _beside(path: Path) -> Spec | None:
    for json_path in (path.with_name(path.name + ".json"), path.with_suffix(".json")):
        if json_path.is_file():
            if json_path.stat().st_size > _MOST_NBYTES:
                raise FileError(f"{json_path} is too large to be what describes {path.name}")
            told = json_object(json_path.read_bytes(), str(json_path))
            try:
                return Spec.from_dict({k: v for k, v in told.items() if k not in _MORE})
            except SpecError as error:
                raise FileError(f"{json_path}: {error}") from None
    return None


# ---------------------------------------------------------------------------------------- writing


def write(path: Path, entries: Mapping[str, Weights]) -> None:
    """The weight space of one RNN, and the JSON beside it."""
    weights = flat_of(entries, path.name)
    with open(path, "wb") as file:
        for chunk in Tensor.of(weights._read().arrays[0], weights.spec.dtype).chunks():
            file.write(chunk)
    text = json.dumps(_described(weights.spec), indent=1)
    path.with_name(path.name + ".json").write_text(text + "\n")


def _described(spec: Spec) -> dict[str, Any]:
    rows = regions(spec)
    names = rows.dtype.names or ()
    return {
        **spec.to_dict(),
        "layout": "cudnn",
        "nbytes": spec.nbytes,
        "regions": [dict(zip(names, row, strict=True)) for row in rows.tolist()],
    }
