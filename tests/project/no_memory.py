"""Refuse each allocation of Python's in turn during one call of the binding, for each kind of call.

    python -m project.no_memory [NAME ...]    one line per call: how many allocations it makes

test_memory.py runs it as a program of its own, because a mistake is a crash. Only the binding is
tested: CPython's own code does not survive every refusal (3.11: an iterator over a dict).
"""

import _testcapi
import sys

from project.calls import BINDING, BINDING_ERRORS


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


def main():
    calls = BINDING | {f"error: {name}": call for name, (_, call) in BINDING_ERRORS.items()}
    for name in sys.argv[1:] or calls:
        print(f"{refuse_each(calls[name], outcome(calls[name])):4} {name}", flush=True)


if __name__ == "__main__":
    main()
