"""Measure how long identify() takes for an LSTM with I = H = 256 (goal: at most 10 s), and how much
memory it needs."""

import argparse

import numpy as np
from cases import measure

import rnnlayout as rl

LIMIT_S = 10
SPEC = rl.Spec("lstm", 256, 256)
T, N = 50, 4


def own(array):
    """Order the gates o i g f, and transpose."""
    i, f, g, o = np.split(array, 4)
    return np.concatenate([o, i, g, f]).T


def main():
    argparse.ArgumentParser(description=__doc__).parse_args()
    rng = np.random.default_rng(0)
    weights = {name: rng.uniform(-1 / 16, 1 / 16, size=shape).astype("f4")
               for name, shape in rl.describe(SPEC, "torch").items()}  # fmt: skip
    x = rng.normal(size=(T, N, SPEC.input_size)).astype("f4")
    y, _ = rl.forward(x, weights)
    cases = {
        "PyTorch's names": (weights, y),
        "no names": ([*weights.values()], y),
        "one vector": (rl.pack(weights), y),
        "a layout of one's own": ([own(array) for array in weights.values()], y),
        "no layout agrees": (weights, y[::-1] ** 2),
    }
    measure(
        cases,
        lambda case: rl.identify(case[0], x, case[1]),
        lambda found: f"{found.tried:4} networks, {found.tied} agree",
        LIMIT_S,
        SPEC.nbytes,
    )


if __name__ == "__main__":
    main()
