"""Memory: an allocation that fails is a MemoryError, and no call leaves anything behind.

The core by itself: c/check_memory.c. Threads: c/check_threads.c and test_long_runs.py.
"""

import gc
import os
import signal
import sys

import numpy as np
import pytest
from commands import TESTS, run
from marks import long
from project.calls import BINDING, BINDING_ERRORS, PACKAGE, PACKAGE_ERRORS, SHARED
from project.leaks import growth

import rnnlayout as rl

# Calls in a row: enough to tell a leak in each of them from what the interpreter keeps at times.
TIMES, ERROR_TIMES = 200, 1000
SUCCESSES = {**BINDING, **{f"package: {name}": call for name, call in PACKAGE.items()}}
ERRORS = {**BINDING_ERRORS, **{f"package: {name}": call for name, call in PACKAGE_ERRORS.items()}}


@pytest.fixture(autouse=True, scope="module")
def unfrozen():
    """Let the garbage collector see again what growth() has frozen."""
    yield
    gc.unfreeze()


# With --leaks each refusal is repeated, and what it leaves behind is counted.
@pytest.mark.parametrize("options", [[], long(["--leaks"])], ids=["once", "leaks"])
def test_each_allocation_of_the_binding_refused(options):
    program = [sys.executable, "-X", "faulthandler", "-m", "project.no_memory", *options]
    lines = run(program, cwd=TESTS).splitlines()
    assert len(lines) == len(BINDING) + len(BINDING_ERRORS)
    assert sum(int(line.split()[0]) for line in lines) > 500


class NoRoom:
    def __array__(self, dtype=None, copy=None):
        raise MemoryError("no room for the array")


def test_no_memory_for_an_array_is_not_taken_for_a_wrong_array():
    with pytest.raises(MemoryError, match="no room"):
        rl.unpack(NoRoom(), rl.Spec("lstm", 3, 2), to="torch")


def references():
    return [sys.getrefcount(shared) for shared in SHARED]


def assert_leaves_nothing(call, times):

    def calls():
        for _ in range(times):
            call()

    call()
    referred = references()
    # half of the least that each call could leave: an object, a block, 24 bytes of the C library
    limits = [times // 2, times // 2, 12 * times]
    more = growth(calls, limits)
    assert references() == referred
    assert (more < limits).all(), more


@pytest.mark.parametrize("name", SUCCESSES)
def test_a_call_leaves_nothing(name):
    assert_leaves_nothing(SUCCESSES[name], TIMES)


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_leaves_nothing(name):
    kind, call = ERRORS[name]

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


# Calls of more than 50 ms, so that most interrupts end them in their middle.
RNN_SPEC, SPEC = rl.Spec("lstm", 300, 1000), rl.Spec("lstm", 2048, 2048, 4, bias="none")


@pytest.fixture(scope="module")
def long_calls():
    """Calls by name, and the objects that they use."""
    flat, out = np.zeros(SPEC.num_params, "f4"), np.zeros(SPEC.num_params, "f4")
    tensors, at = {}, 0
    for name, shape in rl.describe(SPEC, "keras").items():
        end = at + int(np.prod(shape))
        tensors[name], at = out[at:end].reshape(shape), end
    rnn = rl.RNN(np.zeros(RNN_SPEC.num_params, "f4"), RNN_SPEC)
    x = np.zeros((200, 50, 300), "f4")
    calls = {"convert": lambda: rl.unpack(flat, SPEC, to="keras", out=tensors),
             "run": lambda: rnn(x)}  # fmt: skip
    return calls, [SPEC, RNN_SPEC, flat, out, rnn, x]


@pytest.mark.parametrize("name", ["convert", "run"])
def test_an_interrupt_leaves_nothing(long_calls, name):
    calls, shared = long_calls
    call = calls[name]

    class Interrupted(Exception):
        pass

    def stop(*_):
        raise Interrupted

    def interrupt():
        try:
            signal.setitimer(signal.ITIMER_REAL, 1e-3)  # here, because it may go off at once
            while True:
                call()
        except Interrupted:
            pass

    def interrupts():
        for _ in range(10):
            interrupt()

    # half of the least that each could leave: an object, a block, 24 bytes of the C library
    limits = [5, 5, 12 * 10]
    call()  # fills caches
    was = signal.signal(signal.SIGALRM, stop)
    try:
        interrupts()
        referred = [sys.getrefcount(s) for s in shared]
        more = growth(interrupts, limits)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, was)
    assert [sys.getrefcount(s) for s in shared] == referred
    assert (more < limits).all(), more


def test_large_results_are_given_back():
    """20 times 46 MB are freed again, and the 20 inputs of as many errors."""
    spec = rl.Spec("lstm", 1500, 1100, dtype="float32")
    flat = np.zeros(spec.num_params, "f4")

    def resident_after(times):
        for _ in range(times):
            rl.unpack(flat, spec, to="keras")
            with pytest.raises(rl.LossyError):
                rl.unpack(flat - 1, spec.replace(bias="double"), to="keras", exact=True)
        gc.collect()  # pytest keeps errors in cycles
        return resident()

    before = resident_after(2)
    assert resident_after(20) - before < flat.nbytes


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
