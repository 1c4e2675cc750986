""".bin: cuDNN's weight space itself, little-endian, for C programs, with a JSON file beside it.

FILE.bin.json is written; FILE.bin.json or else FILE.json is read. It has Spec.to_dict(), followed
by "layout", "nbytes" and "regions", the rows of rl.regions(). Spec.to_dict() alone is enough.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rnnlayout._files.bags.bag import Hints, Tensor
from rnnlayout._files.bags.found import Found
from rnnlayout._files.bags.json_text import json_object
from rnnlayout._files.bags.output import Output
from rnnlayout._model.describe import regions
from rnnlayout._model.dtypes import storage
from rnnlayout._model.errors import FileError
from rnnlayout._model.spec import Spec
from rnnlayout._native import SpecError
from rnnlayout._weights.weights import Weights

from .format import ModelFormat
from .weight_space import found_in, only_one

_MOST_NBYTES = 16 << 20  # of the JSON; that of a thousand layers has a tenth of it
_MORE = ("layout", "nbytes", "regions")


# ---------------------------------------------------------------------------------------- reading


def _read(path: Path, hints: Hints) -> Found:
    with open(path, "rb") as file:
        if file.read(4) == b"PK\x03\x04":
            raise FileError(
                f"{path} is a zip archive, most likely written by torch.save(): rename it to"
                f" {path.stem}.pt"
            )
    spec = _beside(path) or hints.spec
    if spec is None:
        raise SpecError(
            f"{path} does not record which RNN it is, and neither {path.name}.json nor"
            f" {path.stem}.json exists beside it: pass spec="
        )
    size, dtype = path.stat().st_size, storage(spec.dtype).newbyteorder("<")
    if size % dtype.itemsize:
        raise FileError(
            f"{path} has {size} bytes, which is not a whole number of {spec.dtype} elements"
        )
    array = np.memmap(path, dtype, "r").view(np.ndarray) if size else np.empty(0, dtype)
    return found_in(Tensor.of(array, spec.dtype), Hints(spec, hints.layout), path)


def _beside(path: Path) -> Spec | None:
    for json_path in (path.with_name(path.name + ".json"), path.with_suffix(".json")):
        if json_path.is_file():
            if json_path.stat().st_size > _MOST_NBYTES:
                raise FileError(f"{json_path} is too large to be the description of {path.name}")
            found = json_object(json_path.read_bytes(), str(json_path))
            try:
                return Spec.from_dict({k: v for k, v in found.items() if k not in _MORE})
            except SpecError as error:
                raise FileError(f"{json_path}: {error}") from None
    return None


# ---------------------------------------------------------------------------------------- writing


def _write(out: Output, entries: Mapping[str, Weights]) -> None:
    weights = only_one(entries, out.name)
    with open(out, "wb") as file:
        for chunk in Tensor.of(weights._read().arrays[0], weights.spec.dtype).chunks():
            file.write(chunk)
    text = json.dumps(_described(weights.spec), indent=1)
    out.beside(".json").write_text(text + "\n")


FORMAT = ModelFormat(".bin", _read, _write)


def _described(spec: Spec) -> dict[str, Any]:
    rows = regions(spec)
    names = rows.dtype.names or ()
    return {
        **spec.to_dict(),
        "layout": "cudnn",
        "nbytes": spec.nbytes,
        "regions": [dict(zip(names, row, strict=True)) for row in rows.tolist()],
    }
