"""A state_dict as JSON: tensors by name, as nested lists of decimals; models of GuitarML.

CoreAudioML (github.com/Alec-Wright/CoreAudioML, networks.py) writes the models of GuitarML, Proteus
and NeuralPi: "state_dict" has the RNN `rec` and the dense layer `lin`, "model_data" the class of
the network. Its networks add the first columns of x to the outputs of the dense layer, as many as
"skip". Without "state_dict" the object itself has the tensors, also in objects for each module.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rnnlayout._files.tensor_sets.file_limits import InputFile, check_texts
from rnnlayout._files.tensor_sets.output_file import Output
from rnnlayout._files.tensor_sets.tensor_set import (
    FileTensor,
    ModuleClass,
    Progress,
    TensorSet,
    walk_leaves,
)
from rnnlayout._model.config import changes_outputs, unwritable_settings, unwritten_settings
from rnnlayout._model.errors import FileError
from rnnlayout._native import LayoutError
from rnnlayout._sources.torch_modules import torch_fields

from .audio import read_decimals, read_json_model, settings_text, write_json_model
from .registry import Pairs, TensorFormat

_RNN = "rec"  # the name of the RNN in CoreAudioML's SimpleRNN
_SIZES = ("input_size", "hidden_size", "num_layers")
_MOST_AXES = 8


def _read_state_dict(file: InputFile) -> TensorSet:
    model = read_json_model(file)
    tensor_set = TensorSet({}, notes=_notes_about_skips(model), modules=_modules_of(model))
    for name, _, _, value in _leaves(file, model):
        check_texts([name], f"{file}: a name")
        if not isinstance(value, list):
            tensor_set.add_value(name)
            continue
        try:
            array = read_decimals(value, name, tensor_set.notes, _MOST_AXES)
        except LayoutError as error:
            tensor_set.skipped[name] = f"a list that is not read ({error})"
            continue
        tensor_set.add(name, FileTensor.of(array, "float32"), file)
    if not tensor_set.tensors:
        raise FileError(f"{file} has no tensors: need lists of numbers by name, as of a state_dict")
    return tensor_set


def _replace_in_state_dict(
    file: InputFile, out: Output, tensor_set: TensorSet, pairs: Pairs, progress: Progress | None
) -> list[str]:
    """Write the model to `out` with the tensors of tensor_set; keep everything else."""
    for group, conversion in pairs:
        settings, spec = changes_outputs(conversion.config, conversion.spec), conversion.spec
        if lost := unwritable_settings(settings, spec, ""):
            why = "unknown to a state_dict as JSON; to leave it out"
            raise unwritten_settings(group.entry, lost, why)
    model = read_json_model(file)
    for name, container, key, value in _leaves(file, model):
        if isinstance(value, list) and name in tensor_set.tensors:
            container[key] = tensor_set.tensors[name].bits().tolist()
    write_json_model(out, model)
    return []


FORMAT = TensorFormat(
    ".json",
    _read_state_dict,
    None,
    _replace_in_state_dict,
    begins=".json",
    needs="the description of a network, model_data",
    has_head=True,
)


def _leaves(file: InputFile, model: dict[str, Any]) -> Iterator[tuple[str, Any, Any, Any]]:
    """Return an iterator of the name, container, key and value of each leaf of the state_dict."""
    state_dict = model.get("state_dict")
    root = state_dict if isinstance(state_dict, dict) else model
    return walk_leaves(file, root, lambda value: not isinstance(value, dict))


def _modules_of(model: dict[str, Any]) -> dict[str, ModuleClass]:
    """Return the module that "model_data" describes, {} without a description."""
    facts = model.get("model_data")
    kind = facts.get("unit_type") if isinstance(facts, dict) else None
    if not isinstance(facts, dict) or kind not in ("LSTM", "GRU", "RNN"):
        return {}
    sizes = {key: facts[key] for key in _SIZES if key in facts}
    fields = torch_fields(kind, sizes | {"nonlinearity": "tanh"})  # nn.RNN's default
    return {_RNN: ModuleClass(f"torch.nn.{kind}", True, fields, batch_first=False)}


def _notes_about_skips(model: dict[str, Any]) -> list[str]:
    """Return notes about inputs that a network adds to its outputs, which an RNN does not do."""
    facts, blocks = model.get("model_data"), model.get("blocks")  # of a RecNet
    networks = {"the model": facts} if isinstance(facts, dict) else {}
    for key, block in blocks.items() if isinstance(blocks, dict) else ():
        if isinstance(block, dict):
            networks[f"block {key[:40]}"] = {"skip": 1} | block
    return [
        f"{settings_text({'skip': skip})}: {network} adds x[..., :skip], of its inputs x, to the"
        " outputs of its dense layer: do the same"
        for network, network_facts in networks.items()
        if (skip := network_facts.get("skip"))
    ]
