"""Fakes of Paddle's layers, with tensors that Paddle 3.3.1 wrote (data/record_paddle_file.py).

A fake has what is read of the real class: paddle.nn.Layer, LSTM, GRU, RNN, BiRNN and their cells.
"""

import pickle
from pathlib import Path

import numpy as np

DATA = Path(__file__).parents[1] / "data"
RUN = np.load(DATA / "paddle-run.npz")


class Tensor:
    """As paddle.Tensor: an array behind numpy() and __array__(), bfloat16 as its bits."""

    def __init__(self, array, dtype="float32"):
        self._array, self.dtype = array, f"paddle.{dtype}"

    def numpy(self):
        return self._array

    def set_value(self, array):
        assert (array.shape, array.dtype) == (self._array.shape, self._array.dtype)
        self._array = np.array(array)

    def __array__(self, dtype=None, copy=None):
        return np.array(self._array, dtype)


class Layer:
    """As paddle.nn.Layer. A tensor or a layer is an attribute."""

    def __init__(self, **attributes):
        vars(self).update(attributes)
        self._forward_pre_hooks, self._forward_post_hooks = {}, {}

    def forward(self):
        pass

    def __call__(self):
        pass

    def named_children(self):
        return [(name, part) for name, part in vars(self).items() if isinstance(part, Layer)]

    def sublayers(self):
        return [part for _, child in self.named_children() for part in (child, *child.sublayers())]

    def state_dict(self, prefix=""):
        tensors = {prefix + k: v for k, v in vars(self).items() if isinstance(v, Tensor)}
        for name, child in self.named_children():
            tensors |= child.state_dict(f"{prefix}{name}.")
        return tensors

    def named_parameters(self):
        names = {id(tensor): name for name, tensor in reversed(self.state_dict().items())}
        return [(n, tensor) for n, tensor in self.state_dict().items() if names[id(tensor)] == n]

    def parameters(self, include_sublayers=True):
        named = self.named_parameters()
        return [tensor for name, tensor in named if include_sublayers or name in vars(self)]


class _RNNLayer(Layer):
    """As the class RNNBase: a list of RNN or BiRNN, whose tensors are attributes of the layer."""

    def __init__(self, cells, directions, time_major=False, **more):
        parts = [cells[k : k + directions] for k in range(0, len(cells), directions)]
        children = {
            str(k): BiRNN(cell_fw=part[0], cell_bw=part[1])
            if directions == 2
            else RNN(cell=part[0])
            for k, part in enumerate(parts)
        }
        names = {
            f"{name}_l{k // directions}{'_reverse' * (k % directions)}": tensor
            for k, cell in enumerate(cells)
            for name, tensor in cell.state_dict().items()
            if name != "weight_ho"
        }
        settings = {"num_directions": directions, "time_major": time_major, "could_use_cudnn": True}
        super().__init__(**names, **children, **settings | more)

    def __iter__(self):
        return iter(child for _, child in self.named_children())


class LSTM(_RNNLayer):
    pass


class GRU(_RNNLayer):
    pass


class RNN(Layer):
    time_major = is_reverse = False


class BiRNN(Layer):
    time_major = False


class LSTMCell(Layer):
    proj_size = 0


class GRUCell(Layer):
    pass


class SimpleRNNCell(Layer):
    activation = "tanh"


Layer.__module__ = "paddle.nn.layer.layers"
for _kind in (_RNNLayer, LSTM, GRU, RNN, BiRNN, LSTMCell, GRUCell, SimpleRNNCell):
    _kind.__module__ = "paddle.nn.layer.rnn"


def cell(kind, arrays, **settings):
    """Return a cell with these arrays, by their names in Paddle."""
    weight = arrays["weight_ih"]
    gates = 4 if issubclass(kind, LSTMCell) else 3 if issubclass(kind, GRUCell) else 1
    sizes = {"input_size": weight.shape[1], "hidden_size": weight.shape[0] // gates}
    return kind(**{name: Tensor(array) for name, array in arrays.items()}, **sizes, **settings)


def lstm_layer(kind=LSTM, time_major=False):
    """Return the LSTM of two layers and directions whose outputs were recorded."""
    arrays = encoder()
    cells = []
    for k in range(2):
        for side in ("fw", "bw"):
            start = f"{k}.cell_{side}."
            names = [name for name in arrays if name.startswith(start)]
            cells.append(cell(LSTMCell, {name[len(start) :]: arrays[name] for name in names}))
    return kind(cells, 2, time_major)


def encoder():
    """Return the state_dict of an LSTM of two layers and directions: each tensor twice."""
    arrays = pickle.loads((DATA / "paddle-encoder.pdparams").read_bytes())
    del arrays["StructuredToParameterName@@"]
    return arrays
