"""RNNs written by hand: the names of their tensors are common, but in no layout.

A form has the names of such an RNN and what is in each tensor. Names and shapes then give the row
of a layout, except for facts that only the code of the RNN shows, for which the message asks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any

from rnnlayout._model.errors import Ask, Message
from rnnlayout._model.layout import Layout, gate_placeholder
from rnnlayout._model.spec import CELLS
from rnnlayout._native import LayoutError

Shape = tuple[int, ...]
_Row = dict[str, Any]

_TWO_LINEAR = {"weight": ("W", "R"), "bias": ("bW", "bR")}
# Name of each tensor -> what it contains. Biases may be missing.
_FORMS: tuple[dict[str, str], ...] = (
    *(
        {
            f"{side}.{leaf}": role
            for leaf, roles in _TWO_LINEAR.items()
            for side, role in zip(sides, roles, strict=True)
        }
        for sides in (
            ("x2h", "h2h"),
            ("i2h", "h2h"),
            ("W_x", "W_h"),
            ("W_ih", "W_hh"),
            ("Wx", "Wh"),
            ("W", "U"),
            ("W_i{gate}", "W_h{gate}"),  # as in the equations of PyTorch's documentation
            ("W_x{gate}", "W_h{gate}"),
            ("W_{gate}", "U_{gate}"),
        )
    ),
    *(
        {w: "W", r: "R", b: "bW"}
        for w, r, b in (
            ("W", "U", "b"),
            ("W_ih", "W_hh", "b"),
            ("W_x", "W_h", "b"),
            ("Wx", "Wh", "b"),
            ("W_x{gate}", "W_h{gate}", "b_{gate}"),
            ("W_{gate}", "U_{gate}", "b_{gate}"),
        )
    ),
    {"W_{gate}": "R + W", "b_{gate}": "bW"},
    {"W_{gate}.weight": "R + W", "W_{gate}.bias": "bW"},
    {"gates.weight": "W + R", "gates.bias": "bW"},
    {"gate.weight": "W + R", "gate.bias": "bW"},
    {"linear.weight": "W + R", "linear.bias": "bW"},
)
_MOST_NAMES = 2000  # of a model that is searched
_LONGEST = 200  # characters of a name
_MOST_TENSORS = 16  # of an RNN: of each gate W, R and two biases
_REGEXES = {  # by name in a form, with a group for the letter of the gate
    name: re.escape(name).replace(r"\{gate\}", "([a-z])") for name in chain(*_FORMS)
}
_ANY_NAME = re.compile("|".join(_REGEXES.values()))
_IN_WORDS = {"lstm": "an LSTM", "gru": "a GRU"}
_GATES = {cell: CELLS[cell].gates for cell in _IN_WORDS}


def hand_written_advice(shapes: Mapping[str, Shape]) -> Message | None:
    """Return what to pass for tensors of RNNs written by hand, with or without a prefix; None for
    other tensors. shapes: by name."""
    below: dict[str, dict[str, Shape]] = {"": dict(shapes)}
    for name, shape in shapes.items() if len(shapes) <= _MOST_NAMES else ():
        if len(name) <= _LONGEST:  # the names of a form have one dot at the most
            for separator in [*re.finditer(r"[./]", name)][-2:]:
                below.setdefault(name[: separator.end()], {})[name[separator.end() :]] = shape
    for prefix, tails in below.items():
        if len(tails) > _MOST_TENSORS or not all(map(_ANY_NAME.fullmatch, tails)):
            continue
        for row in _rows(tails):
            (cell,) = row["gates"]
            unknown = []
            if not any("{gate" in name for name in row["tensors"]):
                unknown.append(f"the order of its gates for {row['gates'][cell]!r}")
            if any("+" in text for text in row["tensors"].values()):
                unknown.append("whether x or h comes first")
            if cell == "gru":
                unknown.append("reset and z")
            where = f"tensors under {prefix!r}" if prefix else "these tensors"
            advice = f"put in what only its code shows ({', '.join(unknown)}) and pass "
            return Message(
                f"{where} look like those of {_IN_WORDS[cell]} written by hand: ",
                advice if unknown else "pass ",
                Ask("layout", Layout(row)),
            )
    return None


def _rows(shapes: Mapping[str, Shape]) -> Iterator[_Row]:
    """Yield the rows of the forms that these names and shapes fit."""
    for form in _FORMS:
        tensors: dict[str, dict[str, Shape]] = {}  # pattern -> letter of a gate, or "" -> shape
        for name, shape in shapes.items():
            for pattern in form:
                if match := re.fullmatch(_REGEXES[pattern], name):
                    tensors.setdefault(pattern, {})["".join(match.groups())] = shape
        count = sum(map(len, tensors.values()))
        if count == len(shapes) and (row := _row_of(form, tensors)):
            with suppress(LayoutError):  # it lacks W or R
                Layout(row)
                yield row


def _row_of(form: Mapping[str, str], tensors: Mapping[str, dict[str, Shape]]) -> _Row | None:
    """Return the row of tensors that match the names of a form; None if their shapes do not."""
    letters = next(iter(tensors.values())).keys()
    if any(by_gate.keys() != letters for by_gate in tensors.values()):
        return None
    shape_of = {form[pattern]: next(iter(s.values())) for pattern, s in tensors.items()}
    matrices = [shape for role, shape in shape_of.items() if role[0] != "b"]
    if any(len(shape) != 2 for shape in matrices) or 0 in {n for s in matrices for n in s}:
        return None
    recurrent = shape_of.get("R")
    if recurrent is None and len(shape_of.get("bW", ())) != 1:
        return None
    if {""} != letters:
        cell, gate = _gates_of({*letters})
    elif recurrent is None:  # one matrix of x and h: the gates of an LSTM, unless they do not fit
        cell, gate = "lstm" if shape_of["bW"][0] % 4 == 0 else "gru", ""
    else:
        gates = max(recurrent) // min(recurrent)
        cell, gate = {4: "lstm", 3: "gru"}.get(gates, ""), ""
    if not cell:
        return None
    G = 1 if gate else len(_GATES[cell])
    H = min(recurrent) if recurrent else shape_of["bW"][0] // G
    out = "H" if gate else "G*H"
    # the side of the outputs: of Linear the rows; else as W shows
    is_linear = any(pattern.endswith(".weight") for pattern in tensors)
    rows_first = is_linear or (matrices[0][0] == G * H and matrices[0][1] != G * H)

    def text(role: str) -> str:
        if role[0] == "b":
            return f"{role} ({out})"
        parts = [{"W": "I", "R": "H_in"}[part] for part in role.split(" + ")]
        sides = (out, " + ".join(parts)) if rows_first else (" + ".join(parts), out)
        return f"{role} ({', '.join(sides)})"

    names = {pattern: pattern.replace("{gate}", gate) for pattern in tensors}
    row: _Row = {"gates": {cell: _GATES[cell]}}
    row |= {"reset": "after", "z": "state"} if cell == "gru" else {}
    return row | {"tensors": {names[pattern]: text(form[pattern]) for pattern in tensors}}


def _gates_of(letters: set[str]) -> tuple[str, str]:
    """Return the cell whose gates have these letters, and the placeholder of names; "" if none."""
    for cell, known in (("lstm", "ifo"), ("gru", "rz"), ("gru", "ru")):
        other = letters - {*known}
        if {*known} <= letters and len(other) == 1:
            last = _GATES[cell][-1] if cell == "gru" else "g"
            names = dict(zip(known.replace("u", "z"), known, strict=True)) | {last: other.pop()}
            return cell, gate_placeholder(names)
    return "", ""
