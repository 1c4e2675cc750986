"""The biases of a packed buffer: the order in the buffer, and the changes of values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, groupby, permutations, product
from math import log10, prod

import numpy as np

from .blocks import UNITS
from .matrix_forms import reorder_axes
from .packed_matrices import LocatedMatrices
from .truth import BIAS_ROLE, MatrixName, Truth, comparable, largest
from .value_rules import round_to_digits

# Of all biases, slowest first: layer, direction, vector, gate, output unit.
BIAS_AXES = "ldvgo"
# For each of the two written vectors, the factors of bW and bR.
Factors = tuple[tuple[float, float], tuple[float, float]]
_KEEP: Factors = ((1, 0), (0, 1))
_SPLIT = "how the sums were split between bW and bR"


@dataclass(frozen=True)
class BiasRule:
    """A row of the table: a change of the two bias vectors w and r of a layer.

    words: the change, to follow "the biases are". factors: of w and r in the two written vectors.
    lost: the part that cannot be restored, "" if all can. inverse: the factors that restore w and
    r, as far as possible. but_n: gate n of a GRU is unchanged.
    """

    name: str
    words: str
    factors: Factors
    lost: str = ""
    inverse: Factors = _KEEP
    but_n: bool = False

    def make(self, w: np.ndarray, r: np.ndarray) -> list[np.ndarray]:
        combined = _combine(self.factors, w, r)
        if self.but_n:  # the gates are r z n
            combined = [
                np.concatenate([x[..., :-1, :], original[..., -1:, :]], axis=-2)
                for x, original in zip(combined, (w, r), strict=True)
            ]
        return combined

    def undo(self, w: np.ndarray, r: np.ndarray) -> list[np.ndarray]:
        return _combine(self.inverse, w, r)

    @property
    def sums(self) -> tuple[bool, ...]:
        """Return for each written vector whether a sum made it, which is rounded."""
        return tuple(all(row) for row in self.factors)

    def roles_in(self, vector: int, roles: Sequence[str], gate: str) -> tuple[str, ...]:
        """Return the roles, of w and r, whose values a gate of a written vector has."""
        if self.but_n and gate == "n":
            return (roles[vector],)
        row = self.factors[vector]
        return tuple(role for role, factor in zip(roles, row, strict=False) if factor)

    @property
    def keeps_sum(self) -> bool:
        """Return whether the sums of the biases are right."""
        sums = [sum(column) for column in zip(*self.factors, strict=True)]
        return all(total == 1 for total in sums) and not self.but_n


def _combine(factors: Factors, w: np.ndarray, r: np.ndarray) -> list[np.ndarray]:
    """Return the two sums of multiples of w and r. A factor 1 alone keeps the bits."""
    sums = []
    for row in factors:
        parts = [
            x if factor == 1 else x * factor
            for x, factor in zip((w, r), row, strict=True)
            if factor
        ]
        sums.append(sum(parts[1:], parts[0]) if parts else np.zeros_like(w))
    return sums


BIAS_RULES = (
    BiasRule("kept", "", _KEEP),
    BiasRule("dropped", "replaced by 0", ((0, 0), (0, 0)), "bW and bR"),
    BiasRule("summed", "summed (the sum is in bW, and 0 in bR)", ((1, 1), (0, 0)), _SPLIT),
    BiasRule(
        "summed-recurrent", "summed (the sum is in bR, and 0 in bW)", ((0, 0), (1, 1)), _SPLIT
    ),
    BiasRule(
        "sum-twice",
        "summed (the sum is in both vectors and counts twice)",
        ((1, 1), (1, 1)),
        _SPLIT,
        ((1, 0), (0, 0)),
    ),
    BiasRule(
        "sum-halved", "summed (half of the sum is in each vector)", ((0.5, 0.5), (0.5, 0.5)), _SPLIT
    ),
    BiasRule("folded", "summed, except those of gate n", ((1, 1), (0, 0)), _SPLIT, but_n=True),
    BiasRule("halved", "halved", ((0.5, 0), (0, 0.5)), "", ((2, 0), (0, 2))),
    BiasRule("doubled", "doubled", ((2, 0), (0, 2)), "", ((0.5, 0), (0, 0.5))),
    BiasRule("bR-dropped", "incomplete: bR is replaced by 0", ((1, 0), (0, 0)), "bR"),
    BiasRule("bW-dropped", "incomplete: bW is replaced by 0", ((0, 0), (0, 1)), "bW"),
    BiasRule("bW-twice", "wrong: bW is in both vectors", ((1, 0), (1, 0)), "bR", ((1, 0), (0, 0))),
    BiasRule(
        "bW-with-sum",
        "wrong: the sum is in bW, and bR beside the sum counts twice",
        ((1, 1), (0, 1)),
        "the last bits of bW",
        ((1, -1), (0, 1)),
    ),
    BiasRule(
        "bR-with-sum",
        "wrong: the sum is in bR, and bW beside the sum counts twice",
        ((1, 0), (1, 1)),
        "the last bits of bR",
        ((1, 0), (-1, 1)),
    ),
    BiasRule("bR-twice", "wrong: bR is in both vectors", ((0, 1), (0, 1)), "bW", ((0, 0), (0, 1))),
)
KEPT_RULE = BIAS_RULES[0]
SPLIT_RULE = BiasRule("split", "split differently between bW and bR", _KEEP, _SPLIT)
_ADDED = 300  # the cost of a number that was added: several are dearer than a split
_SIGNS = (1, -1)
_MOST_WRONG = 0.3  # of the values of a layer: a few values may have been changed
_UNITS = 24  # of a layer: as many are compared to find the arrangement, then all


@dataclass(frozen=True)
class BiasArrangement:
    """The order of the biases: axes, slowest first, and the reversed axes."""

    axes: str = BIAS_AXES
    reversed: frozenset[str] = frozenset()

    def undo(self, flat: np.ndarray, sizes: Mapping[str, int]) -> np.ndarray:
        """Return the biases as (L, D, V, G, H)."""
        array = reorder_axes(flat, sizes, self.axes, BIAS_AXES)
        turned: np.ndarray = np.flip(array, tuple(BIAS_AXES.index(axis) for axis in self.reversed))
        return turned


@dataclass(frozen=True)
class LayerBiases:
    """The change of the biases of a layer and direction. shifts: (vector, gate, number) of each
    gate to the biases of which a number was added."""

    rule: BiasRule
    order: tuple[int, ...]  # of the gates
    signs: tuple[tuple[int, ...], ...]  # by vector and place
    shifts: tuple[tuple[int, int, float], ...] = ()
    alike: tuple[BiasRule, ...] = ()  # mistakes that would give equal values
    unknown: bool = False  # not the true biases
    twin: tuple[int, int] | None = None  # whose biases are in their place


def kept_biases(gates: int, unknown: bool = False) -> LayerBiases:
    return LayerBiases(KEPT_RULE, tuple(range(gates)), ((1,) * gates,) * 2, unknown=unknown)


@dataclass(frozen=True)
class PackedBiases:
    """The arrangement of the biases, and the change of the biases of each layer and direction.

    count: how many bias vectors the buffer has per layer and direction. skipped: how many elements
    before the biases are not biases. wrong: the share of the values that remains unexplained.
    near: whether other values are only near the values that the rules predict.
    """

    arrangement: BiasArrangement
    count: int
    layers: Mapping[MatrixName, LayerBiases]
    skipped: int = 0
    wrong: float = 0.0
    near: bool = False

    @property
    def known(self) -> bool:
        """Return whether the biases of any layer and direction are recognized."""
        return not all(layer.unknown for layer in self.layers.values())

    def take(self, truth: Truth, flat: np.ndarray) -> np.ndarray:
        """Return the biases among values that are not of matrices, as (L, D, V, G, H)."""
        sizes = bias_sizes(truth, self.count)
        return self.arrangement.undo(flat[self.skipped :][: prod(sizes.values())], sizes)


def read_biases(truth: Truth, flat: np.ndarray, matrices: LocatedMatrices) -> PackedBiases | None:
    """Return how the biases were written to `flat`: exactly, and else nearly; None if the biases
    cannot be recognized. matrices: the source of the expected order and signs of the biases."""
    spec, vectors = truth.spec, len(truth.roles)
    num_biases = spec.num_layers * spec.num_directions * len(truth.gates) * spec.hidden_size
    count = min(flat.size // num_biases, max(vectors, 1), 2)
    if not vectors or not count:
        return None
    for near in (False, True):
        best: tuple[float, BiasArrangement, int] | None = None
        for skipped in {0, flat.size - count * num_biases}:
            part = flat[skipped : skipped + count * num_biases]
            search = _BiasSearch(truth, part, count, matrices, near, _UNITS)
            for cost, arrangement in _arrangements(truth, count, layer_order(matrices)):
                if best and cost >= best[0]:
                    break
                total = search.explain(arrangement)[0]
                if best is None or total + cost < best[0]:
                    best = total + cost, arrangement, skipped
        assert best is not None
        _, arrangement, skipped = best
        part = flat[skipped : skipped + count * num_biases]
        search = _BiasSearch(truth, part, count, matrices, near, spec.hidden_size)
        biases = replace(search.explain(arrangement)[1](), skipped=skipped, near=near)
        if biases.wrong < _MOST_WRONG:
            break
    return biases


def layer_order(matrices: LocatedMatrices) -> BiasArrangement:
    """Return the order of layers and directions of the matrices, as an arrangement of biases."""
    names = [name[:2] for name in matrices if name[2] == "R"]
    turned = set()
    for k, axis in enumerate("ld"):
        steps = [a[k] > b[k] for a, b in combinations(names, 2) if a[1 - k] == b[1 - k]]
        turned |= {axis} if steps and all(steps) else set()
    runs = [layer for layer, _ in groupby(layer for layer, _ in names)]
    return BiasArrangement("dlvgo" if len(runs) > len({*runs}) else BIAS_AXES, frozenset(turned))


def _arrangements(
    truth: Truth, count: int, expected: BiasArrangement
) -> list[tuple[int, BiasArrangement]]:
    """Return (cost, arrangement) of all distinct arrangements, the likely arrangements first."""
    sizes = bias_sizes(truth, count)
    index = np.arange(truth.biases[:, :, :1].size * count)
    layer_first = expected.axes.index("l") < expected.axes.index("d")
    arrangements = []
    axes = ["".join(order) + "go" for order in permutations("ldv")]
    axes += [order + "gvo" for order in ("ld", "dl")] + [order + "vog" for order in ("ld", "dl")]
    for order in axes:
        for flags in product((False, True), repeat=3):
            turned = frozenset(axis for axis, flag in zip("ldv", flags, strict=True) if flag)
            cost = int((order.index("l") < order.index("d")) != layer_first)
            cost += order[2:] != "vgo"
            cost += len((turned ^ expected.reversed) & set("ldv"))
            arrangements.append((cost, BiasArrangement(order, turned)))
    arrangements.sort(key=lambda pair: pair[0])
    distinct: dict[bytes, tuple[int, BiasArrangement]] = {}
    for cost, arrangement in arrangements:
        distinct.setdefault(arrangement.undo(index, sizes).tobytes(), (cost, arrangement))
    return list(distinct.values())


def bias_sizes(truth: Truth, count: int) -> dict[str, int]:
    spec = truth.spec
    sizes = spec.num_layers, spec.num_directions, count, len(truth.gates), spec.hidden_size
    return dict(zip(BIAS_AXES, sizes, strict=True))


class _BiasSearch:
    """Compares the biases, in one arrangement after another, with the prediction of each rule for
    the first units."""

    def __init__(
        self,
        truth: Truth,
        flat: np.ndarray,
        count: int,
        matrices: LocatedMatrices,
        near: bool,
        units: int,
    ) -> None:
        self.truth, self.count, self.flat, self.near = truth, count, flat, near
        self.units, self.digits = min(units, truth.spec.hidden_size), min(4, digits_of(truth) - 1)
        true = comparable(truth.biases[..., : self.units])
        w = true[:, :, 0]
        r = true[:, :, 1] if len(truth.roles) == 2 else np.zeros_like(w)
        with np.errstate(all="ignore"):
            results = [np.stack(rule.make(w, r), 2)[:, :, :count] for rule in BIAS_RULES]
            predicted = np.stack(results, 2)
            wide = np.broadcast_to((abs(w) + abs(r))[:, :, None, None], predicted.shape)
            wide = rounding_of_sums(truth) * wide
            if near:
                wide = wide + 0.02 * abs(predicted) + largest(true) / 100
            wide = wide * (predicted != 0)  # nothing changes a 0 that a rule makes
        self.predicted = np.stack([predicted, -predicted], 3)  # l, d, rule, sign, v, g, o
        self.wide = wide
        self.places = [(layer, side) for layer in range(len(w)) for side in range(w.shape[1])]
        self.orders = np.array(list(permutations(range(len(truth.gates)))))
        # The cost of an order of gates and of a sign that the matrices lack.
        self.dear = np.ones((*predicted.shape[:2], len(self.orders)))
        self.dear[..., 0] = 0.5
        self.signs = sorted(product(_SIGNS, repeat=count), key=lambda signs: len({*signs}))
        self.turned = np.zeros((*predicted.shape[:2], len(self.signs), len(truth.gates)))
        for at in self.places:
            order, minus = self.orders[0], np.zeros(len(truth.gates), bool)
            if (*at, "R") in matrices:
                reading = matrices[*at, "R"].reading
                order = np.array(reading.order)
                minus[order] = np.array(reading.signs) == -1
            self.dear[(*at, (self.orders == order).all(axis=1))] = 0
            for k, signs in enumerate(self.signs):
                self.turned[(*at, k)] = (minus != (np.array(signs)[:, None] < 0)).any(axis=0)
        self.likely_orders = self.orders[self.dear.argmin(axis=-1)]  # l, d, place
        self.true = w, r
        self._costs: dict[tuple[int, int, int, int, bool], np.ndarray] = {}

    def explain(self, arrangement: BiasArrangement) -> tuple[float, Callable[[], PackedBiases]]:
        """Return the cost of the best explanation, 1 per mistake and 1000 per element, and a
        function that returns the biases."""
        sizes = bias_sizes(self.truth, self.count)
        x = comparable(arrangement.undo(self.flat, sizes)[..., : self.units])
        start = arrangement.undo(np.arange(self.flat.size), sizes)[..., 0]
        mixed = arrangement.axes[-1] != "o"
        # Of each place, rule, sign and gate.
        by_vector = np.empty((*x.shape[:4], len(BIAS_RULES), len(_SIGNS), x.shape[3]))
        for layer, side, v, place in np.ndindex(x.shape[:4]):
            key = int(start[layer, side, v, place]), layer, side, v, mixed
            if key not in self._costs:
                self._costs[key] = self._compare(x[layer, side, v, place], (layer, side), v)[0]
            by_vector[layer, side, v, place] = self._costs[key]
        by_signs = [
            sum(by_vector[:, :, v, ..., _SIGNS.index(sign), :] for v, sign in enumerate(signs))
            for signs in self.signs
        ]
        cost = np.stack(by_signs, 4) + self.turned[:, :, None, None]
        least = cost.min(axis=4)  # l, d, place, rule, gate
        places = np.arange(x.shape[3])
        costs = least[:, :, places, :, self.orders].sum(axis=1)  # order, l, d, rule
        costs = costs + np.moveaxis(self.dear, -1, 0)[..., None]
        order, costs = costs.argmin(axis=0), costs.min(axis=0)  # l, d, rule
        costs[..., 1:] += 1
        costs = np.concatenate([costs, np.where(self._keeps_sums(x), 999, np.inf)[..., None]], 2)
        uniform = int(costs.sum(axis=(0, 1)).argmin())
        picks = costs.argmin(axis=2)
        if costs[..., uniform].sum() <= costs.min(axis=2).sum():
            picks[...] = uniform
        picked = np.take_along_axis(costs, picks[..., None], 2)[..., 0]

        def biases() -> PackedBiases:
            layers = {(*at, BIAS_ROLE): layer_biases(at) for at in self.places}
            wrong = float((picked // 1000).sum()) / x.size
            return PackedBiases(arrangement, self.count, layers, wrong=wrong)

        def layer_biases(at: tuple[int, int]) -> LayerBiases:
            rule, far = int(picks[at]), costs[at][:-1] // 1000  # the last is a split
            if rule == len(BIAS_RULES):
                gates = tuple(self.likely_orders[at].tolist())
                return LayerBiases(SPLIT_RULE, gates, ((1,) * len(gates),) * self.count)
            gates = tuple(self.orders[order[at][rule]].tolist())
            too_far = far[rule] > _MOST_WRONG * self.count * len(gates) * self.units
            if self.near and BIAS_RULES[rule].name in ("halved", "doubled"):
                predicted = self.predicted[at][rule, 0][:, [*gates]]
                shows = predicted != 0  # near values may also have another factor
                factor = np.median(np.abs(x[at][shows] / predicted[shows]))
                too_far = too_far or abs(factor - 1) > 0.05
            if too_far:
                return kept_biases(len(gates), unknown=True)
            by_place = cost[at][np.arange(len(gates)), rule, :, gates]
            picked_signs = [
                self.signs[0 if 0 < far[k] == far[0] else k]  # no value shows other signs
                for k, far in zip(by_place.argmin(axis=1), by_place // 1000, strict=True)
            ]
            signs = tuple(zip(*picked_signs, strict=True))
            shifts = {
                (v, gate, float(number * signs[v][place]))
                for v, place in np.ndindex(self.count, len(gates))
                for gate, numbers in [(gates[place], self._compare(x[at][v, place], at, v)[1])]
                if (number := numbers[rule, _SIGNS.index(signs[v][place]), gate])
            }
            alike = [
                rival
                for k, rival in enumerate(BIAS_RULES)
                if k and rule and k != rule and far[k] <= far[rule]
            ]
            if len(shifts) > _MOST_WRONG * self.count * len(gates):
                return kept_biases(len(gates), unknown=True)
            return LayerBiases(BIAS_RULES[rule], gates, signs, tuple(sorted(shifts)), tuple(alike))

        return float(picked.sum()), biases

    def _compare(
        self, vector: np.ndarray, at: tuple[int, int], v: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return (rule, sign, gate) -> the cost of a vector as the biases of a gate, and the number
        that was added to them, if that is cheaper."""
        predicted, wide = self.predicted[at][:, :, v], self.wide[at][:, None, v]
        with np.errstate(all="ignore"):
            gap = vector - predicted
            middle = np.partition(gap, self.units // 2)[..., self.units // 2]
            numbers = round_to_digits(1 if self.near else self.digits, middle)
            also = rounding_of_sums(self.truth) * abs(numbers)[..., None]
            kept = np.count_nonzero(~(abs(gap) <= wide), axis=-1)
            added = np.count_nonzero(~(abs(gap - numbers[..., None]) <= wide + also), axis=-1)
            is_number = abs(numbers) > 64 * eps_of(self.truth)
        is_added = is_number & (kept - added >= (1 - _MOST_WRONG) * self.units)
        costs = np.where(is_added, 1000 * added + _ADDED, 1000 * kept)
        return costs, np.where(is_added, numbers, 0)

    def _keeps_sums(self, x: np.ndarray) -> np.ndarray:
        """Return whether the two vectors have the right sums, with the gates in the order of the
        matrices, and most values are others: each of four values was rounded twice at most."""
        if not self.count == 2 == len(self.truth.roles):
            return np.zeros(x.shape[:2], bool)
        orders = self.likely_orders[..., None]
        w, r = (np.take_along_axis(vector, orders, axis=2) for vector in self.true)
        size = abs(w) + abs(r) + abs(x).sum(axis=2)
        off = abs(x.sum(axis=2) - (w + r))
        right = off <= min(2 * eps_of(self.truth), 2.0**-8) * size
        return np.asarray(right.all(axis=(2, 3)) & ((x[:, :, 0] != w).mean(axis=(2, 3)) > 0.5))


def rounding_of_sums(truth: Truth) -> float:
    """Return how far a sum of biases may be, as a share of the biases: it was rounded a few times.
    A bfloat16 must not be as good as its half, and a sum as one of its terms."""
    return min(8 * eps_of(truth), 2.0**-6)


def digits_of(truth: Truth) -> int:
    """Return to how many digits rounded values show a number that they were multiplied by."""
    return min(6, round(-log10(eps_of(truth))))


def eps_of(truth: Truth) -> float:
    """Return the distance from 1 to the next number of the dtype."""
    return 2 * UNITS[truth.spec.dtype]
