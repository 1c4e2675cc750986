"""Arrays on the host and on the GPU, by torch or without a framework; and torch's modules."""

from importlib import import_module

import numpy as np
from gpu_device import Array

import rnnlayout as rl


def torch_there():
    """Return (torch or None, its device "cuda" or "cpu", what is missing or None)."""
    try:
        torch = import_module("torch")
    except ImportError:
        return None, "cpu", "torch is not installed"
    if not torch.cuda.is_available():
        torch.set_num_threads(1)  # with small sizes, more threads only wait for each other
        return torch, "cpu", f"torch {torch.__version__} has no GPU: it runs on the CPU"
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    return torch, "cuda", None


class Arrays:
    """Convert NumPy arrays to arrays of a place, and back. place: "cuda" or "cpu" (torch tensors),
    "driver" (gpu_device.py's arrays) or "host" (NumPy arrays)."""

    def __init__(self, place, torch=None, driver=None):
        self.place, self.torch, self.driver = place, torch, driver

    def put(self, array):
        if self.place == "host":
            return array
        if self.place == "driver":
            return Array(self.driver, array)
        if array.dtype.name == "bfloat16":  # NumPy lacks it, so torch gets the bits
            tensor = self.torch.from_numpy(np.array(array).view("i2")).view(self.torch.bfloat16)
        else:
            tensor = self.torch.from_numpy(np.array(array))
        return tensor.to(self.place)

    def get(self, result, dtype):
        """Return a result as a NumPy array. result: NumPy's, torch's, or any type with numpy()."""
        if self.torch and isinstance(result, self.torch.Tensor):
            result = result.cpu()
            if result.dtype == self.torch.bfloat16:
                result = result.view(self.torch.int16)
        array = result if isinstance(result, np.ndarray) else result.numpy()
        return np.array(array).view(dtype)


def torch_module(torch, spec, flat):
    """Return nn.LSTM, GRU or RNN with the weights of a weight space."""
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(spec.cell, torch.nn.RNN)
    more = {"nonlinearity": spec.cell[4:]} if spec.cell.startswith("rnn") else {}
    more |= {"proj_size": spec.proj_size} if spec.proj_size else {}
    more |= {"dtype": getattr(torch, spec.dtype), "bidirectional": spec.bidirectional}
    sizes = spec.input_size, spec.hidden_size, spec.num_layers
    module = kind(*sizes, bias=spec.bias != "none", **more)
    rl.assign(module, rl.convert(flat, spec, layout="cudnn", to="torch"))
    return module.eval()
