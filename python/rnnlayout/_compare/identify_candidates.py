"""identify: a candidate, in words and as the code that reads the tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rnnlayout import _native
from rnnlayout._model.dtypes import widen_bits
from rnnlayout._model.layout import Layout, layout_in_code
from rnnlayout._model.spec import CELLS, Spec, call_of_spec
from rnnlayout._model.weights import Weights, changed_weights
from rnnlayout._native import LossyError
from rnnlayout._run.settings import MERGES

from .identify_custom import CustomLayout
from .identify_inputs import UnknownTensors
from .identify_rows import RowMatch
from .identify_search import Match
from .identify_user_row import renamed_layout, user_layout

_AXES = {
    "TNI": "x is (T, N, I)",
    "NTI": "x is (N, T, I)",
    "TI": "x is (T, I)",
    "NI": "x is one step, (N, I)",
    "I": "x is one step",
}
_FORMS = {"steps": "", "last": "y is the last output", "states": "y is h_n"}
_JOINS = {
    "sum": "the directions are added",
    "ave": "the directions are averaged",
    "mul": "the directions are multiplied",
    "swapped": "y has the backward direction first",
}


@dataclass(frozen=True)
class Candidate:
    """A way to read the tensors.

    layouts: the layouts that read the tensors as this RNN; () if no layout of the table does. spec:
    the RNN's Spec. settings: the RNN's settings, with the names and values of Weights.config.
    batch_first: whether x is (N, T, I); None if x has no batch. text: the layout, the spec and the
    settings in words.
    layout: reads the next checkpoint: the first of them, with the names of these tensors, or a
    layout of your own; None if no row describes the tensors.
    error: the largest difference from y. allowed: the difference that rounding explains. agrees:
    whether rounding explains the whole error. call: the Python code that reads the tensors in this
    way. weights: the result of `call`.
    """

    layouts: tuple[Layout, ...]
    layout: Layout | None
    spec: Spec
    settings: dict[str, Any]
    batch_first: bool | None
    text: str
    error: float
    allowed: float
    agrees: bool
    call: str
    _found: Match = field(repr=False, compare=False)

    @cached_property
    def weights(self) -> Weights:
        """The tensors, ready to use."""
        case, tensors = self._found.cases[0], self._found.tensors
        rnn = case.weights(tensors.arrays, tensors.dtype)
        if isinstance(case, CustomLayout):
            try:
                rnn = rnn.to("torch", dtype=tensors.dtype)
            except LossyError:
                rnn = rnn.to(rnn.layout, dtype=tensors.dtype)
        return changed_weights(rnn, config=dict(self.settings), batch_first=self.batch_first)


def candidate_of(match: Match) -> Candidate:
    """Return the candidate for a match, with the code that reads the tensors."""
    case, tensors, observed = match.cases[0], match.tensors, match.observed
    layouts = dict.fromkeys(row.layout for row in match.cases if isinstance(row, RowMatch))
    spec = case.spec.replace(dtype=tensors.dtype)
    join = match.join.partition(" ")[0]
    settings = dict(observed.settings) | ({"merge_mode": join} if join in MERGES else {})
    call = "rl.identify(tensors, x, y).best"
    arrays = [widen_bits(array, tensors.dtype) for array in tensors.arrays]
    layout: Layout | None
    if isinstance(case, RowMatch):
        layout, source = renamed_layout(case, tensors.names, arrays), _tensors_code(case, tensors)
        named: Layout | None = case.layout
    else:
        layout = named = user_layout(case, tensors.names, arrays)
        source = "tensors"
    if source and named:
        fields = ["reset", "recurrent_activation"] if CELLS[spec.cell].has_reset else []
        layout_code = layout_in_code(named)
        call = f"rl.Weights({source}, rl.{call_of_spec(spec, fields)}, layout={layout_code}"
        if source == "tensors" and tensors.names and tensors.prefix:
            call += f", prefix={tensors.prefix!r}"
        call = f"w = {call}); w.config = {settings!r}" if settings else f"{call})"
    return Candidate(
        tuple(layouts),
        layout,
        spec,
        settings,
        observed.batch_first,
        _in_words(match, [str(layout) for layout in layouts]),
        match.error,
        match.allowed,
        match.agrees,
        call,
        match,
    )


def _in_words(match: Match, layouts: list[str]) -> str:
    """Return the cell, the layout and the conventions."""
    case, observed = match.cases[0], match.observed
    spec, cell = case.spec, CELLS[case.spec.cell]
    if isinstance(case, CustomLayout):
        parts = [f"{spec.cell} in no known layout: {case.text}"]
    else:
        also = f" (also {', '.join(layouts[1:])})" if layouts[1:] else ""
        parts = [f"{spec.cell} in layout {layouts[0]}{also}", *_conventions(case)]
    join, _, at = match.join.partition(" ")
    form = _FORMS[observed.form]
    parts += [
        f"reset {spec.reset}" if cell.has_reset else "",
        spec.recurrent_activation if cell.is_gated else "",
        spec.activation if spec.activation != "tanh" else "",
        f"under {match.tensors.prefix!r}" if match.tensors.prefix else "",
        f"{spec.num_layers} layers" if spec.num_layers > 1 else "",
        "bidirectional" if spec.bidirectional else "",
        _JOINS.get(join, ""),
        *(f"{key}={value!r}" for key, value in observed.settings),
        f"{form} of each direction" if match.join and form and not at else form,
        _AXES[observed.axes],
    ]
    return ", ".join(filter(None, parts))


def _conventions(case: RowMatch) -> list[str]:
    layout, spec = case.layout, case.spec
    blocks = _native.blocks(layout, spec, case.optional_tensors)
    biases = {role for (_, _, role, _, _), _ in blocks} & {"bW", "bR"}
    info = layout.facts
    gates = info["gates"][spec.cell]
    parts = [f"gates {' '.join(gates)}"] if len(gates) > 1 else []
    parts.append(("no biases", "one bias per gate", "two biases per gate")[len(biases)])
    if CELLS[spec.cell].has_reset:
        row = next(
            row for row in info["rows"] if "gru" in row["gates"] and spec.reset in row["resets"]
        )
        keeps_state = dict(layout.options).get("z", row["z"]) == "state"
        parts.append("h' = z h + (1 - z) n" if keeps_state else "h' = (1 - z) h + z n")
    return [*parts, case.how]


def _tensors_code(case: RowMatch, tensors: UnknownTensors) -> str | None:
    """Return the code for the tensors in the layout's order; None if too long."""
    names, keys = tensors.names, tensors.keys
    if tensors.is_flat:
        return "tensors" if [tensors.arrays[0].shape] == [*case.shapes.values()] else None
    if names is None:
        in_order = case.order == tuple(range(len(tensors.arrays)))
        return "tensors" if in_order else f"[tensors[k] for k in {list(case.order)}]"
    if {*names} == {*case.shapes}:
        return "tensors"
    if keys is None:
        return None
    pairs = zip(case.shapes, case.order, strict=True)
    return f"{{{', '.join(f'{name!r}: tensors[{keys[k]!r}]' for name, k in pairs)}}}"
