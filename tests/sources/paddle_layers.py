"""A fake of Paddle's layers, and a state_dict that Paddle 3.3.1 wrote (data/record_paddle_file.py).

The fake has what is read of the real classes: paddle.nn.LSTM, paddle.nn.Layer, paddle.Tensor.
"""

import pickle
from pathlib import Path

import numpy as np

DATA = Path(__file__).parents[1] / "data"
RUN = np.load(DATA / "paddle-run.npz")


class Tensor:
    """As paddle.Tensor: an array behind numpy() and __array__()."""

    def __init__(self, array):
        self._array = array

    def numpy(self):
        return self._array

    def __array__(self, dtype=None, copy=None):
        return np.array(self._array, dtype)


class Layer:
    """As paddle.nn.Layer."""

    def __init__(self, arrays):
        self._tensors = {name: Tensor(array) for name, array in arrays.items()}

    def state_dict(self):
        return self._tensors


class LSTM(Layer):
    time_major = False


Layer.__module__ = "paddle.nn.layer.layers"
LSTM.__module__ = "paddle.nn.layer.rnn"


def encoder():
    """Return the state_dict of an LSTM of two layers and directions: each tensor twice."""
    arrays = pickle.loads((DATA / "paddle-encoder.pdparams").read_bytes())
    del arrays["StructuredToParameterName@@"]
    return arrays
