"""A conversion for files, with a single converted layer in memory at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from rnnlayout._convert import engine
from rnnlayout._model.dtypes import storage_dtype
from rnnlayout._model.layout import Layout
from rnnlayout._model.report import EXACT, Report
from rnnlayout._model.spec import Spec, optional_tensors_of
from rnnlayout._model.weights import Weights, vector_sizes
from rnnlayout._native import LayoutError
from rnnlayout._sources.torch_names import rounded_weights

from .tensor_set import FileTensor

SMALL_NBYTES = 16 << 20  # an RNN of at most this size is converted in one piece

ConvertedLayer = tuple[Spec, list[np.ndarray]]


class ScratchMemory:
    """Memory for one converted layer, shared by conversions that take turns. The memory is reused:
    allocating new pages costs as much as filling the pages. key: the layer in the memory."""

    def __init__(self) -> None:
        self._bytes = np.empty(0, np.uint8)
        self.key: Any = None
        self.layer: ConvertedLayer

    def arrays(self, shapes: list[tuple[int, ...]], dtype: str) -> list[np.ndarray]:
        """Return arrays for the bits of a dtype. The next call reuses the memory of the arrays."""
        carrier = storage_dtype(dtype)
        sizes = [math.prod(shape) * carrier.itemsize for shape in shapes]
        *starts, end = accumulate((-(-n // 64) * 64 for n in sizes), initial=0)
        if end > self._bytes.size:
            self._bytes = np.empty(0, np.uint8)  # give the old memory back first
            self._bytes = np.empty(end, np.uint8)
        return [
            self._bytes[at : at + n].view(carrier).reshape(shape)
            for at, n, shape in zip(starts, sizes, shapes, strict=True)
        ]


class LayerwiseConversion:
    """Weights in another layout. A tensor is converted when the elements are read.

    spec, layout, config, batch_first, kind: of the result. tensors: the tensors of the result by
    name, to be read in order. Pieces of a tensor are in the scratch memory, or in the source if the
    conversion only moves elements. Reading a tensor raises the errors of convert(); check() raises
    all errors at once.
    """

    def __init__(
        self,
        weights: Weights,
        to: Layout,
        dtype: Any,
        exact: bool,
        scratch: ScratchMemory | None = None,
    ) -> None:
        self._weights, self._exact, self._scratch = weights, exact, scratch or ScratchMemory()
        if exact and weights.rounded:
            raise rounded_weights(weights.rounded)
        plan, self.spec = engine.plan_for_source(weights, to, dtype)
        self.layout = to
        self.config, self.batch_first, self.kind = weights.config, weights.batch_first, weights.kind
        nbytes = sum(array.nbytes for array in weights.arrays)
        self._num_parts = 1 if nbytes <= SMALL_NBYTES else weights.spec.num_layers
        self._reports: dict[int, Report] = {}
        self._targets = plan.targets
        moves_bits = self.spec.dtype == weights.spec.dtype
        moves_bits &= self.kind != "squared_gradient"  # of which each element is checked
        self._moves = plan.moves() if moves_bits else None
        self._key = object()  # of the layers in the scratch memory, which must not keep self alive

    @property
    def tensors(self) -> dict[str, FileTensor]:
        """The tensors of the result by name. The tensors refer to self, so self must not refer to
        the tensors: a cycle would keep all of the memory until Python's collector runs."""
        runs: dict[int, list[Any]] = {}  # target -> moves, in the order of the elements
        for move in sorted(self._moves or [], key=lambda move: move[3]):
            runs.setdefault(move[2], []).append(move)
        tensors_per_part = len(self._targets) // self._num_parts
        tensors = {}
        for k, (name, shape) in enumerate(self._targets):
            pieces: Callable[[], Iterator[np.ndarray]]
            if self._moves is not None:
                pieces = partial(_move_runs, self._weights.arrays, runs.get(k, []))
            elif len(self._targets) < self._num_parts:
                pieces = self._vector
            else:
                pieces = partial(self._tensor_pieces, *divmod(k, tensors_per_part))
            tensors[name] = FileTensor(
                self.spec.dtype, shape, partial(_join_pieces, pieces, shape), pieces
            )
        return tensors

    def _vector(self) -> Iterator[np.ndarray]:
        """Yield the pieces of a single vector: the matrices of all layers, then all biases."""
        biases = []
        for k in range(self._num_parts):
            spec, (flat,) = self._layer(k)
            n, _ = vector_sizes(self.layout, spec, optional_tensors_of(spec))
            biases.append(flat[n:].copy())
            yield flat[:n]
        yield np.concatenate(biases)

    def _tensor_pieces(self, layer: int, k: int) -> Iterator[np.ndarray]:
        yield self._layer(layer)[1][k].reshape(-1)

    def _layer(self, k: int) -> ConvertedLayer:
        """Return the spec and the arrays of a layer of the result. Convert the layer unless the
        scratch memory has the arrays."""
        scratch, key = self._scratch, (self._key, k)
        if scratch.key != key:
            scratch.key = None  # in case the conversion fails
            weights = self._weights if self._num_parts == 1 else self._weights.layer(k)
            dtype = self.spec.dtype
            plan, _ = engine.plan_for_source(weights, self.layout, dtype)
            arrays = scratch.arrays([shape for _, shape in plan.targets], dtype)
            try:
                report = engine.run_plan(plan, weights, arrays, dtype, self._exact, new=True)
            except LayoutError:
                self.check()  # raises the same error with the names of the whole RNN
                raise
            self._reports[k] = report
            scratch.key, scratch.layer = key, (weights.spec, arrays)
        return scratch.layer

    def weights(self) -> Weights:
        converted = self._weights.to(self.layout, dtype=self.spec.dtype, exact=self._exact)
        self._reports = {0: converted.report or EXACT}
        return converted

    def check(self) -> None:
        """Compute the report, or raise the errors of the conversion, without converting."""
        report = engine.dry_run_conversion(self._weights, self.layout, self.spec.dtype, self._exact)
        self._reports = {0: report}

    @property
    def report(self) -> Report:
        """The report on the layers that were converted or checked so far."""
        report, source = EXACT, self._weights
        if any(layer_report.grade != "exact" for layer_report in self._reports.values()):
            sums = sum(layer_report.rounded_sums for layer_report in self._reports.values())
            shifts = engine.plan_for_source(source, self.layout, self.spec.dtype)[0].shifts
            why = engine.rounding_reason(
                sums, source.kind, shifts, source.spec.dtype, self.spec.dtype
            )
            report = Report("rounds", sums, why)
        return engine.complete_report(report, source, self.layout)


def _move_runs(sources: list[np.ndarray], runs: list[Any]) -> Iterator[np.ndarray]:
    for src, at, _, _, n in runs:
        yield sources[src].reshape(-1)[at : at + n]


def _join_pieces(pieces: Callable[[], Iterator[np.ndarray]], shape: tuple[int, ...]) -> np.ndarray:
    """Return the whole tensor in new memory."""
    return np.concatenate([piece.copy() for piece in pieces()]).reshape(shape)
