"""Wrong packers: networks, and mistakes that packers make with them, in code of their own.

A case is a network and up to three mistakes. Edits change the values that were meant; losses
change values for good; a layout mistake changes how a Writer writes arrays; an encoding is done to
the buffer.
"""

import dataclasses

import ml_dtypes
import numpy as np
from compare.mistake_machine import GATES
from compare.packed_arrays import FORMS, Arrays, Writer, shapes_of
from compare.wrong_values import BIAS_LOSSES, DTYPES, ROUNDINGS, via

import rnnlayout as rl

NETWORKS = [
    rl.Spec("lstm", 5, 3), rl.Spec("lstm", 24, 16, 2, True), rl.Spec("lstm", 7, 6, 2, True, 5),
    rl.Spec("lstm", 6, 5, 3), rl.Spec("lstm", 6, 5, 2, bias="none"),
    rl.Spec("lstm", 9, 8, 2, bias="input"), rl.Spec("lstm", 40, 64), rl.Spec("lstm", 16, 256),
    rl.Spec("gru", 7, 5, 2), rl.Spec("gru", 8, 5, 2, True), rl.Spec("gru", 20, 32),
    rl.Spec("gru", 24, 128), rl.Spec("gru", 6, 4, reset="before", bias="input"),
    rl.Spec("gru", 20, 16, reset="before", bias="input"), rl.Spec("rnn_tanh", 5, 4, 2, True),
    rl.Spec("rnn_relu", 12, 48, 2),
]  # fmt: skip
SCOPES = {
    "all": lambda name, last: True, "W": lambda name, last: name[2] == "W",
    "R": lambda name, last: name[2] == "R", "matrices": lambda name, last: name[2] in "WRP",
    "biases": lambda name, last: name[2] in ("bW", "bR"), "bW": lambda name, last: name[2] == "bW",
    "bR": lambda name, last: name[2] == "bR", "backward": lambda name, last: name[1] == 1,
    "top": lambda name, last: name[0] == last > 0, "one": lambda name, last: name == (0, 0, "R"),
}  # fmt: skip


@dataclasses.dataclass
class Mistake:
    """kind: two of one kind are not combined. edit: changes the values that are meant. change:
    changes Arrays; keeps: and can be undone. how: fields of the Writer. encode: changes the
    buffer."""

    kind: str
    name: str
    edit: object = None
    change: object = None
    keeps: bool = False
    how: dict = dataclasses.field(default_factory=dict)
    encode: object = None


def on(scope, function):
    """Return a change of the arrays of a scope."""

    def change(arrays):
        for name, x in arrays.parts().items():
            if SCOPES[scope](name, arrays.spec.num_layers - 1):
                x[...] = function(x)

    return change


def on_biases(function, backward=False):
    def change(arrays):
        for (_, side), b in arrays.biases.items():
            if len(b) == 2 and (side or not backward):
                b[...] = np.stack(function(b[0].copy(), b[1].copy()))

    return change


def shifted(role, gate, number, back=False):
    def change(arrays):
        for name, x in arrays.parts().items():
            if name[2] == role:
                x[gate] += x.dtype.type(number)
                if back:
                    x[gate] -= x.dtype.type(number)

    return change


def negated(scope, gates):
    def change(arrays):
        for name, x in arrays.parts().items():
            if SCOPES[scope](name, arrays.spec.num_layers - 1) and len(x) > 1:
                x[list(gates)] *= -1

    return change


def edits(spec, rng):
    """Yield functions of Arrays that make other weights of them."""
    L, D, G = spec.num_layers, spec.num_directions, len(GATES[spec.cell])
    fresh = int(rng.integers(2**31))

    def values(count, make, biases=False):
        def edit(arrays):
            parts = [x for name, x in arrays.parts().items() if (x.ndim == 2) == biases]
            for _ in range(count if parts else 0):
                x = parts[rng.integers(len(parts))].reshape(-1)
                k = rng.integers(x.size)
                x[k] = make(x[k])

        return edit

    def stale(place, gate=None):
        def edit(arrays):
            other = Arrays(spec, random_flat(spec, arrays.flat().dtype, fresh)).parts()
            for name, x in arrays.parts().items():
                if place(name):
                    where = slice(None) if gate is None else gate
                    x[where] = other[name][where]

        return edit

    def copied(target, source):
        def edit(arrays):
            parts = arrays.parts()
            for name, x in parts.items():
                twin = source(name)
                if target(name) and twin in parts and parts[twin].shape == x.shape:
                    x[...] = parts[twin]

        return edit

    def noisy(arrays):
        noise = np.random.default_rng(fresh)
        for x in arrays.parts().values():
            x[...] = (
                x.astype("f8") + noise.normal(size=x.shape) * 1e-3 / np.sqrt(spec.hidden_size)
            ).astype(x.dtype)

    def other_gate(name, a, b):
        def edit(arrays):
            arrays.parts()[name][a] = arrays.parts()[name][b]

        return edit

    def row(arrays):
        x = arrays.matrices[0, 0, "R"]
        x[0, 1] = random_flat(spec, x.dtype, fresh)[: x.shape[2]]

    yield "one is 7", values(1, lambda v: 7)
    yield "one is NaN", values(1, lambda v: np.nan)
    yield "one is infinite", values(1, lambda v: np.inf)
    yield "one is 0", values(1, lambda v: 0)
    yield "one bias", values(1, lambda v: v + v.dtype.type(0.25), True)
    yield "one ulp", values(1, lambda v: np.nextafter(v, v.dtype.type(9)))
    yield "ten values", values(10, lambda v: v + v.dtype.type(0.5))
    yield (
        "two are NaN, one 100",
        lambda a: [values(2, lambda v: np.nan)(a), values(1, lambda v: 100, True)(a)],
    )
    yield "a stale row", row
    yield "trained further", noisy
    yield "stale W", stale(lambda name: name == (L - 1, 0, "W"))
    yield "stale R", stale(lambda name: name == (0, D - 1, "R"))
    yield "a stale layer", stale(lambda name: name[0] == L - 1) if L > 1 else None
    yield "stale biases", stale(lambda name: name[0] == 0 and name[2] in ("bW", "bR"))
    yield "stale bW", stale(lambda name: name[2] == "bW")
    yield "a stale gate", stale(lambda name: name == (0, 0, "W"), 1) if G > 1 else None
    yield "a stale gate of R", stale(lambda name: name == (L - 1, 0, "R"), 0) if G > 1 else None
    yield "a gate twice", other_gate((0, 0, "R"), 1, 2) if G > 1 else None
    yield "other weights", stale(lambda name: True)
    both = [lambda name: name[1] == 1, lambda name: (name[0], 0, name[2])]
    yield "forward twice", copied(*both) if D > 1 else None
    backward = [(k, 1, role) for k in range(L) for role in ("bW", "bR")]
    yield "forward biases twice", copied(backward.__contains__, both[1]) if D > 1 else None
    yield (
        "layer 1 twice",
        copied(lambda name: name[0] == 2, lambda name: (1, *name[1:])) if L > 2 else None,
    )
    yield "W is 0", on("W", lambda x: 0 * x)
    yield "one matrix is 0", on("one", lambda x: 0 * x)


def mistakes_for(spec, rng):
    """Return all mistakes that can be made with a network."""
    L, D, G = spec.num_layers, spec.num_directions, len(GATES[spec.cell])
    names = [name for name, _ in shapes_of(spec)]
    vectors = {"double": ["bW", "bR"], "none": []}.get(spec.bias, ["bW"])
    biases = [(k, d, v) for k in range(L) for d in range(D) for v in vectors]
    whole, last = spec.reset != "before", L - 1  # tensors keep their shapes
    made = [Mistake("edit", name, edit=edit) for name, edit in edits(spec, rng) if edit]

    def scoped(scope, pool):
        return [name for name in pool if SCOPES[scope](name, last)]

    def scope():
        return str(rng.choice([s for s in SCOPES if scoped(s, names + biases)]))

    for name, function in ROUNDINGS.items():
        s = scope()
        made.append(Mistake("rounding", f"{name} of {s}", change=on(s, function)))
    s = scope()
    made.append(Mistake("rounding", f"x 2 of {s}", change=on(s, lambda x: 2 * x), keeps=True))
    if len(vectors) == 2:
        made += [
            Mistake("bias", name, change=on_biases(rule), keeps=name == "swapped")
            for name, rule in BIAS_LOSSES.items()
        ]
        made.append(
            Mistake("bias", "summed backward", change=on_biases(BIAS_LOSSES["summed"], True))
        )
        made.append(Mistake("bias", "halved", change=on("biases", lambda x: x / 2), keeps=True))
        made.append(Mistake("bias", "doubled", change=on("biases", lambda x: x * 2), keeps=True))
    for gate in range(G) if vectors and G > 1 else ():
        number, role = float(rng.choice([1, -1, 2, 0.5])), str(rng.choice(vectors))
        made.append(
            Mistake("shift", f"{number} in {role} {gate}", change=shifted(role, gate, number))
        )
        made.append(
            Mistake("shift", f"{number} and back", change=shifted(role, gate, number, True))
        )
    for gates in ([1], [0, 2], range(G)) if G > 1 else ():
        s = scope()
        made.append(
            Mistake("sign", f"{[*gates]} of {s} negated", change=negated(s, gates), keeps=True)
        )
    if G > 1:
        for s in SCOPES:
            if where := scoped(s, names + biases):
                order = [int(k) for k in rng.permutation(G)]
                where = [name for name in where if name[2] != "P"]
                made.append(
                    Mistake("gates", f"{order} of {s}", how={"orders": dict.fromkeys(where, order)})
                )
    for form in FORMS:
        s = str(rng.choice(["matrices", "W", "R", "one", "top", "backward"]))
        where = [name for name in scoped(s, names) if name[2] != "P" or form in ("gio/goi",)]
        if where and (G > 1 or form in ("gio/goi", "goi/gio", "rows", "columns", "rolled")):
            made.append(
                Mistake("form", f"{form} of {s}", how={"forms": dict.fromkeys(where, form)})
            )
    if not whole:
        return made
    roles = ("R", "W", "P")[: 2 + bool(spec.proj_size)]
    up, sides = tuple(range(L))[::-1], tuple(range(D))[::-1]
    for exists, kind, how in (
        (L > 1, "layers", {"layers": up}), (D > 1, "sides", {"sides": sides}),
        (True, "nest", {"roles": roles}), (L * D > 1, "nest", {"nest": "rld"}),
        (L > 1 < D, "nest", {"nest": "dlr"}), (L > 1 < D, "nest", {"nest": "drl"}),
        (L * D > 1, "nest", {"nest": "lrd"}),
        (G > 1 and not spec.proj_size, "nest", {"joined": "gate"}),
        (not spec.proj_size, "nest", {"joined": "row"}),
        (vectors, "nest", {"placement": "first"}), (vectors, "nest", {"placement": "between"}),
        (vectors and L * D > 1, "nest", {"placement": "after each"}),
        (vectors and L * D > 1, "nest", {"placement": "before each"}),
        (vectors and L > 1 < D, "nest", {"placement": "after layer"}),
        (vectors[1:], "axes", {"turned": {"v"}}), (vectors and L > 1, "axes", {"turned": {"l"}}),
        (vectors and D > 1, "axes", {"turned": {"d"}}), (vectors[1:], "axes", {"axes": "ldgvo"}),
        (vectors[1:] and L * D > 1, "axes", {"axes": "vldgo"}),
        (vectors[1:], "axes", {"axes": "ldvog"}),
        (vectors[1:] and L > 1 < D, "axes", {"axes": "lvdgo"}),
        (not spec.proj_size and L * D == 1, "nest", {"pad": -spec.hidden_size % 8 or 8}),
    ):  # fmt: skip
        if exists:
            made.append(Mistake(kind, str(how), how=how))
    H = spec.hidden_size
    n = int(rng.integers(1, 2 * H))
    for name, encode in {
        "byteswapped": lambda x: (
            x.byteswap() if x.dtype != ml_dtypes.bfloat16 else x.view("u2").byteswap().view(x.dtype)
        ),
        "float64": lambda x: x.astype("f8"),
        "float16": lambda x: x.astype("f2"),
        "bfloat16": lambda x: x.astype(ml_dtypes.bfloat16),
        "float32": lambda x: x.astype("f4"),
        "reversed": lambda x: np.ascontiguousarray(x[::-1]),
        "rolled": lambda x: np.roll(x, n),
        "end cut": lambda x: x[:-n],
        "front cut": lambda x: x[n:],
        "zeros at the end": lambda x: np.append(x, np.zeros(n, x.dtype)),
        "zeros in front": lambda x: np.append(np.zeros(n, x.dtype), x),
        "bytes in front": lambda x: bytes(n) + x.tobytes(),
        "bytes at the end": lambda x: x.tobytes() + bytes(n),
        "bytes": lambda x: x.tobytes(),
        "twice": lambda x: np.append(x, x),
        "zeros between": lambda x: np.insert(x, len(x) // 2, np.zeros(n, x.dtype)),
        "biases cut": lambda x: x[: x.size - 2 * L * D * G * H] if len(vectors) == 2 else x,
    }.items():
        made.append(Mistake("encoding", name, encode=encode))
    return made


# --------------------------------------------------------------------------------------- the cases


def random_flat(spec, dtype, seed):
    """Return cuDNN's buffer of random weights: uniform as torch makes them, or normal."""
    rng = np.random.default_rng(seed)
    vectors = {"double": 2, "none": 0}.get(spec.bias, 1) * spec.num_layers * spec.num_directions
    size = vectors * len(GATES[spec.cell]) * spec.hidden_size
    size += sum(int(np.prod(shape)) for _, shape in shapes_of(spec))
    bound = spec.hidden_size**-0.5
    flat = rng.uniform(-bound, bound, size) if seed % 2 else rng.normal(size=size) * bound
    return flat.astype("f4").astype(dtype)


@dataclasses.dataclass
class Case:
    """What a wrong packer wrote. like: the true values in cuDNN's order; meant: those of the
    weights that were packed; kept: of these what is not lost. written: the wrong buffer."""

    spec: rl.Spec
    dtype: str
    made: list
    like: np.ndarray
    meant: np.ndarray
    kept: np.ndarray
    written: object

    @property
    def name(self):
        return f"{self.spec} {self.dtype}: {'; '.join(mistake.name for mistake in self.made)}"


def make_case(number):
    """Return a case: every network and dtype in turn, with one to three mistakes."""
    rng = np.random.default_rng([48, number])
    spec, dtype = NETWORKS[number % 16], [*DTYPES][number // 16 % 3]
    like = random_flat(spec, DTYPES[dtype], int(rng.integers(2**31)))
    pool = mistakes_for(spec, rng)
    count = 1 + int(rng.integers(6)) // 3 + int(rng.integers(6)) // 5
    made = []
    kinds = list(dict.fromkeys(mistake.kind for mistake in pool))
    for kind in rng.choice(kinds, count, replace=False):
        alike = [mistake for mistake in pool if mistake.kind == kind]
        made.append(alike[rng.integers(len(alike))])
    arrays = Arrays(spec, like.copy())
    with np.errstate(all="ignore"):
        for mistake in made:
            if mistake.edit:
                mistake.edit(arrays)
        meant = arrays.flat()
        for keeps in (False, True):
            for mistake in made:
                if mistake.change and mistake.keeps is keeps:
                    mistake.change(arrays)
            if not keeps:
                kept = arrays.flat()
        how = {key: value for mistake in made for key, value in mistake.how.items()}
        written = Writer(**how).write(arrays)
        for mistake in made:
            if mistake.encode:
                written = mistake.encode(written)
            if mistake.kind == "encoding" and "float" in mistake.name:
                kept = via(mistake.name)(kept)
    return Case(spec, dtype, made, like, meant, kept, written)
