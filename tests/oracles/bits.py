"""Elements of one dtype as integers: random ones, and arithmetic by NumPy and fractions."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np

# {name: (NumPy's dtype, an integer of the same size, bits of the mantissa)}
DTYPES = {
    "float16": (np.dtype("f2"), np.dtype("u2"), 10),
    "bfloat16": (np.dtype(ml_dtypes.bfloat16), np.dtype("u2"), 7),
    "float32": (np.dtype("f4"), np.dtype("u4"), 23),
    "float64": (np.dtype("f8"), np.dtype("u8"), 52),
}


class Bits:
    def __init__(self, name):
        self.dtype, self.integer, mantissa = DTYPES[name]
        self.mantissa, self.least_exponent = mantissa, ml_dtypes.finfo(self.dtype).minexp
        self.sign = self.integer.type(1 << 8 * self.integer.itemsize - 1)
        self.infinity = int(np.array([np.inf], self.dtype).view(self.integer)[0])
        self.one = np.ones(1, self.dtype).view(self.integer)[0]
        normal, quiet = 1 << mantissa, 1 << mantissa - 1
        self.special = np.array(
            [
                0, 1, normal - 1, normal, int(self.one), self.infinity - 1, self.infinity,
                *(self.infinity | payload for payload in (1, quiet, quiet | 5, normal - 1)),
            ],
            self.integer,
        )  # fmt: skip

    def random(self, rng, nelems):
        """Return any bits, and far more often than by chance those that are easily lost."""
        special = rng.choice(self.special, nelems) ^ self.zeros(rng, nelems)
        return np.where(rng.random(nelems) < rng.random(), self._any(rng, nelems), special)

    def _any(self, rng, nelems):
        return np.frombuffer(rng.bytes(nelems * self.integer.itemsize), self.integer)

    def zeros(self, rng, nelems):
        """Return zeros of either sign."""
        return rng.integers(0, 2, nelems).astype(self.integer) * self.sign

    def identity(self, rank):
        return np.where(np.eye(rank).reshape(-1) != 0, self.one, self.integer.type(0))

    def magnitude(self, bits):
        return bits & ~self.sign

    def is_zero(self, bits):
        return self.magnitude(bits) == 0

    def is_finite(self, bits):
        return self.magnitude(bits) < self.infinity

    def is_nan(self, bits):
        return self.magnitude(bits) > self.infinity

    def numbers(self, bits):
        """Convert to float64, which represents them all."""
        with np.errstate(invalid="ignore"):  # a signalling NaN
            return bits.view(self.dtype).astype("f8")

    def nearest(self, numbers):
        """Round float64 once, to nearest even."""
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            if self.dtype.name == "bfloat16":
                numbers = rounded_to_odd(numbers)
            return numbers.astype(self.dtype).view(self.integer)

    def nearest_sum(self, a, b):
        """Add float64 numbers exactly and round once, to nearest even. No sum is too large."""
        sums = a + b
        for k in np.flatnonzero(np.isfinite(sums) if self.dtype != np.float64 else []):
            sums[k] = math.copysign(self._rounded(Fraction(a[k]) + Fraction(b[k])), sums[k])
        return self.nearest(sums)

    def _rounded(self, number):
        """Round a fraction whose denominator is a power of two to a number of this dtype."""
        exponent = number.numerator.bit_length() - number.denominator.bit_length()
        unit = Fraction(2) ** (max(exponent, self.least_exponent) - self.mantissa)
        return float(round(number / unit) * unit)


def rounded_to_odd(numbers):
    """Cut float64 to float32 and set the last bit if anything was cut off. Rounding that again, to
    fewer bits, equals rounding once (ml_dtypes goes by way of float32, and would round twice)."""
    near = numbers.astype("f4")
    cut = np.where(np.abs(near) > np.abs(numbers), np.nextafter(near, np.float32(0)), near)
    odd = (cut.view("u4") | (cut != numbers)).view("f4")
    return np.where(np.isfinite(numbers), odd, near)


def flat_bits(weights, bits):
    """Return one array of integers per tensor, over the same memory as convert()'s arrays."""
    arrays = [weights] if isinstance(weights, np.ndarray) else weights.values()
    return [np.asarray(array).reshape(-1).view(bits.integer) for array in arrays]
