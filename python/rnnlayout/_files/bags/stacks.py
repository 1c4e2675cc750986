"""RNNs that one file has whole and another layer by layer."""

from __future__ import annotations

import re

from rnnlayout._native import LayoutError
from rnnlayout._weights.weights import Weights, stack

from .found import Found


def layer_names(name: str, num_layers: int) -> list[str]:
    """What an RNN's layers are called where each is one of its own, from the bottom up.

    Keras takes no slash in a name, and with torch as its backend no dot.

        >>> layer_names("encoder.rnn", 2), layer_names("lstm", 1)
        (['encoder_rnn_0', 'encoder_rnn_1'], ['lstm'])
    """
    name = re.sub("[/.]", "_", name)
    return [name] if num_layers == 1 else [f"{name}_{k}" for k in range(num_layers)]


def joined(found: Found, other: Found) -> Found:
    """`found` with what `other` has as one RNN put together where here each layer is an RNN.

    The layers are known by their names: NAME_0, NAME_1 ... are those of NAME. If there is nothing
    else on either side NAME does not matter.
    """
    entries = dict(found)
    alone = len(other) == 1 and not (other.refused or found.refused)
    for name, whole in other.items():
        if alone and len(entries) == whole.spec.num_layers:
            name = next(iter(entries)).removesuffix("_0")
        layers = layer_names(name, whole.spec.num_layers)
        if name not in (*entries, *found.refused) and set(layers) <= entries.keys():
            entries = _with(entries, layers, name)
    return Found(entries, found.refused, found.notes, found.others)


def _with(entries: dict[str, Weights], layers: list[str], name: str) -> dict[str, Weights]:
    """The layers put together, where the first of them stood; as they are where they do not fit."""
    try:
        whole = stack(entries[layer] for layer in layers)
    except LayoutError:
        return entries
    rest = {key: one for key, one in entries.items() if key not in layers[1:]}
    return {name if key == layers[0] else key: whole if key == layers[0] else one
            for key, one in rest.items()}  # fmt: skip
