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
_CORE_ML = Content("the weights of a Core ML model", "", CONVERTED)
_SHARD = re.compile(r"group\d+-shard\d+of\d+(\.bin)?")
# suffix of the graph beside a .bin -> description of the .bin
_GRAPHS = {
    ".xml": "the weights of an OpenVINO model",
    ".param": "the weights of an ncnn model",
}


def tfjs_layers(name: str) -> Content:
    """Return the content of model.json of a layers model. name: of the file."""
    repair = f"its numbers are in .bin files beside it: {_to_keras(name)}"
    return Content("a layers model of TensorFlow.js", "", repair)


def tfjs_part(description: str, model: str = "model.json") -> Content:
    """Return the content of another file of a TensorFlow.js model. model: its model.json."""
    repair = f"if {model} is a layers model, {_to_keras(model)}; of a graph model {CONVERTED}"
    return Content(f"{description} of a TensorFlow.js model", "", repair)


def _to_keras(name: str) -> str:
    # tensorflowjs 4.22 converts a layers model back to Keras, but no graph model
    command = "tensorflowjs_converter --input_format=tfjs_layers_model --output_format=keras"
    new = f"{name.removesuffix('.json')}.h5"
    return (
        f"`{command} {quote(name)} {quote(new)}` (pip install tensorflowjs) makes a Keras file of"
        f" it, which is read: pass {new}"
    )


def foreign_content(path: Path) -> Content | None:
    """Return the content of a file of weights that another program wrote; None if unknown, and for
    a .bin with a description of ours."""
    name = path.name.lower()
    if name.endswith(".nemo"):  # a tar archive, compressed or not (nemo/core/connectors)
        repair = f"unpack it (tar -xf {quote(path.name)}) and pass model_weights.ckpt"
        return Content("a model of NeMo", "", repair)
    if _SHARD.fullmatch(name):
        return tfjs_part("a part of the weights")
    if not name.endswith(".bin") or any(json.is_file() for json in descriptions_of_bin(path)):
        return None
    # TensorFlow.js itself writes weights.bin beside model.json, or m.weights.bin beside m.json
    stem = path.name[: -len("weights.bin")].rstrip(".") or "model"
    if name.endswith("weights.bin") and path.with_name(f"{stem}.json").is_file():
        return tfjs_part("the weights", f"{stem}.json")
    for suffix, description in _GRAPHS.items():
        if (graph := path.with_suffix(suffix)).is_file():
            return Content(f"{description} ({graph.name} beside it)", "", CONVERTED)
    return _CORE_ML if name == "weight.bin" else None


def descriptions_of_bin(path: Path) -> tuple[Path, Path]:
    """Return the files in which rnnlayout looks for the description of a .bin, which may lack."""
    return path.with_name(path.name + ".json"), path.with_suffix(".json")
