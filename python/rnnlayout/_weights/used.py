"""Run an RNN with the settings of its Weights.config applied around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rnnlayout._model.errors import FileError
from rnnlayout._model.given import given_of

from .weights import Weights, weights_of

# Which axis of x is the batch, and whether states are kept between calls: these do not change the
# numbers of one call.
_NOTHING = {"stateful": True, "time_major": True, "layout": True}
_MERGES: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "ave": lambda a, b: (a + b) / 2,
}


def run(weights: Weights, x: np.ndarray, lengths: Any, **options: Any) -> tuple[Any, Any, str]:
    """Return y, the last state and the device. options: see RNN().

    Applied are Keras's go_backwards (y in the order of computation, the last x first) and
    merge_mode, and ONNX's direction="reverse" (y in the order of x). Raises LossyError if config
    has another setting.
    """
    config, both = weights.config, weights.spec.bidirectional
    merge = _MERGES.get(str(config.get("merge_mode"))) if both else None
    backwards = config.get("go_backwards") is True and not both
    reverse = config.get("direction") == "reverse" and not both
    applied = {"merge_mode": merge, "go_backwards": backwards, "direction": reverse, **_NOTHING}
    left = {key: value for key, value in config.items() if not applied.get(key)}
    rnn = weights_of(given_of(weights), None, left).rnn(**options)
    if not (backwards or reverse):
        y, state = rnn(x, lengths=lengths)
    elif lengths is not None:
        raise FileError(
            "an RNN that goes backwards cannot be run with lengths: run the sequences one by one"
        )
    else:
        axis = 1 if rnn.batch_first and x.ndim == 3 else 0
        y, state = rnn(np.flip(x, axis))
        y = np.flip(y, axis) if reverse else y
    if merge:
        y = merge(*np.split(y, 2, axis=-1))
    return y, state, rnn.device
