"""Find the states of optimizers in a checkpoint, and the parameter of the model of each state.

An optimizer's state_dict() numbers the parameters in the order of the optimizer, and does not name
them before torch 2.6. A state belongs to a parameter only if the shapes leave no choice, under one
condition: the optimizer has the parameters of a module in the order of module.parameters(), which
is the order of the state_dict() without buffers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rnnlayout._files.tensor_sets.file_limits import InputFile
from rnnlayout._files.tensor_sets.optimizer_slots import (
    MOST_OPTIMIZERS,
    PLAIN,
    SLOT_KINDS,
    step_of,
)
from rnnlayout._files.tensor_sets.tensor_set import FileTensor, StoredOptimizer, walk_leaves
from rnnlayout._sources.mismatch import list_names

from .archive import TorchTensor

_BUFFERS = ("running_mean", "running_var", "num_batches_tracked")  # of torch's norms
_MOST_VALUES = 20  # of a tuple that is a hyperparameter

Shape = tuple[int, ...]


@dataclass(frozen=True)
class _Parameter:
    """A parameter of an optimizer. group: the number of its group. name: None if not recorded.
    shape: of the states, None without a state that has the shape of the parameter."""

    group: int
    name: str | None
    shape: Shape | None
    slots: Mapping[str, FileTensor]
    step: int | None


def read_torch_optimizers(
    file: InputFile,
    contents: Any,
    tensors: Mapping[str, FileTensor],
    state_dicts: Mapping[str, Sequence[str]],
    tied: Mapping[str, str],
) -> list[StoredOptimizer]:
    """Return the optimizers of a checkpoint. tensors: all tensors of the checkpoint, by name.
    state_dicts: path -> names of tensors in one dict. tied: name of a tensor -> name of an earlier
    tensor with the same memory."""
    optimizers = {
        name: leaf
        for name, _, _, leaf in walk_leaves(file, contents, _ends_walk)
        if _is_optimizer(leaf)
    }
    if not optimizers:
        return []
    if len(optimizers) > MOST_OPTIMIZERS:
        why = f"the file has {len(optimizers)} optimizers, more than {MOST_OPTIMIZERS}"
        return [StoredOptimizer("", problems=dict.fromkeys(tensors, why))]
    inside = tuple(f"{path}." for path in optimizers)
    models = {
        path: {
            name: tensors[name].shape
            for name in names
            if name in tensors
            and name not in tied
            and not name.startswith(inside)
            and name.rpartition(".")[2] not in _BUFFERS
        }
        for path, names in state_dicts.items()
    }
    return [
        _read_optimizer(
            path or "the file", state, f"{path}." if path else "", tensors, models, tied
        )
        for path, state in optimizers.items()
    ]


def _is_optimizer(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("state"), dict)
        and isinstance(groups := value.get("param_groups"), list)
        and all(isinstance(g, dict) and isinstance(g.get("params"), list) for g in groups)
    )


def _ends_walk(value: Any) -> bool:
    return _is_optimizer(value) or not isinstance(value, (dict, list, tuple))


def _read_optimizer(
    path: str,
    state: Mapping[str, Any],
    prefix: str,
    tensors: Mapping[str, FileTensor],
    models: Mapping[str, Mapping[str, Shape]],
    tied: Mapping[str, str],
) -> StoredOptimizer:
    parameters = _read_parameters(state, f"{prefix}state.", tensors)
    everything = {name: shape for model in models.values() for name, shape in model.items()}
    if parameters is None:
        return StoredOptimizer(path, problems=dict.fromkeys(everything, f"{path} is malformed"))
    if not any(parameter.slots for parameter in parameters):
        why = f"{path} has no states with the shape of a parameter"
        return StoredOptimizer(path, problems=dict.fromkeys(everything, why))
    fitting = {key: model for key, model in models.items() if _fits(parameters, key, model)}
    whole = {key: model for key, model in fitting.items() if len(model) == len(parameters)}
    fitting = whole if len(whole) == 1 else fitting  # rather than a part of another model
    if len(fitting) > 1:
        where = list_names([key.rstrip(".") or "the file" for key in fitting], 3)
        why = f"{path} fits several models: {where}"
        return StoredOptimizer(path, problems=dict.fromkeys(everything, why))
    root, model = next(iter(fitting.items()), ("", everything))
    names, problems = _assign(path, parameters, root, model)
    for name, first in tied.items():
        if first in names:
            names[name] = names[first]
    is_named = {*(_names_in(parameters, root) or ("",))} <= model.keys()
    groups = {k: _hyperparameters(state["param_groups"][k]) for k in {p.group for p in parameters}}
    return StoredOptimizer(
        path,
        {name: p.slots for name, p in names.items() if p.slots},
        {name: p.step for name, p in names.items() if p.step is not None},
        {name: groups[p.group] for name, p in names.items()},
        problems,
        {} if is_named else _doubts_on_order(model),
    )


def _read_parameters(
    state: Mapping[str, Any], prefix: str, tensors: Mapping[str, FileTensor]
) -> list[_Parameter] | None:
    """Return the parameters in the order of the optimizer; None for a malformed state."""
    parameters: dict[int, _Parameter] = {}
    used: set[int] = set()  # an item that repeats is malformed, and would take time again and again
    for k, group in enumerate(state["param_groups"]):
        names = group.get("param_names")
        if not isinstance(names, list) or len(names) != len(group["params"]):
            names = None
        for j, index in enumerate(group["params"]):
            if type(index) is not int or index in parameters:
                return None
            values = state["state"].get(index)
            values = values if isinstance(values, dict) else {}
            if values and id(values) in used:
                return None
            used.add(id(values))
            slots = {
                slot: tensors[name]
                for slot, value in values.items()
                if isinstance(slot, str) and isinstance(value, TorchTensor) and value.shape
                if (name := f"{prefix}{index}.{slot}") in tensors
            }
            shapes = {tensor.shape for slot, tensor in slots.items() if slot in SLOT_KINDS}
            recorded = names[j] if names is not None else None
            parameters[index] = _Parameter(
                k,
                recorded if isinstance(recorded, str) else None,
                shapes.pop() if len(shapes) == 1 else None,
                slots,
                step_of(_number_of(values.get("step"))),
            )
    return list(parameters.values())


def _number_of(value: Any) -> Any:
    """Return the number in a tensor of one element; another value as it is."""
    if not isinstance(value, TorchTensor) or value.shape not in ((), (1,)):
        return value
    return None if value.dtype == "bfloat16" else value.bits().reshape(()).item()


def _hyperparameters(group: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the numbers and texts of a group, without those of its parameters."""
    values = {
        key: _number_of(value)
        for key, value in group.items()
        if isinstance(key, str) and key not in ("params", "param_names")
    }
    return {
        key: value
        for key, value in values.items()
        if isinstance(value, PLAIN)
        or (
            isinstance(value, (tuple, list))
            and len(value) <= _MOST_VALUES
            and all(isinstance(v, PLAIN) for v in value)
        )
    }


def _names_in(parameters: Iterable[_Parameter], root: str) -> list[str] | None:
    """Return the names of all parameters in a state_dict; None if not all are recorded."""
    names = [p.name for p in parameters if p.name is not None]
    return [root + name for name in names] if len(names) == len([*parameters]) else None


def _fits(parameters: Sequence[_Parameter], root: str, model: Mapping[str, Shape]) -> bool:
    """Return whether the model can have all parameters."""
    if len(parameters) > len(model):
        return False
    if names := _names_in(parameters, root):
        return all(name in model for name in names)
    counts = Counter(parameter.shape for parameter in parameters if parameter.shape is not None)
    return not counts - Counter(model.values())


def _assign(
    path: str, parameters: Sequence[_Parameter], root: str, model: Mapping[str, Shape]
) -> tuple[dict[str, _Parameter], dict[str, str]]:
    """Return the parameter of each tensor, and why other tensors have none."""
    if (names := _names_in(parameters, root)) and all(name in model for name in names):
        pairs = dict(zip(names, parameters, strict=True))
        wrong = [n for n, p in pairs.items() if p.shape not in (None, model[n])]
        why = f"{path} names {list_names(wrong, 3)} with other shapes than the model"
        return ({}, dict.fromkeys(model, why)) if wrong else (pairs, {})
    if (
        len(parameters) == len(model)
        and len({parameter.group for parameter in parameters}) == 1
        and all(
            parameter.shape in (None, shape)
            for parameter, shape in zip(parameters, model.values(), strict=True)
        )
    ):
        return dict(zip(model, parameters, strict=True)), {}
    return _assign_by_shape(path, parameters, model)


def _doubts_on_order(model: Mapping[str, Shape]) -> dict[str, str]:
    """Return module -> another module that may have its place in the order of the optimizer: then
    other modules have all of its shapes."""
    shapes: dict[str, dict[Shape, None]] = defaultdict(dict)  # of each module
    owners: dict[Shape, dict[str, None]] = defaultdict(dict)
    for name, shape in model.items():
        module = name.rpartition(".")[0]
        shapes[module][shape] = owners[shape][module] = None
    return {
        module: next(other for other in owners[max(of_module)] if other != module)
        for module, of_module in shapes.items()
        if all(len(owners[shape]) > 1 for shape in of_module)
    }


def _assign_by_shape(
    path: str, parameters: Sequence[_Parameter], model: Mapping[str, Shape]
) -> tuple[dict[str, _Parameter], dict[str, str]]:
    """Assign the parameters of each shape if the model has as many tensors of the shape, all are in
    one group, and the order cannot be another."""
    by_shape, tensors_by_shape = defaultdict(list), defaultdict(list)
    for k, parameter in enumerate(parameters):
        if parameter.shape is not None:
            by_shape[parameter.shape].append(k)
    for name, shape in model.items():
        tensors_by_shape[shape].append(name)
    positions = {name: k for k, name in enumerate(model)}
    names: dict[int, str] = {}
    problems: dict[str, str] = {}
    for shape, tensor_names in tensors_by_shape.items():
        numbers = by_shape[shape]
        if len(numbers) != len(tensor_names):
            why = (
                f"parameters of shape {shape}: {len(numbers)} in {path}, {len(tensor_names)} in the"
                " model: some may have been frozen, shared, or passed to other optimizers"
            )
        elif len({parameters[k].group for k in numbers}) > 1:
            why = f"{path} has parameters of shape {shape} in several groups, in an unknown order"
        else:
            names.update(zip(numbers, tensor_names, strict=True))
            continue
        problems.update(dict.fromkeys(tensor_names, why))
    in_group: dict[int, list[int]] = defaultdict(list)  # positions in the model
    for k in sorted(names):
        in_group[parameters[k].group].append(positions[names[k]])
    disordered = {group for group, places in in_group.items() if places != sorted(places)}
    for shape, tensor_names in tensors_by_shape.items():
        modules = {name.rpartition(".")[0] for name in tensor_names}
        numbers = by_shape[shape]
        if len(modules) > 1 and numbers and parameters[numbers[0]].group in disordered:
            why = (
                f"{path} has its parameters in another order than the model, which has"
                f" {len(tensor_names)} of shape {shape} in several modules"
            )
            problems.update({name: problems.get(name, why) for name in tensor_names})
    return {name: parameters[k] for k, name in names.items() if name not in problems}, problems
