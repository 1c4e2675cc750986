"""identify: a candidate in words, and the code that reads the tensors."""

from __future__ import annotations

from typing import Any

from rnnlayout import _native
from rnnlayout._model.layout import Layout, known_layouts
from rnnlayout._model.spec import CELLS, call_of_spec

from .identify_inputs import Observed, UnknownTensors
from .identify_rows import RowMatch
from .identify_search import CustomLayout, Match

_AXES = {"TNI": "x is (T, N, I)", "NTI": "x is (N, T, I)", "TI": "x is (T, I)",
         "NI": "x is one step, (N, I)", "I": "x is one step"}  # fmt: skip
_FORMS = {"steps": "", "last": "y is the last output", "states": "y is h_n"}
_JOINS = {
    "sum": "the directions are added",
    "ave": "the directions are averaged",
    "mul": "the directions are multiplied",
    "swapped": "y has the backward direction first",
}


def match_in_words(found: Match) -> str:
    """Return the cell, the layout and the conventions."""
    case = found.cases[0]
    spec, parts = case.spec, []
    layouts = list(
        dict.fromkeys(str(one.layout) for one in found.cases if isinstance(one, RowMatch))
    )
    if isinstance(case, CustomLayout):
        parts.append(f"{spec.cell} in no known layout: {case.text}")
    else:
        also = f" (also {', '.join(layouts[1:])})" if layouts[1:] else ""
        parts.append(f"{spec.cell} in layout {layouts[0]}{also}")
        parts += _conventions(case)
    if CELLS[spec.cell].has_reset:
        parts.append(f"reset {spec.reset}")
    if CELLS[spec.cell].is_gated:
        parts.append(spec.recurrent_activation)
        parts += [spec.activation] if spec.activation != "tanh" else []
    parts += [f"under {found.tensors.prefix!r}"] if found.tensors.prefix else []
    parts += [f"{spec.num_layers} layers"] if spec.num_layers > 1 else []
    parts += ["bidirectional"] if spec.bidirectional else []
    join, _, at = found.join.partition(" ")
    parts += [_JOINS[join]] if join in _JOINS else []
    parts += [f"{key}={value!r}" for key, value in found.observed.settings]
    form = _FORMS[found.observed.form]
    parts += [f"{form} of each direction" if found.join and form and not at else form]
    parts.append(_AXES[found.observed.axes])
    return ", ".join(filter(None, parts))


def _conventions(case: RowMatch) -> list[str]:
    layout, spec = case.layout, case.spec
    blocks = _native.blocks(layout, spec, case.optional_tensors)
    roles = {role for (_, _, role, _, _), _ in blocks}
    gates = known_layouts()[layout.name]["gates"][spec.cell]
    parts = [f"gates {' '.join(gates)}"] if len(gates) > 1 else []
    count = len(roles & {"bW", "bR"})
    parts.append(("no biases", "one bias per gate", "two biases per gate")[count])
    if CELLS[spec.cell].has_reset:
        parts.append(_z_of(layout, spec.reset))
    return [*parts, case.how]


def _z_of(layout: Layout, reset: str) -> str:
    """Return what z of a GRU scales."""
    rows = [row for row in known_layouts()[layout.name]["rows"]
            if "gru" in row["gates"] and reset in row["resets"]]  # fmt: skip
    z = dict(layout.options).get("z", rows[0]["z"])
    return "h' = z h + (1 - z) n" if z == "state" else "h' = (1 - z) h + z n"


def match_settings(found: Match) -> dict[str, Any]:
    """Return how the RNN is used, as Weights.config has it."""
    settings = dict(found.observed.settings)
    join = found.join.partition(" ")[0]
    if join in ("sum", "ave", "mul"):
        settings["merge_mode"] = join
    return settings


def is_batch_first(observed: Observed) -> bool | None:
    """Return whether x is (N, T, I); None if it has no batch."""
    return observed.axes == "NTI" if observed.axes in ("TNI", "NTI") else None


def reading_code(found: Match) -> str:
    """Return the code that reads the tensors."""
    case, tensors = found.cases[0], found.tensors
    spec = case.spec.replace(dtype=tensors.dtype)
    if isinstance(case, CustomLayout) or (source := _tensors_code(case, tensors)) is None:
        return "rl.identify(tensors, x, y).best"
    layout = repr(case.layout.name)
    if case.layout.options:
        layout = f"rl.{case.layout!r}"
    known = ["reset", "recurrent_activation"] if CELLS[spec.cell].has_reset else []
    call = f"rl.Weights({source}, rl.{call_of_spec(spec, known)}, layout={layout})"
    if {*(tensors.names or ())} == {*case.names} and tensors.prefix:
        call = f"{call[:-1]}, prefix={tensors.prefix!r})"
    settings = match_settings(found)
    return f"w = {call}; w.config = {settings!r}" if settings else call


def _tensors_code(case: RowMatch, tensors: UnknownTensors) -> str | None:
    """Return the code for the tensors in their order; None if that is too long."""
    names, keys = tensors.names, tensors.keys
    if tensors.is_flat:
        return "tensors" if case.order == (0,) and names is None else None
    if names is None:
        in_order = case.order == tuple(range(len(tensors.arrays)))
        return "tensors" if in_order else f"[tensors[k] for k in {list(case.order)}]"
    if {*names} == {*case.names}:
        return "tensors"
    if keys is None:
        return None
    pairs = zip(case.names, case.order, strict=True)
    return f"{{{', '.join(f'{name!r}: tensors[{keys[k]!r}]' for name, k in pairs)}}}"
