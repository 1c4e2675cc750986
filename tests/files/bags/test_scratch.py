"""Scratch: arrays made ahead equal those made in turn, and overwrite nothing in use."""

import threading
import time

import numpy as np
import pytest

from rnnlayout._files.bags.scratch import Scratch

NELEMS = 1000


def filling(value, makers):
    """Return a make() that fills an array with the value and records its thread."""

    def make(memory):
        makers[value] = threading.current_thread()
        (array,) = memory.arrays([(NELEMS,)], "float32")
        array[:] = value
        return value, array

    return make


def is_filled(made, value):
    return made[0] == value and np.array_equal(made[1], np.full(NELEMS, value, "f4"))


def test_each_is_made_once_the_next_one_meanwhile_elsewhere():
    scratch, makers, made = Scratch(), {}, {}
    for k in range(6):
        ahead = (k + 1, filling(k + 1, makers)) if k < 5 else None
        made[k] = scratch.holds(k, filling(k, makers), ahead)
        assert is_filled(made[k], k)
        if ahead:
            scratch._ahead[1].result()  # the next one exists, and this one is unchanged
            assert is_filled(made[k], k)
        assert scratch.holds(k, None) is made[k]
    assert makers.pop(0) is threading.current_thread()
    assert len(set(makers.values())) == 1 and threading.current_thread() not in makers.values()
    assert made[5][1].base is made[3][1].base is not made[4][1].base  # two memories in turn


def test_another_may_be_asked_for_than_was_made_ahead():
    scratch, makers = Scratch(), {}
    scratch.holds(0, filling(0, makers), (1, filling(1, makers)))
    assert is_filled(scratch.holds(7, filling(7, makers)), 7)
    assert is_filled(scratch.holds(1, filling(1, makers)), 1)


def test_another_is_made_after_what_is_still_being_made_ahead():
    scratch, done = Scratch(), []

    def slow(memory):
        time.sleep(0.1)
        done.append("ahead")

    def make(memory):
        done.append("another")
        return "another"

    scratch.holds(0, filling(0, {}), (1, slow))
    assert scratch.holds(2, make) == "another"
    assert done == ["ahead", "another"]  # both in one memory


def test_what_fails_ahead_fails_when_it_is_asked_for():
    scratch, makers = Scratch(), {}

    def fail(memory):
        raise ValueError("no such layer")

    first = scratch.holds(0, filling(0, makers), (1, fail))
    assert is_filled(first, 0)
    with pytest.raises(ValueError, match="no such layer"):
        scratch.holds(1, fail)
    assert is_filled(scratch.holds(2, filling(2, makers)), 2)
    scratch.holds(3, filling(3, makers), (4, fail))
    assert is_filled(scratch.holds(5, filling(5, makers)), 5)  # the failed one was not used


def test_arrays_are_aligned_and_apart():
    memory = Scratch()._spare
    arrays = memory.arrays([(3,), (2, 5), (1,)], "bfloat16")
    assert [array.shape for array in arrays] == [(3,), (2, 5), (1,)]
    starts = [array.__array_interface__["data"][0] for array in arrays]
    assert [at - starts[0] for at in starts] == [0, 64, 128]
    assert {array.dtype for array in arrays} == {np.dtype("uint16")}
