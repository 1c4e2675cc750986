"""round_values() and narrow_values() round as NumPy and ml_dtypes do, to the smallest numbers."""

import ml_dtypes
import numpy as np
import pytest
from oracles.frameworks import seeded

from rnnlayout._model.dtypes import narrow_values, round_values, widen_bits

DTYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}


@pytest.mark.parametrize("name", DTYPES)
def test_values_are_rounded_once_to_nearest_even(name):
    """Around the smallest normal number, in the middle between two numbers, and anywhere else."""
    info = ml_dtypes.finfo(DTYPES[name])
    smallest, step = float(info.smallest_normal), float(info.smallest_subnormal)
    near = smallest + step * np.arange(-9, 9, 0.25)
    anywhere = seeded("rounding", name).normal(size=100) * np.repeat([1, 1e3, smallest, 0], 25)
    values = np.concatenate([near, anywhere, -near, [np.inf, -np.inf]])
    values = values.astype("f4" if name == "bfloat16" else "f8").astype("f8")  # see below
    theirs = values.astype(DTYPES[name])  # ml_dtypes rounds a float64 to float32 first
    assert np.array_equal(round_values(values, name), theirs.astype("f8"))
    assert np.array_equal(widen_bits(narrow_values(values, name), name), theirs.astype("f8"))
