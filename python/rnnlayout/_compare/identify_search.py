"""identify: the search: run every network that the tensors may be, and keep those that agree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import get_args

import numpy as np

from rnnlayout._convert import engine
from rnnlayout._model.checked_rnn import CheckedRNN
from rnnlayout._model.layout import Layout
from rnnlayout._model.spec import CELLS, Activation, Cell, RecurrentActivation, Reset, Spec
from rnnlayout._native import LossyError, SpecError

from .identify_custom import (
    AxisForm,
    SplitTensors,
    axis_forms,
    custom_network,
    first_outputs,
    form_at_first_step,
    layers_alike,
    split_tensors,
)
from .identify_inputs import Observed, UnknownTensors
from .identify_network import (
    Network,
    Score,
    first_step_tolerance,
    initial_state,
    score_network,
)
from .identify_rows import RowMatch

_STEPS, _ROWS = 3, 2  # of x and y, that a network must agree with before all are compared
_MOST_WORK = 2e11  # multiplications: a minute
# As many multiplications take as long as it does to arrange and prepare one weight, and what a
# network, and a first step, cost apart from their weights.
_PER_WEIGHT, _PER_NETWORK, _FIRST_STEP = 40, 2e6, 3e5
_NEAREST = 3  # networks that do not agree and are kept
_MOST_LAYERS = 8
_CELLS: tuple[Cell, ...] = get_args(Cell)
_ACTIVATIONS: list[tuple[RecurrentActivation, Activation]] = [
    *product(get_args(RecurrentActivation), get_args(Activation))
]
_RESETS: dict[str, tuple[Reset, ...]] = {"gru": ("after", "before")}


@dataclass(frozen=True, eq=False)
class CustomLayout:
    """An RNN whose tensors are in a layout of somebody's own, which no row of the table
    describes.
    """

    spec: Spec
    form: AxisForm
    parts: tuple[SplitTensors, ...]
    how: str = ""

    def network(self, values: Sequence[np.ndarray]) -> Network:
        """Return the network; `values` are in the parts already."""
        return custom_network(self.spec, self.form, self.parts)

    @property
    def text(self) -> str:
        """The layout of the tensors in words."""
        count = {0: "no biases", 1: "one bias", 2: "two biases"}[len(self.parts[0].biases)]
        return ", ".join(filter(None, (self.form.text(self.parts[0]), count, self.how)))

    def checked_rnn(self, arrays: Sequence[np.ndarray], dtype: str) -> CheckedRNN:
        """Return the RNN in layout torch, or onnx if torch lacks it."""
        source = self.network(()).checked_rnn
        for layout in ("torch", "onnx"):
            try:
                made, _ = engine.run_conversion(source, Layout(layout), dtype)
                return made
            except LossyError:
                continue
        raise AssertionError(self.spec)


Case = RowMatch | CustomLayout


@dataclass(eq=False)
class Match:
    """One network that was run, and how well its outputs agree with y. cases: the layouts in which
    the tensors are this network.
    """

    tensors: UnknownTensors
    cases: list[Case]
    observed: Observed
    join: str
    score: Score

    @property
    def reading(self) -> tuple[object, ...]:
        """What is read, and how: all but the score."""
        seen = self.observed
        return id(self.cases), seen.axes, seen.form, seen.settings, self.join


@dataclass
class Search:
    """One search: the tensors, the ways to read x and y, and what was found so far. unit: the
    rounding of one operation, in the coarsest dtype that was passed. tried: how many networks were
    run. work: how many multiplications that took. stopped: whether the search gave up, because it
    would take too long. cases: by Network.key(), the
    layouts that make each network.
    """

    tensors: UnknownTensors
    observed: list[Observed]
    state: tuple[np.ndarray, ...]
    unit: float
    atol: float
    tried: int = 0
    work: float = 0.0
    stopped: bool = False
    cases: dict[object, list[list[Case]]] = field(default_factory=dict)

    @cached_property
    def values(self) -> list[np.ndarray]:
        """The numbers of the tensors."""
        return self.tensors.values()

    def best_of(self, cases: Iterable[Case]) -> list[Match]:
        """Return what agrees among these; if nothing does, the nearest."""
        quick: list[Match] = []
        for case in cases:
            if self.stopped:
                break
            try:
                one = case.network(self.values)
            except (LossyError, SpecError):  # a peephole that is not zero
                continue
            self.work += _PER_NETWORK + _PER_WEIGHT * one.flat.size
            alike = self.cases.setdefault(one.key(), [])
            for cases in alike:
                if one.same_as(cases[0].network(self.values)):
                    cases.append(case)
                    break
            else:
                if self._may_go_on(0):
                    alike.append([case])
                    quick += self.tries(one, alike[-1], self.observed, quick=True)
        return self.finished(quick)

    def tries(
        self, one: Network, cases: list[Case], observed: Iterable[Observed], quick: bool
    ) -> Iterator[Match]:
        """Run a network, and yield how well it agrees with each reading of x and y."""
        for each in observed:
            if each.x.shape[-1] != one.spec.input_size:
                continue
            for turned in [each] if one.spec.bidirectional else each.turned():
                most = len(turned.x) if one.spec.bidirectional else _STEPS
                used = turned.part(most, _ROWS) if quick else turned
                N, rows = turned.x.shape[1], used.x.shape[1]
                fits, state = initial_state(one.spec, self.state, N, rows)
                if not fits:
                    continue
                self.work += one.flat.size * len(used.x) * rows
                for join, score in score_network(one, used, state, self.unit, self.atol):
                    yield Match(self.tensors, cases, turned, join, score)

    def _may_go_on(self, work: float) -> bool:
        """Return whether there is time for one more network, that takes so much work."""
        self.stopped = self.stopped or self.work > _MOST_WORK
        self.tried += not self.stopped
        self.work += work
        return not self.stopped

    def finished(self, quick: list[Match]) -> list[Match]:
        """Compare with all of x and y what agrees with their beginning, or is nearest."""
        right = [one for one in quick if one.score.agrees]
        chosen = right or sorted(quick, key=lambda one: one.score.error)[:_NEAREST]
        wanted = [one.reading for one in chosen]
        cases = {id(one.cases): one.cases for one in chosen}
        return [
            one
            for same in cases.values()
            for one in self.tries(same[0].network(self.values), same, self.observed, quick=False)
            if one.reading in wanted
        ]

    # --------------------------------------------------------------- layouts that are in no row

    def custom_layouts(self) -> Iterator[CustomLayout]:
        """Yield the layouts of somebody's own that may agree."""
        sides = product(_CELLS, range(1, _MOST_LAYERS + 1), (1, 2))
        widths = {(one.x.shape[-1], one.width) for one in self.observed}
        for (cell, L, D), (I, width) in product(sides, widths):  # noqa: E741
            if len(self.values) % (L * D):
                continue
            each = len(self.values) // (L * D)
            chunks = [self.values[k * each : (k + 1) * each] for k in range(L * D)]
            if D == 1:
                yield from self._stacks(cell, I, width, chunks, self.observed)
            elif L == 1 and width % 2 == 0:
                yield from self._both(cell, I, width // 2, chunks)
            elif L > 1:
                turned = [chunks[k + L * side] for k in range(L) for side in (0, 1)]
                for H in {width // 2, width}:  # y is both side by side, or added; or it is h_n
                    yield from self._stacks(cell, I, H, chunks, self.observed, 2)
                    yield from self._stacks(
                        cell, I, H, turned, self.observed, 2, "all forward layers first"
                    )

    def _stacks(
        self, cell: Cell, I: int, H: int, chunks: list[list[np.ndarray]],  # noqa: E741
        observed: list[Observed], D: int = 1, how: str = "",
    ) -> Iterator[CustomLayout]:  # fmt: skip
        """Yield the RNNs of these layers and directions, of one direction only those that agree
        with the first step, if that can be told."""
        observed = [each for one in observed for each in one.turned() if one.width == H]
        G = len(CELLS[cell].gates)
        widths = [I if k < D else D * H for k in range(len(chunks))]
        options = [
            [*split_tensors(chunk, G, one, H)] for chunk, one in zip(chunks, widths, strict=True)
        ]
        activations = _ACTIVATIONS[: None if G > 1 else 1]
        for parts, reset in product(layers_alike(options), _RESETS.get(cell, ("after",))):
            alike: dict[str, dict[AxisForm, list[AxisForm]]] = {}  # by W, and at the first step
            for form in axis_forms(cell, parts[0], H, reset):
                forms = alike.setdefault(form.W, {})
                forms.setdefault(form_at_first_step(form), []).append(form)
            for forms, (recurrent, state) in product(alike.values(), activations):
                spec = Spec(
                    cell, I, H, len(chunks) // D, D == 2, reset=reset,
                    recurrent_activation=recurrent, activation=state, dtype="float64",
                )  # fmt: skip
                for first in self._shown(spec, [*forms], parts, observed):
                    yield from (CustomLayout(spec, form, parts, how) for form in forms[first])

    def _shown(
        self, spec: Spec, forms: list[AxisForm], parts: tuple[SplitTensors, ...],
        observed: list[Observed],
    ) -> list[AxisForm]:  # fmt: skip
        """Return the forms of one W that may agree, as far as the first step of an RNN of one
        direction shows it from a zero state."""
        first = [one.part(1, 1) for one in observed if one.form == "steps"]
        if self.state or not first or spec.bidirectional:
            return forms
        x, y = (np.concatenate(rows) for rows in zip(*((one.x[0], one.y[0]) for one in first),
                                                     strict=True))  # fmt: skip
        work = len(x) * sum(part.W.size for part in parts) + _FIRST_STEP
        forms = [form for form in forms if self._may_go_on(work)]
        if not forms:
            return []
        with np.errstate(all="ignore"):
            off = abs(first_outputs(spec, forms, parts, x) - y).max(axis=2)  # form, row
        ends = np.cumsum([one.x.shape[1] for one in first])
        terms = spec.input_size + spec.hidden_size
        near = [
            part.max(axis=1) <= first_step_tolerance(one, terms, self.unit, self.atol)
            for one, part in zip(first, np.split(off, ends[:-1], axis=1), strict=True)
        ]
        return [form for form, fits in zip(forms, np.any(near, axis=0), strict=True) if fits]

    def _both(
        self, cell: Cell, I: int, H: int, chunks: list[list[np.ndarray]]  # noqa: E741
    ) -> Iterator[CustomLayout]:  # fmt: skip
        """Yield bidirectional RNNs: of those forms in which one direction alone agrees."""
        seen = set()
        for chunk, half in product((0, 1), repeat=2):
            part = slice(half * H, half * H + H)
            ys = [replace(one, y=one.y[..., part]) for one in self.observed
                  if one.width == 2 * H and one.form != "states"]  # fmt: skip
            if self.state:
                return
            for case in self._stacks(cell, I, H, [chunks[chunk]], ys):
                spec = case.spec.replace(bidirectional=True)
                for other in split_tensors(chunks[1 - chunk], len(case.form.gates), I, H):
                    parts = (case.parts[0], other)
                    key = spec, case.form, chunk, other.joined
                    if key not in seen:
                        seen.add(key)
                        how = "the backward direction first" if chunk else ""
                        yield CustomLayout(spec, case.form, parts, how)
