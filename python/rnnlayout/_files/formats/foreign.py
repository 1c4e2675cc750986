"""Recognise by name the files of programs whose formats are not read, without opening a file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
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


def paddle_program(path: Path) -> Content:
    """Return the content of an inference model of Paddle: the program, or its weights."""
    repair = (
        "pass the .pdparams of the model; or in Python, arrays = {p.name: p.numpy() for p in"
        f" paddle.jit.load({str(path.with_suffix(''))!r}).parameters()}} has names such as"
        " lstm_cell_0.w_0_0: pass w_0, w_1, b_0 and b_1 of a cell as a list with layout='torch'"
    )
    return Content("an inference model of Paddle", "", repair)


def torch7(path: Path) -> Content:
    """Return the content of a file of Torch 7."""
    repair = (
        f"in Python, model = torchfile.load({str(path)!r}) (pip install torchfile) has its modules,"
        " and rl.Weights(module.weight, spec, layout='torch7-cudnn') reads the vector of a"
        " cudnn.LSTM, BLSTM or GRU"
    )
    return Content("a file of Torch 7", "", repair)


def core_ml(path: Path, description: str = "a Core ML model") -> Content:
    """Return the content of a Core ML model."""
    repair = (
        f"{CONVERTED}; or in Python, w = coremltools.optimize.coreml.get_weights_metadata("
        f"coremltools.models.MLModel({str(path)!r}, skip_model_load=True), weight_threshold=1), and"
        " for the name of a matrix of an lstm, {role: w[key].val for role, key in"
        " w[name].child_ops[0].params_name_mapping.items() if 'initial' not in role} has the arrays"
        " of layout 'coreml'"
    )
    return Content(description, "", repair)


def _tfjs_part(description: str, model: str = "model.json") -> Content:
    """Return the content of a file of weights of a TensorFlow.js model. model: its model.json."""
    repair = f"pass {quote(model)}, which names it"
    return Content(f"{description} of a TensorFlow.js model", "", repair)


def foreign_content(path: Path) -> Content | None:
    """Return the content of a file of weights that another program wrote; None if unknown, and for
    a .bin with a description of ours."""
    name = path.name.lower()
    if name.endswith(".nemo"):  # a tar archive, compressed or not (nemo/core/connectors)
        repair = f"unpack it (tar -xf {quote(path.name)}) and pass model_weights.ckpt"
        return Content("a model of NeMo", "", repair)
    if name.endswith(".rds"):  # compressed with gzip
        repair = (
            "in R, write the model with keras3::save_model(model, 'model.keras') or"
            " safetensors::safe_save_file(model$state_dict(), 'model.safetensors'); a list of"
            f" arrays in it is read in Python, rl.Weights(rdata.read_rds({str(path)!r}),"
            " layout=...) (pip install rdata)"
        )
        return Content("an object of R", "", repair)
    if name.endswith((".pdmodel", ".pdiparams", ".pdiparams.info")):
        return paddle_program(path)
    if name.endswith(".t7"):
        return torch7(path)
    if name.endswith(".mlmodel"):
        return core_ml(path)
    if _SHARD.fullmatch(name):
        return _tfjs_part("a part of the weights")
    if not name.endswith(".bin") or any(json.is_file() for json in descriptions_of_bin(path)):
        return None
    # TensorFlow.js itself writes weights.bin beside model.json, or m.weights.bin beside m.json
    stem = path.name[: -len("weights.bin")].rstrip(".") or "model"
    if name.endswith("weights.bin") and path.with_name(f"{stem}.json").is_file():
        return _tfjs_part("the weights", f"{stem}.json")
    for suffix, description in _GRAPHS.items():
        if (graph := path.with_suffix(suffix)).is_file():
            return Content(f"{description} ({graph.name} beside it)", "", CONVERTED)
    return _CORE_ML if name == "weight.bin" else None


_ORBAX_ITEM = {"_METADATA", "manifest.ocdbt"}  # files in a folder with arrays
_ORBAX_FILES = {"orbax.checkpoint", "pytree.orbax-checkpoint", "_CHECKPOINT_METADATA"}
_MOST_DIGITS, _MOST_ITEMS = 20, 100  # of a step
_STEP = re.compile(r"(?:.*_)?(\d+)")  # checkpoint_7 of flax.training, 7 of CheckpointManager


def newest_step(names: Iterable[str]) -> str:
    """Return the name of the newest step among names of files or folders, "" without steps."""
    steps = [match for name in names if (match := _STEP.fullmatch(name))]
    return max(steps, key=lambda step: int(step[1][:_MOST_DIGITS]))[0] if steps else ""


def orbax_content(folder: Path, names: Sequence[str]) -> Content | None:
    """Return the content of a folder of Orbax: of arrays, of a step with such folders, or of steps.
    None for another folder. names: of the files and folders in it."""
    step = folder / newest_step(names)
    places = [folder, *([step, *_folders_in(step)] if step.is_dir() else [])]
    item = next((place for place in places if _has_orbax_arrays(place)), None)
    if item is None and _ORBAX_FILES.isdisjoint(names):
        return None
    path = str((item or folder).absolute())
    repair = (
        f"in Python, tree = orbax.checkpoint.StandardCheckpointer().restore({path!r}) restores its"
        " arrays, and rl.Weights(tree, prefix=...) reads an RNN in them"
    )
    return Content("a checkpoint of Orbax, which is not read", "", repair)


def _folders_in(folder: Path) -> list[Path]:
    with suppress(OSError), os.scandir(folder) as entries:
        return sorted(Path(entry) for entry in islice(entries, _MOST_ITEMS) if entry.is_dir())
    return []


def _has_orbax_arrays(folder: Path) -> bool:
    return any((folder / name).is_file() for name in _ORBAX_ITEM)


def descriptions_of_bin(path: Path) -> tuple[Path, Path]:
    """Return the files in which rnnlayout looks for the description of a .bin, which may lack."""
    return path.with_name(path.name + ".json"), path.with_suffix(".json")
