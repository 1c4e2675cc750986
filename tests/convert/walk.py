"""A conversion executed by its plan, step after step, with index arrays and NumPy."""

from collections import namedtuple
from fractions import Fraction

import numpy as np
from oracles.bits import Bits, flat_bits

from rnnlayout import _native

# op: the plan's name for it; block: the block that it moves; src, src2, dst: (tensor, index of each
# element), or None if the op has none; shift: a constant that is added.
Step = namedtuple("Step", "op block negate src src2 dst shift")


def places(layout, spec, has=None):
    """Return {(layer, direction, role, gate): (tensor, index of each element, row by row)}."""
    found = {}
    for (layer, direction, role, _, gate), view in _native.blocks(layout, spec, has):
        tensor, at, rows, cols, row_stride, col_stride, _ = view
        index = at + np.arange(rows)[:, None] * row_stride + np.arange(cols) * col_stride
        found[layer, direction, role, gate] = tensor, index.reshape(-1)
    return found


def spec_has(spec):
    """Return which optional tensors the spec asks for."""
    biases = 0 if spec.bias == "none" else _native.HAS_BIAS
    return biases | (_native.HAS_PEEPHOLES if spec.peepholes else 0)


def steps(spec, a, b, has=None):
    """Return the steps of a -> b. has: what the source has, by default what the spec says."""
    if has is None:
        has = spec_has(spec)
    src, dst = places(a, spec, has), places(b, spec, spec_has(spec))
    result = []
    for op, (layer, direction, about, _, gate), role, negate, _, second, *_, shift in _native.Plan(
        spec, a, has, b
    ).block_ops():
        result.append(
            Step(
                op,
                (layer, direction, about, gate),
                negate,
                src[layer, direction, role, gate] if role else None,
                src[layer, direction, "bR", gate] if second >= 0 else None,
                None if op.startswith("expect") else dst[layer, direction, about, gate],
                shift,
            )
        )
    return result


def source(spec, a, plans, seed, has=None, dtype=None):
    """Return random weights in layout a that all plans accept, in a dtype too: what must be zero or
    the identity is, with zeros of either sign, and no sum or number is too large."""
    bits, rng = Bits(spec.dtype), np.random.default_rng(seed)
    tensors = _native.tensors(a, spec, has)
    flat = [bits.random(rng, int(np.prod(shape))) for _, shape in tensors]
    for array in flat:
        _shrink(array, slice(None), bits, Bits(dtype or spec.dtype), 1)
    for step in (step for plan in plans for step in plan):
        if step.op in ("add", "shift"):
            for tensor, index in filter(None, (step.src, step.src2)):
                _shrink(flat[tensor], index, bits, Bits(dtype or spec.dtype), 2)
        elif step.op.startswith("expect"):
            tensor, index = step.src
            flat[tensor][index] = bits.zeros(rng, len(index))
            if step.shift:
                flat[tensor][index] = bits.nearest(np.full(len(index), -step.shift))
            if step.op == "expect_identity":
                ones = bits.identity(round(len(index) ** 0.5)) != 0
                flat[tensor][index[ones]] = bits.one | (bits.sign if step.negate else 0)
    arrays = [
        f.view(bits.dtype).reshape(shape) for f, (_, shape) in zip(flat, tensors, strict=True)
    ]
    if a.name == "cudnn":
        return arrays[0]
    return dict(zip((name for name, _ in tensors), arrays, strict=True))


def _shrink(array, index, bits, to, times):
    """Replace by one the finite numbers whose multiples would not be finite in the target."""
    with np.errstate(over="ignore", invalid="ignore"):  # a signalling NaN
        too_large = ~to.is_finite(to.nearest(times * bits.numbers(array[index])))
    array[index] = np.where(too_large & bits.is_finite(array[index]), bits.one, array[index])


def walk(spec, b, plan, weights, dtype=None, has=None):
    """Return the plan's result: the bits of each target tensor, and the number of sums of two
    non-zero numbers, or with a shift that is rounded. Every element is written once. has: of the
    source, as in steps()."""
    bits, to = Bits(spec.dtype), Bits(dtype or spec.dtype)
    src = flat_bits(weights, bits)
    tensors = _native.tensors(b, spec, spec_has(spec))
    nelems = [int(np.prod(shape)) for _, shape in tensors]
    dst = [np.zeros(n, to.integer) for n in nelems]
    written = [np.zeros(n, int) for n in nelems]
    sums = 0
    for step in plan:
        if step.dst is None:
            continue
        tensor, index = step.dst
        written[tensor][index] += 1
        if step.op == "zero":
            continue
        if step.op == "identity":
            result = to.identity(round(len(index) ** 0.5))
        elif step.op == "shift":
            result, rounded = _shifted(step, src, bits, to)
            sums += rounded
        else:
            x = src[step.src[0]][step.src[1]]
            result = _as(x, bits, to)
            if step.op == "add":
                y = src[step.src2[0]][step.src2[1]]
                both = ~bits.is_zero(x) & ~bits.is_zero(y)
                with np.errstate(invalid="ignore"):  # inf - inf
                    total = to.nearest_sum(bits.numbers(x), bits.numbers(y))
                one = np.where(bits.is_zero(y), result, _as(y, bits, to))
                result = np.where(both, total, one)
                sums += both.sum()
        dst[tensor][index] = result ^ (to.sign if step.negate else to.integer.type(0))
    assert all((w == 1).all() for w in written)
    return dst, sums


def _shifted(step, src, bits, to):
    """Return the bits of src + src2 + shift, and how many are rounded or sums of two numbers."""
    zeros = np.zeros(len(step.dst[1]))
    x, y = (zeros if at is None else bits.numbers(src[at[0]][at[1]]) for at in step[3:5])
    with np.errstate(invalid="ignore"):  # inf - inf
        total = x + y
        result = to.nearest_sum(total, np.full(len(total), step.shift))
    rounded = sum(
        bool(x[k] and y[k]) or Fraction(total[k]) + Fraction(step.shift) != Fraction(number)
        for k, number in enumerate(to.numbers(result))
        if np.isfinite(total[k])
    )
    return result, rounded + np.count_nonzero(~np.isfinite(total) & (x != 0) & (y != 0))


def _as(array, bits, to):
    return array if bits.dtype == to.dtype else to.nearest(bits.numbers(array))
