"""A machine that packs weights wrongly, in code of its own, and knows which mistakes it made.

It shares nothing with the package but the names of the mistakes.
"""

import dataclasses
import itertools

import numpy as np
from oracles.some import normal_weights

import rnnlayout as rl

GATES = {"lstm": "ifgo", "gru": "rzn", "rnn_tanh": "h", "rnn_relu": "h"}


def each(change):
    return lambda x: np.concatenate([change(gate).ravel() for gate in x])


FORMS = {
    "gio/goi": each(lambda gate: gate.T),
    "igo/goi": lambda x: x.reshape(-1, x.shape[2]).T.ravel(),
    "goi/gio": each(lambda gate: gate.reshape(gate.shape[::-1]).T),
    "goi/igo": lambda x: x.reshape(x.shape[2], -1).T.ravel(),
    "ogi/goi": lambda x: x.transpose(1, 0, 2).ravel(),
    "iog/goi": lambda x: x.transpose(2, 1, 0).ravel(),
    "oig/goi": lambda x: x.transpose(1, 2, 0).ravel(),
}
RULES = {
    "summed": lambda w, r: (w + r, 0 * r),
    "summed-recurrent": lambda w, r: (0 * w, w + r),
    "sum-twice": lambda w, r: (w + r, w + r),
    "sum-halved": lambda w, r: ((w + r) / 2, (w + r) / 2),
    "halved": lambda w, r: (w / 2, r / 2),
    "doubled": lambda w, r: (2 * w, 2 * r),
    "bR-dropped": lambda w, r: (w, 0 * r),
    "bW-dropped": lambda w, r: (0 * w, r),
    "dropped": lambda w, r: (0 * w, 0 * r),
    "bW-twice": lambda w, r: (w, w),
    "bR-twice": lambda w, r: (r, r),
}
WITH_P = ("gio/goi", "igo/goi", "goi/gio", "goi/igo")  # forms that a projection may have
# Of these the two vectors are alike afterwards, or both from one sum: their order does not show.
ORDERLESS = {"summed", "summed-recurrent", "sum-twice", "sum-halved", "dropped", "bW-twice",
             "bR-twice"}  # fmt: skip
LOSES = {*RULES} - {"halved", "doubled"}


@dataclasses.dataclass(frozen=True)
class Made:
    """One mistake. kind: two of one kind cannot be combined. how: what it changes in a Packer.
    where: None: not checked. hidden_by: the rules with which it does not show."""

    kind: str
    rule: str
    how: dict
    where: frozenset | None = None
    loses: bool = False
    hidden_by: frozenset = frozenset()


class Packer:
    """Packs the weights of torch's names into one buffer: right, unless a mistake changes it.

    matrices: [layer, direction, role] as (gates, rows, columns). biases: [layer, direction] as
    (vectors, gates, H).
    """

    def __init__(self, spec, tensors, **how):
        self.spec, self.G = spec, len(GATES[spec.cell])
        self.roles = ["W", "R"] + ["P"] * bool(spec.proj_size)
        self.layers, self.sides = range(spec.num_layers), range(spec.num_directions)
        names = {"W": "weight_ih", "R": "weight_hh", "P": "weight_hr"}
        self.matrices, self.biases = {}, {}
        for layer, side in itertools.product(self.layers, self.sides):
            end = f"_l{layer}" + "_reverse" * side
            for role in self.roles:
                x = tensors[names[role] + end]
                parts = 1 if role == "P" else self.G
                self.matrices[layer, side, role] = x.reshape(parts, -1, x.shape[1])
            b = [tensors[n + end] for n in ("bias_ih", "bias_hh") if n + end in tensors]
            kept = {"double": b, "input": b[:1], "recurrent": b[1:], "none": []}[spec.bias]
            shape = len(kept), self.G, spec.hidden_size
            self.biases[layer, side] = np.array(kept, "f4").reshape(shape)
        self.orders, self.forms, self.rules, self.negated, self.shift = {}, {}, {}, (), 0.0
        self.nest, self.joined, self.placement, self.encode = "ldr", None, "last", lambda flat: flat
        self.bias_axes, self.exchanged, self.left_out = "ldvgo", False, ()
        vars(self).update(how)

    def bias(self, at):
        """Return the bias vectors of a layer and direction, gates in their wrong order."""
        b = self.biases[at].copy()
        if at in self.rules and len(b) == 2:
            b = np.array(RULES[self.rules[at]](*b))
        if self.shift:
            b[0, 1] += np.float32(self.shift)
        if (*at, "b") in self.negated:
            b[:, 1] *= -1
        return b[:, list(self.orders.get((*at, "b"), range(self.G)))]

    def matrix(self, name):
        x = self.matrices[name].copy()
        if name in self.negated:
            x[1] *= -1
        if name in self.orders:
            x = x[list(self.orders[name])]
        return self.forms.get(name, np.ravel)(x)

    def sequence(self):
        """Return the names of all matrices. nest: the slowest of layer, direction, role first."""
        choices = {"l": self.layers, "d": self.sides, "r": self.roles}
        for values in itertools.product(*(choices[letter] for letter in self.nest)):
            name = dict(zip(self.nest, values, strict=True))
            yield name["l"], name["d"], name["r"]

    def all_biases(self):
        """Return all biases in their wrong order, flat."""
        b = np.array([[self.bias((k, d)) for d in self.sides] for k in self.layers])
        if self.exchanged:
            b = b[:, :, ::-1]
        b = b[:, :, [v for v in range(b.shape[2]) if v not in self.left_out]]
        axes = self.bias_axes
        if self.nest == "dlr" and axes.startswith("ld"):
            axes = "dl" + axes[2:]
        return b.transpose(["ldvgo".index(axis) for axis in axes]).ravel()

    def pack(self):
        chunks = [(name, self.matrix(name)) for name in self.sequence()]
        if self.joined:
            chunks = self.joined_chunks(dict(chunks))
        last, b = self.roles[-1], self.all_biases()
        ends, count = {
            "after each": (lambda name: name[2] == last, len(self.biases)),
            "after layer": (lambda name: name[1:] == ([*self.sides][-1], last), len(self.layers)),
        }.get(self.placement, (lambda name: False, 1))
        pieces = iter(np.split(b, count))
        parts = [*pieces] if self.placement == "first" else []
        for name, chunk in chunks:
            parts += [chunk, next(pieces)] if ends(name) else [chunk]
        return self.encode(np.concatenate([*parts, *pieces]))

    def joined_chunks(self, chunks):
        """Return W and R of each layer and direction side by side, row by row or gate by gate."""
        found, runs = [], self.G if self.joined == "gate" else self.G * self.spec.hidden_size
        for at in dict.fromkeys(name[:2] for name in chunks):
            both = [chunks[*at, role].reshape(runs, -1) for role in self.roles if role != "P"]
            found.append(((*at, "WR"), np.concatenate(both, axis=1).ravel()))
            found += [((*at, "P"), chunks[*at, "P"])] if "P" in self.roles else []
        return found


def quantized(flat):
    scale = np.abs(flat).max() / 127
    return (np.rint(flat / scale) * scale).astype(flat.dtype)


# rule: what is done to the whole buffer
ENCODINGS = {
    "byte order": lambda x: x.byteswap(),
    "rounded float16": lambda x: x.astype("f2").astype(x.dtype),
    "quantized": quantized,
    "dtype float64": lambda x: x.astype("f8"),
    "dtype float16": lambda x: x.astype("f2"),
}
ORDERS = {3: [(1, 0, 2), (0, 2, 1), (2, 0, 1)],
          4: [(0, 1, 3, 2), (0, 2, 1, 3), (2, 1, 0, 3), (1, 2, 3, 0)]}  # fmt: skip
GONE = frozenset({"dropped", "left out"})


def single_mistakes(spec, rng):
    """Yield all single mistakes that this RNN can be packed with."""
    L, D, G = spec.num_layers, spec.num_directions, len(GATES[spec.cell])
    both, deep, roles = D > 1, L > 1, ["W", "R"] + ["P"] * bool(spec.proj_size)
    every = list(itertools.product(range(L), range(D), roles))
    names = [name for name in every if name[2] != "P"]
    biases = [(k, d, "b") for k in range(L) for d in range(D)] if spec.bias != "none" else []
    scopes = {
        "all": lambda name: True,
        "W": lambda name: name[2] == "W",
        "R": lambda name: name[2] == "R",
        "b": lambda name: name[2] == "b",
        "backward": lambda name: both and name[1] == 1,
        "top": lambda name: deep and name[0] == L - 1,
    }

    def scoped(pool):
        return {
            scope: found for scope, is_in in scopes.items() if (found := [*filter(is_in, pool)])
        }

    for scope, where in scoped(names + biases).items() if G > 1 else ():
        order = ORDERS[G][rng.integers(len(ORDERS[G]))]
        yield Made("gates", "gates " + "".join(GATES[spec.cell][k] for k in order),
                   {"orders": dict.fromkeys(where, order)}, frozenset(where),
                   hidden_by=GONE if scope == "b" else frozenset())  # fmt: skip
    for form in FORMS if G > 1 else ("gio/goi", "goi/gio"):
        for scope, where in scoped(every if form in WITH_P else names).items():
            square = all(r == "R" or k for k, _, r in where) and not spec.proj_size
            # the same as a transposition
            if form != "goi/gio" or not square or (both and scope != "R"):
                yield Made("form", f"form {form}", {"forms": dict.fromkeys(where, FORMS[form])},
                           frozenset(where))  # fmt: skip
    if spec.cell == "gru":
        for where, hidden in ((names + biases, frozenset()), (names, GONE)):
            yield Made("negated", "negated z", {"negated": where}, frozenset(where),
                       hidden_by=hidden)  # fmt: skip
    up = range(L)[::-1]
    whose = "layer and direction" if both else "layer"
    for exists, kind, rule, how in (
        (deep, "layers", f"layers {' '.join(map(str, up))}", {"layers": up}),
        (both, "sides", "directions swapped", {"sides": (1, 0)}),
        (True, "roles", " ".join(["roles R W", *roles[2:]]), {"roles": ["R", "W", *roles[2:]]}),
        (deep or both, "nest", "nest rld", {"nest": "rld"}),
        (deep and both, "nest", "nest dlr", {"nest": "dlr"}),
        (G > 1, "joined", "joined gate", {"joined": "gate"}),
        (True, "joined", "joined row", {"joined": "row"}),
    ):
        if exists:
            yield Made(kind, rule, how)
    for rule, do in ENCODINGS.items():
        yield Made("encode", rule, {"encode": do}, loses="16" in rule or rule == "quantized")
    if spec.bias != "double":
        return
    for exists, rule, placement in (
        (deep or both, f"biases of each {whose}", "after each"),
        (deep and both, "biases of each layer", "after layer"),
        (True, "biases first", "first"),
    ):
        if exists:
            yield Made("placement", rule, {"placement": placement})
    yield Made("exchange", "biases exchanged", {"exchanged": True}, frozenset(biases),
               hidden_by=GONE | ORDERLESS)  # fmt: skip
    for axes, exists in {"vldgo": deep or both, "lvdgo": deep and both, "ldgvo": G > 1,
                         "ldvog": G > 1}.items():  # fmt: skip
        if exists:
            yield Made("bias order", f"bias order {axes}", {"bias_axes": axes}, hidden_by=GONE)
    for rule, scope in itertools.product(RULES, ("all", "backward")):
        if where := scoped(biases).get(scope):
            yield Made("bias rule", rule, {"rules": {n[:2]: rule for n in where}},
                       frozenset(where), rule in LOSES)  # fmt: skip
    yield Made("bias rule", "left out", {"left_out": (0, 1)}, loses=True)
    for shift in (1.0, -1.0) if spec.cell == "lstm" else ():
        yield Made("shift", f"forget bias {shift:+g}", {"shift": shift}, frozenset(biases), True,
                   hidden_by=GONE)  # fmt: skip


def compatible(mistakes):
    """Can these be made at once, and do all of them show?"""
    kinds = {one.kind for one in mistakes}
    rules = {one.rule for one in mistakes}
    if len(kinds) < len(mistakes) or any(one.hidden_by & rules for one in mistakes):
        return False
    clashes = [
        {"joined", "nest"}, {"joined", "form"}, {"joined", "placement"}, {"placement", "nest"},
        {"joined", "roles"}, {"negated", "bias rule"}, {"nest", "bias order"},
    ]  # fmt: skip
    if "left out" in rules and kinds & {"placement", "bias order", "exchange"}:
        return False
    return not any(clash <= kinds for clash in clashes)


# H differs from G: if they are equal, some forms of a recurrent matrix are the same.
CELLS = [
    rl.Spec("lstm", 5, 3), rl.Spec("lstm", 7, 5, 2, True), rl.Spec("lstm", 6, 5, 3),
    rl.Spec("lstm", 7, 6, 2, True, 5), rl.Spec("lstm", 6, 5, 2, bias="none"),
    rl.Spec("lstm", 5, 3, 2, bias="input"), rl.Spec("gru", 5, 4), rl.Spec("gru", 8, 5, 3, True),
    rl.Spec("gru", 6, 4, 2), rl.Spec("gru", 6, 4, 1, True, bias="recurrent"),
    rl.Spec("rnn_tanh", 5, 4, 2, True), rl.Spec("rnn_relu", 7, 4, 3),
]  # fmt: skip


def right(spec, tensors):
    return Packer(spec, tensors).pack()


def case(spec, mistakes, seed=0, change=0):
    """Return the true weights, the wrong buffer, and the right one of what was packed.

    change: so many values were trained further since then.
    """
    like = normal_weights(rl.layout("torch"), spec.replace(bias="none" if spec.bias == "none"
                                                           else "double"), seed)  # fmt: skip
    packed = {name: array.copy() for name, array in like.items()}
    rng = np.random.default_rng(seed)
    for _ in range(change):
        x = packed[f"weight_ih_l{rng.integers(spec.num_layers)}"].reshape(-1)
        x[rng.integers(x.size)] += np.float32(0.25)
    wrong = Packer(spec, packed, **{k: v for one in mistakes for k, v in one.how.items()}).pack()
    return right(spec, like), wrong, right(spec, packed)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether exactly the mistakes made were named, and the buffer restored bit for bit.

    restored: None if values were lost. wrong: a wrong answer given with confidence.
    """

    spec: rl.Spec
    made: tuple[str, ...]
    named: tuple[str, ...]
    exactly: bool
    restored: bool | None
    wrong: bool


def judge(spec, mistakes, seed=0, change=0):
    like, wrong, true = case(spec, mistakes, seed, change)
    found = rl.diagnose(wrong, like=like, spec=spec)
    made = ["biases left out" if one.rule == "left out" else one.rule for one in mistakes]
    made, named = sorted(made + ["changed"] * bool(change)), sorted(x.rule for x in found.mistakes)
    where = {other.rule: {*other.where} for other in found.mistakes}
    exactly = (
        made == named
        and found.same
        and all(one.where is None or where[one.rule] == one.where for one in mistakes)
    )
    lost = any(one.loses for one in mistakes)
    restored = found.fixed is not None and found.fixed.tobytes() == true.tobytes()
    return Verdict(spec, tuple(made), tuple(named), exactly, None if lost else restored,
                   found.sure and not exactly)  # fmt: skip


def singles(specs=None):
    """Yield a verdict of each single mistake of each RNN."""
    rng = np.random.default_rng(0)
    for spec in specs or CELLS:
        for seed, one in enumerate(single_mistakes(spec, rng)):
            yield judge(spec, [one], seed)


COMBINED = 200


def several(count=COMBINED, seed=0):
    """Yield a verdict of so many random pairs and triples, every third with changed values."""
    rng = np.random.default_rng(seed)
    done = 0
    while done < count:
        spec = CELLS[rng.integers(len(CELLS))]
        pool = list(single_mistakes(spec, rng))
        mistakes = [pool[k] for k in rng.choice(len(pool), 2 + done % 2, replace=False)]
        if compatible(mistakes):
            rounds = any(one.kind == "encode" and one.loses for one in mistakes)
            yield judge(spec, mistakes, done, 0 if done % 3 or rounds else 2)
            done += 1
