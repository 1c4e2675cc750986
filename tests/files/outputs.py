"""Does rl.RNN compute from the weights of a file what the framework of the file computes? And the
bytes of a tensor, to compare weights."""

import numpy as np
from oracles.reference import Run, distance_between, forward, from_cudnn, from_onnx

import rnnlayout as rl


def bits(tensor):
    """Return the bytes of a tensor of PyTorch, of any dtype and strides."""
    import torch

    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def exact(weights, x, h0=None, c0=None):
    """Return the recurrence in float64. x: (T, N, I); a state that is not given is zero."""
    spec = weights.spec
    layers, n = spec.num_layers * spec.num_directions, x.shape[1]
    if h0 is None:
        h0 = np.zeros((layers, n, spec.proj_size or spec.hidden_size), "f4")
        c0 = np.zeros((layers, n, spec.hidden_size), "f4") if spec.cell == "lstm" else None
    if spec.proj_size:  # which ONNX does not have
        parts = from_cudnn(weights.pack(), weights.to("cudnn").spec)
    else:
        parts = from_onnx(weights.to("onnx"), spec)
    return forward(parts, spec, x, h0, c0)


def run_ours(weights, x, h0=None, c0=None):
    """Return what rl.RNN computes. x and y: (T, N, ...), also of weights that have the batch
    first."""

    def turned(a):
        return np.ascontiguousarray(a.swapaxes(0, 1)) if weights.batch_first else a

    y, last = rl.RNN(weights)(turned(x), h0 if c0 is None else (h0, c0))
    return Run(turned(y), *(last if isinstance(last, tuple) else [last]))


def assert_computes(weights, theirs, x, h0=None, c0=None):
    """Assert that rl.RNN and a framework differ by no more than what float32's rounding explains:
    reference.Rounded. theirs: a Run, or its y alone."""
    ours = run_ours(weights, x, h0, c0)
    theirs = theirs if isinstance(theirs, Run) else Run(theirs, ours.h, ours.c)
    assert distance_between(theirs, ours, exact(weights, x, h0, c0)) <= 1
