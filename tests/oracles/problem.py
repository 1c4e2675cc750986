"""An RNN and a call with random numbers, and how far a result is from the recurrence's."""

import numpy as np

import rnnlayout as rl

from .bits import DTYPES
from .reference import FLOAT32, FLOAT64, Run, forward, from_cudnn, pairs

# The rounding of a stored number: relative, and half of the smallest step of subnormal ones.
STORED = {"float16": (2.0**-11, 2.0**-25), "bfloat16": (2.0**-8, 2.0**-134),
          "float32": (2.0**-24, 2.0**-150), "float64": (0.0, 0.0)}  # fmt: skip


class Problem:
    """Random weights in cuDNN's layout, x (T, N, I), and first states. clip: of the cell state."""

    def __init__(self, spec, rng, T=4, N=3, lengths=None, clip=None, c_size=0.4):
        self.spec, self.T, self.N, self.clip = spec, T, N, clip
        self.lengths = np.array(lengths if lengths is not None else [T] * N)
        self.dtype = DTYPES[spec.dtype][0]
        self.width, D = spec.proj_size or spec.hidden_size, spec.num_directions
        self.x = rng.normal(size=(T, N, spec.input_size)).astype(self.dtype)
        self.x[np.arange(T)[:, None] >= self.lengths] = np.nan  # never read
        self.first = (spec.num_layers * D, N)
        self.hx = rng.normal(size=(*self.first, self.width)).astype(self.dtype)
        self.cx = rng.uniform(-c_size, c_size, (*self.first, spec.hidden_size)).astype(self.dtype)
        # the magnitudes of a row sum to less than 1, so no error grows from step to step
        pieces = [(rng.uniform(-1, 1, rows * cols) / max(cols, 2)).astype(self.dtype)
                  for *_, rows, cols in rl.regions(spec).tolist()]  # fmt: skip
        self.weights = np.concatenate(pieces)

    def result(self, found):
        """Return the bytes of y, hy and cy as a Run."""
        spec, width = self.spec, self.width * self.spec.num_directions
        y, hy, cy = (np.frombuffer(found[name], self.dtype) for name in ("y", "hy", "cy"))
        c = cy.reshape(*self.first, spec.hidden_size) if spec.cell == "lstm" else None
        return Run(y.reshape(self.T, self.N, width), hy.reshape(*self.first, self.width), c)

    def expected(self):
        x, hx, cx = (a.astype(np.float64) for a in (np.nan_to_num(self.x), self.hx, self.cx))
        c0 = cx if self.spec.cell == "lstm" else None
        return forward(from_cudnn(self.weights, self.spec), self.spec, x, hx, c0,
                       lengths=self.lengths, clip=self.clip)  # fmt: skip

    def worst(self, found, expected=None, unit=FLOAT64):
        """Return the distance() of the bytes of y, hy and cy."""
        return self.distance(self.result(found), expected, unit)

    def distance(self, run, expected=None, unit=FLOAT64):
        """Return how far a Run is from the exact result, in units of what rounding explains: of its
        own arithmetic (unit), of the reference's, and of each number once when it is stored."""
        share, least = STORED[self.spec.dtype]
        worst = 0.0
        for ours, wanted in pairs(run, expected or self.expected()):
            off = np.abs(ours.astype(np.float64) - wanted.value)
            # the C library's tanh and exp are accurate to 4 units too
            explained = (unit + FLOAT64) / FLOAT32 * wanted.error
            explained = explained + share * (np.abs(wanted.value) + explained) + least
            ratio = np.divide(off, explained, out=np.where(off == 0, 0, np.inf),
                              where=explained > 0)  # fmt: skip
            worst = max(worst, np.nan_to_num(ratio, nan=np.inf).max())
        return worst
