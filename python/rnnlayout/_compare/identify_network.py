"""identify: a network that may have made y, and how far its outputs are from y."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from rnnlayout import _native
from rnnlayout._convert import engine
from rnnlayout._model.checked_rnn import CheckedRNN
from rnnlayout._model.spec import CELLS, Spec, optional_tensors_of
from rnnlayout._run.rnn import CPU, RNN
from rnnlayout._weights.weights import weights_of

from .blocks import UNITS, may_sum_biases
from .identify_inputs import Observed

# Steps with a larger tolerance, as a share of the largest output, show nothing.
_LOOSEST = 0.02
_KEY_VALUES = 4096
_TINY = 1e-30  # where a plain RNN with relu gives only zeros
_MERGES = {"sum": lambda a, b: a + b, "ave": lambda a, b: (a + b) / 2, "mul": lambda a, b: a * b}


@dataclass(frozen=True, eq=False)
class Network:
    """Weights in float64, in the layout of the forward pass."""

    spec: Spec
    flat: np.ndarray

    @classmethod
    def of(cls, given: CheckedRNN) -> Network:
        """Return the network of checked arrays in float64.

        Raises LossyError if the forward pass cannot run it.
        """
        made, _ = engine.run_conversion(given, CPU)
        return cls(made.spec, made.arrays[0])

    @property
    def checked_rnn(self) -> CheckedRNN:
        return CheckedRNN(
            self.spec, CPU, optional_tensors_of(self.spec), ["weight_space"], [self.flat]
        )

    @cached_property
    def values(self) -> np.ndarray:
        """What decides the outputs: of two biases that are added, the sum; no sign of a zero."""
        flat, views = self.flat + 0.0, block_places(self.spec)
        for (layer, direction, role, gate), (at, *shape) in views.items():
            other = views.get((layer, direction, "bR", gate))
            if role == "bW" and other and may_sum_biases(self.spec, gate):
                flat[at : at + shape[0]] += flat[other[0] : other[0] + shape[0]]
                flat[other[0] : other[0] + shape[0]] = 0
        return flat

    def key(self) -> tuple[Spec, bytes]:
        """Return what networks that compute the same have in common."""
        return self.spec, self.values[:: max(1, self.flat.size // _KEY_VALUES)].tobytes()

    def same_as(self, other: Network) -> bool:
        """Do both compute the same?"""
        return self.spec == other.spec and np.array_equal(self.values, other.values)

    def run(self, x: np.ndarray, state: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return y (T, N, D P) and h_n (L D, N, P)."""
        with np.errstate(all="ignore"):
            y, last = self._rnn(np.ascontiguousarray(x), state)
        return y, last[0] if isinstance(last, tuple) else last

    @cached_property
    def _rnn(self) -> RNN:
        return RNN(weights_of(self.checked_rnn))

    @cached_property
    def _moved(self) -> dict[float, Network]:
        return {}

    def moved(self, unit: float) -> Network:
        """Return it with weights that differ by about as much as rounding in its sums does.

        Rounding a sum of K products errs by about sqrt(K) units of one product. Sums of narrow
        types are formed in float32.
        """
        terms = self.spec.input_size + self.spec.hidden_size
        if unit not in self._moved:
            share = unit + np.sqrt(terms) * min(unit, UNITS["float32"])
            signs = np.random.default_rng(0).integers(0, 2, self.flat.size, "i1") * 2 - 1
            self._moved[unit] = Network(self.spec, self.flat * (1 + share * signs))
        return self._moved[unit]


@cache
def block_places(spec: Spec) -> dict[tuple[int, int, str, str], tuple[int, int, int]]:
    """Return where each block is in the flat array of a Network: (at, rows, columns)."""
    return {
        (layer, direction, role, gate): (at, rows, columns)
        for (layer, direction, role, _, gate), (_, at, rows, columns, *_) in
        _native.blocks(CPU, spec)
    }  # fmt: skip


def initial_state(spec: Spec, state: Sequence[np.ndarray], N: int, used: int) -> tuple[bool, Any]:
    """Return whether the state is one of this RNN, and that of the first rows of the batch as the
    forward pass needs it. used: how many rows."""
    if not state:
        return True, None
    sizes = [spec.proj_size or spec.hidden_size, spec.hidden_size]
    if len(state) != (2 if CELLS[spec.cell].has_c else 1):
        return False, None
    rows, parts = spec.num_layers * spec.num_directions, []
    for part, size in zip(state, sizes, strict=False):
        shapes: list[tuple[int, ...]] = [(rows, N, size)]
        shapes += [(N, size)] if rows == 1 else []
        shapes += [(rows, size)] if N == 1 else []
        shapes += [(size,)] if rows == N == 1 else []
        if part.shape not in shapes:
            return False, None
        parts.append(np.ascontiguousarray(part.reshape(rows, N, size)[:, :used]))
    return True, tuple(parts) if len(parts) == 2 else parts[0]


# ---------------------------------------------------------------------------------- what y may be


def direction_joins(spec: Spec, observed: Observed) -> list[str]:
    """Return how the two directions may be joined in y.

    "" stands for one direction. The list is empty if y does not have this RNN's shape.
    """
    P, width = spec.proj_size or spec.hidden_size, observed.width
    if observed.form == "states":
        rows = spec.num_layers * spec.num_directions
        return [""] if width == P and len(observed.y) == rows else []
    if not spec.bidirectional:
        return [""] if width == P else []
    found = ["concat", "swapped"] if width == 2 * P else [*_MERGES] if width == P else []
    if observed.form == "last":
        found += [f"{join} at T - 1" for join in found]
    return found


def predict_y(run: tuple[np.ndarray, np.ndarray], join: str, observed: Observed) -> np.ndarray:
    """Return what y would be."""
    y, h_n = run
    if observed.form == "states":
        return h_n
    if observed.form == "last":  # the last state of each direction, or what is at the last step
        y = y[-1] if join.endswith("T - 1") else np.concatenate([*h_n[-1 - bool(join) :]], -1)
    join = join.partition(" ")[0]
    if join in ("", "concat"):
        return y
    first, second = np.split(y, 2, -1)
    if join == "swapped":
        return np.concatenate([second, first], -1)
    merged: np.ndarray = _MERGES[join](first, second)
    return merged


@dataclass(frozen=True)
class Score:
    """How far outputs are from y. error: the largest difference; allowed: the part of it that
    rounding explains; share: the largest quotient of the two over all elements, at most 1 if the
    outputs agree with y.
    """

    error: float
    allowed: float
    share: float

    @property
    def agrees(self) -> bool:
        return self.share <= 1


def score_network(
    network: Network, observed: Observed, state: Any, unit: float, atol: float
) -> Iterator[tuple[str, Score]]:
    """Yield the score for each way of joining the directions.

    unit: the rounding of the arithmetic that made y. Rounding is amplified by some networks more
    than by others: what it explains is measured, with weights that are slightly different.
    """
    run, moved = network.run(observed.x, state), None
    largest = np.abs(observed.y).max()
    loosest = _loosest(observed, unit, atol)
    for join in direction_joins(network.spec, observed):
        found = predict_y(run, join, observed)
        off = np.abs(found - observed.y)
        off[np.isnan(off)] = np.inf
        allowed = np.zeros(off.shape)
        if off.max(tuple(range(1, off.ndim))).min() <= loosest:  # else no step can agree
            moved = moved or network.moved(unit).run(observed.x, state)
            allowed += _allowed_error(
                np.abs(predict_y(moved, join, observed) - found), observed, join
            )
        allowed = np.maximum(16 * unit * largest + 8 * allowed, atol) + _TINY
        counts = allowed <= loosest
        if counts.any():
            shares = np.where(counts, off / allowed, 0)
            at = shares.argmax()
            error, share = float(off[counts].max()), float(shares.flat[at])
            yield join, Score(error, float(allowed.flat[at]), share)
        else:
            yield join, Score(float(off.max()), np.inf, np.inf)


def _loosest(observed: Observed, unit: float, atol: float) -> float:
    """Return the tolerance beyond which a step shows nothing."""
    return float(max(_LOOSEST, 32 * unit) * np.abs(observed.y).max() + atol + _TINY)


def first_step_tolerance(observed: Observed, terms: int, unit: float, atol: float) -> float:
    """Return how far a first step may be from y, if it is one of sums of so many terms: these err
    by about sqrt(terms) units of one, and are amplified by few layers."""
    rounding = 64 * np.sqrt(terms) * unit * np.abs(observed.y).max() + 2 * atol + _TINY
    return float(min(rounding, _loosest(observed, unit, atol)))


def _allowed_error(moved: np.ndarray, observed: Observed, join: str) -> np.ndarray:
    """Return what rounding explains, per step: it grows in the order of computation."""
    if observed.form != "steps":
        return np.full_like(moved, moved.max())
    steps: np.ndarray = moved.max((1, 2), keepdims=True)
    return np.maximum.accumulate(steps) if not join else np.full_like(steps, steps.max())
