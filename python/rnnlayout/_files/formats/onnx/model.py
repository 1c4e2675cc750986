"""ONNX models, .onnx: the LSTM, GRU and RNN nodes of a graph, its subgraphs and functions.

W, R, B and P are taken where they are constants, and where simple nodes make them of constants.
What a node does that its weights do not show goes into Weights.config in ONNX's own words:
direction, clip, layout, initial_h, initial_c, sequence_lens. Tensors in other files are refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rnnlayout._files.bags.bag import Ask
from rnnlayout._files.bags.found import Found
from rnnlayout._model.errors import FileError
from rnnlayout._model.layout import as_layout
from rnnlayout._native import LayoutError
from rnnlayout._weights.weights import Weights, stack

from .constants import Constants
from .graph import initializers, load_model, sites
from .node import weights_of
from .replace import replace_in
from .write import STACKS, check_layout, model_of, write_model


def read(path: Path, ask: Ask) -> Found:
    """Each recurrent node under its name, after those of the nodes around it: "If_0/lstm"."""
    if ask.layout is not None and as_layout(ask.layout).name != "onnx":
        raise LayoutError(f"{path}: the nodes of a model are in layout onnx, not {ask.layout}")
    return _read(path, load_model(path), ask)


def write(path: Path, entries: Mapping[str, Weights]) -> None:
    """A model of these RNNs alone, which onnxruntime runs."""
    write_model(path, model_of(entries))


def replace(path: Path, out: Path, entries: Mapping[str, Weights]) -> None:
    """The model of `path` with new weights in the nodes of these names, written to `out`.

    entries: in layout onnx, of the same spec as what load() finds under the name. All else stays,
    tensors in other files too, which are named from where the model lies.
    LayoutError: no such node, or it cannot hold them.
    """
    model = load_model(path)
    found = _read(path, model, Ask())
    layers: dict[str, tuple[Weights, Weights]] = {}
    for name, new in entries.items():
        check_layout(name, new)
        if name not in found and name not in found.refused:
            raise LayoutError(f"{path} has no RNN {name!r}; it has {', '.join(map(repr, found))}")
        old = found[name]
        if old.spec.num_layers != new.spec.num_layers:
            raise LayoutError(f"{name!r} is {old.spec}, the new weights are {new.spec}")
        pairs = zip(old.split(), new.split(), strict=True)
        one = old.spec.num_layers == 1
        layers |= {name if one else f"{name}/{k}": pair for k, pair in enumerate(pairs)}
    replace_in(model, layers)
    write_model(out, model)


def _read(path: Path, model: Any, ask: Ask) -> Found:
    entries: dict[str, Weights] = {}
    refused: dict[str, Exception] = {}
    notes: list[str] = []
    constants = Constants(path.stat().st_size)
    stacks = _stacks(path, model)
    for site in sites(model):
        if not _is_under(site.name, ask.prefix):
            continue
        try:
            entries[site.name] = weights_of(site, constants, ask, notes)
        except ValueError as error:
            refused[site.name] = error
    others = [str(one.name) for one in initializers(model.graph) if constants.leaves(one)]
    return Found(_stacked(entries, stacks), refused, notes, others)


def _is_under(name: str, prefix: str) -> bool:
    return not prefix or name == prefix or name.startswith(prefix.rstrip("/") + "/")


def _stacks(path: Path, model: Any) -> dict[str, int]:
    """What write() says of entries of several layers: {"lstm": 2}."""
    told = [entry.value for entry in model.metadata_props if entry.key == STACKS]
    try:
        stacks = json.loads(told[0]) if told else {}
        return {str(name): int(layers) for name, layers in stacks.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise FileError(f"{path}: its metadata {STACKS} makes no sense") from None


def _stacked(entries: dict[str, Weights], stacks: dict[str, int]) -> dict[str, Weights]:
    """Layers put together that write() has parted; those that a file only claims stay alone."""
    stacked = dict(entries)
    for name, layers in stacks.items():
        names = [f"{name}/{k}" for k in range(min(layers, len(entries) + 1))]
        if name in stacked or not names or not all(part in stacked for part in names):
            continue
        try:
            whole = stack(stacked[part] for part in names)
        except LayoutError:
            continue
        stacked = {key: one for key, one in stacked.items() if key not in names} | {name: whole}
    return stacked
