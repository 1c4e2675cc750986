"""The RNN and the input of the files that the tests of commands share."""

import numpy as np
from oracles.some import normal_weights

import rnnlayout as rl

SPEC = rl.Spec("lstm", 3, 2)
LSTM = normal_weights("torch", SPEC)
GRU = normal_weights("torch", rl.Spec("gru", 3, 2))
X = np.random.default_rng(7).normal(size=(5, 4, 3)).astype("f4")
# Sums of at most 5 + 2 products of numbers around 1, five steps on: some units of the last place
# of numbers up to 8, half of which is 2^-22.
NEAR = dict(rtol=0, atol=16 * 2.0**-22)


def with_gates(tensors, order):
    """Return torch's tensors with their gates in another order."""
    H = len(tensors["bias_ih_l0"]) // len(order)
    rows = [k * H + unit for k in order for unit in range(H)]
    return {name: array[rows] for name, array in tensors.items()}
