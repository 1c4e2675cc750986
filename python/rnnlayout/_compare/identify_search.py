"""identify: run every network that fits the tensors, and keep the networks that agree with y."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import chain, compress
from typing import Any

import numpy as np

from rnnlayout import _native
from rnnlayout._model.dtypes import widen_bits
from rnnlayout._model.spec import Spec
from rnnlayout._model.weights import Weights, changed_weights
from rnnlayout._native import LossyError, SpecError
from rnnlayout._run.rnn import RNN
from rnnlayout._run.settings import CPU

from .blocks import UNITS, may_sum_biases
from .identify_custom import CustomLayout, custom_layouts, first_steps
from .identify_inputs import Observed, UnknownTensors, initial_state
from .identify_rows import RowMatch, flat_rows, named_rows, shaped_rows

_STEPS, _ROWS = 3, 2  # of x and y that a network must match before everything is compared
_MOST_WORK = 2e11  # multiplications: a minute
# In multiplications: the cost of arranging and preparing a weight, and the fixed cost of a network
# and of a first step.
_PER_WEIGHT, _PER_NETWORK, _FIRST_STEP = 40, 2e6, 3e5
_TOGETHER = 4  # products of many networks at once are so much faster than as many single products
_NEAREST = 3  # networks that do not agree and are kept
# Steps with a larger tolerance, as a share of the largest output, show nothing.
_LOOSEST = 0.02
_TINY = 1e-30  # where a plain RNN with relu gives only zeros

Case = RowMatch | CustomLayout


@dataclass(eq=False)
class Match:
    """A network that was run, and how well the outputs agree with y.

    cases: the layouts in which the tensors are this network. join: how the directions are joined.
    error: the largest difference. allowed: the part of the error that rounding explains. agrees:
    whether rounding explains the differences of all elements. steps: of y with all steps, whether
    rounding explains the differences of each step of each sequence, (T, N); else None.
    """

    tensors: UnknownTensors
    cases: list[Case]
    observed: Observed
    join: str
    error: float
    allowed: float
    agrees: bool
    steps: np.ndarray | None = None

    @property
    def rank(self) -> tuple[bool, int, float]:
        """Return a key that sorts matches: those that agree, in most steps, with small errors."""
        count = 0 if self.steps is None else int(np.count_nonzero(self.steps))
        return not self.agrees, -count, self.error


@dataclass
class Search:
    """A search: the tensors, the ways to read x and y, and the progress so far.

    unit: the rounding of one operation, in the coarsest dtype that was passed. tried: how many
    networks were run. work: how many multiplications were done. stopped: whether the search
    ended early, to limit the time. cases: by network_key(), the layouts that make each network.
    """

    tensors: UnknownTensors
    observed: list[Observed]
    state: Sequence[np.ndarray]
    unit: float
    atol: float
    tried: int = 0
    work: float = 0.0
    stopped: bool = False
    cases: dict[object, list[Case]] = field(default_factory=dict)

    @cached_property
    def values(self) -> list[np.ndarray]:
        """The numbers of the tensors in float64, which represents every dtype exactly."""
        return [widen_bits(array, self.tensors.dtype) for array in self.tensors.arrays]

    def run(self) -> list[Match]:
        """Try names, then shapes, then custom layouts, until a network agrees with y. Return the
        networks that agree, or the nearest."""
        tensors, observed = self.tensors, self.observed
        ways: list[Iterator[Case]] = [flat_rows(tensors, observed)]
        if not tensors.is_flat:
            rows = named_rows(tensors, observed), shaped_rows(tensors, observed)
            ways = [*rows, self._custom()]
        matches: list[Match] = []
        for way in ways:
            matches += self._best_of(way)
            if any(match.agrees for match in matches):
                break
        return matches

    def _best_of(self, cases: Iterable[Case]) -> list[Match]:
        """Return the cases that agree; if none agrees, the nearest."""
        begun: list[Match] = []  # compared with the beginning of x and y
        for case in cases:
            if self.stopped:
                break
            try:
                network = self._network(case)
            except (LossyError, SpecError):  # a peephole that is not zero
                continue
            (flat,) = network.arrays
            self.work += _PER_NETWORK + _PER_WEIGHT * flat.size
            key = network_key(network.spec, flat)
            if key in self.cases:
                self.cases[key].append(case)
            elif self._may_go_on(0):
                self.cases[key] = [case]
                observed = self.observed
                if not network.spec.bidirectional:
                    observed = [turned for reading in observed for turned in reading.turned()]
                begun += self._compare(network, self.cases[key], observed, quick=True)
        chosen = [match for match in begun if match.agrees]
        chosen = chosen or sorted(begun, key=lambda match: match.rank)[:_NEAREST]
        return [
            whole
            for match in chosen
            for whole in self._compare(
                self._network(match.cases[0]), match.cases, [match.observed], False
            )
            if whole.join == match.join
        ]

    def _network(self, case: Case) -> Weights:
        """Return the RNN in float64, in the layout of the forward pass."""
        return case.weights(self.values, "float64").to(CPU)

    def _may_go_on(self, work: float) -> bool:
        """Return whether there is time for another network. work: in multiplications."""
        self.stopped = self.stopped or self.work > _MOST_WORK
        self.tried += not self.stopped
        self.work += work
        return not self.stopped

    def _compare(
        self, network: Weights, cases: list[Case], observed: Iterable[Observed], quick: bool
    ) -> Iterator[Match]:
        """Run a network, and yield the agreement with each reading of y for each way of
        joining directions. quick: only with the beginning of x and y.

        Networks amplify rounding differently: the effect is measured with slightly different
        weights.
        """
        spec, (flat,) = network.spec, network.arrays
        rnn, moved = RNN(network, batch_first=False), None
        for whole in observed:
            used, joins = whole, whole.joins(spec)
            if quick:
                used = whole.part(len(whole.x) if spec.bidirectional else _STEPS, _ROWS)
            state = initial_state(spec, self.state, whole.x.shape[1], used.x.shape[1])
            if not joins or (self.state and state is None):
                continue
            self.work += flat.size * used.x[..., 0].size
            outputs, shifted = _run_network(rnn, used.x, state), None
            largest = np.abs(used.y).max()
            loosest = self._loosest(largest)
            for join in joins:
                predicted = used.predict(*outputs, join)
                off = np.abs(predicted - used.y)
                off[np.isnan(off)] = np.inf
                allowed = np.zeros(off.shape)
                if off.max(tuple(range(1, off.ndim))).min() <= loosest:  # else no step can agree
                    moved = moved or self._moved_rnn(network)
                    shifted = shifted or _run_network(moved, used.x, state)
                    shift = np.abs(used.predict(*shifted, join) - predicted)
                    if (
                        used.form == "steps" and not join
                    ):  # rounding grows in the order of computation
                        allowed += np.maximum.accumulate(shift.max((1, 2), keepdims=True))
                    else:
                        allowed += shift.max()
                allowed = np.maximum(16 * self.unit * largest + 8 * allowed, self.atol) + _TINY
                steps = np.all(off <= allowed, axis=2) if used.form == "steps" else None
                counts = allowed <= loosest
                score: tuple[float, float, bool] = (float(off.max()), np.inf, False)
                if counts.any():
                    shares = np.where(counts, off / allowed, 0)
                    at = shares.argmax()
                    agrees = bool(shares.flat[at] <= 1)
                    score = float(off[counts].max()), float(allowed.flat[at]), agrees
                yield Match(self.tensors, cases, whole, join, *score, steps)

    def _moved_rnn(self, network: Weights) -> RNN:
        """Return an RNN of weights that differ by about as much as rounding in sums of weights.

        Rounding a sum of K products errs by about sqrt(K) units of a product. Sums of narrow
        types are formed in float32.
        """
        spec, (flat,) = network.spec, network.arrays
        terms = spec.input_size + spec.hidden_size
        share = self.unit + np.sqrt(terms) * min(self.unit, UNITS["float32"])
        signs = np.random.default_rng(0).integers(0, 2, flat.size, "i1") * 2 - 1
        moved = changed_weights(network, arrays=[np.asarray(flat * (1 + share * signs))])
        return RNN(moved, batch_first=False)

    def _loosest(self, largest: Any) -> Any:
        """Return the tolerance beyond which a step shows nothing, for the largest output."""
        return max(_LOOSEST, 32 * self.unit) * largest + self.atol + _TINY

    def _custom(self) -> Iterator[Case]:
        """Yield the custom layouts that agree with y at the first step from a zero state, or all
        custom layouts if the first step is not known."""
        for lists in custom_layouts(self.values, self.observed):
            groups = [lists]
            if _is_deep(lists[0][0].spec):  # R and gate f of the lower layers count, too
                by_parts: dict[object, list[list[CustomLayout]]] = {}
                for layout in chain(*lists):
                    by_parts.setdefault(layout.parts, []).append([layout])
                groups = [*by_parts.values()]
            for group in groups:
                agreeing = self._agree_at_first([layouts[0] for layouts in group])
                yield from chain(*compress(group, agreeing))

    def _agree_at_first(self, layouts: Sequence[CustomLayout]) -> Sequence[bool]:
        """Return whether each layout may agree. If the search stops, the list is shorter."""
        first, spec = layouts[0], layouts[0].spec
        runs = self._first_outputs(spec)
        if self.state or not runs:
            return [True] * len(layouts)
        work = float(sum(x[..., 0].size for x, _ in runs))
        if deep := _is_deep(spec):
            work *= sum(part.W.size + part.R.size for part in first.parts[:-2]) / _TOGETHER
        else:
            work *= sum(part.W.size for part in first.parts[:: spec.num_directions])
        layouts = [layout for layout in layouts if self._may_go_on(work + _FIRST_STEP)]
        may_agree = np.zeros(len(layouts), bool)
        for x, y in runs if layouts else ():
            with np.errstate(all="ignore"):
                off = np.abs(first_steps(layouts, x, 1 + deep)[:, None] - y).max(-1)
            largest, terms = np.abs(y).max(-1), spec.input_size + spec.hidden_size
            allowed = self._loosest(largest)
            # Sums of so many terms err by about sqrt(terms) units of a term, amplified by layers.
            if not deep:
                rounding = 64 * np.sqrt(terms) * self.unit * largest + 2 * self.atol + _TINY
                allowed = np.minimum(rounding, allowed)
            may_agree |= np.any(off <= allowed, axis=(1, 2))
        return list(may_agree)

    def _first_outputs(self, spec: Spec) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return pairs of x (T, N, I), all that counts, and y of the forward direction at the first
        step: (1, N, H), or (2, N, H) if it is one of these."""
        observed = [
            reading for reading in self.observed if reading.form == "steps" and reading.joins(spec)
        ]
        if not spec.bidirectional:
            observed = [turned for reading in observed for turned in reading.turned()]
        # of two directions, y of the forward direction is either half
        H = spec.hidden_size
        firsts = [(reading.x[:, 0], reading.y[0, 0].reshape(-1, H)) for reading in observed]
        if _is_deep(spec):  # two directions that are not concatenated depend on all steps
            return [(x[:, None], halves[:, None]) for x, halves in firsts if len(halves) == 2]
        xs = [x[0] for x, halves in firsts for _ in halves]
        ys = [half for _, halves in firsts for half in halves]
        return [(np.stack(xs)[None], np.stack(ys)[None])] if ys else []


def _is_deep(spec: Spec) -> bool:
    """Return whether the first step depends on all others: a stack of two directions."""
    return spec.bidirectional and spec.num_layers > 1


@cache
def _summed_biases(spec: Spec) -> list[tuple[slice, slice]]:
    """Return the places of bW and bR, for all gates where only the sum of the biases matters."""
    places = {
        (layer, direction, gate, role): slice(at, at + rows)
        for (layer, direction, role, _, gate), (_, at, rows, *_) in _native.blocks(CPU, spec)
    }
    return [
        (place, places[layer, direction, gate, "bR"])
        for (layer, direction, gate, role), place in places.items()
        if role == "bW" and spec.bias == "double" and may_sum_biases(spec, gate)
    ]


def network_key(spec: Spec, flat: np.ndarray) -> tuple[Spec, bytes]:
    """Return a key that is equal for networks with equal outputs. Signs of zeros do not count."""
    values = flat + 0.0
    for place, companion in _summed_biases(spec):
        values[place] += values[companion]
        values[companion] = 0
    return spec, hashlib.sha256(values.data).digest()


def _run_network(rnn: RNN, x: np.ndarray, state: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return y (T, N, D P) and h_n (L D, N, P)."""
    with np.errstate(all="ignore"):
        y, last = rnn(np.ascontiguousarray(x), state)
    return y, last[0] if isinstance(last, tuple) else last
