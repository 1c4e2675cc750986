"""Recognise by name the files of programs whose formats are not read, without opening a file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from rnnlayout._model.errors import Message


@dataclass(frozen=True)
class Content:
    """The content of a file. description: for messages. suffix: the suffix of the format that reads
    the file, "" if no format does. repair: advice if no format reads the file; "" if unknown."""

    description: str
    suffix: str
    repair: str | Message = ""


CONVERTED = "pass the file of the model that it was converted from"
# tensorflowjs 4.22 converts a layers model back to Keras, but no graph model.
TFJS_TO_KERAS = (
    "`tensorflowjs_converter --input_format=tfjs_layers_model --output_format=keras model.json"
    " model.h5` (pip install tensorflowjs) makes a Keras file of it, which is read: pass model.h5"
)
TFJS_EITHER = f"if its model.json is a layers model, {TFJS_TO_KERAS}; of a graph model {CONVERTED}"
_TFJS_PART = Content("a part of the weights of a TensorFlow.js model", "", TFJS_EITHER)
_CORE_ML = Content("the weights of a Core ML model", "", CONVERTED)
_SHARD = re.compile(r"group\d+-shard\d+of\d+(\.bin)?")
# suffix of the graph beside a .bin -> description of the .bin
_GRAPHS = {
    ".xml": "the weights of an OpenVINO model",
    ".param": "the weights of an ncnn model",
}


def foreign_content(path: Path) -> Content | None:
    """Return the content of a file of weights that another program wrote; None if unknown, and for
    a .bin with a description of ours."""
    name = path.name.lower()
    if name.endswith(".nemo"):  # a tar archive, compressed or not (nemo/core/connectors)
        repair = f"unpack it (tar -xf {quote(path.name)}) and pass model_weights.ckpt"
        return Content("a model of NeMo", "", repair)
    if _SHARD.fullmatch(name):
        return _TFJS_PART
    if not name.endswith(".bin") or any(json.is_file() for json in descriptions_of_bin(path)):
        return None
    # TensorFlow.js itself writes weights.bin beside model.json, or m.weights.bin beside m.json
    stem = path.name[: -len("weights.bin")].rstrip(".") or "model"
    if name.endswith("weights.bin") and path.with_name(f"{stem}.json").is_file():
        return _TFJS_PART
    for suffix, description in _GRAPHS.items():
        if (graph := path.with_suffix(suffix)).is_file():
            return Content(f"{description} ({graph.name} beside it)", "", CONVERTED)
    return _CORE_ML if name == "weight.bin" else None


def descriptions_of_bin(path: Path) -> tuple[Path, Path]:
    """Return the files in which rnnlayout looks for the description of a .bin, which may lack."""
    return path.with_name(path.name + ".json"), path.with_suffix(".json")
