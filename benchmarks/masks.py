"""Time calls with a mask beside calls with lengths, of the same steps, on one thread.

    python benchmarks/masks.py

Of each case, padding at the end (a mask and lengths say the same), and at the front (a mask). All
run in turn in one process, and the least time of many turns counts. Exit code 1: a mask takes more
than 1.2 times as long as lengths.
"""

import sys

import numpy as np
from forward_special import LENGTHS, least
from workload import Problem

import rnnlayout as rl

CASES = [*LENGTHS, (16, 200, 128), (32, 100, 256)]  # N, T, H
LIMIT = 1.2


def measure(cell, N, T, H):
    problem = Problem(rl.Spec(cell, H, H), T, N)
    rnn = rl.RNN(problem.weights, batch_first=False)
    lengths = np.linspace(T // 4, T, N).round().astype(int)
    np.random.default_rng(0).shuffle(lengths)
    steps = np.arange(T)[:, None]
    back, front = steps < lengths, steps >= T - lengths
    return least({
        "lengths": lambda: rnn(problem.x, lengths=lengths),
        "mask, end": lambda: rnn(problem.x, mask=back),
        "mask, front": lambda: rnn(problem.x, mask=front),
    })  # fmt: skip


def main():
    rl.set_num_threads(1)
    largest = 0.0
    for cell in ("lstm", "gru"):
        for N, T, H in CASES:
            times = measure(cell, N, T, H)
            ratios = [times[name] / times["lengths"] for name in ("mask, end", "mask, front")]
            largest = max(largest, *ratios)
            print(f"{cell} N={N} T={T} H={H}: lengths {times['lengths'] * 1e6:.0f} us,"
                  f" mask {ratios[0]:.2f} and at the front {ratios[1]:.2f} times")  # fmt: skip
    print(f"largest ratio: {largest:.2f}")
    return int(largest > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
