"""The biases of a packed buffer: in which order they are, and what was done to their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import permutations, product

import numpy as np

from .truth import Truth, comparable, gate_orders, largest

Vectors = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class BiasRule:
    """One row of the table: what was done to the two bias vectors w and r of a layer.

    make: returns what the rule makes of w and r. undo: returns w and r again, as far as that is
    possible. words: what was done, to follow "the biases are". lost: what undo cannot restore, ""
    if it restores everything.
    """

    name: str
    words: str
    make: Vectors
    undo: Vectors
    lost: str = ""

    @property
    def keeps_sum(self) -> bool:
        """Are the sums of the biases right?"""
        return self.lost == _SPLIT and self.name not in ("sum-twice", "folded")


def _zeros_like(x: np.ndarray) -> np.ndarray:
    return np.zeros_like(x)


def _keep_both(w: np.ndarray, r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return w, r


def _but_n(x: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Return x with gate n of another array, for a GRU: its gates are r z n."""
    return np.concatenate([x[..., :-1, :], n[..., -1:, :]], axis=-2)


_SPLIT = "how the sums were split between bW and bR"
BIAS_RULES = (
    BiasRule("kept", "", _keep_both, _keep_both),
    BiasRule(
        "summed",
        "summed (the sum is in bW, and 0 in bR)",
        lambda w, r: (w + r, _zeros_like(r)),
        _keep_both,
        _SPLIT,
    ),
    BiasRule(
        "summed-recurrent",
        "summed (the sum is in bR, and 0 in bW)",
        lambda w, r: (_zeros_like(w), w + r),
        _keep_both,
        _SPLIT,
    ),
    BiasRule(
        "sum-twice",
        "summed (the sum is in both vectors and counts twice)",
        lambda w, r: (w + r, w + r),
        lambda w, r: (w, _zeros_like(r)),
        _SPLIT,
    ),
    BiasRule(
        "sum-halved",
        "summed (half of the sum is in each vector)",
        lambda w, r: (w / 2 + r / 2, w / 2 + r / 2),
        _keep_both,
        _SPLIT,
    ),
    BiasRule(
        "folded",
        "summed, except those of gate n",
        lambda w, r: (_but_n(w + r, w), _but_n(_zeros_like(r), r)),
        _keep_both,
        _SPLIT,
    ),
    BiasRule("halved", "halved", lambda w, r: (w / 2, r / 2), lambda w, r: (w * 2, r * 2)),
    BiasRule("doubled", "doubled", lambda w, r: (w * 2, r * 2), lambda w, r: (w / 2, r / 2)),
    BiasRule(
        "bR-dropped",
        "incomplete: bR is replaced by 0",
        lambda w, r: (w, _zeros_like(r)),
        _keep_both,
        "bR",
    ),
    BiasRule(
        "bW-dropped",
        "incomplete: bW is replaced by 0",
        lambda w, r: (_zeros_like(w), r),
        _keep_both,
        "bW",
    ),
    BiasRule(
        "dropped",
        "replaced by 0",
        lambda w, r: (_zeros_like(w), _zeros_like(r)),
        _keep_both,
        "bW and bR",
    ),
    BiasRule(
        "bW-twice",
        "wrong: bW is in both vectors",
        lambda w, r: (w, w),
        lambda w, r: (w, _zeros_like(r)),
        "bR",
    ),
    BiasRule(
        "bR-twice",
        "wrong: bR is in both vectors",
        lambda w, r: (r, r),
        lambda w, r: (_zeros_like(w), r),
        "bW",
    ),
)
KEPT_RULE = BIAS_RULES[0]
SPLIT_RULE = BiasRule(
    "split", "split differently between bW and bR", _keep_both, _keep_both, _SPLIT
)
# Of a forget gate's bias: the vector that 1 was added to or subtracted from.
BIAS_SHIFTS = ((0, 0.0), (0, 1.0), (0, -1.0), (1, 1.0), (1, -1.0))
_MOST_WRONG = 0.3  # of the values of a layer: values here and there may have been changed
_UNITS = 24  # of a layer: as many are compared, unless the buffer is too short for all biases


@dataclass(frozen=True)
class BiasArrangement:
    """The order of the biases: axes, slowest first (l layer, d direction, v vector, g gate, o
    unit), and which of them are reversed."""

    axes: str = "ldvgo"
    reversed: frozenset[str] = frozenset()

    def undo(self, flat: np.ndarray, sizes: Mapping[str, int]) -> np.ndarray:
        """Return the biases as (L, D, V, G, H)."""
        shape = [sizes[axis] for axis in self.axes]
        array = flat.reshape(shape).transpose([self.axes.index(axis) for axis in "ldvgo"])
        turned: np.ndarray = np.flip(array, tuple("ldvgo".index(axis) for axis in self.reversed))
        return turned


@dataclass(frozen=True)
class LayerBiases:
    """What was done to the biases of one layer and direction."""

    rule: BiasRule
    order: tuple[int, ...]  # of the gates
    signs: tuple[int, ...]  # by place
    shift: tuple[int, float] = BIAS_SHIFTS[0]
    alike: tuple[BiasRule, ...] = ()  # other mistakes that these values cannot be told from
    unknown: bool = False  # these are other biases


@dataclass(frozen=True)
class PackedBiases:
    """How the biases are arranged, and what was done to those of each layer and direction.

    count: how many bias vectors the buffer has per layer and direction. skipped: how many elements
    before them are not biases. wrong: the share of the values that this does not explain.
    """

    arrangement: BiasArrangement
    count: int
    layers: Mapping[tuple[int, int], LayerBiases]
    skipped: int = 0
    wrong: float = 0.0

    @property
    def known(self) -> bool:
        """Are those of any layer and direction recognized?"""
        return not all(layer.unknown for layer in self.layers.values())

    def unrecognized(self) -> PackedBiases:
        """Return what is said of these biases if they are others."""
        layers = {
            at: LayerBiases(
                KEPT_RULE, tuple(sorted(one.order)), (1,) * len(one.signs), unknown=True
            )
            for at, one in self.layers.items()
        }
        return replace(self, layers=layers)


@dataclass(frozen=True)
class ExpectedBiases:
    """The order and the signs that the matrices have. Biases have the same, unless they were
    written in another way.
    """

    arrangement: BiasArrangement = field(default_factory=BiasArrangement)
    orders: Mapping[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    negated: Mapping[tuple[int, int], str] = field(default_factory=dict)


def read_biases(
    truth: Truth, flat: np.ndarray, expected: ExpectedBiases, near: bool
) -> PackedBiases | None:
    """Return how the biases were written to `flat`, None if they cannot be recognized."""
    spec, vectors = truth.spec, len(truth.roles)
    one = spec.num_layers * spec.num_directions * len(truth.gates) * spec.hidden_size
    count = min(flat.size // one, max(vectors, 1), 2)
    if not vectors or not count:
        return None
    best: tuple[float, PackedBiases] | None = None
    extra = flat.size - count * one
    for skipped in {0, extra}:
        part = flat[skipped : skipped + count * one]
        search = _BiasSearch(truth, count, expected, near)
        for cost, arrangement in _arrangements(truth, count, expected.arrangement):
            if best and cost >= best[0]:
                break
            total, biases = search.explain(part, arrangement, skipped)
            if best is None or total + cost < best[0]:
                best = total + cost, biases
    return best[1] if best else None


def _arrangements(
    truth: Truth, count: int, expected: BiasArrangement
) -> list[tuple[int, BiasArrangement]]:
    """Return all arrangements that differ, the likely ones first, each with its cost."""
    sizes = bias_sizes(truth, count)
    index = np.arange(truth.biases[:, :, :1].size * count)
    layer_first = expected.axes.index("l") < expected.axes.index("d")
    found = []
    axes = ["".join(order) + "go" for order in permutations("ldv")]
    axes += [order + "gvo" for order in ("ld", "dl")] + [order + "vog" for order in ("ld", "dl")]
    for one in axes:
        for flags in product((False, True), repeat=3):
            turned = frozenset(axis for axis, flag in zip("ldv", flags, strict=True) if flag)
            cost = int((one.index("l") < one.index("d")) != layer_first)
            cost += one[2:] != "vgo"
            cost += len((turned ^ expected.reversed) & set("ldv"))
            found.append((cost, BiasArrangement(one, turned)))
    found.sort(key=lambda pair: pair[0])
    seen: dict[bytes, tuple[int, BiasArrangement]] = {}
    for cost, arrangement in found:
        seen.setdefault(arrangement.undo(index, sizes).tobytes(), (cost, arrangement))
    return list(seen.values())


def bias_sizes(truth: Truth, count: int) -> dict[str, int]:
    spec = truth.spec
    sizes = spec.num_layers, spec.num_directions, count, len(truth.gates), spec.hidden_size
    return dict(zip("ldvgo", sizes, strict=True))


class _BiasSearch:
    """Compares biases, arranged in one way, with what each rule would have made."""

    def __init__(self, truth: Truth, count: int, expected: ExpectedBiases, near: bool) -> None:
        self.truth, self.count, self.expected = truth, count, expected
        self.units = _UNITS if count == len(truth.roles) else truth.spec.hidden_size
        true = comparable(truth.biases[..., : self.units])
        w = true[:, :, 0]
        r = true[:, :, 1] if len(truth.roles) == 2 else np.zeros_like(w)
        with np.errstate(all="ignore"):
            made = np.stack([np.stack(rule.make(w, r), 2)[:, :, :count] for rule in BIAS_RULES])
            wide = 8 * _eps(truth) * np.broadcast_to((abs(w) + abs(r))[:, :, None], made.shape)
            if near:
                wide = wide + 0.02 * abs(made) + largest(true) / 100
        # Each variant of what a rule made, and how far a value may be from it.
        self.variants = [(1, BIAS_SHIFTS[0]), (-1, BIAS_SHIFTS[0])]
        options, widths = [made, -made], [wide, wide]
        for vector, shift in BIAS_SHIFTS[1:] if "f" in truth.gates else ():
            if vector < count:
                forget = truth.gates.index("f")
                shifted = np.full_like(made, np.nan)
                shifted[..., forget, :] = made[..., forget, :]
                shifted[..., vector, forget, :] += shift
                options.append(shifted)
                widths.append(wide + 8 * _eps(truth))
                self.variants.append((1, (vector, shift)))
        self.made = np.stack(options, 1)  # rule, variant, l, d, v, g, o
        self.wide = np.stack(widths, 1)
        self.orders = gate_orders(len(truth.gates))

    def explain(
        self, flat: np.ndarray, arrangement: BiasArrangement, skipped: int
    ) -> tuple[float, PackedBiases]:
        """Return the best explanation and its cost: 1 per mistake and 1000 per element."""
        x = comparable(
            arrangement.undo(flat, bias_sizes(self.truth, self.count))[..., : self.units]
        )
        options = {at: self._layer(x[at], at) for at in np.ndindex(x.shape[:2])}
        costs = np.array([[cost for cost, _ in row] for row in options.values()])
        picks = costs.argmin(axis=1)
        uniform = int(costs.sum(axis=0).argmin())
        if costs[:, uniform].sum() <= costs.min(axis=1).sum():
            picks[:] = uniform
        layers = {}
        for (layer, direction), row, k in zip(options, options.values(), picks, strict=True):
            alike = tuple(
                one.rule for cost, one in row[1:]
                if k and one.rule is not BIAS_RULES[k] and cost // 1000 <= row[k][0] // 1000
            )  # fmt: skip
            layers[layer, direction] = replace(row[k][1], alike=alike)
            if row[k][0] // 1000 > _MOST_WRONG * x[layer, direction].size:
                layers[layer, direction] = self._other((layer, direction), x[layer, direction])
        picked = costs[np.arange(len(picks)), picks]
        wrong = float((picked // 1000).sum()) / x.size
        return float(picked.sum()), PackedBiases(arrangement, self.count, layers, skipped, wrong)

    def _other(self, at: tuple[int, int], x: np.ndarray) -> LayerBiases:
        """Return what is true of biases that no rule explains: do at least their sums agree?"""
        order = self.expected.orders.get(at, self.orders[0])
        signs = (1,) * len(order)
        if self.count == 2 == len(self.truth.roles):
            true = self.made[BIAS_RULES.index(KEPT_RULE), 0, *at][:, list(order)].sum(axis=0)
            wide = self.wide[BIAS_RULES.index(KEPT_RULE), 0, *at].sum(axis=0)[list(order)]
            if (abs(x.sum(axis=0) - true) <= wide).all():
                return LayerBiases(SPLIT_RULE, order, signs)
        return LayerBiases(KEPT_RULE, self.orders[0], signs, unknown=True)

    def _layer(self, x: np.ndarray, at: tuple[int, ...]) -> list[tuple[float, LayerBiases]]:
        """Return for each rule the cheapest way in which it explains one layer. x: v, g, o."""
        layer, direction = at
        made, wide = (a[:, :, layer, direction] for a in (self.made, self.wide))  # ..., v, g, o
        with np.errstate(all="ignore"):
            gap = abs(x[None, None, :, :, None] - made[:, :, :, None])
            far = ~(gap <= wide[:, :, :, None])  # rule, variant, v, place, gate, o
        cost = far.sum(axis=(2, 5)) * 1000.0  # rule, variant, place, gate
        negated = self.expected.negated.get((layer, direction), "")
        for k, (sign, shift) in enumerate(self.variants):
            for g, gate in enumerate(self.truth.gates):
                cost[:, k, :, g] += (sign == -1) != (gate in negated)
            cost[:, k] += bool(shift[1])
        variant, least = cost.argmin(axis=1), cost.min(axis=1)  # rule, place, gate
        follows = self.expected.orders.get((layer, direction), self.orders[0])
        dear = [0 if one == follows else 0.5 if one == self.orders[0] else 1 for one in self.orders]
        places = np.arange(len(self.truth.gates))
        costs = least[:, places, self.orders].sum(axis=2) + dear  # rule, order
        found = []
        for k, rule in enumerate(BIAS_RULES):
            order = self.orders[int(costs[k].argmin())]
            picked = [self.variants[variant[k, place, gate]] for place, gate in enumerate(order)]
            shift = next((shift for _, shift in picked if shift[1]), BIAS_SHIFTS[0])
            done = LayerBiases(rule, order, tuple(sign for sign, _ in picked), shift)
            found.append((float(costs[k].min()) + bool(k), done))
        return found


def _eps(truth: Truth) -> float:
    return {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23}.get(
        truth.spec.dtype, 2.0**-52
    )
