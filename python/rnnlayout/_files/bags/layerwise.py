"""A conversion that has no more than two layers of its result in memory, for files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from rnnlayout._convert import engine
from rnnlayout._convert.engine import EXACT, Report
from rnnlayout._model.given import num_weights
from rnnlayout._model.layout import Layout
from rnnlayout._model.spec import Spec
from rnnlayout._native import LayoutError
from rnnlayout._weights.weights import Weights

from .bag import Tensor
from .scratch import Memory, Scratch

SMALL_NBYTES = 16 << 20  # converted at once
AHEAD_NBYTES = 256 << 20  # of a layer that is made ahead: Ctrl-C has to wait for it


class Conversion:
    """Weights as they are in another layout, made when its tensors are asked for, in order.

    spec, layout, config: of the result. tensors: it, by name; their pieces lie in the scratch, or,
    where the conversion only moves them, in the source.
    Asking for them raises what convert() does; check() does so at once.
    """

    def __init__(
        self, weights: Weights, to: Layout, dtype: Any, exact: bool, scratch: Scratch | None = None
    ) -> None:
        self._weights, self._exact, self._scratch = weights, exact, scratch or Scratch()
        given = weights._read()
        plan, made = engine.plan_of(given, to, dtype)
        self.layout, self.config = to, weights.config
        self.spec = made
        nbytes = sum(array.nbytes for array in given.arrays)
        self._num_parts = 1 if nbytes <= SMALL_NBYTES else weights.spec.num_layers
        moves = plan.moves() if made.dtype == given.dtype else None
        runs = None if moves is None else _by_target(moves, len(plan.targets))
        self._reports: dict[int, Report] = {}
        self._goes_ahead = nbytes <= AHEAD_NBYTES * self._num_parts
        flat, each = to.name == "cudnn", len(plan.targets) // self._num_parts
        self.tensors = {}
        for k, (name, shape) in enumerate(plan.targets):
            pieces: Callable[[], Iterator[np.ndarray]]
            if runs is not None:
                pieces = partial(_moved, given.arrays, runs[k])
            else:
                pieces = self._flat if flat else partial(self._one, *divmod(k, each))
            bits = partial(_joined, pieces, shape)
            self.tensors[name] = Tensor(self.spec.dtype, shape, bits, pieces)

    def _flat(self) -> Iterator[np.ndarray]:
        """cuDNN has the weights of all layers first, then all biases."""
        biases = []
        for part in range(self._num_parts):
            spec, (flat,) = self._make(part)
            n = num_weights(spec)
            biases.append(flat[n:].copy())
            yield flat[:n]
        yield np.concatenate(biases)

    def _one(self, part: int, k: int) -> Iterator[np.ndarray]:
        yield self._make(part)[1][k].reshape(-1)

    def _make(self, part: int) -> tuple[Spec, list[np.ndarray]]:
        """A layer's spec and tensors, made if the scratch has not just them; then the next's."""
        ahead = None
        if part + 1 < self._num_parts and self._goes_ahead:
            ahead = (self, part + 1), partial(self._convert, part + 1)
        made: tuple[Spec, list[np.ndarray]] = self._scratch.holds(
            (self, part), partial(self._convert, part), ahead
        )
        return made

    def _convert(self, part: int, memory: Memory) -> tuple[Spec, list[np.ndarray]]:
        weights = self._weights if self._num_parts == 1 else self._weights.layer(part)
        given, dtype = weights._read(), self.spec.dtype
        shapes = [shape for _, shape in engine.plan_of(given, self.layout, dtype)[0].targets]
        arrays = memory.arrays(shapes, dtype)
        try:
            report = engine.run_into(given, self.layout, dtype, self._exact, arrays)
        except LayoutError:
            self.check()  # says it with the names that the whole has
            raise
        self._reports[part] = report
        return weights.spec, arrays

    def weights(self) -> Weights:
        """All of it, at once."""
        made = self._weights.to(self.layout, dtype=self.spec.dtype, exact=self._exact)
        self._reports = {0: made.report or EXACT}
        return made

    def check(self) -> None:
        """All that making it would do and say, but for making it."""
        read = self._weights._read()
        self._reports = {0: engine.dry_run(read, self.layout, self.spec.dtype, self._exact)}

    @property
    def report(self) -> Report:
        """Of what has been made or checked."""
        sums = sum(one.rounded_sums for one in self._reports.values())
        if all(one.grade == "exact" for one in self._reports.values()):
            return EXACT
        reason = engine.reason(sums, self._weights.spec.dtype, self.spec.dtype)
        return Report("rounds", sums, reason)


def _by_target(moves: list[Any], num_targets: int) -> list[list[Any]]:
    """The moves into each target, in the order in which they lie there."""
    runs: list[list[Any]] = [[] for _ in range(num_targets)]
    for move in sorted(moves, key=lambda move: move[3]):
        runs[move[2]].append(move)
    return runs


def _moved(sources: list[np.ndarray], runs: list[Any]) -> Iterator[np.ndarray]:
    """A target that is nothing but runs of the sources, one after another."""
    for src, at, _, _, n in runs:
        yield sources[src].reshape(-1)[at : at + n]


def _joined(pieces: Callable[[], Iterator[np.ndarray]], shape: tuple[int, ...]) -> np.ndarray:
    """The whole tensor, in memory of its own."""
    return np.concatenate([piece.copy() for piece in pieces()]).reshape(shape)
