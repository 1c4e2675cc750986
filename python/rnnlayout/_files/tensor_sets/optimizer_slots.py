"""Give each RNN of a file the state of its optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rnnlayout._model.kinds import Kind
from rnnlayout._model.weights import OptimizerState, Weights, changed_weights
from rnnlayout._native import LayoutError
from rnnlayout._sources.mismatch import list_names
from rnnlayout._sources.read_source import read_source
from rnnlayout._sources.reading import Reading

from .tensor_set import FileTensor, StoredOptimizer, stored_dtype

MOST_OPTIMIZERS = 16  # of one file: each looks through all tensors of the file
PLAIN = (str, int, float, bool, type(None))  # of hyperparameters
# Slot -> kind. The rules of a kind hold for each slot: a slot of kind "gradient" changes its sign
# with the weight, and a slot of kind "squared_gradient" does not.
SLOT_KINDS: Mapping[str, Kind] = {
    "exp_avg": "gradient",  # torch: Adam, AdamW, NAdam, RAdam, Lion
    "exp_avg_sq": "squared_gradient",
    "max_exp_avg_sq": "squared_gradient",
    "momentum_buffer": "gradient",  # SGD, RMSprop, Muon
    "square_avg": "squared_gradient",  # RMSprop, Adadelta
    "grad_avg": "gradient",  # RMSprop(centered=True)
    "acc_delta": "squared_gradient",  # Adadelta: the squares of the updates
    "sum": "squared_gradient",  # Adagrad
    "mu": "gradient",  # optax: adam, lion
    "nu": "squared_gradient",  # adam, rmsprop
    "trace": "gradient",  # sgd
    "m": "gradient",  # Keras 2: Adam, SGD
    "v": "squared_gradient",
    "vhat": "squared_gradient",
    "rms": "squared_gradient",  # RMSprop
    "mg": "gradient",  # RMSprop(centered=True)
    "momentum": "gradient",  # Keras 2: SGD, RMSprop; Keras 3: Adam, SGD, RMSprop, Lion
    "velocity": "squared_gradient",  # Keras 2: RMSprop; Keras 3: Adam, RMSprop
    "velocity_hat": "squared_gradient",
    "average_gradient": "gradient",  # RMSprop(centered=True)
    "accumulator": "squared_gradient",  # Adagrad
}


def read_optimizer(
    entry: str, weights: Weights, names: Mapping[str, str], optimizers: Sequence[StoredOptimizer]
) -> tuple[OptimizerState | None, list[str]]:
    """Return the state of the one optimizer that has states for all tensors of an RNN, None without
    such an optimizer, and notes. names: name in the layout -> name in the file, for each tensor of
    the RNN; {} if the RNN's tensors are computed from tensors of the file."""
    if not optimizers:
        return None, []
    none = f"{entry}: no optimizer state was read: "
    if {*names} != {*weights.names}:
        return None, [f"{none}its weights are computed from other tensors of the file"]
    complete = [o for o in optimizers if all(name in o.slots for name in names.values())]
    if len(complete) > 1:
        paths = list_names([optimizer.path for optimizer in complete])
        return None, [f"{none}several optimizers have states for its tensors: {paths}"]
    if not complete:
        return None, [none + _why_incomplete(names.values(), optimizers)]
    return _state_of(weights, names, complete[0]), []


def _why_incomplete(names: Any, optimizers: Sequence[StoredOptimizer]) -> str:
    partial = max(optimizers, key=lambda o: sum(name in o.slots for name in names))
    missing = [name for name in names if name not in partial.slots]
    why = next((partial.problems[name] for name in missing if name in partial.problems), "")
    return why or f"{partial.path} has no state for {list_names(missing, 3)}"


def _state_of(
    weights: Weights, names: Mapping[str, str], optimizer: StoredOptimizer
) -> OptimizerState:
    slots: dict[str, Weights] = {}
    notes = [
        f"{optimizer.path} records no names of parameters, and {list_names([module, other])} have"
        " the same shapes: if the optimizer got them in another order, their states are exchanged:"
        " pass model.named_parameters() to it, which records names"
        for module in dict.fromkeys(name.rpartition(".")[0] for name in names.values())
        if (other := optimizer.doubts.get(module)) is not None
    ]
    stored = dict.fromkeys(slot for name in names.values() for slot in optimizer.slots[name])
    if unknown := [slot for slot in stored if slot not in SLOT_KINDS]:
        lacking = list_names(unknown, 6)
        notes.append(f"{optimizer.path}: not read, because their kind is not known: {lacking}")
    for slot, kind in SLOT_KINDS.items():
        missing = [name for name in names.values() if slot not in optimizer.slots[name]]
        if slot not in stored:
            continue
        if missing:
            lacking = list_names(missing, 3)
            notes.append(f"{optimizer.path}: slot {slot!r} was not read: {lacking} lacks it")
        else:
            arrays = {n: optimizer.slots[name][slot] for n, name in names.items()}
            try:
                slots[slot] = _read_slot(weights, arrays, kind)
            except LayoutError as error:
                notes.append(f"{optimizer.path}: slot {slot!r} was not read: {error}")
    steps = {optimizer.steps.get(name) for name in names.values()}
    if len(steps) > 1:
        notes.append(f"{optimizer.path}: the tensors of the RNN have different numbers of steps")
    values, differing = _common([optimizer.hyperparameters.get(n, {}) for n in names.values()])
    notes += [f"{optimizer.path}: {key} is not the same for all tensors" for key in differing]
    step = steps.pop() if len(steps) == 1 else None
    return OptimizerState(slots, step, values, optimizer.path, tuple(notes))


def optimizer_of_slots(
    path: str,
    slots: Iterable[tuple[str, str, str, FileTensor]],
    step: int | None,
    hyperparameters: Mapping[str, Any],
) -> StoredOptimizer:
    """Return an optimizer that is one group. slots: of each array, (tensor of the model, slot, name
    of the array in the file, array)."""
    slots_of: dict[str, dict[str, FileTensor]] = {}
    taken = set()
    for tensor, slot, name, array in slots:
        slots_of.setdefault(tensor, {})[slot] = array
        taken.add(name)
    steps = {} if step is None else dict.fromkeys(slots_of, step)
    groups = dict.fromkeys(slots_of, hyperparameters)
    return StoredOptimizer(path, slots_of, steps, groups, taken=taken)


def number_of(tensor: FileTensor | None) -> Any:
    """Return the number in a tensor of one element; None for another tensor."""
    is_number = tensor is not None and tensor.shape == () and stored_dtype(tensor.dtype) is not None
    if tensor is None or not is_number or tensor.dtype == "bfloat16":
        return None
    return tensor.bits().reshape(()).item()


def step_of(number: Any) -> int | None:
    """Return a number of steps as an int; None if the number is not whole."""
    is_number = isinstance(number, (int, float)) and number == number and abs(number) < 1 << 53
    return int(number) if is_number and int(number) == number else None


def _read_slot(weights: Weights, arrays: Mapping[str, Any], kind: Kind) -> Weights:
    bits = {name: array.floats(name) for name, array in arrays.items()}
    spec = weights.spec.replace(dtype=next(iter(bits.values())).dtype)
    slot = read_source(bits, Reading(spec, weights.layout, kind=kind))
    return changed_weights(slot, config=weights.config, batch_first=weights.batch_first)


def _common(groups: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """Return the items that all dicts have, and the keys of items that differ."""
    distinct = list({id(group): group for group in groups}.values())
    keys = dict.fromkeys(key for group in distinct for key in group)
    values: dict[str, Any] = {}
    differing = []
    for key in keys:
        if all(key in group and group[key] == distinct[0].get(key) for group in distinct):
            values[key] = distinct[0][key]
        else:
            differing.append(key)
    return values, differing
