"""Changes of values that packers make: rounded, quantized, clipped, pruned, scaled, summed."""

import ml_dtypes
import numpy as np

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def by_groups(x, axes, levels, zero_point=False):
    """Return values rounded to multiples of a scale that the values along axes have in common."""
    wide = x.astype("f8")
    low, high = wide.min(axes, keepdims=True), wide.max(axes, keepdims=True)
    if not zero_point:
        scale = np.maximum(-low, high) / levels
        return (np.rint(wide / np.where(scale, scale, 1)) * scale).astype(x.dtype)
    low, high = np.minimum(low, 0), np.maximum(high, 0)
    scale = (high - low) / (2 * levels + 1)
    scale = np.where(scale, scale, 1)
    zero = np.rint(-low / scale)
    q = np.clip(np.rint(wide / scale) + zero, 0, 2 * levels + 1)
    return ((q - zero) * scale).astype(x.dtype)


def blocks_of(x, size, levels):
    if x.ndim < 3 or x.shape[2] % size or x.shape[2] == size:
        return x
    return by_groups(x.reshape(*x.shape[:2], -1, size), (3,), levels).reshape(x.shape)


def bits_kept(x, bits, nearest=True):
    """Round float32 values to 23 - bits bits after the point, or cut them off, by integers."""
    if x.dtype != np.float32:
        return x
    u = np.ascontiguousarray(x).view("u4")
    if nearest:
        u = u + ((1 << bits - 1) - 1) + (u >> bits & 1)
    return (u >> bits << bits).view("f4")


def as_text(form):
    return lambda x: (
        np.array([float(form % float(v)) for v in x.ravel()]).astype(x.dtype).reshape(x.shape)
    )


def via(name):
    return lambda x: x.astype(DTYPES.get(name, name)).astype(x.dtype)


def clipped(x):
    limit = np.quantile(abs(x.astype("f8")), 0.9)
    return np.clip(x, x.dtype.type(-limit), x.dtype.type(limit))


def pruned(x):
    return np.where(abs(x.astype("f8")) < np.quantile(abs(x.astype("f8")), 0.4), x.dtype.type(0), x)


def fixed_point(bits):
    return lambda x: (np.rint(x.astype("f8") * 2**bits) / 2**bits).astype(x.dtype)


def ml(name):
    return lambda x: x.astype(getattr(ml_dtypes, name)).astype(x.dtype)


# What is done to each array. These lose values, if there is a value to be lost.
ROUNDINGS = {
    "float16": via("float16"), "bfloat16": via("bfloat16"), "fp8 e4m3": ml("float8_e4m3fn"),
    "fp8 e5m2": ml("float8_e5m2"), "fp4": ml("float4_e2m1fn"), "tf32": lambda x: bits_kept(x, 13),
    "cut tf32": lambda x: bits_kept(x, 13, False), "cut bf16": lambda x: bits_kept(x, 16, False),
    "%.2f": as_text("%.2f"), "%.4f": as_text("%.4f"), "%.6f": as_text("%.6f"),
    "%.3g": as_text("%.3g"), "%.6g": as_text("%.6g"), "Q8": fixed_point(8), "Q12": fixed_point(12),
    "int8": lambda x: by_groups(x, None, 127), "int4": lambda x: by_groups(x, None, 7),
    "int6": lambda x: by_groups(x, None, 31), "int16": lambda x: by_groups(x, None, 32767),
    "int8 gate": lambda x: by_groups(x, (1, 2)[: x.ndim - 1], 127),
    "int4 row": lambda x: by_groups(x, (2,), 7) if x.ndim == 3 else x,
    "int8 column": lambda x: by_groups(x, (0, 1), 127) if x.ndim == 3 else x,
    "uint8": lambda x: by_groups(x, None, 127, True),
    "uint4": lambda x: by_groups(x, None, 7, True),
    "int4 blocks": lambda x: blocks_of(x, 32, 7), "clipped": clipped, "pruned": pruned,
    "x 1e-3": lambda x: x * x.dtype.type(1e-3), "x 1.7": lambda x: x * x.dtype.type(1.7),
    "/ sqrt": lambda x: x / x.dtype.type(np.sqrt(x.shape[-1] + 1)),
}  # fmt: skip
BIAS_LOSSES = {
    "summed": lambda w, r: (w + r, 0 * r), "summed R": lambda w, r: (0 * w, w + r),
    "sum twice": lambda w, r: (w + r, w + r),
    "sum halved": lambda w, r: ((w + r) / 2, (w + r) / 2), "W with sum": lambda w, r: (w + r, r),
    "R with sum": lambda w, r: (w, w + r), "no bR": lambda w, r: (w, 0 * r),
    "no bW": lambda w, r: (0 * w, r), "no biases": lambda w, r: (0 * w, 0 * r),
    "W twice": lambda w, r: (w, w), "R twice": lambda w, r: (r, r),
    "difference": lambda w, r: (w - r, r), "swapped": lambda w, r: (r, w),
    "split": lambda w, r: (w * w.dtype.type(0.25), r + w * w.dtype.type(0.75)),
}  # fmt: skip
