"""Measure how long diagnose() takes for 100 MB of weights (goal: at most 5 s), and how much memory
it needs beyond them."""

import argparse

import numpy as np
from cases import measure

import rnnlayout as rl

LIMIT_S = 5
SPEC = rl.Spec("lstm", 1024, 1024, 3)


def packed_wrongly(weights):
    """Transpose all matrices, order the gates i f o g, and pack layer by layer."""
    parts = []
    for layer in range(SPEC.num_layers):
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            i, f, g, o = np.split(weights[f"{name}_l{layer}"], 4)
            parts.append(np.concatenate([i, f, o, g]).T.ravel())
    return np.concatenate(parts)


def main():
    argparse.ArgumentParser(description=__doc__).parse_args()
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(size=shape).astype("f4")
               for name, shape in rl.describe(SPEC, "torch").items()}  # fmt: skip
    right, wrong = rl.pack(weights), packed_wrongly(weights)
    buffers = {
        "right": right,
        "three mistakes": wrong,
        "also big-endian": wrong.byteswap(),
        "also rounded to float16": wrong.astype("f2").astype("f4"),
        "other weights": rng.normal(size=right.size).astype("f4"),
    }
    measure(
        buffers,
        lambda buffer: rl.diagnose(buffer, like=weights),
        lambda found: f"{len(found.mistakes)} mistakes",
        LIMIT_S,
        SPEC.nbytes,
    )


if __name__ == "__main__":
    main()
