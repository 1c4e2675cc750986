"""Memory: an allocation that fails is a MemoryError, and no call leaves anything behind.

The core by itself: c/check_memory.c. Threads: c/check_team.c.
"""

import gc
import sys

import pytest
from commands import TESTS, run
from project.calls import BINDING, BINDING_ERRORS, SHARED
from project.leaks import growth

import rnnlayout as rl

# Calls in a row: enough to tell a leak in each of them from what the interpreter keeps at times.
TIMES, ERROR_TIMES = 200, 1000


@pytest.fixture(autouse=True, scope="module")
def unfrozen():
    """Let the garbage collector see again what growth() has frozen."""
    yield
    gc.unfreeze()


def test_each_allocation_of_the_binding_refused():
    lines = run([sys.executable, "-X", "faulthandler", "-m", "project.no_memory"], cwd=TESTS)
    found = [int(line.split()[0]) for line in lines.splitlines()]
    assert len(found) == len(BINDING) + len(BINDING_ERRORS) and sum(found) > 500


class NoRoom:
    def __array__(self, dtype=None, copy=None):
        raise MemoryError("no room for the array")


def test_no_memory_for_an_array_is_not_taken_for_a_wrong_array():
    with pytest.raises(MemoryError, match="no room"):
        rl.unpack(NoRoom(), rl.Spec("lstm", 3, 2), to="torch")


def assert_leaves_nothing(call, times):
    def calls():
        for _ in range(times):
            call()

    call()  # fills caches
    referred = [sys.getrefcount(one) for one in SHARED]
    # half of the least that each call could leave: an object, a block, 24 bytes of the C library
    limits = [times // 2, times // 2, 12 * times]
    more = growth(calls, limits)
    assert [sys.getrefcount(one) for one in SHARED] == referred
    assert (more < limits).all(), more


@pytest.mark.parametrize("name", sorted(BINDING.keys() - {"import"}))
def test_a_call_leaves_nothing(name):
    assert_leaves_nothing(BINDING[name], TIMES)


def test_loading_the_module_once_more_leaves_nothing():
    """In a process of its own: it makes types, and what other tests have imported counts there."""
    code = """
from project.test_memory import BINDING, TIMES, assert_leaves_nothing
for name, call in BINDING.items():
    if name == "import":
        assert_leaves_nothing(call, TIMES)
"""
    run([sys.executable, "-c", code], cwd=TESTS)


@pytest.mark.parametrize("name", BINDING_ERRORS)
def test_an_error_leaves_nothing(name):
    kind, call = BINDING_ERRORS[name]

    def fail():
        try:
            call()
        except kind:
            return
        pytest.fail("no error")

    gc.disable()  # errors must not make cycles either
    try:
        assert_leaves_nothing(fail, ERROR_TIMES)
    finally:
        gc.enable()
