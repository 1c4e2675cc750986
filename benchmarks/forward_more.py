"""Further measurements of benchmarks/forward.py --more: memory, allocations, growth of time."""

import ctypes
import statistics
import sys
import time
import tracemalloc
from functools import cache
from pathlib import Path

import forward_peers as peers
from workload import Problem, outputs

import rnnlayout as rl

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from project.leaks import MallInfo

CELLS = ("lstm", "gru")


@cache
def mallinfo():
    """Return glibc's mallinfo2(); looked up once, so that calling it takes no memory."""
    function = ctypes.CDLL(None).mallinfo2
    function.restype = MallInfo
    return function


def given_out():
    """Return the bytes allocated by the C library, including large blocks, which it maps."""
    found = mallinfo()()
    return found.uordblks + found.hblkhd


def memory(quick):
    """Bytes of an RNN's weights, of the prepared RNN, and of the RNN after a call."""
    rl.set_num_threads(1)
    found = []
    for size, layers in ((128, 1), (256, 2), (512, 2), (1024, 1))[: 2 if quick else None]:
        for cell in CELLS:
            for dtype in ("float32", "float16"):
                problem = Problem(rl.Spec(cell, size, size, layers), 100, 1)
                flat, given = problem.space(dtype), outputs(problem)
                before = given_out()
                rnn = rl.RNN(flat, problem.spec.replace(dtype=dtype))
                prepared = given_out() - before
                rnn(problem.x, **given)
                used = given_out() - before
                title = f"{cell} {dtype} I=H={size} L={layers}"
                found.append({"rnn": title, "weights": flat.nbytes, "prepared": prepared,
                              "after a call of 100 steps": used})  # fmt: skip
                del rnn
    return found


def added_by(call, calls=1000):
    """Return the bytes that the calls add in C and in Python, and Python's peak during them."""
    call()
    before = given_out()
    for _ in range(calls):
        call()
    by_c = given_out() - before
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(calls):
        call()
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return by_c, after - before, peak - before


def allocations(quick):
    """Bytes that 1000 calls with out= add; 32 of Python's are the counter of the loop itself."""
    found = []
    for cell in CELLS:
        for T in (1, 20):
            for threads in (1, 2):
                call, _ = peers.ours(Problem(rl.Spec(cell, 128, 128, 2), T, 1), threads)
                by_c, by_python, peak = added_by(call)
                found.append({"rnn": f"{cell} T={T}", "threads": threads, "C": by_c,
                              "Python": by_python, "Python, at most": peak})  # fmt: skip
    return found


def growth(quick):
    """Median microseconds per call as one size grows and the others stay the same."""
    at = {"N": 1, "T": 50, "H": 256, "threads": 1}
    sizes = {"T": (1, 2, 5, 10, 50, 100, 500), "N": (1, 2, 3, 4, 6, 8, 12, 16, 32, 64),
             "H": (32, 64, 128, 256, 512, 1024), "threads": (1, 2)}  # fmt: skip
    found = []
    for cell in CELLS:
        for name, values in sizes.items():
            for value in values[: 3 if quick else None]:
                now = at | {name: value}
                spec = rl.Spec(cell, now["H"], now["H"])
                problem = Problem(spec, now["T"], now["N"])
                call, _ = peers.ours(problem, now["threads"])
                us = median_us(call)
                found.append({"cell": cell, "grows": name, "to": value, "us": round(us, 2),
                              "GFLOP/s": round(problem.flops / us / 1e3, 1)})  # fmt: skip
    return found


def median_us(call, turns=15):
    def turn(calls):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - start) / calls

    call()
    calls = max(1, round(2e-3 / turn(1)))
    return statistics.median(turn(calls) for _ in range(turns)) * 1e6


def show(title, found):
    print(title)
    widths = {k: max(len(str(k)), *(len(str(row[k])) for row in found)) for k in found[0]}
    print("   ", "  ".join(f"{k:>{w}}" for k, w in widths.items()))
    for row in found:
        print("   ", "  ".join(f"{row[k]!s:>{w}}" for k, w in widths.items()))
    sys.stdout.flush()


def everything(quick):
    result = {}
    for function in (memory, allocations, growth):
        result[function.__name__] = function(quick)
        show(function.__doc__, result[function.__name__])
    return result
