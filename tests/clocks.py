"""The clocks of the standard library, which the tests of a plain run must not read: on a busy
machine everything takes longer, also in seconds of CPU time. Other modules may read them.
"""

import os
import resource
import sys
import time

import pytest

TESTS = os.path.dirname(__file__) + os.sep


class Clock:
    """A clock that fails the test if a file of the tests reads it while this is forbidden.

    It is an object and not a function, so that a class may have it as an attribute.
    """

    is_forbidden = False

    def __init__(self, module, name):
        self.name, self._read = f"{module.__name__}.{name}", getattr(module, name)
        setattr(module, name, self)

    def __call__(self, *arguments):
        if Clock.is_forbidden and sys._getframe(1).f_code.co_filename.startswith(TESTS):
            pytest.fail(
                f"{self.name}() in a test that is not marked long: the test would fail on a busy"
                " machine. Count what does not depend on the machine, as files/hostile/limits.py"
                " counts calls and bytes, or mark the test long"
            )
        return self._read(*arguments)


CLOCKS = [
    Clock(module, name)
    for module, names in {
        time: [f"{name}{unit}" for unit in ("", "_ns") for name in (
            "time", "monotonic", "perf_counter", "process_time", "thread_time", "clock_gettime")],
        os: ["times"],
        resource: ["getrusage"],
    }.items()
    for name in names
]  # fmt: skip
