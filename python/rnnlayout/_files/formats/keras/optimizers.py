"""The states of optimizers in Keras files.

A legacy .h5 has a named array per slot and variable. A .keras archive numbers the variables of the
optimizer: first the count of steps and, in Keras 3, the learning rate; then for each trainable
variable of the model, in the model's order, the slots of the optimizer's class.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rnnlayout._files.tensor_sets.file_rnns import Found
from rnnlayout._files.tensor_sets.find_rnns import apply_reading
from rnnlayout._files.tensor_sets.optimizer_slots import (
    PLAIN,
    SLOT_KINDS,
    number_of,
    optimizer_of_slots,
    read_optimizer,
    step_of,
)
from rnnlayout._files.tensor_sets.tensor_set import FileTensor, StoredOptimizer
from rnnlayout._sources.keras_tree import Node

from .config import parse_config
from .entries import KerasEntries
from .hdf5_tree import Hdf5Dataset, Hdf5Group

# Adam/m/lstm/kernel:0; Adam/lstm/kernel/m:0, also below training/; adam/lstm_kernel_momentum
_SLOT_FIRST = re.compile(r"[^/]+/([^/]+)/(.+?)(?::0)?", re.DOTALL)
_SLOT_LAST = re.compile(r"(?:training/)?[^/]+/(.+)/([^/]+?)(?::0)?", re.DOTALL)
_SLOT_SUFFIX = re.compile(rf"[^/]+/(.+?)_({'|'.join(sorted(SLOT_KINDS, key=len)[::-1])})")
_STEP = re.compile(r"(?:.*/)?(?:iteration|iterations|iter)(?::0)?", re.DOTALL)
_UNKNOWN_CLASS = (
    "no optimizer state was read: the file does not record the optimizer's class, which decides"
    " what its numbered variables are: save the whole compiled model, model.save('model.keras')"
)

_OF_ADAM = {
    "learning_rate": 1e-3,
    "beta_1": 0.9,
    "beta_2": 0.999,
    "epsilon": 1e-7,
    "amsgrad": False,
}
# The classes whose numbered variables are known, with the options of each and Keras 2's defaults.
OPTIONS: dict[str, dict[str, Any]] = {
    "Adam": _OF_ADAM,
    "AdamW": {**_OF_ADAM, "weight_decay": 0.004},
    "SGD": {"learning_rate": 1e-2, "momentum": 0.0, "nesterov": False},
    "RMSprop": {
        "learning_rate": 1e-3,
        "rho": 0.9,
        "momentum": 0.0,
        "epsilon": 1e-7,
        "centered": False,
    },
    "Adagrad": {"learning_rate": 1e-3, "initial_accumulator_value": 0.1, "epsilon": 1e-7},
    "Lion": {"learning_rate": 1e-4, "beta_1": 0.9, "beta_2": 0.99},
}
_BY_NAME = {class_name.lower(): class_name for class_name in OPTIONS}  # compile("adam")
MODULE = "keras.optimizers"
Arrays = Mapping[str, FileTensor]
Blocks = list[tuple[str, ...]]


def add_optimizer_states(
    rnns: Found, root: Hdf5Group, entries: KerasEntries, model: Node | None = None
) -> Found:
    """Return the RNNs as the caller reads them, with the states of their optimizer, and notes on
    RNNs without a state. model: the config of an archive; a legacy file has the optimizer's config
    in an attribute."""
    named, numbered = root.groups.get("optimizer_weights"), root.group("optimizer/vars")
    arrays = [dataset for group in (named, numbered) if group for dataset in group.all_datasets()]
    if not any(dataset.tensor.shape for dataset in arrays):  # none, or of no step so far
        return rnns
    class_name, options = class_and_options(root, model)
    if named is not None:
        optimizer = _named_optimizer(root, named, options)
    elif numbered is not None and class_name:
        optimizer = _numbered_optimizer(numbered, entries, class_name, options)
    else:
        rnns.notes.append(_UNKNOWN_CLASS)
        return rnns
    rnns = apply_reading(rnns, entries.reading)
    for name, weights in rnns.items():
        paths = entries.paths_by_tensor(name, weights)
        weights.optimizer, notes = read_optimizer(name, weights, paths, [optimizer])
        rnns.notes += notes
    return rnns


def class_and_options(root: Hdf5Group, model: Node | None) -> tuple[str, dict[str, Any]]:
    """Return the class of the optimizer and its options; "" and {} if the file records neither."""
    if model is not None:
        compiled = _dict_in(model, "compile_config")
        if isinstance(name := compiled.get("optimizer"), str):
            name = _BY_NAME.get(name.lower(), name)
            return name, dict(OPTIONS.get(name, {}))
        config = _dict_in(compiled, "optimizer")
    else:
        text = root.text("training_config")
        training = parse_config(text, "training_config") if text else {}
        config = _dict_in(training, "optimizer_config")
    class_name = config.get("class_name")
    class_name = class_name if isinstance(class_name, str) else ""
    if not str(module := config.get("module", MODULE)).startswith("keras."):  # of a user
        class_name = f"{module}.{class_name}"
    return class_name.rpartition(">")[2], _dict_in(config, "config")


def _dict_in(node: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Return the dict at a path of keys, {} if another value is there."""
    value: Any = node
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, dict) else {}


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if isinstance(value, PLAIN)}


# ------------------------------------------------------------------------------------ legacy files


def _named_optimizer(
    root: Hdf5Group, group: Hdf5Group, options: Mapping[str, Any]
) -> StoredOptimizer:
    """Return the optimizer of a legacy file, whose arrays have the names of the variables."""
    start = f"{group.path.rstrip('/')}/"
    datasets = {dataset.path.removeprefix(start): dataset for dataset in group.all_datasets()}
    slots: dict[str, dict[str, tuple[str, FileTensor]]] = {}
    step = None
    for name, dataset in datasets.items():
        if _STEP.fullmatch(name):
            step = step_of(number_of(dataset.tensor))
        for variable, slot in _slot_readings(name):
            slots.setdefault(variable, {})[slot] = name, dataset.tensor
    model = root.groups.get("model_weights")
    variables = {d.path: _variable_of(d) for d in model.all_datasets()} if model else {}
    count = Counter(variables.values())
    arrays = [
        (path, slot, name, tensor)
        for path, variable in variables.items()
        if count[variable] == 1
        for slot, (name, tensor) in slots.get(variable, {}).items()
    ]
    return optimizer_of_slots("optimizer_weights", arrays, step, _plain(options))


def _slot_readings(name: str) -> Iterator[tuple[str, str]]:
    """Yield (variable, slot) of an array's name; a variable's slashes become underscores."""
    if (match := _SLOT_FIRST.fullmatch(name)) and match[1] in SLOT_KINDS:
        yield match[2].replace("/", "_"), match[1]
    elif (match := _SLOT_LAST.fullmatch(name)) and match[2] in SLOT_KINDS:
        yield match[1].replace("/", "_"), match[2]
    elif match := _SLOT_SUFFIX.fullmatch(name):
        yield match[1], match[2]


def _variable_of(dataset: Hdf5Dataset) -> str:
    """Return the name of a variable of the model: /model_weights/LAYER/NAME:0."""
    return "/".join(dataset.path.split("/")[3:]).removesuffix(":0").replace("/", "_")


# ------------------------------------------------------------------------------- numbered variables


def slot_blocks(class_name: str, options: Mapping[str, Any], is_keras_3: bool) -> Blocks | None:
    """Return the slots that follow each other: for each trainable variable all slots of the first
    block, then those of the second. Return None for a class that is not known."""
    m, v, v_hat = ("momentum", "velocity", "velocity_hat") if is_keras_3 else ("m", "v", "vhat")
    blocks: Blocks | None = None
    if class_name in ("Adam", "AdamW"):
        blocks = [(m, v), *[(v_hat,)] * bool(options.get("amsgrad"))]
    elif class_name == "SGD" and (options.get("momentum") or not is_keras_3):
        blocks = [(m,)]  # which late Keras 2 has without a momentum, too
    elif class_name == "RMSprop":
        blocks = [("velocity",), *[("momentum",)] * bool(options.get("momentum"))]
        blocks += [("average_gradient",)] * bool(options.get("centered"))
    elif class_name == "Adagrad":
        blocks = [("accumulator",)]
    elif class_name == "Lion":
        blocks = [(m,)]
    if blocks is not None and options.get("use_ema"):
        blocks = [("average",), *blocks]
    return None if options.get("gradient_accumulation_steps") else blocks


def numbered_arrays(group: Hdf5Group | None) -> list[FileTensor]:
    """Return the arrays of a group in order; [] if a number is missing."""
    datasets = group.datasets if group else {}
    numbers = [str(k) for k in range(len(datasets))]
    return [datasets[k].tensor for k in numbers] if {*numbers} == {*datasets} else []


def _numbered_optimizer(
    group: Hdf5Group, entries: KerasEntries, class_name: str, options: Mapping[str, Any]
) -> StoredOptimizer:
    path, rows = "optimizer", entries.rows_in_order()
    is_keras_3 = "name" in group.attributes

    def without_states(why: str) -> StoredOptimizer:
        return StoredOptimizer(path, problems={p: why for row in rows for p in row})

    blocks = slot_blocks(class_name, options, is_keras_3)
    if blocks is None:
        return without_states(
            f"the variables of the optimizer {class_name[:50]!r} with its options have numbers, and"
            " the order of its slots is not known"
        )
    arrays = numbered_arrays(group)
    num_scalars = 1 + (is_keras_3 and not isinstance(options.get("learning_rate"), dict))
    scalars, arrays = arrays[:num_scalars], arrays[num_scalars:]
    slots = _slots_of_variables(arrays, blocks)
    if slots is None:
        return without_states(f"the variables of the optimizer are not those of {class_name}")
    shapes = [next(iter(variable.values())).shape for variable in slots]
    numbers, problems = _match_rows(rows, shapes)
    triples = [
        (array_path, slot, f"{path}/vars", tensor)
        for array_path, number in numbers.items()
        for slot, tensor in slots[number].items()
    ]
    step = step_of(number_of(scalars[0])) if scalars else None
    optimizer = optimizer_of_slots(path, triples, step, _plain(options))
    return replace(optimizer, problems=problems)


def _slots_of_variables(
    arrays: Sequence[FileTensor], blocks: Blocks
) -> list[dict[str, FileTensor]] | None:
    """Return slot -> array of each trainable variable; None if numbers or shapes do not fit."""
    count, rest = divmod(len(arrays), sum(map(len, blocks)))
    if rest or not count:
        return None
    variables: list[dict[str, FileTensor]] = [{} for _ in range(count)]
    remaining = iter(arrays)
    for block in blocks:
        for variable in variables:
            variable.update((slot, next(remaining)) for slot in block)
    if any(len({tensor.shape for tensor in v.values()}) != 1 for v in variables):
        return None
    return variables


def _match_rows(
    rows: Sequence[Arrays], shapes: Sequence[tuple[int, ...]]
) -> tuple[dict[str, int], dict[str, str]]:
    """Return path of an array -> number of its variable, and problems. rows: the arrays of each
    layer with cells, in the order of the model. The layers with the same shapes have states if the
    variables have as many runs of these shapes as the model has such layers."""
    alike: dict[tuple[Any, ...], list[Arrays]] = defaultdict(list)
    for row in rows:
        alike[tuple(tensor.shape for tensor in row.values())].append(row)
    runs: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for length in {len(signature) for signature in alike if signature}:
        for k in range(len(shapes) - length + 1):
            runs[tuple(shapes[k : k + length])].append(k)
    numbers: dict[str, int] = {}
    problems: dict[str, str] = {}
    for signature, layers in alike.items():
        starts = runs.get(signature, [])
        if len(starts) == len(layers):
            for start, layer in zip(starts, layers, strict=True):
                numbers.update((path, start + k) for k, path in enumerate(layer))
        else:
            why = (
                f"variables of the shapes {', '.join(map(str, signature[:3]))}:"
                f" {len(starts)} times in the optimizer, {len(layers)} times in the model: some"
                " layers may be frozen"
            )
            problems.update((path, why) for layer in layers for path in layer)
    return numbers, problems
