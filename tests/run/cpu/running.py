"""RNNs and their inputs, for the tests of the forward pass."""

import numpy as np
import pytest
from oracles.bits import DTYPES
from oracles.frameworks import seeded
from oracles.reference import has_cudnn_form
from oracles.some import normal_weights, same_bits

import rnnlayout as rl

# All different: steps, batch, input, hidden, projected. H is more than several vectors of any tier,
# and enough work for several threads.
T, N, I, H, P = 6, 11, 21, 130, 50  # noqa: E741
# Where the C programs (c/check_forward, c/check_stepper) ask the same of random RNNs of all kinds.
KINDS = [
    rl.Spec("lstm", I, H, 2, True, P),
    rl.Spec("lstm", I, H, 1, True, recurrent_activation="hard_sigmoid", peepholes=True),
    rl.Spec("gru", I, H, 3, dtype="float16"),
    rl.Spec("gru", I, H, 2, reset="before"),
]
every_kind = pytest.mark.parametrize("spec", KINDS, ids=str)


def source_of(spec):
    """Return the arguments of rl.RNN and rl.forward for an RNN of this spec."""
    special = not has_cudnn_form(spec)
    layout = "onnx" if special else "cudnn"
    weights = normal_weights(layout, spec)
    tensors = weights if special else {"weight_space": weights}
    for a in tensors.values():
        a /= np.array(H, a.dtype)
    return {"source": weights, "spec": spec, "layout": layout}


def rnn_of(spec, **options):
    return rl.RNN(**source_of(spec), **options)


def inputs(spec, steps=T, batch=N, dtype=None):
    """Return x and a state, as a call takes them."""
    rng = seeded("running", spec)
    dtype = DTYPES[dtype or spec.dtype][0]
    layers = spec.num_layers * spec.num_directions

    def numbers(*shape):
        return rng.normal(size=shape).astype(dtype)

    x = numbers(steps, batch, spec.input_size)
    h0 = numbers(layers, batch, spec.proj_size or H)
    return x, (h0, numbers(layers, batch, H)) if spec.cell == "lstm" else h0


def flat(result):
    """Return [y, h_n] or [y, h_n, c_n]."""
    y, state = result
    return [y, *state] if isinstance(state, tuple) else [y, state]


def same(a, b):
    """Are two results equal bit for bit?"""
    return all(same_bits(np.asarray(x), np.asarray(y))
               for x, y in zip(flat(a), flat(b), strict=True))  # fmt: skip


def rows(state, which):
    """Return some sequences of a state."""
    return tuple(a[:, which] for a in state) if isinstance(state, tuple) else state[:, which]


# For tests that do not depend on the sizes.
SMALL = rl.Spec("lstm", 5, 7)
BFLOAT16 = SMALL.replace(dtype="bfloat16")


def small(spec=SMALL):
    """Return an RNN, x, h_0 and c_0."""
    rng = np.random.default_rng(3)
    dtype = DTYPES[spec.dtype][0]
    flat = (rng.normal(size=spec.num_params) / 4).astype(dtype)
    x, h, c = (rng.normal(size=s).astype(dtype) for s in ((4, 3, 5), (1, 3, 7), (1, 3, 7)))
    return rl.RNN(flat, spec), x, h, c
