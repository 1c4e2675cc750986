"""The cases of a benchmark, one after the other: the time of each, and the memory of all."""

import resource
import time


def measure(cases, run, told, limit_s, nbytes):
    """Run the cases; print their times, and whether the slowest one meets the goal.

    cases: a dict name -> argument of run. told: from the result of run to a text. nbytes: of the
    weights.
    """
    most, before = 0.0, peak_nbytes()
    for name, argument in cases.items():
        start = time.perf_counter()
        found = run(argument)
        seconds = time.perf_counter() - start
        most = max(most, seconds)
        print(f"{name:24} {seconds:5.2f} s   {told(found)}")
    verdict = "met" if most <= limit_s else "missed"
    print(f"{nbytes / 1e6:.1f} MB: at most {most:.2f} s; goal: {limit_s} s: {verdict}")
    more = peak_nbytes() - before
    print(f"memory: {more / 1e6:.0f} MB on top, {more / nbytes:.1f} times the weights")


def peak_nbytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
