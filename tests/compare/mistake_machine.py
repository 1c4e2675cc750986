"""A machine that packs weights wrongly, in code of its own, and knows which mistakes it made.

It shares nothing with the package but the names of the mistakes.
"""

import dataclasses

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
# Of these the two vectors are alike afterwards, or both from one sum: their order does not show.
ORDERLESS = {"summed", "summed-recurrent", "sum-twice", "sum-halved", "dropped", "bW-twice",
             "bR-twice"}  # fmt: skip
LOSES = {*RULES} - {"halved", "doubled"}


@dataclasses.dataclass(frozen=True)
class Made:
    """One mistake. kind: two of one kind cannot be combined. where: None: not checked."""

    kind: str
    rule: str
    where: frozenset | None
    do: object
    loses: bool = False
    hidden_by: frozenset = frozenset()  # rules with which it does not show


class Packer:
    """Packs the weights of torch's names into one buffer: right, unless a mistake changes it."""

    def __init__(self, spec, tensors):
        self.spec = spec
        self.G = G = len(GATES[spec.cell])
        self.roles = ["W", "R"] + ["P"] * bool(spec.proj_size)
        self.layers, self.sides = range(spec.num_layers), range(spec.num_directions)
        names = {"W": "weight_ih", "R": "weight_hh", "P": "weight_hr"}
        self.matrices, self.biases = {}, {}
        for layer in self.layers:
            for side in self.sides:
                end = f"_l{layer}" + "_reverse" * side
                for role in self.roles:
                    x = tensors[names[role] + end]
                    parts = 1 if role == "P" else G
                    self.matrices[layer, side, role] = x.reshape(parts, -1, x.shape[1]).copy()
                b = [tensors[n + end].reshape(G, -1) for n in ("bias_ih", "bias_hh")
                     if n + end in tensors]  # fmt: skip
                kept = {"double": b, "input": b[:1], "recurrent": b[1:], "none": []}[spec.bias]
                shape = len(kept), G, spec.hidden_size
                self.biases[layer, side] = np.array(kept, "f4").reshape(shape)
        self.orders, self.forms, self.rules, self.shift = {}, {}, {}, None
        self.negated, self.by_role, self.sides_outside, self.joined = {}, False, False, None
        self.placement, self.bias_axes, self.exchanged, self.left_out = "after", "ldvgo", False, ()
        self.encode = lambda flat: flat

    def bias(self, at):
        """Return the bias vectors of a layer and direction, gates in their wrong order."""
        b = self.biases[at].copy()
        if at in self.rules and len(b) == 2:
            b = np.array(RULES[self.rules[at]](*b))
        if self.shift:
            b[self.shift[0], 1] += np.asarray(self.shift[1], b.dtype)
        if self.negated.get((*at, "b")) is not None:
            b[:, self.negated[*at, "b"]] *= -1
        return b[:, list(self.orders.get((*at, "b"), range(self.G)))]

    def matrix(self, name):
        x = self.matrices[name].copy()
        if self.negated.get(name) is not None:
            x[self.negated[name]] *= -1
        if name in self.orders:
            x = x[list(self.orders[name])]
        return self.forms.get(name, np.ravel)(x)

    def sequence(self):
        sides, layers = list(self.sides), list(self.layers)
        if self.by_role:
            return [(k, d, r) for r in self.roles for k in layers for d in sides]
        if self.sides_outside:
            return [(k, d, r) for d in sides for k in layers for r in self.roles]
        return [(k, d, r) for k in layers for d in sides for r in self.roles]

    def all_biases(self):
        """Return all biases in their wrong order, flat."""
        sides, layers = list(self.sides), list(self.layers)
        b = np.array([[self.bias((k, d)) for d in sides] for k in layers])
        if self.exchanged:
            b = b[:, :, ::-1]
        b = b[:, :, [v for v in range(b.shape[2]) if v not in self.left_out]]
        axes = self.bias_axes
        if self.sides_outside and axes.startswith("ld"):
            axes = "dl" + axes[2:]
        return b.transpose(["ldvgo".index(axis) for axis in axes]).ravel()

    def pack(self):
        names = self.sequence()
        chunks = [(name, self.matrix(name)) for name in names]
        if self.joined:
            chunks = self.joined_chunks(dict(chunks))
        last, b = self.roles[-1], self.all_biases()
        ends, count = {
            "after each": (lambda name: name[2] == last, len(self.biases)),
            "after layer": (lambda name: name[1:] == ([*self.sides][-1], last), len(self.layers)),
        }.get(self.placement, (lambda name: False, 1))
        pieces, parts = iter(np.split(b, count)), []
        if self.placement == "first":
            parts += pieces
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


def single_mistakes(spec, rng):
    """Yield all single mistakes that this RNN can be packed with."""
    cell, G = GATES[spec.cell], len(GATES[spec.cell])
    D, L = spec.num_directions, spec.num_layers
    names = [(k, d, r) for k in range(L) for d in range(D) for r in "WR"]
    every = [(k, d, r) for k in range(L) for d in range(D)
             for r in ("WRP" if spec.proj_size else "WR")]  # fmt: skip
    biases = [(k, d, "b") for k in range(L) for d in range(D)] if spec.bias != "none" else []
    scopes = {"all": names + biases, "W": [n for n in names if n[2] == "W"],
              "R": [n for n in names if n[2] == "R"]}  # fmt: skip
    if biases:
        scopes["b"] = biases
    if D == 2:
        scopes["backward"] = [n for n in names + biases if n[1] == 1]
    if L > 1:
        scopes["top"] = [n for n in names + biases if n[0] == L - 1]

    def setting(**values):
        return lambda packer: packer.__dict__.update(values)

    def update(field, values):
        return lambda packer: getattr(packer, field).update(values)

    if G > 1:
        orders = [(0, 1, 3, 2), (0, 2, 1, 3), (2, 1, 0, 3), (1, 2, 3, 0)] if G == 4 else [
            (1, 0, 2), (0, 2, 1), (2, 0, 1)]  # fmt: skip
        for scope, where in scopes.items():
            order = orders[rng.integers(len(orders))]
            rule = "gates " + "".join(cell[k] for k in order)
            hidden = frozenset({"dropped", "left out"} if scope == "b" else ())
            yield Made("gates", rule, frozenset(where),
                       update("orders", dict.fromkeys(where, order)), hidden_by=hidden)  # fmt: skip
    for form, do in FORMS.items():
        if G == 1 and form != "gio/goi" and form != "goi/gio":
            continue
        for scope in ("all", "W", "R", "backward", "top"):
            with_p = form in ("gio/goi", "igo/goi", "goi/gio", "goi/igo")
            pool = every if with_p else names
            where = {"all": pool, "W": scopes["W"], "R": scopes["R"]}.get(scope)
            if where is None:
                if scope not in scopes:
                    continue
                where = [n for n in pool if n in scopes[scope] or (n[2] == "P" and
                         (n[1] == 1 if scope == "backward" else n[0] == L - 1))]  # fmt: skip
            square = all(r == "R" or k for k, _, r in where) and not spec.proj_size
            if form == "goi/gio" and square and (D == 1 or scope == "R"):
                continue  # the same as a transposition
            yield Made("form", f"form {form}", frozenset(where),
                       update("forms", dict.fromkeys(where, do)))  # fmt: skip
    if spec.cell == "gru":
        yield Made("negated", "negated z", frozenset(names + biases),
                   update("negated", dict.fromkeys(names + biases, 1)))  # fmt: skip
        yield Made("negated", "negated z", frozenset(names),
                   update("negated", dict.fromkeys(names, 1)),
                   hidden_by=frozenset({"dropped", "left out"}))  # fmt: skip
    if L > 1:
        order = " ".join(map(str, range(L - 1, -1, -1)))
        yield Made("layers", f"layers {order}", None, setting(layers=range(L - 1, -1, -1)))
    if D == 2:
        yield Made("sides", "directions swapped", None, setting(sides=(1, 0)))
    roles = ["R", "W"] + ["P"] * bool(spec.proj_size)
    yield Made("roles", f"roles {' '.join(roles)}", None, setting(roles=roles))
    if L > 1 or D > 1:
        yield Made("nest", "nest rld", None, setting(by_role=True))
    if L > 1 and D > 1:
        yield Made("nest", "nest dlr", None, setting(sides_outside=True))
    for how in ("gate", "row"):
        if G > 1 or how == "row":
            yield Made("joined", f"joined {how}", None, setting(joined=how))
    if spec.bias == "double":
        yield from _of_biases(spec, names, biases, scopes, setting, update)
    for rule, do in (("byte order", lambda x: x.byteswap()),
                     ("rounded float16", lambda x: x.astype("f2").astype(x.dtype)),
                     ("quantized", quantized), ("dtype float64", lambda x: x.astype("f8")),
                     ("dtype float16", lambda x: x.astype("f2"))):  # fmt: skip
        lossy = rule in ("rounded float16", "quantized", "dtype float16")
        yield Made("encode", rule, None, setting(encode=do), loses=lossy)


def _of_biases(spec, names, biases, scopes, setting, update):
    D, L = spec.num_directions, spec.num_layers
    gone = frozenset({"dropped", "left out"})
    if L > 1 or D > 1:
        whose = "layer and direction" if D == 2 else "layer"
        yield Made("placement", f"biases of each {whose}", None, setting(placement="after each"))
    if L > 1 and D > 1:
        yield Made("placement", "biases of each layer", None, setting(placement="after layer"))
    yield Made("placement", "biases first", None, setting(placement="first"))
    yield Made("exchange", "biases exchanged", frozenset(biases), setting(exchanged=True),
               hidden_by=gone | ORDERLESS)  # fmt: skip
    if L > 1 or D > 1:
        yield Made("bias order", "bias order vldgo", None, setting(bias_axes="vldgo"),
                   hidden_by=gone)  # fmt: skip
    if D > 1 and L > 1:
        yield Made("bias order", "bias order lvdgo", None, setting(bias_axes="lvdgo"),
                   hidden_by=gone)  # fmt: skip
    if len(GATES[spec.cell]) > 1:
        yield Made("bias order", "bias order ldgvo", None, setting(bias_axes="ldgvo"),
                   hidden_by=gone)  # fmt: skip
        yield Made("bias order", "bias order ldvog", None, setting(bias_axes="ldvog"),
                   hidden_by=gone)  # fmt: skip
    for rule in RULES:
        for scope in ("all", "backward"):
            where = [n for n in scopes.get(scope, ()) if n[2] == "b"]
            if where:
                yield Made("bias rule", rule, frozenset(where),
                           update("rules", {n[:2]: rule for n in where}),
                           rule in LOSES)  # fmt: skip
    yield Made("bias rule", "left out", None, setting(left_out=(0, 1)), True)
    if spec.cell == "lstm":
        for shift in (1.0, -1.0):
            yield Made("shift", f"forget bias {shift:+g}", frozenset(biases),
                       setting(shift=(0, shift)), True, hidden_by=gone)  # fmt: skip


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
    packer = Packer(spec, packed)
    for one in mistakes:
        one.do(packer)
    return right(spec, like), packer.pack(), right(spec, packed)


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
    made = tuple(sorted(made + ["changed"] * bool(change)))
    named = tuple(sorted(one.rule for one in found.mistakes))
    exactly = made == named and found.same
    for one in mistakes:
        where = [set(other.where) for other in found.mistakes if other.rule == one.rule]
        exactly &= one.where is None or where == [set(one.where)]
    restored = None
    if not any(one.loses for one in mistakes):
        restored = found.fixed is not None and found.fixed.tobytes() == true.tobytes()
    return Verdict(spec, made, named, exactly, restored, found.sure and not exactly)


def singles(specs=None):
    """Yield a verdict of each single mistake of each RNN."""
    rng = np.random.default_rng(0)
    for spec in specs or CELLS:
        for seed, one in enumerate(single_mistakes(spec, rng)):
            yield judge(spec, [one], seed)


COMBINED = 400


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
