"""No test of a plain run reads a clock: clocks.py."""

import queue
import re
import resource
import time

import pytest
from clocks import CLOCKS
from commands import TESTS

READS = re.compile(
    r"\b(time\.time|monotonic|perf_counter|process_time|thread_time|clock_gettime|os\.times"
    r"|getrusage)(_ns)?\(|RLIMIT_CPU|\btimeit\b"
)


@pytest.mark.parametrize("clock", CLOCKS, ids=lambda clock: clock.name)
def test_a_clock_fails_the_test_that_reads_it(clock):
    text = rf"{clock.name}\(\) in a test .* counts calls .* mark the test long"
    with pytest.raises(pytest.fail.Exception, match=text):
        clock()


def test_a_library_reads_clocks():
    with pytest.raises(queue.Empty):
        queue.Queue().get(timeout=1e-3)


@pytest.mark.long
def test_a_long_test_reads_clocks():
    assert time.perf_counter() < time.perf_counter_ns()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_utime > 0


def test_clocks_are_read_by_what_long_tests_use():
    """A program that a test starts is not watched while it runs, so this reads its text."""
    files = {
        path.relative_to(TESTS).as_posix()
        for path in TESTS.rglob("*.py")
        if READS.search(path.read_text())
    }
    assert files == {
        "files/hostile/limits.py",
        "files/hostile/sins.py",
        "interpreter_lock.py",
        "project/test_clocks.py",
    }
