"""Train RNNs in PyTorch on the CPU: layers whose one parameter is cuDNN's weight space.

    >>> import torch
    >>> import rnnlayout.torch as rlt
    >>> layer = rlt.RNN(torch.nn.GRU(3, 4))
    >>> y, h_n = layer(torch.ones(5, 2, 3))
    >>> y.sum().backward()
    >>> layer.weight_space.grad.shape
    torch.Size([108])

Layers work with torch.compile, torch.export, and torch.func: vmap, grad and per-sample gradients.
`import rnnlayout` does not load this module, which needs torch.
"""

from ._layer import RNN
from ._replace import replace

__all__ = ["RNN", "replace"]
