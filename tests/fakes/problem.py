"""A question for cuDNN with random numbers, and how far an answer is from the reference's."""

import numpy as np
from oracles.bits import DTYPES
from oracles.reference import FLOAT32, FLOAT64, Run, forward, from_cudnn, pairs

import rnnlayout as rl

CELLS = ["rnn_relu", "rnn_tanh", "lstm", "gru"]
BIASES = ["none", "input", "double", "recurrent"]
NUMBER = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}
SEQ, BATCH = 0, 2
# The rounding of a stored number: relative, and half of the smallest step of subnormal ones.
STORED = {"float16": (2.0**-11, 2.0**-25), "bfloat16": (2.0**-8, 2.0**-134),
          "float32": (2.0**-24, 2.0**-150), "float64": (0.0, 0.0)}  # fmt: skip


class Problem:
    """A question for the fake, random arrays, and how to read the answer."""

    def __init__(self, spec, rng, T=4, N=3, layout=SEQ, lengths=None, clip=None, fill=True,
                 c_size=0.4):  # fmt: skip
        self.spec, self.T, self.N, self.layout, self.clip = spec, T, N, layout, clip
        self.lengths = np.array(lengths if lengths is not None else [T] * N)
        self.dtype = DTYPES[spec.dtype][0]
        self.width, D = spec.proj_size or spec.hidden_size, spec.num_directions
        self.x = rng.normal(size=(T, N, spec.input_size)).astype(self.dtype)
        past = np.arange(T)[:, None] >= self.lengths
        self.x[past] = np.nan  # never read
        first = (spec.num_layers * D, N)
        self.hx = rng.normal(size=(*first, self.width)).astype(self.dtype)
        self.cx = rng.uniform(-c_size, c_size, (*first, spec.hidden_size)).astype(self.dtype)
        # the magnitudes of a row sum to less than 1, so no error grows from step to step
        pieces = [(rng.uniform(-1, 1, rows * cols) / max(cols, 2)).astype(self.dtype)
                  for *_, rows, cols in rl.regions(spec).tolist()]  # fmt: skip
        self.weights = np.concatenate(pieces)
        padded = layout == BATCH or (layout == SEQ and (self.lengths != T).any())
        self.question = {
            "rnn": {
                "cell": CELLS.index(spec.cell), "bias": BIASES.index(spec.bias),
                "direction": D - 1, "input_mode": int(spec.skip_input),
                "dtype": NUMBER[spec.dtype], "precision": int(spec.dtype == "float64"),
                "I": spec.input_size, "H": spec.hidden_size, "P": self.width,
                "L": spec.num_layers, "flags": int(padded),
            },
            "x": {"layout": layout, "T": T, "N": N, "lengths": self.lengths.tolist(), "fill": fill},
            "clip": clip and [1, *clip],
        }  # fmt: skip

    def arrays(self):
        return {"x": self.stored(self.x), "hx": self.hx, "cx": self.cx, "weights": self.weights}

    def stored(self, x):
        """Return an array (T, N, width) as it is stored in memory."""
        if self.layout == BATCH:
            return np.ascontiguousarray(x.swapaxes(0, 1))
        return x

    def result(self, found):
        """Return the fake's outputs as a Run, y as (T, N, width)."""
        spec = self.spec
        first = (spec.num_layers * spec.num_directions, self.N)
        y, hy, cy = (np.frombuffer(found[name], self.dtype) for name in ("y", "hy", "cy"))
        width = self.width * spec.num_directions
        if self.layout == BATCH:
            y = y.reshape(self.N, self.T, width).swapaxes(0, 1)
        else:
            y = y.reshape(self.T, self.N, width)
        c = cy.reshape(*first, spec.hidden_size) if spec.cell == "lstm" else None
        return Run(y, hy.reshape(*first, self.width), c)

    def expected(self):
        x, hx, cx = (a.astype(np.float64) for a in (np.nan_to_num(self.x), self.hx, self.cx))
        c0 = cx if self.spec.cell == "lstm" else None
        return forward(from_cudnn(self.weights, self.spec), self.spec, x, hx, c0,
                       lengths=self.lengths, clip=self.clip)  # fmt: skip

    def worst(self, found, expected=None, unit=FLOAT64):
        """Return the distance() of the fake's outputs."""
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
