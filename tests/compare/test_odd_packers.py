"""diagnose: buffers of packers that people wrote, each beside what a report should say of it.

A kind is a function that makes a buffer from arrays. Orders of gates, matrices and biases are the
machine's (mistake_machine.py); here are changed values, headers, padding, cuts and rarer orders.
"""

import io
import re

import numpy as np
import pytest
from compare.mistake_machine import Packer
from oracles.some import normal_weights

import rnnlayout as rl

NETWORKS = [
    rl.Spec("lstm", 5, 3), rl.Spec("lstm", 6, 6), rl.Spec("lstm", 3, 1, 2),
    rl.Spec("lstm", 7, 9, 3), rl.Spec("lstm", 9, 7, 2, True), rl.Spec("lstm", 6, 8, 2, False, 5),
    rl.Spec("lstm", 24, 20, 4, True), rl.Spec("lstm", 40, 64), rl.Spec("gru", 5, 4),
    rl.Spec("gru", 8, 8, 2), rl.Spec("gru", 11, 6, 3, True), rl.Spec("gru", 4, 1),
    rl.Spec("gru", 48, 33, 2), rl.Spec("rnn_tanh", 9, 5, 2), rl.Spec("rnn_tanh", 6, 7, 1, True),
    rl.Spec("rnn_relu", 17, 16, 4),
]  # fmt: skip
# With one hidden unit a gate has few values, or one: what was done to them cannot be told.
TINY = [spec for spec in NETWORKS if spec.hidden_size == 1]
SOME = [NETWORKS[k] for k in (0, 4, 8, 12)]


class Network(Packer):
    def __init__(self, spec, seed=0):
        self.like = normal_weights(rl.layout("torch"), spec, seed)
        super().__init__(spec, self.like)
        self.right = self.pack()

    def packed(self, matrix=lambda name, x: x, bias=lambda at, b: b):
        """Pack as cuDNN does, after these functions have changed each array."""
        parts = [np.ravel(matrix(name, x)) for name, x in self.matrices.items()]
        parts += [np.ravel(bias(at, b)) for at, b in self.biases.items()]
        return np.concatenate(parts).astype("f4")


def joined(n, first, turn=lambda x: x):
    """Return W and R of each layer side by side, then biases as cuDNN has them."""
    if n.spec.proj_size:
        return None
    parts = [turn(np.concatenate([n.matrices[*at, role] for role in first], 2)) for at in n.biases]
    return np.concatenate([x.ravel() for x in [*parts, *n.biases.values()]])


def each_bias_after_its_matrix(n, rng):
    parts = []
    for (*at, role), x in n.matrices.items():
        parts += [x.ravel(), *(n.biases[*at]["WR".index(role)] if role in "WR" else [])]
    return np.concatenate(parts)


def each_bias_after_its_gate(n, rng):
    parts = []
    for (*at, role), x in n.matrices.items():
        vectors = n.biases[*at]["WR".index(role)] if role in "WR" else [np.empty(0, "f4")]
        parts += [part.ravel() for gate in zip(x, vectors, strict=True) for part in gate]
    return np.concatenate(parts) if n.G > 1 else None


def biases_as_in_flax(n, rng):
    def fold(at, b):
        (r, z, new), (r_r, z_r, new_r) = b
        return np.array([[r + r_r, z + z_r, new], [0 * r, 0 * z, new_r]])

    return n.packed(bias=fold) if n.spec.cell == "gru" else None


def quantize(x, steps, low=None, high=None):
    if low is None:
        scale = abs(x).max() / steps
        return np.rint(x / scale) * scale
    scale = (high - low) / steps
    zero = np.rint(-low / scale)
    return (np.clip(np.rint(x / scale) + zero, 0, steps) - zero) * scale


def quantized(steps, shifted=False):
    """Of each matrix. shifted: as an observer of torch does, or onnxruntime with fewer steps."""
    ends = (lambda x: (min(x.min(), 0), max(x.max(), 0))) if shifted else lambda x: ()
    return lambda n, rng: n.packed(lambda name, x: quantize(x, steps, *ends(x)))


def int8_per_row(n, rng):
    if min(n.spec.input_size, n.spec.hidden_size) < 3:
        return None
    return n.packed(lambda name, x: np.array([[quantize(row, 127) for row in gate] for gate in x]))


def units_permuted(n, rng):
    """The same function, but for the order of the outputs of the last layer."""
    if n.spec.hidden_size < 3 or n.spec.proj_size:
        return None
    D, H = n.spec.num_directions, n.spec.hidden_size
    orders = {at: rng.permutation(H) for at in n.biases}

    def matrix(name, x):
        layer, side, role = name
        x = x[:, orders[layer, side]]
        if role == "R":
            return x[:, :, orders[layer, side]]
        below = [orders[layer - 1, d] + d * H for d in range(D)] if layer else [slice(None)]
        return x[:, :, np.concatenate(below) if layer else below[0]]

    return n.packed(matrix, lambda at, b: b[:, :, orders[at]])


def npy_file_read_raw(n, rng):
    file = io.BytesIO()
    np.save(file, n.right)
    return file.getvalue()


def each_padded_to_128_bytes(n, rng):
    arrays = [*n.matrices.values(), *n.biases.values()]
    return np.concatenate([np.pad(x.ravel(), (0, -x.size % 32)) for x in arrays])


def hidden_padded_to_eight(n, rng):
    """Not for several bidirectional layers: their input columns come in two parts, which diagnose()
    does not search for."""
    up = -n.spec.hidden_size % 8
    if not up or n.spec.proj_size or (n.spec.num_layers > 1 and n.spec.bidirectional):
        return None

    def matrix(name, x):
        layer, _, role = name
        return np.pad(x, ((0, 0), (0, up), (0, up if role == "R" or layer else 0)))

    return n.packed(matrix, lambda at, b: np.pad(b, ((0, 0), (0, 0), (0, up))))


def cut(n, front, behind):
    """Cut the buffer inside of a matrix or a bias."""
    size = n.right.size // 7 + 1
    return n.right[size * front : n.right.size - size * behind]


def a_matrix_left_out(n, rng):
    first = n.matrices[0, 0, "W"].size
    return np.concatenate([n.right[:first], n.right[first + n.matrices[0, 0, "R"].size :]])


def a_gate_twice(n, rng):
    if n.G == 1 or n.spec.hidden_size < 2:
        return None
    return n.packed(lambda name, x: x[[0, 0, *range(2, len(x))]] if len(x) > 1 else x)


NEAR, OTHER, SHIFTED = "changed|near|trained", "not found|none of", "rolled|later|earlier|shifted"
# name: what the report has to contain, and what makes the buffer: None if this RNN cannot be packed
# so. In these all values are in the buffer:
KEPT = {
    "right": ("^the buffer is right", lambda n, rng: n.right),
    "rows reversed": ("reverse", lambda n, rng: n.packed(lambda name, x: x[:, ::-1])),
    "columns reversed": ("reverse", lambda n, rng: n.packed(lambda name, x: x[:, :, ::-1])),
    "all reversed": ("^all values are in the reverse order", lambda n, rng: n.right[::-1]),
    "joined, R first": ("joined", lambda n, rng: joined(n, "RW")),
    "joined as in TensorFlow, R first": (
        "transposed", lambda n, rng: joined(n, "RW", lambda x: x.transpose(2, 0, 1))),
    "each bias after its matrix": ("next to|parts|each matrix", each_bias_after_its_matrix),
    "each bias after its gate": ("each gate|next to|parts|gate by gate", each_bias_after_its_gate),
    "doubled": (r"multiplied by 2\b", lambda n, rng: 2 * n.right),
    "negated": ("negated|multiplied by -1", lambda n, rng: -n.right),
    "input halved": (r"multiplied by 0\.5\b", lambda n, rng: n.packed(
        lambda name, x: x / 2 if name[2] == "W" else x)),
    "one matrix times four": ("multiplied by 4", lambda n, rng: n.packed(
        lambda name, x: 4 * x if name == (0, 0, "R") else x)),
    "units permuted": ("hidden units of layer .* are in another order: the same function, with its"
                       " outputs in that order", units_permuted),
    "zeros in front, as bytes": ("32 too many|32 .* before|128 bytes",
                                 lambda n, rng: bytes(128) + n.right.tobytes()),
    "values in front": ("expected [0-9]+: 7 too many, in front", lambda n, rng: np.concatenate(
        [rng.normal(size=7).astype("f4"), n.right])),
    "values at the end": ("expected [0-9]+: 33 too many, at the end", lambda n, rng: np.concatenate(
        [n.right, rng.normal(size=33).astype("f4")])),
    "a byte more": ("expected [0-9]+: 1 byte too many, at the end$",
                    lambda n, rng: n.right.tobytes() + b"0"),
    "a word in front": ("expected [0-9]+: 6 bytes too many, in front$",
                        lambda n, rng: b"LSTM1\n" + n.right.tobytes()),
    "a .npy file": ("too many|before|bytes", npy_file_read_raw),
    "each padded": ("too many|padded|between", each_padded_to_128_bytes),
    "hidden size padded": ("padded|too many", hidden_padded_to_eight),
    "rolled by one": (SHIFTED, lambda n, rng: np.roll(n.right, 1)),
}  # fmt: skip
LOST = {
    "biases as in Flax": ("except those of gate n: the same function", biases_as_in_flax),
    "one summed bias": ("one bias vector", lambda n, rng: n.packed(bias=lambda at, b: b[0] + b[1])),
    "a tenth more": (r"multiplied by 1\.1\b", lambda n, rng: np.float32(1.1) * n.right),
    "int8": ("quantized to 8 bits", quantized(127)),
    "int8 per row": ("quantized to 8 bits", int8_per_row),
    "uint8": ("quantized to 8 bits", quantized(255, shifted=True)),
    "int4": ("quantized to 4 bits", quantized(7)),
    "pruned": ("0, the others are as they were", lambda n, rng: n.packed(
        lambda name, x: np.where(abs(x) < np.quantile(abs(x), 0.8), 0, x))),
    "moving average": ("^[0-9]+ of [0-9]+ values are changed", lambda n, rng: (
        np.float32(0.95) * n.right + np.float32(0.05) * Network(n.spec, 77).right)),
    "trained on": (NEAR, lambda n, rng: (
        n.right + rng.normal(size=n.right.size) * 0.01).astype("f4")),
    "clipped": ("clipped to 0.75|changed", lambda n, rng: np.clip(n.right, -0.75, 0.75)),
    "cut at both ends": ("missing", lambda n, rng: cut(n, 1, 1)),
    "cut in front": ("the first .* missing", lambda n, rng: cut(n, 1, 0)),
    "cut at the end": ("the last .* missing", lambda n, rng: cut(n, 0, 1)),
    "a matrix left out": ("missing|expected", a_matrix_left_out),
    "a gate twice": ("in its place (are gates|is gate . a second time)", a_gate_twice),
}  # fmt: skip
OTHER_WEIGHTS = {
    "random": (OTHER, lambda n, rng: rng.normal(size=n.right.size).astype("f4")),
    "twice as many": (OTHER, lambda n, rng: rng.normal(size=2 * n.right.size).astype("f4")),
    "zeros": (OTHER, lambda n, rng: 0 * n.right),
    "shuffled": (OTHER, lambda n, rng: rng.permutation(n.right)),
}
KINDS = KEPT | LOST | OTHER_WEIGHTS


def check(kind, networks):
    """Whatever can be restored is, bit for bit; the report says what was done and is not sure of
    anything else: a wrong buffer as the right one, or a mistake that was not made."""
    says, make = KINDS[kind]
    for k, spec in enumerate(networks):
        n = Network(spec)
        buffer = make(n, np.random.default_rng([1000, k]))
        same = isinstance(buffer, np.ndarray) and buffer.tobytes() == n.right.tobytes()
        if buffer is None or (same and kind != "right"):
            continue
        found = rl.diagnose(buffer, like=n.like, spec=spec)
        named = bool(re.search(says, str(found), re.MULTILINE))
        exact = found.fixed is not None and found.fixed.tobytes() == n.right.tobytes()
        is_true = kind not in OTHER_WEIGHTS and (exact if kind in KEPT else named)
        assert is_true or not found.sure, (spec, found)
        if spec not in TINY:
            assert named and (exact or kind not in KEPT), (spec, found)
            assert not (kind in OTHER_WEIGHTS and found.same), (spec, found)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_packer_did_is_named(kind):
    check(kind, SOME + TINY)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_packer_did_is_named_for_the_other_networks(kind):
    check(kind, [spec for spec in NETWORKS if spec not in SOME + TINY])
