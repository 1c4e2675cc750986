"""RNNs of several layers that another file stores layer by layer."""

from __future__ import annotations

from rnnlayout._native import LayoutError
from rnnlayout._weights.weights import Weights, stack

from .found import Found
from .naming import layer_names


def joined(found: Found, other: Found) -> Found:
    """Return `found` with layers stacked where `other` has them as one RNN.

    Layers are recognised by name: NAME_0, NAME_1 ... are the layers of NAME. If there is nothing
    else on either side, NAME may be any.
    """
    entries = dict(found)
    alone = len(other) == 1 and not (other.refused or found.refused)
    for name, whole in other.items():
        if alone and len(entries) == whole.spec.num_layers:
            name = next(iter(entries)).removesuffix("_0")
        if name not in found.refused:
            entries = stacked(entries, layer_names(name, whole.spec.num_layers), name)
    return Found(entries, found.refused, found.notes, found.others)


def stacked(entries: dict[str, Weights], layers: list[str], name: str) -> dict[str, Weights]:
    """Return the entries with these layers as one RNN, unchanged if they do not exist or fit."""
    if name in entries or not set(layers) <= entries.keys():
        return entries
    try:
        whole = stack(entries[layer] for layer in layers)
    except LayoutError:
        return entries
    rest = {key: one for key, one in entries.items() if key not in layers[1:]}
    return {name if key == layers[0] else key: whole if key == layers[0] else one
            for key, one in rest.items()}  # fmt: skip
