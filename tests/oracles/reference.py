"""The reference: every recurrence in NumPy, one step, one gate, one direction at a time.

It takes nothing from the package but where cuDNN has the weights. It follows the equations, in
float64, on `Rounded` numbers, which bound how far the same recurrence in float32 may be from it.

    lstm   c' = f c + i g            h' = o tanh(c'), then h' <- P h' with a projection
                                     with peepholes p the sums of i and f contain p c, of o p c'
                                     with activation relu, relu replaces both tanh
    gru    h' = (1 - z) n + z h      n = tanh(W x + bW + r (R h + bR))     reset after
                                     n = tanh(W x + bW + R (r h) + bR)     reset before
                                     with activation relu, relu replaces tanh
    rnn    h' = tanh or relu (W x + bW + R h + bR)

Letters: T steps, N batch, I input, H hidden, P projected, L layers, D directions, G gates.
"""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

import rnnlayout as rl

GATES = {"lstm": "ifgo", "gru": "rzn", "rnn_tanh": "h", "rnn_relu": "h"}

# ------------------------------------------------------------------------- numbers with an error

# The largest relative rounding error of one operation.
FLOAT32, FLOAT64 = 2.0**-24, 2.0**-53
# float32 sigmoids and tanhs are rational approximations, accurate to a few roundings of a value of
# at most 1 (the libraries claim 1 to 4 ulp).
CURVE = 4


class Rounded:
    """An exact float64 value, and how far the same computation in float32 can be from it.

    value: the result without any rounding of float32.
    inherited: the part of the error that comes from the operands.
    count, size: it is a sum of `count` products whose magnitudes sum to `size`. In any order of
        summation (blocked, fused, the biases first or last) it rounds by at most count * u * size,
        u = FLOAT32: each product takes part in at most count - 1 additions and is itself rounded
        once (Higham, Accuracy and Stability of Numerical Algorithms, 3.1).

    Left out: the second order of count * u, which is below 1e-3 of it for count < 10,000.
    """

    __array_ufunc__ = None  # so that array @ Rounded and 1 - Rounded call the methods below

    def __init__(self, value, inherited=0.0, count=0, size=0.0):
        self.value = np.asarray(value, np.float64)
        self.inherited = np.broadcast_to(inherited, self.value.shape)
        self.count = count
        self.size = np.broadcast_to(size, self.value.shape)

    @property
    def error(self):
        return self.inherited + self.count * FLOAT32 * self.size

    def __getitem__(self, at):
        return Rounded(self.value[at], self.inherited[at], self.count, self.size[at])

    def __add__(self, other):
        if not isinstance(other, Rounded):
            return Rounded(self.value + other, self.inherited, self.count + 1,
                           self.size + np.abs(other))  # fmt: skip
        return Rounded(self.value + other.value, self.inherited + other.inherited,
                       self.count + other.count, self.size + other.size)  # fmt: skip

    def __matmul__(self, matrix):
        size = np.abs(matrix)
        return Rounded(self.value @ matrix, self.error @ size, len(matrix),
                       (np.abs(self.value) + self.error) @ size)  # fmt: skip

    def times(self, vector):
        """Return the products with a vector, one term of a sum each."""
        size = np.abs(vector)
        return Rounded(self.value * vector, self.error * size, 1,
                       (np.abs(self.value) + self.error) * size)  # fmt: skip

    def __mul__(self, other):
        value = self.value * other.value
        inherited = np.abs(self.value) * other.error + np.abs(other.value) * self.error
        inherited = inherited + self.error * other.error
        return Rounded(value, inherited, 1, np.abs(value) + inherited)

    def __rsub__(self, number):
        value = number - self.value
        return Rounded(value, self.error, 1, np.abs(value))

    def curve(self, function, slope):
        """Return function(self). |function| <= 1, and its derivative `slope` falls with distance
        from 0: the error is multiplied by at most the slope at the point next to 0 that it reaches.
        """
        nearest = np.maximum(np.abs(self.value) - self.error, 0)
        return Rounded(function(self.value), slope(nearest) * self.error + CURVE * FLOAT32)

    def clip(self, low, high):
        return Rounded(np.clip(self.value, low, high), self.error)

    def where(self, mask, other):
        """Return self where mask is true, else other."""
        return Rounded(np.where(mask, self.value, other.value),
                       np.where(mask, self.error, other.error))  # fmt: skip


def joined(parts, axis):
    """Concatenate Rounded numbers; their errors become inherited ones."""
    return Rounded(np.concatenate([p.value for p in parts], axis),
                   np.concatenate([p.error for p in parts], axis))  # fmt: skip


def sigmoid(a):
    def function(x):
        return 1 / (1 + np.exp(-x))

    return a.curve(function, lambda x: function(x) * function(-x))


def hard_sigmoid(a, slope=1 / 6):
    return a.curve(lambda x: np.clip(slope * x + 0.5, 0, 1), lambda _: slope)


def tanh(a):
    return a.curve(np.tanh, lambda x: 1 - np.tanh(x) ** 2)


def relu(a):
    return Rounded(np.maximum(a.value, 0), a.error)


CURVE_OF = {"tanh": tanh, "relu": relu}
SQUASH = {"sigmoid": sigmoid, "hard_sigmoid": hard_sigmoid,
          "hard_sigmoid_keras2": lambda a: hard_sigmoid(a, 0.2)}  # fmt: skip

# -------------------------------------------------------------------------------- the recurrence


@dataclass(frozen=True)
class PseudoLayer:
    """One direction of one layer. W, R, bW, bR: gate letter -> array; P: (P, H) or None; peep: i, f
    and o -> array, or {}."""

    W: dict
    R: dict
    bW: dict
    bR: dict
    P: np.ndarray | None = None
    peep: dict = field(default_factory=dict)

    def from_input(self, gate, x):
        return x @ self.W[gate].T + self.bW[gate]

    def from_state(self, gate, h):
        return h @ self.R[gate].T + self.bR[gate]

    def both(self, gate, x, h):
        return self.from_input(gate, x) + self.from_state(gate, h)

    def with_c(self, gate, x, h, c):
        """Return the sum of a gate with its peephole, which is a diagonal matrix."""
        sums = self.both(gate, x, h)
        return sums + c.times(self.peep[gate]) if self.peep else sums


def lstm_step(layer, spec, x, h, c, clip=None):
    squash, curve = SQUASH[spec.recurrent_activation], CURVE_OF[spec.activation]
    i = squash(layer.with_c("i", x, h, c))
    f = squash(layer.with_c("f", x, h, c))
    g = curve(layer.both("g", x, h))
    c = f * c + i * g
    if clip is not None:
        c = c.clip(*clip)
    o = squash(layer.with_c("o", x, h, c))
    h = o * curve(c)
    return (h if layer.P is None else h @ layer.P.T), c


def gru_step(layer, spec, x, h, *_):
    squash, curve = SQUASH[spec.recurrent_activation], CURVE_OF[spec.activation]
    r = squash(layer.both("r", x, h))
    z = squash(layer.both("z", x, h))
    if spec.reset == "after":
        n = curve(layer.from_input("n", x) + r * layer.from_state("n", h))
    else:
        n = curve(layer.from_input("n", x) + layer.from_state("n", r * h))
    return (1 - z) * n + z * h, None


def rnn_step(layer, spec, x, h, *_):
    a = layer.both("h", x, h)
    return (tanh(a) if spec.cell == "rnn_tanh" else relu(a)), None


STEP = {"lstm": lstm_step, "gru": gru_step, "rnn_tanh": rnn_step, "rnn_relu": rnn_step}


def run_direction(layer, spec, xs, h, c, backward, lengths, clip):
    """Run all steps of one direction. Returns the outputs in the order of the input, zero past the
    end of each sequence; last h; last c."""
    ys = [None] * len(xs)
    nothing = Rounded(np.zeros(h.value.shape))
    steps = range(len(xs))
    for t in reversed(steps) if backward else steps:
        goes_on = (t < lengths)[:, None]
        next_h, next_c = STEP[spec.cell](layer, spec, xs[t], h, c, clip)
        ys[t] = next_h.where(goes_on, nothing)
        h = next_h.where(goes_on, h)
        c = next_c.where(goes_on, c) if c is not None else None
    return ys, h, c


@dataclass(frozen=True)
class Run:
    """The results of an RNN: y (T, N, D*P), h (L*D, N, P), c (L*D, N, H), None if it has no c."""

    y: object
    h: object
    c: object = None


def forward(layers, spec, x, h0, c0=None, lengths=None, clip=None):
    """Run the RNN. layers: PseudoLayers, layer by layer, forward before backward. lengths: (N,),
    clip: (low, high) of the cell state. Returns a Run of Rounded numbers."""
    xs = [Rounded(step) for step in x]
    lengths = np.full(x.shape[1], len(x)) if lengths is None else np.asarray(lengths)
    last_h, last_c = [], []
    for first in range(0, len(layers), spec.num_directions):
        sides = []
        for k in range(first, first + spec.num_directions):
            c = None if c0 is None else Rounded(c0[k])
            ys, h, c = run_direction(
                layers[k], spec, xs, Rounded(h0[k]), c, k > first, lengths, clip
            )
            sides.append(ys)
            last_h.append(h)
            last_c.append(c)
        xs = [joined(side, axis=-1) for side in zip(*sides, strict=True)]
    y = stacked(xs) if xs else Rounded(np.empty((0, len(lengths), len(sides) * h0.shape[-1])))
    return Run(y, stacked(last_h), None if c0 is None else stacked(last_c))


def run_steps(step, x, h0, c0=None):
    """Run one layer of one direction by step(x_t, h, c) -> (h', c'). c is None but for an LSTM."""
    h, c, ys = h0[0], None if c0 is None else c0[0], []
    for x_t in x:
        h, c = step(x_t, h, c)
        ys.append(np.asarray(h))
    return Run(np.stack(ys), np.asarray(h)[None], None if c is None else np.asarray(c)[None])


def stacked(parts):
    return joined([p[None] for p in parts], axis=0)


# ------------------------------------------------------------------------------- where weights lie


def has_cudnn_form(spec):
    return (spec.reset, spec.recurrent_activation, spec.activation, spec.peepholes) == (
        "after", "sigmoid", "tanh", False
    )  # fmt: skip


def from_cudnn(flat, spec):
    """Return the PseudoLayers in cuDNN's flat weight space. model/test_offsets.py compares where
    `regions` has them with the answers of the real cuDNN."""
    pieces = defaultdict(dict)
    for at in rl.regions(spec):
        start, shape = at["offset"] // flat.itemsize, (at["rows"], at["cols"])
        values = flat[start : start + shape[0] * shape[1]].astype(np.float64)
        is_bias = at["role"] in ("bW", "bR")
        pieces[at["pseudo_layer"], at["role"]][at["gate"]] = (
            values if is_bias else values.reshape(shape)
        )
    # What is not stored: the W of skip_input are the identity, biases are zero.
    gates = GATES[spec.cell]
    identity = dict.fromkeys(gates, np.eye(spec.hidden_size))
    zero = dict.fromkeys(gates, np.zeros(spec.hidden_size))
    return [
        PseudoLayer(
            W=pieces.get((k, "W"), identity),
            R=pieces[k, "R"],
            bW=pieces.get((k, "bW"), zero),
            bR=pieces.get((k, "bR"), zero),
            P=pieces[k, "P"].get(""),
        )
        for k in range(spec.num_layers * spec.num_directions)
    ]


ONNX_GATES = {**GATES, "lstm": "iofg", "gru": "zrn"}


def from_onnx(tensors, spec):
    """Return the PseudoLayers of ONNX tensors (0/W, 0/R, 0/B, 1/W ...): for what cuDNN cannot
    represent, reset before and hard sigmoids. Tests compare this reading with onnxruntime."""
    layers = []
    for l in range(spec.num_layers):  # noqa: E741
        at = f"{l}/" if spec.num_layers > 1 else ""
        for d in range(spec.num_directions):
            W, R = (np.asarray(tensors[at + name][d], np.float64) for name in "WR")
            B = tensors.get(at + "B")
            B = np.zeros(2 * len(W)) if B is None else np.asarray(B[d], np.float64)
            parts = (by_gate(part, ONNX_GATES[spec.cell]) for part in (W, R, *np.split(B, 2)))
            P = tensors.get(at + "P")
            peep = {} if P is None else by_gate(np.asarray(P[d], np.float64), "iof")
            layers.append(PseudoLayer(*parts, peep=peep))
    return layers


def by_gate(rows, gates):
    return dict(zip(gates, np.split(rows, len(gates)), strict=True))


# --------------------------------------------------------------------------------------- verdicts


# A test of meaning allows a `distance` of at most 1: no element is further from the float64
# recurrence than the rounding of float32 can explain (Rounded derives that from the K = I + H
# products of a gate, step after step). Measured: 0.01 to 0.1 in torch and Keras, up to 0.33 in
# onnxruntime, whose tanh is coarser; a wrong gate order is above 30,000. The bound itself must not
# grow so large that a mistake would pass:
LOOSEST = 1e-3


def distance(run, expected, unit=FLOAT32):
    """Return how far a run is from the result of forward(), in units of what rounding explains.

    unit: the rounding of the run's own arithmetic; that of the reference is added.
    """
    share = (unit + FLOAT64) / FLOAT32
    return max(
        _largest(np.asarray(found, np.float64) - wanted.value, share * wanted.error)
        for found, wanted in pairs(run, expected)
    )


def distance_between(a, b, expected):
    """The same for two float32 runs of one network: each may be off, so the two by twice that."""
    return max(
        _largest(np.asarray(x, np.float64) - y, 2 * wanted.error)
        for (x, wanted), (y, _) in zip(pairs(a, expected), pairs(b, expected), strict=True)
    )


def _largest(difference, error):
    """Where no error is possible, past a sequence's end, any difference counts as infinite."""
    off = np.abs(difference)
    return np.divide(off, error, out=np.where(off == 0, 0, np.inf), where=error > 0).max()


def pairs(run, expected):
    assert (run.c is None) == (expected.c is None)
    both = [(run.y, expected.y), (run.h, expected.h), (run.c, expected.c)]
    both = [(found, wanted) for found, wanted in both if wanted is not None]
    for found, wanted in both:
        assert found.shape == wanted.value.shape
        assert wanted.error.max(initial=0) < LOOSEST
    return both
