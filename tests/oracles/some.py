"""Specs, layouts and weights for the tests: which of them fit together, filled with random bits."""

import itertools
from functools import cache

import numpy as np

import rnnlayout as rl

CONCATS = [
    rl.layout("concat", inputs=inputs, z=z)
    for inputs in ("hx", "xh")
    for z in ("state", "candidate")
]
LAYOUTS = [rl.layout(name) for name in rl.layouts() if name != "concat"] + CONCATS

# I, H, P, L and D are all different.
SPECS = [
    rl.Spec(cell, 5, 3, layers, both, proj, bias, reset, dtype=dtype)
    for cell, reset in [
        ("lstm", "after"),
        ("gru", "after"),
        ("gru", "before"),
        ("rnn_tanh", "after"),
        ("rnn_relu", "after"),
    ]
    for layers, both, proj in [(1, False, 0), (4, True, 0), (1, False, 2), (4, True, 2)]
    if not proj or cell == "lstm"
    for bias, dtype in [
        ("double", "float32"),
        ("input", "float16"),
        ("recurrent", "float64"),
        ("none", "bfloat16"),
    ]
] + [
    rl.Spec("lstm", 5, 3, dtype="float16", peepholes=True),
    rl.Spec("lstm", 5, 3, 4, True, bias="none", peepholes=True),
    rl.Spec("lstm", 5, 3, 4, True, 2, dtype="float64", peepholes=True),
]


@cache
def holds(layout, spec):
    """Can the layout represent this RNN?"""
    try:
        return bool(rl.describe(spec, layout))
    except rl.LossyError:
        return False


def pairs():
    """Yield (spec, source, target) if both layouts can represent the spec."""
    for spec in SPECS:
        held = [layout for layout in LAYOUTS if holds(layout, spec)]
        for a, b in itertools.product(held, held):
            yield spec, a, b


def dtype_of(spec):
    if spec.dtype == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(spec.dtype)


def random_weights(layout, spec, seed=0):
    """Return random bits, with NaN payloads, infinities and both zeros, as convert() takes them."""
    rng = np.random.default_rng(seed)
    dtype = dtype_of(spec)

    def fill(shape):
        raw = rng.bytes(int(np.prod(shape)) * dtype.itemsize)
        return np.frombuffer(raw, dtype).reshape(shape)

    tensors = {name: fill(shape) for name, shape in rl.describe(spec, layout).items()}
    return tensors["weight_space"] if layout.name == "cudnn" else tensors


def normal_weights(layout, spec, seed=0):
    """Return ordinary numbers."""
    rng = np.random.default_rng(seed)
    tensors = {
        name: rng.normal(size=shape).astype(dtype_of(spec))
        for name, shape in rl.describe(spec, layout).items()
    }
    return tensors["weight_space"] if layout.name == "cudnn" else tensors


def same_bits(a, b):
    """Are two flat arrays, or two dicts of arrays, equal bit for bit, names in order?"""
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return list(a) == list(b) and all(same_bits(np.asarray(a[k]), np.asarray(b[k])) for k in a)
