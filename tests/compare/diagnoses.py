"""Helpers of the tests of diagnose."""

import numpy as np
from oracles.some import normal_weights

import rnnlayout as rl

LSTM = rl.Spec("lstm", 5, 3)
BOTH = rl.Spec("gru", 5, 3, 2, bidirectional=True)


def weights(spec=LSTM, seed=0):
    return normal_weights(rl.layout("torch"), spec, seed)


def rules(found):
    return [one.rule for one in found.mistakes]


def lost(found):
    (line,) = [x for x in str(found).splitlines() if x.startswith("cannot be restored: ")]
    return line.removeprefix("cannot be restored: ").split("; ")


def swapped_in(tensors, parts=4):
    """Return the input matrices of torch's tensors with gates f and g exchanged."""
    return {name: np.concatenate([np.split(x, parts)[k] for k in (0, 2, 1, 3)])
            if "weight_ih" in name else x for name, x in tensors.items()}  # fmt: skip
