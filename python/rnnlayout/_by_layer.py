"""A conversion that has no more than one layer of its result in memory, for files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rnnlayout import _convert
from rnnlayout._convert import EXACT, Report
from rnnlayout._formats import Tensor
from rnnlayout._layouts import Layout
from rnnlayout._native import LayoutError
from rnnlayout._weights import Weights, num_weights

SMALL_NBYTES = 16 << 20  # converted at once


class Conversion:
    """Weights as they are in another layout, made when its tensors are asked for, in order.

    spec, layout, config: of the result. tensors: it, by name. Asking for them raises what convert()
    does; check() does so at once.
    """

    def __init__(self, weights: Weights, to: Layout, dtype: Any, exact: bool) -> None:
        self._weights, self._exact, self.layout = weights, exact, to
        self.config = weights.config
        plan, name = _convert.plan_of(weights._read(), to, dtype)
        self.spec = weights.spec.replace(dtype=name)
        nbytes = sum(array.nbytes for array in weights._read().arrays)
        self._num_parts = 1 if nbytes <= SMALL_NBYTES else weights.spec.num_layers
        self._reports: dict[int, Report] = {}
        self._made: dict[str, np.ndarray] = {}
        names = [name for name, _ in plan.targets]
        each = len(names) // self._num_parts
        self.tensors = {
            name: Tensor(self.spec.dtype, shape, *self._ways(names, k, each))
            for k, (name, shape) in enumerate(plan.targets)
        }

    def _ways(self, names: list[str], k: int, each: int) -> tuple[Callable[[], Any], ...]:
        if self.layout.name == "cudnn":
            return self._flat, self._flat_pieces
        part = k // each
        return (lambda: self._one(names[k], part, names[part * each : (part + 1) * each]),)

    def _one(self, name: str, part: int, names: list[str]) -> np.ndarray:
        """A tensor, which is then no longer kept; the others of its layer are."""
        if name not in self._made:
            self._made.clear()
            self._made = dict(zip(names, self._part(part)._read().arrays, strict=True))
        return self._made.pop(name)

    def _flat(self) -> np.ndarray:
        return np.concatenate(list(self._flat_pieces()))

    def _flat_pieces(self) -> Iterator[np.ndarray]:
        """cuDNN has the weights of all layers first, then all biases."""
        biases = []
        for k in range(self._num_parts):
            made = self._part(k)
            flat, n = made._read().arrays[0], num_weights(made.spec)
            yield flat[:n]
            biases.append(flat[n:].copy())
            del made, flat  # before the next is made
        yield np.concatenate(biases)

    def _part(self, k: int) -> Weights:
        weights = self._weights if self._num_parts == 1 else self._weights.layer(k)
        try:
            made = weights.to(self.layout, dtype=self.spec.dtype, exact=self._exact)
        except LayoutError:
            self.check()  # says it with the names that the whole has
            raise
        self._reports[k] = made.report or EXACT
        return made

    def weights(self) -> Weights:
        """All of it, at once."""
        made = self._weights.to(self.layout, dtype=self.spec.dtype, exact=self._exact)
        self._reports = {0: made.report or EXACT}
        return made

    def check(self) -> None:
        """All that making it would do and say, but for making it."""
        read = self._weights._read()
        self._reports = {0: _convert.dry_run(read, self.layout, self.spec.dtype, self._exact)}

    @property
    def report(self) -> Report:
        """Of what has been made or checked."""
        sums = sum(one.rounded_sums for one in self._reports.values())
        rounds = [one for one in self._reports.values() if one.grade != "exact"]
        if not rounds:
            return EXACT
        return Report(
            "rounds", sums, _convert.reason(sums, self._weights.spec.dtype, self.spec.dtype)
        )
