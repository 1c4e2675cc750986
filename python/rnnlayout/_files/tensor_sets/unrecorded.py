"""Options of Keras's layers that a file of weights alone does not record."""

from __future__ import annotations

from collections.abc import Iterable

from rnnlayout._model.asks import Ask, join_messages
from rnnlayout._model.cells import CELLS
from rnnlayout._sources.tensor_paths import KERAS
from rnnlayout._weights.weights import Weights

from .tensor_set import Hints

# Keras's, and those of a Spec: there they may be only the defaults, so they answer nothing.
DEFAULT_ACTIVATIONS = {"activation": "tanh", "recurrent_activation": "sigmoid"}


def unrecorded(entries: Iterable[object], hints: Hints) -> list[str]:
    """Return a note on the options that are assumed of RNNs in Keras's layouts; [] without any.

    entries: the RNNs, or their errors, that a file has without a config and without a record of
    rnnlayout. hints: the caller's.
    """
    found = [one for one in entries if isinstance(one, Weights) and one.layout.name in KERAS]
    if not found:
        return []
    asked = [
        key
        for key in DEFAULT_ACTIVATIONS
        if getattr(hints, key) is None and any(_may_differ(one, key) for one in found)
    ]
    assumed = [f"{key.replace('_', ' ')} {DEFAULT_ACTIVATIONS[key]}" for key in asked]
    assumed.append("go_backwards=False")
    if any(one.spec.bidirectional for one in found):
        assumed.append("merge_mode='concat'")
    repair = "pass " + join_messages(", ", map(Ask, asked)) + " or set" if asked else "set"
    text = f"the file lacks Keras's config: {', '.join(assumed)} assumed; for others "
    return [text + repair + " weights.config in Python"]


def _may_differ(weights: Weights, key: str) -> bool:
    """Return whether an activation is only assumed: a Spec of the caller may have another."""
    spec = weights.spec
    is_default = getattr(spec, key) == DEFAULT_ACTIVATIONS[key]
    return weights.layout.name == "keras" and CELLS[spec.cell].is_gated and is_default
