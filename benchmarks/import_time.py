"""Measure how much longer importing rnnlayout takes than `import numpy` (goal: at most 10 ms), how
long the first conversion of a process takes (goal: at most 20 ms), and how long the command line
takes to print its help (goal: at most 120 ms)."""

import argparse
import statistics
import subprocess
import sys
import time

LIMIT_MS = 10
FIRST_LIMIT_MS = 20
HELP_LIMIT_MS = 120
STATEMENTS = ("import numpy", "import numpy, rnnlayout; rnnlayout.Spec")
SOURCES = {
    "torch": {"weight_ih_l0": (512, 64), "weight_hh_l0": (512, 128), "bias_ih_l0": (512,),
              "bias_hh_l0": (512,)},
    "keras": {"kernel": (64, 512), "recurrent_kernel": (128, 512), "bias": (512,)},
    "onnx": {"W": (1, 512, 64), "R": (1, 512, 128), "B": (1, 1024)},
}  # fmt: skip


def statement_ms(statement, before="pass"):
    """Return the milliseconds of one statement in a new process."""
    code = "import time; t = time.perf_counter(); {}; print(time.perf_counter() - t)"
    code = f"{before}; {code.format(statement)}"
    output = subprocess.check_output([sys.executable, "-I", "-c", code], text=True)
    return float(output) * 1000


def first_conversion_ms(layout):
    """Return the milliseconds of the first conversion in a new process."""
    arrays = "{n: numpy.ones(s, 'float32') for n, s in " + repr(SOURCES[layout]) + ".items()}"
    before = f"import numpy, rnnlayout; source = {arrays}; convert = rnnlayout.convert"
    return statement_ms("convert(source, to='cudnn')", before)


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
        statement_ms(statement)
    # Interleaved, so that other load on the machine affects both equally.
    rounds = [[statement_ms(statement) for statement in STATEMENTS] for _ in range(n)]
    medians = []
    print(f"{'import, ms':40} {'median':>7} {'least':>7} {'most':>7}   n = {n}")
    for statement, times in zip(STATEMENTS, zip(*rounds, strict=True), strict=True):
        medians.append(statistics.median(times))
        print(f"{statement:40} {medians[-1]:7.1f} {min(times):7.1f} {max(times):7.1f}")
    difference = medians[1] - medians[0]
    verdict = "met" if difference <= LIMIT_MS else "missed"
    print(f"rnnlayout adds {difference:.1f} ms; goal: at most {LIMIT_MS} ms: {verdict}")

    for layout in SOURCES:
        least = min(first_conversion_ms(layout) for _ in range(n))
        verdict = "met" if least <= FIRST_LIMIT_MS else "missed"
        print(f"the first conversion, of an LSTM of {layout}, takes {least:.1f} ms; goal: at most"
              f" {FIRST_LIMIT_MS} ms: {verdict}")  # fmt: skip

    least = min(help_ms() for _ in range(n))
    verdict = "met" if least <= HELP_LIMIT_MS else "missed"
    print(f"rnnlayout --help takes {least:.1f} ms; goal: at most {HELP_LIMIT_MS} ms: {verdict}")


if __name__ == "__main__":
    main()
