"""Measure how much longer importing rnnlayout takes than `import numpy` (goal: at most 10 ms), and
how long the command line takes to print its help (goal: at most 120 ms)."""

import argparse
import statistics
import subprocess
import sys
import time

LIMIT_MS = 10
HELP_LIMIT_MS = 120
STATEMENTS = ("import numpy", "import numpy, rnnlayout; rnnlayout.Spec")


def import_ms(statement):
    """Return the milliseconds of one import statement in a new process."""
    code = f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
    output = subprocess.check_output([sys.executable, "-I", "-c", code], text=True)
    return float(output) * 1000


def help_ms():
    """Return the milliseconds of a whole process that prints the help."""
    start = time.perf_counter()
    subprocess.check_output([sys.executable, "-m", "rnnlayout", "--help"])
    return (time.perf_counter() - start) * 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=31, help="processes of each kind (default: 31)")
    n = parser.parse_args().n

    for statement in STATEMENTS:  # writes .pyc files and fills the page cache
        import_ms(statement)
    # Interleaved, so that other load on the machine affects both equally.
    rounds = [[import_ms(statement) for statement in STATEMENTS] for _ in range(n)]
    medians = []
    print(f"{'import, ms':40} {'median':>7} {'least':>7} {'most':>7}   n = {n}")
    for statement, times in zip(STATEMENTS, zip(*rounds, strict=True), strict=True):
        medians.append(statistics.median(times))
        print(f"{statement:40} {medians[-1]:7.1f} {min(times):7.1f} {max(times):7.1f}")
    difference = medians[1] - medians[0]
    verdict = "met" if difference <= LIMIT_MS else "missed"
    print(f"rnnlayout adds {difference:.1f} ms; goal: at most {LIMIT_MS} ms: {verdict}")

    least = min(help_ms() for _ in range(n))
    verdict = "met" if least <= HELP_LIMIT_MS else "missed"
    print(f"rnnlayout --help takes {least:.1f} ms; goal: at most {HELP_LIMIT_MS} ms: {verdict}")


if __name__ == "__main__":
    main()
