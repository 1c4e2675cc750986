"""Options of Keras's layers that a file of weights alone does not record."""

from __future__ import annotations

from collections.abc import Iterable

from rnnlayout._model.cells import CELLS
from rnnlayout._weights.weights import Weights

from .bag import Hints

_KERAS = ("keras", "keras-cudnn")  # layouts


def unrecorded(entries: Iterable[object], hints: Hints) -> list[str]:
    """Return a note on the options that are assumed of RNNs in Keras's layouts; [] without any.

    entries: the RNNs, or their errors, that a file has without a config and without a record of
    rnnlayout. hints: the caller's.
    """
    found = [one for one in entries if isinstance(one, Weights) and one.layout.name in _KERAS]
    if not found:
        return []
    assumed, repair = ["go_backwards=False"], "set"
    if any(one.spec.bidirectional for one in found):
        assumed.append("merge_mode='concat'")
    if hints.recurrent_activation is None and any(map(_may_differ, found)):
        assumed.insert(0, "activations tanh and sigmoid")
        repair = "pass recurrent_activation= and set"
    text = f"the file lacks Keras's config: {', '.join(assumed)} assumed; for others {repair}"
    return [f"{text} weights.config"]


def _may_differ(weights: Weights) -> bool:
    """Return whether sigmoid is only assumed."""
    spec, layer = weights.spec, weights.layout.name
    is_default = spec.recurrent_activation == "sigmoid"  # a Spec of the caller may have another
    return layer == "keras" and CELLS[spec.cell].is_gated and is_default
