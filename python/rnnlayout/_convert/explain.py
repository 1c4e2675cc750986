"""explain: what a conversion does to each gate, as text."""

from __future__ import annotations

from rnnlayout import _native
from rnnlayout._model.layout import ROLES, Layout, as_layout, known_layouts
from rnnlayout._model.spec import Spec
from rnnlayout._native import LossyError

from .moves import Move, Moves, Place, moves_of


def explain(spec: Spec, layout: str | Layout, to: str | Layout) -> str:
    """Return what the conversion from `layout` to another does, as text, with its grade.

    For each gate: the tensors that it comes from and goes to; whether it is transposed, negated,
    summed, filled with zeros, or required to be zero. For a conversion that is not possible the
    text has the reason; nothing is raised.

        >>> print(explain(Spec("rnn_tanh", 2, 3), "keras", "torch"))
        keras -> torch: rnn_tanh, input_size 2, hidden_size 3
        grade: exact
        gates in memory: h -> h
        layer 0
          W  h  kernel -> weight_ih_l0, transposed
          R  h  recurrent_kernel -> weight_hh_l0, transposed
          bW h  bias -> bias_ih_l0
          bR h  0 -> bias_hh_l0
    """
    _native.check(spec)
    source, target = both = as_layout(layout), as_layout(to)
    head = f"{source} -> {target}: {spec}"
    try:
        moves = moves_of(spec, source, target)
    except LossyError as error:
        return f"{head}\ngrade: unrepresentable\n{error}"
    orders = " -> ".join(" ".join(known_layouts()[x.name]["gates"][spec.cell]) for x in both)
    lines = [head, f"grade: {_grade(moves)}", f"gates in memory: {orders}"]
    lines += [f"{each}: {key}, {note}" for each in both for key, note in each.notes.items()]
    for place, first in moves.alike().items():
        if place == first:
            lines.append(_title(place, spec))
            lines += [_line(move, moves.sources, moves.targets) for move in moves.every[place]]
        else:
            lines.append(f"{_title(place, spec)}: as {_title(first, spec)}")
    return "\n".join(lines)


def _title(place: Place, spec: Spec) -> str:
    layer, direction = place
    side = (" forward", " backward")[direction] if spec.bidirectional else ""
    return f"layer {layer}{side}"


def _grade(moves: Moves) -> str:
    every = [move for group in moves.every.values() for move in group]
    ops = {move.op for move in every}
    grade = "exact"
    if "add" in ops:
        grade += " where one of the two biases of a gate is zero, else rounds"
    if "shift" in ops:
        grade += "; of gate f where the sum with the forget bias is not rounded, else rounds"
    vanish: dict[float, set[str]] = {}
    for move in every:
        if move.op == "expect_zero":
            needs = f"{ROLES[move.block[2]]} of gate {move.block[4]}"
            vanish.setdefault(-move.shift, set()).add(needs)
    for value, needed in sorted(vanish.items(), reverse=True):
        grade += f"; unrepresentable unless {_number(value)}: {', '.join(sorted(needed))}"
    if "expect_identity" in ops:
        grade += "; unrepresentable unless the input matrices of layer 0 are the identity"
    return grade


def _number(value: float) -> str:
    return f"{value:g}" if value else "zero"


def _line(move: Move, sources: list[str], targets: list[str]) -> str:
    role, gate = move.block[2], move.block[4]
    source = sources[move.sources[0][0]] if move.sources else ""
    target = "" if move.target is None else targets[move.target]
    total = " + ".join(dict.fromkeys(sources[k] for k, _ in move.sources)) or "0"
    shift = move.shift
    what = {
        "move": f"{source} -> {target}",
        "add": f"{total} -> {target}",
        "shift": f"{total} {'+' if shift > 0 else '-'} {abs(shift):g} -> {target}",
        "zero": f"0 -> {target}",
        "identity": f"identity -> {target}",
        "expect_zero": f"{source} must be {_number(-shift)}",
        "expect_identity": f"{source} must be the identity",
    }[move.op]
    return f"  {role:<2} {gate or '-'}  " + ", ".join([what, *move.notes])
