"""Refuse each allocation of Python's in turn during one call of the binding, for each kind of call.

    python -m project.no_memory [--leaks] [NAME ...]    one line per call: how many allocations it
                                                        makes; --leaks: and what is left behind

test_memory.py runs it as a program of its own, because a mistake is a crash. Only the binding is
tested: CPython's own code does not survive every refusal (3.11: an iterator over a dict).
"""

import _testcapi
import sys

from project.calls import BINDING, BINDING_ERRORS
from project.leaks import growth

ROUNDS = 60  # growth() fills the free lists first


def outcome(call):
    """Return the call's result, or the type of its error."""
    try:
        return call()
    except SystemError as error:
        # CPython had no memory for the frame of a traceback. A C function that forgot to set its
        # exception has another message: "returned NULL without setting an exception"
        return MemoryError if str(error) == "error return without exception set" else repr(error)
    except Exception as error:
        return type(error)


def under_refusal(call, first, last):
    """Return the outcome while allocations from first up to last are refused; last 0: all."""
    _testcapi.set_nomemory(first, last)
    try:
        return outcome(call)
    except MemoryError:  # in outcome() itself
        return MemoryError
    finally:
        _testcapi.remove_mem_hooks()


def refuse_each(call, right):
    """Refuse each allocation, alone and with all that follow. Returns their number."""
    for k in range(100_000):
        for last in (k + 1, 0):
            found = under_refusal(call, k, last)
            # a call may do without the memory if its result is right
            if found is not MemoryError and found != right:
                raise AssertionError(f"allocation {k} refused: {found!r}, not {right!r}")
        if found is not MemoryError:
            return k
    raise AssertionError("no end of allocations")


def leaks(name, call, right):
    """Count what a leak at one of the allocations would increase, by one block each round."""

    def rounds():
        for _ in range(ROUNDS):
            refuse_each(call, right)

    limits = [ROUNDS, ROUNDS, 24 * ROUNDS]  # 24 bytes is the smallest block
    more = growth(rounds, limits)
    if (more >= limits).any():
        raise AssertionError(f"{name}: leaks objects, blocks, bytes: {more}")
    return more


def main():
    calls = BINDING | {f"error: {name}": call for name, (_, call) in BINDING_ERRORS.items()}
    names = sys.argv[1:]
    looks_for_leaks = "--leaks" in names
    for name in [name for name in names if name != "--leaks"] or calls:
        right = outcome(calls[name])
        line = f"{refuse_each(calls[name], right):4} {name:40}"
        if looks_for_leaks:
            line += f" more objects, blocks, bytes: {leaks(name, calls[name], right)}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
