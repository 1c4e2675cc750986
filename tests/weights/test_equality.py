"""Weights == Weights."""

import numpy as np
import pytest
from oracles.some import normal_weights

import rnnlayout as rl

LSTM = rl.Spec("lstm", 5, 7)


def tensors(layout="torch", seed=0):
    return normal_weights(layout, LSTM, seed)


def test_weights_are_equal_bit_for_bit():
    a, b = rl.Weights(tensors()), rl.Weights(tensors())
    assert a == b
    assert a == a.to("torch")
    assert a != rl.Weights(tensors(seed=1))
    assert a != a.to("onnx")
    assert a != rl.Weights(tensors(), recurrent_activation="hard_sigmoid")
    b.config = {"go_backwards": True}
    assert a != b
    zero, minus = (
        rl.Weights({n: np.full_like(w, v) for n, w in tensors().items()}) for v in (0.0, -0.0)
    )
    assert zero != minus
    nan = rl.Weights({n: np.full_like(w, np.nan) for n, w in tensors().items()})
    assert nan == rl.Weights(dict(nan))
    hard = rl.Weights(tensors("keras"), recurrent_activation="hard_sigmoid")
    assert hard != rl.Weights(tensors("keras"))
    assert a != dict(a) and a != 3
    with pytest.raises(TypeError, match="unhashable"):
        hash(a)  # its arrays and config may change
