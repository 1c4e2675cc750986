"""Scratch: one layer at a time, in memory that is used again."""

import numpy as np
import pytest

from rnnlayout._files.tensor_sets.layerwise import ScratchMemory

NELEMS = 1000


def filling(scratch, value, calls):
    """convert() for a layer filled with a value, which notes that it is called."""

    def convert():
        calls.append(value)
        (array,) = scratch.arrays([(NELEMS,)], "float32")
        array[:] = value
        return value, array

    return convert


def is_filled(layer, value):
    return layer[0] == value and np.array_equal(layer[1], np.full(NELEMS, value, "f4"))


def test_a_layer_is_converted_once_and_in_the_memory_of_the_last_one():
    scratch, calls, layers = ScratchMemory(), [], []
    for k in range(3):
        layers.append(scratch.layer(k, filling(scratch, k, calls)))
        assert is_filled(layers[k], k)
        assert scratch.layer(k, None) is layers[k]
    assert calls == [0, 1, 2]
    assert len({layer[1].__array_interface__["data"][0] for layer in layers}) == 1


def test_a_layer_that_was_overwritten_is_converted_again():
    scratch, calls = ScratchMemory(), []
    for value in (0, 1, 0):
        assert is_filled(scratch.layer(value, filling(scratch, value, calls)), value)
    assert calls == [0, 1, 0]


def test_after_a_failure_nothing_old_is_returned():
    scratch, calls = ScratchMemory(), []

    def fail():
        scratch.arrays([(NELEMS,)], "float32")[0][:] = 7
        raise ValueError("no such layer")

    scratch.layer(0, filling(scratch, 0, calls))
    for key in (1, 1):
        with pytest.raises(ValueError, match="no such layer"):
            scratch.layer(key, fail)
    assert is_filled(scratch.layer(0, filling(scratch, 0, calls)), 0)
    assert calls == [0, 0]


def test_arrays_are_aligned_and_apart():
    arrays = ScratchMemory().arrays([(3,), (2, 5), (1,)], "bfloat16")
    assert [array.shape for array in arrays] == [(3,), (2, 5), (1,)]
    starts = [array.__array_interface__["data"][0] for array in arrays]
    assert [at - starts[0] for at in starts] == [0, 64, 128]
    assert {array.dtype for array in arrays} == {np.dtype("uint16")}
