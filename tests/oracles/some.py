"""Specs, layouts and weights for the tests: which of them fit together, filled with random bits."""

import itertools
import math
from functools import cache

import numpy as np

import rnnlayout as rl

LAYOUTS = [rl.layout(name) for name in rl.layouts() if name != "concat"]
LAYOUTS += [rl.layout("concat", inputs=inputs, z=z)
            for inputs in ("hx", "xh") for z in ("state", "candidate")]  # fmt: skip

# I, H, P, L and D are all different.
SPECS = [
    rl.Spec(cell, 5, 3, layers, both, proj, bias, reset, dtype=dtype)
    for cell, resets in [("lstm", ["after"]), ("gru", ["after", "before"]), ("rnn_tanh", ["after"]),
                         ("rnn_relu", ["after"])]
    for reset in resets
    for proj in ((0, 2) if cell == "lstm" else (0,))
    for layers, both in [(1, False), (4, True)]
    for bias, dtype in [("double", "float32"), ("input", "float16"), ("recurrent", "float64"),
                        ("none", "bfloat16")]
] + [
    rl.Spec("lstm", 5, 3, dtype="float16", peepholes=True),
    rl.Spec("lstm", 5, 3, 4, True, bias="none", peepholes=True),
    rl.Spec("lstm", 5, 3, 4, True, 2, dtype="float64", peepholes=True),
]  # fmt: skip


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


def weights_of(layout, spec, numbers):
    """Return arrays as convert() takes them: numbers(shape, dtype) of each tensor's shape."""
    tensors = {
        name: numbers(shape, dtype_of(spec)) for name, shape in rl.describe(spec, layout).items()
    }
    return tensors["weight_space"] if list(tensors) == ["weight_space"] else tensors


def random_weights(layout, spec, seed=0):
    """Return random bits, with NaN payloads, infinities and both zeros."""
    rng = np.random.default_rng(seed)

    def fill(shape, dtype):
        return np.frombuffer(rng.bytes(math.prod(shape) * dtype.itemsize), dtype).reshape(shape)

    return weights_of(layout, spec, fill)


def normal_weights(layout, spec, seed=0):
    """Return ordinary numbers."""
    rng = np.random.default_rng(seed)
    return weights_of(layout, spec, lambda shape, dtype: rng.normal(size=shape).astype(dtype))


def prefixed(prefix, tensors):
    return {f"{prefix}.{name}": array for name, array in tensors.items()}


def same_bits(a, b):
    """Are two flat arrays, or two dicts of arrays, equal bit for bit, names in order?"""
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return list(a) == list(b) and all(same_bits(np.asarray(a[k]), np.asarray(b[k])) for k in a)
