"""Gradients of a loss by the parameters of an RNN, by torch's autograd through a recurrence.

The recurrence has no parameter twice: one bias per gate, and in the candidate of a reset-after GRU
a second bias inside the product with r. oneDNN's layout has exactly these parameters of every RNN,
so the tensors are those of layout onednn. Nothing here knows how gradients are converted.
"""

from functools import cache

import numpy as np
import torch

import rnnlayout as rl

LAYOUT = "onednn"
CURVES = {"tanh": torch.tanh, "relu": torch.relu}


def loss_of(spec, y, coefficients):
    """A loss whose derivative by each output is another number."""
    return (y * coefficients).sum()


def gradients(spec, tensors, x, coefficients):
    """Return the gradient of loss_of() by each tensor. tensors: of layout onednn, in float64. x:
    (T, N, I). coefficients: (T, N, D * P)."""
    leaves = {name: torch.tensor(array, requires_grad=True) for name, array in tensors.items()}
    y = torch.tensor(x)
    for k in range(spec.num_layers):
        stack = f"{k}/" if spec.num_layers > 1 else ""
        sides = []
        for d in range(spec.num_directions):
            of_layer = {
                name.removeprefix(stack): leaf[0, d]
                for name, leaf in leaves.items()
                if name.startswith(stack)
            }
            sides.append(_direction(spec, of_layer, y, backward=d == 1))
        y = torch.cat(sides, dim=-1)
    loss_of(spec, y, torch.tensor(coefficients)).backward()
    return {name: leaf.grad.numpy() for name, leaf in leaves.items()}


def _direction(spec, tensors, xs, backward):
    W, R = (tensors[name] for name in ("weights_layer", "weights_iter"))  # (I, G, H), (P, G, H)
    bias = tensors.get("bias", torch.zeros(W.shape[1] + 1, W.shape[2], dtype=W.dtype))
    P, peep = tensors.get("weights_projection"), tensors.get("weights_peephole")
    h, c = (torch.zeros(xs.shape[1], n, dtype=W.dtype) for n in (R.shape[0], W.shape[2]))
    ys = [None] * len(xs)
    for t in reversed(range(len(xs))) if backward else range(len(xs)):
        from_x = torch.einsum("ni,igo->gno", xs[t], W) + bias[: W.shape[1], None]
        h, c = _step(spec, from_x, R, bias, peep, h, c)
        h = h if P is None else h @ P
        ys[t] = h
    return torch.stack(ys)


def _step(spec, from_x, R, bias, peep, h, c):
    curve = CURVES[spec.activation]
    from_h = torch.einsum("nh,hgo->gno", h, R)
    if spec.cell == "lstm":
        pi, pf, po = (0, 0, 0) if peep is None else peep
        i, f = torch.sigmoid(from_x[:2] + from_h[:2] + torch.stack([c * pi, c * pf]))
        c = f * c + i * curve(from_x[2] + from_h[2])
        return torch.sigmoid(from_x[3] + from_h[3] + c * po) * curve(c), c
    if spec.cell == "gru":
        z, r = torch.sigmoid(from_x[:2] + from_h[:2])
        if spec.reset == "after":
            n = curve(from_x[2] + r * (from_h[2] + bias[3]))
        else:
            n = curve(from_x[2] + (r * h) @ R[:, 2])
        return (1 - z) * n + z * h, c
    return (torch.tanh if spec.cell == "rnn_tanh" else torch.relu)(from_x[0] + from_h[0]), c


@cache
def jacobian(spec, layout):
    """Return the Jacobian of the conversion of weights from a layout to oneDNN's, by the difference
    of two conversions for each element: (elements of oneDNN's, elements of the layout's). All
    numbers are small integers, so it is exact."""
    shapes = rl.describe(spec, layout)
    sizes = [int(np.prod(shape)) for shape in shapes.values()]

    def converted(flat):
        arrays = np.split(flat, np.cumsum(sizes)[:-1])
        source = {n: a.reshape(s) for (n, s), a in zip(shapes.items(), arrays, strict=True)}
        return joined(rl.convert(as_source(source), spec, layout=layout, to=LAYOUT))

    zeros = np.zeros(sum(sizes))
    constants, columns = converted(zeros), []
    for k in range(len(zeros)):
        zeros[k] = 1
        columns.append(converted(zeros) - constants)
        zeros[k] = 0
    return np.stack(columns, axis=1)


def as_source(tensors):
    """cuDNN's layout is a flat vector."""
    return tensors["weight_space"] if [*tensors] == ["weight_space"] else tensors


def joined(tensors):
    arrays = [tensors] if isinstance(tensors, np.ndarray) else tensors.values()
    return np.concatenate([np.asarray(array).reshape(-1) for array in arrays])
