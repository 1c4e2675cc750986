"""Packers that people wrote, each beside what a report should say of its buffer.

They share nothing with the package, and nothing with its tables of mistakes: a kind is a function
that makes a buffer from arrays.
"""

import dataclasses
import re

import numpy as np
from oracles.some import normal_weights

import rnnlayout as rl

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
NETWORKS = [
    rl.Spec("lstm", 5, 3), rl.Spec("lstm", 6, 6), rl.Spec("lstm", 3, 1, 2),
    rl.Spec("lstm", 7, 9, 3), rl.Spec("lstm", 9, 7, 2, True), rl.Spec("lstm", 6, 8, 2, False, 5),
    rl.Spec("lstm", 24, 20, 4, True), rl.Spec("lstm", 40, 64), rl.Spec("gru", 5, 4),
    rl.Spec("gru", 8, 8, 2), rl.Spec("gru", 11, 6, 3, True), rl.Spec("gru", 4, 1),
    rl.Spec("gru", 48, 33, 2), rl.Spec("rnn_tanh", 9, 5, 2), rl.Spec("rnn_tanh", 6, 7, 1, True),
    rl.Spec("rnn_relu", 17, 16, 4),
]  # fmt: skip


class Network:
    """The arrays of an RNN: matrices[layer, direction, role] as (gates, rows, columns), biases
    [layer, direction] as (2, gates, H)."""

    def __init__(self, spec, seed=0):
        self.spec, self.gates = spec, GATES[spec.cell]
        self.like = normal_weights(rl.layout("torch"), spec, seed)
        self.matrices, self.biases = {}, {}
        for layer in range(spec.num_layers):
            for side in range(spec.num_directions):
                end = f"_l{layer}" + "_reverse" * side
                for role, name in (("W", "weight_ih"), ("R", "weight_hh"), ("P", "weight_hr")):
                    if name + end in self.like:
                        x = self.like[name + end]
                        parts = 1 if role == "P" else self.gates
                        self.matrices[layer, side, role] = x.reshape(parts, -1, x.shape[1])
                b = [self.like[name + end].reshape(self.gates, -1)
                     for name in ("bias_ih", "bias_hh")]  # fmt: skip
                self.biases[layer, side] = np.array(b)
        self.right = self.pack()

    def pack(self, matrix=lambda name, x: x, bias=lambda at, b: b):
        """Pack as cuDNN does, after these functions have changed each array."""
        parts = [np.ravel(matrix(name, x)) for name, x in self.matrices.items()]
        parts += [np.ravel(bias(at, b)) for at, b in self.biases.items()]
        return np.concatenate(parts).astype("f4")

    @property
    def flat_biases(self):
        return np.concatenate([b.ravel() for b in self.biases.values()])

    def with_arrays(self, matrices=None, biases=None):
        """Return a network with some other arrays, and the same sizes."""
        other = object.__new__(Network)
        other.__dict__.update(self.__dict__)
        other.matrices = {**self.matrices, **(matrices or {})}
        other.biases = {**self.biases, **(biases or {})}
        return other


@dataclasses.dataclass(frozen=True)
class Kind:
    """make: returns the buffer, None if this RNN cannot be packed so. says: what the report has to
    contain. keeps: are all values in the buffer? other: are they other weights?"""

    make: object
    says: str
    keeps: bool = True
    other: bool = False


KINDS: dict[str, Kind] = {}


def kind(says, keeps=True, other=False):
    def add(make):
        KINDS[make.__name__] = Kind(make, says, keeps, other)
        return make

    return add


# ------------------------------------------------------------------------------ order of matrices


@kind("^the buffer is right")
def right(n, rng):
    return n.right


def reordered(n, order, roles="WRb"):
    def of(name, x):
        return x[list(order)] if name[2] in roles and len(x) == len(order) else x

    return n.pack(of, lambda at, b: b[:, list(order)] if "b" in roles else b)


@kind("swapped|in the order")
def gates_exchanged(n, rng):
    return reordered(n, [*range(n.gates - 2), n.gates - 1, n.gates - 2]) if n.gates > 1 else None


@kind("swapped|in the order")
def gates_turned(n, rng):
    return reordered(n, [*range(1, n.gates), 0]) if n.gates > 1 else None


@kind("recurrent")
def gates_of_the_recurrent_ones(n, rng):
    return reordered(n, [1, 0, *range(2, n.gates)], "R") if n.gates > 1 else None


@kind("transposed")
def transposed_each_gate(n, rng):
    return n.pack(lambda name, x: x.transpose(0, 2, 1))


@kind("transposed")
def transposed_together(n, rng):
    return n.pack(lambda name, x: x.transpose(2, 0, 1))


@kind("recurrent")
def transposed_recurrent(n, rng):
    return n.pack(lambda name, x: x.transpose(2, 0, 1) if name[2] == "R" else x)


@kind("interleaved")
def interleaved_units(n, rng):
    return n.pack(lambda name, x: x.transpose(1, 0, 2)) if n.gates > 1 else None


@kind("interleaved")
def interleaved_elements(n, rng):
    return n.pack(lambda name, x: x.transpose(2, 1, 0)) if n.gates > 1 else None


@kind("units are in the reverse order|reverse")
def rows_reversed(n, rng):
    return n.pack(lambda name, x: x[:, ::-1]) if n.spec.hidden_size > 1 else None


@kind("reverse")
def columns_reversed(n, rng):
    return n.pack(lambda name, x: x[:, :, ::-1])


@kind("^all values are in the reverse order")
def all_reversed(n, rng):
    return n.right[::-1].copy()


def joined(n, together, first="WR"):
    """Concatenate W and R of each layer, then biases as cuDNN has them."""
    if n.spec.proj_size:
        return None
    parts = []
    for at in n.biases:
        a, b = (n.matrices[*at, role] for role in first)
        parts.append(together(a, b).ravel())
    return np.concatenate([*parts, n.flat_biases])


@kind("joined")
def joined_rows(n, rng):
    return joined(n, lambda w, r: np.concatenate([w, r], 2))


@kind("joined")
def joined_rows_recurrent_first(n, rng):
    return joined(n, lambda w, r: np.concatenate([w, r], 2), "RW")


@kind("joined")
def joined_gates(n, rng):
    flat = [n.gates, -1]
    return joined(n, lambda w, r: np.concatenate([w.reshape(flat), r.reshape(flat)], 1))


@kind("transposed")
def joined_as_tensorflow(n, rng):
    return joined(n, lambda w, r: np.concatenate([w, r], 2).transpose(2, 0, 1))


@kind("transposed")
def joined_as_tensorflow_recurrent_first(n, rng):
    return joined(n, lambda w, r: np.concatenate([w, r], 2).transpose(2, 0, 1), "RW")


def sorted_as(n, key):
    names = sorted(n.matrices, key=key)
    return np.concatenate([*(n.matrices[name].ravel() for name in names), n.flat_biases])


@kind("sorted by role")
def by_role(n, rng):
    if n.spec.num_layers * n.spec.num_directions == 1:
        return None
    return sorted_as(n, lambda name: ("WRP".index(name[2]), *name[:2]))


@kind("directions? ")
def by_direction(n, rng):
    if n.spec.num_layers == 1 or n.spec.num_directions == 1:
        return None
    return sorted_as(n, lambda name: (name[1], name[0], "WRP".index(name[2])))


@kind("layers are in the order|in the order")
def layers_reversed(n, rng):
    if n.spec.num_layers == 1:
        return None
    return sorted_as(n, lambda name: (-name[0], name[1], "WRP".index(name[2])))


@kind("directions are swapped")
def backward_first(n, rng):
    if n.spec.num_directions == 1:
        return None
    return sorted_as(n, lambda name: (name[0], -name[1], "WRP".index(name[2])))


@kind("recurrent matrix, input matrix|in the order")
def recurrent_first(n, rng):
    return sorted_as(n, lambda name: (*name[:2], -"WRP".index(name[2])))


# ---------------------------------------------------------------------------------- where biases


@kind("biases come before")
def biases_first(n, rng):
    matrices = n.right[: -n.flat_biases.size]
    return np.concatenate([n.flat_biases, matrices])


@kind("next to its matrices|between the matrices")
def biases_of_each_layer(n, rng):
    if len(n.biases) == 1:
        return None
    parts = []
    for at, b in n.biases.items():
        parts += [x.ravel() for name, x in n.matrices.items() if name[:2] == at] + [b.ravel()]
    return np.concatenate(parts)


@kind("next to|parts|each matrix")
def each_bias_after_its_matrix(n, rng):
    parts = []
    for at, b in n.biases.items():
        parts += [n.matrices[*at, "W"].ravel(), b[0].ravel(), n.matrices[*at, "R"].ravel(),
                  b[1].ravel()]  # fmt: skip
        parts += [n.matrices[*at, "P"].ravel()] if (*at, "P") in n.matrices else []
    return np.concatenate(parts)


@kind("each gate|next to|parts|gate by gate")
def each_bias_after_its_gate(n, rng):
    if n.gates == 1:
        return None
    parts = []
    for at, b in n.biases.items():
        for role, of_role in zip("WR", b, strict=True):
            for matrix, vector in zip(n.matrices[*at, role], of_role, strict=True):
                parts += [matrix.ravel(), vector]
        parts += [n.matrices[*at, "P"].ravel()] if (*at, "P") in n.matrices else []
    return np.concatenate(parts)


@kind("biases are sorted|biases of")
def biases_gate_by_gate(n, rng):
    return n.pack(bias=lambda at, b: b.transpose(1, 0, 2)) if n.gates > 1 else None


@kind("bR comes before bW")
def biases_exchanged(n, rng):
    return n.pack(bias=lambda at, b: b[::-1])


@kind("summed", keeps=False)
def biases_summed(n, rng):
    return n.pack(bias=lambda at, b: np.stack([b[0] + b[1], 0 * b[1]]))


@kind("except those of gate n: the same function", keeps=False)
def biases_as_in_flax(n, rng):
    def fold(at, b):
        (r, z, new), (r_r, z_r, new_r) = b
        return np.array([[r + r_r, z + z_r, new], [0 * r, 0 * z, new_r]])

    return n.pack(bias=fold) if n.spec.cell == "gru" else None


@kind("one bias vector", keeps=False)
def one_summed_bias(n, rng):
    return n.pack(bias=lambda at, b: b[0] + b[1])


@kind("left out|last .* missing", keeps=False)
def no_biases(n, rng):
    return n.right[: -n.flat_biases.size]


@kind("replaced by 0", keeps=False)
def biases_zero(n, rng):
    return n.pack(bias=lambda at, b: 0 * b)


@kind("forget bias", keeps=False)
def forget_bias(n, rng):
    def add(at, b):
        b = b.copy()
        b[0, 1] += 1
        return b

    return n.pack(bias=add) if n.spec.cell == "lstm" else None


# -------------------------------------------------------------------------------------- the values


@kind(r"multiplied by 2\b")
def doubled(n, rng):
    return 2 * n.right


@kind(r"multiplied by 1\.1\b", keeps=False)
def a_tenth_more(n, rng):
    return np.float32(1.1) * n.right


@kind("negated|multiplied by -1")
def negated(n, rng):
    return -n.right


@kind(r"multiplied by 0\.5\b")
def input_halved(n, rng):
    return n.pack(lambda name, x: x / 2 if name[2] == "W" else x)


@kind("recurrent.*multiplied by 4|multiplied by 4")
def one_matrix_times_four(n, rng):
    return n.pack(lambda name, x: 4 * x if name == (0, 0, "R") else x)


@kind("float16", keeps=False)
def rounded_to_half(n, rng):
    return n.right.astype("f2").astype("f4")


@kind("bfloat16", keeps=False)
def cut_to_bfloat16(n, rng):
    return (n.right.view("u4") & 0xFFFF0000).view("f4")


@kind("float64")
def as_float64(n, rng):
    return n.right.astype("f8")


@kind("big-endian")
def big_endian(n, rng):
    return n.right.byteswap()


def quantize(x, steps, low=None, high=None):
    scale = (abs(x).max() / steps) if low is None else (high - low) / steps
    if low is None:
        return np.rint(x / scale) * scale
    zero = np.rint(-low / scale)
    return (np.clip(np.rint(x / scale) + zero, 0, steps) - zero) * scale


@kind("quantized to 8 bits", keeps=False)
def int8_per_matrix(n, rng):
    return n.pack(lambda name, x: quantize(x, 127))


@kind("quantized to 8 bits", keeps=False)
def int8_one_scale(n, rng):
    return quantize(n.right, 127).astype("f4")


@kind("quantized to 8 bits", keeps=False)
def int8_per_row(n, rng):
    if min(n.spec.input_size, n.spec.hidden_size) < 3:
        return None
    return n.pack(lambda name, x: np.array([[quantize(row, 127) for row in gate] for gate in x]))


@kind("quantized to 8 bits", keeps=False)
def uint8_as_an_observer_does(n, rng):
    return n.pack(lambda name, x: quantize(x, 255, min(x.min(), 0), max(x.max(), 0)))


@kind("quantized to 7 bits", keeps=False)
def uint7_as_onnxruntime_reduces(n, rng):
    return n.pack(lambda name, x: quantize(x, 127, min(x.min(), 0), max(x.max(), 0)))


@kind("quantized to 4 bits", keeps=False)
def int4_per_matrix(n, rng):
    return n.pack(lambda name, x: quantize(x, 7))


@kind("pruned|are 0", keeps=False)
def pruned(n, rng):
    def cut(name, x):
        return np.where(abs(x) < np.quantile(abs(x), 0.8), 0, x)

    return n.pack(cut)


@kind("changed|near|trained", keeps=False)
def moving_average(n, rng):
    other = Network(n.spec, 77)
    return (np.float32(0.95) * n.right + np.float32(0.05) * other.right).astype("f4")


@kind("changed|near|trained", keeps=False)
def trained_on(n, rng):
    return (n.right + rng.normal(size=n.right.size) * 0.01).astype("f4")


@kind("1 of .* changed", keeps=False)
def one_value_changed(n, rng):
    flat = n.right.copy()
    flat[rng.integers(n.matrices[0, 0, "W"].size)] += 0.25
    return flat


@kind("clipped|changed", keeps=False)
def clipped(n, rng):
    return np.clip(n.right, -0.75, 0.75)


@kind("NaN", keeps=False)
def one_is_nan(n, rng):
    flat = n.right.copy()
    flat[0] = np.nan
    return flat


@kind("hidden units are in another order|hidden units")
def units_permuted(n, rng):
    """The same function, but for the order of the outputs of the last layer."""
    if n.spec.hidden_size < 3 or n.spec.proj_size:
        return None
    D = n.spec.num_directions
    orders = {at: rng.permutation(n.spec.hidden_size) for at in n.biases}

    def matrix(name, x):
        layer, side, role = name
        x = x[:, orders[layer, side]]
        if role == "R":
            return x[:, :, orders[layer, side]]
        if layer:
            H = n.spec.hidden_size
            below = np.concatenate([orders[layer - 1, d] + d * H for d in range(D)])
            return x[:, :, below]
        return x

    return n.pack(matrix, lambda at, b: b[:, :, orders[at]])


# ------------------------------------------------------------------- headers, padding, cut buffers


@kind("32 too many|32 .* before")
def zeros_in_front(n, rng):
    return np.concatenate([np.zeros(32, "f4"), n.right])


@kind("32 too many|32 .* before|128 bytes")
def zeros_in_front_as_bytes(n, rng):
    return zeros_in_front(n, rng).tobytes()


@kind("17 too many|17 .* before")
def header_of_numbers(n, rng):
    return np.concatenate([rng.normal(size=17).astype("f4"), n.right])


@kind("too many|before|bytes")
def npy_file_read_raw(n, rng):
    import io

    file = io.BytesIO()
    np.save(file, n.right)
    return file.getvalue()


@kind("too many|before|bytes")
def header_of_six_bytes(n, rng):
    return b"LSTM1\n" + n.right.tobytes()


@kind("5 too many|5 .* after")
def trailer(n, rng):
    return np.concatenate([n.right, np.arange(5, dtype="f4")])


@kind("too many|padded|between")
def each_matrix_padded(n, rng):
    """To 128 bytes."""
    parts = []
    for x in [*n.matrices.values(), *n.biases.values()]:
        parts += [x.ravel(), np.zeros(-x.size % 32, "f4")]
    return np.concatenate(parts)


@kind("padded|too many")
def hidden_padded_to_eight(n, rng):
    """Not for several bidirectional layers: their input columns come in two parts, which diagnose()
    does not search for."""
    H, up = n.spec.hidden_size, -n.spec.hidden_size % 8
    if not up or n.spec.proj_size or (n.spec.num_layers > 1 and n.spec.bidirectional):
        return None

    def matrix(name, x):
        columns = up if name[2] == "R" else 0
        if name[2] == "W" and name[0]:
            x = x.reshape(*x.shape[:2], n.spec.num_directions, H)
            x = np.pad(x, ((0, 0), (0, 0), (0, 0), (0, up)))
            x = x.reshape(*x.shape[:2], -1)
        return np.pad(x, ((0, 0), (0, up), (0, columns)))

    return n.pack(matrix, lambda at, b: np.pad(b, ((0, 0), (0, 0), (0, up))))


@kind("rolled|later|earlier|shifted")
def rolled_by_one(n, rng):
    return np.roll(n.right, 1)


@kind("rolled|later|earlier|shifted")
def rolled_back(n, rng):
    return np.roll(n.right, -n.spec.hidden_size)


@kind("first one is missing", keeps=False)
def first_missing(n, rng):
    return n.right[1:]


@kind("last .* missing|left out", keeps=False)
def cut_at_the_end(n, rng):
    return n.right[: n.right.size - int(rng.integers(1, n.right.size // 2))]


@kind("first .* missing", keeps=False)
def cut_in_front(n, rng):
    return n.right[int(rng.integers(2, n.right.size // 2)) :]


@kind("missing", keeps=False)
def cut_at_both_ends(n, rng):
    cut = int(rng.integers(1, n.right.size // 4))
    return n.right[cut:-cut]


@kind("missing|expected", keeps=False)
def a_matrix_left_out(n, rng):
    first = n.matrices[0, 0, "W"].size
    return np.concatenate([n.right[:first], n.right[first + n.matrices[0, 0, "R"].size :]])


@kind("not in the buffer|not found", keeps=False)
def forward_twice(n, rng):
    if n.spec.num_directions == 1:
        return None
    return n.pack(lambda name, x: n.matrices[name[0], 0, name[2]], lambda at, b: n.biases[at[0], 0])


@kind("not in the buffer|not found", keeps=False)
def a_gate_twice(n, rng):
    if n.gates == 1 or n.spec.hidden_size < 2:
        return None
    return n.pack(lambda name, x: x[[0, 0, *range(2, len(x))]] if len(x) > 1 else x)


@kind("not in the buffer|not found", keeps=False)
def other_recurrent_matrix(n, rng):
    other = Network(n.spec, 5)
    return n.pack(lambda name, x: other.matrices[name] if name == (0, 0, "R") else x)


# ------------------------------------------------------------------------------------ other weights


@kind("not found|none of", keeps=False, other=True)
def other_weights(n, rng):
    return Network(n.spec, 5).right


@kind("not found|none of", keeps=False, other=True)
def random_numbers(n, rng):
    return rng.normal(size=n.right.size).astype("f4")


@kind("not found|none of", keeps=False, other=True)
def other_weights_and_five(n, rng):
    return rng.normal(size=n.right.size + 5).astype("f4")


@kind("not found|none of", keeps=False, other=True)
def other_weights_twice_as_many(n, rng):
    return rng.normal(size=2 * n.right.size).astype("f4")


@kind("not found|none of", keeps=False, other=True)
def zeros(n, rng):
    return np.zeros(n.right.size, "f4")


@kind("not found|none of", keeps=False, other=True)
def shuffled(n, rng):
    return rng.permutation(n.right)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What was answered: `named` rightly, `restored` bit for bit (None: that is impossible), `sure`
    of something wrong, or `crash`ed."""

    kind: str
    spec: rl.Spec
    named: bool
    restored: bool | None
    wrong: bool
    crash: str
    text: str


def judge(name, n, buffer):
    """Ask for a diagnosis of a buffer, and judge it."""
    one = KINDS[name]
    try:
        found = rl.diagnose(buffer, like=n.like, spec=n.spec)
    except Exception as error:
        return Verdict(name, n.spec, False, None, False, f"{type(error).__name__}: {error}", "")
    named = bool(re.search(one.says, str(found)))
    exact = found.fixed is not None and found.fixed.tobytes() == n.right.tobytes()
    if one.other:
        return Verdict(name, n.spec, named and not found.same, None, found.sure, "", found.text)
    restored = exact if one.keeps else None
    # Sure of something else: a wrong buffer as the right one, or a mistake that was not made.
    wrong = found.sure and not (exact if one.keeps else named)
    return Verdict(name, n.spec, named, restored, wrong, "", found.text)


def verdicts(kinds=None, networks=NETWORKS, seed=0):
    """Yield a verdict for each kind of packer and each network that it can pack."""
    for k, spec in enumerate(networks):
        n = Network(spec, seed)
        for name in kinds or KINDS:
            rng = np.random.default_rng([seed + 1000, k])
            buffer = KINDS[name].make(n, rng)
            same = isinstance(buffer, np.ndarray) and buffer.tobytes() == n.right.tobytes()
            if buffer is not None and (name == "right" or not same):
                yield judge(name, n, buffer)
